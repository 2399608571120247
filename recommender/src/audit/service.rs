//! `AuditService`, and what its REST form shares with it.

use evenkeel_model::causes::chain;
use evenkeel_proto::v1::{self, audit_service_server::AuditService};
use tonic::{Request, Response, Status};

use super::entry::{AuditEntry, AuditOutcome, ObjectText};
use super::read::{AuditFilter, Page, USUAL};
use super::record::AuditError;
use crate::api::Context;
use crate::api::grpc::Api;
use crate::identity::{Identity, Role};

/// Why a question is not answered.
#[derive(Debug)]
pub(crate) enum AuditQueryError {
    /// It makes no sense.
    Wrong(String),
    /// The record cannot be read.
    Unreadable(AuditError),
}

/// What is asked for, as both interfaces have it.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn filter(asked: v1::ListChangesRequest) -> Result<AuditFilter, AuditQueryError> {
    let v1::ListChangesRequest {
        namespace,
        kind,
        name,
        who,
        outcome,
        since_usec,
        until_usec,
        limit,
        page_token,
    } = asked;
    let known = |word: &str| AuditOutcome::ALL.into_iter().find(|outcome| outcome.as_str() == word);
    let outcome = match outcome.as_str() {
        "" => None,
        word => Some(known(word).ok_or_else(|| {
            let all = AuditOutcome::ALL.map(AuditOutcome::as_str).join(", ");
            AuditQueryError::Wrong(format!("outcome {word:?}: give one of {all}"))
        })?),
    };
    let before = match page_token.as_str() {
        "" => None,
        token => Some(token.parse().map_err(|_| {
            AuditQueryError::Wrong("page_token is none: give next_page_token of the page before".to_owned())
        })?),
    };
    let limit = if limit == 0 { USUAL } else { limit as usize };
    Ok(AuditFilter { namespace, kind, name, who, outcome, since_usec, until_usec, limit, before })
}

/// Answers a question. Reads files.
pub(crate) fn list(context: &Context, filter: &AuditFilter) -> Result<Page, AuditQueryError> {
    let is_wanted = || context.is_wanted();
    context.readiness.audit().list(filter, is_wanted).map_err(AuditQueryError::Unreadable)
}

impl From<AuditQueryError> for Status {
    fn from(why: AuditQueryError) -> Self {
        match why {
            AuditQueryError::Wrong(why) => Self::invalid_argument(why),
            AuditQueryError::Unreadable(error) => {
                Self::unavailable(format!("the audit record cannot be read: {}", chain(&error)))
            }
        }
    }
}

fn text(text: ObjectText) -> v1::AuditText {
    v1::AuditText { text: text.text, bytes: text.bytes }
}

impl From<AuditEntry> for v1::AuditEntry {
    fn from(entry: AuditEntry) -> Self {
        Self {
            number: entry.number,
            time_usec: entry.time_usec,
            who: entry.who,
            from: entry.from,
            method: entry.method,
            kind: entry.object.kind,
            namespace: entry.object.namespace,
            name: entry.object.name,
            before: entry.before.map(text),
            after: entry.after.map(text),
            outcome: entry.outcome.as_str().to_owned(),
            reason: entry.reason,
            left_out: entry.left_out,
        }
    }
}

#[tonic::async_trait]
impl AuditService for Api {
    async fn list_changes(
        &self,
        request: Request<v1::ListChangesRequest>,
    ) -> Result<Response<v1::ListChangesResponse>, Status> {
        let identity = Identity::of(request.extensions());
        let filter = filter(request.into_inner())?;
        identity.may(Role::View, &filter.namespace).await?;
        let Page { entries, next, trouble } = self.ask(move |c| list(c, &filter)).await??;
        Ok(Response::new(v1::ListChangesResponse {
            entries: entries.into_iter().map(Into::into).collect(),
            next_page_token: next.map(|number| number.to_string()).unwrap_or_default(),
            trouble: trouble.unwrap_or_default(),
        }))
    }
}
