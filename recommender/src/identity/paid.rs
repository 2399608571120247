//! Bodies whose length their head does not tell, as those of gRPC: what is read of them counts for their caller as they come.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Frame, SizeHint};
use tonic::codegen::Bytes;

use super::{Access, rate};

/// A body that is paid for while it is read.
pub(super) struct Paid<B> {
    inner: B,
    access: Arc<Access>,
    caller: String,
    bytes: u64,
}

impl<B> Paid<B> {
    /// The body of a request of a caller who has a rate.
    pub(super) fn new(inner: B, access: &Arc<Access>, caller: &str) -> Self {
        Self { inner, access: Arc::clone(access), caller: caller.to_owned(), bytes: 0 }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Paid<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            let before = rate::cost(self.bytes);
            self.bytes = self.bytes.saturating_add(data.len() as u64);
            // Small pieces cost as much together as one.
            self.access.pay(&self.caller, rate::cost(self.bytes) - before);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
