//! The token that names a caller: read from a file, sent with each call, read from a header.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// The header it is in, and what stands before it there (RFC 6750, section 2.1).
pub const HEADER: &str = "authorization";
const SCHEME: &str = "Bearer ";
/// Longest token, bytes: those of Kubernetes take one or two thousand.
const MAX_BYTES: u64 = 8 << 10;

/// The token of a caller, or none.
#[derive(Debug, Clone, Default)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    /// The token in a file, without the blanks around it.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no token.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        Self::of(&read(path)?)
    }

    /// A token.
    ///
    /// # Errors
    /// When it holds characters that no token has.
    pub fn of(token: &str) -> io::Result<Self> {
        let parsed = format!("{SCHEME}{token}").parse();
        let mut value: MetadataValue<Ascii> =
            parsed.map_err(|_| wrong("it holds characters that no token has"))?;
        value.set_sensitive(true);
        Ok(Self(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert(HEADER, value.clone());
        }
        Ok(request)
    }
}

/// The token in a file, without the blanks around it.
///
/// # Errors
/// When the file cannot be read, or holds none.
pub fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    let token = text.trim();
    if token.is_empty() || text.len() as u64 > MAX_BYTES {
        return Err(wrong("it has to hold one token of at most 8 KiB"));
    }
    Ok(token.to_owned())
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// The token in a header's value; `None` when it is of another kind.
#[must_use]
pub fn token(header: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(header).ok()?;
    let (scheme, token) = text.split_at_checked(SCHEME.len())?;
    // Schemes know no case (RFC 9110, section 11.1).
    let token = token.trim();
    (scheme.eq_ignore_ascii_case(SCHEME) && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read_and_nothing_else() {
        let dir = std::env::temp_dir().join(format!("bearer-{}", std::process::id()));
        std::fs::write(&dir, "  abc.def-1\n").unwrap();
        let mut bearer = Bearer::from_file(&dir).unwrap();
        let sent = bearer.call(Request::new(())).unwrap();
        let header = sent.metadata().get(HEADER).unwrap();
        assert_eq!(token(header.as_bytes()), Some("abc.def-1"));
        for text in ["", "\n", "a\u{1}b"] {
            std::fs::write(&dir, text).unwrap();
            assert!(Bearer::from_file(&dir).is_err(), "{text:?}");
        }
        std::fs::remove_file(&dir).unwrap();
        for (header, want) in
            [("bearer x", Some("x")), ("Basic x", None), ("Bearer ", None), ("Bearer", None), ("", None)]
        {
            assert_eq!(token(header.as_bytes()), want, "{header:?}");
        }
    }
}
