//! Which manifests are applied on a node without a kubelet: those whose requests fit beside all others'.
//!
//! Owned here: the order of pods, what was admitted and with which requests, and the file that keeps both over restarts.
//! Not owned: what a node has to give and the comparison ([`crate::allocatable`]), leaving a container alone.
//!
//! Who was admitted stays so for as long as its manifest is there and asks for no more, whatever comes later, as on a
//! Kubernetes node. The others are looked at in the order in which they were first seen. What a runtime or systemd
//! runs is never refused: it is there, and takes its room.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_log::{private, sealed};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::{ResourceList, ResourceSum as _};
use evenkeel_model::workload::{Managed, SourceKind, Workload};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::allocatable;
use crate::decisions::Draft;
use crate::reconcile::Merged;

/// File name below the state directory.
const FILE: &str = "admitted";
const VERSION: u32 = 1;
/// After so long whoever has not said what it runs is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pods named in one line of status.
const NAMED: usize = 8;

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is applied and told.
    Report,
    /// It is not applied until it fits.
    Refuse,
}

/// Namespace and name.
pub(crate) type PodName = (String, String);

/// One pod's place in the order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AdmittedPod {
    namespace: String,
    name: String,
    /// When its manifest was first seen, microseconds since 1970.
    since_usec: u64,
    /// The requests it was admitted with; `None` while it is not.
    admitted: Option<ResourceList>,
}

#[derive(Serialize, Deserialize)]
struct AdmissionFile {
    version: u32,
    pods: Vec<AdmittedPod>,
}

/// What a look at all pods found.
#[derive(Debug, Default)]
pub(crate) struct AdmissionResult {
    /// What is short for each pod that does not fit.
    pub short: BTreeMap<PodName, String>,
    /// What is news.
    pub drafts: Vec<Draft>,
    /// The order or somebody's place changed.
    pub changed: bool,
}

/// The pods of manifests in their order.
pub(crate) struct Admission {
    /// First to last: admitted ones, then by the time they were first seen.
    places: Vec<AdmittedPod>,
    told: BTreeMap<PodName, String>,
    /// `None` where nothing is kept.
    file: Option<PathBuf>,
    until: Instant,
}

impl Admission {
    /// What an earlier run admitted, by the file in `state_dir`; and whether that is damaged.
    pub(crate) fn open(state_dir: Option<&Path>, now: Instant) -> (Self, bool) {
        let file = state_dir.map(|dir| dir.join(FILE));
        let (places, damaged) = file.as_deref().map_or((Vec::new(), false), read);
        (Self { places, told: BTreeMap::new(), file, until: now + PATIENCE }, damaged)
    }

    /// Where what is admitted is kept.
    pub(crate) fn path_in(state_dir: &Path) -> PathBuf {
        state_dir.join(FILE)
    }

    /// Until when sources that have not spoken yet are waited for.
    pub(crate) const fn until(&self) -> Instant {
        self.until
    }

    /// Pods that were not admitted before, while it is not known yet what else is there.
    pub(crate) fn unjudged(&self, merged: &Merged) -> BTreeMap<PodName, String> {
        let all = merged.bound.iter().map(|bound| &bound.workload);
        let (asked, _) = of_manifests(all.chain(&merged.waiting));
        let admitted = self.places.iter().filter(|place| place.admitted.is_some());
        let admitted: BTreeSet<PodName> = admitted.map(AdmittedPod::key).collect();
        let why = "what else this node runs is not known yet";
        asked.into_keys().filter(|key| !admitted.contains(key)).map(|key| (key, why.to_owned())).collect()
    }

    /// Looks at all pods of manifests: whether each fits into what is allocatable beside those before it and whatever
    /// else is there.
    pub(crate) fn look(
        &mut self,
        merged: &Merged,
        allocatable: &ResourceList,
        now_usec: u64,
    ) -> AdmissionResult {
        let all = merged.bound.iter().map(|bound| &bound.workload);
        let (asked, by_pod) = of_manifests(all.clone().chain(&merged.waiting));
        let others = all.filter(|workload| workload.source != SourceKind::Manifests);
        let mut taken = allocatable::requested(others.map(|workload| &**workload));
        let before = self.places.clone();
        self.take_in(&asked, now_usec);
        let mut verdict = AdmissionResult::default();
        // Whoever keeps its place first.
        for place in &mut self.places {
            let Some(asks) = asked.get(&place.key()) else { continue };
            match &mut place.admitted {
                Some(with) if asks.iter().all(|(name, amount)| amount <= with.get_or_zero(name)) => {
                    *with = (*asks).clone();
                    taken.add(asks);
                }
                admitted => *admitted = None,
            }
        }
        for place in self.places.iter_mut().filter(|place| place.admitted.is_none()) {
            let Some(asks) = asked.get(&place.key()) else { continue };
            let short = allocatable::shortages(allocatable, &taken, asks);
            if short.is_empty() {
                taken.add(asks);
                place.admitted = Some((*asks).clone());
            } else {
                let short = short.iter().map(|s| format!("{} is short by {}", s.resource, s.by));
                verdict.short.insert(place.key(), short.collect::<Vec<_>>().join(", "));
            }
        }
        verdict.changed = self.places != before;
        verdict.drafts = self.news(&verdict.short, &by_pod);
        verdict
    }

    /// Forgets pods without a manifest, and gives new ones the last places.
    fn take_in(&mut self, asked: &BTreeMap<PodName, ResourceList>, now_usec: u64) {
        self.places.retain(|place| asked.contains_key(&place.key()));
        let known: BTreeSet<PodName> = self.places.iter().map(AdmittedPod::key).collect();
        // A clock set back gives nobody a place before others.
        let since_usec = self.places.iter().map(|place| place.since_usec).fold(now_usec, u64::max);
        let new = asked.keys().filter(|key| !known.contains(*key));
        self.places.extend(new.map(|(namespace, name)| AdmittedPod {
            namespace: namespace.clone(),
            name: name.clone(),
            since_usec,
            admitted: None,
        }));
        self.places.sort_by_cached_key(|place| (place.admitted.is_none(), place.since_usec, place.key()));
    }

    /// Decisions about pods that do not fit for another reason than before, or fit now.
    fn news(
        &mut self,
        short: &BTreeMap<PodName, String>,
        pods: &BTreeMap<PodName, Arc<Workload>>,
    ) -> Vec<Draft> {
        let told = std::mem::replace(&mut self.told, short.clone());
        let tell = |pod: &PodName, reason: String| {
            Some(Draft::of(pods.get(pod)?, DecisionKind::Source, reason).input("source", "manifests"))
        };
        let worse =
            short.iter().filter(|(pod, why)| told.get(*pod) != Some(*why)).filter_map(|(pod, why)| {
                let reason =
                    format!("the manifest does not fit this node: {why} beside what is requested already");
                tell(pod, reason).map(|draft| draft.result(DecisionResult::Failed))
            });
        let better = told.keys().filter(|pod| !short.contains_key(*pod));
        let better = better.filter_map(|pod| tell(pod, "the manifest fits this node now".to_owned()));
        worse.chain(better).collect()
    }

    /// Keeps the order on disk, before anything follows from it.
    ///
    /// # Errors
    /// When it cannot be written; the old one stays.
    pub(crate) fn save(&self) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let body = serde_json::to_vec(&AdmissionFile { version: VERSION, pods: self.places.clone() })?;
        private::replace(file, &sealed::file(&body), true)
    }
}

impl AdmittedPod {
    fn key(&self) -> PodName {
        (self.namespace.clone(), self.name.clone())
    }
}

/// What each pod of manifests asks for, and one of its containers.
fn of_manifests<'a>(
    workloads: impl Iterator<Item = &'a Arc<Workload>>,
) -> (BTreeMap<PodName, ResourceList>, BTreeMap<PodName, Arc<Workload>>) {
    let (mut asked, mut pods) = (BTreeMap::new(), BTreeMap::new());
    for workload in workloads.filter(|workload| workload.source == SourceKind::Manifests) {
        let key = (workload.pod.namespace.clone(), workload.pod.name.clone());
        let mut requests = workload.pod_facts.requests.clone().unwrap_or_default();
        requests.set(ResourceName::PODS, Quantity::from_units(1));
        asked.insert(key.clone(), requests);
        pods.entry(key).or_insert_with(|| Arc::clone(workload));
    }
    (asked, pods)
}

/// Containers of refused pods are sampled and not written.
pub(crate) fn refuse(merged: &mut Merged, short: &BTreeMap<PodName, String>) {
    for bound in &mut merged.bound {
        let key = (bound.workload.pod.namespace.clone(), bound.workload.pod.name.clone());
        let is_meant =
            bound.workload.source == SourceKind::Manifests && bound.workload.managed == Managed::Yes;
        if let Some(why) = short.get(&key).filter(|_| is_meant) {
            Arc::make_mut(&mut bound.workload).managed = Managed::No(format!("not admitted: {why}"));
        }
    }
}

/// The pods that do not fit in one line.
pub(crate) fn sentence(mode: Mode, short: &BTreeMap<PodName, String>) -> String {
    let named = short.iter().take(NAMED).map(|((namespace, name), why)| format!("{namespace}/{name}: {why}"));
    let named = named.collect::<Vec<_>>().join("; ");
    let more = short.len().saturating_sub(NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let done = match mode {
        Mode::Report => "applied though they bring the sum of requests above what is allocatable",
        Mode::Refuse => "not applied",
    };
    format!("manifests {done}: {named}{more}")
}

/// The places kept in a file, and whether it is damaged.
fn read(file: &Path) -> (Vec<AdmittedPod>, bool) {
    let bytes = match private::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), false),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "which manifests were admitted is not known");
            return (Vec::new(), false);
        }
    };
    let sealed::Body::Whole(body) = sealed::body(&bytes) else { return (Vec::new(), true) };
    match serde_json::from_slice::<AdmissionFile>(body) {
        Ok(file) if file.version == VERSION => (file.pods, false),
        _ => (Vec::new(), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::Bound;
    use crate::testing::workload;

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        let parse = |(name, amount): &(&str, &str)| {
            (ResourceName::parse(name).unwrap(), Quantity::parse(amount).unwrap())
        };
        entries.iter().map(parse).collect()
    }

    fn pod(name: &str, cpu: &str) -> Bound {
        let mut workload = workload(name);
        workload.pod_facts.requests = Some(list(&[("cpu", cpu), ("memory", "1Mi")]));
        Bound { workload: Arc::new(workload), path: format!("/{name}") }
    }

    fn merged(pods: &[(&str, &str)]) -> Merged {
        Merged { bound: pods.iter().map(|(name, cpu)| pod(name, cpu)).collect(), ..Merged::default() }
    }

    /// Pods that do not fit into two cores.
    fn refused(admission: &mut Admission, pods: &[(&str, &str)], at: u64) -> Vec<String> {
        let all = list(&[("cpu", "2"), ("memory", "1Gi"), ("pods", "10")]);
        let verdict = admission.look(&merged(pods), &all, at);
        verdict.short.into_keys().map(|(_, name)| name).collect()
    }

    fn none() -> [String; 0] {
        []
    }

    #[test]
    fn who_came_first_stays_whatever_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Admission::open(Some(dir.path()), Instant::now()).0;
        let mut admission = open();
        assert_eq!(refused(&mut admission, &[("z", "1500m")], 1), none());
        assert_eq!(refused(&mut admission, &[("a", "1"), ("z", "1500m")], 2), ["a"]);
        assert_eq!(refused(&mut admission, &[("a", "1"), ("b", "1"), ("z", "1500m")], 3), ["a", "b"]);
        admission.save().unwrap();
        // Another run sees them all at once, with its clock set back.
        let mut again = open();
        let unjudged = again.unjudged(&merged(&[("a", "1"), ("b", "1"), ("z", "1500m")]));
        assert_eq!(unjudged.into_keys().map(|(_, name)| name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(refused(&mut again, &[("a", "1"), ("b", "1"), ("z", "1500m")], 1), ["a", "b"]);
        // One that was refused and then fits is applied, the one that waited longest first.
        assert_eq!(refused(&mut again, &[("a", "1"), ("b", "1"), ("z", "500m")], 4), ["b"]);
        assert_eq!(refused(&mut again, &[("a", "1"), ("b", "1")], 5), none());
        // Who asks for more than it was admitted with comes after those who do not.
        assert_eq!(refused(&mut again, &[("a", "1500m"), ("b", "1")], 6), ["a"]);
        assert_eq!(refused(&mut again, &[("a", "1"), ("b", "1")], 7), none());
    }

    #[test]
    fn what_runs_anyway_takes_its_room_and_is_never_refused() {
        let (mut admission, damaged) = Admission::open(None, Instant::now());
        let mut all = merged(&[("a", "500m"), ("b", "1")]);
        for (at, source) in [(0, SourceKind::Cri), (1, SourceKind::Manifests)] {
            Arc::make_mut(&mut all.bound[at].workload).source = source;
        }
        let little = list(&[("cpu", "1400m"), ("memory", "1Gi"), ("pods", "2")]);
        let verdict = admission.look(&all, &little, 1);
        let b = ("default".to_owned(), "b".to_owned());
        assert_eq!(verdict.short.get(&b).map(String::as_str), Some("cpu is short by 100m"));
        assert!(verdict.changed && !damaged);
        let told = verdict.drafts[0].clone().finish_for_tests();
        assert!(told.reason.contains("short by 100m") && told.pod.as_deref() == Some("default/b"));
        refuse(&mut all, &verdict.short);
        assert_eq!(all.bound[0].workload.managed, Managed::Yes);
        assert_eq!(all.bound[1].workload.managed, Managed::No("not admitted: cpu is short by 100m".into()));
        // The same again is no news; that it fits is.
        assert!(admission.look(&all, &little, 2).drafts.is_empty());
        let enough = admission.look(&all, &list(&[("cpu", "2"), ("memory", "1Gi"), ("pods", "2")]), 3);
        assert!(enough.short.is_empty() && enough.drafts.len() == 1);
        // Once admitted it stays, also when there is less to give.
        assert!(admission.look(&all, &little, 4).short.is_empty());
        // One that waits for its cgroup has its place all the same.
        let waiting = Merged {
            bound: Vec::new(),
            waiting: vec![Arc::clone(&all.bound[1].workload)],
            ..Merged::default()
        };
        assert!(admission.look(&waiting, &little, 5).short.is_empty());
    }

    #[test]
    fn a_damaged_file_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (mut admission, _) = Admission::open(Some(dir.path()), Instant::now());
        refused(&mut admission, &[("a", "1")], 1);
        admission.save().unwrap();
        let mut bytes = std::fs::read(dir.path().join(FILE)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(dir.path().join(FILE), bytes).unwrap();
        let (admission, damaged) = Admission::open(Some(dir.path()), Instant::now());
        assert!(damaged && admission.places.is_empty());
    }
}
