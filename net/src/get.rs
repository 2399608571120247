//! One question to a server of this machine or network: `GET` over TLS with a bearer token, bounded in time and bytes.
//!
//! A connection is made for each question. Who asks reads the files for each ([`Vouchers::read`]), so that what is renewed on disk counts
//! from the next one on.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Largest file of authorities, or of a token: what authorities of a whole company take is a tenth of it.
const MOST_VOUCHED: u64 = 4 << 20;
/// Characters of a refusal that are told.
const TOLD: usize = 300;

/// Whom is asked, and what vouches for either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpsEndpoint {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Name in its certificate.
    pub name: String,
    /// File of its authorities, PEM.
    pub authorities: PathBuf,
    /// File with the token that is sent.
    pub token: PathBuf,
}

/// What the files of an [`HttpsEndpoint`] hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Vouchers {
    /// Authorities, PEM.
    pub authorities: Vec<u8>,
    /// The token as written.
    pub token: Vec<u8>,
}

impl Vouchers {
    /// Reads both files, as far as they could be meant.
    ///
    /// # Errors
    /// [`NoAnswer::Failed`] with the file that cannot be read.
    pub fn read(asked: &HttpsEndpoint) -> Result<Self, NoAnswer> {
        let read = |path: &Path| {
            let mut bytes = Vec::new();
            let opened = File::open(path).and_then(|file| file.take(MOST_VOUCHED).read_to_end(&mut bytes));
            opened.map(|_| bytes).map_err(|error| unreadable(path, &error.to_string()))
        };
        Ok(Self { authorities: read(&asked.authorities)?, token: read(&asked.token)? })
    }
}

fn unreadable(path: &Path, why: &str) -> NoAnswer {
    NoAnswer::Failed(format!("{}: {why}", path.display()))
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoAnswer {
    /// The server's status, and what it says.
    Refused(u16, String),
    /// In words.
    Failed(String),
}

/// The body of a 200 answer.
///
/// # Errors
/// [`NoAnswer`].
pub async fn get(
    asked: &HttpsEndpoint,
    vouchers: &Vouchers,
    path: &str,
    within: Duration,
    most: usize,
) -> Result<Bytes, NoAnswer> {
    let late = |_| Err(NoAnswer::Failed(format!("it does not answer within {within:?}")));
    tokio::time::timeout(within, ask(asked, vouchers, path, most)).await.unwrap_or_else(late)
}

async fn ask(asked: &HttpsEndpoint, vouchers: &Vouchers, path: &str, most: usize) -> Result<Bytes, NoAnswer> {
    let failed = NoAnswer::Failed;
    let HttpsEndpoint { host, port, name, authorities, token } = asked;
    let trusted = roots(&vouchers.authorities).map_err(|why| unreadable(authorities, &why))?;
    let text = std::str::from_utf8(&vouchers.token).map_err(|error| unreadable(token, &error.to_string()))?;
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(trusted)
        .with_no_client_auth();
    let known_as =
        ServerName::try_from(name.clone()).map_err(|_| failed(format!("{name:?} is no host name")))?;
    let unreachable = |error: io::Error| failed(format!("{host}:{port} is not reached: {error}"));
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(known_as, stream).await.map_err(unreachable)?;
    let no_http = |error: hyper::Error| failed(format!("it does not speak HTTP: {error}"));
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(no_http)?;
    let request = Request::get(path)
        .header("host", format!("{host}:{port}"))
        .header("authorization", format!("Bearer {}", text.trim()))
        .header("accept", "application/json")
        .header("connection", "close");
    let no_request = || failed(format!("{} holds no token", token.display()));
    let request = request.body(Body::empty()).map_err(|_| no_request())?;
    let answer = async {
        let (head, body) = sender.send_request(request).await.map_err(no_http)?.into_parts();
        let body = to_bytes(Body::new(body), most).await;
        if head.status != StatusCode::OK {
            return Err(NoAnswer::Refused(head.status.as_u16(), words(&body.unwrap_or_default())));
        }
        body.map_err(|error| failed(format!("its answer ends early or is above {} MiB: {error}", most >> 20)))
    };
    // Both in this task: dropped together when the time is over.
    let (mut connection, mut answer) = (std::pin::pin!(connection), std::pin::pin!(answer));
    tokio::select! {
        answer = &mut answer => answer,
        // What it read before it ended is still to be had.
        _ = &mut connection => answer.await,
    }
}

fn roots(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(pem) {
        let one = one.map_err(|error| error.to_string())?;
        store.add(one).map_err(|error| error.to_string())?;
    }
    if store.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(store) }
}

/// The first line of a refusal.
fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).take(TOLD).collect()
}
