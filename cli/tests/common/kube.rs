//! An API server of lists: pages with tokens, TLS, bearer tokens and client certificates, and failures on demand.

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// The token that is accepted.
pub const TOKEN: &str = "right";

/// What the server does.
#[derive(Debug, Default)]
pub struct Behaviour {
    /// Objects by path.
    pub lists: BTreeMap<String, Vec<Value>>,
    /// Paths that may not be listed.
    pub forbidden: HashSet<String>,
    /// Answers given first, by path: status and `Retry-After`; 0 = the connection is broken off.
    pub failures: BTreeMap<String, Vec<(u16, Option<u64>)>>,
    /// How often the second page of a path has expired.
    pub expire: BTreeMap<String, usize>,
    /// Requests: path and query.
    pub requests: Vec<String>,
    /// Header lines of the last request, names in small letters.
    pub headers: Vec<String>,
}

/// A running server; it ends with the test.
pub struct Server {
    pub at: SocketAddr,
    pub behaviour: Arc<Mutex<Behaviour>>,
    /// Certificate of the authority, PEM.
    pub ca: String,
    /// A client's certificate and key, PEM.
    pub client: (String, String),
}

/// An authority, a server it knows, and a client.
pub struct Trust {
    /// The server's side; it takes clients without a certificate, too.
    pub config: Arc<ServerConfig>,
    /// Certificate of the authority, PEM.
    pub ca: String,
    /// A client's certificate and key, PEM.
    pub client: (String, String),
}

impl Trust {
    /// Of a server with this name.
    pub fn new(name: &str) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap();
        let issuer = Issuer::new(params, ca_key);
        let signed = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            (params.signed_by(&key, &issuer).unwrap(), key)
        };
        let (server, server_key) = signed(name);
        let (client, client_key) = signed("client");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(ca.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(server_key.serialize_der()));
        let chain: Vec<CertificateDer<'static>> = vec![server.der().clone()];
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .unwrap();
        let client = (client.pem(), client_key.serialize_pem());
        Self { config: Arc::new(config), ca: ca.pem(), client }
    }
}

impl Server {
    pub fn start(behaviour: Behaviour) -> Self {
        Self::named(behaviour, "127.0.0.1")
    }

    /// With another name in its certificate.
    pub fn named(behaviour: Behaviour, name: &str) -> Self {
        let Trust { config, ca, client } = Trust::new(name);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let behaviour = Arc::new(Mutex::new(behaviour));
        let shared = Arc::clone(&behaviour);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, config, shared) = (stream.unwrap(), Arc::clone(&config), Arc::clone(&shared));
                thread::spawn(move || serve(stream, config, &shared));
            }
        });
        Self { at, behaviour, ca, client }
    }

    pub fn url(&self) -> String {
        format!("https://{}", self.at)
    }

    pub fn requests(&self) -> Vec<String> {
        self.behaviour.lock().unwrap().requests.clone()
    }
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, behaviour: &Mutex<Behaviour>) {
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            // A handshake that is refused, or a client that is done.
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8(head).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let bearer = head.lines().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("authorization: bearer ").map(str::to_owned)
        });
        behaviour.lock().unwrap().headers = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| format!("{}: {value}", name.to_ascii_lowercase()))
            .collect();
        let known = bearer.as_deref() == Some(TOKEN) || stream.conn.peer_certificates().is_some();
        let Some((status, after, body)) = answer(&mut behaviour.lock().unwrap(), &target, known) else {
            return;
        };
        let after = after.map(|after| format!("Retry-After: {after}\r\n")).unwrap_or_default();
        let text = body.to_string();
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{after}Content-Length: {}\r\n\r\n",
            text.len()
        );
        if stream.write_all(format!("{head}{text}").as_bytes()).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}

fn refusal(status: u16, message: &str) -> (u16, Option<u64>, Value) {
    (status, None, json!({ "kind": "Status", "code": status, "message": message }))
}

fn answer(behaviour: &mut Behaviour, target: &str, known: bool) -> Option<(u16, Option<u64>, Value)> {
    behaviour.requests.push(target.to_owned());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    if !known {
        return Some(refusal(401, "Unauthorized"));
    }
    if let Some((status, after)) = behaviour.failures.get_mut(path).and_then(Vec::pop) {
        return (status > 0).then(|| (status, after, refusal(status, "later").2));
    }
    if behaviour.forbidden.contains(path) {
        return Some(refusal(403, &format!("{path} is forbidden: User \"u\" cannot list")));
    }
    let Some(list) = behaviour.lists.get(path) else {
        return Some(refusal(404, "the server could not find the requested resource"));
    };
    let parameter = |name: &str| {
        query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
    };
    let limit: usize = parameter("limit").unwrap().parse().unwrap();
    let from: usize = match parameter("continue") {
        None => 0,
        Some(token) => {
            if let Some(left) = behaviour.expire.get_mut(path).filter(|left| **left > 0) {
                *left -= 1;
                return Some(refusal(410, "The provided continue parameter is too old"));
            }
            // The token is "+/=" and the place, escaped.
            token.strip_prefix("%2B%2F%3D").unwrap().parse().unwrap()
        }
    };
    let to = (from + limit).min(list.len());
    let next = if to < list.len() { format!("+/={to}") } else { String::new() };
    let list = json!({ "kind": "XList", "apiVersion": "v1", "metadata": { "continue": next }, "items": list[from..to] });
    Some((200, None, list))
}
