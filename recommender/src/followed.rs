//! Owns the Kubernetes cluster whose objects are followed (`kubernetes.view`): whether enough of it is known to answer from, and what is said
//! where it is less than all. Following is the crate `kubernetes`' work.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use evenkeel_capacity::cluster::Oddity;
use evenkeel_capacity::question::{Recommendations, Snapshot};
use evenkeel_kubernetes::{
    ClusterView, ConnectError, Failed, KindStatus, Live, Pace, Placement, PodFailure, WatchState, Watching,
};
use evenkeel_proto::v1;
use evenkeel_store::ingest::placing::{PlacementAnswer, Places};
use evenkeel_store::state::kills::{Kill, Killed};
use jiff::Timestamp;

use crate::config::KubernetesSection;
use crate::recommend::limits::Limits;

/// The kind of pods.
const POD: &str = "Pod";
/// The kind of what says that nothing of it is to be changed.
const NAMESPACE: &str = "Namespace";
/// Kinds without which there is no answer.
const NEEDED: [&str; 2] = ["Node", POD];
/// Kinds without which it is not known which pods belong together.
const OWNERS: [&str; 3] = [POD, "ReplicaSet", "Job"];
/// Kinds that say how much pods may have, and how many may go.
const BOUNDS: [&str; 4] = ["LimitRange", "Node", "PodDisruptionBudget", "ResourceQuota"];
/// An API server that is well sends a bookmark about once a minute (as recorded of 1.36).
const QUIET: Duration = Duration::from_secs(180);
/// Kinds that are told one by one; further ones are counted.
const TOLD: usize = 3;
/// What went wrong with pods, as far as it is looked at.
pub(crate) const FAILURES: usize = 1_000;
/// Objects that cannot be used and are told in an answer.
const LEFT_OUT_TOLD: usize = 100;

/// A cluster that is followed.
#[derive(Debug)]
pub(crate) struct Followed {
    /// As `node.cluster` of its agents.
    cluster: String,
    watching: Watching,
    /// Namespaces were listed once, or never will be.
    namespaces_are_known: AtomicBool,
    /// What bounds pods, too, and it was handed on.
    bounds_are_known: AtomicBool,
}

impl Followed {
    /// Begins to follow the configured cluster; nothing where none is wished.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Arc<Self>>, ConnectError> {
        if !section.view {
            return Ok(None);
        }
        let watching = Watching::start(&section.source(), Pace::default()).await?;
        let followed = Arc::new(Self {
            cluster: section.cluster.clone(),
            watching,
            namespaces_are_known: AtomicBool::new(false),
            bounds_are_known: AtomicBool::new(false),
        });
        tokio::spawn(keep_ready(Arc::downgrade(&followed)));
        Ok(Some(followed))
    }

    /// Whether a question about the cluster of this name, or of none, is about this one.
    pub(crate) fn is_meant(&self, cluster: &str) -> bool {
        cluster.is_empty() || cluster == self.cluster
    }

    /// The cluster's name.
    pub(crate) fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Its objects, where it is the cluster of this name.
    pub(crate) fn view_of(&self, cluster: &str) -> Option<&Arc<ClusterView>> {
        (cluster == self.cluster).then(|| self.watching.view())
    }

    /// Its objects.
    pub(crate) fn view(&self) -> &ClusterView {
        self.watching.view()
    }

    /// Its objects, once it is known which pods belong together.
    pub(crate) fn grouped(&self) -> Option<&ClusterView> {
        let status = self.status();
        let is_known = |kind: &&str| status.iter().any(|status| status.kind.name == *kind && status.is_known);
        OWNERS.iter().all(is_known).then(|| &**self.watching.view())
    }

    /// Hands on its limit ranges and quotas, where they changed.
    pub(crate) fn bound(&self, limits: &Limits) {
        // Asked before: what is listed only meanwhile may not be among them.
        let are_listed = !self.are_to_come(&BOUNDS);
        limits.follow(&self.cluster, |changes| self.view().bounds(changes));
        if are_listed {
            self.bounds_are_known.store(true, Ordering::Release);
        }
    }

    /// Whether nothing of a namespace is to be changed: it says so, or it is not known yet whether it does.
    pub(crate) fn freezes(&self, namespace: &str) -> bool {
        self.view().is_frozen(namespace) || !self.knows_namespaces()
    }

    /// Those of some namespaces of which nothing is to be changed; all, where what is recommended may be more than they allow.
    pub(crate) fn frozen<'n>(
        &self,
        namespaces: impl Iterator<Item = &'n String>,
        is_bounded: bool,
    ) -> BTreeSet<String> {
        let (frozen, all) = (self.view().frozen(), !(is_bounded && self.knows_namespaces()));
        if frozen.is_empty() && !all {
            return BTreeSet::new();
        }
        namespaces.filter(|name| all || frozen.contains(*name)).cloned().collect()
    }

    /// How often it changed which namespaces are frozen.
    pub(crate) fn frozen_changes(&self) -> u64 {
        // When they become known, too.
        self.view().frozen_changes().wrapping_add(u64::from(self.knows_namespaces()))
    }

    /// Whether it is known which namespaces are frozen. Where they may not be seen, none is.
    pub(crate) fn knows_namespaces(&self) -> bool {
        if self.namespaces_are_known.load(Ordering::Relaxed) {
            return true;
        }
        let is_known = !self.are_to_come(&[NAMESPACE]);
        self.namespaces_are_known.store(is_known, Ordering::Relaxed);
        is_known
    }

    /// Whether it is known how much pods may have, and recommendations made now keep within it. What may not be seen, or is not there, bounds
    /// nothing.
    pub(crate) fn knows_bounds(&self) -> bool {
        self.bounds_are_known.load(Ordering::Acquire)
    }

    /// Whether one of these kinds was never listed, and may be.
    fn are_to_come(&self, kinds: &[&str]) -> bool {
        self.status().iter().any(|status| kinds.contains(&status.kind.name) && is_to_come(status))
    }

    /// How it stands with each kind.
    pub(crate) fn status(&self) -> Vec<KindStatus> {
        self.watching.status()
    }

    /// Kinds that are not known yet and without which there is no answer.
    fn missing(&self) -> Vec<String> {
        let status = self.status();
        // What is being listed for the first time will be known in a moment: an answer without it would be another one then.
        let is_needed = |status: &&KindStatus| {
            NEEDED.contains(&status.kind.name)
                || status.state == WatchState::Listing && status.kind.name != "Job"
        };
        status.iter().filter(|status| !status.is_known).filter(is_needed).map(told).collect()
    }

    /// The cluster as it is now, or as it would be with recommended requests.
    ///
    /// # Errors
    /// When nodes or pods are not known yet.
    pub(crate) fn snapshot(&self, wishes: Option<&Recommendations>) -> Result<Snapshot, String> {
        let missing = self.missing();
        if !missing.is_empty() {
            let missing = missing.join("; ");
            return Err(format!("the cluster is not known yet: {missing}; ask again, or send a snapshot"));
        }
        let view = self.watching.view();
        let Live { cluster, mut report, left_out } = match wishes {
            Some(wishes) => view.changed(&|pod| wishes.apply(pod)),
            None => view.live(),
        };
        let odd = |what| Oddity { object: "view".to_owned(), what };
        report.oddities.extend(left_out.into_iter().take(LEFT_OUT_TOLD).map(odd));
        Ok(Snapshot { cluster, report })
    }

    /// The uid of a pod that is on a node.
    pub(crate) fn uid_on(&self, node: &str, namespace: &str, pod: &str) -> Option<String> {
        self.watching.view().uid_on(node, namespace, pod)
    }

    /// What an answer does not rest on, for who reads it.
    pub(crate) fn notes(&self) -> Vec<String> {
        let status = self.status();
        let unknown = status.iter().filter(|status| !status.is_known && status.kind.name != "Job");
        let unknown: Vec<String> = unknown.map(told).collect();
        let mut notes = Vec::new();
        if !unknown.is_empty() {
            notes.push(format!(
                "these kinds of objects are not known and do not count: {}",
                unknown.join("; ")
            ));
        }
        let quiet =
            |status: &&KindStatus| NEEDED.contains(&status.kind.name) && status.state != WatchState::Watching;
        if let Some(silent) = status.iter().filter(quiet).filter_map(KindStatus::heard_ago).max() {
            notes.push(format!(
                "the API server was last heard {} s ago: the answer is of then",
                silent.as_secs()
            ));
        }
        notes
    }

    /// What is wrong with it.
    pub(crate) fn trouble(&self) -> Option<String> {
        trouble(&self.status(), false)
    }
}

/// Whether a kind was never listed, and may be.
pub(crate) fn is_to_come(status: &KindStatus) -> bool {
    !status.is_known && matches!(status.state, WatchState::Listing | WatchState::Failing)
}

/// Takes changes into the kept cluster twice a second, so that a question does not wait for them. It rests fifty times as long as it took: where
/// the whole has to be made anew all the time, that costs a fiftieth of a core.
async fn keep_ready(followed: Weak<Followed>) {
    const LEAST: Duration = Duration::from_millis(500);
    const SHARE: u32 = 50;
    let mut rest = LEAST;
    loop {
        tokio::time::sleep(rest).await;
        let Some(followed) = followed.upgrade() else { return };
        if !followed.missing().is_empty() {
            continue;
        }
        let began = Instant::now();
        let made = tokio::task::spawn_blocking(move || followed.watching.view().keep_ready()).await;
        rest = LEAST.max(began.elapsed() * SHARE);
        if made.is_err() {
            return;
        }
    }
}

impl Places for Followed {
    fn is_of(&self, cluster: &str) -> bool {
        cluster == self.cluster
    }

    fn say(&self, node: &str, container: &v1::ContainerIdentity) -> PlacementAnswer {
        let view = self.watching.view();
        match view.placement(node, &container.namespace, &container.pod) {
            Placement::NotListed => PlacementAnswer::Nothing,
            Placement::Here(workload) => PlacementAnswer::Here(workload),
            Placement::Elsewhere => PlacementAnswer::Elsewhere,
            // What is no pod of a kubelet has no uid, and is in a namespace of its source.
            Placement::Unknown
                if container.pod_uid.is_empty() && !view.has_namespace(&container.namespace) =>
            {
                PlacementAnswer::Nothing
            }
            // A view that is not up to date does not know the newest pods.
            Placement::Unknown if !self.watching.is_current(POD, QUIET) => PlacementAnswer::Nothing,
            Placement::Unknown => PlacementAnswer::Unknown,
        }
    }

    fn kills(&self) -> Killed {
        let failed = self.view().failures("", FAILURES);
        Killed { cluster: self.cluster.clone(), kills: failed.into_iter().filter_map(kill).collect() }
    }
}

/// An OOM kill of a container, in the words of the store.
fn kill(Failed { namespace, pod, node, workload, failure }: Failed) -> Option<Kill> {
    let PodFailure { reason, container, at, id, memory: [request, limit], .. } = failure;
    let time_usec = usec(&at).filter(|_| reason == "OOMKilled")?;
    let (workload, container, id) = (workload.unwrap_or_default(), container.into(), id.into());
    Some(Kill { node, namespace, pod, workload, container, id, time_usec, request, limit })
}

/// Microseconds since 1970.
pub(crate) fn usec(text: &str) -> Option<u64> {
    let at: Timestamp = text.parse().ok()?;
    u64::try_from(at.as_microsecond()).ok()
}

/// What is wrong with kinds that are followed; `may_lack` those that a cluster need not have.
pub(crate) fn trouble(status: &[KindStatus], may_lack: bool) -> Option<String> {
    let is_quiet = |status: &KindStatus| status.heard_ago().is_some_and(|ago| ago > QUIET);
    let wrong = |status: &&KindStatus| match status.state {
        WatchState::Watching => is_quiet(status),
        WatchState::Listing => !status.is_known,
        WatchState::Failing | WatchState::Forbidden => true,
        WatchState::Absent => !may_lack,
    };
    let wrong: Vec<&KindStatus> = status.iter().filter(wrong).collect();
    let mut words: Vec<String> = wrong.iter().take(TOLD).map(|status| told(status)).collect();
    if wrong.len() > TOLD {
        words.push(format!("and {} more kinds", wrong.len() - TOLD));
    }
    (!words.is_empty()).then(|| words.join("; "))
}

/// How it stands with a kind, in words.
fn told(status: &KindStatus) -> String {
    let (kind, state) = (status.kind.name, status.state.word());
    let ago = status.heard_ago().map_or_else(String::new, |ago| format!(", heard {} s ago", ago.as_secs()));
    let why = status.trouble.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    format!("{kind}: {state}{ago}{why}")
}

#[cfg(test)]
mod tests {
    use evenkeel_kubernetes::KINDS;
    use evenkeel_model::yaml::{self, YamlBounds};
    use serde_json::{Value, json};

    /// The role that is shipped lists and watches every kind by its group, and nothing else.
    #[test]
    fn the_shipped_role_may_see_what_is_followed_and_no_more() {
        let text = include_str!("../../packaging/kubernetes/base/view.yaml");
        let objects: Vec<Value> = yaml::documents(text, YamlBounds { documents: 20, nodes: 10_000 }).unwrap();
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let mut allowed = Vec::new();
        for rule in role["rules"].as_array().unwrap() {
            assert_eq!(rule["verbs"], json!(["list", "watch"]));
            for resource in rule["resources"].as_array().unwrap() {
                let group = rule["apiGroups"][0].as_str().unwrap();
                allowed.push(format!("{group}/{}", resource.as_str().unwrap()));
            }
        }
        let mut wanted: Vec<String> = KINDS
            .iter()
            .map(|kind| {
                let parts: Vec<&str> = kind.path.split('/').collect();
                let group = if parts[1] == "api" { "" } else { parts[2] };
                format!("{group}/{}", parts[parts.len() - 1])
            })
            .collect();
        allowed.sort();
        wanted.sort();
        assert_eq!(allowed, wanted);
    }
}
