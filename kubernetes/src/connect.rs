//! The connection, and what its failures are.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config, Error};

/// Where the API server is, and who asks it.
#[derive(Debug, Clone)]
pub struct Source {
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

/// Why there is nobody to ask.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file that was named says nothing usable.
    #[error("{}: {why}; give the file and context that kubectl uses", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        why: Box<KubeconfigError>,
    },
    /// Neither a file nor the account of a pod.
    #[error(
        "there is no API server to ask: {why}, and this is no pod with a service account ({pod}); name a file, or run it in a pod \
         with automountServiceAccountToken"
    )]
    Nowhere {
        /// What is wrong with the file.
        why: Box<KubeconfigError>,
        /// What is missing in the pod.
        pod: String,
    },
    /// The credentials or certificates make no sense.
    #[error("the API server's client cannot be made: {0}")]
    Client(Box<Error>),
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
    pub async fn at(source: &Source) -> Result<Self, ConnectError> {
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
pub(crate) async fn client(source: &Source, patience: Option<Duration>) -> Result<Client, ConnectError> {
    let options = KubeConfigOptions { context: source.context.clone(), ..KubeConfigOptions::default() };
    let mut config = match &source.kubeconfig {
        Some(path) => {
            let of = |why| ConnectError::File { path: path.clone(), why: Box::new(why) };
            let file = Kubeconfig::read_from(path).map_err(of)?;
            Config::from_custom_kubeconfig(file, &options).await.map_err(of)?
        }
        None => match Config::from_kubeconfig(&options).await {
            Ok(config) => config,
            Err(why) => Config::incluster()
                .map_err(|pod| ConnectError::Nowhere { why: Box::new(why), pod: pod.to_string() })?,
        },
    };
    // Whoever asks decides about asking again.
    config.default_retry = false;
    (config.connect_timeout, config.read_timeout) = (Some(source.patience), patience);
    Client::try_from(config).map_err(|why| ConnectError::Client(Box::new(why)))
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
