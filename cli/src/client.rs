//! Connections to a running agent or recommender.
//!
//! Owned here: addresses, connecting, and how a failed call is told. Not owned: what is asked.

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_proto::bearer::{self, Bearer};
use evenkeel_proto::line::{self, LineError, Pair, Trust};
use evenkeel_proto::tonic::service::interceptor::InterceptedService;
use evenkeel_proto::tonic::transport::Channel;
use evenkeel_proto::tonic::{Code, Status};
use evenkeel_proto::v1::agent_service_client::AgentServiceClient;
use evenkeel_proto::v1::audit_service_client::AuditServiceClient;
use evenkeel_proto::v1::capacity_service_client::CapacityServiceClient;
use evenkeel_proto::v1::enroll_service_client::EnrollServiceClient;
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;

use tokio::runtime::Runtime;

use crate::cluster::{User, user_of};
use crate::failure::Failure;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a peer is asked whether it is still there while its answer is awaited: a long answer is waited for, and a peer
/// that stands still, or whose machine cannot be reached any more, is not.
const ASK_ALIVE: Duration = Duration::from_secs(10);
/// How long it has to say so: a machine short of memory or CPU takes its time.
const SAY_ALIVE: Duration = Duration::from_secs(20);
/// What helps where no answer came.
const SEE_WHETHER_IT_RUNS: &str = "see whether it is still running, then try again";
/// Largest answer taken, in bytes: a node's status with a thousand containers is well below.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// One of the programs that can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The agent of a node.
    Agent,
    /// The central service.
    Recommender,
}

impl Peer {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Recommender => "recommender",
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Agent => "start evenkeel-agent, or say where it is with --agent or EVENKEEL_AGENT",
            Self::Recommender => {
                "start evenkeel-recommender, or say where it is with --recommender or EVENKEEL_RECOMMENDER"
            }
        }
    }
}

/// A connection on which each call carries the caller's token, where there is one.
pub(crate) type Line = InterceptedService<Channel, Bearer>;

/// A peer at its address.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    peer: Peer,
    text: String,
    trust: Trust,
    /// The context as whose user the question is asked, where one is.
    kube_auth: Option<String>,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Address {
    pub(crate) fn new(peer: Peer, text: &str) -> Self {
        Self { peer, text: text.to_owned(), trust: Trust::default(), kube_auth: None }
    }

    /// The same with what vouches for it and for the caller.
    pub(crate) fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// The same as the user of a context of the kubeconfig; of the current one where it is empty.
    pub(crate) fn with_kube_auth(self, context: Option<String>) -> Self {
        Self { kube_auth: context, ..self }
    }

    /// The token that names the caller, read anew each time; none for whom the kernel or a certificate names.
    ///
    /// # Errors
    /// When it cannot be had.
    pub(crate) fn token(&self) -> Result<Option<String>, Failure> {
        if let Some(context) = &self.kube_auth {
            return Ok(match user_of(context)? {
                User::Token(token) => Some(token),
                User::Certificate(_) => None,
            });
        }
        let Some(file) = &self.trust.token else { return Ok(None) };
        let token = bearer::read(file).and_then(|token| Bearer::of(&token).map(|_| token));
        token.map(Some).map_err(|error| self.no_token(file, &error))
    }

    /// The certificate of the kubeconfig's user, where no token names the caller.
    ///
    /// # Errors
    /// When the user has neither.
    pub(crate) fn kube_pair(&self) -> Result<Option<Pair>, Failure> {
        let Some(context) = &self.kube_auth else { return Ok(None) };
        Ok(match user_of(context)? {
            User::Token(_) => None,
            User::Certificate(pair) => Some(pair),
        })
    }

    /// That the kubeconfig's user need show no certificate, which a line without TLS cannot carry.
    ///
    /// # Errors
    /// When a certificate alone names the user.
    pub(crate) fn shows_no_certificate(&self, line: &str) -> Result<(), Failure> {
        self.kube_pair()?.map_or(Ok(()), |_| Err(no_certificate(line)))
    }

    /// The files of authorities, and of the own certificate and its key.
    pub(crate) fn files(&self) -> (Option<&Path>, Option<(&Path, &Path)>) {
        let (cert, key) = (self.trust.cert.as_deref(), self.trust.key.as_deref());
        (self.trust.ca.as_deref(), cert.zip(key))
    }

    /// Whether plain text is wished.
    pub(crate) fn is_insecure(&self) -> bool {
        self.trust.insecure
    }

    /// A connection to it.
    ///
    /// # Errors
    /// Wrong usage when this is no address; else when nobody answers there.
    pub(crate) async fn connect(&self) -> Result<Line, Failure> {
        let (bearer, trust) = match &self.kube_auth {
            Some(context) => self.kube_user(context)?,
            None => (self.bearer()?, self.trust.clone()),
        };
        let endpoint = line::endpoint(&self.text, &trust).map_err(|e| self.unusable(&e))?;
        let endpoint = endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(ASK_ALIVE)
            .keep_alive_timeout(SAY_ALIVE);
        let channel = endpoint.connect().await.map_err(|e| {
            let what = format!("cannot reach the {}", self.peer.name());
            Failure::new(what, &self.text, chain(&e), self.peer.remedy())
        });
        Ok(InterceptedService::new(channel?, bearer))
    }

    /// The token of a kubeconfig, which holds at the API server, too, or the certificate: the line is looked at before it is got.
    fn kube_user(&self, context: &str) -> Result<(Bearer, Trust), Failure> {
        let secret = Trust { token: Some(PathBuf::new()), ..self.trust.clone() };
        line::endpoint(&self.text, &secret).map_err(|e| self.unusable(&e))?;
        match user_of(context)? {
            User::Token(token) => {
                let bearer = Bearer::of(&token).map_err(|e| {
                    let remedy = "correct the kubeconfig, or choose another context";
                    Failure::new("cannot send the token", "--kube-auth", e.to_string(), remedy)
                })?;
                Ok((bearer, self.trust.clone()))
            }
            User::Certificate(pair) if self.text.starts_with("https://") => {
                Ok((Bearer::default(), Trust { pair: Some(pair), ..self.trust.clone() }))
            }
            User::Certificate(_) => Err(no_certificate(&self.text)),
        }
    }

    fn bearer(&self) -> Result<Bearer, Failure> {
        let Some(file) = &self.trust.token else { return Ok(Bearer::default()) };
        Bearer::from_file(file).map_err(|error| self.no_token(file, &error))
    }

    fn no_token(&self, file: &Path, error: &std::io::Error) -> Failure {
        let remedy = match self.peer {
            Peer::Agent => {
                "name a file that holds one token with --agent-token-file or EVENKEEL_AGENT_TOKEN_FILE"
            }
            Peer::Recommender => "name a file that holds one token with --token-file or EVENKEEL_TOKEN_FILE",
        };
        Failure::new("cannot read the token", file.display().to_string(), error.to_string(), remedy)
    }

    fn no_address(&self, why: &str) -> Failure {
        let what = format!("wrong address of the {}", self.peer.name());
        Failure::usage(what, &self.text, why, "write unix:///PATH, https://HOST:PORT or http://HOST:PORT")
    }

    fn unusable(&self, error: &LineError) -> Failure {
        let remedy = match error {
            LineError::Address(_) => return self.no_address("it is of none of these forms"),
            LineError::NoAuthority(_) => {
                "name the file of its authorities with --ca-file or EVENKEEL_CA_FILE"
            }
            LineError::Readable(_) => "use https:// and --ca-file, or --insecure if nobody can listen in",
            LineError::File { .. } | LineError::Tls(_) => "give files in PEM that you may read",
        };
        Failure::usage(format!("cannot reach the {}", self.peer.name()), &self.text, chain(error), remedy)
    }

    /// A stream that ended or stayed empty where an answer was due.
    pub(crate) fn silent(&self, why: &str) -> Failure {
        let what = format!("the {} gave no answer", self.peer.name());
        Failure::new(what, &self.text, why, SEE_WHETHER_IT_RUNS)
    }

    /// A call that was answered with an error, or not at all.
    pub(crate) fn failed(&self, status: &Status) -> Failure {
        let what = format!("the {} did not answer the question", self.peer.name());
        // A broken line, of which the peer's log may know nothing.
        if let Some(broken) = status.source() {
            return Failure::new(what, &self.text, chain(broken), SEE_WHETHER_IT_RUNS);
        }
        let why = match status.message() {
            "" => status.code().description().to_owned(),
            message => message.to_owned(),
        };
        let remedy = match status.code() {
            Code::Unimplemented => "use the version of evenkeel that belongs to it",
            Code::NotFound | Code::InvalidArgument => "correct the question",
            Code::FailedPrecondition => "change what stands against it, then ask again",
            // The recommender's refusals end with what helps.
            Code::PermissionDenied | Code::Unauthenticated if self.peer == Peer::Recommender => {
                "see docs/security.md for users, groups and tokens"
            }
            Code::PermissionDenied | Code::Unauthenticated => "run as a user who may ask it",
            _ => "try again; its log says more",
        };
        Failure::new(what, &self.text, why, remedy)
    }
}

/// Why a user whom a certificate names cannot ask over a line without TLS.
fn no_certificate(line: &str) -> Failure {
    Failure::new(
        "cannot show the certificate of the kubeconfig's user",
        "--kube-auth",
        format!("{line} is not reached over TLS, which certificates are shown in"),
        "use the recommender's https:// address, or send a token: kubectl create token NAME --audience evenkeel > FILE, then evenkeel \
         --token-file FILE",
    )
}

/// Where both programs are.
pub(crate) struct Peers<'a> {
    /// The agent.
    pub(crate) agent: &'a Address,
    /// The recommender.
    pub(crate) recommender: &'a Address,
}

/// A client of an agent.
pub(crate) async fn agent(address: &Address) -> Result<AgentServiceClient<Line>, Failure> {
    Ok(AgentServiceClient::new(address.connect().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// A client of a recommender.
pub(crate) async fn recommender(address: &Address) -> Result<RecommenderServiceClient<Line>, Failure> {
    Ok(RecommenderServiceClient::new(address.connect().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// A client of a recommender's questions about capacity.
pub(crate) async fn capacity(address: &Address) -> Result<CapacityServiceClient<Line>, Failure> {
    Ok(CapacityServiceClient::new(address.connect().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// A client of a recommender's audit record.
pub(crate) async fn audit(address: &Address) -> Result<AuditServiceClient<Line>, Failure> {
    Ok(AuditServiceClient::new(address.connect().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// A client of a recommender's authority.
pub(crate) async fn enrollment(address: &Address) -> Result<EnrollServiceClient<Line>, Failure> {
    Ok(EnrollServiceClient::new(address.connect().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// A client of a recommender for its policies.
pub(crate) async fn policies(address: &Address) -> Result<PolicyServiceClient<Line>, Failure> {
    Ok(PolicyServiceClient::new(address.connect().await?).max_decoding_message_size(MAX_ANSWER_BYTES))
}

/// An error with all its causes, which transport errors keep to themselves.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Runs a question to its end.
///
/// # Errors
/// Those of the question, or when the machine has no resources left for a runtime.
pub(crate) fn block_on<T>(question: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    runtime()?.block_on(question)
}

/// What questions run on.
///
/// # Errors
/// When the machine has no resources left for it.
pub(crate) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| {
        Failure::new("cannot start", "evenkeel", e.to_string(), "free memory or file descriptors")
    })
}
