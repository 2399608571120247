//! What changes pods that run: a resize in place, an eviction, and the condition `evenkeel.dev/Resize` that is written before; and what is asked
//! for before that, object by object.

use http::Method;
use serde_json::{Value, json};

use crate::connect::ApiServer;
use crate::kinds::ApiKind;
use crate::objects::{ApiError, place};
use crate::watch::escaped;

static PODS: &ApiKind = &ApiKind { name: "Pod", path: "/api/v1/pods", metadata_only: false };
/// Type of the condition of a pod that says how far its last resize is.
pub const RESIZE: &str = "evenkeel.dev/Resize";
/// Objects that are asked for at once, so that an answer stays well below what is read of one.
const PAGE: usize = 250;
/// Pages that are asked for, at most.
const MOST_PAGES: usize = 400;

/// A pod, as it was when something was decided about it.
#[derive(Debug, Clone, Copy)]
pub struct PodAt<'a> {
    /// Namespace.
    pub namespace: &'a str,
    /// Name.
    pub name: &'a str,
    /// Its uid: another pod of the name is none of it.
    pub uid: &'a str,
    /// Version of the object.
    pub version: &'a str,
}

impl PodAt<'_> {
    fn below(&self, what: &str) -> String {
        format!("{}/{what}", place(PODS, self.namespace, self.name))
    }

    fn metadata(&self) -> Value {
        json!({ "uid": self.uid, "resourceVersion": self.version })
    }
}

impl ApiServer {
    /// Writes the condition [`RESIZE`] of a pod; the version that comes of it.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] when the pod is another one by now, or changed.
    pub async fn note_resize(
        &self,
        pod: PodAt<'_>,
        reason: &str,
        message: &str,
        at: &str,
    ) -> Result<String, ApiError> {
        let condition = json!({
            "type": RESIZE, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at,
        });
        let patch = json!({ "metadata": pod.metadata(), "status": { "conditions": [condition] } });
        let made = self.strategic(&pod.below("status"), &patch).await?;
        let version = made["metadata"]["resourceVersion"].as_str();
        version.map(str::to_owned).ok_or_else(|| ApiError::Silent("its answer has no version".to_owned()))
    }

    /// Resizes containers of a pod in place; `spec` has those that change, by name.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] when the pod is another one by now, or changed.
    pub async fn resize(&self, pod: PodAt<'_>, spec: &Value) -> Result<(), ApiError> {
        let patch = json!({ "metadata": pod.metadata(), "spec": spec });
        self.strategic(&pod.below("resize"), &patch).await.map(|_| ())
    }

    /// Evicts a pod.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Later`] when a PodDisruptionBudget does not allow it now.
    pub async fn evict(&self, pod: PodAt<'_>) -> Result<(), ApiError> {
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "name": pod.name, "namespace": pod.namespace },
            "deleteOptions": { "preconditions": { "uid": pod.uid } },
        });
        self.send(Method::POST, &pod.below("eviction"), "application/json", Some(&eviction)).await.map(|_| ())
    }

    async fn strategic(&self, path: &str, patch: &Value) -> Result<Value, ApiError> {
        // Lists of containers and conditions are merged by name and type so, and replaced by the other kinds of patch.
        self.send(Method::PATCH, path, "application/strategic-merge-patch+json", Some(patch)).await
    }

    /// Reads one object at a path of the API, such as `/apis/apps/v1/namespaces/shop/replicasets/web-a`.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn object(&self, root: &str, names: &[&str]) -> Result<Value, ApiError> {
        let names: Vec<String> = names.iter().map(|name| escaped(name)).collect();
        self.read(&format!("{root}/{}", names.join("/"))).await
    }

    /// Lists the objects of a kind in a namespace, as they are now; `root` is that of its group, such as `/apis/apps/v1`. Those of one label's
    /// value, where `label` gives it.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Later`] when there are more than 100,000.
    pub async fn list_in(
        &self,
        root: &str,
        namespace: &str,
        plural: &str,
        label: Option<(&str, &str)>,
    ) -> Result<Vec<Value>, ApiError> {
        let base = format!("{root}/namespaces/{}/{plural}?limit={PAGE}", escaped(namespace));
        let base = label.map_or(base.clone(), |(key, value)| {
            format!("{base}&labelSelector={}%3D{}", escaped(key), escaped(value))
        });
        let (mut all, mut path) = (Vec::new(), base.clone());
        for _ in 0..MOST_PAGES {
            let mut page = self.read(&path).await?;
            if let Value::Array(items) = page["items"].take() {
                all.extend(items);
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) => path = format!("{base}&continue={}", escaped(token)),
                None => return Ok(all),
            }
        }
        Err(ApiError::Later(format!("namespace {namespace} has too many {plural}"), None))
    }
}
