//! An HTTP/1.1 server whose clients have to send the head of a request in time.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::{Stream, StreamExt as _};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::{Service, ServiceExt};

use crate::HEAD_TIMEOUT;
use crate::connection::Guarded;
use crate::gate::Signal;

/// Most bytes of the head of a request: a path, a query and the headers of a browser are a few thousand.
const HEAD_BYTES: usize = 16 << 10;

/// What answers requests of one connection after the other, such as a router of axum.
pub trait Answers:
    Service<Request<Incoming>, Response = Response<Self::Body>, Error = Infallible, Future: Send>
    + Clone
    + Send
    + 'static
{
    /// What it sends.
    type Body: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static;
}

impl<S, B> Answers for S
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    type Body = B;
}

/// Serves until `stop` ends, then lets open requests end. Every request carries its [`Peer`](crate::Peer) among its
/// extensions.
///
/// # Errors
/// None so far; what fails ends one connection.
pub async fn serve(
    connections: impl Stream<Item = io::Result<Guarded>>,
    answers: impl Answers,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let mut open = JoinSet::new();
    {
        let mut connections = pin!(connections.fuse());
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(Ok(io)) = connections.next() => {
                    open.spawn(connection(io, answers.clone(), stopped.clone()));
                }
                Some(_ended) = open.join_next() => {}
            }
        }
        // With the connections that come the listeners are dropped.
    }
    // Whoever waits for a request is told to go; the others end with their answer.
    stopping.send_replace(true);
    while open.join_next().await.is_some() {}
    Ok(())
}

async fn connection(io: Guarded, answers: impl Answers, mut stopped: watch::Receiver<bool>) {
    let (signal, gate, peer) = (io.signal(), io.gate(), io.peer().clone());
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (answers, busy) = (answers.clone(), Busy::begin(&signal));
        request.extensions_mut().insert(peer.clone());
        async move {
            let answer = answers.oneshot(request).await;
            drop(busy);
            answer
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES);
    let mut served = pin!(builder.serve_connection(TokioIo::new(io), service));
    let stopped = async {
        // An error means that the sender is gone, which is the end too.
        let _gone = stopped.wait_for(|stop| *stop).await;
    };
    let ended = tokio::select! {
        ended = served.as_mut() => Some(ended),
        () = stopped => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        if error.is_timeout() {
            gate.slow();
        }
        tracing::debug!(%error, "ignoring: an HTTP connection ended");
    }
}

/// While a request is answered, its connection is not closed to make room.
struct Busy(Arc<Signal>);

impl Busy {
    fn begin(signal: &Arc<Signal>) -> Self {
        signal.is_idle.store(false, Ordering::SeqCst);
        Self(Arc::clone(signal))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.is_idle.store(true, Ordering::SeqCst);
    }
}
