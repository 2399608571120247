//! The nodes of a cluster: agents end, and a pod on each node gives back what they set and removes their state.
//!
//! The pod is made of the agents' own: same image, rights and volumes, so that what is true of one is true of the other. The DaemonSets stay
//! until all is done, with a selector that no node meets: whatever breaks off can be run again.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::objects::{DAEMON_SET, NODE, POD, name};
use super::{StepResult, UninstallArgs, UninstallStep};
use crate::cluster::{ApiConnection, ChangeResult};
use crate::failure::Failure;

/// What the agents' DaemonSets and pods are called.
const AGENT: &str = "evenkeel-agent";
/// What the pods that restore are called.
const RESTORE: &str = "evenkeel-restore";
/// A label that no node has.
const NOWHERE: &str = "evenkeel.dev/uninstalled";
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// Pods that restore at once: each takes a second or two, and the API server is not ours alone.
const AT_ONCE: usize = 50;

/// Restores every node, and says how each ended.
///
/// # Errors
/// When the API server refuses a question, or a step that all nodes need.
pub(super) fn restore(
    cluster: &mut ApiConnection,
    args: &UninstallArgs,
) -> Result<Vec<UninstallStep>, Failure> {
    let sets = of_component(cluster.all(&DAEMON_SET.path(&args.namespace))?, AGENT);
    let Some(set) = sets.first() else {
        return Ok(vec![UninstallStep::new("restore", "nodes", StepResult::Left).because(format!(
            "no DaemonSet of the agent is in namespace {}: no node is restored",
            args.namespace
        ))]);
    };
    let nodes = cluster.all(&NODE.path(""))?;
    let (ready, unready): (Vec<&Value>, Vec<&Value>) = nodes.iter().partition(|node| is_ready(node));
    let mut steps: Vec<UninstallStep> = unready.iter().map(|node| unreachable(name(node), args)).collect();
    if !args.yes {
        steps.extend(
            ready.iter().map(|node| UninstallStep::new("restore", shown(name(node)), StepResult::WouldDo)),
        );
        return Ok(steps);
    }
    if steps.iter().any(|step| step.result == StepResult::Failed) {
        return Ok(steps);
    }
    let ready: BTreeSet<String> = ready.into_iter().map(|node| name(node).to_owned()).collect();
    let ends = Instant::now() + args.timeout;
    stop_agents(cluster, args, &sets)?;
    let mut run = Restoring { cluster, args, template: set, ends };
    let waiting = run.agents_left(&ready)?;
    let (stuck, free): (Vec<String>, Vec<String>) =
        ready.into_iter().partition(|node| waiting.contains(node));
    steps.extend(stuck.into_iter().map(|node| failed(&node, "its agent did not end in time", args)));
    for nodes in free.chunks(AT_ONCE) {
        steps.extend(run.on(nodes)?);
    }
    Ok(steps)
}

fn of_component(objects: Vec<Value>, component: &str) -> Vec<Value> {
    let is = |object: &Value| object["metadata"]["labels"]["app.kubernetes.io/name"] == component;
    objects.into_iter().filter(is).collect()
}

fn is_ready(node: &Value) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn shown(node: &str) -> String {
    format!("node {node}")
}

fn unreachable(node: &str, args: &UninstallArgs) -> UninstallStep {
    if args.skip_unready {
        let why = "it is not ready; what was set there stays until it starts again";
        return UninstallStep::new("restore", shown(node), StepResult::Left).because(why);
    }
    let why = "it is not ready: wait until it is, delete it, or go on without it by --skip-unready";
    UninstallStep::new("restore", shown(node), StepResult::Failed).because(why)
}

fn failed(node: &str, why: &str, args: &UninstallArgs) -> UninstallStep {
    let again = format!(
        "run this again, or evenkeel-agent restore there; agents stay away meanwhile: take {NOWHERE} out of the \
                         nodeSelector of the DaemonSets in namespace {} to have them back",
        args.namespace
    );
    UninstallStep::new("restore", shown(node), StepResult::Failed).because(format!("{why}; {again}"))
}

/// Takes the agents from all nodes.
fn stop_agents(cluster: &mut ApiConnection, args: &UninstallArgs, sets: &[Value]) -> Result<(), Failure> {
    let patch = json!({ "spec": { "template": { "spec": { "nodeSelector": { NOWHERE: "true" } } } } });
    for set in sets {
        cluster.merge(&DAEMON_SET.one(&args.namespace, name(set)), &patch)?;
    }
    Ok(())
}

/// The second half: agents are told to end.
struct Restoring<'a> {
    cluster: &'a mut ApiConnection,
    args: &'a UninstallArgs,
    /// The DaemonSet whose pods those that restore are made of.
    template: &'a Value,
    ends: Instant,
}

impl Restoring<'_> {
    /// Waits until no agent runs on these nodes; those where one still does when the time is over.
    fn agents_left(&mut self, nodes: &BTreeSet<String>) -> Result<BTreeSet<String>, Failure> {
        loop {
            let pods = of_component(self.cluster.all(&POD.path(&self.args.namespace))?, AGENT);
            let on = pods.iter().filter_map(|pod| pod["spec"]["nodeName"].as_str());
            let left: BTreeSet<String> = on.filter(|node| nodes.contains(*node)).map(str::to_owned).collect();
            if left.is_empty() || Instant::now() >= self.ends {
                return Ok(left);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Restores some nodes at once.
    fn on(&mut self, nodes: &[String]) -> Result<Vec<UninstallStep>, Failure> {
        let path = POD.path(&self.args.namespace);
        for node in nodes {
            let pod = restoring(self.template, node);
            // One of an earlier try.
            while self.cluster.create(&path, &pod)? == ChangeResult::Exists && Instant::now() < self.ends {
                self.cluster.delete(&POD.one(&self.args.namespace, name(&pod)))?;
                thread::sleep(PAUSE);
            }
        }
        let mut steps = Vec::new();
        let mut left: BTreeSet<&String> = nodes.iter().collect();
        while !left.is_empty() {
            let is_over = Instant::now() >= self.ends;
            for pod in of_component(self.cluster.all(&path)?, RESTORE) {
                let node = pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned();
                let (true, Some(result)) = (left.contains(&node), ended(&pod)) else { continue };
                left.remove(&node);
                steps.push(match result {
                    Ok(()) => UninstallStep::new("restore", shown(&node), StepResult::Done),
                    Err(why) => failed(&node, &why, self.args),
                });
                self.cluster.delete(&POD.one(&self.args.namespace, name(&pod)))?;
            }
            if is_over {
                for node in std::mem::take(&mut left) {
                    steps.push(failed(node, "its pod did not end in time", self.args));
                    self.cluster.delete(&POD.one(&self.args.namespace, &pod_name(node)))?;
                }
            } else if !left.is_empty() {
                thread::sleep(PAUSE);
            }
        }
        Ok(steps)
    }
}

/// How a pod that restores ended; nothing while it has not.
fn ended(pod: &Value) -> Option<Result<(), String>> {
    match pod["status"]["phase"].as_str() {
        Some("Succeeded") => Some(Ok(())),
        Some("Failed") => {
            let state = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            let said = state["message"].as_str().or(pod["status"]["message"].as_str());
            let said = said.map(str::trim).filter(|said| !said.is_empty()).unwrap_or("its pod failed");
            Some(Err(said.replace('\n', "; ")))
        }
        _ => None,
    }
}

/// The name of a node's pod, within what names may have.
fn pod_name(node: &str) -> String {
    const MOST: usize = 253;
    let mut name = format!("{RESTORE}-{node}");
    name.truncate(MOST);
    name.trim_end_matches(['-', '.']).to_owned()
}

/// A pod that restores a node and ends: the agent's, with another command and none of its surroundings.
fn restoring(set: &Value, node: &str) -> Value {
    let mut spec = set["spec"]["template"]["spec"].clone();
    let mut container = spec["containers"][0].clone();
    if let Some(container) = container.as_object_mut() {
        for key in ["command", "readinessProbe", "livenessProbe", "startupProbe", "lifecycle"] {
            container.remove(key);
        }
        container.insert("name".to_owned(), json!("restore"));
        container.insert("args".to_owned(), json!(["restore", "--purge"]));
        container.insert("env".to_owned(), json!([{ "name": "EVENKEEL_AGENT_MODE", "value": "enforce" }]));
        // What went wrong is told where the pod's end is.
        container.insert("terminationMessagePolicy".to_owned(), json!("FallbackToLogsOnError"));
    }
    if let Some(spec) = spec.as_object_mut() {
        for key in ["initContainers", "affinity", "nodeSelector", "topologySpreadConstraints"] {
            spec.remove(key);
        }
        spec.insert("containers".to_owned(), json!([container]));
        spec.insert("nodeName".to_owned(), json!(node));
        spec.insert("restartPolicy".to_owned(), json!("Never"));
        spec.insert("tolerations".to_owned(), json!([{ "operator": "Exists" }]));
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {
            "name": pod_name(node),
            "labels": { "app.kubernetes.io/name": RESTORE, "app.kubernetes.io/part-of": "evenkeel" },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_that_restores_is_the_agents_with_another_command() {
        let text = include_str!("../../../../packaging/kubernetes/base/agent.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
        for set in objects.iter().filter(|object| object["kind"] == "DaemonSet") {
            let agents = &set["spec"]["template"]["spec"];
            let pod = restoring(set, "n1");
            let spec = &pod["spec"];
            for same in ["volumes", "hostPID", "hostNetwork", "serviceAccountName", "priorityClassName"] {
                assert_eq!(spec[same], agents[same], "{same}");
            }
            let (container, agent) = (&spec["containers"][0], &agents["containers"][0]);
            for same in ["image", "securityContext", "volumeMounts", "resources"] {
                assert_eq!(container[same], agent[same], "{same}");
            }
            assert_eq!(container["args"], json!(["restore", "--purge"]));
            assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
            assert_eq!((&spec["nodeName"], &spec["restartPolicy"]), (&json!("n1"), &json!("Never")));
            for none in ["initContainers", "affinity", "nodeSelector"] {
                assert!(spec.get(none).is_none(), "{none}");
            }
            assert!(container.get("readinessProbe").is_none());
        }
    }

    #[test]
    fn names_of_pods_are_within_what_names_may_have() {
        assert_eq!(pod_name("n1.example"), "evenkeel-restore-n1.example");
        assert_eq!(pod_name(&"n".repeat(253)).len(), 253);
        assert!(!pod_name(&format!("{}.x", "n".repeat(235))).ends_with('.'));
    }
}
