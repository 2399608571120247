//! A connection whose bytes are counted where they go into and come out of the socket.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use evenkeel_proto::tonic::transport::{Channel, Endpoint, Error, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// Bytes of one connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter {
    written: Arc<AtomicU64>,
    read: Arc<AtomicU64>,
}

impl Counter {
    /// Bytes written and read so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed))
    }
}

/// Connects to a socket and counts.
pub(crate) async fn connect(socket: &Path, counter: Counter) -> Result<Channel, Error> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let (socket, counter) = (socket.clone(), counter.clone());
        async move {
            let stream = UnixStream::connect(socket).await?;
            Ok::<_, io::Error>(TokioIo::new(Counted { stream, counter }))
        }
    });
    // The name is asked of the connector, which needs none.
    Endpoint::from_static("http://recommender").connect_with_connector(connector).await
}

struct Counted {
    stream: UnixStream,
    counter: Counter,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.counter.read.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.count(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Counted {
    fn count(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(written)) = &polled {
            self.counter.written.fetch_add(*written as u64, Ordering::Relaxed);
        }
        polled
    }
}
