//! Owns what is allocated: requested, limited, used and recommended by node, namespace and cluster, against what nodes may
//! give and quotas allow.
//!
//! A pod counts as the scheduler counts it: its containers and sidecars together, or its largest init container beside the
//! sidecars. What runs on nodes that are gone is in no sum. Where no recommendation rests on two days of history, the
//! present request stands in for it. The state is copied node by node, so that ingest goes on meanwhile.

mod pods;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_capacity::object::ResourceQuota;
use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceList;
use evenkeel_proto::convert::amounts_from_wire;
use evenkeel_proto::v1;
use evenkeel_store::key::NodeKey;
use evenkeel_store::pace::Pace;
use evenkeel_store::state::StoreState;
use evenkeel_store::state::slots::memory_of;

use crate::api::Context;
use crate::capacity::reported;
use crate::config::CapacitySection;
use crate::recommend::stored::StoredRecommendations;
use pods::{OfPod, add_container};

/// Sums that are asked for by people are no older than this, microseconds: agents report each second.
pub(crate) const AT_MOST_USEC: u64 = 1_000_000;

/// CPU (milli), then memory (bytes).
type Pair<T> = [T; 2];

/// Sums by node, namespace and cluster.
#[derive(Debug, Default)]
pub(crate) struct Allocated {
    /// By node; nodes that are gone have none.
    pub(crate) nodes: BTreeMap<NodeKey, v1::Allocated>,
    /// By cluster and namespace.
    pub(crate) namespaces: BTreeMap<(String, String), v1::Allocated>,
    /// By cluster.
    pub(crate) clusters: BTreeMap<String, v1::Allocated>,
    /// Why quotas are not known; empty where they are.
    pub(crate) quota_trouble: String,
}

/// The sums made last, for those who need not have the newest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latest(Arc<Mutex<(u64, Arc<Allocated>)>>);

impl Latest {
    /// The sums, no older than so many microseconds. May take its time.
    pub(crate) fn within(&self, context: &Context, age_usec: u64) -> Arc<Allocated> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = context.engine.now_usec();
        if latest.0 == 0 || now.abs_diff(latest.0) > age_usec {
            *latest = (now.max(1), Arc::new(sums(context)));
        }
        Arc::clone(&latest.1)
    }
}

/// One container that runs.
struct Running {
    identity: Arc<v1::ContainerIdentity>,
    used: Pair<u64>,
}

/// One node and what runs on it.
struct OnNode {
    key: NodeKey,
    allocatable: Option<Pair<u64>>,
    /// What it states of other resources.
    others: ResourceList,
    containers: Vec<Running>,
}

fn sums(context: &Context) -> Allocated {
    let config = context.config.now();
    let kept = context.stored.kept();
    let nodes = gather(context, &config.capacity);
    let mut sums = Allocated::default();
    let wishes = wishes(&kept);
    for node in &nodes {
        sums.add_node(node, &wishes);
    }
    sums.set_quotas(|cluster| context.advisor.limits.quotas(cluster));
    let troubles = context.advisor.limits.troubles().into_iter();
    let troubles = troubles.map(|(path, why)| format!("objects: {}: {why}", path.display()));
    sums.quota_trouble = troubles.collect::<Vec<_>>().join("; ");
    sums
}

/// Copies what runs, holding the state for no longer than half a millisecond or one node at a time.
fn gather(context: &Context, rules: &CapacitySection) -> Vec<OnNode> {
    let shared = context.engine.state();
    let mut state = shared.study();
    let keys: Vec<NodeKey> = state.nodes().map(|(key, _)| key.clone()).collect();
    let (mut nodes, mut pace) = (Vec::with_capacity(keys.len()), Pace::start());
    for key in keys {
        nodes.extend(on_node(&state, key, rules));
        if pace.is_due() {
            drop(state);
            pace.rest();
            state = shared.study();
        }
    }
    nodes
}

/// A node's containers; nothing of one that is gone.
fn on_node(state: &StoreState, key: NodeKey, rules: &CapacitySection) -> Option<OnNode> {
    let node = state.node(&key)?;
    let stream = state.current(&key, node);
    if stream.is_some_and(|stream| !stream.counts) {
        return None;
    }
    let fresh = node.newest_usec.saturating_sub(reported::STALE_USEC);
    let slots = stream.iter().flat_map(|stream| stream.slots.iter());
    let running = slots.map(|slot| {
        let latest = slot.latest.filter(|(time, _)| *time >= fresh);
        let memory = latest.and_then(|(_, sample)| memory_of(&sample)).unwrap_or(0);
        let cpu = latest.and(slot.cpu_milli).unwrap_or(0);
        Running { identity: Arc::clone(&slot.identity), used: [cpu, memory] }
    });
    Some(OnNode {
        allocatable: node.facts.as_ref().map(|facts| reported::allocatable(facts, rules)),
        others: node.facts.as_ref().map_or_else(ResourceList::new, |facts| others(&facts.allocatable)),
        containers: running.collect(),
        key,
    })
}

/// Amounts beside CPU and memory; none of what cannot be read.
fn others(amounts: &BTreeMap<String, String>) -> ResourceList {
    let mut list = amounts_from_wire("amounts", amounts).unwrap_or_default();
    for own in [ResourceName::CPU, ResourceName::MEMORY] {
        list.remove(&own);
    }
    list
}

/// Recommended requests that rest on enough, by cluster, namespace, workload and container.
type Wishes<'a> = HashMap<[&'a str; 4], Pair<Option<u64>>>;

fn wishes(kept: &StoredRecommendations) -> Wishes<'_> {
    let mut wishes = Wishes::new();
    for r in kept.all().filter(|r| !r.young) {
        let at = usize::from(r.resource != "cpu");
        let of = [&r.cluster, &r.namespace, &r.workload, &r.container].map(String::as_str);
        wishes.entry(of).or_default()[at] = r.request;
    }
    wishes
}

impl Allocated {
    fn add_node(&mut self, node: &OnNode, wishes: &Wishes<'_>) {
        let cluster = node.key.cluster.as_str();
        let mut pods: BTreeMap<(&str, &str), (u32, Pair<OfPod>, ResourceList)> = BTreeMap::new();
        for running in &node.containers {
            let identity = &*running.identity;
            let namespace = if identity.namespace.is_empty() { "default" } else { &identity.namespace };
            let pod = if identity.pod.is_empty() { &identity.id } else { &identity.pod };
            let workload = if identity.workload.is_empty() { &identity.pod } else { &identity.workload };
            let wish = wishes.get(&[cluster, namespace, workload, &identity.container]).copied();
            let (containers, amounts, of_pod) = pods.entry((namespace, pod)).or_default();
            add_container(amounts, running, wish.unwrap_or_default());
            if of_pod.is_empty() && !identity.pod_requests.is_empty() {
                *of_pod = others(&identity.pod_requests);
            }
            *containers += u32::from(identity.kind() != v1::ContainerKind::Infrastructure);
        }
        let mut on_node = none_yet();
        if let Some([cpu, memory]) = node.allocatable {
            let of_cluster = self.clusters.entry(cluster.to_owned()).or_insert_with(none_yet);
            for (sum, amount) in resources(of_cluster).into_iter().zip([cpu, memory]) {
                sum.allocatable = Some(sum.allocatable.unwrap_or(0).saturating_add(amount));
            }
            let [of_cpu, of_memory] = resources(&mut on_node);
            (of_cpu.allocatable, of_memory.allocatable) = (Some(cpu), Some(memory));
        }
        if !node.others.is_empty() {
            let of_cluster = self.clusters.entry(cluster.to_owned()).or_insert_with(none_yet);
            for (name, amount) in node.others.iter() {
                for sum in [&mut on_node, &mut *of_cluster] {
                    add(&mut other(sum, name).allocatable, amount);
                }
            }
        }
        for ((namespace, _), (containers, amounts, others)) in pods {
            let place = (cluster.to_owned(), namespace.to_owned());
            let sums = [
                &mut on_node,
                self.namespaces.entry(place).or_insert_with(none_yet),
                self.clusters.entry(cluster.to_owned()).or_insert_with(none_yet),
            ];
            for sum in sums {
                sum.pods = sum.pods.saturating_add(1);
                sum.containers = sum.containers.saturating_add(containers);
                for (name, amount) in others.iter() {
                    add(&mut other(sum, name).requested, amount);
                }
                resources(sum).into_iter().zip(amounts).for_each(|(sum, amounts)| amounts.add_to(sum));
            }
        }
        self.nodes.insert(node.key.clone(), on_node);
    }

    /// Tells the least quota of each namespace; `quotas` gives those of a cluster.
    fn set_quotas(&mut self, quotas: impl Fn(&str) -> Vec<ResourceQuota>) {
        let mut known: BTreeMap<&str, Vec<ResourceQuota>> = BTreeMap::new();
        for ((cluster, namespace), sum) in &mut self.namespaces {
            let quotas = known.entry(cluster).or_insert_with(|| quotas(cluster));
            let of_namespace = |quota: &&ResourceQuota| {
                quota.metadata.namespace_or_default() == namespace
                    && quota.spec.scopes.is_empty()
                    && quota.spec.scope_selector.match_expressions.is_empty()
            };
            let least = |names: [&str; 2], amount: fn(Quantity) -> Option<u64>| {
                let of = quotas.iter().filter(of_namespace).flat_map(|quota| &quota.spec.hard);
                of.filter(|(name, _)| names.contains(&name.as_str()))
                    .filter_map(|(_, hard)| amount(*hard))
                    .min()
            };
            let [cpu, memory] = resources(sum);
            cpu.quota_requests = least(["cpu", "requests.cpu"], Quantity::milli_u64);
            cpu.quota_limits = least(["limits.cpu"; 2], Quantity::milli_u64);
            memory.quota_requests = least(["memory", "requests.memory"], Quantity::to_u64);
            memory.quota_limits = least(["limits.memory"; 2], Quantity::to_u64);
        }
    }
}

fn none_yet() -> v1::Allocated {
    v1::Allocated { cpu: Some(Default::default()), memory: Some(Default::default()), ..Default::default() }
}

/// The sum of another resource, begun where there is none.
fn other<'a>(sum: &'a mut v1::Allocated, name: &ResourceName) -> &'a mut v1::AllocatedAmount {
    let nothing = || v1::AllocatedAmount { requested: "0".into(), ..Default::default() };
    sum.others.entry(name.to_string()).or_insert_with(nothing)
}

fn add(sum: &mut String, amount: Quantity) {
    let sum_so_far = Quantity::parse(sum).map_or(amount, |so_far| so_far.saturating_add(amount));
    *sum = sum_so_far.canonical();
}

/// CPU, then memory.
fn resources(sum: &mut v1::Allocated) -> Pair<&mut v1::AllocatedResource> {
    [sum.cpu.get_or_insert_default(), sum.memory.get_or_insert_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(pod: &str, name: &str, kind: v1::ContainerKind, cpu: [Option<u64>; 2]) -> Running {
        let requested =
            v1::ResourceValues { cpu_request_milli: cpu[0], cpu_limit_milli: cpu[1], ..Default::default() };
        let identity = v1::ContainerIdentity {
            namespace: "shop".into(),
            pod: pod.into(),
            workload: "deployment/web".into(),
            container: name.into(),
            kind: kind.into(),
            requested: Some(requested),
            pod_requests: BTreeMap::from([("example.com/x".to_owned(), "1500m".to_owned())]),
            ..Default::default()
        };
        Running { identity: Arc::new(identity), used: [10, 1 << 20] }
    }

    #[test]
    fn pods_count_as_the_scheduler_counts_them_and_recommendations_that_are_young_do_not() {
        use v1::ContainerKind::{Infrastructure, Init, Regular, Sidecar};
        let key = |node: &str| NodeKey { cluster: "c".into(), node: node.into() };
        let first = OnNode {
            key: key("a"),
            allocatable: Some([4000, 8 << 30]),
            others: others(&BTreeMap::from([
                ("example.com/x".into(), "4".into()),
                ("cpu".into(), "4".into()),
            ])),
            containers: vec![
                container("web-1", "app", Regular, [Some(300), Some(600)]),
                container("web-1", "proxy", Sidecar, [Some(100), None]),
                container("web-1", "migrate", Init, [Some(700), Some(700)]),
                container("web-1", "pause", Infrastructure, [Some(2), None]),
            ],
        };
        // Only a limit is given: it is the request, too.
        let second = OnNode {
            key: key("b"),
            allocatable: None,
            others: ResourceList::new(),
            containers: vec![container("web-2", "app", Regular, [None, Some(500)])],
        };
        let wish = |container, young| v1::Recommendation {
            cluster: "c".into(),
            namespace: "shop".into(),
            workload: "deployment/web".into(),
            container,
            resource: "cpu".into(),
            request: Some(50),
            young,
            ..Default::default()
        };
        let kept = StoredRecommendations::of([wish("app".to_owned(), false), wish("proxy".to_owned(), true)]);
        let mut sums = Allocated::default();
        [first, second].iter().for_each(|node| sums.add_node(node, &wishes(&kept)));
        let cpu = |sum: &v1::Allocated| sum.cpu.unwrap();
        let a = cpu(&sums.nodes[&key("a")]);
        assert_eq!((a.allocatable, a.requested, a.limited, a.unlimited), (Some(4000), 800, 700, 1));
        assert_eq!(
            (a.recommended, a.recommended_containers, a.used),
            (800, 1, 40),
            "the init container is larger"
        );
        let b = cpu(&sums.nodes[&key("b")]);
        assert_eq!((b.allocatable, b.requested, b.limited, b.recommended), (None, 500, 500, 50));
        let shop = &sums.namespaces[&("c".to_owned(), "shop".to_owned())];
        assert_eq!(
            (shop.pods, shop.containers, cpu(shop).requested, cpu(shop).allocatable),
            (2, 4, 1300, None)
        );
        let all = cpu(&sums.clusters["c"]);
        assert_eq!((all.allocatable, all.requested, all.recommended), (Some(4000), 1300, 850));
        let x = |sum: &v1::Allocated| {
            let x = sum.others["example.com/x"].clone();
            (sum.others.len(), x.allocatable, x.requested)
        };
        let told = |allocatable: &str, requested: &str| (1, allocatable.to_owned(), requested.to_owned());
        assert_eq!(x(&sums.nodes[&key("a")]), told("4", "1500m"), "what a pod requests counts once");
        assert_eq!(x(&sums.nodes[&key("b")]), told("", "1500m"));
        assert_eq!((x(shop), x(&sums.clusters["c"])), (told("", "3"), told("4", "3")));
    }

    #[test]
    fn of_several_quotas_the_least_one_counts_and_none_with_scopes() {
        let quota = |hard: serde_json::Value| -> ResourceQuota {
            serde_json::from_value(serde_json::json!({"metadata": {"namespace": "shop"}, "spec": hard}))
                .unwrap()
        };
        let quotas = [
            quota(serde_json::json!({"hard": {"requests.cpu": "4", "limits.memory": "8Gi"}})),
            quota(serde_json::json!({"hard": {"cpu": "3500m"}})),
            quota(serde_json::json!({"hard": {"cpu": "1"}, "scopes": ["BestEffort"]})),
        ];
        let mut sums = Allocated::default();
        for namespace in ["shop", "other"] {
            sums.namespaces.insert(("c".into(), namespace.into()), none_yet());
        }
        sums.set_quotas(|_| quotas.to_vec());
        let of = |namespace: &str| sums.namespaces[&("c".to_owned(), namespace.to_owned())].clone();
        let (cpu, memory) = (of("shop").cpu.unwrap(), of("shop").memory.unwrap());
        assert_eq!((cpu.quota_requests, cpu.quota_limits), (Some(3500), None));
        assert_eq!((memory.quota_requests, memory.quota_limits), (None, Some(8 << 30)));
        assert_eq!(of("other").cpu.unwrap().quota_requests, None);
    }
}
