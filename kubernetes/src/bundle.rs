//! The authority in the registration of a webhook, by which the API server knows it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::connect::ApiServer;
use crate::objects::ApiError;
use crate::watch::escaped;

/// Where registrations of webhooks that change objects are.
const PATH: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

impl ApiServer {
    /// Puts the authority (PEM) into all webhooks of a registration, where another is there; whether one was.
    ///
    /// # Errors
    /// [`ApiError`]; on a conflict somebody else changed the registration in this moment.
    pub async fn keep_bundle(&self, registration: &str, authority: &[u8]) -> Result<bool, ApiError> {
        let path = format!("{PATH}/{}", escaped(registration));
        let present = self.read(&path).await?;
        let Some(patch) = renewed(present, authority) else { return Ok(false) };
        self.send(Method::PATCH, &path, "application/merge-patch+json", Some(&patch)).await?;
        Ok(true)
    }

    /// The authorities (PEM) of all webhooks of a registration; one that has none has none here.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn bundles(&self, registration: &str) -> Result<Vec<Vec<u8>>, ApiError> {
        let present = self.read(&format!("{PATH}/{}", escaped(registration))).await?;
        let bundle = |webhook: &Value| {
            let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
            STANDARD.decode(bundle).unwrap_or_default()
        };
        Ok(present["webhooks"].as_array().into_iter().flatten().map(bundle).collect())
    }
}

/// What has to be written, if anything: all webhooks, since a merge patch has lists as a whole.
fn renewed(mut present: Value, authority: &[u8]) -> Option<Value> {
    let bundle = Value::from(STANDARD.encode(authority));
    let mut webhooks = present.get_mut("webhooks")?.take();
    let mut is_other = false;
    for webhook in webhooks.as_array_mut()? {
        let config = webhook.get_mut("clientConfig")?;
        if config["caBundle"] != bundle {
            config["caBundle"] = bundle.clone();
            is_other = true;
        }
    }
    let version = &present["metadata"]["resourceVersion"];
    is_other.then(|| json!({ "metadata": { "resourceVersion": version }, "webhooks": webhooks }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_written_where_it_is_another() {
        let of = |bundles: &[&str]| {
            let webhooks =
                bundles.iter().map(|bundle| json!({"name": "a", "clientConfig": {"caBundle": bundle}}));
            json!({"metadata": {"resourceVersion": "7"}, "webhooks": webhooks.collect::<Vec<_>>()})
        };
        assert_eq!(renewed(of(&["bmV3"]), b"new"), None);
        let patch = renewed(of(&["bmV3", "b2xk"]), b"new").unwrap();
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert_eq!(patch["webhooks"], of(&["bmV3", "bmV3"])["webhooks"]);
        assert_eq!(renewed(json!({"metadata": {}}), b"new"), None);
        let mut bare = of(&[]);
        bare["webhooks"] = json!([{"name": "a", "clientConfig": {"service": {}}}]);
        assert_eq!(renewed(bare, b"new").unwrap()["webhooks"][0]["clientConfig"]["caBundle"], "bmV3");
    }
}
