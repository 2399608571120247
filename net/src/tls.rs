//! TLS of listeners: TLS 1.3 alone, with certificate, key and authorities from files that are read again when they change.
//!
//! Owned here: reading the files, the handshake, and what of a client's certificate is passed on. Not owned: who a client is
//! by its certificate. No ticket is given and no session resumed, so that a client is looked at anew each time.

mod error;
mod pem;

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::HEAD_TIMEOUT;
pub use crate::certificate::{Certificate, Vouched};
use crate::connection::{Duplex, Speech};
pub use error::TlsError;
use pem::wrong;
pub use pem::{certificates, parsed, private_key};

/// Where certificate, key and authorities are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and an authority, PEM.
    pub cert: PathBuf,
    /// Its key, PEM.
    pub key: PathBuf,
    /// Authorities whose certificates clients may show, PEM; none without.
    pub client_ca: Vec<PathBuf>,
    /// Authority of a Kubernetes cluster, PEM, whose users may show their certificates; none without.
    pub cluster_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// As a configuration names them: an empty path is none.
    ///
    /// # Errors
    /// When there is a certificate without a key, the other way round, or authorities for clients without either.
    pub fn named(cert: &Path, key: &Path, client_ca: &Path) -> Result<Option<Self>, &'static str> {
        let is_empty = |path: &Path| path.as_os_str().is_empty();
        match (is_empty(cert), is_empty(key)) {
            (true, true) if is_empty(client_ca) => Ok(None),
            (true, true) => Err("names client_ca, which needs cert and key beside it"),
            (false, false) => {
                let client_ca = Some(client_ca.to_owned()).filter(|path| !is_empty(path));
                Ok(Some(Self {
                    cert: cert.to_owned(),
                    key: key.to_owned(),
                    client_ca: client_ca.into_iter().collect(),
                    cluster_ca: None,
                }))
            }
            _ => Err("needs both cert and key"),
        }
    }

    /// All authorities that vouch for clients.
    pub fn authorities(&self) -> impl Iterator<Item = &PathBuf> {
        self.client_ca.iter().chain(&self.cluster_ca)
    }
}

/// What is served now.
struct LoadedTls {
    grpc: Arc<ServerConfig>,
    http: Arc<ServerConfig>,
    vouchers: Arc<Vouchers>,
    /// End of the certificate, seconds since 1970.
    expires: u64,
    prints: Vec<Option<Print>>,
    trouble: Option<String>,
}

/// Looks at a certificate again that a handshake took, to tell whose authority vouched for it.
struct Vouchers {
    listener: Option<Arc<dyn ClientCertVerifier>>,
    cluster: Option<Arc<dyn ClientCertVerifier>>,
}

impl Vouchers {
    fn of(&self, chain: &[CertificateDer<'_>]) -> Option<Certificate> {
        let (leaf, between) = chain.split_first()?;
        let is_by = |verifier: &Arc<dyn ClientCertVerifier>| {
            verifier.verify_client_cert(leaf, between, UnixTime::now()).is_ok()
        };
        let vouched = match &self.cluster {
            // The handshake has asked the only ones there are.
            None => Vouched { by_listener: true, by_cluster: false },
            Some(cluster) => {
                let by_listener = self.listener.as_ref().is_some_and(is_by);
                Vouched { by_listener, by_cluster: is_by(cluster) }
            }
        };
        Some(Certificate::of(leaf).vouched_for(vouched))
    }
}

/// Tells one state of a file from another.
type Print = (u64, u64, i64, i64);

/// TLS with the files as they are.
pub struct Tls {
    files: TlsFiles,
    now: RwLock<LoadedTls>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// When they cannot be served from.
    pub fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let now = RwLock::new(read(&files)?);
        Ok(Self { files, now })
    }

    /// Reads the files again where one changed. What cannot be served from changes nothing, but for what is told of it.
    pub fn look(&self) {
        self.look_if(|| Ok(()));
    }

    /// The same, where what was read is served if `may` lets it. What keeps it from that is told, and it is asked again at the next
    /// look.
    pub fn look_if(&self, may: impl FnOnce() -> Result<(), String>) {
        let prints = prints(&self.files);
        let is_read = |now: &LoadedTls| now.prints == prints && now.trouble.is_none();
        if is_read(&self.now.read().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let read = read(&self.files).map_err(|error| error.to_string());
        let read = read.and_then(|new| may().map(|()| new));
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(new) => {
                tracing::info!(cert = %self.files.cert.display(), expires = new.expires, "a new certificate is served");
                *now = new;
            }
            Err(error) => {
                let trouble = format!("{error}; what was read before is served");
                if now.trouble.as_ref() != Some(&trouble) {
                    tracing::warn!(trouble, "the new certificate cannot be served");
                }
                now.trouble = Some(trouble);
            }
        }
    }

    /// End of the certificate, seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.now.read().unwrap_or_else(PoisonError::into_inner).expires
    }

    /// What is wrong with what is served at a time in seconds since 1970: files that cannot be used, or an end that is near.
    #[must_use]
    pub fn told(&self, now: u64) -> Option<String> {
        let cert = self.files.cert.display();
        let ends = match self.expires().saturating_sub(now) {
            0 => Some(format!("the certificate has ended: no client accepts it; put a new one into {cert}")),
            left if left < SOON.as_secs() => {
                Some(format!("the certificate ends in {} min; put a new one into {cert}", left / 60))
            }
            _ => None,
        };
        self.trouble().or(ends)
    }

    /// What is wrong with the files.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        self.now.read().unwrap_or_else(PoisonError::into_inner).trouble.clone()
    }

    fn acceptor(&self, speech: Speech) -> (TlsAcceptor, Arc<Vouchers>) {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        let config = if speech == Speech::Grpc { &now.grpc } else { &now.http };
        (Arc::clone(config).into(), Arc::clone(&now.vouchers))
    }

    /// Shakes hands; gives the connection and the client's certificate, where it showed one.
    ///
    /// # Errors
    /// When the client offers nothing that is served, shows a certificate of nobody's, or takes too long.
    pub(crate) async fn accept(
        &self,
        io: Box<dyn Duplex>,
        speech: Speech,
    ) -> io::Result<(Box<dyn Duplex>, Option<Certificate>)> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long");
        let (acceptor, vouchers) = self.acceptor(speech);
        let stream = timeout(HEAD_TIMEOUT, acceptor.accept(io)).await.map_err(late)??;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| vouchers.of(chain));
        Ok((Box::new(stream), certificate))
    }
}

fn prints(files: &TlsFiles) -> Vec<Option<Print>> {
    let print = |path: &PathBuf| {
        let facts = fs::metadata(path).ok()?;
        Some((facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()))
    };
    [&files.cert, &files.key].into_iter().chain(files.authorities()).map(print).collect()
}

fn read(files: &TlsFiles) -> Result<LoadedTls, TlsError> {
    // Before the files: what changes meanwhile is read the next time.
    let prints = prints(files);
    let chain = certificates(&files.cert)?;
    let expires = chain.first().map_or(0, |leaf| Certificate::of(leaf).expires());
    let key = private_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let pair = |source| TlsError::Pair { cert: files.cert.clone(), key: files.key.clone(), source };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(pair)?;
    let builder = match verifier(files, files.authorities(), &provider)? {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let vouchers = Arc::new(Vouchers {
        listener: verifier(files, files.client_ca.iter(), &provider)?,
        cluster: verifier(files, files.cluster_ca.iter(), &provider)?,
    });
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    let speaking = |protocol: &[u8]| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Arc::new(config)
    };
    Ok(LoadedTls {
        grpc: speaking(b"h2"),
        http: speaking(b"http/1.1"),
        vouchers,
        expires,
        prints,
        trouble: None,
    })
}

/// What takes certificates of some authorities; none where there are no authorities.
fn verifier<'a>(
    files: &TlsFiles,
    authorities: impl Iterator<Item = &'a PathBuf>,
    provider: &Arc<CryptoProvider>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let mut roots = RootCertStore::empty();
    for path in authorities {
        for authority in certificates(path)? {
            roots.add(authority).map_err(|error| wrong(path, &error))?;
        }
    }
    if roots.is_empty() {
        return Ok(None);
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        // Whoever shows none is named by a token.
        .allow_unauthenticated()
        .build()
        .map_err(|error| wrong(&files.cert, &error))?;
    Ok(Some(verifier))
}

/// How long before its end a certificate is told of: half of the life of the shortest in use, a day.
pub const SOON: Duration = Duration::from_secs(12 * 3600);
