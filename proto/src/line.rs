//! How a program of ours reaches another: a Unix socket, an address over TLS, or an address without.
//!
//! Owned here: which of them an address means, and what each needs. Not owned: connecting, and what is said.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// A certificate and its key that stand in no files of their own, PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate, and those between it and an authority.
    pub cert: Vec<u8>,
    /// Its key.
    pub key: Vec<u8>,
}

impl fmt::Debug for Pair {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// What is known of the other side, and who we are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trust {
    /// Authorities of the other side's certificate, PEM.
    pub ca: Option<PathBuf>,
    /// Our certificate, PEM.
    pub cert: Option<PathBuf>,
    /// Its key, PEM.
    pub key: Option<PathBuf>,
    /// Both, where they are in no files; these are shown then.
    pub pair: Option<Pair>,
    /// The name that the other side's certificate has to have; that of the address without.
    pub name: Option<String>,
    /// Our token, where there is one.
    pub token: Option<PathBuf>,
    /// Whether the token may go over a network in plain text.
    pub insecure: bool,
}

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// It is none.
    #[error("{0:?} is no address: write unix:///PATH, https://HOST:PORT or http://HOST:PORT")]
    Address(String),
    /// Nobody vouches for the other side.
    #[error("{0} is reached over TLS, and no authority of its certificate is named")]
    NoAuthority(String),
    /// A secret would be readable on the way.
    #[error(
        "{0} is reached without encryption, and the token could be read on the way: use https://, or accept it as insecure"
    )]
    Readable(String),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What the files hold is no certificate or key.
    #[error("TLS cannot be used")]
    Tls(#[source] tonic::transport::Error),
}

/// What vouches for the other side and for us, with what the files of a [`Trust`] hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadedTrust {
    /// Authorities of the other side's certificate, PEM.
    pub ca: Option<Vec<u8>>,
    /// Our certificate and its key.
    pub pair: Option<Pair>,
    /// The name that the other side's certificate has to have; that of the address without.
    pub name: Option<String>,
    /// We send a token.
    pub has_token: bool,
    /// Whether the token may go over a network in plain text.
    pub insecure: bool,
}

impl Trust {
    /// What an address needs of it, read anew.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn held(&self, address: &str) -> Result<LoadedTrust, LineError> {
        let (has_token, insecure) = (self.token.is_some(), self.insecure);
        if !address.starts_with("https://") {
            return Ok(LoadedTrust { has_token, insecure, ..LoadedTrust::default() });
        }
        let pair = match (&self.pair, &self.cert, &self.key) {
            (Some(pair), ..) => Some(pair.clone()),
            (None, Some(cert), Some(key)) => Some(Pair { cert: read(cert)?, key: read(key)? }),
            _ => None,
        };
        let ca = self.ca.as_deref().map(read).transpose()?;
        Ok(LoadedTrust { ca, pair, name: self.name.clone(), has_token, insecure })
    }
}

/// The endpoint of an address; the files are read anew each time.
///
/// # Errors
/// When the address is none, or what it needs is not there.
pub fn endpoint(address: &str, trust: &Trust) -> Result<Endpoint, LineError> {
    endpoint_with(address, &trust.held(address)?)
}

/// The same without files.
///
/// # Errors
/// When the address is none, or what it needs is not there.
pub fn endpoint_with(address: &str, held: &LoadedTrust) -> Result<Endpoint, LineError> {
    let none = || LineError::Address(address.to_owned());
    if !["unix:///", "http://", "https://"].iter().any(|scheme| address.starts_with(scheme)) {
        return Err(none());
    }
    let endpoint = Endpoint::from_shared(address.to_owned()).map_err(|_| none())?;
    if address.starts_with("unix:") {
        return Ok(endpoint);
    }
    let host = endpoint.uri().host().ok_or_else(none)?;
    if !address.starts_with("https://") {
        let exposed = held.has_token && !held.insecure && !is_loopback(host);
        return if exposed { Err(LineError::Readable(address.to_owned())) } else { Ok(endpoint) };
    }
    let ca = held.ca.as_ref().ok_or_else(|| LineError::NoAuthority(address.to_owned()))?;
    let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca));
    if let Some(Pair { cert, key }) = &held.pair {
        tls = tls.identity(Identity::from_pem(cert, key));
    }
    if let Some(name) = &held.name {
        tls = tls.domain_name(name);
    }
    endpoint.tls_config(tls).map_err(LineError::Tls)
}

fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || literal.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn read(path: &Path) -> Result<Vec<u8>, LineError> {
    fs::read(path).map_err(|source| LineError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_what_it_needs() {
        let nothing = Trust::default();
        let token = Trust { token: Some("/token".into()), ..Trust::default() };
        let insecure = Trust { insecure: true, ..token.clone() };
        for (address, trust, want) in [
            ("unix:///run/x.sock", &token, ""),
            ("http://127.0.0.1:1", &token, ""),
            ("http://[::1]:1", &token, ""),
            ("http://localhost:1", &token, ""),
            ("http://10.0.0.1:1", &nothing, ""),
            ("http://10.0.0.1:1", &insecure, ""),
            ("http://10.0.0.1:1", &token, "could be read on the way"),
            ("http://localhost.example:1", &token, "could be read on the way"),
            ("https://10.0.0.1:1", &token, "no authority"),
            ("10.0.0.1:1", &nothing, "no address"),
            ("unix:x.sock", &nothing, "no address"),
            ("http://", &nothing, "no address"),
            ("ftp://x", &nothing, "no address"),
        ] {
            let said = endpoint(address, trust).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{address}: {said}");
        }
        let ca = Trust { ca: Some("/no/such/file".into()), ..Trust::default() };
        assert!(matches!(endpoint("https://h:1", &ca), Err(LineError::File { .. })));
    }
}
