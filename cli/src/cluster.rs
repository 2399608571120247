//! The Kubernetes API for commands, which ask one question after another and wait for each answer.
//!
//! Owned here: how a failure is told. Not owned: the connection, which is the crate `evenkeel-kubernetes`; which kinds are asked for, and
//! what is kept of them (the commands).

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{Caller, Choice, ConnectError, Session, caller};
use evenkeel_proto::line::Pair;
use serde_json::{Map, Value};
use tokio::runtime::Runtime;

use crate::client::runtime;
use crate::failure::Failure;

/// Objects of a page where all of a kind are wanted.
const PAGE: u32 = 500;

/// Why a list did not come.
pub(crate) type ListError = evenkeel_kubernetes::ListError<Failure>;

/// A connection to an API server.
pub(crate) struct ApiConnection {
    runtime: Runtime,
    session: Session,
}

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeResult {
    /// It was made.
    Yes,
    /// There is no such object, or kind.
    Gone,
    /// An object of this name is there already.
    Exists,
}

/// What cannot be used or reached, as it is told.
pub(crate) fn unusable(error: ConnectError) -> Failure {
    Failure::new(error.what, error.place, error.why, error.remedy)
}

impl ApiConnection {
    /// The server that is meant; nothing is asked yet.
    ///
    /// # Errors
    /// When no server is known, or its certificates or credentials cannot be used.
    pub(crate) fn open(choice: &Choice) -> Result<Self, Failure> {
        let runtime = runtime()?;
        let session = runtime.block_on(Session::open(choice)).map_err(unusable)?;
        Ok(Self { runtime, session })
    }

    /// The server's URL.
    pub(crate) fn server(&self) -> &str {
        self.session.server()
    }

    /// Whether the server's certificate is not checked.
    pub(crate) fn is_unchecked(&self) -> bool {
        self.session.is_unchecked()
    }

    /// Calls `take` with the objects of every page of a list.
    ///
    /// # Errors
    /// [`ListError`]; objects of pages before are taken already then.
    pub(crate) fn list(
        &mut self,
        path: &str,
        limit: u32,
        take: &mut dyn FnMut(Vec<Map<String, Value>>) -> Result<(), Failure>,
    ) -> Result<(), ListError> {
        self.runtime.block_on(self.session.list(path, limit, take))
    }

    /// All objects of a kind; none where the server does not know it.
    ///
    /// # Errors
    /// When they may not be seen, or do not come.
    pub(crate) fn all(&mut self, path: &str) -> Result<Vec<Value>, Failure> {
        let mut found: Vec<Value> = Vec::new();
        let mut take = |page: Vec<Map<String, Value>>| {
            found.extend(page.into_iter().map(Value::Object));
            Ok(())
        };
        match self.list(path, PAGE, &mut take) {
            Ok(()) => Ok(found),
            Err(ListError::Unknown) => Ok(Vec::new()),
            Err(ListError::Failed(error)) => Err(unusable(error)),
            Err(ListError::Taken(failure)) => Err(failure),
            Err(ListError::Forbidden(why)) => Err(self.refused("list", path, &why)),
            Err(ListError::Expired) => Err(self.refused("list", path, "the list expired while it was read")),
        }
    }

    /// Makes an object where its kind is listed.
    ///
    /// # Errors
    /// When the server refuses it or does not answer.
    pub(crate) fn create(&mut self, path: &str, object: &Value) -> Result<ChangeResult, Failure> {
        let answer = self.runtime.block_on(self.session.create(path, object));
        self.changed("create", path, answer)
    }

    /// Merges a patch into an object (RFC 7386).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn merge(&mut self, path: &str, patch: &Value) -> Result<ChangeResult, Failure> {
        let answer = self.runtime.block_on(self.session.merge(path, patch));
        self.changed("patch", path, answer)
    }

    /// Deletes an object, and in the background what it owns.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn delete(&mut self, path: &str) -> Result<ChangeResult, Failure> {
        let answer = self.runtime.block_on(self.session.delete(path));
        self.changed("delete", path, answer)
    }

    fn changed(&self, verb: &str, path: &str, answer: Result<(), ApiError>) -> Result<ChangeResult, Failure> {
        match answer {
            Ok(()) => Ok(ChangeResult::Yes),
            Err(ApiError::Absent(_)) => Ok(ChangeResult::Gone),
            Err(ApiError::Conflict(_)) => Ok(ChangeResult::Exists),
            Err(error) => Err(self.refused(verb, path, &error.to_string())),
        }
    }

    fn refused(&self, verb: &str, path: &str, why: &str) -> Failure {
        let remedy = "be somebody who may do that, or try again when the server is well";
        Failure::new(format!("cannot {verb}"), format!("{}{path}", self.server()), why, remedy)
    }
}

/// What names a user of a cluster.
#[derive(Debug)]
pub(crate) enum User {
    /// A bearer token.
    Token(String),
    /// A certificate and its key.
    Certificate(Pair),
}

/// Who kubectl would be in a context, in the current one where it is empty: the bearer token, or the certificate.
///
/// # Errors
/// When the user is known by something else, which the API server alone can check.
pub(crate) fn user_of(context: &str) -> Result<User, Failure> {
    let context = Some(context.to_owned()).filter(|context| !context.is_empty());
    match caller(&Choice { context, ..Choice::default() }).map_err(unusable)? {
        Caller::Token(token) => Ok(User::Token(token)),
        Caller::Certificate { cert, key } => Ok(User::Certificate(Pair { cert, key })),
        Caller::Other(why) => Err(Failure::new(
            "cannot ask as the user of the kubeconfig",
            "--kube-auth",
            why,
            "send a token: kubectl create token NAME --audience evenkeel > FILE, then evenkeel --token-file FILE",
        )),
    }
}
