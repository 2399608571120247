//! Where requests get their tickets: around everything that is served, the doors of `identity` included.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{MatchedPath, Request as WebRequest};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response as WebResponse;
use evenkeel_net::Peer;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::entry::{AuditOutcome, Object};
use super::record::Audit;
use super::ticket::Ticket;
use crate::identity::table::{Need, of_method, of_route};

/// Make an entry though their callers need no role: a join token, or the certificate before, is what entitles to them.
const OF_NODES: [&str; 2] = ["/evenkeel.v1.EnrollService/Sign", "/evenkeel.v1.EnrollService/Renew"];

/// Why a response is no success, among its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Why(pub(crate) String);

/// The layer of the gRPC server.
#[derive(Debug, Clone)]
pub(crate) struct Recorder(pub(crate) Arc<Audit>);

/// A service whose changes are recorded.
#[derive(Debug, Clone)]
pub(crate) struct Recorded<S> {
    audit: Arc<Audit>,
    inner: S,
}

impl<S> Layer<S> for Recorder {
    type Service = Recorded<S>;

    fn layer(&self, inner: S) -> Recorded<S> {
        Recorded { audit: Arc::clone(&self.0), inner }
    }
}

/// Whether calls of a method are recorded.
pub(super) fn is_recorded(path: &str) -> bool {
    OF_NODES.contains(&path) || of_method(path).is_some_and(Need::changes)
}

impl<S> Service<Request<Body>> for Recorded<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !is_recorded(request.uri().path()) {
            return Box::pin(self.inner.call(request));
        }
        let method = request.uri().path().trim_start_matches('/').to_owned();
        let ticket = Ticket::new(&self.audit, request.extensions().get::<Peer>(), method);
        request.extensions_mut().insert(ticket.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                let status = Status::from_header_map(answer.headers());
                let status = status.filter(|status| status.code() != Code::Ok);
                ticket.answered(status.map(|s| (outcome(s.code()), s.message().to_owned()))).await;
            }
            answer
        })
    }
}

fn outcome(code: Code) -> AuditOutcome {
    match code {
        Code::PermissionDenied | Code::Unauthenticated => AuditOutcome::Refused,
        _ => AuditOutcome::Failed,
    }
}

/// The object that a path names, where its route ends so. Names of objects need no escaping; others are kept as they came.
fn named(route: &str, path: &str) -> Option<Object> {
    let (mut segments, names) = (path.rsplit('/'), route.ends_with("/{namespace}/{name}"));
    let (name, namespace) = (segments.next()?, segments.next()?);
    names.then(|| Object::new("", namespace, name))
}

/// The layer of the HTTP server.
pub(crate) async fn watch(audit: Arc<Audit>, mut request: WebRequest, next: Next) -> WebResponse {
    let route = request.extensions().get::<MatchedPath>().map(|route| route.as_str().to_owned());
    let Some(route) = route.filter(|at| of_route(request.method(), at).is_some_and(Need::changes)) else {
        return next.run(request).await;
    };
    let method = format!("{} {route}", request.method());
    let ticket = Ticket::new(&audit, request.extensions().get::<Peer>(), method);
    if let Some(object) = named(&route, request.uri().path()) {
        ticket.about(object);
    }
    request.extensions_mut().insert(ticket.clone());
    let response = next.run(request).await;
    let status = response.status();
    let error = (status.is_client_error() || status.is_server_error()).then(|| {
        let outcome = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AuditOutcome::Refused,
            _ => AuditOutcome::Failed,
        };
        let why = response.extensions().get::<Why>().map(|why| why.0.clone());
        (outcome, why.unwrap_or_else(|| status.to_string()))
    });
    ticket.answered(error).await;
    response
}
