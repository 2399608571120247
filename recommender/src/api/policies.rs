//! Owns `PolicyService`, and what its REST form shares with it.
//!
//! Applying and deleting wait for the disk and run on threads for blocking work.

use evenkeel_proto::v1::{self, policy_service_server::PolicyService};
use evenkeel_rightsizing::policy::Policy;
use serde_json::Value;
use tonic::{Code, Request, Response, Status};

use super::Context;
use super::grpc::Api;
use crate::ingest::engine::chain;
use crate::policy::{ChangeError, Governing, Outcome};
use crate::recommend::list;

/// What came of an application.
pub(crate) struct Applied {
    pub(crate) object: Value,
    pub(crate) outcome: Outcome,
    pub(crate) preview: Vec<v1::Recommendation>,
}

/// The objects of a namespace, or of all, first by precedence.
pub(crate) fn list(context: &Context, namespace: &str) -> Vec<Value> {
    let set = context.policies.set();
    let wanted = set.all().iter().filter(|d| namespace.is_empty() || d.policy.namespace == namespace);
    wanted.map(|d| object(context, &d.policy, Some(d.created_ms))).collect()
}

/// One object.
pub(crate) fn get(context: &Context, namespace: &str, name: &str) -> Option<Value> {
    let set = context.policies.set();
    let dated = set.all().get(set.find(namespace, name)?)?;
    Some(object(context, &dated.policy, Some(dated.created_ms)))
}

fn object(context: &Context, policy: &Policy, created_ms: Option<u64>) -> Value {
    let at = created_ms.and_then(|ms| jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok());
    let at = at.map(|at| at.to_string());
    policy.object(at.as_deref(), context.policies.statuses.get(&policy.key()))
}

/// Applies an object, or only says what would come of it.
pub(crate) fn apply(context: &Context, text: &str, dry_run: bool) -> Result<Applied, ChangeError> {
    let (policy, outcome) = match dry_run {
        true => context.policies.check(text)?,
        false => context.policies.apply(text, context.engine.now_usec() / 1000)?,
    };
    let rule = context.policies.rule(&policy)?;
    let preview = context.at_desk(|desk| {
        let governing = Governing { policy: &policy, rule: &rule, at: 0 };
        let lines = list::lines(desk.state, &policy.namespace).into_iter();
        let lines = lines.take_while(|_| desk.wanted.is_wanted()).filter(|line| {
            let labels = line.identity.as_ref().map(|i| &i.labels);
            labels.is_some_and(|l| policy.selects(&policy.namespace, |key| l.get(key).map(String::as_str)))
        });
        lines.flat_map(|line| desk.recommend(&line.asked, &line.now, Some(governing), None)).collect()
    });
    let stored = (!dry_run).then(|| get(context, &policy.namespace, &policy.name)).flatten();
    let object = stored.unwrap_or_else(|| policy.object(policy.created.as_deref(), Value::Null));
    Ok(Applied { object, outcome, preview })
}

/// The code of an error, for both interfaces.
pub(crate) const fn code(error: &ChangeError) -> Code {
    match error {
        ChangeError::Invalid(_) => Code::InvalidArgument,
        ChangeError::InFile { .. } => Code::FailedPrecondition,
        ChangeError::Full(_) => Code::ResourceExhausted,
        ChangeError::Store(_) => Code::Unavailable,
    }
}

fn status(error: ChangeError) -> Status {
    Status::new(code(&error), chain(&error))
}

fn unknown(namespace: &str, name: &str) -> Status {
    Status::not_found(format!("there is no policy {namespace}/{name}"))
}

/// An empty namespace is `default`, as in an object.
fn or_default(namespace: String) -> String {
    if namespace.is_empty() { "default".to_owned() } else { namespace }
}

#[tonic::async_trait]
impl PolicyService for Api {
    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let namespace = request.into_inner().namespace;
        let objects = self.ask(move |c| list(c, &namespace)).await?;
        Ok(Response::new(v1::ListResponse { policies: objects.iter().map(Value::to_string).collect() }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let v1::GetRequest { namespace, name } = request.into_inner();
        let (namespace, wanted) = (or_default(namespace), name.clone());
        let at = namespace.clone();
        let found = self.ask(move |c| get(c, &at, &wanted)).await?;
        let policy = found.ok_or_else(|| unknown(&namespace, &name))?.to_string();
        Ok(Response::new(v1::GetResponse { policy }))
    }

    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyResponse>, Status> {
        let v1::ApplyRequest { policy, dry_run } = request.into_inner();
        let applied = self.ask_with_text(move |c| apply(c, &policy, dry_run)).await?.map_err(status)?;
        Ok(Response::new(v1::ApplyResponse {
            policy: applied.object.to_string(),
            outcome: applied.outcome.as_str().to_owned(),
            preview: applied.preview,
        }))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        let v1::DeleteRequest { namespace, name } = request.into_inner();
        let namespace = or_default(namespace);
        let (at, wanted) = (namespace.clone(), name.clone());
        match self.ask(move |c| c.policies.delete(&at, &wanted)).await?.map_err(status)? {
            true => Ok(Response::new(v1::DeleteResponse {})),
            false => Err(unknown(&namespace, &name)),
        }
    }
}
