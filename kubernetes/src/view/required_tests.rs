//! What a node is told of its pods: exact words, what changed alone, and the same set in the end.

use std::collections::BTreeMap;

use evenkeel_model::pod::PodRequirements;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::ContainerKind;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{kind, pod, put};
use super::{ClusterView, NodePods};

/// A view whose list of pods is whole.
fn listed(pods: &[Value]) -> ClusterView {
    let view = ClusterView::default();
    list(&view, pods);
    view
}

fn list(view: &ClusterView, pods: &[Value]) {
    let mark = view.begin(kind("Pod"));
    pods.iter().for_each(|pod| view.put(kind("Pod"), pod.to_string().as_bytes(), mark).unwrap());
    view.end(kind("Pod"), mark);
}

fn remove(view: &ClusterView, pod: &Value) {
    view.remove(kind("Pod"), pod.to_string().as_bytes()).unwrap();
}

/// An agent's set.
#[derive(Debug, Default)]
struct Agent {
    node: String,
    known: (u64, u64),
    pods: BTreeMap<String, PodRequirements>,
}

impl Agent {
    fn of(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    fn look(&mut self, view: &ClusterView) -> Option<NodePods> {
        let told = view.node_pods(&self.node, self.known)?;
        if told.whole {
            self.pods.clear();
        }
        for pod in &told.changed {
            self.pods.insert(pod.uid.clone(), pod.clone());
        }
        for uid in &told.gone {
            self.pods.remove(uid);
        }
        self.known = (told.run, told.generation);
        Some(told)
    }

    fn names(&self) -> Vec<&str> {
        self.pods.values().map(|pod| &*pod.name).collect()
    }
}

fn named(told: Option<NodePods>) -> (bool, Vec<String>, Vec<String>) {
    let told = told.unwrap();
    (told.whole, told.changed.into_iter().map(|pod| pod.name).collect(), told.gone)
}

#[test]
fn a_node_is_told_its_own_pods_and_then_what_changed() {
    let view = ClusterView::default();
    put(&view, &pod("web-a-1", "n1", 100));
    let mut agent = Agent::of("n1");
    assert!(agent.look(&view).is_none(), "pods are not listed yet");
    list(&view, &[pod("web-a-1", "n1", 100), pod("web-a-2", "n2", 100), pod("waits", "", 100)]);
    assert_eq!(named(agent.look(&view)), (true, vec!["web-a-1".into()], vec![]));
    assert!(agent.look(&view).is_none());
    // What does not concern requirements is not told, nor is a new list of the same.
    let mut same = pod("web-a-1", "n1", 100);
    same["metadata"]["labels"]["more"] = "labels".into();
    put(&view, &same);
    list(&view, &[same, pod("web-a-2", "n2", 100)]);
    put(&view, &pod("web-a-2", "n2", 300));
    assert!(agent.look(&view).is_none());
    put(&view, &pod("web-a-1", "n1", 200));
    put(&view, &pod("web-a-3", "n1", 100));
    assert_eq!(named(agent.look(&view)), (false, vec!["web-a-1".into(), "web-a-3".into()], vec![]));
    // One that ended, one that went, and one whose name another has now.
    let mut ended = pod("web-a-1", "n1", 200);
    ended["status"]["phase"] = "Succeeded".into();
    put(&view, &ended);
    remove(&view, &pod("web-a-3", "n1", 100));
    assert_eq!(named(agent.look(&view)), (false, vec![], vec!["0000-web-a-1".into(), "0000-web-a-3".into()]));
    let mut again = pod("web-a-1", "n1", 200);
    put(&view, &again);
    agent.look(&view);
    again["metadata"]["uid"] = "1111".into();
    put(&view, &again);
    assert_eq!(named(agent.look(&view)), (false, vec!["web-a-1".into()], vec!["0000-web-a-1".into()]));
    assert_eq!(agent.names(), ["web-a-1"]);
    // A node without pods is told that, once; of no node nothing is told.
    let mut other = Agent::of("n3");
    assert_eq!(named(other.look(&view)), (true, vec![], vec![]));
    assert!(other.look(&view).is_none() && Agent::of("").look(&view).is_none());
    // Another recommender counts by itself.
    let second = listed(&[pod("web-a-9", "n1", 100)]);
    assert_eq!(named(agent.look(&second)), (true, vec!["web-a-9".into()], vec![]));
}

#[test]
fn who_missed_too_much_is_told_everything() {
    let view = listed(&[pod("stays", "n1", 100)]);
    let (mut near, mut far) = (Agent::of("n1"), Agent::of("n1"));
    near.look(&view);
    far.look(&view);
    for at in 0..100 {
        let job = pod(&format!("job-{at}"), "n1", 100);
        put(&view, &job);
        near.look(&view);
        remove(&view, &job);
        assert!(!near.look(&view).unwrap().whole);
    }
    assert!(far.look(&view).unwrap().whole);
    assert_eq!((near.names(), far.names()), (vec!["stays"], vec!["stays"]));
}

#[test]
fn nodes_that_are_gone_leave_nothing_behind() {
    let view = listed(&[]);
    let mut agent = Agent::of("heard");
    let _bell = view.node_bell("heard");
    for round in 0..5000 {
        let one = pod("web-a-1", &format!("n{round}"), round + 1);
        put(&view, &one);
        agent.look(&view);
    }
    let mut late = Agent::of("n7");
    assert!(late.look(&view).unwrap().whole && late.look(&view).is_none());
    assert!(view.read().pods.on_nodes.count() < 4096, "{}", view.read().pods.on_nodes.count());
    assert!(view.read().pods.on_nodes.get("heard").is_some());
}

#[test]
fn the_bell_rings_for_the_pods_of_a_node_alone() {
    let view = listed(&[]);
    let bell = view.node_bell("n1");
    let has_rung = || {
        let mut waits = std::pin::pin!(bell.notified());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        waits.as_mut().poll(&mut context).is_ready()
    };
    put(&view, &pod("web-a-2", "n2", 100));
    assert!(!has_rung());
    for change in [pod("web-a-1", "n1", 100), pod("web-a-1", "n1", 200), pod("web-a-1", "n2", 200)] {
        put(&view, &change);
        assert!(has_rung() && !has_rung());
    }
}

fn one(node: &str, pod: &Value) -> PodRequirements {
    let view = listed(std::slice::from_ref(pod));
    view.node_pods(node, (0, 0)).unwrap().changed.remove(0)
}

fn told(list: &evenkeel_model::requirements::Requirements) -> String {
    let words = |list: &evenkeel_model::requirements::ResourceList| {
        list.iter().map(|(name, amount)| format!("{}={amount}", name.short())).collect::<Vec<_>>().join(" ")
    };
    format!("{} | {}", words(&list.requests), words(&list.limits))
}

#[test]
fn what_is_told_are_the_exact_words_of_the_api_server() {
    let object = json!({
        "metadata": {
            "name": "etcd-n1", "namespace": "kube-system", "uid": "api-uid",
            "annotations": { "kubernetes.io/config.hash": "abc", "kubernetes.io/config.mirror": "abc", "kubernetes.io/config.source": "file" },
        },
        "spec": {
            "nodeName": "n1", "priority": 2_000_001_000, "priorityClassName": "system-node-critical",
            "overhead": { "memory": "120Mi" }, "resources": { "limits": { "memory": "2Gi" } },
            "initContainers": [
                { "name": "setup", "resources": { "requests": { "cpu": "150m" } } },
                { "name": "proxy", "restartPolicy": "Always", "resources": { "requests": { "memory": "16Mi" } } },
            ],
            "containers": [
                { "name": "main", "resources": { "requests": { "cpu": "0.5", "memory": "1000000k" }, "limits": { "nvidia.com/gpu": "1" } } },
                { "name": "side" },
            ],
        },
        "status": { "phase": "Running", "qosClass": "Burstable" },
    });
    let got = one("n1", &object);
    assert_eq!(
        (&*got.uid, &*got.namespace, &*got.name, got.uid_on_node()),
        ("api-uid", "kube-system", "etcd-n1", "abc")
    );
    assert_eq!(
        (got.priority, got.priority_class_name.as_deref()),
        (Some(2_000_001_000), Some("system-node-critical"))
    );
    assert_eq!(
        (got.qos_class, got.overhead.memory().unwrap().to_string()),
        (Some(QosClass::Burstable), "120Mi".into())
    );
    assert_eq!(told(got.resources.as_ref().unwrap()), " | memory=2Gi");
    let containers: Vec<_> = got.containers.iter().map(|c| (&*c.name, c.kind, told(&c.resources))).collect();
    assert_eq!(
        containers,
        [
            ("setup", ContainerKind::Init, "cpu=150m | ".to_owned()),
            ("proxy", ContainerKind::Sidecar, "memory=16Mi | ".to_owned()),
            ("main", ContainerKind::Regular, "cpu=500m memory=1G | nvidia.com/gpu=1".to_owned()),
            ("side", ContainerKind::Regular, " | ".to_owned()),
        ]
    );
    // Of a pod that is no mirror the annotation says nothing, as of one without annotations.
    let mut plain = object;
    plain["metadata"]["annotations"] = json!({ "kubernetes.io/config.hash": "abc" });
    assert_eq!(one("n1", &plain).uid_on_node(), "api-uid");
    plain["metadata"]["annotations"] = Value::Null;
    plain["status"] = Value::Null;
    assert_eq!((one("n1", &plain).uid_on_node(), one("n1", &plain).qos_class), ("api-uid", None));
}

#[test]
fn while_a_resize_is_on_its_way_what_is_in_force_is_told() {
    let resources = |cpu: &str| json!({ "requests": { "cpu": cpu }, "limits": { "cpu": cpu } });
    let mut object = pod("web-a-1", "n1", 100);
    object["spec"]["containers"][0]["resources"] = resources("300m");
    let view = listed(std::slice::from_ref(&object));
    let mut agent = Agent::of("n1");
    let mut cpu = |view: &ClusterView| {
        agent.look(view);
        told(&agent.pods["0000-web-a-1"].containers[0].resources)
    };
    assert_eq!(cpu(&view), "cpu=300m | cpu=300m", "its node has said nothing yet");
    object["status"]["containerStatuses"] = json!([{ "name": "c", "resources": resources("100m") }]);
    object["status"]["conditions"] = json!([{ "type": "PodResizePending", "reason": "Deferred" }]);
    put(&view, &object);
    assert_eq!(cpu(&view), "cpu=100m | cpu=100m");
    object["status"]["containerStatuses"][0]["resources"] = resources("300m");
    object["status"]["conditions"] = json!([]);
    put(&view, &object);
    assert_eq!(cpu(&view), "cpu=300m | cpu=300m");
    object["status"]["containerStatuses"][0]["resources"] = json!({});
    put(&view, &object);
    assert_eq!(cpu(&view), " | ", "nothing is in force");
}

/// What happens to a cluster of a few pods and nodes.
#[derive(Debug, Clone)]
enum Step {
    /// A pod is there with this much CPU; a higher number of its life is a later pod of the name.
    Put {
        name: u8,
        node: u8,
        milli: u32,
        life: u8,
        has_ended: bool,
    },
    Remove(u8),
    /// Only pods of these numbers are listed.
    List(Vec<u8>),
    Look(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6_u8, 0..3_u8, 1..4_u32, 0..2_u8, any::<bool>())
            .prop_map(|(name, node, milli, life, has_ended)| Step::Put { name, node, milli, life, has_ended: has_ended && life == 0 }),
        1 => (0..6_u8).prop_map(Step::Remove),
        1 => prop::collection::vec(0..6_u8, 0..6).prop_map(Step::List),
        2 => (0..4_u8).prop_map(Step::Look),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whenever an agent looks, and whatever it knew before, it knows what is there.
    #[test]
    fn after_any_changes_a_set_equals_the_whole(steps in prop::collection::vec(step(), 1..60)) {
        let view = listed(&[]);
        let mut there: BTreeMap<u8, Value> = BTreeMap::new();
        let mut agents: Vec<Agent> = ["n0", "n1", "n2", "n0"].map(Agent::of).into();
        for step in steps {
            match step {
                Step::Put { name, node, milli, life, has_ended } => {
                    let mut one = pod(&format!("p-{name}"), &format!("n{node}"), milli);
                    one["metadata"]["uid"] = format!("uid-{name}-{life}").into();
                    if has_ended {
                        one["status"]["phase"] = "Failed".into();
                    }
                    put(&view, &one);
                    there.insert(name, one);
                }
                Step::Remove(name) => {
                    if let Some(one) = there.remove(&name) {
                        remove(&view, &one);
                    }
                }
                Step::List(names) => {
                    there.retain(|name, _| names.contains(name));
                    list(&view, &there.values().cloned().collect::<Vec<_>>());
                }
                Step::Look(at) => {
                    let agent = &mut agents[usize::from(at)];
                    agent.look(&view);
                    let whole = view.node_pods(&agent.node, (0, 0)).unwrap();
                    let known: Vec<_> = agent.pods.values().cloned().collect();
                    let mut all = whole.changed;
                    all.sort_by(|a, b| a.uid.cmp(&b.uid));
                    prop_assert_eq!(&known, &all);
                    let of_node = |pod: &&Value| pod["spec"]["nodeName"] == agent.node && pod["status"]["phase"] == "Running";
                    prop_assert_eq!(known.len(), there.values().filter(of_node).count());
                }
            }
        }
    }
}
