//! Single objects of the Kubernetes API: made, patched, deleted; and all of a kind at once. A change is asked for once: whoever makes it
//! decides what a failure means.

use serde_json::{Map, Value};
use ureq::RequestBuilder;
use ureq::http::{StatusCode, header};

use super::{Client, ListError, MAX_STATUS_BYTES, told, words_of};
use crate::failure::Failure;

/// Objects of a page where all of a kind are wanted.
const PAGE: u32 = 500;

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Changed {
    /// It was made.
    Yes,
    /// There is no such object, or kind.
    Gone,
    /// An object of this name is there already.
    Exists,
}

impl Client {
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
        let listed = self.list(path, PAGE, &mut take);
        match listed {
            Ok(()) => Ok(found),
            Err(ListError::Unknown) => Ok(Vec::new()),
            Err(ListError::Failed(failure)) => Err(failure),
            Err(ListError::Forbidden(why)) => Err(self.refused("list", path, &why)),
            Err(ListError::Expired) => Err(self.refused("list", path, "the list expired while it was read")),
        }
    }

    /// Makes an object where its kind is listed.
    ///
    /// # Errors
    /// When the server refuses it or does not answer.
    pub(crate) fn create(&mut self, path: &str, object: &Value) -> Result<Changed, Failure> {
        let request = self.signed(self.connection.agent.post(self.url(path)));
        let request = request.header(header::CONTENT_TYPE, "application/json");
        self.changed("create", path, request.send(&object.to_string()))
    }

    /// Merges a patch into an object (RFC 7386).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn merge(&mut self, path: &str, patch: &Value) -> Result<Changed, Failure> {
        let request = self.signed(self.connection.agent.patch(self.url(path)));
        let request = request.header(header::CONTENT_TYPE, "application/merge-patch+json");
        self.changed("patch", path, request.send(&patch.to_string()))
    }

    /// Deletes an object, and in the background what it owns.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub(crate) fn delete(&mut self, path: &str) -> Result<Changed, Failure> {
        let url = format!("{}?propagationPolicy=Background", self.url(path));
        let request = self.signed(self.connection.agent.delete(url));
        self.changed("delete", path, request.call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.connection.base(&self.target.server).trim_end_matches('/'))
    }

    /// A request with what names its caller.
    fn signed<B>(&self, mut request: RequestBuilder<B>) -> RequestBuilder<B> {
        request = request.header(header::ACCEPT, "application/json");
        if let Some(authorization) = &self.credentials.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        for (name, value) in &self.credentials.impersonation {
            request = request.header(name, value);
        }
        match self.connection.host() {
            Some(host) => request.header(header::HOST, host),
            None => request,
        }
    }

    fn changed(
        &self,
        verb: &str,
        path: &str,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Changed, Failure> {
        let mut response = answer.map_err(|error| self.refused(verb, path, &told(&error)))?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(Changed::Gone),
            StatusCode::CONFLICT => Ok(Changed::Exists),
            status if status.is_success() => Ok(Changed::Yes),
            status => {
                let body = response.body_mut().with_config().limit(MAX_STATUS_BYTES).read_to_string();
                let words = body.ok().and_then(|text| words_of(&text));
                let words = words.as_deref().unwrap_or("no reason given");
                Err(self.refused(verb, path, &format!("{status}: {words}")))
            }
        }
    }

    fn refused(&self, verb: &str, path: &str, why: &str) -> Failure {
        let remedy = "be somebody who may do that, or try again when the server is well";
        Failure::new(format!("cannot {verb}"), format!("{}{path}", self.target.server), why, remedy)
    }
}
