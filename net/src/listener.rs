//! Listeners, and the streams of their connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use futures::stream::BoxStream;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::mpsc;

use crate::connection::{Duplex, Guarded, Speech};
use crate::gate::{ConnectionSlot, Gate};
use crate::peer::Peer;
use crate::tls::Tls;

/// After a failed accept(2), mostly for want of descriptors, it is tried again this much later.
const RETRY: Duration = Duration::from_millis(100);
/// Connections that wait for a server; further ones wait where they are, within the bounds of their gate.
const WAITING: usize = 64;

/// Where clients connect.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// A socket of this machine.
    Unix(UnixListener),
}

/// Connections of one kind; an item is never an error.
pub type Connections = BoxStream<'static, io::Result<Guarded>>;

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

impl Listener {
    async fn connected(&self) -> io::Result<(Box<dyn Duplex>, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "ignoring: a connection without TCP_NODELAY");
                }
                Ok((Box::new(stream), Peer::Remote { address, certificate: None }))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::of_unix(&stream)?;
                Ok((Box::new(stream), peer))
            }
        }
    }

    /// The next connection that is let in.
    async fn accept(&self, gate: &Gate, speech: Speech) -> Guarded {
        let (io, peer, place) = self.let_in(gate).await;
        Guarded::new(io, peer, place, speech)
    }

    /// The next connection that has a place.
    async fn let_in(&self, gate: &Gate) -> (Box<dyn Duplex>, Peer, ConnectionSlot) {
        loop {
            match self.connected().await {
                Ok((io, peer)) => {
                    if let Some(place) = gate.enter(&peer) {
                        return (io, peer, place);
                    }
                }
                Err(error) => {
                    gate.failed(&error);
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }
}

/// The connections of a listener whose clients speak one thing, within the bounds of its gate.
pub fn incoming(listener: impl Into<Listener>, gate: Gate, speech: Speech) -> Connections {
    Box::pin(futures::stream::unfold((listener.into(), gate), move |(listener, gate)| async move {
        let connection = listener.accept(&gate, speech).await;
        Some((Ok(connection), (listener, gate)))
    }))
}

/// The connections of an address whose clients speak one thing, over TLS where there is one. Call it within an async
/// runtime.
pub fn at_address(listener: TcpListener, gate: Gate, speech: Speech, tls: Option<Arc<Tls>>) -> Connections {
    match tls {
        Some(tls) => encrypted(listener, gate, speech, tls),
        None => incoming(listener, gate, speech),
    }
}

/// The connections of an address whose clients speak one thing over TLS, within the bounds of its gate. Many shake hands at
/// the same time. It is listened until nobody takes them any more. Call it within an async runtime.
fn encrypted(listener: TcpListener, gate: Gate, speech: Speech, tls: Arc<Tls>) -> Connections {
    let (door, connections) = mpsc::channel(WAITING);
    let listener = Listener::from(listener);
    tokio::spawn(async move {
        loop {
            let (io, peer, place) = tokio::select! {
                one = listener.let_in(&gate) => one,
                () = door.closed() => return,
            };
            tokio::spawn(shake_hands(Arc::clone(&tls), io, peer, place, speech, door.clone()));
        }
    });
    taken(connections)
}

/// Hands a connection on once hands were shaken.
async fn shake_hands(
    tls: Arc<Tls>,
    io: Box<dyn Duplex>,
    mut peer: Peer,
    place: ConnectionSlot,
    speech: Speech,
    door: mpsc::Sender<Guarded>,
) {
    let shaken = tokio::select! {
        shaken = tls.accept(io, speech) => shaken,
        // Made room for another.
        () = place.closing() => return,
    };
    match shaken {
        Ok((io, shown)) => {
            if let Peer::Remote { certificate, .. } = &mut peer {
                *certificate = shown;
            }
            // Refused when the server is gone: then the connection ends with it.
            let _gone = door.send(Guarded::new(io, peer, place, speech)).await;
        }
        Err(error) => {
            if error.kind() == io::ErrorKind::TimedOut {
                place.slow();
            }
            place.failed_handshake();
            tracing::debug!(%peer, %error, "ignoring: a client shook no hands");
        }
    }
}

/// The connections of a listener whose clients speak either: those of gRPC, then those of HTTP/1. It is listened until
/// nobody takes either any more. Call it within an async runtime.
pub fn both(listener: impl Into<Listener>, gate: Gate) -> (Connections, Connections) {
    let (grpc, of_grpc) = mpsc::channel(WAITING);
    let (http, of_http) = mpsc::channel(WAITING);
    let listener = listener.into();
    tokio::spawn(async move {
        loop {
            let connection = tokio::select! {
                connection = listener.accept(&gate, Speech::Grpc) => connection,
                () = async { tokio::join!(grpc.closed(), http.closed()); } => return,
            };
            tokio::spawn(sort(connection, grpc.clone(), http.clone()));
        }
    });
    (taken(of_grpc), taken(of_http))
}

/// Hands a connection on once it is known what its client speaks.
async fn sort(mut connection: Guarded, grpc: mpsc::Sender<Guarded>, http: mpsc::Sender<Guarded>) {
    let door = match connection.speech().await {
        Ok(Speech::Grpc) => grpc,
        Ok(Speech::Http) => http,
        Err(error) => {
            tracing::debug!(%error, "ignoring: a connection ended before it said anything");
            return;
        }
    };
    // Refused when the server is gone: then the connection ends with it.
    let _gone = door.send(connection).await;
}

fn taken(connections: mpsc::Receiver<Guarded>) -> Connections {
    Box::pin(stream_of(connections))
}

fn stream_of(connections: mpsc::Receiver<Guarded>) -> impl Stream<Item = io::Result<Guarded>> {
    futures::stream::unfold(connections, |mut connections| async move {
        let connection = connections.recv().await?;
        Some((Ok(connection), connections))
    })
}
