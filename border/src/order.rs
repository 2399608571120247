//! What the enforcing part orders of the others: the addresses to serve and calls to recommenders, runtimes to follow, files to read.
//!
//! They keep nothing: files that they need cross the border as their bytes, and again when they change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use evenkeel_proto::v1;

use crate::coded::{Bytes, Coded, Malformed, MessageReader, coded, coded_enum};

/// An order; each has a channel of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// To show that it lives: each message is sent back.
    Alive,
    /// To serve; given once, first of all. Messages that follow are [`ChangedFile`] files.
    Serve(Serve),
    /// To hold a stream to a recommender. Messages there are encoded `StreamRequest`s, messages back are [`crate::told::Told`].
    Stream(Call),
    /// To ask a recommender to sign a request; the answer is an `Issued`, or none.
    Sign(Sign),
    /// To ask for a new certificate by the present one; the answer is an `Issued`, or none.
    Renew(Renew),
    /// To look for an authority by its fingerprint; the answer is its certificate, DER.
    Authority(Authority),
    /// Of the runtime's part: to follow container runtimes and engines. Messages back are [`crate::found::Found`], messages that follow
    /// [`Word`]s.
    Follow(Follow),
    /// Of the runtime's part: to stop a pod; the answer is a `bool`, false where its runtime does not know it.
    Stop(Stop),
    /// Of the network's part: to ask the node's kubelet for its pods; the answer is a [`crate::told::Kubelets`].
    Kubelet(Kubelet),
    /// Of the reader: to read a manifest; the answer is a [`crate::found::Read`].
    Manifest(Manifest),
    /// Of the reader: to follow systemd's units. Messages back are [`crate::found::Found`].
    Units(Units),
}

coded_enum!(Order {
    1 = Alive,
    2 = Serve(serve),
    3 = Stream(call),
    4 = Sign(sign),
    5 = Renew(renew),
    6 = Authority(authority),
    7 = Follow(follow),
    8 = Stop(stop),
    9 = Kubelet(asked),
    10 = Manifest(manifest),
    11 = Units(units),
});

/// What is served, and by which rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Serve {
    /// Whether the socket comes with this order, as a descriptor.
    pub socket: bool,
    /// Address of `AgentService`.
    pub service: Option<Address>,
    /// Address of `/metrics`.
    pub metrics: Option<Address>,
    /// Address of the pages.
    pub dashboard: Option<Address>,
    /// Certificate, key and authorities of clients; without a certificate addresses are in the clear.
    pub tls: Option<Tls>,
    /// Definitions of resource types, as the configuration has them: JSON.
    pub types: String,
}

/// An address, and who may ask there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Where.
    pub at: At,
    /// Served with TLS.
    pub tls: bool,
    /// The file of the token to ask by, as [`ChangedFile`] numbers it.
    pub token: Option<Bytes>,
}

/// The files of [`Serve::tls`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The certificate, PEM.
    pub cert: Bytes,
    /// Its key, PEM.
    pub key: Bytes,
    /// Authorities of clients, PEM.
    pub client_ca: Vec<Bytes>,
}

/// A file that changed while it is served with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Which.
    pub file: ServedFile,
    /// What it holds now.
    pub now: Bytes,
}

/// One of the files that addresses are served with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedFile {
    /// The certificate.
    Cert,
    /// Its key.
    Key,
    /// An authority of clients.
    ClientCa(u8),
    /// The token of the service and the pages.
    ServiceToken,
    /// The token of metrics.
    MetricsToken,
}

coded_enum!(ServedFile { 1 = Cert, 2 = Key, 3 = ClientCa(at), 4 = ServiceToken, 5 = MetricsToken });

/// A recommender, and what vouches for it and for this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    /// Its address.
    pub address: String,
    /// Authorities of its certificate, PEM.
    pub ca: Option<Bytes>,
    /// This node's certificate and its key, PEM.
    pub pair: Option<(Bytes, Bytes)>,
    /// The name its certificate has to have; that of the address without.
    pub name: Option<String>,
    /// This node's token; empty where there is none.
    pub token: String,
    /// Whether the token may go over a network in the clear.
    pub insecure: bool,
}

/// A certificate is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Sign {
    /// Of whom.
    pub call: Call,
    /// What is asked.
    pub request: v1::SignRequest,
}

/// A new certificate is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renew {
    /// Of whom.
    pub call: Call,
    /// The request, DER.
    pub csr: Bytes,
}

/// An authority is looked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authority {
    /// The host.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// SHA-256, hexadecimal.
    pub sha256: String,
}

/// Which runtimes and engines are followed, and what their words are held against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Follow {
    /// Sockets of runtimes.
    pub cri: Vec<String>,
    /// Sockets of Docker and Podman.
    pub engines: Option<(String, String)>,
    /// Hierarchies in which their containers are looked for.
    pub roots: Vec<String>,
    /// Memory of the machine, bytes.
    pub capacity: u64,
    /// Namespaces whose annotations may go above what the runtime says.
    pub trusted: Vec<String>,
}

/// What the runtime's part is told while it follows.
#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    /// To list again, and to ask about these containers afresh.
    Rescan(Vec<String>),
    /// What the API server says of the node's pods.
    Pods(v1::NodePods),
}

coded_enum!(Word { 1 = Rescan(asked), 2 = Pods(pods) });

/// A pod is to be stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stop {
    /// Its runtime's socket.
    pub socket: String,
    /// Its sandbox.
    pub id: String,
    /// Within so many milliseconds.
    pub within_ms: u64,
}

/// The node's kubelet, and what vouches for it and for the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kubelet {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Name in its certificate.
    pub name: String,
    /// Authorities of its certificate: the file's path, which is only told, and what it holds, PEM.
    pub authorities: (String, Bytes),
    /// The token that is sent, likewise.
    pub token: (String, Bytes),
}

/// A manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Its path, which is only told.
    pub place: String,
    /// Definitions of resource types, as the configuration has them: JSON.
    pub types: String,
    /// What it holds.
    pub text: Bytes,
}

/// Which of systemd's units are followed beside those that say something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Units {
    /// Slices of which every service is sampled.
    pub slices: Vec<String>,
    /// Told also where systemd never answered.
    pub is_named: bool,
}

coded! {
    Units { slices, is_named }
    Kubelet { host, port, name, authorities, token }
    Manifest { place, types, text }
    Follow { cri, engines, roots, capacity, trusted }
    Stop { socket, id, within_ms }
    Serve { socket, service, metrics, dashboard, tls, types }
    Address { at, tls, token }
    Tls { cert, key, client_ca }
    ChangedFile { file, now }
    Call { address, ca, pair, name, token, insecure }
    Sign { call, request }
    Renew { call, csr }
    Authority { host, port, sha256 }
}

/// A socket address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At(pub SocketAddr);

impl Coded for At {
    fn write(&self, to: &mut Vec<u8>) {
        match self.0.ip() {
            IpAddr::V4(v4) => {
                to.push(4);
                u32::from(v4).write(to);
            }
            IpAddr::V6(v6) => {
                to.push(6);
                to.extend_from_slice(&v6.octets());
            }
        }
        self.0.port().write(to);
    }

    fn read(from: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let ip = match u8::read(from)? {
            4 => IpAddr::V4(Ipv4Addr::from(u32::read(from)?)),
            6 => {
                let mut octets = [0; 16];
                for octet in &mut octets {
                    *octet = u8::read(from)?;
                }
                IpAddr::V6(Ipv6Addr::from(octets))
            }
            other => return Err(Malformed::Value(other.into())),
        };
        Ok(Self(SocketAddr::new(ip, u16::read(from)?)))
    }
}
