//! An engine's address and who asks there.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::Uri;

/// A value that is in no log line and in no error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub(super) String);

impl Secret {
    /// Keeps a text secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// How an engine is told who asks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Login {
    /// Not at all.
    #[default]
    None,
    /// `Authorization: Bearer`.
    Bearer(Secret),
    /// `Authorization: Basic`.
    Basic {
        /// User name.
        user: String,
        /// Password.
        password: Secret,
    },
}

/// Where an engine is and how it wants to be spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `http://` or `https://`, host, port, and the base path that goes before every path.
    pub url: String,
    /// Sent with every request; a tenant's name, for instance. Values may be secrets.
    pub headers: Vec<(String, Secret)>,
    /// Who asks.
    pub login: Login,
    /// Longest time of one request, its answer's last byte included.
    pub timeout: Duration,
    /// Certificate authorities to trust in place of the built-in ones, PEM.
    pub authorities: Option<PathBuf>,
    /// Longest answer, bytes.
    pub max_answer: u64,
}

/// The address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// Not a URL of the right form.
    #[error("{url:?} is not http:// or https:// with a host, without user, query and fragment")]
    Url {
        /// What was given.
        url: String,
    },
    /// A header's name or value cannot be sent.
    #[error("header {name:?} or its value has a character that HTTP does not allow")]
    Header {
        /// Name of the header.
        name: String,
    },
    /// The authorities cannot be read.
    #[error("cannot read certificate authorities from {}; name a PEM file", path.display())]
    Authorities {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// The URL without a slash at its end.
pub(super) fn checked(url: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Url { url: without_user(url) };
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    let scheme = parsed.scheme_str().is_some_and(|s| s == "http" || s == "https");
    let host = parsed.authority().is_some_and(|a| !a.host().is_empty() && !a.as_str().contains('@'));
    if !scheme || !host || parsed.query().is_some() || url.contains('#') {
        return Err(wrong());
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// A URL as it may be shown: what stands before an `@` may be a password.
pub(super) fn without_user(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}...{}", &url[..scheme + 3], &url[at..]),
        _ => url.to_owned(),
    }
}
