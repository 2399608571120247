//! Extenders and preemption (`callExtenders` in `pkg/scheduler/framework/preemption`): they see which pods would go on
//! which nodes, and leave some of the nodes, perhaps with other pods.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::answer::Preempted;
use super::{Extender, sent, short};
use crate::cluster::{Cluster, NodeIndex, PodInfo, Uid};
use crate::state::ClusterState;

/// Who would go from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proposal {
    /// The node.
    pub(crate) node: NodeIndex,
    /// Who goes, by place among the state's placements.
    pub(crate) victims: Vec<usize>,
    /// How many of them break a disruption budget.
    pub(crate) broken: usize,
}

/// A pod on a node, as extenders know it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Identity {
    /// Namespace and name.
    pub(crate) pod: String,
    /// The API server's identifier.
    pub(crate) uid: Option<Uid>,
}

impl Identity {
    /// Of a pod that has no identifier, its namespace and name stand for it.
    fn uid(&self) -> String {
        self.uid.map_or_else(|| self.pod.clone(), |uid| uid.to_string())
    }
}

/// What there is to see.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) state: &'a ClusterState,
    /// The pod that room is made for.
    pub(crate) pod: &'a PodInfo,
    /// Who is at a place among the state's placements; nobody where it was put there by the count.
    pub(crate) who: &'a dyn Fn(usize) -> Option<&'a Identity>,
}

/// What is left of the proposals. Where the count cannot go on, nothing.
pub(crate) fn preempt<'e>(
    extenders: impl Iterator<Item = &'e Extender>,
    scene: Scene<'_>,
    mut proposals: Vec<Proposal>,
) -> Vec<Proposal> {
    let asked = extenders.filter(|extender| {
        !extender.settings.preempt_verb.is_empty() && extender.takes(scene.cluster, scene.pod)
    });
    for extender in asked {
        if proposals.is_empty() {
            break;
        }
        match extender.preempt(scene, &proposals) {
            Ok(left) => proposals = left,
            Err(why) if extender.settings.ignorable => extender.passed_over(&why),
            Err(why) => {
                extender.fail(why);
                return Vec::new();
            }
        }
    }
    proposals
}

impl Extender {
    fn preempt(&self, scene: Scene<'_>, proposals: &[Proposal]) -> Result<Vec<Proposal>, String> {
        let arguments = self.preemption_arguments(scene, proposals).to_string();
        let verb = &self.settings.preempt_verb;
        let answer = self.ask(verb, arguments.clone(), Vec::new(), || arguments.into_bytes())?;
        let read = serde_json::from_value::<Preempted>(answer);
        let answer = read.map_err(|error| format!("its answer is no ExtenderPreemptionResult: {error}"))?;
        if answer.nodenametometavictims.is_none() {
            let odd = "it names no NodeNameToMetaVictims, which the scheduler takes for no node";
            self.remark(odd.to_owned());
        }
        let mut left = Vec::new();
        for (name, victims) in answer.nodenametometavictims.unwrap_or_default() {
            let node = scene
                .cluster
                .node(&name)
                .ok_or_else(|| format!("it names the node {:?}, which is not there", short(&name)))?;
            let victims = victims.unwrap_or_default();
            let broken = usize::try_from(victims.numpdbviolations).unwrap_or(0);
            let uids = victims.pods.unwrap_or_default().into_iter().map(|pod| pod.uid);
            let mut victims = uids.map(|uid| found(scene, node, &uid)).collect::<Result<Vec<_>, _>>()?;
            victims.sort_unstable();
            victims.dedup();
            if victims.is_empty() {
                let why = format!("expected at least one victim pod on node {:?}", short(&name));
                if !self.settings.ignorable {
                    return Err(why);
                }
                self.passed_over(&why);
                continue;
            }
            left.push(Proposal { node, victims, broken });
        }
        Ok(left)
    }

    /// `ExtenderPreemptionArgs`.
    fn preemption_arguments(&self, scene: Scene<'_>, proposals: &[Proposal]) -> Value {
        let whole = !self.settings.names_only;
        let victims: BTreeMap<&str, Value> = proposals
            .iter()
            .map(|Proposal { node, victims, broken }| {
                let name = scene.cluster.word(scene.cluster.nodes[*node].name);
                let one = |at: &usize| victim(scene, *at, name, whole);
                let pods: Vec<Value> = victims.iter().map(one).collect();
                (name, json!({ "Pods": pods, "NumPDBViolations": broken }))
            })
            .collect();
        let pod = sent::known(scene.cluster, scene.pod);
        let (victims, names) =
            if whole { (json!(victims), Value::Null) } else { (Value::Null, json!(victims)) };
        json!({ "Pod": pod, "NodeNameToVictims": victims, "NodeNameToMetaVictims": names })
    }
}

/// A pod that would go: all that is known of it, or what tells it apart.
fn victim(scene: Scene<'_>, at: usize, node: &str, whole: bool) -> Value {
    let nobody = Identity::default();
    let who = (scene.who)(at).unwrap_or(&nobody);
    if !whole {
        return json!({ "UID": who.uid() });
    }
    let (id, _) = scene.state.placements[at];
    let mut pod = sent::known(scene.cluster, scene.state.pod(id));
    let name = who.pod.split_once('/').map_or(who.pod.as_str(), |(_, name)| name);
    pod["metadata"]["name"] = name.into();
    pod["metadata"]["uid"] = who.uid().into();
    pod["spec"]["nodeName"] = node.into();
    pod["status"] = json!({ "phase": "Running" });
    pod
}

/// The pod of an identifier on a node.
fn found(scene: Scene<'_>, node: NodeIndex, uid: &str) -> Result<usize, String> {
    let is_it = |at: &usize| {
        let (_, on) = scene.state.placements[*at];
        on as usize == node && (scene.who)(*at).is_some_and(|who| who.uid() == uid)
    };
    (0..scene.state.placements.len()).find(is_it).ok_or_else(|| {
        let name = scene.cluster.word(scene.cluster.nodes[node].name);
        let uid = short(uid);
        format!("it claims to preempt pod (UID: {uid}) on node {name}, but the pod is not found on that node")
    })
}
