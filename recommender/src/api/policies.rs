//! Owns `PolicyService`, and what its REST form shares with it.
//!
//! Applying and deleting wait for the disk and run on threads for blocking work.

use std::sync::Arc;

use evenkeel_model::causes::chain;
use evenkeel_proto::v1::{self, policy_service_server::PolicyService};
use evenkeel_rightsizing::policy::rank::Dated;
use evenkeel_rightsizing::policy::{PolicyError, read};
use serde_json::Value;
use tonic::{Code, Request, Response, Status};

use super::Context;
use super::grpc::Api;
use crate::audit::{Object, Ticket};
use crate::identity::{Identity, Role};
use crate::policy::bounds::{self, BoundKey};
use crate::policy::{ApplyOutcome, ChangeError, Governing, Set};
use crate::recommend::list;

/// What came of an application.
pub(crate) struct AppliedPolicy {
    pub(crate) object: Value,
    pub(crate) outcome: ApplyOutcome,
    pub(crate) preview: Vec<v1::Recommendation>,
}

/// The objects of a namespace, or of all, first by precedence.
pub(crate) fn list(context: &Context, namespace: &str) -> Vec<Value> {
    let set = context.policies.set();
    let is_wanted = |at: &usize| {
        namespace.is_empty() || set.all().get(*at).is_some_and(|dated| dated.policy.namespace == namespace)
    };
    (0..set.all().len()).filter(is_wanted).filter_map(|at| object(context, &set, at)).collect()
}

/// One object.
pub(crate) fn get(context: &Context, namespace: &str, name: &str) -> Option<Value> {
    let set = context.policies.set();
    object(context, &set, set.find(namespace, name)?)
}

/// The policy at a place, with what is told of it and where it came from.
fn object(context: &Context, set: &Set, at: usize) -> Option<Value> {
    let Dated { policy, created_ms } = set.all().get(at)?;
    let created = i64::try_from(*created_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let mut status = context.policies.statuses.get(&policy.key());
    status["source"] = set.source(at).map_or(Value::Null, |source| source.to_string().into());
    Some(policy.object(created.map(|at| at.to_string()).as_deref(), status))
}

/// Limit ranges and quotas of a namespace, or of all.
pub(crate) fn list_bounds(context: &Context, namespace: &str) -> Vec<Value> {
    let all = context.policies.bounds().into_iter();
    let wanted = all.filter(|bound| namespace.is_empty() || bound.key.namespace == namespace);
    wanted.map(|bound| bound.object.clone()).collect()
}

/// An object by kind (empty: a policy), namespace and name.
pub(crate) fn find(context: &Context, kind: &str, namespace: &str, name: &str) -> Option<Value> {
    match bound_key(kind, namespace, name) {
        None => get(context, namespace, name),
        Some(key) => {
            let all = context.policies.bounds();
            all.iter().find(|bound| bound.key == key).map(|bound| bound.object.clone())
        }
    }
}

/// Forgets an object; whether there was one.
pub(crate) fn delete(
    context: &Context,
    kind: &str,
    namespace: &str,
    name: &str,
    ticket: &Ticket,
) -> Result<bool, ChangeError> {
    let Some(key) = bound_key(kind, namespace, name) else {
        return context.policies.delete(namespace, name, ticket);
    };
    in_no_file(context, &key)?;
    let was = context.policies.unbind(&key, ticket)?;
    context.advisor.limits.apply(|| context.policies.bounds());
    Ok(was)
}

fn bound_key(kind: &str, namespace: &str, name: &str) -> Option<BoundKey> {
    let [kind, namespace, name] = [kind, namespace, name].map(str::to_owned);
    bounds::KINDS.contains(&kind.as_str()).then_some(BoundKey { kind, namespace, name })
}

/// Whether a kind is one of those that are taken; empty = a policy.
pub(crate) fn is_kind(kind: &str) -> bool {
    kind.is_empty() || kind == "Policy" || bounds::KINDS.contains(&kind)
}

/// Namespace and name of an object that is to be applied.
///
/// # Errors
/// The field that is wrong.
pub(crate) fn key_of(text: &str) -> Result<(String, String), PolicyError> {
    if bounds::kind_of(text).is_some() {
        return bounds::read(text).map(|bound| (bound.key.namespace, bound.key.name));
    }
    read(text).map(|policy| (policy.namespace, policy.name))
}

fn in_no_file(context: &Context, key: &BoundKey) -> Result<(), ChangeError> {
    match context.advisor.limits.file_of(key) {
        Some(file) => Err(ChangeError::InFile { key: key.to_string(), file }),
        None => Ok(()),
    }
}

fn apply_bound(
    context: &Context,
    text: &str,
    dry_run: bool,
    ticket: &Ticket,
) -> Result<AppliedPolicy, ChangeError> {
    let bound = bounds::read(text).inspect_err(|_| context.policies.count_refused())?;
    ticket.about(bound.key.object());
    in_no_file(context, &bound.key)?;
    let outcome = context.policies.bind(&bound, dry_run, ticket)?;
    context.advisor.limits.apply(|| context.policies.bounds());
    Ok(AppliedPolicy { object: bound.object, outcome, preview: Vec::new() })
}

/// The namespace of an object that is to be applied. What cannot be read is refused when it is applied, with the reason.
pub(crate) fn namespace_of(text: &str) -> Option<String> {
    key_of(text).ok().map(|(namespace, _)| namespace)
}

/// Applies an object, or only says what would come of it.
pub(crate) fn apply(
    context: &Context,
    text: &str,
    dry_run: bool,
    ticket: &Ticket,
) -> Result<AppliedPolicy, ChangeError> {
    if dry_run {
        ticket.quiet();
    }
    if bounds::kind_of(text).is_some() {
        return apply_bound(context, text, dry_run, ticket);
    }
    let (policy, outcome) = match dry_run {
        true => context.policies.check(text)?,
        false => context.policies.apply(text, context.engine.now_usec() / 1000, ticket)?,
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
    Ok(AppliedPolicy { object, outcome, preview })
}

/// The code of an error, for both interfaces.
pub(crate) const fn code(error: &ChangeError) -> Code {
    match error {
        ChangeError::Invalid(_) => Code::InvalidArgument,
        ChangeError::InFile { .. } | ChangeError::InCluster { .. } => Code::FailedPrecondition,
        ChangeError::Full(_) => Code::ResourceExhausted,
        ChangeError::Store(_) | ChangeError::Unrecorded(_) => Code::Unavailable,
    }
}

fn status(error: ChangeError) -> Status {
    Status::new(code(&error), chain(&error))
}

fn unknown(kind: &str, namespace: &str, name: &str) -> Status {
    let kind = if kind.is_empty() { "policy" } else { kind };
    Status::not_found(format!("there is no {kind} {namespace}/{name}"))
}

fn known(kind: String) -> Result<String, Status> {
    let kinds = bounds::KINDS.join(" or ");
    match is_kind(&kind) {
        true => Ok(kind),
        false => Err(Status::invalid_argument(format!("kind {kind:?}: give Policy, {kinds}"))),
    }
}

/// An empty namespace is `default`, as in an object.
fn or_default(namespace: String) -> String {
    if namespace.is_empty() { "default".to_owned() } else { namespace }
}

#[tonic::async_trait]
impl PolicyService for Api {
    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListResponse>, Status> {
        let identity = Identity::of(request.extensions());
        let namespace = request.into_inner().namespace;
        identity.may(Role::View, &namespace).await?;
        let ask = move |c: &Context| (list(c, &namespace), list_bounds(c, &namespace));
        let (policies, objects) = self.ask(ask).await?;
        let texts = |all: Vec<Value>| all.iter().map(Value::to_string).collect();
        Ok(Response::new(v1::ListResponse { policies: texts(policies), objects: texts(objects) }))
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetResponse>, Status> {
        let identity = Identity::of(request.extensions());
        let v1::GetRequest { namespace, name, kind } = request.into_inner();
        let kind = known(kind)?;
        let namespace = or_default(namespace);
        identity.may(Role::View, &namespace).await?;
        let missing = unknown(&kind, &namespace, &name);
        let found = self.ask(move |c| find(c, &kind, &namespace, &name)).await?;
        let policy = found.ok_or(missing)?.to_string();
        Ok(Response::new(v1::GetResponse { policy }))
    }

    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyResponse>, Status> {
        let (identity, ticket) = (Identity::of(request.extensions()), Ticket::of(request.extensions()));
        let v1::ApplyRequest { policy, dry_run } = request.into_inner();
        let policy: Arc<str> = policy.into();
        if identity.is_limited() {
            let text = Arc::clone(&policy);
            if let Some(namespace) = self.ask_with_text(move |_| namespace_of(&text)).await? {
                ticket.about(Object::new("", &namespace, ""));
                identity.may(Role::Apply, &namespace).await?;
            }
        }
        let applied = self.ask_with_text(move |c| {
            apply(c, &policy, dry_run, &ticket).map_err(|error| {
                if matches!(error, ChangeError::Invalid(_)) {
                    c.work.refuse_text();
                }
                status(error)
            })
        });
        let applied = applied.await??;
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
        let (identity, ticket) = (Identity::of(request.extensions()), Ticket::of(request.extensions()));
        let v1::DeleteRequest { namespace, name, kind } = request.into_inner();
        let kind = known(kind)?;
        let namespace = or_default(namespace);
        ticket.about(Object::new(&kind, &namespace, &name));
        identity.may(Role::Apply, &namespace).await?;
        let missing = unknown(&kind, &namespace, &name);
        match self.ask(move |c| delete(c, &kind, &namespace, &name, &ticket)).await?.map_err(status)? {
            true => Ok(Response::new(v1::DeleteResponse {})),
            false => Err(missing),
        }
    }
}
