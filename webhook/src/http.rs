//! The server: reviews at `/admit/pods`, over TLS, and what tells whether it is well.
//!
//! Reviews are answered on threads that do nothing else, each with a runtime of its own (tokio's `current_thread`). A review is little work between
//! two waits: on one runtime of several threads each of them wakes a second thread, which finds nothing to do and costs more than the answer. And no
//! review waits for what the rest of the program does, such as reading a long list of objects.

use std::future::Future;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_metrics::CONTENT_TYPE;
use evenkeel_net::tls::Tls;
use evenkeel_net::{Gate, Limits, Speech};
use evenkeel_proto::bearer;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::serve::Webhook;

/// Path of reviews of pods.
pub const PATH: &str = "/admit/pods";
/// Path of reviews of pods that may be gated.
pub const GATES: &str = "/admit/gates";
const HEALTH: &str = "/healthz";
const READY: &str = "/readyz";
const METRICS: &str = "/metrics";
const TEXT: &str = "text/plain; charset=utf-8";
/// Largest review read: an object is 1.5 MiB at most, and a review has one or two.
const MOST_BYTES: usize = 4 << 20;
/// Connections at once: API servers keep a few each.
const LIMITS: Limits = Limits { connections: 512, per_peer: 256 };

/// Serves on so many threads until `stop` ends, or one of them fails.
///
/// # Errors
/// When a thread cannot serve.
pub async fn serve(
    webhook: Arc<Webhook>,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    threads: usize,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let listener = listener.into_std()?;
    let gate = Gate::new("webhook.address", LIMITS);
    let (stopping, stopped) = watch::channel(false);
    let mut serving = JoinSet::new();
    for _ in 0..threads {
        let thread = Thread {
            listener: listener.try_clone()?,
            gate: gate.clone(),
            tls: tls.clone(),
            webhook: Arc::clone(&webhook),
            stopped: stopped.clone(),
        };
        serving.spawn_blocking(move || thread.serve());
    }
    drop(listener);
    tokio::select! {
        () = stop => {}
        Some(ended) = serving.join_next() => ended??,
    }
    stopping.send_replace(true);
    while let Some(ended) = serving.join_next().await {
        ended??;
    }
    Ok(())
}

/// What a thread serves with.
struct Thread {
    listener: std::net::TcpListener,
    gate: Gate,
    tls: Option<Arc<Tls>>,
    webhook: Arc<Webhook>,
    stopped: watch::Receiver<bool>,
}

impl Thread {
    fn serve(mut self) -> io::Result<()> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener)?;
            let connections = evenkeel_net::at_address(listener, self.gate, Speech::Http, self.tls);
            let stop = async {
                // An error means that nobody waits for it any more.
                let _gone = self.stopped.wait_for(|stopped| *stopped).await;
            };
            let webhook = self.webhook;
            let answers = tower::service_fn(move |request| {
                let answer = answer(Arc::clone(&webhook), request);
                async { Ok(answer.await) }
            });
            evenkeel_net::http::serve(connections, answers, stop).await
        })
    }
}

type Answer = Response<Full<Bytes>>;

async fn answer(webhook: Arc<Webhook>, request: Request<Incoming>) -> Answer {
    match (request.method(), request.uri().path()) {
        (&Method::POST, PATH) => told(match review(request).await {
            Ok(body) => Ok(webhook.review(&body).await),
            Err(status) => Err(status),
        }),
        (&Method::POST, GATES) => told(match review(request).await {
            Ok(body) => Ok(webhook.review_gates(&body).await),
            Err(status) => Err(status),
        }),
        (&Method::GET, HEALTH) => text(StatusCode::OK, TEXT, "ok\n"),
        (&Method::GET, READY) => ready(&webhook),
        (&Method::GET, METRICS) => metrics(&webhook, request.headers()),
        (_, PATH | GATES | HEALTH | READY | METRICS) => text(StatusCode::METHOD_NOT_ALLOWED, TEXT, ""),
        _ => text(StatusCode::NOT_FOUND, TEXT, ""),
    }
}

/// The body of a review; which status refuses it.
async fn review(request: Request<Incoming>) -> Result<Bytes, StatusCode> {
    let body = Limited::new(request.into_body(), MOST_BYTES);
    let read = body.collect().await.map_err(|error| match error.is::<LengthLimitError>() {
        true => StatusCode::PAYLOAD_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    })?;
    Ok(read.to_bytes())
}

fn told(answer: Result<Result<String, String>, StatusCode>) -> Answer {
    match answer {
        Ok(Ok(answer)) => text(StatusCode::OK, "application/json", answer),
        Ok(Err(why)) => text(StatusCode::BAD_REQUEST, TEXT, format!("{why}\n")),
        Err(status) => text(status, TEXT, ""),
    }
}

fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

/// Not while the certificate has ended: no API server takes what is answered then.
fn ready(webhook: &Webhook) -> Answer {
    let certificate = webhook.counts().certificate_now();
    let status = if certificate.has_ended { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    let told = certificate.trouble.map_or_else(|| "ok\n".to_owned(), |why| format!("certificate: {why}\n"));
    text(status, TEXT, told)
}

fn metrics(webhook: &Webhook, headers: &HeaderMap) -> Answer {
    let Some(wanted) = webhook.metrics_token() else {
        return text(StatusCode::NOT_FOUND, TEXT, "metrics are not served: set webhook.metrics_token\n");
    };
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| bearer::token(value.as_bytes()));
    if !shown.is_some_and(|shown| is_same(shown, wanted)) {
        return text(StatusCode::UNAUTHORIZED, TEXT, "show the token of webhook.metrics_token\n");
    }
    text(StatusCode::OK, CONTENT_TYPE, webhook.metrics())
}

/// Compares in a time that does not tell how much is equal.
fn is_same(shown: &str, wanted: &str) -> bool {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(shown) == Sha256::digest(wanted)
}
