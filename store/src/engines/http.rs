//! Owns the way to an engine: address, headers, secrets, time-outs, bounds, and what an answer's status means.
//!
//! Not owned: what is sent and what the body of an answer says. Nothing is ever sent to an address that is not the
//! configured one: redirects are not followed and proxies of the environment are not used.

mod address;

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::Response;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::failure::EngineFailure;
use address::checked;
pub use address::{Address, AddressError, Login, Secret};

/// Longest part of a refusal's body that is read, and told.
const REFUSAL: u64 = 512;

/// A client of one engine. Holds connections open between requests.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    base: String,
    headers: Vec<(String, String)>,
    max_answer: u64,
}

impl Client {
    /// A client; nothing is connected yet.
    ///
    /// # Errors
    /// [`AddressError`] when the address cannot be used.
    pub(super) fn new(address: &Address) -> Result<Self, AddressError> {
        let base = checked(&address.url)?;
        let mut headers: Vec<(String, String)> =
            address.headers.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        match &address.login {
            Login::None => {}
            Login::Bearer(token) => headers.push(("Authorization".into(), format!("Bearer {}", token.0))),
            Login::Basic { user, password } => {
                let pair = base64(format!("{user}:{}", password.0).as_bytes());
                headers.push(("Authorization".into(), format!("Basic {pair}")));
            }
        }
        for (name, value) in &headers {
            let named = ureq::http::HeaderName::try_from(name.as_str()).is_ok();
            if !named || ureq::http::HeaderValue::try_from(value.as_str()).is_err() {
                return Err(AddressError::Header { name: name.clone() });
            }
        }
        let mut tls = TlsConfig::builder();
        if let Some(path) = &address.authorities {
            tls = tls.root_certs(authorities(path)?);
        }
        let config = Agent::config_builder()
            .timeout_global(Some(address.timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("evenkeel-recommender/", env!("CARGO_PKG_VERSION")))
            .tls_config(tls.build())
            .build();
        Ok(Self { agent: Agent::new_with_config(config), base, headers, max_answer: address.max_answer })
    }

    /// Sends a body; an answer that is a success is read no further than its bound and thrown away.
    ///
    /// # Errors
    /// [`EngineFailure`] by what went wrong.
    pub(super) fn post(
        &self,
        path: &str,
        query: &[(&str, &str)],
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), EngineFailure> {
        let url = self.url(path, query);
        let mut request = self.agent.post(&url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let answer = request.send(body).map_err(failure)?;
        // An answer that is not read to its end costs the connection and nothing else.
        accepted(answer).map(drop)
    }

    /// Asks by POST, where questions may be long; returns the answer's body, bounded by `max_answer`.
    ///
    /// # Errors
    /// [`EngineFailure`] by what went wrong.
    pub(super) fn ask(&self, path: &str, form: &[(&str, &str)]) -> Result<BoundedBody, EngineFailure> {
        let mut request = self.agent.post(self.url(path, &[]));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let answer = request.send_form(form.iter().copied()).map_err(failure)?;
        let body = accepted(answer)?.into_body();
        // The library's own bound is off: what it reports could not be told from a broken connection.
        Ok(BoundedBody::over(body.into_with_config().limit(u64::MAX).reader(), self.max_answer))
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> String {
        let mut url = format!("{}{path}", self.base);
        for (i, (name, value)) in query.iter().enumerate() {
            url.push(if i == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            escape(value, &mut url);
        }
        url
    }
}

/// The body of an answer, bounded. Remembers why it ended, since readers of formats hide that.
pub(crate) struct BoundedBody {
    reader: Box<dyn Read>,
    left: u64,
    ended: Option<EngineFailure>,
}

impl BoundedBody {
    /// A body of at most so many bytes.
    pub(crate) fn over(reader: impl Read + 'static, most: u64) -> Self {
        Self { reader: Box::new(reader), left: most, ended: None }
    }

    /// Why reading stopped where the body did not simply end: too long, too slow, broken off.
    pub(crate) fn take_failure(&mut self) -> Option<EngineFailure> {
        self.ended.take()
    }
}

impl fmt::Debug for BoundedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("left", &self.left).field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Read for BoundedBody {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if most == 0 && !into.is_empty() {
            // The bound is reached: fine if the body ends here as well.
            let mut one = [0; 1];
            return match self.reader.read(&mut one) {
                Ok(0) => Ok(0),
                Ok(_) => {
                    self.ended = Some(EngineFailure::TooLong);
                    Err(io::Error::other("the answer is too long"))
                }
                Err(error) => Err(self.broken(error)),
            };
        }
        match self.reader.read(&mut into[..most]) {
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) => Err(self.broken(error)),
        }
    }
}

impl BoundedBody {
    fn broken(&mut self, error: io::Error) -> io::Error {
        let text = error.to_string();
        self.ended = Some(failure(ureq::Error::from(error)));
        io::Error::other(text)
    }
}

/// What a status means. Statuses that say "not now" are told apart from those that say "never".
fn accepted(answer: Response<Body>) -> Result<Response<Body>, EngineFailure> {
    let status = answer.status().as_u16();
    if answer.status().is_success() {
        return Ok(answer);
    }
    let wait = answer.headers().get("retry-after").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let mut said = Vec::new();
    // What cannot be read of a refusal's reason is not worth another error.
    let _partial = answer.into_body().into_reader().take(REFUSAL).read_to_end(&mut said);
    let said = String::from_utf8_lossy(&said).trim().replace(|c: char| c.is_control(), " ");
    let what = format!("status {status}: {said}");
    Err(match status {
        413 => EngineFailure::TooLarge { what },
        408 | 429 | 503 | 507 => EngineFailure::Busy { what, wait: wait.map(Duration::from_secs) },
        500 | 502 | 504 => EngineFailure::Down { what },
        400 | 409 | 422 => EngineFailure::Refused { what },
        _ => EngineFailure::Misdirected { what },
    })
}

/// What kept an answer from coming.
fn failure(error: ureq::Error) -> EngineFailure {
    let what = error.to_string();
    match error {
        ureq::Error::Timeout(_) => EngineFailure::Slow { what },
        ureq::Error::Io(inner) => match inner.get_ref().and_then(|e| e.downcast_ref::<ureq::Error>()) {
            Some(ureq::Error::Timeout(_)) => EngineFailure::Slow { what },
            _ if inner.kind() == io::ErrorKind::TimedOut => EngineFailure::Slow { what },
            _ => EngineFailure::Down { what },
        },
        ureq::Error::Protocol(_) | ureq::Error::Decompress(..) => EngineFailure::Malformed { what },
        _ => EngineFailure::Down { what },
    }
}

fn authorities(path: &PathBuf) -> Result<RootCerts, AddressError> {
    let read = |source| AddressError::Authorities { path: path.clone(), source };
    let text = std::fs::read(path).map_err(read)?;
    let mut found = Vec::new();
    for item in ureq::tls::parse_pem(&text) {
        if let ureq::tls::PemItem::Certificate(one) = item.map_err(|e| read(io::Error::other(e)))? {
            found.push(one);
        }
    }
    if found.is_empty() {
        return Err(read(io::Error::other("no certificate in it")));
    }
    Ok(RootCerts::from(found.into_iter().collect::<Vec<Certificate<'static>>>()))
}

/// Percent-encodes everything but what RFC 3986 calls unreserved.
fn escape(text: &str, into: &mut String) {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            into.push(char::from(byte));
        } else {
            into.extend(['%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Base64 with padding (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let whole = part.iter().fold(0u32, |all, b| all << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        for i in 0..4 {
            let sign = SIGNS[(whole >> (18 - 6 * i) & 63) as usize];
            text.push(if i <= part.len() { char::from(sign) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        Address {
            url: url.to_owned(),
            headers: vec![("X-Scope-OrgID".into(), Secret::new("tenant"))],
            login: Login::Basic { user: "u".into(), password: Secret::new("sesame") },
            timeout: Duration::from_secs(5),
            authorities: None,
            max_answer: 1 << 20,
        }
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let mut given = address("http://127.0.0.1:9/base");
        given.login = Login::Bearer(Secret::new("sesame"));
        assert!(!format!("{given:?}").contains("sesame"));
        let error = Client::new(&address("http://u:sesame@h/")).unwrap_err().to_string();
        assert!(!error.contains("sesame") && error.contains('h'), "{error}");
    }

    #[test]
    fn urls_are_checked_and_keep_their_base_path() {
        for bad in ["", "h", "ftp://h", "http://", "http://h?x=1", "http://u@h", "http://h/#a", "/api"] {
            assert!(Client::new(&address(bad)).is_err(), "{bad}");
        }
        let client = Client::new(&address("https://h:1/select/0/prometheus/")).unwrap();
        let url = client.url("/api/v1/query", &[("db", "a b"), ("q", "é=1")]);
        assert_eq!(url, "https://h:1/select/0/prometheus/api/v1/query?db=a%20b&q=%C3%A9%3D1");
        let mut odd = address("http://h");
        odd.headers = vec![("X-A".into(), Secret::new("line\nbreak"))];
        assert!(matches!(Client::new(&odd), Err(AddressError::Header { .. })));
    }

    #[test]
    fn base64_is_that_of_the_rfc() {
        let table =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("a:b", "YTpi")];
        for (plain, coded) in table {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }
}
