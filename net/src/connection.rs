//! A connection of any kind that its gate may close, and that has to say something in time.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tonic::transport::server::Connected;

use crate::authority::Frames;
use crate::gate::{ConnectionSlot, Gate, Signal};
use crate::peer::Peer;
use crate::{GREETING, HEAD_TIMEOUT};

/// Bytes that tell HTTP/2, whose greeting begins with them, from HTTP/1, which has no such method (RFC 9113, section 3.4).
const PRI: [u8; 3] = *b"PRI";

/// What carries a connection's bytes.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<IO: AsyncRead + AsyncWrite + Send + Unpin> Duplex for IO {}

/// What a client will speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speech {
    /// gRPC, which is HTTP/2.
    Grpc,
    /// HTTP/1.1.
    Http,
}

/// A connection with its place.
pub struct Guarded {
    io: Box<dyn Duplex>,
    peer: Peer,
    place: ConnectionSlot,
    /// Bytes that have to come before the deadline; without, somebody else looks after time.
    greeting: Option<(usize, Pin<Box<Sleep>>)>,
    /// Bytes that were looked at, which are read again.
    ahead: Vec<u8>,
    /// Follows the frames of a client that may name a path as authority.
    paths: Option<Frames>,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl Guarded {
    pub(crate) fn new(io: Box<dyn Duplex>, peer: Peer, place: ConnectionSlot, speech: Speech) -> Self {
        let greeting = (speech == Speech::Grpc).then(|| (GREETING, Box::pin(sleep(HEAD_TIMEOUT))));
        let paths = (speech == Speech::Grpc && matches!(peer, Peer::Local { .. })).then(Frames::default);
        Self { io, peer, place, greeting, ahead: Vec::new(), paths }
    }

    /// Who is at the other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(crate) fn signal(&self) -> Arc<Signal> {
        Arc::clone(&self.place.signal)
    }

    pub(crate) fn gate(&self) -> Gate {
        self.place.gate()
    }

    /// Finds out what the client speaks; nothing is lost of what it said.
    ///
    /// # Errors
    /// When the client leaves or says nothing in time.
    pub(crate) async fn speech(&mut self) -> io::Result<Speech> {
        // Octets of the greeting alone, so that none of an authority is passed on unchanged.
        let paths = self.paths.take();
        let mut said = PRI;
        self.read_exact(&mut said).await?;
        self.ahead = said.to_vec();
        if said == PRI {
            self.paths = paths;
            return Ok(Speech::Grpc);
        }
        self.greeting = None;
        Ok(Speech::Http)
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

    /// Notes that so many bytes came.
    fn came(&mut self, bytes: usize) {
        if let Some((missing, _)) = &mut self.greeting {
            *missing = missing.saturating_sub(bytes);
            if *missing == 0 {
                // From here on it counts as in use.
                self.greeting = None;
                self.place.signal.is_idle.store(false, Ordering::SeqCst);
            }
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        let read = if self.ahead.is_empty() {
            let read = Pin::new(&mut self.io).poll_read(context, buffer);
            let bytes = buffer.filled().len() - before;
            self.came(bytes);
            read
        } else {
            let taken = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..taken]);
            self.ahead.drain(..taken);
            Poll::Ready(Ok(()))
        };
        if let (Some(paths), Some(new)) = (&mut self.paths, buffer.filled_mut().get_mut(before..)) {
            paths.follow(new);
        }
        read
    }
}

impl AsyncWrite for Guarded {
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

/// Every request carries the peer among its extensions.
impl Connected for Guarded {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}
