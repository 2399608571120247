//! Calls that last: whoever loses what they were let in by, loses the call. Looked at each second; the call ends with the
//! reason, and nothing more is read of it.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::{Request, Response};

use super::{Access, Identity};

/// How often it is looked whether a caller may stay.
const LOOK: Duration = Duration::from_secs(1);

/// What is shared by both directions of a call: whether it is over.
pub(super) type Over = Arc<AtomicBool>;

/// The question of a call.
struct RequestBody {
    inner: Body,
    over: Over,
}

/// The question, which ends when the call is over.
pub(super) fn question(request: Request<Body>) -> (Request<Body>, Over) {
    let over = Over::default();
    let request = request.map(|inner| Body::new(RequestBody { inner, over: Arc::clone(&over) }));
    (request, over)
}

impl hyper::body::Body for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.over.load(Ordering::Relaxed) {
            return Poll::Ready(Some(Err(Status::unauthenticated("the caller may not stay"))));
        }
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The answer of a call.
struct ResponseBody {
    /// None once the call is over.
    inner: Option<Body>,
    access: Arc<Access>,
    identity: Identity,
    next: Option<Pin<Box<Sleep>>>,
    over: Over,
}

/// The answer, which ends when its caller may not stay.
pub(super) fn answer(
    response: Response<Body>,
    access: Arc<Access>,
    identity: Identity,
    over: Over,
) -> Response<Body> {
    response.map(|inner| Body::new(ResponseBody { inner: Some(inner), access, identity, next: None, over }))
}

impl ResponseBody {
    /// Why the caller may not stay, where that is so. Wakes the task when it is time to look again.
    fn poll_look(&mut self, context: &mut Context<'_>) -> Option<Status> {
        let next = self.next.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        while next.as_mut().poll(context).is_ready() {
            if let Err(refusal) = self.access.stands(&self.identity) {
                tracing::info!(why = refusal.why, "a call was ended");
                return Some(refusal.into());
            }
            next.as_mut().set(sleep(LOOK));
        }
        None
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.inner.is_none() {
            return Poll::Ready(None);
        }
        if let Some(status) = self.poll_look(context) {
            self.over.store(true, Ordering::Relaxed);
            let caller = self.identity.name().unwrap_or_default();
            self.access.refuse(&caller, "a call that lasts", status.message());
            self.inner = None;
            let trailers = status.into_http::<Body>().headers().clone();
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::default, |inner| inner.size_hint())
    }
}
