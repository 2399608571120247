//! What is wrong with a server's certificate, key or authorities.

use std::path::PathBuf;

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not hold what it should.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what helps.
        what: String,
    },
    /// Certificate and key do not belong together, or are of a kind that is not served.
    #[error("{} and {}: {source}", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
}
