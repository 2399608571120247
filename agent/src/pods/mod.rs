//! What the API server says that the pods of this node require, as the recommender tells it over the stream, and of pods that it tells
//! nothing of, as the kubelet does where it is asked.
//!
//! Owned here: what is known, since when, and keeping it on disk. Not owned: the words and their bounds (`evenkeel_proto::pods`), which
//! container follows them (`sources::cri`).

mod kept;
mod kubelet;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_enforce::decisions::now_usec;
use evenkeel_enforce::shared::{SourceUpdate, lock};
use evenkeel_model::node::NodeKey;
use evenkeel_model::pod::{PodListing, PodRequirements};
use evenkeel_model::workload::SourceKind;
use evenkeel_proto::pods::NodePods;
use evenkeel_proto::v1;
use tokio::sync::{Notify, watch};

use kept::{StoredList, StoredPods};
pub(crate) use kubelet::{Kubelet, MOST_LISTED, look, run as follow_kubelet};

/// What is known is written so often at most: a node on which jobs come and go changes all the time.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// Requirements by the uid that the node's runtime has.
pub(crate) type ByUid = Arc<HashMap<String, Arc<PodRequirements>>>;

/// What is known of this node's pods.
#[derive(Debug)]
pub(crate) struct Pods {
    state: Mutex<PodsState>,
    /// Counts what was taken in.
    taken: watch::Sender<u64>,
    /// Rung when a runtime runs other containers.
    stir: Notify,
    /// Where it is kept, and for which node; nowhere where nothing is.
    keeps: Option<(PathBuf, NodeKey)>,
}

#[derive(Debug, Default)]
struct PodsState {
    known: NodePods,
    by_uid: ByUid,
    /// When something in it changed last, microseconds since 1970.
    changed_usec: u64,
    /// The recommender spoke of them since the start.
    is_told: bool,
    refused: Vec<String>,
    /// What the kubelet says, where it is asked.
    kubelet: Option<Kubelets>,
    /// Uids of the pods that each runtime runs, by its address.
    running: HashMap<String, HashSet<String>>,
}

/// What the kubelet says.
#[derive(Debug, Default)]
struct Kubelets {
    known: NodePods,
    refused: Vec<String>,
    /// When it answered last, microseconds since 1970; 0 = never.
    read_usec: u64,
    /// Why it did not the last time.
    trouble: Option<String>,
    /// Pods of `known` that it does not list and a runtime runs.
    unlisted: usize,
}

impl Pods {
    /// None are known, and none are kept.
    pub(crate) fn none() -> Self {
        Self { state: Mutex::default(), taken: watch::Sender::new(0), stir: Notify::new(), keeps: None }
    }

    /// Those that an earlier run kept for the same node in a state directory, and whether the file is damaged. What the kubelet said
    /// counts where it `is_asked` still.
    pub(crate) fn open(state_dir: PathBuf, node: NodeKey, is_asked: bool) -> (Self, bool) {
        let (kept, is_damaged) = StoredPods::read(&state_dir, &node);
        let mut state = PodsState::default();
        if let Some(mut kept) = kept {
            state.changed_usec = kept.changed_usec;
            state.kubelet = kept.kubelet.take().filter(|_| is_asked).map(Kubelets::kept);
            state.known = kept.pods();
            state.index();
        }
        let keeps = Some((state_dir, node));
        (
            Self { state: Mutex::new(state), taken: watch::Sender::new(0), stir: Notify::new(), keeps },
            is_damaged,
        )
    }

    /// How far they are known.
    pub(crate) fn known(&self) -> v1::PodsKnown {
        lock(&self.state).known.known()
    }

    /// What is known, by the uid that the runtime has.
    pub(crate) fn by_uid(&self) -> ByUid {
        Arc::clone(&lock(&self.state).by_uid)
    }

    /// Changes when something else is known.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }

    /// The connection ended: what was half told is told again.
    pub(crate) fn cut(&self) {
        lock(&self.state).known.cut();
    }

    /// Takes in what the recommender tells. What cannot be meant is told, and changes nothing.
    pub(crate) fn take(&self, message: v1::NodePods) {
        let (generation, more) = (message.generation, message.more);
        let mut state = lock(&self.state);
        let taken = match state.known.take(message) {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, generation, "what the recommender tells of this node's pods is not taken in");
                return;
            }
        };
        if more {
            return;
        }
        state.is_told = true;
        for refused in taken.refused.iter().filter(|refused| !state.refused.contains(refused)) {
            tracing::warn!(
                refused,
                "what a pod requires cannot be meant; its containers follow the runtime's record"
            );
        }
        state.refused = taken.refused;
        if taken.is_change {
            state.changed_usec = now_usec();
            state.index();
            tracing::debug!(generation, pods = state.by_uid.len(), "pods of this node were told");
        }
        drop(state);
        self.taken.send_modify(|count| *count += 1);
    }

    /// A runtime runs other containers than before: what the kubelet says may be another, too.
    pub(crate) fn found(&self, update: &SourceUpdate) {
        if update.source == SourceKind::Cri {
            let uids = update.workloads.iter().filter_map(|workload| workload.pod.uid.clone()).collect();
            lock(&self.state).running.insert(update.address.clone(), uids);
            self.stir.notify_one();
        }
    }

    /// Waits until a runtime does.
    pub(crate) async fn stirred(&self) {
        self.stir.notified().await;
    }

    /// Takes in what the kubelet lists, or why it does not. What it said before stays then.
    fn take_kubelets(&self, answer: Result<PodListing, String>) {
        let mut state = lock(&self.state);
        let PodsState { kubelet, running, .. } = &mut *state;
        let of = kubelet.get_or_insert_default();
        // Before a runtime has listed what it runs, any may run.
        let runs = |uid: &str| running.is_empty() || running.values().any(|uids| uids.contains(uid));
        let (is_change, trouble) = match answer.and_then(|listed| of.take(listed, runs)) {
            Ok(is_change) => (is_change, None),
            Err(why) => (false, Some(why)),
        };
        if of.trouble != trouble {
            match &trouble {
                Some(why) => tracing::warn!(why, "the kubelet does not tell its pods; trying again"),
                None => tracing::info!(pods = of.known.pods().len(), "the kubelet tells its pods"),
            }
            of.trouble = trouble;
        }
        if is_change {
            state.index();
            drop(state);
            self.taken.send_modify(|count| *count += 1);
        }
    }

    /// What status says of them; nothing where nothing was told.
    pub(crate) fn status(&self) -> Option<v1::PodsStatus> {
        let state = lock(&self.state);
        let v1::PodsKnown { run, generation } = state.known.known();
        let of = state.kubelet.as_ref();
        let kubelet = of.map(|of| v1::KubeletStatus {
            pods: u32::try_from(of.known.pods().len()).unwrap_or(u32::MAX),
            read_usec: of.read_usec,
            trouble: of.trouble.clone().unwrap_or_default(),
        });
        (run != 0 || kubelet.is_some()).then(|| v1::PodsStatus {
            kubelet,
            pods: u32::try_from(state.by_uid.len()).unwrap_or(u32::MAX),
            generation,
            changed_usec: state.changed_usec,
            followed: 0,
            kept: run != 0 && !state.is_told,
            refused: state.refused.iter().chain(of.iter().flat_map(|of| &of.refused)).cloned().collect(),
        })
    }

    /// Writes what is known whenever that changes, until `stopped`; then once more.
    pub(crate) async fn keep(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let (mut changes, mut written) = (self.changes(), 0);
        loop {
            let is_end = tokio::select! {
                changed = changes.wait_for(|count| *count != written) => changed.is_err(),
                _ = stopped.wait_for(|stop| *stop) => true,
            };
            let count = *changes.borrow_and_update();
            // When the kubelet answered last is written at the end alone.
            if count != written || is_end && lock(&self.state).kubelet.is_some() {
                written = count;
                let this = Arc::clone(&self);
                // The disk may be slow.
                if let Err(error) = tokio::task::spawn_blocking(move || this.write()).await {
                    tracing::warn!(%error, "pods of this node were not written");
                }
            }
            if is_end {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(WRITE_EVERY) => {}
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        }
    }

    fn write(&self) {
        let Some((dir, node)) = &self.keeps else { return };
        let kept = {
            let state = lock(&self.state);
            let kubelet = state.kubelet.as_ref().filter(|of| of.read_usec > 0);
            let kubelet = kubelet.map(|of| StoredList::new(&of.known, of.read_usec));
            StoredPods::new(node, &state.known, state.changed_usec, kubelet)
        };
        if let Err(error) = kept.write(dir) {
            tracing::warn!(
                dir = %dir.display(), %error,
                "what this node's pods require is not kept; without a recommender the next start does not know it"
            );
        }
    }
}

impl PodsState {
    fn index(&mut self) {
        // The later ones count: what the recommender tells goes over what the kubelet says.
        let kubelets = self.kubelet.iter().flat_map(|of| of.known.pods().values());
        let pods = kubelets.chain(self.known.pods().values());
        self.by_uid = Arc::new(pods.map(|pod| (pod.uid_on_node().to_owned(), Arc::clone(pod))).collect());
    }
}

impl Kubelets {
    /// What an earlier run was told.
    fn kept(list: StoredList) -> Self {
        Self { read_usec: list.read_usec, known: list.pods(), ..Self::default() }
    }

    /// Takes in a list; whether something is known otherwise then. What was said of a pod that a runtime runs stays: a kubelet that has just
    /// started lists none before it has heard of the API server, which may be away for hours, and static ones alone.
    fn take(&mut self, listed: PodListing, runs: impl Fn(&str) -> bool) -> Result<bool, String> {
        let uids: HashSet<&str> = listed.pods.iter().map(|pod| pod.uid.as_str()).collect();
        let known = self.known.pods().values().filter(|pod| !uids.contains(pod.uid.as_str()));
        let unlisted: Vec<_> = known.filter(|pod| runs(pod.uid_on_node())).cloned().collect();
        let generation = self.known.known().generation + 1;
        let message = |unlisted: &[Arc<PodRequirements>]| {
            let pods = unlisted.iter().map(|pod| &**pod).chain(&listed.pods);
            let changed = pods.map(v1::PodRequirements::from).collect();
            v1::NodePods { run: 1, generation, whole: true, changed, ..v1::NodePods::default() }
        };
        let (taken, unlisted) = match self.known.take(message(&unlisted)) {
            // Too many together.
            Err(_) if !unlisted.is_empty() => (self.known.take(message(&[])), 0),
            taken => (taken, unlisted.len()),
        };
        let taken = taken.map_err(|error| error.to_string())?;
        if unlisted != self.unlisted {
            tracing::info!(
                unlisted,
                "what the kubelet said of pods that run and that it does not list stays"
            );
        }
        self.unlisted = unlisted;
        self.refused = listed.refused.iter().cloned().chain(taken.refused).collect();
        self.read_usec = now_usec();
        Ok(taken.is_change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeKey {
        NodeKey { cluster: "test".into(), node: name.into() }
    }

    fn told(generation: u64, names: &[&str]) -> v1::NodePods {
        let pod = |name: &&str| v1::PodRequirements {
            uid: format!("uid-{name}"),
            namespace: "shop".into(),
            name: (*name).to_owned(),
            config_hash: name.strip_prefix("static-").unwrap_or_default().to_owned(),
            ..v1::PodRequirements::default()
        };
        v1::NodePods {
            run: 7,
            generation,
            whole: true,
            changed: names.iter().map(pod).collect(),
            ..v1::NodePods::default()
        }
    }

    #[tokio::test]
    async fn what_is_known_is_kept_for_the_same_node_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (pods, is_damaged) = Pods::open(dir.path().to_owned(), node("a"), false);
        assert!(!is_damaged && pods.status().is_none());
        pods.take(told(3, &["web", "static-etcd"]));
        assert!(pods.by_uid().contains_key("etcd"), "by the uid that the runtime has");
        assert!(!pods.status().unwrap().kept);
        let (stop, stopped) = watch::channel(true);
        Arc::new(pods).keep(stopped).await;
        drop(stop);
        let (again, _) = Pods::open(dir.path().to_owned(), node("a"), false);
        let status = again.status().unwrap();
        assert_eq!((status.pods, status.generation, status.kept), (2, 3, true));
        assert!(status.changed_usec > 0);
        assert_eq!(again.known(), v1::PodsKnown { run: 7, generation: 3 });
        let file = dir.path().join("pods.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("uid-web", "uid-bad", 1)).unwrap();
        let (damaged, is_damaged) = Pods::open(dir.path().to_owned(), node("a"), false);
        assert!(is_damaged && damaged.status().is_none());
        std::fs::write(&file, text).unwrap();
        let (other, is_damaged) = Pods::open(dir.path().to_owned(), node("b"), false);
        assert!(!is_damaged && other.status().is_none(), "another node's");
        assert!(!file.exists());
    }

    #[test]
    fn who_waits_is_told_of_changes_and_what_cannot_be_meant_changes_nothing() {
        let pods = Pods::none();
        let mut changes = pods.changes();
        pods.take(v1::NodePods { more: true, ..told(3, &["web"]) });
        pods.take(v1::NodePods { run: 9, from: 4, generation: 5, ..v1::NodePods::default() });
        assert!(!changes.has_changed().unwrap() && pods.by_uid().is_empty());
        pods.take(told(3, &["web"]));
        assert!(changes.has_changed().unwrap() && pods.by_uid().len() == 1);
        changes.mark_unchanged();
        let mut wrong = told(4, &["web", "db"]);
        wrong.changed[0].namespace = String::new();
        pods.take(wrong);
        let status = pods.status().unwrap();
        assert_eq!((status.pods, status.generation, status.refused.len()), (1, 4, 1));
    }
}
