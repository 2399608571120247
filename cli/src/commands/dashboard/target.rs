//! Where requests are passed on to.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_proto::line::Pair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::client::Address;
use crate::failure::Failure;

/// A connection, of either kind.
pub(crate) enum UpstreamConnection {
    Unix(UnixStream),
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl UpstreamConnection {
    /// Waits so long for each piece of an answer.
    fn patience(&self, time: Duration) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(Some(time)),
            Self::Plain(stream) => stream.set_read_timeout(Some(time)),
            Self::Tls(stream) => stream.sock.set_read_timeout(Some(time)),
        }
    }
}

impl Read for UpstreamConnection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Plain(stream) => stream.read(buffer),
            Self::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for UpstreamConnection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.flush(),
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

/// The recommender's HTTP interface.
pub(crate) enum Upstream {
    Unix(PathBuf),
    Plain(String),
    Tls { authority: String, name: ServerName<'static>, config: Arc<ClientConfig> },
}

impl Upstream {
    /// The one that is meant: a URL, or the socket of the recommender's address.
    ///
    /// # Errors
    /// Wrong usage when it is none that can be reached safely.
    pub(crate) fn of(http: Option<&str>, address: &Address) -> Result<Self, Failure> {
        let text = address.to_string();
        let wrong = |at: &str, why: &str| {
            let remedy = "write --http https://HOST:PORT, the recommender's serve.http, with --ca-file";
            Failure::usage("wrong address of the recommender", at.to_owned(), why.to_owned(), remedy)
        };
        let Some(url) = http else {
            return match text.strip_prefix("unix://") {
                Some(path) => {
                    address.shows_no_certificate(&text)?;
                    Ok(Self::Unix(path.into()))
                }
                None => Err(wrong(&text, "pages are at the HTTP address, which is another one")),
            };
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong(url, "it has no scheme"))?;
        let authority = rest.trim_end_matches('/').to_owned();
        let (host, port) = authority.rsplit_once(':').ok_or_else(|| wrong(url, "it names no port"))?;
        if host.is_empty() || port.parse::<u16>().is_err() || authority.contains(['/', '@', ' ']) {
            return Err(wrong(url, "it is no host and port"));
        }
        match scheme {
            "http" if is_loopback(host) || address.is_insecure() => {
                address.shows_no_certificate(url)?;
                Ok(Self::Plain(authority))
            }
            "http" => Err(wrong(url, "others could read your token on the way (or add --insecure)")),
            "https" => {
                let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
                let name = name.map_err(|_| wrong(url, "its host is no name"))?;
                Ok(Self::Tls { config: Arc::new(config(address)?), authority, name })
            }
            _ => Err(wrong(url, "it is neither https:// nor http://")),
        }
    }

    /// The body of a page that is answered with 200, its first `most` bytes.
    ///
    /// # Errors
    /// When nobody answers in time, or otherwise.
    pub(crate) fn get(
        &self,
        path: &str,
        token: Option<&str>,
        time: Duration,
        most: u64,
    ) -> Result<String, Failure> {
        let failed = |why: String| {
            let remedy = "start evenkeel-recommender, or say where it is with --recommender";
            Failure::new("the recommender did not answer", path.to_owned(), why, remedy)
        };
        let mut line = self.connect()?;
        let told = |why: io::Error| failed(why.to_string());
        line.patience(time).map_err(told)?;
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        // Answers of HTTP/1.0 have no chunks, and end with the connection.
        let head = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n{token}\r\n", self.host());
        line.write_all(head.as_bytes()).and_then(|()| line.flush()).map_err(told)?;
        let mut answer = Vec::new();
        match line.take(most).read_to_end(&mut answer) {
            // One that ends TLS without a word has said all.
            Err(why) if why.kind() != io::ErrorKind::UnexpectedEof => return Err(told(why)),
            _ => {}
        }
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| failed("it is no HTTP".to_owned()))?;
        let status = head.split(' ').nth(1).unwrap_or_default();
        if status == "200" {
            Ok(body.to_owned())
        } else {
            Err(failed(format!("status {status}: {}", body.trim())))
        }
    }

    /// What the recommender is called there.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Unix(_) => "localhost",
            Self::Plain(authority) | Self::Tls { authority, .. } => authority,
        }
    }

    /// A connection.
    ///
    /// # Errors
    /// When nobody answers there.
    pub(crate) fn connect(&self) -> Result<UpstreamConnection, Failure> {
        let failed = |at: &str, why: String| {
            let remedy = "start evenkeel-recommender with serve.http, or say where it is with --http";
            Failure::new("cannot reach the recommender", at.to_owned(), why, remedy)
        };
        match self {
            Self::Unix(path) => {
                let at = path.display().to_string();
                UnixStream::connect(path)
                    .map(UpstreamConnection::Unix)
                    .map_err(|why| failed(&at, why.to_string()))
            }
            Self::Plain(at) => TcpStream::connect(at.as_str())
                .map(UpstreamConnection::Plain)
                .map_err(|why| failed(at, why.to_string())),
            Self::Tls { authority, name, config } => {
                let stream = TcpStream::connect(authority.as_str())
                    .map_err(|why| failed(authority, why.to_string()))?;
                let tls = ClientConnection::new(Arc::clone(config), name.clone());
                let tls = tls.map_err(|why| failed(authority, why.to_string()))?;
                Ok(UpstreamConnection::Tls(Box::new(StreamOwned::new(tls, stream))))
            }
        }
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// TLS with the authorities and the certificate that were given.
fn config(address: &Address) -> Result<ClientConfig, Failure> {
    let (ca, own) = address.files();
    let remedy = "give files in PEM that you may read (--ca-file, --cert-file, --key-file)";
    let unread =
        |path: &Path, why: String| Failure::usage("cannot use TLS", path.display().to_string(), why, remedy);
    let ca =
        ca.ok_or_else(|| Failure::usage("cannot use TLS", "--ca-file", "no authority is named", remedy))?;
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, Failure> {
        let read = CertificateDer::pem_file_iter(path).map_err(|why| unread(path, why.to_string()))?;
        read.collect::<Result<_, _>>().map_err(|why| unread(path, why.to_string()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca)? {
        roots.add(certificate).map_err(|why| unread(ca, why.to_string()))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|why| unread(ca, why.to_string()))?.with_root_certificates(roots);
    if let Some(Pair { cert, key }) = address.kube_pair()? {
        let broken =
            |why: String| Failure::new("cannot use TLS", "--kube-auth", why, "correct the kubeconfig");
        let chain = CertificateDer::pem_slice_iter(&cert).collect::<Result<_, _>>();
        let chain = chain.map_err(|why| broken(why.to_string()))?;
        let private = PrivateKeyDer::from_pem_slice(&key).map_err(|why| broken(why.to_string()))?;
        return builder.with_client_auth_cert(chain, private).map_err(|why| broken(why.to_string()));
    }
    match own {
        Some((cert, key)) => {
            let private = PrivateKeyDer::from_pem_file(key).map_err(|why| unread(key, why.to_string()))?;
            let made = builder.with_client_auth_cert(certificates(cert)?, private);
            made.map_err(|why| unread(cert, why.to_string()))
        }
        None => Ok(builder.with_no_client_auth()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Peer;

    #[test]
    fn a_token_goes_over_sockets_loopback_and_tls_alone() {
        let socket = Address::new(Peer::Recommender, "unix:///run/evenkeel/recommender.sock");
        let grpc = Address::new(Peer::Recommender, "https://r.example:9520");
        assert!(
            matches!(Upstream::of(None, &socket), Ok(Upstream::Unix(path)) if path.ends_with("recommender.sock"))
        );
        assert!(Upstream::of(None, &grpc).is_err(), "gRPC has another address");
        for (url, fits) in [
            ("http://127.0.0.1:9521", true),
            ("http://[::1]:9521/", true),
            ("http://localhost:9521", true),
            ("http://r.example:9521", false),
            ("http://127.0.0.1.evil.example:9521", false),
            ("https://r.example:9521", false),
            ("https://r.example", false),
            ("ftp://r.example:1", false),
            ("r.example:9521", false),
            ("http://a@127.0.0.1:1", false),
        ] {
            assert_eq!(Upstream::of(Some(url), &socket).is_ok(), fits, "{url} without --ca-file");
        }
    }
}
