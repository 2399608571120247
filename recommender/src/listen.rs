//! Owns where the program listens: the Unix socket, the addresses, and how many connections each lets in.
//!
//! The socket serves gRPC and HTTP alike, and everybody may connect to it: who may ask what is decided by who it is
//! (`identity`). A service manager may hand it over (sd_listen_fds(3)): then nothing of ours need write to its directory.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use evenkeel_net::socket::{self, Socket};
use evenkeel_net::tls::Tls;
use evenkeel_net::{Connections, Gate, Limits, Speech};
use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use crate::authority::{Authority, Server};
use crate::config::{Config, Serve};

/// Who may connect to the socket: everybody, since being let in is another matter.
const SOCKET_MODE: u32 = 0o666;
/// Descriptors kept back for the store, its history's files, engines and the rest of the program.
const DESCRIPTORS_KEPT: usize = 512;

/// Who is let in, by listener.
#[derive(Debug, Clone)]
pub(crate) struct Gates {
    pub(crate) socket: Gate,
    pub(crate) grpc: Gate,
    pub(crate) http: Gate,
}

#[cfg(test)]
impl Default for Gates {
    fn default() -> Self {
        Self::new(&Serve::default(), 10)
    }
}

impl Gates {
    /// Those of the configuration, as far as there are descriptors for them.
    pub(crate) fn new(serve: &Serve, max_streams: usize) -> Self {
        // Half at most for one peer: behind an address there may be a whole cluster, but others are to have a place too.
        let limits = |connections: usize| Limits { connections, per_peer: connections.div_ceil(2) };
        // Whoever asks over gRPC comes beside the agents.
        let all = limits(max_streams.saturating_add(serve.max_connections));
        let none = Limits { connections: 0, per_peer: 0 };
        let grpc = serve.grpc.map_or(none, |_| Limits { per_peer: max_streams, ..all });
        let http = serve.http.map_or(none, |_| limits(serve.max_connections));
        let socket = match serve.grpc {
            None => all,
            Some(_) => limits(serve.max_connections),
        };
        let [socket, grpc, http] = evenkeel_net::keep_back(DESCRIPTORS_KEPT, [socket, grpc, http]);
        Self {
            socket: Gate::new("serve.socket", socket),
            grpc: Gate::new("serve.grpc", grpc),
            http: Gate::new("serve.http", http),
        }
    }
}

/// Everything that is listened on.
#[derive(Debug)]
pub(crate) struct Listeners {
    unix: Option<(UnixListener, PathBuf)>,
    grpc: Option<TcpListener>,
    http: Option<TcpListener>,
    tls: Option<Arc<Tls>>,
    /// What makes the certificate that is served, where the own authority does.
    server: Option<Server>,
    /// Takes the socket's file away when the program ends; none where it was handed over.
    file: Option<Socket>,
}

impl Listeners {
    /// Takes the socket and the addresses of the configuration.
    ///
    /// # Errors
    /// When one cannot be had.
    pub(crate) async fn bind(
        config: &Config,
        authority: Option<&Arc<Authority>>,
        now: u64,
    ) -> anyhow::Result<Self> {
        let Serve { socket, grpc, http, .. } = &config.serve;
        let (mut unix, mut file) = (None, None);
        if let Some(listener) = handed_over()? {
            unix = Some((listening(listener)?, socket.clone()));
        } else if !socket.as_os_str().is_empty() {
            let mut bound = socket::bind(socket, SOCKET_MODE, "serve.socket")?;
            let listener = bound.take_listener().context("the socket was taken already")?;
            (unix, file) = (Some((listening(listener)?, socket.clone())), Some(bound));
        }
        let (grpc, http) = (listen("serve.grpc", *grpc).await?, listen("serve.http", *http).await?);
        let at: Vec<SocketAddr> = [grpc.as_ref(), http.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|listener| listener.local_addr().ok())
            .collect();
        let server = authority.filter(|_| config.serves_own_certificate());
        let server = server.map(|own| Server::new(Arc::clone(own), &config.serve.hosts, &at));
        server.as_ref().map_or(Ok(()), |server| server.start(now))?;
        let tls = config.tls_files().map(Tls::open).transpose().context("cannot serve TLS")?;
        Ok(Self { unix, file, tls: tls.map(Arc::new), server, grpc, http })
    }

    /// The gRPC and HTTP addresses, with the ports that were given where port 0 was asked for.
    pub(crate) fn addresses(&self) -> io::Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        let of = |listener: &Option<TcpListener>| listener.as_ref().map(TcpListener::local_addr).transpose();
        Ok((of(&self.grpc)?, of(&self.http)?))
    }

    /// What makes the certificate that is served, where the own authority does.
    pub(crate) fn server(&mut self) -> Option<Server> {
        self.server.take()
    }

    /// What encrypts the addresses.
    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Where that is, for people.
    pub(crate) fn shown(&self) -> String {
        let unix = self.unix.as_ref().map(|(_, path)| format!("socket {}", path.display()));
        let (grpc, http) = self.addresses().unwrap_or_default();
        let all = [unix, grpc.map(|at| format!("gRPC on {at}")), http.map(|at| format!("HTTP on {at}"))];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The connections of gRPC and of HTTP, and what takes the socket's file away when it is dropped.
    pub(crate) fn connections(self, gates: &Gates) -> (Connections, Connections, Option<Socket>) {
        // A server without listeners waits.
        let (mut grpc, mut http) = (vec![pending()], vec![pending()]);
        if let Some((listener, _)) = self.unix {
            let (of_grpc, of_http) = evenkeel_net::both(listener, gates.socket.clone());
            grpc.push(of_grpc);
            http.push(of_http);
        }
        let tcp = |listener: TcpListener, gate: &Gate, speech: Speech| {
            evenkeel_net::at_address(listener, gate.clone(), speech, self.tls.clone())
        };
        grpc.extend(self.grpc.map(|listener| tcp(listener, &gates.grpc, Speech::Grpc)));
        http.extend(self.http.map(|listener| tcp(listener, &gates.http, Speech::Http)));
        let merged = |all: Vec<Connections>| Box::pin(futures::stream::select_all(all)) as Connections;
        (merged(grpc), merged(http), self.file)
    }
}

fn pending() -> Connections {
    Box::pin(futures::stream::pending())
}

/// The socket that the service manager holds for this program.
fn handed_over() -> anyhow::Result<Option<StdUnixListener>> {
    ListenFd::from_env()
        .take_unix_listener(0)
        .context("what the service manager handed over is no Unix socket")
}

fn listening(listener: StdUnixListener) -> anyhow::Result<UnixListener> {
    listener.set_nonblocking(true).context("cannot use the socket")?;
    UnixListener::from_std(listener).context("cannot use the socket")
}

async fn listen(key: &str, address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let bound = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}; stop what holds it, or set {key} to another address")
    });
    bound.map(Some)
}
