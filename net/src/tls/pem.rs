//! Certificates and keys of files.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::TlsError;
use crate::certificate::Certificate;

pub(super) fn wrong(path: &Path, why: &dyn fmt::Display) -> TlsError {
    TlsError::File { path: path.to_owned(), what: why.to_string() }
}

/// The certificates of a PEM file, at least one.
///
/// # Errors
/// When it cannot be read or holds none.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| wrong(path, &error))?;
    if found.is_empty() {
        return Err(wrong(path, &"it holds no certificate in PEM"));
    }
    Ok(found)
}

/// The certificates of a text in PEM, as far as they can be read.
#[must_use]
pub fn parsed(pem: &[u8]) -> Vec<Certificate> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).map(|der| Certificate::of(&der)).collect()
}

/// The key of a PEM file, which others may not read.
///
/// # Errors
/// When it cannot be read, holds none, or everybody may read it.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    if fs::metadata(path).is_ok_and(|facts| facts.permissions().mode() & 0o007 != 0) {
        return Err(wrong(
            path,
            &"everybody may read this key: chmod 0600, and make a new one if others could have",
        ));
    }
    PrivateKeyDer::from_pem_file(path).map_err(|error| wrong(path, &error))
}
