//! An HTTP/1.1 server whose clients have to send the head of a request in time.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::connection::Guarded;
use crate::gate::{Gate, Signal};
use crate::{HEAD_TIMEOUT, accept};

/// Most bytes of the head of a request: a path, a query and the headers of a browser are a few thousand.
const HEAD_BYTES: usize = 16 << 10;

/// Serves until `stop` ends, then lets open requests end.
///
/// # Errors
/// None so far; what fails ends one connection.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    gate: Gate,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            io = accept(&listener, &gate, None) => {
                connections.spawn(connection(io, router.clone(), gate.clone(), stopped.clone()));
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
    drop(listener);
    // Whoever waits for a request is told to go; the others end with their answer.
    stopping.send_replace(true);
    while connections.join_next().await.is_some() {}
    Ok(())
}

async fn connection(io: Guarded<TcpStream>, router: Router, gate: Gate, mut stopped: watch::Receiver<bool>) {
    let signal = io.signal();
    let service = service_fn(move |request: Request<Incoming>| {
        let (router, busy) = (router.clone(), Busy::begin(&signal));
        async move {
            let answer = router.oneshot(request.map(Body::new)).await;
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
