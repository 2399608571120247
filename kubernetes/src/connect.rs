//! The connection, and what its failures are.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use kube::client::RustlsTlsError;
use kube::{Client, Config, Error};

use crate::kubeconfig::{Choice, Use, load, unusable};

/// Where the API server is, and who asks it.
#[derive(Debug, Clone)]
pub struct ApiSource {
    /// The file, as kubectl takes it. Without: as kubectl finds it (`KUBECONFIG`, `~/.kube/config`), else the account of the pod
    /// that this program runs in.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the file; the current one without.
    pub context: Option<String>,
    /// How long an answer is waited for.
    pub patience: Duration,
}

/// An API server that can be asked.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) client: Client,
    pub(crate) patience: Duration,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("patience", &self.patience).finish_non_exhaustive()
    }
}

/// What cannot be used or reached, why, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {place}: {why}; {remedy}")]
pub struct ConnectError {
    /// What was tried.
    pub what: &'static str,
    /// File, field or URL.
    pub place: String,
    /// Why.
    pub why: String,
    /// What helps.
    pub remedy: String,
}

impl ConnectError {
    pub(crate) fn new(
        what: &'static str,
        place: impl fmt::Display,
        why: impl Into<String>,
        remedy: &str,
    ) -> Self {
        Self { what, place: place.to_string(), why: why.into(), remedy: remedy.to_owned() }
    }
}

/// The API server gave no answer: nothing is known, neither good nor bad.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the Kubernetes API server gives no answer: {why}")]
pub struct Silence {
    /// Why, for the log.
    pub why: String,
}

impl ApiServer {
    /// Reads where it is. Nothing is sent yet.
    ///
    /// # Errors
    /// When that is not told, or cannot be used.
    pub async fn at(source: &ApiSource) -> Result<Self, ConnectError> {
        let client = client(source, Some(source.patience)).await?;
        Ok(Self { client, patience: source.patience })
    }

    /// Waits for an answer as long as was configured.
    pub(crate) async fn answer<T>(
        &self,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Silence> {
        match tokio::time::timeout(self.patience, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Silence { why: told(&error) }),
            Err(_) => Err(Silence { why: format!("nothing within {} ms", self.patience.as_millis()) }),
        }
    }
}

/// A client that is made as kubectl would find the server; answers are waited for so long, or for ever.
pub(crate) async fn client(source: &ApiSource, patience: Option<Duration>) -> Result<Client, ConnectError> {
    let ApiSource { kubeconfig, context, .. } = source.clone();
    let mut target = load(&Choice { kubeconfig, context, server: None }, Use::ForLong)?;
    // Beside the server: compressing costs it more than the bytes do.
    target.config.disable_compression = true;
    connect(target.config, source.patience, patience)
}

/// A client of a server. Nothing is sent yet.
pub(crate) fn connect(
    mut config: Config,
    within: Duration,
    patience: Option<Duration>,
) -> Result<Client, ConnectError> {
    (config.connect_timeout, config.read_timeout) = (Some(within), patience);
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|error| match &error {
        Error::RustlsTls(RustlsTlsError::InvalidPrivateKey(why)) => unusable(why),
        _ => {
            let remedy = "correct the kubeconfig, or choose another context";
            ConnectError::new("cannot ask the API server", server, told(&error), remedy)
        }
    })
}

pub(crate) fn told(error: &Error) -> String {
    match error {
        Error::Api(status) => format!("status {}: {}", status.code, status.message),
        // The cause has the reason: a name that is not found, a certificate that is not trusted.
        other => {
            let mut text = other.to_string();
            let mut cause = std::error::Error::source(other);
            while let Some(next) = cause {
                let more = next.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                cause = next.source();
            }
            text
        }
    }
}
