//! Recommended requests in the place of current ones.

use std::cell::Cell;
use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;

use crate::object::Pod;

/// Container, resource, request.
type Wish = (String, String, Quantity);

/// Recommended requests by namespace and workload.
#[derive(Debug, Clone, Default)]
pub struct Recommendations {
    rows: BTreeMap<(String, String), Vec<Wish>>,
    applied: Cell<usize>,
}

impl Recommendations {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in one: CPU in thousandths of a core, anything else in bytes. The workload may be named `kind/name`.
    pub fn add(
        &mut self,
        namespace: String,
        workload: &str,
        container: String,
        resource: String,
        request: u64,
    ) {
        let request = match resource.as_str() {
            "cpu" => Quantity::from_milli(i64::try_from(request).unwrap_or(i64::MAX)),
            _ => Quantity::from_bytes(request),
        };
        let workload = workload.rsplit('/').next().unwrap_or_default().to_owned();
        self.rows.entry((namespace, workload)).or_default().push((container, resource, request));
    }

    /// Replaces the requests of a pod's containers that there is something for.
    pub fn apply(&self, pod: &mut Pod) {
        let namespace = pod.metadata.namespace_or_default().to_owned();
        let owner = pod.metadata.controller().map(|owner| owner.name.clone());
        let hash = pod.metadata.labels.get("pod-template-hash");
        // A replica set is named after its deployment and the hash of the template.
        let deployment =
            owner.as_ref().zip(hash).and_then(|(owner, hash)| owner.strip_suffix(&format!("-{hash}")));
        let names = [deployment.map(str::to_owned), owner.clone(), Some(pod.metadata.name.clone())];
        let mut names = names.into_iter().flatten();
        let Some(found) = names.find_map(|name| self.rows.get(&(namespace.clone(), name))) else { return };
        for container in &mut pod.spec.containers {
            for (_, resource, request) in found.iter().filter(|(name, _, _)| *name == container.name) {
                container.resources.requests.insert(resource.clone(), *request);
                self.applied.set(self.applied.get() + 1);
            }
        }
    }

    /// How many requests were replaced so far.
    pub fn applied(&self) -> usize {
        self.applied.get()
    }
}
