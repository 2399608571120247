//! Owns whose pods an object means: those of the controller at their top, as the view shows, else those that the controller says it selects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_kubernetes::objects::{Autoscaler, Resolved, TargetRef, Targets};
use evenkeel_kubernetes::{ApiServer, ClusterView, WorkloadGroup};
use tracing::debug;

use super::checkpoints::OfObject;

/// Controllers that are asked about in a round; the others are in the next ones.
const ASKED: usize = 100;

/// What an object means.
#[derive(Debug, Clone)]
pub(super) struct Means {
    pub(super) object: Arc<Autoscaler>,
    /// Names under which its pods' past is kept: controllers at the top, and the pods themselves.
    pub(super) workloads: BTreeSet<String>,
    /// Containers that run in its pods; none where it has no pods.
    pub(super) containers: BTreeSet<String>,
    /// Why its target cannot be used.
    pub(super) trouble: Option<String>,
    /// What checkpoints know of its containers.
    pub(super) known: OfObject,
}

impl Means {
    fn group(object: &Arc<Autoscaler>, workload: Option<String>, group: &WorkloadGroup) -> Self {
        let workloads = group.workloads.iter().chain(&group.pods).cloned().chain(workload).collect();
        let containers = group.containers.clone();
        Self { object: Arc::clone(object), workloads, containers, trouble: None, known: OfObject::default() }
    }

    /// One whose target cannot be used; what is known of its name goes on to be told.
    fn unusable(object: &Arc<Autoscaler>, workload: Option<String>, why: String) -> Self {
        Self { trouble: Some(why), ..Self::group(object, workload, &WorkloadGroup::default()) }
    }
}

/// Questions of a round about targets.
#[derive(Debug, Default)]
pub(super) struct Asks {
    asked: usize,
    is_silent: bool,
}

impl Asks {
    /// What a target selects; nothing where that is not known now, and is asked another time.
    pub(super) async fn resolve(
        &mut self,
        targets: &Targets,
        api: &ApiServer,
        namespace: &str,
        target: &TargetRef,
    ) -> Option<Resolved> {
        let known = targets.known(namespace, target);
        if known.is_some() || self.asked >= ASKED || self.is_silent {
            return known;
        }
        self.asked += 1;
        let asked = targets.ask(api, namespace, target).await;
        if let Err(error) = &asked {
            debug!(%error, namespace, kind = target.kind, name = target.name, "a target was not asked about");
            self.is_silent = true;
        }
        asked.ok()
    }
}

/// What each object means. One of whose target nothing is known now is left out: it goes on to say what it says.
pub(super) async fn all(
    all: &[Arc<Autoscaler>],
    view: &ClusterView,
    targets: &Targets,
    api: &ApiServer,
) -> Vec<Means> {
    let mut groups: BTreeMap<&str, BTreeMap<String, WorkloadGroup>> = BTreeMap::new();
    let (mut asks, mut found) = (Asks::default(), Vec::with_capacity(all.len()));
    for object in all {
        let namespace = object.metadata.namespace.as_str();
        let groups = groups.entry(namespace).or_insert_with(|| view.groups(namespace));
        let Some(target) = &object.spec.target_ref else {
            let why = "Cannot read targetRef. Reason: targetRef not defined";
            found.push(Means::unusable(object, None, why.to_owned()));
            continue;
        };
        if let Some(known) = shown(object, target, view, groups) {
            found.push(known);
            continue;
        }
        let resolved = asks.resolve(targets, api, namespace, target).await;
        found.extend(resolved.map(|resolved| of(object, target, view, resolved)));
    }
    found
}

/// Why a controller is not to be named that another one made, in the words of the Vertical Pod Autoscaler.
pub(super) const HAS_PARENT: &str = "The targetRef controller has a parent but it should point to a topmost well-known or scalable controller";

/// What the view shows of a target without a question.
fn shown(
    object: &Arc<Autoscaler>,
    target: &TargetRef,
    view: &ClusterView,
    groups: &BTreeMap<String, WorkloadGroup>,
) -> Option<Means> {
    let (namespace, workload) = (&object.metadata.namespace, target.workload());
    if let Some(group) = groups.get(&workload) {
        return Some(Means::group(object, Some(workload), group));
    }
    view.has_parent(namespace, &target.kind, &target.name)
        .then(|| Means::unusable(object, None, HAS_PARENT.to_owned()))
}

fn of(object: &Arc<Autoscaler>, target: &TargetRef, view: &ClusterView, resolved: Resolved) -> Means {
    match resolved {
        Resolved::Selects { selector, .. } => {
            let group = view.selected(&object.metadata.namespace, &selector);
            Means::group(object, Some(target.workload()), &group)
        }
        Resolved::Unusable(why) => Means::unusable(object, Some(target.workload()), why),
    }
}
