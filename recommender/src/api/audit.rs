//! Owns the audit record's REST form.

use axum::extract::{Request, State as From};
use axum::http::StatusCode;
use evenkeel_model::causes::chain;
use evenkeel_proto::v1;
use jiff::Timestamp;
use serde::Deserialize;

use super::answers::AuditPage;
use super::http::{Json, Problem, Refusal, Site, allowed, parameters};
use crate::audit::service::{AuditQueryError, filter, list};
use crate::identity::{Identity, Role};

pub(super) const PLACE: &str = "/api/v1/audit";

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Only objects of this namespace; all, and what belongs to none, without.
    namespace: String,
    /// Policy, LimitRange, ResourceQuota, PanicSwitch, JoinToken, Certificate, Node, Token or Authority.
    kind: String,
    /// Only this object.
    name: String,
    /// A word of who, or all of it.
    who: String,
    /// Only these: done, refused, failed or unknown.
    outcome: String,
    /// From then on, such as 2026-01-31T12:00:00Z.
    since: String,
    /// Before then.
    until: String,
    /// Entries of a page, at most 1000, 100 where it is not given; one with large objects has fewer.
    limit: u32,
    /// nextPageToken of the page before.
    page_token: String,
}

/// Changes and refused attempts, newest first.
#[utoipa::path(
    get, path = PLACE, operation_id = "listChanges", params(AuditQuery),
    responses((status = OK, description = "A page of the audit record", body = AuditPage), Refusal)
)]
pub(super) async fn changes(From(site): From<Site>, request: Request) -> Result<Json<AuditPage>, Problem> {
    let asked: AuditQuery = parameters(&request)?;
    let identity = Identity::of(request.extensions());
    allowed(&identity, Role::View, &asked.namespace, PLACE).await?;
    let filter = wire(asked).and_then(filter).map_err(problem)?;
    let found = site.ask_context(PLACE, move |context| list(context, &filter)).await?;
    found.map(|found| Json(found.into())).map_err(problem)
}

fn wire(asked: AuditQuery) -> Result<v1::ListChangesRequest, AuditQueryError> {
    let AuditQuery { namespace, kind, name, who, outcome, since, until, limit, page_token } = asked;
    let (since_usec, until_usec) = (usec("since", &since)?, usec("until", &until)?);
    Ok(v1::ListChangesRequest {
        namespace,
        kind,
        name,
        who,
        outcome,
        since_usec,
        until_usec,
        limit,
        page_token,
    })
}

/// Microseconds since 1970 of a time.
fn usec(parameter: &str, text: &str) -> Result<u64, AuditQueryError> {
    if text.is_empty() {
        return Ok(0);
    }
    let at = text.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_microsecond()).ok());
    at.ok_or_else(|| AuditQueryError::Wrong(format!("{parameter} {text:?}: write 2026-01-31T12:00:00Z")))
}

pub(crate) fn problem(why: AuditQueryError) -> Problem {
    let (status, why, remedy) = match why {
        AuditQueryError::Wrong(why) => {
            (StatusCode::BAD_REQUEST, why, "see /openapi.json for the parameters of each path")
        }
        AuditQueryError::Unreadable(error) => (
            StatusCode::SERVICE_UNAVAILABLE,
            chain(&error),
            "see /readyz?verbose and the log for what keeps the record",
        ),
    };
    Problem { status, what: "the audit record was not read".to_owned(), place: PLACE.to_owned(), why, remedy }
}
