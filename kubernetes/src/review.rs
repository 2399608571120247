//! The two questions about callers: whose token it is, and whether somebody may do something.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Api;
use kube::api::PostParams;

use crate::{ApiServer, Silence};

/// Whose token it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reviewed {
    /// Somebody's.
    Of(User),
    /// Nobody's, or made for others; why, for the log.
    Nobody(String),
}

/// Somebody whom the API server knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name, such as `anna` or `system:serviceaccount:NAMESPACE:NAME`.
    pub name: String,
    /// What tells users of one name apart, where there is something.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// What else is known, such as the pod and node that a token is bound to.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The only value of something that is known beside name and groups; `None` where there is none, or several.
    #[must_use]
    pub fn one(&self, key: &str) -> Option<&str> {
        match self.extra.get(key)?.as_slice() {
            [one] if !one.is_empty() => Some(one),
            _ => None,
        }
    }
}

/// What somebody would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Act<'a> {
    /// `get`, `create`, ...
    pub verb: &'a str,
    /// Group of the resource, such as `evenkeel.dev`.
    pub group: &'a str,
    /// The resource, in the plural.
    pub resource: &'a str,
    /// The namespace; empty for all of them.
    pub namespace: &'a str,
}

impl ApiServer {
    /// Asks whose token it is (`TokenReview`), and that it was made for one of these audiences; for the API server itself where
    /// none is named.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<Reviewed, Silence> {
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            audiences: (!audiences.is_empty()).then(|| audiences.to_vec()),
        };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = self.answer(api.create(&PostParams::default(), &review)).await?;
        let Some(status) = answer.status else {
            return Err(Silence { why: "a TokenReview without a status".to_owned() });
        };
        if status.authenticated != Some(true) {
            return Ok(Reviewed::Nobody(
                status.error.unwrap_or_else(|| "it is not authenticated".to_owned()),
            ));
        }
        // An API server that knows no audiences leaves them out: the token is then one for the server itself.
        let confirmed = status.audiences.unwrap_or_default();
        if !audiences.is_empty() && !audiences.iter().any(|audience| confirmed.contains(audience)) {
            return Ok(Reviewed::Nobody(format!("it is for {confirmed:?}")));
        }
        let user = status.user.unwrap_or_default();
        let Some(name) = user.username.filter(|name| !name.is_empty()) else {
            return Ok(Reviewed::Nobody("it has no user".to_owned()));
        };
        Ok(Reviewed::Of(User {
            name,
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    /// Asks whether somebody may do something (`SubjectAccessReview`).
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn may(&self, user: &User, act: Act<'_>) -> Result<bool, Silence> {
        let text = |text: &str| Some(text.to_owned());
        let attributes = ResourceAttributes {
            verb: text(act.verb),
            group: text(act.group),
            version: text("*"),
            resource: text(act.resource),
            namespace: text(act.namespace),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = self.answer(api.create(&PostParams::default(), &review)).await?;
        let Some(status) = answer.status else {
            return Err(Silence { why: "a SubjectAccessReview without a status".to_owned() });
        };
        Ok(status.allowed && status.denied != Some(true))
    }
}
