//! Keys: what values are kept and asked for by, over restarts, renames and re-creations of pods.

use serde::{Deserialize, Serialize};

/// A container of a workload, in every pod of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct ContainerKey {
    /// Cluster.
    pub cluster: String,
    /// Namespace of the pods.
    pub namespace: String,
    /// Controller as agents report it (`deployment/web`), or pod where there is none.
    pub workload: String,
    /// Container name.
    pub container: String,
}

/// A workload: a controller with its pods, or a pod that has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct WorkloadKey {
    /// Cluster.
    pub cluster: String,
    /// Namespace of the pods.
    pub namespace: String,
    /// Controller as agents report it (`deployment/web`), or pod where there is none.
    pub workload: String,
}

impl ContainerKey {
    /// Of these names.
    pub fn new(
        cluster: impl Into<String>,
        namespace: impl Into<String>,
        workload: impl Into<String>,
        container: impl Into<String>,
    ) -> Self {
        Self {
            cluster: cluster.into(),
            namespace: namespace.into(),
            workload: workload.into(),
            container: container.into(),
        }
    }

    /// Its four names, in the order in which keys are compared.
    pub const fn names(&self) -> [&str; 4] {
        [self.cluster.as_str(), self.namespace.as_str(), self.workload.as_str(), self.container.as_str()]
    }

    /// The workload it belongs to.
    pub fn workload_key(&self) -> WorkloadKey {
        let (cluster, namespace) = (self.cluster.clone(), self.namespace.clone());
        WorkloadKey { cluster, namespace, workload: self.workload.clone() }
    }
}
