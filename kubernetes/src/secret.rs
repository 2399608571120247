//! A Secret of this program's own, in which replicas share a key.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::connect::ApiServer;
use crate::kinds::ApiKind;
use crate::objects::{ApiError, collection, place};

/// The kind.
static SECRETS: &ApiKind = &ApiKind { name: "Secret", path: "/api/v1/secrets", metadata_only: false };

/// A Secret, in one version.
#[derive(Clone, Default, PartialEq)]
pub struct Secret {
    namespace: String,
    name: String,
    object: Value,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is in it is nobody's to see.
        f.debug_struct("Secret").field("namespace", &self.namespace).field("name", &self.name).finish()
    }
}

impl Secret {
    /// One that is not there yet.
    fn new(namespace: &str, name: &str) -> Self {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "namespace": namespace, "name": name }, "type": "Opaque",
        });
        Self { namespace: namespace.to_owned(), name: name.to_owned(), object }
    }

    fn is_new(&self) -> bool {
        self.object["metadata"]["resourceVersion"].is_null()
    }

    /// What is under a key; nothing where nothing is, or what is no bytes.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        STANDARD.decode(self.object["data"][key].as_str()?).ok()
    }

    /// The same with other bytes under a key.
    #[must_use]
    pub fn with(mut self, key: &str, bytes: &[u8]) -> Self {
        if !self.object["data"].is_object() {
            self.object["data"] = json!({});
        }
        self.object["data"][key] = STANDARD.encode(bytes).into();
        self
    }
}

impl ApiServer {
    /// Reads a Secret; an empty one where there is none.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, ApiError> {
        match self.read(&place(SECRETS, namespace, name)).await {
            Ok(object) => Ok(Secret { object, ..Secret::new(namespace, name) }),
            Err(ApiError::Absent(_)) => Ok(Secret::new(namespace, name)),
            Err(error) => Err(error),
        }
    }

    /// Puts a Secret in the place of the version that it was read in, or makes it.
    ///
    /// # Errors
    /// [`ApiError`]; on a conflict somebody else was first.
    pub async fn keep_secret(&self, secret: &Secret) -> Result<(), ApiError> {
        let Secret { namespace, name, object } = secret;
        match secret.is_new() {
            true => self.create(&collection(SECRETS, namespace), object).await,
            false => self.replace(&place(SECRETS, namespace, name), object).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_put_beside_others_and_not_shown() {
        let secret = Secret::new("evenkeel", "pair").with("a", b"one").with("b", &[0, 255]);
        assert!(secret.is_new() && secret.get("c").is_none());
        assert_eq!((secret.get("a").unwrap(), secret.get("b").unwrap()), (b"one".to_vec(), vec![0, 255]));
        assert!(!format!("{secret:?}").contains("data"));
        let broken = Secret { object: json!({ "data": { "a": "%" } }), ..secret };
        assert_eq!(broken.get("a"), None);
    }
}
