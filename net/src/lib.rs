//! Listeners that no client can use up: how many connections there may be, of one peer too, and how long one may be open
//! without asking anything.
//!
//! Owned here: the [`Gate`] that counts connections, the [`incoming`] stream for gRPC, the [`http`] server, and the file
//! descriptors kept back for the program's own files. Not owned: who may connect, and what is answered.
//!
//! When a gate is full, the connection that has waited longest for a request makes room, of the same peer where the peer
//! has too many: whoever asks at once is served, also while others hold connections open and say nothing.

mod connection;
mod descriptors;
mod gate;
pub mod http;

use std::io;
use std::time::Duration;

use futures::Stream;
use tokio::net::TcpListener;

pub use connection::Guarded;
pub use descriptors::keep_back;
pub use gate::{Counters, Gate, Limits};

/// How long a client may take to say what it wants: the head of an HTTP request, the greeting of HTTP/2. etcd and
/// Kubernetes' API server wait as long for handshakes.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The greeting of HTTP/2 (RFC 9113, section 3.4), bytes.
const GREETING: usize = 24;
/// After a failed accept(2), mostly for want of descriptors, it is tried again this much later.
const RETRY: Duration = Duration::from_millis(100);

/// The connections of a gRPC listener, within the bounds of its gate.
pub fn incoming(
    listener: TcpListener,
    gate: Gate,
) -> impl Stream<Item = io::Result<Guarded<tokio::net::TcpStream>>> {
    futures::stream::unfold((listener, gate), |(listener, gate)| async move {
        let connection = accept(&listener, &gate, Some(GREETING)).await;
        Some((Ok(connection), (listener, gate)))
    })
}

/// The next connection that is let in.
async fn accept(
    listener: &TcpListener,
    gate: &Gate,
    greeting: Option<usize>,
) -> Guarded<tokio::net::TcpStream> {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                gate.failed(&error);
                tokio::time::sleep(RETRY).await;
                continue;
            }
        };
        let Some(place) = gate.enter(peer.ip()) else { continue };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "ignoring: a connection without TCP_NODELAY");
        }
        return Guarded::new(stream, place, greeting);
    }
}
