//! What a namespace makes of a pod before any scheduler sees it: defaults, bounds, node selector, quotas.
//!
//! Order as in the API server: limit ranges fill in what is missing, then check, then quotas count.

mod claims;
mod limits;
pub(crate) mod quota;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::object::{Metadata, Namespace, Pod, StringMap};

pub(crate) use quota::Charge;
pub use quota::QuotaBound;

/// Node selector of a namespace (OpenShift's, and the `PodNodeSelector` plugin's).
const NODE_SELECTORS: [&str; 2] =
    ["openshift.io/node-selector", "scheduler.alpha.kubernetes.io/node-selector"];

/// A pod as its namespace makes it, and what the namespace says of its count.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The pod with defaults and node selector filled in.
    pub pod: Pod,
    /// What was filled in, in sentences.
    pub changes: Vec<String>,
    /// Why not even one is admitted; the API server's words.
    pub refused: Option<String>,
    /// Quotas that count it.
    pub quotas: Vec<QuotaBound>,
}

/// Brings a pod through its namespace.
pub fn admit(cluster: &Cluster, mut pod: Pod) -> Admitted {
    let namespace = pod.metadata.namespace_or_default().to_owned();
    let mut changes = Vec::new();
    let mut refused = merge_node_selector(cluster, &namespace, &mut pod, &mut changes).err();
    let ranges: Vec<_> =
        cluster.limit_ranges.iter().filter(|range| is_of(&range.metadata, &namespace)).collect();
    limits::fill(&ranges, &mut pod, &mut changes);
    if refused.is_none() {
        refused = limits::check(&ranges, &pod).err().map(|why| forbidden(&pod, &why));
        refused = refused.or_else(|| claims::check(&ranges, &pod).err());
    }
    let quotas = quota::bounds(cluster, &namespace, &pod);
    let quotas = match quotas {
        Ok(quotas) => quotas,
        Err(why) => {
            refused.get_or_insert(forbidden(&pod, &why));
            Vec::new()
        }
    };
    Admitted { pod, changes, refused, quotas }
}

/// Makes one pod: what its namespace makes of it, charged to its quotas.
///
/// # Errors
/// Why it is refused; the API server's words.
pub(crate) fn create<'a>(cluster: &mut Cluster, pod: &'a Pod) -> Result<Cow<'a, Pod>, String> {
    let open = cluster.quotas.is_empty() && cluster.limit_ranges.is_empty();
    if open && cluster.namespace_objects.iter().all(|namespace| node_selector(namespace).is_empty()) {
        return Ok(Cow::Borrowed(pod));
    }
    let Admitted { pod, refused, quotas, .. } = admit(cluster, pod.clone());
    if let Some(why) = refused.or_else(|| quota::full(&pod.metadata.name, &quotas)) {
        return Err(why);
    }
    quota::take(cluster, quotas);
    Ok(Cow::Owned(pod))
}

fn is_of(meta: &Metadata, namespace: &str) -> bool {
    meta.namespace_or_default() == namespace
}

fn forbidden(pod: &Pod, why: &str) -> String {
    format!("pods \"{}\" is forbidden: {why}", pod.metadata.name)
}

/// The namespace's node selector joins the pod's; a contradiction refuses the pod.
fn merge_node_selector(
    cluster: &Cluster,
    namespace: &str,
    pod: &mut Pod,
    changes: &mut Vec<String>,
) -> Result<(), String> {
    let found = cluster.namespace_objects.iter().find(|known| known.metadata.name == namespace);
    for (key, value) in found.map(node_selector).unwrap_or_default() {
        match pod.spec.node_selector.get(&key) {
            Some(own) if *own != value => {
                return Err(forbidden(
                    pod,
                    "pod node label selector conflicts with its namespace node label selector",
                ));
            }
            Some(_) => {}
            None => {
                changes.push(format!("node selector {key}={value} of namespace {namespace}"));
                pod.spec.node_selector.insert(key, value);
            }
        }
    }
    Ok(())
}

/// Labels of a namespace's node selector: `a=b,c=d`.
pub fn node_selector(namespace: &Namespace) -> StringMap {
    let annotations = &namespace.metadata.annotations;
    let texts = NODE_SELECTORS.iter().filter_map(|key| annotations.get(*key));
    let pairs = texts.flat_map(|text| text.split(','));
    let pairs = pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .map(|(k, v)| (k.trim().to_owned(), v.trim().to_owned()));
    pairs.collect::<BTreeMap<_, _>>()
}

/// The largest pod a namespace allows: what its limit ranges allow a pod (or, failing that, one container) at most.
///
/// # Errors
/// A sentence that says what is missing.
pub fn largest(cluster: &Cluster, namespace: &str) -> Result<Pod, String> {
    let ranges: Vec<_> =
        cluster.limit_ranges.iter().filter(|range| is_of(&range.metadata, namespace)).collect();
    limits::largest(&ranges, namespace)
}
