//! Lists of the Kubernetes API, page by page (kubernetes.io, "API Concepts", "Retrieving large results sets in chunks").
//!
//! A page that does not come is asked for again a bounded number of times: after what the server asks for
//! (`Retry-After`), else after twice as long each time. A list whose pages have expired (410 Gone) is for the caller to
//! begin again, since it has used the first pages already.

pub(crate) mod write;

use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use ureq::http::{HeaderValue, Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use super::config::Target;
use super::credentials::{Credentials, authorities};
use super::percent_encoded;
use super::server_name::Renamed;
use crate::failure::Failure;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may think about a page; its own limit of a request is 60 s.
const ANSWER: Duration = Duration::from_secs(65);
/// How long a page may take to arrive.
const ARRIVE: Duration = Duration::from_secs(120);
/// Times a page is asked for.
const ATTEMPTS: u32 = 6;
/// Before the second time, where the server says nothing.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Largest page taken: 500 objects of at most 1.5 MiB, etcd's limit, would be below it.
const MAX_PAGE_BYTES: u64 = 1 << 30;
/// Bytes read of an answer that is no page.
const MAX_STATUS_BYTES: u64 = 1 << 16;

/// Why a list did not come.
#[derive(Debug)]
pub(crate) enum ListError {
    /// Who asks may not see it; the server's words.
    Forbidden(String),
    /// The server does not know the kind.
    Unknown,
    /// Its pages have expired; it has to be begun again.
    Expired,
    /// Anything else.
    Failed(Failure),
}

impl From<Failure> for ListError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Objects, and where the next ones begin.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Page {
    metadata: PageMetadata,
    items: Option<Vec<Map<String, Value>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    r#continue: String,
}

/// A connection to an API server.
pub(crate) struct Client {
    target: Target,
    connection: Connection,
    credentials: Credentials,
    /// It has answered before.
    reached: bool,
}

impl Client {
    /// Of a server; nothing is asked yet.
    ///
    /// # Errors
    /// When its certificates or credentials cannot be used.
    pub(crate) fn new(target: Target) -> Result<Self, Failure> {
        let credentials = Credentials::of(&target.user)?;
        let connection = Connection::new(&target, &credentials)?;
        Ok(Self { target, connection, credentials, reached: false })
    }

    /// The server's URL.
    pub(crate) fn server(&self) -> &str {
        &self.target.server
    }

    /// Calls `take` with the objects of every page of a list.
    ///
    /// # Errors
    /// [`ListError`]; objects of pages before are taken already then. Errors of `take` end it too.
    pub(crate) fn list(
        &mut self,
        path: &str,
        limit: u32,
        take: &mut dyn FnMut(Vec<Map<String, Value>>) -> Result<(), Failure>,
    ) -> Result<(), ListError> {
        let mut next = String::new();
        loop {
            let mut query = format!("limit={limit}");
            if !next.is_empty() {
                query.push_str("&continue=");
                query.push_str(&escaped(&next));
            }
            let page = self.page(path, &query)?;
            take(page.items.unwrap_or_default())?;
            if page.metadata.r#continue.is_empty() {
                return Ok(());
            }
            next = page.metadata.r#continue;
        }
    }

    fn page(&mut self, path: &str, query: &str) -> Result<Page, ListError> {
        let server = self.connection.base(&self.target.server);
        let url = format!("{}{path}?{query}", server.trim_end_matches('/'));
        let mut renewed = false;
        let mut attempt = 1;
        loop {
            let again = match self.ask(&url) {
                Ok(response) => match self.answered(response, path)? {
                    Answered::Page(page) => return Ok(page),
                    Answered::Unauthorized(why) => {
                        if renewed || !Credentials::may_change(&self.target.user) {
                            return Err(self
                                .failed(path, why, "log in again, or choose another --context")
                                .into());
                        }
                        renewed = true;
                        self.credentials = Credentials::of(&self.target.user)?;
                        self.connection = Connection::new(&self.target, &self.credentials)?;
                        continue;
                    }
                    Answered::Later { why, after } => Again { why, after },
                },
                Err(error) => {
                    let why = told(&error);
                    if !self.is_passing(&error) {
                        return Err(self
                            .failed(path, why, "see whether the server and its certificate are right")
                            .into());
                    }
                    Again { why, after: None }
                }
            };
            if attempt == ATTEMPTS {
                let why = format!("{} (asked {ATTEMPTS} times)", again.why);
                return Err(self.failed(path, why, "try again when the server is well").into());
            }
            thread::sleep(again.after.unwrap_or(FIRST_WAIT * (1 << (attempt - 1))).min(LONGEST_WAIT));
            attempt += 1;
        }
    }

    fn ask(&self, url: &str) -> Result<Response<Body>, ureq::Error> {
        let mut request = self.connection.agent.get(url).header(header::ACCEPT, "application/json");
        if let Some(authorization) = &self.credentials.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        for (name, value) in &self.credentials.impersonation {
            request = request.header(name, value);
        }
        if let Some(host) = self.connection.host() {
            request = request.header(header::HOST, host);
        }
        request.call()
    }

    fn answered(&mut self, mut response: Response<Body>, path: &str) -> Result<Answered, ListError> {
        self.reached = true;
        let status = response.status();
        let after = response.headers().get(header::RETRY_AFTER);
        let after = after.and_then(|text| text.to_str().ok()?.parse().ok()).map(Duration::from_secs);
        if status == StatusCode::OK {
            let reader = response.into_body().into_with_config().limit(MAX_PAGE_BYTES).reader();
            return match serde_json::from_reader(std::io::BufReader::new(reader)) {
                Ok(page) => Ok(Answered::Page(page)),
                // Broken off on its way.
                Err(error) if error.is_io() || error.is_eof() => {
                    Ok(Answered::Later { why: error.to_string(), after: None })
                }
                Err(error) => {
                    let remedy = "see whether an API server is at this address";
                    Err(self.failed(path, format!("its answer is no list: {error}"), remedy).into())
                }
            };
        }
        let body = response.body_mut().with_config().limit(MAX_STATUS_BYTES).read_to_string();
        let words = body.ok().and_then(|text| words_of(&text));
        let why = format!("{status}: {}", words.as_deref().unwrap_or("no reason given"));
        match status {
            StatusCode::FORBIDDEN => Err(ListError::Forbidden(words.unwrap_or(why))),
            StatusCode::NOT_FOUND => Err(ListError::Unknown),
            StatusCode::GONE => Err(ListError::Expired),
            StatusCode::UNAUTHORIZED => Ok(Answered::Unauthorized(why)),
            StatusCode::TOO_MANY_REQUESTS => Ok(Answered::Later { why, after }),
            _ if status.is_server_error() => Ok(Answered::Later { why, after }),
            _ => Err(self.failed(path, why, "see the server's log").into()),
        }
    }

    /// Whether a failure may be over the next time. A server that was never there is not waited for.
    fn is_passing(&self, error: &ureq::Error) -> bool {
        use std::io::ErrorKind;
        match error {
            // What rustls refuses stays refused.
            ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData => false,
            ureq::Error::Io(_) | ureq::Error::ConnectionFailed | ureq::Error::HostNotFound => self.reached,
            ureq::Error::Timeout(_) | ureq::Error::BodyStalled => true,
            _ => false,
        }
    }

    fn failed(&self, path: &str, why: impl Into<String>, remedy: &str) -> Failure {
        Failure::new("cannot ask the API server", format!("{}{path}", self.target.server), why, remedy)
    }
}

/// The server's reason: the message of a `Status`, or the first line of plain text, such as Go's TLS server gives to a
/// client without TLS. Pages of HTML say nothing.
fn words_of(body: &str) -> Option<String> {
    const MOST: usize = 300;
    if let Ok(status) = serde_json::from_str::<Value>(body) {
        return status["message"].as_str().map(str::to_owned);
    }
    let line = body.trim_start().lines().next()?.trim_end();
    let readable = !line.is_empty() && !line.starts_with('<') && !line.contains(char::is_control);
    readable.then(|| line.chars().take(MOST).collect())
}

enum Answered {
    Page(Page),
    Unauthorized(String),
    Later { why: String, after: Option<Duration> },
}

struct Again {
    why: String,
    after: Option<Duration>,
}

/// A way to a server that was prepared: its certificates are read, nothing was asked yet.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The HTTP client.
    pub(crate) agent: Agent,
    /// Where the server's certificate has another name.
    renamed: Option<Renamed>,
}

impl Connection {
    /// To a server, with these credentials.
    ///
    /// # Errors
    /// When its certificates cannot be used.
    pub(crate) fn new(target: &Target, credentials: &Credentials) -> Result<Self, Failure> {
        let renamed = Renamed::of(target)?;
        Ok(Self { agent: agent(target, renamed.as_ref(), credentials)?, renamed })
    }

    /// The URL that is asked for the server's.
    pub(crate) fn base<'a>(&'a self, server: &'a str) -> &'a str {
        self.renamed.as_ref().map_or(server, |renamed| &renamed.url)
    }

    /// What the server is called, where that is not its URL's name.
    pub(crate) fn host(&self) -> Option<&HeaderValue> {
        self.renamed.as_ref().map(|renamed| &renamed.host)
    }
}

fn agent(target: &Target, renamed: Option<&Renamed>, credentials: &Credentials) -> Result<Agent, Failure> {
    let mut tls = TlsConfig::builder()
        .client_cert(credentials.certificate.clone())
        .disable_verification(target.cluster.insecure_skip_tls_verify);
    if target.server.starts_with("https://")
        && let Some(authorities) = authorities(&target.cluster)?
    {
        tls = tls.root_certs(RootCerts::new_with_certs(&authorities));
    }
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("evenkeel/", env!("CARGO_PKG_VERSION")))
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(ANSWER))
        .timeout_recv_body(Some(ARRIVE))
        .tls_config(tls.build());
    // Without one in the kubeconfig, HTTPS_PROXY and NO_PROXY hold.
    if let Some(url) = target.cluster.proxy_url.as_deref().filter(|url| !url.is_empty()) {
        let proxy = ureq::Proxy::new(url).map_err(|error| {
            Failure::new("cannot use the kubeconfig", "proxy-url", told(&error), "give http://HOST:PORT")
        })?;
        config = config.proxy(Some(proxy));
    }
    let config = match renamed {
        // Nothing of the environment either: a proxy would be told the name in the certificate.
        Some(renamed) => {
            return Ok(Agent::with_parts(
                config.proxy(None).build(),
                DefaultConnector::default(),
                renamed.clone(),
            ));
        }
        None => config.build(),
    };
    Ok(config.new_agent())
}

/// An error with its causes, each once.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

/// A value of a query, escaped as far as tokens of pages need it.
fn escaped(text: &str) -> String {
    percent_encoded(text, b"-._~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_servers_words() {
        for (body, want) in [
            (r#"{"kind": "Status", "message": "no"}"#, Some("no")),
            (
                "Client sent an HTTP request to an HTTPS server.\n",
                Some("Client sent an HTTP request to an HTTPS server."),
            ),
            ("<html><body>no</body></html>", None),
            ("{}", None),
            ("\u{1b}[31mred", None),
            ("", None),
        ] {
            assert_eq!(words_of(body).as_deref(), want, "{body}");
        }
    }

    #[test]
    fn tokens_are_escaped() {
        assert_eq!(escaped("a-Z_0.~=+/ "), "a-Z_0.~%3D%2B%2F%20");
    }
}
