//! A pod that is resized in place.

use http::Method;
use serde_json::{Value, json};

use crate::connect::ApiServer;
use crate::kinds::Kind;
use crate::objects::{Refused, place};

static PODS: &Kind = &Kind { name: "Pod", path: "/api/v1/pods", metadata_only: false };

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
    /// Resizes containers of a pod in place; `spec` has those that change, by name.
    ///
    /// # Errors
    /// [`Refused`]; [`Refused::Conflict`] when the pod is another one by now, or changed.
    pub async fn resize(&self, pod: PodAt<'_>, spec: &Value) -> Result<(), Refused> {
        let patch = json!({ "metadata": pod.metadata(), "spec": spec });
        let kind = "application/strategic-merge-patch+json";
        self.send(Method::PATCH, &pod.below("resize"), kind, Some(&patch)).await.map(|_| ())
    }
}
