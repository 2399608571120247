//! A server that is asked some questions, one after another, by a program that ends with them: lists page by page (kubernetes.io, "API
//! Concepts", "Retrieving large results sets in chunks"), and single changes.
//!
//! A page that does not come is asked for again a bounded number of times: after what the server asks for (`Retry-After`), else after twice
//! as long each time. A list whose pages have expired (410 Gone) is for the caller to begin again, since it has used the first pages
//! already. A change is asked for once: whoever makes it decides what a failure means.

use std::fmt;
use std::time::Duration;

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::config::{AuthInfo, Cluster};
use serde_json::{Map, Value, json};

use crate::connect::{ApiServer, ConnectError, connect, told};
use crate::kubeconfig::{ApiTarget, Choice, KubeconfigEntry, Use, load};
use crate::objects::ApiError;
use crate::watch::answer::{Trouble, ask, good};
use crate::watch::cut::Items;
use crate::watch::escaped;
use crate::watch::follow::{ListHead, ListMeta, piece};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long the server may think, and an answer stand still; the server's own limit of a request is 60 s.
const ANSWER: Duration = Duration::from_secs(65);
/// Times a page is asked for.
const ATTEMPTS: u32 = 6;
/// Before the second time, where the server says nothing.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Longest wait, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Largest page taken: 500 objects of at most 1.5 MiB, etcd's limit, would be below it.
const MAX_PAGE_BYTES: usize = 1 << 30;
/// Largest answer of a server that is no API server: 5,000 nodes as objects are below it.
const MOST_POSTED: usize = 64 << 20;
/// What is tried.
const ASKING: &str = "cannot ask the API server";

/// Why a list did not come.
#[derive(Debug)]
pub enum ListError<E> {
    /// Who asks may not see it; the server's words.
    Forbidden(String),
    /// The server does not know the kind.
    Unknown,
    /// Its pages have expired; it has to be begun again.
    Expired,
    /// Anything else.
    Failed(ConnectError),
    /// Whoever takes the objects could not.
    Taken(E),
}

impl<E> From<E> for ListError<E> {
    fn from(error: E) -> Self {
        Self::Taken(error)
    }
}

/// Certificates in files, and in their place in base64; empty = none.
#[derive(Debug, Clone, Default)]
pub struct TlsFiles {
    /// The server's certificate is not checked.
    pub insecure: bool,
    /// The name in its certificate, where it is not that of the URL.
    pub server_name: String,
    /// Authority that its certificate is checked with: file and data.
    pub ca: (String, String),
    /// Certificate shown to it: file and data.
    pub cert: (String, String),
    /// Its key: file and data.
    pub key: (String, String),
}

/// A connection to a server.
pub struct Session {
    api: ApiServer,
    server: String,
    is_unchecked: bool,
    /// Where credentials are read anew, where that may give others.
    renew: Option<Choice>,
    /// It has answered before.
    is_reached: bool,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("server", &self.server).finish_non_exhaustive()
    }
}

impl Session {
    /// With the API server that is meant, as who the kubeconfig says. Nothing is asked yet.
    ///
    /// # Errors
    /// When none is known, or certificates or credentials cannot be used.
    pub async fn open(choice: &Choice) -> Result<Self, ConnectError> {
        let target = load(choice, Use::Once)?;
        let renew = target.may_change.then(|| choice.clone());
        Ok(Self { renew, ..Self::of(target)? })
    }

    /// With another server, which knows TLS. Nothing is asked yet.
    ///
    /// # Errors
    /// When its URL or certificates cannot be used.
    pub async fn with(url: &str, tls: &TlsFiles) -> Result<Self, ConnectError> {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut cluster =
            Cluster { server: given(url), tls_server_name: given(&tls.server_name), ..Cluster::default() };
        cluster.insecure_skip_tls_verify = Some(tls.insecure);
        (cluster.certificate_authority, cluster.certificate_authority_data) =
            (given(&tls.ca.0), given(&tls.ca.1));
        let user = json!({
            "client-certificate": tls.cert.0, "client-certificate-data": tls.cert.1,
            "client-key": tls.key.0, "client-key-data": tls.key.1,
        });
        let user: AuthInfo = serde_json::from_value(user).unwrap_or_default();
        Self::of(KubeconfigEntry { cluster, user }.target(Use::Once)?)
    }

    fn of(ApiTarget { config, .. }: ApiTarget) -> Result<Self, ConnectError> {
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let is_unchecked = config.accept_invalid_certs;
        let client = connect(config, CONNECT, None)?;
        let api = ApiServer { client, patience: ANSWER };
        Ok(Self { api, server, is_unchecked, renew: None, is_reached: false })
    }

    /// The server's URL.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether the server's certificate is not checked.
    #[must_use]
    pub fn is_unchecked(&self) -> bool {
        self.is_unchecked
    }

    /// Calls `take` with the objects of every page of a list.
    ///
    /// # Errors
    /// [`ListError`]; objects of pages before are taken already then.
    pub async fn list<E>(
        &mut self,
        path: &str,
        limit: u32,
        take: &mut dyn FnMut(Vec<Map<String, Value>>) -> Result<(), E>,
    ) -> Result<(), ListError<E>> {
        let mut next = String::new();
        loop {
            let sign = if path.contains('?') { '&' } else { '?' };
            let mut page = format!("{path}{sign}limit={limit}");
            if !next.is_empty() {
                page.push_str("&continue=");
                page.push_str(&escaped(&next));
            }
            let (objects, meta) = match self.page(&page).await {
                Ok(page) => page,
                Err(Trouble::Forbidden(why)) => return Err(ListError::Forbidden(why)),
                Err(Trouble::Absent(_)) => return Err(ListError::Unknown),
                Err(Trouble::Gone(_)) => return Err(ListError::Expired),
                Err(trouble) => return Err(ListError::Failed(self.failed(path, &trouble))),
            };
            take(objects).map_err(ListError::Taken)?;
            if meta.r#continue.is_empty() {
                return Ok(());
            }
            next = meta.r#continue;
        }
    }

    fn failed(&self, path: &str, trouble: &Trouble) -> ConnectError {
        let remedy = match trouble {
            Trouble::Unauthorized(_) => "log in again, or choose another context",
            Trouble::Wrong(_) => "see whether an API server is at this address, and its log",
            _ if self.is_reached => "try again when the server is well",
            _ => "see whether the server and its certificate are right",
        };
        ConnectError::new(ASKING, format!("{}{path}", self.server), trouble.words(), remedy)
    }

    /// A page, asked for as often as it takes.
    async fn page(&mut self, path: &str) -> Result<(Vec<Map<String, Value>>, ListMeta), Trouble> {
        let (mut attempt, mut is_renewed) = (1, false);
        loop {
            let (why, after) = match self.once(path).await {
                Ok(page) => return Ok(page),
                Err(Trouble::Unauthorized(why)) => match self.renew.clone() {
                    Some(choice) if !is_renewed => {
                        is_renewed = true;
                        let renewed = Self::open(&choice).await;
                        self.api = renewed.map_err(|error| Trouble::Wrong(error.to_string()))?.api;
                        continue;
                    }
                    _ => return Err(Trouble::Unauthorized(why)),
                },
                Err(Trouble::Later(why, after)) => (why, after),
                // A server that was never there is not waited for.
                Err(Trouble::Failed(why)) if self.is_reached => (why, None),
                Err(trouble) => return Err(trouble),
            };
            if attempt == ATTEMPTS {
                return Err(Trouble::Failed(format!("{why} (asked {ATTEMPTS} times)")));
            }
            let wait = after.unwrap_or(FIRST_WAIT * (1 << (attempt - 1)));
            tokio::time::sleep(wait.min(LONGEST_WAIT)).await;
            attempt += 1;
        }
    }

    async fn once(&mut self, path: &str) -> Result<(Vec<Map<String, Value>>, ListMeta), Trouble> {
        let answer = ask(&self.api.client, path, "application/json", ANSWER).await?;
        self.is_reached = true;
        let mut body = good(answer, ANSWER).await?;
        let (mut items, mut objects, mut bytes) = (Items::default(), Vec::new(), 0);
        let no_list = |error: serde_json::Error| Trouble::Wrong(format!("its answer is no list: {error}"));
        while let Some(arrived) = piece(&mut body, ANSWER).await? {
            bytes += arrived.len();
            if bytes > MAX_PAGE_BYTES {
                return Err(Trouble::Wrong(format!("a page has more than {MAX_PAGE_BYTES} bytes")));
            }
            let mut unreadable = None;
            items.push(&arrived, |item| match serde_json::from_slice(item) {
                Ok(object) => objects.push(object),
                Err(error) => unreadable = Some(error),
            })?;
            if let Some(error) = unreadable {
                return Err(no_list(error));
            }
        }
        let head: ListHead = match serde_json::from_slice(&items.into_rest()) {
            Ok(head) => head,
            // Broken off on its way.
            Err(error) if error.is_eof() => return Err(Trouble::Failed(error.to_string())),
            Err(error) => return Err(no_list(error)),
        };
        Ok((objects, head.metadata))
    }

    /// Makes an object where its kind is listed.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn create(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        self.api.create(path, object).await
    }

    /// Merges a patch into an object (RFC 7386).
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn merge(&self, path: &str, patch: &Value) -> Result<(), ApiError> {
        self.api.merge(path, patch).await
    }

    /// Deletes an object, and in the background what it owns.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete(&self, path: &str) -> Result<(), ApiError> {
        let path = format!("{path}?propagationPolicy=Background");
        self.api.send(Method::DELETE, &path, "application/json", None).await.map(drop)
    }

    /// Sends JSON and gives the body of a 200 answer.
    ///
    /// # Errors
    /// In words, without the URL.
    pub async fn post(&self, path: &str, body: &[u8], timeout: Duration) -> Result<Vec<u8>, String> {
        let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
        let request = request.body(Body::from(body.to_vec())).map_err(|error| error.to_string())?;
        let asked = async {
            let answer = self.api.client.send(request).await.map_err(|error| told(&error))?;
            if answer.status() != StatusCode::OK {
                return Err(format!("it answered {}", answer.status()));
            }
            let body = Limited::new(answer.into_body(), MOST_POSTED).collect().await;
            body.map(|body| body.to_bytes().to_vec()).map_err(|error| error.to_string())
        };
        let late = |_| format!("it took longer than its httpTimeout, {} ms", timeout.as_millis());
        tokio::time::timeout(timeout, asked).await.map_err(late)?
    }
}
