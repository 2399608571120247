//! What the API server makes of a pod before any scheduler sees it, and whether any scheduler does.
//!
//! Order as in the API server: defaults; the plugins that change a pod (limit ranges, node selector of the namespace,
//! priority, tolerations, runtime class); validation; the plugins that judge it (limit ranges, overhead, quotas).

mod claims;
mod limits;
mod plugins;
pub(crate) mod quota;
mod validate;

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::object::{Namespace, ObjectMeta, Pod, StringMap};
use crate::profile::Profiles;

pub(crate) use quota::Charge;
pub use quota::QuotaBound;

/// Node selector of a namespace (OpenShift's, and the `PodNodeSelector` plugin's).
const NODE_SELECTORS: [&str; 2] =
    ["openshift.io/node-selector", "scheduler.alpha.kubernetes.io/node-selector"];

/// A pod as the API server makes it, and what it says of its count.
#[derive(Debug, Clone)]
pub struct Admitted {
    /// The pod with everything filled in.
    pub pod: Pod,
    /// What was filled in, in sentences.
    pub changes: Vec<String>,
    /// What is not known of it, in sentences.
    pub notes: Vec<String>,
    /// Why not even one is admitted, or looked at.
    pub refused: Option<PodRefusal>,
    /// Quotas that count it.
    pub quotas: Vec<QuotaBound>,
}

/// Why a pod is not made, or not looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRefusal {
    /// Who refuses it.
    pub by: By,
    /// In whose words.
    pub why: String,
}

/// Who refuses a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The API server: the pod is invalid, or names what is not there.
    Admission,
    /// Bounds of its namespace.
    Namespace,
    /// No scheduler looks at it.
    Scheduler,
}

impl PodRefusal {
    pub(crate) fn api(why: String) -> Self {
        Self { by: By::Admission, why }
    }

    /// Name of the bound, which is 0.
    pub(crate) fn bound(&self, namespace: &str) -> String {
        match self.by {
            By::Admission => "admission".to_owned(),
            By::Namespace => format!("namespace/{namespace}"),
            By::Scheduler => "scheduler".to_owned(),
        }
    }
}

/// Brings a pod through the API server.
pub fn admit(cluster: &Cluster, mut pod: Pod) -> Admitted {
    let (mut changes, mut notes) = (Vec::new(), Vec::new());
    let quotas = bring_through(cluster, &mut pod, &mut changes, &mut notes);
    notes.extend(plugins::unknown(&pod));
    let (quotas, refused) = match quotas {
        Ok(quotas) => (quotas, None),
        Err(refused) => (Vec::new(), Some(refused)),
    };
    Admitted { pod, changes, notes, refused, quotas }
}

fn bring_through(
    cluster: &Cluster,
    pod: &mut Pod,
    changes: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<Vec<QuotaBound>, PodRefusal> {
    let namespace = pod.metadata.namespace_or_default().to_owned();
    let ranges: Vec<_> =
        cluster.limit_ranges.iter().filter(|range| is_of(&range.metadata, &namespace)).collect();
    limits::default_requests(pod);
    plugins::namespace(cluster, &namespace, pod)?;
    limits::fill(&ranges, pod, changes);
    merge_node_selector(cluster, &namespace, pod, changes)?;
    plugins::priority(cluster, pod, notes)?;
    plugins::default_tolerations(pod);
    plugins::runtime_class(cluster, pod, changes, notes)?;
    validate::refusal(pod).map_or(Ok(()), |why| Err(PodRefusal::api(why)))?;
    let of_namespace = |why: String| PodRefusal { by: By::Namespace, why };
    limits::check(&ranges, pod).map_err(|why| of_namespace(forbidden(pod, &why).why))?;
    plugins::overhead(cluster, pod)?;
    claims::check(&ranges, pod).map_err(of_namespace)?;
    quota::bounds(cluster, &namespace, pod).map_err(|why| of_namespace(forbidden(pod, &why).why))
}

/// Why no scheduler would look at a pod that was made.
pub(crate) fn held(profiles: &Profiles, pod: &Pod) -> Option<PodRefusal> {
    let held = |why: String| Some(PodRefusal { by: By::Scheduler, why });
    if !pod.spec.scheduling_gates.is_empty() {
        return held("Scheduling is blocked due to non-empty scheduling gates".to_owned());
    }
    let name = &pod.spec.scheduler_name;
    if profiles.serves(name) {
        return None;
    }
    let known = profiles.names();
    held(format!("no scheduler looks at the pod: its schedulerName is {name}, the profiles are {known}"))
}

/// Makes one pod: what the API server makes of it, charged to its quotas.
///
/// # Errors
/// Why it is refused, or why no scheduler looks at it.
pub(crate) fn create(cluster: &mut Cluster, profiles: &Profiles, pod: &Pod) -> Result<Pod, String> {
    let Admitted { pod, refused, quotas, .. } = admit(cluster, pod.clone());
    let full = |refused: Option<PodRefusal>| {
        refused.map(|refusal| refusal.why).or_else(|| quota::full(&pod.metadata.name, &quotas))
    };
    if let Some(why) = full(refused) {
        return Err(why);
    }
    quota::take(cluster, quotas);
    held(profiles, &pod).map_or(Ok(()), |refusal| Err(refusal.why))?;
    Ok(pod)
}

fn is_of(meta: &ObjectMeta, namespace: &str) -> bool {
    meta.namespace_or_default() == namespace
}

fn forbidden(pod: &Pod, why: &str) -> PodRefusal {
    PodRefusal::api(format!("pods \"{}\" is forbidden: {why}", pod.metadata.name))
}

/// The namespace's node selector joins the pod's; a contradiction refuses the pod.
fn merge_node_selector(
    cluster: &Cluster,
    namespace: &str,
    pod: &mut Pod,
    changes: &mut Vec<String>,
) -> Result<(), PodRefusal> {
    let found = cluster.namespace_objects.iter().find(|known| known.metadata.name == namespace);
    for (key, value) in found.map(node_selector).unwrap_or_default() {
        match pod.spec.node_selector.get(&key) {
            Some(own) if *own != value => {
                let why = "pod node label selector conflicts with its namespace node label selector";
                return Err(PodRefusal { by: By::Namespace, ..forbidden(pod, why) });
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
