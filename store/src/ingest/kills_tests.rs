//! OOM kills that kubelets tell of, and agents, and both: each counts once, whatever is started again.

use evenkeel_model::key::ContainerKey;
use evenkeel_proto::v1;

use super::placing_tests::{Fed, HERE, SECOND, announce};
use crate::key::Subject;
use crate::state::kills::Kill;

const POD: &str = "web-a-1";

/// As a kubelet tells of it.
fn kill(id: &str, time_usec: u64) -> Kill {
    Kill {
        node: HERE.into(),
        namespace: "shop".into(),
        pod: POD.into(),
        workload: "deployment/web".into(),
        container: "main".into(),
        id: id.into(),
        time_usec,
        request: Some(64),
        limit: Some(128),
    }
}

fn run(slot: u32, id: &str) -> v1::Announcement {
    let mut announced = announce(slot, POD);
    announced.identity.as_mut().unwrap().id = id.into();
    announced
}

/// What of a kill is in the history: use, request and limit.
type Known = (Option<u64>, Option<u64>, Option<u64>);
const BY_KUBELET: Known = (None, Some(64), Some(128));
const BY_AGENT: Known = (Some(1 << 20), None, None);

impl Fed {
    /// A node on which one container runs that the API calls `deployment/web`.
    fn running(dir: &std::path::Path) -> Self {
        let mut fed = Self::new(dir);
        fed.api.place(POD, HERE, Some("deployment/web"));
        fed.second(&[1], vec![run(1, "a")], vec![]);
        fed
    }

    /// Kubelets tell of these now.
    fn kubelets_tell(&self, kills: &[(&str, u64)]) {
        *self.api.kills.lock().unwrap() = kills.iter().map(|(id, at)| kill(id, *at)).collect();
    }

    /// The agent tells of a kill.
    fn agent_tells(&mut self, time_usec: u64) {
        let decision = v1::Decision {
            time_usec,
            pod: Some(format!("shop/{POD}")),
            container: Some("main".into()),
            kind: "oom-kill".into(),
            result: "done".into(),
            ..v1::Decision::default()
        };
        self.sequence += 1;
        let frame = v1::Frame { sequence: self.sequence, decisions: vec![decision], ..v1::Frame::default() };
        let (now, key) = (self.now, self.key.clone());
        self.store().take(now, &key, &frame, false).unwrap();
    }

    fn count(&mut self) -> usize {
        let now = self.now;
        self.store().count_kills(now).unwrap()
    }

    fn known(&self) -> Vec<Known> {
        self.look(|state| {
            let own = Subject::Own(ContainerKey::new("c", "shop", "deployment/web", "main"));
            let held = state.past.find(&own).and_then(|own| state.past.get(own));
            held.into_iter().flat_map(|of| &of.events).map(|e| (e.usage, e.request, e.limit)).collect()
        })
    }
}

#[test]
fn a_kill_that_a_kubelet_alone_tells_of_counts_once_over_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::running(dir.path());
    let at = fed.now;
    fed.kubelets_tell(&[("a", at)]);
    // The agent may tell of it first.
    assert_eq!((fed.count(), fed.known()), (0, vec![]));
    // It runs again by then, and the run that ended is known to nobody any more.
    fed.second(&[2], vec![run(2, "b")], vec![1]);
    fed.now = at + 10 * SECOND;
    assert_eq!((fed.count(), fed.count(), fed.known()), (1, 0, vec![BY_KUBELET]));
    // From the log, then from a checkpoint; the kubelet goes on telling of it.
    for checkpoint in [false, true] {
        if checkpoint {
            fed.store().checkpoint().unwrap();
        }
        fed.open(true);
        assert_eq!((fed.count(), fed.known()), (0, vec![BY_KUBELET]), "{checkpoint}");
    }
    // The next run ends the same way, soon after.
    fed.kubelets_tell(&[("b", at + 20 * SECOND)]);
    fed.now = at + 30 * SECOND;
    assert_eq!((fed.count(), fed.known().len()), (1, 2));
    assert_eq!(fed.look(|state| state.past.counts.kubelet_events), 1, "since the start");
}

#[test]
fn a_kill_that_both_tell_of_counts_once_whoever_is_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::running(dir.path());
    let at = fed.now;
    fed.agent_tells(at);
    // The kubelet sees the end of the container, by whole seconds.
    fed.kubelets_tell(&[("a", at + 5 * SECOND)]);
    fed.now = at + 60 * SECOND;
    assert_eq!((fed.count(), fed.known()), (0, vec![BY_AGENT]));
    fed.store().checkpoint().unwrap();
    fed.open(true);
    assert_eq!(fed.count(), 0, "what the agent told of is remembered, too");
    // Another process of the same run was killed minutes before its end.
    fed.kubelets_tell(&[("a", at + 300 * SECOND)]);
    fed.now = at + 310 * SECOND;
    assert_eq!((fed.count(), fed.known()), (1, vec![BY_AGENT, BY_KUBELET]));
    // An agent that was cut off tells of that end late, and of one more kill.
    fed.second(&[1], vec![], vec![]);
    fed.agent_tells(at + 299 * SECOND);
    assert_eq!(fed.known(), [BY_AGENT, BY_KUBELET]);
    fed.agent_tells(at + 301 * SECOND);
    assert_eq!(fed.known(), [BY_AGENT, BY_KUBELET, BY_AGENT]);
}

#[test]
fn a_container_that_never_runs_again_is_known_by_its_workload_and_a_stranger_waits() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::running(dir.path());
    let at = fed.now;
    let of =
        |kill: Kill, pod: &str, workload: &str| Kill { pod: pod.into(), workload: workload.into(), ..kill };
    // Another replica, on a node without an agent; and a workload of which nothing is known.
    *fed.api.kills.lock().unwrap() = vec![
        Kill { node: "n2".into(), ..of(kill("x", at), "web-a-2", "deployment/web") },
        of(kill("y", at), "db-0", "statefulset/db"),
    ];
    fed.now = at + 20 * SECOND;
    assert_eq!((fed.count(), fed.known()), (1, vec![BY_KUBELET]));
    // Once its container is known it counts.
    fed.api.place("db-0", HERE, Some("statefulset/db"));
    fed.second(&[1, 2], vec![announce(2, "db-0")], vec![]);
    assert_eq!((fed.count(), fed.count()), (1, 0));
    assert_eq!(fed.look(|state| state.past.counts.kubelet_events), 2);
    // Neither what is to come nor what is long over counts.
    fed.kubelets_tell(&[("later", fed.now + SECOND), ("earlier", at - 15 * 86_400 * SECOND)]);
    assert_eq!(fed.count(), 0);
}

#[test]
fn what_is_remembered_is_bounded_and_what_may_be_forgotten_counts_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut fed = Fed::running(dir.path());
    let at = fed.now;
    // 17,000 runs of a container that ended one each second.
    for hour in 0..17_u64 {
        let ended: Vec<(String, u64)> =
            (0..1_000).map(|i| (format!("{hour}-{i}"), at + (hour * 1_000 + i) * SECOND)).collect();
        let ended: Vec<(&str, u64)> = ended.iter().map(|(id, at)| (id.as_str(), *at)).collect();
        fed.kubelets_tell(&ended);
        fed.now = at + (hour * 1_000 + 1_010) * SECOND;
        assert_eq!((fed.count(), fed.count()), (1_000, 0), "{hour}");
    }
    // The first are forgotten, and none of them counts again.
    let remembered = fed.look(|state| state.kills.all().count());
    assert!((8_000..16_385).contains(&remembered), "{remembered}");
    fed.kubelets_tell(&[("0-0", at), ("16-999", at + 16_999 * SECOND)]);
    assert_eq!(fed.count(), 0);
    fed.store().checkpoint().unwrap();
    fed.open(true);
    assert_eq!((fed.count(), fed.look(|state| state.kills.all().count())), (0, remembered));
    // Twenty an hour are history.
    let history = fed.known().len();
    assert!((20..=120).contains(&history), "{history}");
}
