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

use super::table::{Need, of_method};
use super::{Access, Identity};

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
        let path = request.uri().path().to_owned();
        Box::pin(async move {
            match let_in(&access, peer, token, &path).await {
                Ok(identity) => {
                    request.extensions_mut().insert(identity);
                    let answer = inner.call(request).await;
                    // Whoever answers may refuse, too, when it knows the namespace.
                    if answer.as_ref().is_ok_and(is_refusal) {
                        access.count_refusal();
                    }
                    answer
                }
                Err(status) => {
                    access.count_refusal();
                    Ok(status.into_http())
                }
            }
        })
    }
}

fn is_refusal(response: &Response<Body>) -> bool {
    let code = Status::from_header_map(response.headers()).map(|status| status.code());
    matches!(code, Some(Code::PermissionDenied | Code::Unauthenticated))
}

async fn let_in(
    access: &Access,
    peer: Option<Peer>,
    token: Option<Vec<u8>>,
    path: &str,
) -> Result<Identity, Status> {
    let identity = access.identify(peer.as_ref(), token.as_deref()).await?;
    let Some(need) = of_method(path) else {
        Need::Name.check(&identity)?;
        return Err(Status::unimplemented("there is no such method; see reflection for those there are"));
    };
    need.check(&identity).inspect_err(|refusal| {
        let from = peer.map(|peer| peer.to_string()).unwrap_or_default();
        tracing::info!(from, path, why = refusal.why, "a call was refused");
    })?;
    Ok(identity)
}
