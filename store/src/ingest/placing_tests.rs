//! Whose history a node may tell, by a store and an API that says which pods are where.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;

use super::placing::{PlacementAnswer, Places};
use super::store::{FrameOutcome, Store};
use crate::config::{Settings, Size};
use crate::key::{NodeKey, StreamKey};
use crate::state::StoreState;
use crate::state::kills::{Kill, Killed};

const START: u64 = 1_700_049_600_000_000;
pub(super) const SECOND: u64 = 1_000_000;
pub(super) const HERE: &str = "n1";

/// The API of cluster `c`: where pods are, by name.
#[derive(Debug, Default)]
pub(super) struct Api {
    /// Node and workload; without a node nothing is said.
    pods: Mutex<BTreeMap<String, (String, Option<String>)>>,
    is_silent: Mutex<bool>,
    pub(super) kills: Mutex<Vec<Kill>>,
}

impl Api {
    pub(super) fn place(&self, pod: &str, node: &str, workload: Option<&str>) {
        self.pods.lock().unwrap().insert(pod.into(), (node.into(), workload.map(str::to_owned)));
    }

    pub(super) fn forget(&self, pod: &str) {
        self.pods.lock().unwrap().remove(pod);
    }

    fn is_silent(&self, is_silent: bool) {
        *self.is_silent.lock().unwrap() = is_silent;
    }
}

impl Places for Api {
    fn is_of(&self, cluster: &str) -> bool {
        cluster == "c"
    }

    fn say(&self, node: &str, container: &v1::ContainerIdentity) -> PlacementAnswer {
        match self.pods.lock().unwrap().get(&container.pod) {
            _ if *self.is_silent.lock().unwrap() => PlacementAnswer::Nothing,
            Some((on, workload)) if on == node => PlacementAnswer::Here(workload.clone()),
            Some(_) => PlacementAnswer::Elsewhere,
            None => PlacementAnswer::Unknown,
        }
    }

    fn kills(&self) -> Killed {
        Killed { cluster: "c".into(), kills: self.kills.lock().unwrap().clone() }
    }
}

/// A store, and the agent of a node.
pub(super) struct Fed {
    config: Settings,
    store: Option<Store>,
    pub(super) api: Arc<Api>,
    pub(super) key: StreamKey,
    encoder: Encoder,
    pub(super) sequence: u64,
    pub(super) now: u64,
}

impl Fed {
    pub(super) fn new(dir: &Path) -> Self {
        let config = Settings::at(dir);
        let key = StreamKey { cluster: "c".into(), node: HERE.into(), epoch: 1 };
        let mut fed = Self {
            config,
            store: None,
            api: Arc::default(),
            key,
            encoder: Encoder::new(),
            sequence: 0,
            now: START,
        };
        fed.open(true);
        fed
    }

    /// Opens the store, beside the API or without.
    pub(super) fn open(&mut self, is_followed: bool) {
        drop(self.store.take());
        let (mut store, report) = Store::open(&self.config).unwrap();
        assert_eq!((report.unreadable, report.missing_records), (0, 0));
        if is_followed {
            store.placed_by(Arc::clone(&self.api) as Arc<dyn Places>);
        }
        let StreamKey { cluster, node, epoch } = self.key.clone();
        store.hello(self.now, &v1::Hello { cluster, node, epoch, ..v1::Hello::default() }).unwrap();
        self.store = Some(store);
    }

    pub(super) fn store(&mut self) -> &mut Store {
        self.store.as_mut().unwrap()
    }

    pub(super) fn look<T>(&self, at: impl FnOnce(&StoreState) -> T) -> T {
        at(&self.store.as_ref().unwrap().state().read())
    }

    /// A second in which these slots have a sample.
    pub(super) fn second(&mut self, slots: &[u32], announced: Vec<v1::Announcement>, gone: Vec<u32>) {
        self.now += SECOND;
        self.sequence += 1;
        let mut sample = Sample::new(Duration::from_secs(1));
        sample.set(Field::CpuUsageUsec, self.sequence * 100_000);
        sample.set(Field::MemoryWorkingSetBytes, 1 << 20);
        let all: Vec<_> = slots.iter().map(|slot| (*slot, sample)).collect();
        let mut samples = Vec::new();
        self.encoder.encode_seconds(true, self.now, 1_000_000, &all, &mut samples).unwrap();
        let frame = v1::Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced,
            gone,
            ..v1::Frame::default()
        };
        let (now, key) = (self.now, self.key.clone());
        let taken = self.store().take(now, &key, &frame, false).unwrap();
        assert!(matches!(taken, FrameOutcome::Acknowledge { .. }), "{taken:?}");
    }

    fn place_again(&mut self) -> usize {
        let now = self.now;
        self.store().place_again(now).unwrap()
    }

    fn dropped(&self) -> u64 {
        self.look(|state| {
            let dropped = state.node(&NodeKey::of(&self.key)).unwrap().dropped.told();
            dropped.iter().find(|dropped| dropped.reason == "not-placed-here").map_or(0, |d| d.count)
        })
    }

    /// Workloads that are known, and how many containers of each are followed.
    fn workloads(&self) -> Vec<(String, usize)> {
        self.look(|state| {
            state
                .history
                .all()
                .map(|(id, s)| (s.key.of.workload.clone(), state.followed_of(id).count()))
                .collect()
        })
    }

    fn samples(&self) -> u64 {
        self.look(|state| state.counters.samples)
    }
}

/// As an agent that sees a runtime alone announces it: the workload is the pod.
pub(super) fn announce(slot: u32, pod: &str) -> v1::Announcement {
    let identity = v1::ContainerIdentity {
        namespace: "shop".into(),
        pod: pod.into(),
        pod_uid: format!("uid-{pod}"),
        container: "main".into(),
        workload: pod.into(),
        image: "web:1".into(),
        ..v1::ContainerIdentity::default()
    };
    v1::Announcement { slot, identity: Some(identity) }
}

#[test]
fn history_is_kept_by_what_the_api_calls_the_workload_over_rollouts_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    for pod in ["web-a-1", "web-b-1"] {
        fed.api.place(pod, HERE, Some("deployment/web"));
    }
    fed.api.place("alone", HERE, None);
    fed.second(&[1, 2], vec![announce(1, "web-a-1"), announce(2, "alone")], vec![]);
    // The rollout.
    fed.second(&[2, 3], vec![announce(3, "web-b-1")], vec![1]);
    let wanted = vec![("deployment/web".to_owned(), 1), ("alone".to_owned(), 1)];
    assert_eq!((fed.workloads(), fed.samples()), (wanted.clone(), 4));
    let reported = |fed: &Fed| {
        fed.look(|state| state.stream(&fed.key).unwrap().slots.get(3).unwrap().reported().to_owned())
    };
    // The node is told of its containers by the names that it gave them.
    assert_eq!(reported(&fed), "web-b-1");
    // From the log, then from a checkpoint, without a word of the API.
    fed.api.is_silent(true);
    for checkpoint in [false, true] {
        if checkpoint {
            fed.store().checkpoint().unwrap();
        }
        fed.open(true);
        assert_eq!((fed.workloads(), &*reported(&fed)), (wanted.clone(), "web-b-1"), "{checkpoint}");
    }
    // Announced again, with other requests: what the API said stays.
    let mut again = announce(3, "web-b-1");
    again.identity.as_mut().unwrap().requested = Some(v1::ResourceValues::default());
    fed.second(&[2, 3], vec![again], vec![]);
    assert_eq!((fed.workloads(), fed.place_again()), (wanted, 0));
}

#[test]
fn what_the_api_says_later_moves_a_container_to_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.api.is_silent(true);
    fed.second(&[1], vec![announce(1, "web-a-1")], vec![]);
    assert_eq!(fed.workloads(), [("web-a-1".to_owned(), 1)], "as its node says, while nothing else is known");
    fed.api.is_silent(false);
    fed.api.place("web-a-1", HERE, Some("deployment/web"));
    assert_eq!((fed.place_again(), fed.place_again()), (1, 0), "once");
    fed.second(&[1], vec![], vec![]);
    assert_eq!(fed.workloads(), [("web-a-1".to_owned(), 0), ("deployment/web".to_owned(), 1)]);
    fed.open(true);
    assert_eq!(fed.workloads()[1], ("deployment/web".to_owned(), 1), "a replay says the same");
}

#[test]
fn a_pod_of_another_node_is_not_believed_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.api.place("web-a-1", "n2", Some("deployment/web"));
    let mut bold = announce(1, "web-a-1");
    // Whatever it says itself.
    bold.identity.as_mut().unwrap().workload = "deployment/web".into();
    fed.second(&[1], vec![bold], vec![]);
    fed.second(&[1], vec![], vec![]);
    assert_eq!((fed.workloads(), fed.samples(), fed.dropped()), (vec![], 0, 2));
    assert_eq!(fed.look(|state| (state.followed(), state.counters.unannounced)), (0, 0));
    // So it stays, through the log, a checkpoint, and while the API is silent.
    for checkpoint in [false, true] {
        if checkpoint {
            fed.store().checkpoint().unwrap();
        }
        fed.api.is_silent(checkpoint);
        fed.open(true);
        fed.second(&[1], vec![announce(1, "web-a-1")], vec![]);
        assert_eq!((fed.place_again(), fed.workloads(), fed.samples()), (0, vec![], 0), "{checkpoint}");
    }
    assert_eq!(fed.dropped(), 4);
    // A kill of it is none of the workload either.
    let kill = v1::Decision {
        time_usec: fed.now,
        pod: Some("shop/web-a-1".into()),
        kind: "oom-kill".into(),
        result: "done".into(),
        ..v1::Decision::default()
    };
    fed.sequence += 1;
    let frame = v1::Frame { sequence: fed.sequence, decisions: vec![kill], ..v1::Frame::default() };
    let (now, key) = (fed.now, fed.key.clone());
    fed.store().take(now, &key, &frame, false).unwrap();
    assert_eq!(fed.dropped(), 5);
    // Once the API says that it is here, it counts.
    fed.api.is_silent(false);
    fed.api.place("web-a-1", HERE, Some("deployment/web"));
    assert_eq!(fed.place_again(), 1);
    fed.second(&[1], vec![], vec![]);
    assert_eq!((fed.workloads(), fed.samples()), (vec![("deployment/web".to_owned(), 1)], 1));
    assert_eq!(fed.dropped(), 5);
}

#[test]
fn an_unknown_pod_waits_a_minute_before_its_node_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.second(&[1, 2], vec![announce(1, "late"), announce(2, "never")], vec![]);
    assert_eq!((fed.place_again(), fed.workloads(), fed.dropped()), (0, vec![], 0));
    fed.api.place("late", HERE, None);
    assert_eq!((fed.place_again(), fed.workloads()), (1, vec![("late".to_owned(), 1)]));
    fed.now += 59 * SECOND;
    assert_eq!(fed.place_again(), 0);
    fed.now += 2 * SECOND;
    assert_eq!(fed.place_again(), 1);
    fed.second(&[1, 2], vec![], vec![]);
    assert_eq!((fed.samples(), fed.dropped()), (1, 1));
    assert_eq!(fed.look(|state| state.counters.misplaced), 3, "those in which they waited are counted, too");
    // What ends is forgotten.
    fed.second(&[], vec![], vec![1, 2]);
    fed.second(&[2], vec![], vec![]);
    assert_eq!(fed.look(|state| (state.followed(), state.counters.unannounced)), (0, 1));
}

#[test]
fn one_that_was_believed_is_so_until_its_pod_is_gone_for_a_minute() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.api.place("db-0", HERE, Some("statefulset/db"));
    fed.second(&[1], vec![announce(1, "db-0")], vec![]);
    // It was made anew elsewhere; the one here ends some seconds later.
    fed.api.place("db-0", "n2", Some("statefulset/db"));
    assert_eq!(fed.place_again(), 0);
    fed.now += 59 * SECOND;
    // Announced again, as something bolder: it is not named by that.
    let mut again = announce(1, "db-0");
    again.identity.as_mut().unwrap().workload = "deployment/web".into();
    fed.second(&[1], vec![again], vec![]);
    assert_eq!((fed.place_again(), fed.samples()), (0, 2));
    assert_eq!(fed.workloads(), [("statefulset/db".to_owned(), 1)]);
    // It comes back in time, and goes again: time begins anew.
    fed.api.place("db-0", HERE, Some("statefulset/db"));
    assert_eq!(fed.place_again(), 0);
    fed.api.forget("db-0");
    assert_eq!(fed.place_again(), 0);
    fed.now += 61 * SECOND;
    assert_eq!(fed.place_again(), 1);
    fed.second(&[1], vec![], vec![]);
    assert_eq!(
        (fed.workloads(), fed.samples(), fed.dropped()),
        (vec![("statefulset/db".to_owned(), 0)], 2, 1)
    );
}

#[test]
fn without_an_api_nodes_are_believed_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.api.place("web-a-1", "n2", None);
    fed.second(&[1], vec![announce(1, "web-a-1")], vec![]);
    fed.store().checkpoint().unwrap();
    fed.open(false);
    assert_eq!((fed.place_again(), fed.place_again()), (1, 0));
    fed.second(&[1], vec![], vec![]);
    assert_eq!((fed.workloads(), fed.samples()), (vec![("web-a-1".to_owned(), 1)], 1));
}

#[test]
fn another_cluster_is_not_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.key.cluster = "other".into();
    fed.open(true);
    fed.second(&[1], vec![announce(1, "unknown")], vec![]);
    assert_eq!((fed.place_again(), fed.workloads()), (0, vec![("unknown".to_owned(), 1)]));
}

#[test]
fn what_is_set_aside_is_bounded_as_containers_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    fed.config.ingest.max_containers_per_node = 10;
    fed.open(true);
    fed.api.place("here", HERE, None);
    let mut many: Vec<_> = (0..1_000).map(|slot| announce(slot, &format!("made-up-{slot}"))).collect();
    // They take the places of its own.
    many.push(announce(5_000, "here"));
    fed.second(&[], many, vec![]);
    let counts = |fed: &Fed| {
        fed.look(|state| {
            (state.stream(&fed.key).unwrap().aside.len(), state.followed(), state.counters.refused_containers)
        })
    };
    assert_eq!(counts(&fed), (10, 0, 991));
    fed.second(&[], vec![announce(5_000, "here")], vec![]);
    assert_eq!(counts(&fed), (10, 0, 992));
    fed.second(&[], vec![announce(5_000, "here")], (0..10).collect());
    fed.second(&[], vec![announce(5_000, "here")], vec![]);
    assert_eq!(counts(&fed), (0, 1, 993));
}

#[test]
fn names_that_a_record_has_no_room_for_are_said_by_the_next_ones() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::new(dir.path());
    // As little room as can be configured, and names as long as can be.
    fed.config.ingest.max_message = Size::from_bytes(1 << 16);
    fed.open(true);
    let long = format!("deployment/{}", "d".repeat(306));
    let pods: Vec<_> = (0..800).map(|slot| (slot, format!("web-{slot}"))).collect();
    pods.iter().for_each(|(_, pod)| fed.api.place(pod, HERE, Some(&long)));
    fed.second(&[], pods.iter().map(|(slot, pod)| announce(*slot, pod)).collect(), vec![]);
    let followed = fed.look(StoreState::followed);
    assert!((500..700).contains(&followed), "{followed}");
    let waited = 800 - followed;
    assert_eq!((fed.place_again(), fed.workloads()), (waited, vec![(long.clone(), 800)]));
    // All at once get another one: no record is too large either.
    pods.iter()
        .for_each(|(_, pod)| fed.api.place(pod, HERE, Some(&long.replace("deployment", "replicaset"))));
    assert_eq!(fed.place_again(), 800);
    fed.open(true);
    assert_eq!(fed.workloads()[1].1, 800, "a replay says the same");
}
