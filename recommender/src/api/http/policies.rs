//! Policies over REST: listed, read, applied, deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, FromRequest, Path, Request, State as From};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use evenkeel_model::causes::chain;
use serde::Deserialize;
use serde_json::Value;
use utoipa::openapi::RefOr;

use super::super::answers::{AppliedAnswer, PolicyListAnswer, PolicyObject};
use super::super::{Context, policies};
use super::Site;
use super::problem::{Json, Problem, Refusal, allowed, described, parameters};
use crate::audit::{Object, Ticket};
use crate::identity::{Identity, Role};
use crate::policy::{ApplyOutcome, ChangeError};

pub(super) const POLICIES: &str = "/api/v1/policies";
pub(super) const POLICY: &str = "/api/v1/policies/{namespace}/{name}";

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct InNamespace {
    /// Only this namespace.
    #[serde(default)]
    namespace: String,
}

/// Policies with their status, first by precedence, and limit ranges and quotas that were applied.
#[utoipa::path(
    get, path = POLICIES, operation_id = "listPolicies", params(InNamespace),
    responses((status = OK, description = "A list of objects", body = PolicyListAnswer), Refusal)
)]
pub(super) async fn list(
    From(site): From<Site>,
    request: Request,
) -> Result<Json<PolicyListAnswer>, Problem> {
    let InNamespace { namespace } = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &namespace, POLICIES).await?;
    let ask = move |c: &Context| (policies::list(c, &namespace), policies::list_bounds(c, &namespace));
    let (items, objects) = site.ask_context(POLICIES, ask).await?;
    Ok(Json(PolicyListAnswer::new(items, objects)))
}

/// What a path names.
#[derive(utoipa::IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "for the document")]
struct Named {
    namespace: String,
    name: String,
}

/// One policy with its status.
#[utoipa::path(
    get, path = POLICY, operation_id = "getPolicy", params(Named, OfKind),
    responses((status = OK, description = "The object", body = PolicyObject), Refusal)
)]
pub(super) async fn get(
    From(site): From<Site>,
    Extension(identity): Extension<Identity>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Problem> {
    allowed(&identity, Role::View, &namespace, POLICIES).await?;
    let kind = kind_of(&request)?;
    let missing = no_policy(&kind, &namespace, &name);
    let found = site.ask_context(POLICIES, move |c| policies::find(c, &kind, &namespace, &name)).await?;
    found.map(Json).ok_or(missing)
}

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct OfKind {
    /// Policy (where it is not given), LimitRange or ResourceQuota.
    kind: String,
}

/// The kind asked for; empty = a policy.
fn kind_of(request: &Request) -> Result<String, Problem> {
    let OfKind { kind } = parameters(request)?;
    if policies::is_kind(&kind) {
        return Ok(kind);
    }
    Err(Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the object cannot be found".to_owned(),
        place: POLICIES.to_owned(),
        why: format!("kind {kind:?} is not known"),
        remedy: "give Policy, LimitRange or ResourceQuota",
    })
}

fn no_policy(kind: &str, namespace: &str, name: &str) -> Problem {
    let kind = if kind.is_empty() { "policy" } else { kind };
    Problem {
        status: StatusCode::NOT_FOUND,
        what: format!("there is no {kind} {namespace}/{name}"),
        place: POLICIES.to_owned(),
        why: "nobody applied one of this name, and no file holds one".to_owned(),
        remedy: "see /api/v1/policies for those there are",
    }
}

pub(crate) fn refused(error: &ChangeError) -> Problem {
    let (status, remedy) = match error {
        ChangeError::Invalid(_) => (StatusCode::BAD_REQUEST, "correct the field"),
        ChangeError::InFile { .. } => (StatusCode::CONFLICT, "edit the file, or choose another name"),
        ChangeError::InCluster { .. } => (StatusCode::CONFLICT, "change the object, or choose another name"),
        ChangeError::Full(_) => (StatusCode::CONFLICT, "delete some, or raise recommend.max_policies"),
        ChangeError::Store(_) | ChangeError::Unrecorded(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "see the log for what keeps the disk")
        }
    };
    Problem {
        status,
        what: "the policy was not taken".to_owned(),
        place: POLICIES.to_owned(),
        why: chain(error),
        remedy,
    }
}

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
struct ApplyQuery {
    /// Only say what would come of it.
    dry_run: bool,
}

fn unreadable_policy(status: StatusCode, why: String) -> Problem {
    Problem {
        status,
        what: "the policy cannot be read".to_owned(),
        place: POLICIES.to_owned(),
        why,
        remedy: "send one policy in JSON or YAML",
    }
}

/// What applying answers.
struct ApplyAnswers;

impl utoipa::IntoResponses for ApplyAnswers {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let answers =
            [("200", "What came of it"), ("201", "The same, where there was no such object before")];
        answers.map(|(status, what)| (status.to_owned(), described(what, "Applied"))).into()
    }
}

/// A name that the object has to have, where the path says one.
pub(crate) type RequiredName = Option<(String, String)>;

/// Apply a policy, a LimitRange or a ResourceQuota; it is durable when this is answered.
#[utoipa::path(
    post, path = POLICIES, operation_id = "applyPolicy", params(ApplyQuery),
    request_body(content = PolicyObject, description = "An object in JSON or YAML"), responses(ApplyAnswers, Refusal)
)]
pub(super) async fn apply(From(site): From<Site>, request: Request) -> Result<Response, Problem> {
    take(site, None, request).await
}

/// The same as applying an object of this name.
#[utoipa::path(
    put, path = POLICY, operation_id = "putPolicy", params(Named, ApplyQuery),
    request_body(content = PolicyObject, description = "An object in JSON or YAML"), responses(ApplyAnswers, Refusal)
)]
pub(super) async fn put(
    From(site): From<Site>,
    Path(named): Path<(String, String)>,
    request: Request,
) -> Result<Response, Problem> {
    take(site, Some(named), request).await
}

async fn take(site: Site, named: RequiredName, request: Request) -> Result<Response, Problem> {
    let ApplyQuery { dry_run } = parameters(&request)?;
    let (identity, ticket) = (Identity::of(request.extensions()), Ticket::of(request.extensions()));
    // The router's limit on bodies holds for this reading, too.
    let body = Bytes::from_request(request, &()).await;
    let body = body.map_err(|rejection| unreadable_policy(rejection.status(), rejection.body_text()))?;
    let text = String::from_utf8(body.into())
        .map_err(|e| unreadable_policy(StatusCode::BAD_REQUEST, e.to_string()))?;
    let applied = applied(&site, &identity, ticket, named, text.into(), dry_run).await?;
    let status = match (applied.outcome, dry_run) {
        (ApplyOutcome::Created, false) => StatusCode::CREATED,
        _ => StatusCode::OK,
    };
    Ok((status, Json(AppliedAnswer::new(applied, dry_run))).into_response())
}

/// Applies an object, or only says what would come of it, for whoever may in its namespace.
pub(crate) async fn applied(
    site: &Site,
    identity: &Identity,
    ticket: Ticket,
    named: RequiredName,
    text: Arc<str>,
    dry_run: bool,
) -> Result<policies::AppliedPolicy, Problem> {
    if identity.is_limited() {
        let (waiting, text) = (site.place_for_text(POLICIES)?, Arc::clone(&text));
        let found = site.ask_with_text(POLICIES, waiting, move |_| policies::namespace_of(&text));
        if let Some(namespace) = found.await? {
            ticket.about(Object::new("", &namespace, ""));
            allowed(identity, Role::Apply, &namespace, POLICIES).await?;
        }
    }
    let waiting = site.place_for_text(POLICIES)?;
    let applied = site.ask_with_text(POLICIES, waiting, move |context| {
        if let Some((namespace, name)) = named {
            ticket.about(Object::new("", &namespace, &name));
            let key = policies::key_of(&text).map_err(|e| refused(&e.into()))?;
            if key != (namespace.clone(), name.clone()) {
                let why = format!("the object is {}/{}, the path says {namespace}/{name}", key.0, key.1);
                return Err(unreadable_policy(StatusCode::BAD_REQUEST, why));
            }
        }
        policies::apply(context, &text, dry_run, &ticket).map_err(|e| refused(&e))
    });
    applied.await?
}

/// Forget an object; pods stay as they are.
#[utoipa::path(
    delete, path = POLICY, operation_id = "deletePolicy", params(Named, OfKind),
    responses((status = NO_CONTENT, description = "It is gone"), Refusal)
)]
pub(super) async fn delete(
    From(site): From<Site>,
    Extension(identity): Extension<Identity>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let ticket = Ticket::of(request.extensions());
    ticket.about(Object::new("", &namespace, &name));
    allowed(&identity, Role::Apply, &namespace, POLICIES).await?;
    let kind = kind_of(&request)?;
    let missing = no_policy(&kind, &namespace, &name);
    let ask = move |c: &Context| policies::delete(c, &kind, &namespace, &name, &ticket);
    match site.ask_context(POLICIES, ask).await?.map_err(|e| refused(&e))? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing),
    }
}
