//! Where a pod runs.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use crate::{ApiServer, Silence};

/// A pod that was given a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// What tells it from another of its name.
    pub uid: String,
    /// The node.
    pub node: String,
}

impl ApiServer {
    /// The node of a pod; `None` where there is no such pod, or it has no node.
    ///
    /// # Errors
    /// When there is no answer.
    pub async fn pod(&self, namespace: &str, name: &str) -> Result<Option<Placed>, Silence> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let Some(pod) = self.answer(api.get_opt(name)).await? else { return Ok(None) };
        let node = pod.spec.and_then(|spec| spec.node_name).filter(|node| !node.is_empty());
        Ok(node.zip(pod.metadata.uid).map(|(node, uid)| Placed { uid, node }))
    }
}
