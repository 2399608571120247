//! The door of the gRPC server: every call has an identity and what its method asks for, or ends there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_net::Peer;
use evenkeel_proto::bearer;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use super::paid::Paid;
use super::rate::{TOO_MANY, length};
use super::table::{Need, of_method};
use super::{Access, Identity, standing};
use crate::{audit, leading};

/// The door, as a layer over all services.
#[derive(Debug, Clone)]
pub(crate) struct Door(pub(crate) Arc<Access>);

/// A service behind the door.
#[derive(Debug, Clone)]
pub(crate) struct Behind<S> {
    access: Arc<Access>,
    inner: S,
}

impl<S> Layer<S> for Door {
    type Service = Behind<S>;

    fn layer(&self, inner: S) -> Behind<S> {
        Behind { access: Arc::clone(&self.0), inner }
    }
}

impl<S> Service<Request<Body>> for Behind<S>
where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let next = self.inner.clone();
        // The one that was asked whether it is ready.
        let mut inner = std::mem::replace(&mut self.inner, next);
        let access = Arc::clone(&self.access);
        let peer = request.extensions().get::<Peer>().cloned();
        let token = request.headers().get(bearer::HEADER).map(|value| value.as_bytes().to_vec());
        let (path, bytes) = (request.uri().path().to_owned(), length(request.headers()));
        Box::pin(async move {
            let identified = access.identify(peer.as_ref(), token.as_deref()).await;
            identified.iter().for_each(|identity| audit::called(request.extensions(), identity));
            let checked = match &identified {
                Ok(identity) => check(&access, identity, &path).await,
                Err(refusal) => Err(refusal.clone().into()),
            };
            let known = identified.as_ref().ok();
            let free = is_free(&checked, &path);
            let caller = match access.admit(known, peer.as_ref(), bytes.unwrap_or(0), free) {
                Ok(caller) => caller,
                Err((caller, after)) => {
                    access.refuse(&caller, &path, TOO_MANY);
                    return Ok(too_many(after).into_http());
                }
            };
            match (checked, identified) {
                (Ok(_), Ok(identity)) => {
                    request.extensions_mut().insert(identity.clone());
                    if bytes.is_none() && Access::pays(&identity, free) {
                        request = request.map(|body| Body::new(Paid::new(body, &access, &caller)));
                    }
                    let answer = match identity.may_end() {
                        false => inner.call(request).await,
                        true => {
                            let (request, over) = standing::question(request);
                            let answer = inner.call(request).await;
                            answer.map(|answer| standing::answer(answer, Arc::clone(&access), identity, over))
                        }
                    };
                    // Whoever answers may refuse, too, when it knows the namespace.
                    if let Ok(answer) = &answer
                        && let Some(status) = refusal(answer)
                    {
                        access.refuse(&caller, &path, status.message());
                    }
                    answer
                }
                (Err(status), _) => {
                    access.refuse(&caller, &path, status.message());
                    Ok(status.into_http())
                }
                (Ok(_), Err(refusal)) => Ok(Status::from(refusal).into_http()),
            }
        })
    }
}

/// Health, and streams of agents, which are not limited here.
fn is_free(checked: &Result<Need, Status>, path: &str) -> bool {
    match checked {
        Ok(Need::Node) => path.starts_with("/evenkeel.v1.IngestService/"),
        Ok(Need::Nothing) => path.starts_with("/grpc.health."),
        _ => false,
    }
}

fn refusal(response: &Response<Body>) -> Option<Status> {
    let status = Status::from_header_map(response.headers())?;
    matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated).then_some(status)
}

fn too_many(after: u64) -> Status {
    let mut status = Status::resource_exhausted(format!("{TOO_MANY}; ask again in {after} s"));
    status.metadata_mut().insert("retry-after", after.into());
    status
}

/// What the caller may, before the question is read.
async fn check(access: &Access, identity: &Identity, path: &str) -> Result<Need, Status> {
    let Some(need) = of_method(path) else {
        Need::Name.check(identity).await?;
        return Err(Status::unimplemented("there is no such method; see reflection for those there are"));
    };
    need.check(identity).await?;
    match access.takes_no_changes().filter(|_| need.changes()) {
        Some(why) => Err(Status::failed_precondition(format!("{why}; {}", leading::REMEDY))),
        None => Ok(need),
    }
}
