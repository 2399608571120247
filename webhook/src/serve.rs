//! The server: reviews at `/admit/pods`, over TLS, and what tells whether it is well.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use evenkeel_net::tls::Tls;
use evenkeel_net::{Gate, Limits, Speech};
use evenkeel_proto::bearer;
use serde_json::Value;
use tokio::net::TcpListener;
use tracing::{debug, warn};

use crate::advice::{Advisor, Come};
use crate::change::{changes, patch};
use crate::counts::{Counts, Outcome};
use crate::pod::{self, Question};
use crate::review::{Request, annotate};

/// Path of reviews of pods.
pub const PATH: &str = "/admit/pods";
/// What was set and why.
pub const SET: &str = "evenkeel.dev/initial-resources";
/// What would have been set.
pub const ESTIMATE: &str = "evenkeel.dev/estimate";
/// Largest review read: an object is 1.5 MiB at most, and a review has one or two.
const MOST_BYTES: usize = 4 << 20;
/// Connections at once: API servers keep a few each.
const LIMITS: Limits = Limits { connections: 512, per_peer: 256 };

/// What is done.
#[derive(Debug, Clone)]
pub struct Options {
    /// Requests are set; otherwise they are told in an annotation alone.
    pub applies: bool,
    /// For how long the recommender is waited for.
    pub within: Duration,
    /// Namespaces whose pods are left alone.
    pub exclude: Vec<String>,
    /// Who asks for metrics shows this token; nobody is told them without.
    pub metrics_token: Option<String>,
}

/// The webhook.
#[derive(Debug)]
pub struct Webhook {
    options: Options,
    advisor: Advisor,
    counts: Counts,
}

impl Webhook {
    /// Of these options, by this advisor.
    #[must_use]
    pub fn new(options: Options, advisor: Advisor) -> Arc<Self> {
        Arc::new(Self { options, advisor, counts: Counts::default() })
    }

    /// Counters.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Answers a review; what cannot be read is no review, and told in words.
    ///
    /// # Errors
    /// The words.
    pub async fn review(&self, body: &[u8]) -> Result<Value, String> {
        let began = Instant::now();
        let request = Request::read(body).map_err(|error| {
            self.counts.answered(Outcome::Rubbish, began.elapsed());
            error.to_string()
        })?;
        let (answer, outcome) = self.answer(&request).await;
        self.counts.answered(outcome, began.elapsed());
        Ok(answer)
    }

    async fn answer(&self, request: &Request) -> (Value, Outcome) {
        let through = |outcome| (request.allowed(&[], &[]), outcome);
        if !request.makes_pod()
            || self.options.exclude.contains(&request.namespace)
            || pod::opts_out(&request.object)
        {
            return through(Outcome::LeftAlone);
        }
        let question = match Question::of(&request.namespace, &request.object) {
            Ok(question) => question,
            // The API server refuses it itself.
            Err(why) => {
                debug!(namespace = request.namespace, why, "a pod that is none");
                return through(Outcome::Nothing);
            }
        };
        let advice = match self.advisor.advice(&question, self.options.within).await {
            Come::Fresh(advice) => advice,
            Come::Kept(advice, why) => {
                debug!(namespace = request.namespace, why, "a kept answer is given");
                self.counts.kept();
                advice
            }
            Come::None(why) => {
                warn!(
                    namespace = request.namespace,
                    why, "the recommender gives no answer: the pod is let through as it is"
                );
                return through(Outcome::NoAnswer);
            }
        };
        let changes = changes(&question, &advice);
        if changes.is_empty() {
            return through(Outcome::Nothing);
        }
        let text: Vec<String> = changes.iter().map(crate::change::Change::text).collect();
        let text = text.join("; ");
        let (mut operations, key, outcome) = match self.options.applies {
            true => (patch(&question, &changes), SET, Outcome::Set),
            false => (Vec::new(), ESTIMATE, Outcome::Told),
        };
        operations.extend(annotate(&request.object, key, &text));
        (request.allowed(&operations, &[]), outcome)
    }
}

/// Serves until `stop` ends.
///
/// # Errors
/// When the server fails.
pub async fn serve(
    webhook: Arc<Webhook>,
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let connections =
        evenkeel_net::at_address(listener, Gate::new("webhook.address", LIMITS), Speech::Http, tls);
    evenkeel_net::http::serve(connections, router(webhook), stop).await
}

fn router(webhook: Arc<Webhook>) -> Router {
    Router::new()
        .route(PATH, post(admit))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ok\n" }))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .with_state(webhook)
}

async fn admit(State(webhook): State<Arc<Webhook>>, body: Bytes) -> Response {
    match webhook.review(&body).await {
        Ok(answer) => {
            let kind = [(header::CONTENT_TYPE, "application/json")];
            (kind, Body::from(answer.to_string())).into_response()
        }
        Err(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
    }
}

async fn metrics(State(webhook): State<Arc<Webhook>>, headers: HeaderMap) -> Response {
    let Some(wanted) = &webhook.options.metrics_token else {
        return (StatusCode::NOT_FOUND, "metrics are not served: set webhook.metrics_token\n")
            .into_response();
    };
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| bearer::token(value.as_bytes()));
    if !shown.is_some_and(|shown| is_same(shown, wanted)) {
        return (StatusCode::UNAUTHORIZED, "show the token of webhook.metrics_token\n").into_response();
    }
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (kind, webhook.counts.text()).into_response()
}

/// Compares in a time that does not tell how much is equal.
fn is_same(shown: &str, wanted: &str) -> bool {
    use sha2::{Digest as _, Sha256};
    Sha256::digest(shown) == Sha256::digest(wanted)
}
