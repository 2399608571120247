//! The condition `evenkeel.dev/QoS` of a pod: which class each of its containers is held at, by resource.

use http::Method;
use serde_json::{Value, json};

use super::ask::{ApiError, place};
use crate::connect::ApiServer;
use crate::kinds::ApiKind;

static PODS: &ApiKind = &ApiKind { name: "Pod", path: "/api/v1/pods", metadata_only: false };
/// Type of the condition.
const TYPE: &str = "evenkeel.dev/QoS";

/// What the condition of a pod says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCondition {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its uid: another pod of the name is none of it.
    pub uid: String,
    /// The class of all its containers, or `Mixed`.
    pub reason: &'static str,
    /// The class of each container, by resource.
    pub message: String,
}

impl PodCondition {
    /// The patch. Without a time, so that an API server that has it already changes nothing.
    fn patch(&self) -> Value {
        let condition =
            json!({ "type": TYPE, "status": "True", "reason": self.reason, "message": self.message });
        json!({ "metadata": { "uid": self.uid }, "status": { "conditions": [condition] } })
    }
}

impl ApiServer {
    /// Writes the condition beside the pod's others.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] when another pod has the name by now.
    pub async fn set_condition(&self, condition: &PodCondition) -> Result<(), ApiError> {
        let path = format!("{}/status", place(PODS, &condition.namespace, &condition.pod));
        // Lists of conditions are merged by type so, and replaced by the other kind of patch.
        let kind = "application/strategic-merge-patch+json";
        self.send(Method::PATCH, &path, kind, Some(&condition.patch())).await.map(|_| ())
    }
}
