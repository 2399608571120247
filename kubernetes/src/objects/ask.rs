//! Single requests about objects: read one, write a status, make one; each with a deadline, a bound for its answer, and one of a few reasons
//! where it fails.

use std::time::Duration;

use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use serde_json::Value;

use crate::connect::{ApiServer, told};
use crate::kinds::ApiKind;
use crate::watch::answer::{ApiRefusal, refused};
use crate::watch::escaped;

/// Largest answer that is read.
const MOST_ANSWER: usize = 16 << 20;

/// Why a request came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The object is another one by now, or is there already (409).
    #[error("{0}")]
    Conflict(String),
    /// There is no such object, or no such kind (404).
    #[error("{0}")]
    Absent(String),
    /// Who asks may not (403 of the authorizer).
    #[error("{0}")]
    Forbidden(String),
    /// Ask later (429, 5xx; 401, with the token that the file holds then).
    #[error("{0}")]
    Later(String, Option<Duration>),
    /// The request is wrong, or admission does not let this one through (other 4xx and 403).
    #[error("{0}")]
    Wrong(String),
    /// There was no answer.
    #[error("{0}")]
    Silent(String),
}

impl From<ApiRefusal> for ApiError {
    fn from(ApiRefusal { code, words, after }: ApiRefusal) -> Self {
        let text = format!("status {code}: {words}");
        match code {
            404 | 410 => Self::Absent(text),
            403 if is_want_of_rights(&words) => Self::Forbidden(text),
            409 => Self::Conflict(text),
            401 | 429 | 500.. => Self::Later(text, after),
            _ => Self::Wrong(text),
        }
    }
}

/// Whether a 403 is the authorizer's, in whose words a user cannot do something with a kind. Limit ranges, quotas, namespaces that end and others'
/// admission refuse with 403, too, but this one request.
fn is_want_of_rights(words: &str) -> bool {
    words.split_once("User \"").is_some_and(|(_, user)| user.contains("\" cannot "))
}

/// Where the objects of a kind in a namespace are.
pub(crate) fn collection(kind: &ApiKind, namespace: &str) -> String {
    // Of a kind in namespaces the path ends with the plural.
    let (root, plural) = kind.path.rsplit_once('/').unwrap_or(("", kind.path));
    format!("{root}/namespaces/{}/{plural}", escaped(namespace))
}

/// Where an object of a kind is.
pub(crate) fn place(kind: &ApiKind, namespace: &str, name: &str) -> String {
    format!("{}/{}", collection(kind, namespace), escaped(name))
}

impl ApiServer {
    /// Writes an object's status.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn patch_status(
        &self,
        kind: &ApiKind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, ApiError> {
        let path = format!("{}/status", place(kind, namespace, name));
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(patch)).await
    }

    /// Changes fields of what is at a path.
    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<(), ApiError> {
        self.send(Method::PATCH, path, "application/merge-patch+json", Some(patch)).await.map(|_| ())
    }

    /// Reads what is at a path.
    pub(crate) async fn read(&self, path: &str) -> Result<Value, ApiError> {
        self.send(Method::GET, path, "application/json", None).await
    }

    /// Makes an object.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        self.send(Method::POST, path, "application/json", Some(object)).await.map(|_| ())
    }

    /// Puts an object in the place of another one, in the version that it names.
    pub(crate) async fn replace(&self, path: &str, object: &Value) -> Result<(), ApiError> {
        self.send(Method::PUT, path, "application/json", Some(object)).await.map(|_| ())
    }

    /// Sends a request; the kind is that of the body.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let text = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(header::ACCEPT, "application/json");
        let request = request.header(header::CONTENT_TYPE, kind).body(Body::from(text));
        let request = request.map_err(|error| ApiError::Wrong(error.to_string()))?;
        let asked = async {
            let answer = self.client.send(request).await.map_err(|error| ApiError::Silent(told(&error)))?;
            if !answer.status().is_success() {
                return Err(refused(answer).await.into());
            }
            let body = Limited::new(answer.into_body(), MOST_ANSWER).collect().await;
            let bytes = body.map_err(|error| ApiError::Silent(error.to_string()))?.to_bytes();
            serde_json::from_slice(&bytes)
                .map_err(|error| ApiError::Silent(format!("its answer is no object: {error}")))
        };
        let silent = |_| ApiError::Silent(format!("no answer within {} ms", self.patience.as_millis()));
        tokio::time::timeout(self.patience, asked).await.map_err(silent)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::AUTOSCALERS;

    #[test]
    fn a_place_is_one_whatever_the_name() {
        assert_eq!(
            place(AUTOSCALERS, "shop", "../nodes"),
            "/apis/autoscaling.k8s.io/v1/namespaces/shop/verticalpodautoscalers/..%2Fnodes"
        );
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let of = |code, after| ApiError::from(ApiRefusal { code, words: "x".into(), after });
        let text = |code: u16| format!("status {code}: x");
        let second = Some(Duration::from_secs(1));
        assert_eq!(of(409, None), ApiError::Conflict(text(409)));
        assert_eq!(of(404, None), ApiError::Absent(text(404)));
        assert_eq!(of(401, None), ApiError::Later(text(401), None));
        assert_eq!(of(429, second), ApiError::Later(text(429), second));
        assert_eq!(of(503, None), ApiError::Later(text(503), None));
        assert_eq!(of(422, None), ApiError::Wrong(text(422)));
    }

    /// Words of an API server of 1.36.
    #[test]
    fn a_403_is_want_of_rights_or_a_refusal_of_this_request() {
        for (words, is_rights) in [
            (
                r#"pods "a" is forbidden: User "system:serviceaccount:keel:x" cannot patch resource "pods/resize" in API group "" in the namespace "shop""#,
                true,
            ),
            (r#"forbidden: User "system:anonymous" cannot get path "/unknown""#, true),
            (
                r#"pods "a" is forbidden: maximum memory usage per Container is 256Mi, but limit is 512Mi"#,
                false,
            ),
            (
                r#"pods "a" is forbidden: exceeded quota: q, requested: requests.cpu=700m, used: requests.cpu=900m, limited: requests.cpu=1"#,
                false,
            ),
            (
                r#"events.events.k8s.io "a" is forbidden: unable to create new content in namespace shop because it is being terminated"#,
                false,
            ),
            (r#"admission webhook "a.example.io" denied the request: a User "b" may not"#, false),
        ] {
            let refused = ApiError::from(ApiRefusal { code: 403, words: words.into(), after: None });
            assert_eq!(matches!(refused, ApiError::Forbidden(_)), is_rights, "{refused:?}");
            assert!(is_rights || matches!(refused, ApiError::Wrong(_)), "{refused:?}");
        }
    }
}
