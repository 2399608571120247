//! Owns the cluster as agents reported it, in Kubernetes objects: one builder for questions asked here and for
//! snapshots that are saved.
//!
//! An agent tells its node's size, what its configuration says the node has to give, its containers and what these request. The rest
//! is what a kubelet and the node
//! controller would say: allocatable is the size less what is reserved and less the eviction threshold; a node with
//! less available memory than that threshold has the taint of memory pressure; one whose containers have more processes
//! than leave the configured number free the taint of process pressure; a node whose agent is silent the taint of an
//! unreachable one. Available memory is the size less the working sets of the containers, and so an upper bound: what
//! the system itself uses is not reported; the same holds for processes. Agents tell nothing of disks: that condition is
//! unknown, which every answer over such nodes says.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use evenkeel_capacity::object::NOT_REPORTED;
use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::sample::Field;
use evenkeel_proto::v1;
use evenkeel_store::key::NodeKey;
use evenkeel_store::state::StoreState;
use serde_json::{Map, Value, json};

use crate::config::CapacitySection;

/// Samples of containers this much older than their node's newest do not count as its use.
pub(crate) const STALE_USEC: u64 = 60_000_000;

/// What agents reported, copied so that ingest goes on while it is counted.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    nodes: Vec<ReportedNode>,
}

#[derive(Debug)]
struct ReportedNode {
    name: String,
    facts: v1::NodeFacts,
    connected: bool,
    used_bytes: u64,
    processes: u64,
    containers: Vec<Arc<v1::ContainerIdentity>>,
}

impl Reported {
    /// The nodes of known size of one cluster; with no name, of the only one.
    ///
    /// # Errors
    /// With the names, when there are several clusters and none was named, or when there is none of the name.
    pub(crate) fn gather(
        state: &StoreState,
        connected: impl Fn(&NodeKey) -> bool,
        cluster: &str,
    ) -> Result<Self, String> {
        let known: BTreeSet<&str> = state.nodes().map(|(key, _)| key.cluster.as_str()).collect();
        let names = || known.iter().copied().collect::<Vec<_>>().join(", ");
        if cluster.is_empty() && known.len() > 1 {
            return Err(format!("agents of several clusters report: {}", names()));
        }
        if !cluster.is_empty() && !known.contains(cluster) {
            return Err(format!("no agent of cluster {cluster} reports; clusters are: {}", names()));
        }
        let mut nodes = Vec::new();
        for (key, node) in state.nodes().filter(|(key, _)| cluster.is_empty() || key.cluster == cluster) {
            let Some(facts) = node.facts.clone() else { continue };
            let stream = state.current(key, node);
            let fresh = node.newest_usec.saturating_sub(STALE_USEC);
            let slots = || stream.iter().flat_map(|stream| stream.slots.iter());
            let samples = || slots().filter_map(|slot| slot.latest).filter(|(time, _)| *time >= fresh);
            let sum =
                |field| samples().filter_map(|(_, sample)| sample.get(field)).fold(0, u64::saturating_add);
            nodes.push(ReportedNode {
                name: key.node.clone(),
                facts,
                connected: connected(key),
                used_bytes: sum(Field::MemoryWorkingSetBytes),
                processes: sum(Field::Pids),
                containers: slots().map(|slot| Arc::clone(&slot.identity)).collect(),
            });
        }
        Ok(Self { nodes })
    }

    /// Calls `take` with every object, nodes first, until it fails.
    ///
    /// # Errors
    /// Those of `take`.
    pub(crate) fn objects<E>(
        &self,
        rules: &CapacitySection,
        mut take: impl FnMut(Value) -> Result<(), E>,
    ) -> Result<(), E> {
        for node in &self.nodes {
            take(node.object(rules))?;
        }
        let mut names: HashSet<(String, String)> = HashSet::new();
        let mut uids: HashSet<&str> = HashSet::new();
        for node in &self.nodes {
            for ((namespace, pod), containers) in node.pods() {
                let uid = containers.values().map(|c| c.pod_uid.as_str()).find(|uid| !uid.is_empty());
                if uid.is_some_and(|uid| !uids.insert(uid)) {
                    // It has moved, and the node it left has not said so yet.
                    continue;
                }
                // A unit or cgroup has the same name on every node.
                let mut name = pod.to_owned();
                if !names.insert((namespace.to_owned(), name.clone())) {
                    name = format!("{pod}.{}", node.name);
                    names.insert((namespace.to_owned(), name.clone()));
                }
                take(pod_object(&node.name, namespace, &name, uid, &containers))?;
            }
        }
        Ok(())
    }
}

/// Containers of a pod by kind and name: of one that was started again the newest.
type Containers<'a> = BTreeMap<(i32, &'a str), &'a v1::ContainerIdentity>;

impl ReportedNode {
    fn pods(&self) -> BTreeMap<(&str, &str), Containers<'_>> {
        let mut pods: BTreeMap<(&str, &str), Containers<'_>> = BTreeMap::new();
        for container in &self.containers {
            let pod = if container.pod.is_empty() { &container.id } else { &container.pod };
            let containers = pods.entry((&container.namespace, pod)).or_default();
            containers.insert((container.kind, &container.container), container);
        }
        pods
    }

    fn object(&self, rules: &CapacitySection) -> Value {
        let [cpu, memory_bytes] = allocatable(&self.facts, rules);
        let available = self.facts.memory_bytes.saturating_sub(self.used_bytes);
        let memory = available < rules.eviction_memory.get();
        let processes = rules.most_processes.is_some_and(|most| self.processes > most);
        let taint = |key: &str| json!({ "key": key, "effect": "NoSchedule" });
        let mut taints = Vec::new();
        taints.extend(memory.then(|| taint("node.kubernetes.io/memory-pressure")));
        taints.extend(processes.then(|| taint("node.kubernetes.io/pid-pressure")));
        taints.extend((!self.connected).then(|| taint("node.kubernetes.io/unreachable")));
        let state = |on: bool| if on { "True" } else { "False" };
        let size = |cpu: u64, memory: u64| {
            let mut size = BTreeMap::from([("pods".to_owned(), rules.node_pods.to_string())]);
            size.extend(others(&self.facts.allocatable));
            size.extend([("cpu".to_owned(), format!("{cpu}m")), ("memory".to_owned(), memory.to_string())]);
            size
        };
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": self.name, "labels": { "kubernetes.io/hostname": self.name } },
            "spec": { "taints": taints },
            "status": {
                "capacity": size(self.facts.cpu_milli, self.facts.memory_bytes),
                "allocatable": size(cpu, memory_bytes),
                "conditions": [
                    { "type": "MemoryPressure", "status": state(memory) },
                    { "type": "PIDPressure", "status": state(processes) },
                    { "type": "DiskPressure", "status": "Unknown", "reason": NOT_REPORTED },
                    { "type": "Ready", "status": if self.connected { "True" } else { "Unknown" } },
                ],
            },
        })
    }
}

/// What pods may request of a node, CPU (milli), then memory (bytes): what its own configuration states, else its size less what
/// is reserved.
pub(crate) fn allocatable(facts: &v1::NodeFacts, rules: &CapacitySection) -> [u64; 2] {
    let stated = |name, whole: fn(Quantity) -> Option<u64>| {
        facts.allocatable.get(name).and_then(|text| Quantity::parse(text).ok()).and_then(whole)
    };
    let reserved = rules.reserve_memory.get().saturating_add(rules.eviction_memory.get());
    [
        stated("cpu", Quantity::milli_u64)
            .unwrap_or_else(|| facts.cpu_milli.saturating_sub(rules.reserve_cpu_milli)),
        stated("memory", Quantity::to_u64).unwrap_or_else(|| facts.memory_bytes.saturating_sub(reserved)),
    ]
}

/// Amounts of other resources than CPU and memory, named as in a pod of Kubernetes: the resource model's own types have no short
/// name there.
fn others(amounts: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    const SHORT: [ResourceName; 2] = [ResourceName::EPHEMERAL_STORAGE, ResourceName::PODS];
    let amounts = amounts.iter().filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"));
    amounts.map(|(name, amount)| {
        let own = ResourceName::parse(name).ok();
        let own = own.filter(|name| name.is_native() && !name.is_hugepages() && !SHORT.contains(name));
        (own.map_or_else(|| name.clone(), |name| name.qualified().to_owned()), amount.clone())
    })
}

fn pod_object(
    node: &str,
    namespace: &str,
    name: &str,
    uid: Option<&str>,
    containers: &Containers<'_>,
) -> Value {
    // What the pod requests of other resources is known as a whole, and stands with one of its containers.
    let first = containers.keys().next();
    let of_kinds = |kinds: &[v1::ContainerKind]| -> Vec<Value> {
        let wanted = containers.iter().filter(|(_, c)| kinds.contains(&c.kind()));
        wanted.map(|(key, container)| container_object(container, first == Some(key))).collect()
    };
    let workload = containers.values().next().map_or("", |c| c.workload.as_str());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "uid": uid, "ownerReferences": owner(workload) },
        "spec": {
            "nodeName": node,
            "containers": of_kinds(&[v1::ContainerKind::Regular, v1::ContainerKind::Unspecified]),
            "initContainers": of_kinds(&[v1::ContainerKind::Init, v1::ContainerKind::Sidecar]),
        },
        "status": { "phase": "Running" },
    })
}

fn container_object(container: &v1::ContainerIdentity, for_pod: bool) -> Value {
    let asked = container.requested.unwrap_or_default();
    let list = |cpu_milli: Option<u64>, memory_bytes: Option<u64>| {
        let mut list = Map::new();
        list.extend(cpu_milli.map(|cpu| ("cpu".to_owned(), format!("{cpu}m").into())));
        list.extend(memory_bytes.map(|memory| ("memory".to_owned(), memory.to_string().into())));
        if for_pod {
            list.extend(others(&container.pod_requests).map(|(name, amount)| (name, amount.into())));
        }
        list
    };
    let mut object = json!({
        "name": container.container,
        "image": container.image,
        "resources": {
            "requests": list(asked.cpu_request_milli, asked.memory_request_bytes),
            "limits": list(asked.cpu_limit_milli, asked.memory_limit_bytes),
        },
    });
    if container.kind() == v1::ContainerKind::Sidecar {
        object["restartPolicy"] = "Always".into();
    }
    object
}

/// The owner of a workload's name such as `deployment/web`; a pod of its own has none.
fn owner(workload: &str) -> Value {
    let Some((kind, name)) = workload.split_once('/') else { return json!([]) };
    let kind = match kind {
        "daemonset" => "DaemonSet",
        "statefulset" => "StatefulSet",
        "replicaset" => "ReplicaSet",
        "deployment" => "Deployment",
        "job" => "Job",
        "cronjob" => "CronJob",
        other => other,
    };
    json!([{ "kind": kind, "name": name, "controller": true }])
}
