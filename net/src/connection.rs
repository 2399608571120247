//! A connection that its gate may close, and that has to say something in time.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use crate::HEAD_TIMEOUT;
use crate::gate::{Place, Signal};

/// A connection with its place.
#[derive(Debug)]
pub struct Guarded<IO> {
    io: IO,
    place: Place,
    /// Bytes that have to come before the deadline.
    greeting: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<IO> Guarded<IO> {
    /// `greeting` is how many bytes have to come within [`HEAD_TIMEOUT`]; without, somebody else looks after time.
    pub(crate) fn new(io: IO, place: Place, greeting: Option<usize>) -> Self {
        Self { io, place, greeting: greeting.map(|bytes| (bytes, Box::pin(sleep(HEAD_TIMEOUT)))) }
    }

    pub(crate) fn signal(&self) -> Arc<Signal> {
        Arc::clone(&self.place.signal)
    }

    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let signal = &self.place.signal;
        signal.waker.register(context.waker());
        if signal.is_closing.load(Ordering::SeqCst) {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "closed to make room for another"));
        }
        if let Some((_, deadline)) = &mut self.greeting
            && deadline.as_mut().poll(context).is_ready()
        {
            self.place.slow();
            self.greeting = None;
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client said nothing in time"));
        }
        Ok(())
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Guarded<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        let bytes = buffer.filled().len() - before;
        if let Some((missing, _)) = &mut self.greeting {
            *missing = missing.saturating_sub(bytes);
            if *missing == 0 {
                // From here on it counts as in use.
                self.greeting = None;
                self.place.signal.is_idle.store(false, Ordering::SeqCst);
            }
        }
        read
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Guarded<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

impl<IO: Connected> Connected for Guarded<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.io.connect_info()
    }
}
