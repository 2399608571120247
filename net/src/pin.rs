//! Finding an authority by its fingerprint, for a client that has no file of it yet.
//!
//! The other side is asked for its certificates and nothing is said to it. Whatever it shows is believed only where the
//! fingerprint is that of one of them; the connections that carry something are then made with that authority.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::HEAD_TIMEOUT;
use crate::certificate::fingerprint;

/// The certificate with this SHA-256 (hexadecimal) among those that `host` shows at `port`, DER.
///
/// # Errors
/// When it cannot be reached, or shows no such certificate.
pub async fn authority(host: &str, port: u16, sha256: &str) -> io::Result<Vec<u8>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took too long to show its certificates");
    let shown = timeout(HEAD_TIMEOUT, shown(host, port)).await.map_err(late)??;
    let found = shown.iter().find(|one| fingerprint(one).eq_ignore_ascii_case(sha256));
    found.map(|der| der.to_vec()).ok_or_else(|| {
        let shown: Vec<String> = shown.iter().map(|one| fingerprint(one)).collect();
        io::Error::other(format!(
            "{host}:{port} shows no certificate with the fingerprint {sha256}, but {}: somebody else answers there, or the \
             fingerprint is another authority's",
            shown.join(", ")
        ))
    })
}

async fn shown(host: &str, port: u16) -> io::Result<Vec<CertificateDer<'static>>> {
    let provider = Arc::new(ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(RecordingVerifier(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(literal.to_owned()).map_err(io::Error::other)?;
    let stream = TcpStream::connect((literal, port)).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    Ok(stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec())
}

/// Takes note of certificates without believing them.
struct RecordingVerifier(Arc<CryptoProvider>);

impl fmt::Debug for RecordingVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Look")
    }
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
