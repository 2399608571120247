//! What is offered for containers that failed: started again, or their pod goes.
//!
//! Owned here: applying the policy of `evenkeel-qos`, telling each ruling as a decision that names who should act, and
//! the list of offers that still stand. Not owned: the policy, and carrying rulings out ([`crate::evict`]).

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, OnceLock};

use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::{CgroupBinding, ContainerKind, SourceKind, Workload};
use evenkeel_qos::eviction::{
    ContainerFailure, ContainerKey, EvictionPolicy, Failures, PodKey, Remedy, Ruling,
};
use evenkeel_qos::why::Why;

use crate::converge::roster::RosterEntry;
use crate::decisions::{DecisionLog, Draft};
use crate::evict::Task;
use crate::shared::{Tracked, lock};
use crate::stats::Stats;

/// Offers remembered, settled ones too; the oldest go first, settled before standing.
const OFFERS: usize = 256;

/// A restart or an eviction offered to whoever runs the pod.
#[derive(Debug, Clone)]
pub struct EvictionOffer {
    /// The decision, with every number it used.
    pub decision: Arc<Decision>,
    /// What is offered.
    pub remedy: Remedy,
    /// The container that failed.
    pub container: ContainerKey,
    /// Its id.
    pub id: String,
    /// Inode of the cgroup it failed in.
    pub inode: u64,
    /// Restarts counted within the window before, and how many the policy allows where it counts.
    pub restarts: u32,
    /// Restarts allowed.
    pub allowed: Option<u32>,
    /// The window, microseconds.
    pub window_usec: u64,
    /// Who should act.
    pub actor: String,
    /// Nobody has acted yet.
    pub standing: bool,
}

/// Why a container failed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FailureCause<'a> {
    /// One word for the decision's inputs, such as `oom-kill`.
    pub name: &'static str,
    /// What happened to it, such as "was OOM-killed".
    pub what: &'a str,
    /// When, microseconds since 1970.
    pub time_usec: u64,
    /// The decision that tells of it.
    pub decision: Option<u64>,
}

/// The policy with its counts and offers; shared by the threads that see containers fail.
pub struct Evictions {
    policy: Mutex<EvictionPolicy>,
    rehearsal: bool,
    inner: Mutex<EvictionsState>,
    /// Whoever carries rulings out; when it has too much to do, the offer stands.
    tasks: OnceLock<SyncSender<Task>>,
}

#[derive(Default)]
struct EvictionsState {
    failures: Failures,
    offers: VecDeque<EvictionOffer>,
}

impl Evictions {
    /// A policy with the offers of earlier runs. On a `rehearsal` nothing is offered: rulings are told as what would be.
    pub fn new(policy: EvictionPolicy, rehearsal: bool, earlier: &[Arc<Decision>]) -> Self {
        let mut inner = EvictionsState::default();
        for offer in earlier.iter().filter_map(offer_of) {
            if offer.remedy == Remedy::Restart && offer.decision.result == DecisionResult::Done {
                let failure = ContainerFailure { time_usec: offer.decision.time_usec, inode: offer.inode };
                inner.failures.restore(&offer.container, failure);
            }
            inner.remember(offer);
        }
        Self { policy: Mutex::new(policy), rehearsal, inner: Mutex::new(inner), tasks: OnceLock::new() }
    }

    /// Rulings from now on go to whoever carries them out.
    pub fn hand_to(&self, tasks: SyncSender<Task>) {
        if self.tasks.set(tasks).is_err() {
            tracing::debug!("ignoring a second one to carry rulings out");
        }
    }

    /// Puts another policy in force: rulings from now on follow it, offers made stay.
    pub fn set_policy(&self, policy: EvictionPolicy) {
        *lock(&self.policy) = policy;
    }

    fn policy(&self) -> EvictionPolicy {
        *lock(&self.policy)
    }

    /// Takes in that a container failed, and tells the ruling. `None` when it belongs to a failure ruled on already, or
    /// no rule applies: the container's class is not known, or it is the pod's own process.
    pub(crate) fn failed(
        &self,
        tracked: &Arc<Tracked>,
        cause: FailureCause<'_>,
        decisions: &DecisionLog,
        stats: &Stats,
    ) -> Option<Arc<Decision>> {
        let workload = &tracked.workload;
        let class = tracked.classes.memory.filter(|_| workload.kind != ContainerKind::Infrastructure)?;
        let container = ContainerKey::of(workload);
        let failure = ContainerFailure { time_usec: cause.time_usec, inode: tracked.inode };
        let mut inner = lock(&self.inner);
        inner.failures.prune(&self.policy(), cause.time_usec);
        let ruling = inner.failures.judge(&self.policy(), &container, class, failure)?;
        let actor = actor(workload);
        let decision = decisions.record(self.draft(tracked, &ruling, cause, &actor), stats);
        match ruling.remedy() {
            Remedy::Evict => stats.evictions.of(Some(class)).add(1),
            Remedy::Restart => stats.restarts.of(Some(class)).add(1),
        }
        inner.remember(EvictionOffer {
            decision: Arc::clone(&decision),
            remedy: ruling.remedy(),
            container,
            id: workload.id.clone(),
            inode: tracked.inode,
            restarts: ruling.restarts,
            allowed: ruling.allowed.restarts(),
            window_usec: ruling.window_usec,
            actor,
            standing: !self.rehearsal,
        });
        let task =
            Task { remedy: ruling.remedy(), class, tracked: Arc::clone(tracked), because_of: decision.seq };
        if let Some(Err(error)) = self.tasks.get().map(|tasks| tasks.try_send(task)) {
            tracing::debug!(%error, "ignoring: a ruling is not carried out here; it is offered");
        }
        Some(decision)
    }

    fn draft(&self, tracked: &Tracked, ruling: &Ruling, cause: FailureCause<'_>, actor: &str) -> Draft {
        let kind = match ruling.remedy() {
            Remedy::Evict => DecisionKind::Evict,
            Remedy::Restart => DecisionKind::Restart,
        };
        let workload = &tracked.workload;
        let reason = format!("{}; offered to {actor}", ruling.reason(cause.what));
        let mut draft = Draft::of(workload, kind, reason)
            .values(None, Some(ruling.remedy().as_str().to_owned()))
            .inputs(Why::Ruling(*ruling).inputs())
            .input("cause", cause.name)
            .input("actor", actor)
            .input("id", &workload.id)
            .input("inode", tracked.inode);
        if let Some(uid) = &workload.pod.uid {
            draft = draft.input("pod_uid", uid);
        }
        if let Some(seq) = cause.decision {
            draft = draft.input("because_of", seq);
        }
        let result = if self.rehearsal { DecisionResult::WouldDo } else { DecisionResult::Done };
        draft.result(result)
    }

    /// Settles offers that were taken up, by what is there now: an evicted pod has no container left, a restarted
    /// container lives in another cgroup. A restart nobody takes up is forgotten after the window.
    pub(crate) fn settle(&self, present: &[RosterEntry], now_usec: u64) {
        let mut inner = lock(&self.inner);
        for offer in inner.offers.iter_mut().filter(|offer| offer.standing) {
            let age = now_usec.saturating_sub(offer.decision.time_usec);
            offer.standing = match offer.remedy {
                Remedy::Evict => present.iter().any(|e| is_of(&e.tracked.workload, &offer.container.pod)),
                Remedy::Restart => {
                    age <= self.policy().burstable_window_usec
                        && present.iter().any(|e| e.tracked.inode == offer.inode)
                }
            };
        }
    }

    /// Offers that stand, oldest first; settled ones too where `all` is wished.
    pub fn offers(&self, all: bool) -> Vec<EvictionOffer> {
        lock(&self.inner).offers.iter().filter(|offer| all || offer.standing).cloned().collect()
    }
}

impl EvictionsState {
    fn remember(&mut self, offer: EvictionOffer) {
        if self.offers.len() >= OFFERS {
            let settled = self.offers.iter().position(|offer| !offer.standing);
            self.offers.remove(settled.unwrap_or(0));
        }
        self.offers.push_back(offer);
    }
}

fn is_of(workload: &Workload, pod: &PodKey) -> bool {
    let same = workload.pod.namespace == pod.namespace && workload.pod.name == pod.name;
    same && (workload.pod.uid == pod.uid || pod.uid.is_none() || workload.pod.uid.is_none())
}

/// Who runs a container, and so should act.
fn actor(workload: &Workload) -> String {
    match (workload.source, &workload.cgroup) {
        (SourceKind::Kubernetes, _) => "the kubelet".to_owned(),
        (SourceKind::Cri, _) => "whoever drives the container runtime, such as the kubelet".to_owned(),
        (SourceKind::Names, _) => "the container runtime (docker, podman)".to_owned(),
        (_, CgroupBinding::Unit(unit)) => format!("systemd ({unit}: Restart=, or systemctl stop)"),
        (SourceKind::Systemd, CgroupBinding::Path(path)) => format!("systemd (the unit of {path})"),
        (SourceKind::Manifests, CgroupBinding::Path(path)) => {
            format!("whoever started the processes in {path}")
        }
    }
}

/// An offer as an earlier run's decision tells it.
fn offer_of(decision: &Arc<Decision>) -> Option<EvictionOffer> {
    let remedy = match decision.kind {
        DecisionKind::Evict => Remedy::Evict,
        DecisionKind::Restart => Remedy::Restart,
        _ => return None,
    };
    let input = |name: &str| decision.inputs.get(name);
    let (namespace, name) = decision.pod.as_deref()?.split_once('/')?;
    let uid = input("pod_uid").cloned();
    let pod = PodKey { namespace: namespace.to_owned(), name: name.to_owned(), uid };
    Some(EvictionOffer {
        remedy,
        container: ContainerKey { pod, container: decision.container.clone()? },
        id: input("id")?.clone(),
        inode: input("inode")?.parse().ok()?,
        restarts: input("restarts")?.parse().ok()?,
        allowed: input("restarts_allowed").and_then(|n| n.parse().ok()),
        window_usec: input("window_usec")?.parse().ok()?,
        actor: input("actor").cloned().unwrap_or_default(),
        standing: decision.result == DecisionResult::Done,
        decision: Arc::clone(decision),
    })
}

/// What a class is called in metrics and events.
pub(crate) fn class_name(class: Option<QosClass>) -> &'static str {
    class.map_or("unclassified", QosClass::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::in_slot as tracked;

    fn container(slot: u32, pod: &str, class: QosClass) -> Arc<Tracked> {
        let mut tracked = tracked(slot, pod);
        tracked.classes.memory = Some(class);
        Arc::new(tracked)
    }

    fn entry(tracked: Arc<Tracked>) -> RosterEntry {
        let (memory, cpu, freezer) = (None, None, None);
        RosterEntry { tracked, managed: true, memory, cpu, freezer }
    }

    fn oom(time_usec: u64) -> FailureCause<'static> {
        FailureCause { name: "oom-kill", what: "was OOM-killed", time_usec, decision: Some(7) }
    }

    #[test]
    fn rulings_are_told_with_their_numbers_and_survive_a_restart() {
        let (log, stats) = (DecisionLog::for_tests(), Stats::default());
        let evictions = Evictions::new(EvictionPolicy::default(), false, &[]);
        let now = crate::decisions::now_usec();
        let mut told = Vec::new();
        for life in 0..4 {
            let web = container(life, "web", QosClass::Burstable);
            let at = now + u64::from(life) * 10_000_000;
            told.push(evictions.failed(&web, oom(at), &log, &stats).unwrap());
            assert_eq!(evictions.failed(&web, oom(at + 1), &log, &stats), None, "the same failure");
        }
        let kinds: Vec<_> = told.iter().map(|d| (d.kind, d.inputs["restarts"].as_str())).collect();
        use DecisionKind::{Evict, Restart};
        assert_eq!(kinds, [(Restart, "0"), (Restart, "1"), (Restart, "2"), (Evict, "3")]);
        assert!(told[3].reason.contains("3 of 3 restarts in 10m"), "{}", told[3].reason);
        assert!(
            told[3].reason.ends_with("offered to whoever started the processes in /web"),
            "{}",
            told[3].reason
        );
        assert_eq!(
            (told[0].inputs["because_of"].as_str(), told[0].inputs["window_usec"].as_str()),
            ("7", "600000000")
        );
        // Another run: the restarts granted still count, and the offers are still there.
        let again = Evictions::new(EvictionPolicy::default(), false, &told);
        assert_eq!(again.offers(true).len(), 4);
        let web = container(9, "web", QosClass::Burstable);
        let ruled = again.failed(&web, oom(now + 60_000_000), &log, &stats).unwrap();
        assert_eq!(ruled.kind, Evict);
    }

    #[test]
    fn offers_stand_until_somebody_acts() {
        let (log, stats) = (DecisionLog::for_tests(), Stats::default());
        let evictions = Evictions::new(EvictionPolicy::default(), false, &[]);
        let now = crate::decisions::now_usec();
        for (slot, name, class) in [(1, "idle", QosClass::BestEffort), (2, "web", QosClass::Burstable)] {
            evictions.failed(&container(slot, name, class), oom(now), &log, &stats).unwrap();
        }
        let unknown = Arc::new(tracked(3, "unknown"));
        assert_eq!(evictions.failed(&unknown, oom(now), &log, &stats), None);
        let present = |list: Vec<Arc<Tracked>>| list.into_iter().map(entry).collect::<Vec<_>>();
        let (idle, web) = (
            |slot| container(slot, "idle", QosClass::BestEffort),
            |slot| container(slot, "web", QosClass::Burstable),
        );
        for (there, standing) in [
            (present(vec![idle(1), web(2)]), vec![1, 2]),
            // Another life of the first is still the pod that should go; the second was restarted.
            (present(vec![idle(5), web(6)]), vec![1]),
            (present(vec![web(6)]), vec![]),
            // Settled is settled.
            (present(vec![idle(1), web(2)]), vec![]),
        ] {
            evictions.settle(&there, now);
            let stand: Vec<_> = evictions.offers(false).iter().map(|o| o.inode).collect();
            assert_eq!(stand, standing);
        }
        assert_eq!(stats.evictions.of(Some(QosClass::BestEffort)).get(), 1);
    }

    #[test]
    fn a_rehearsal_offers_nothing() {
        let (log, stats) = (DecisionLog::for_tests(), Stats::default());
        let evictions = Evictions::new(EvictionPolicy::default(), true, &[]);
        let (sender, tasks) = crate::evict::tasks();
        evictions.hand_to(sender);
        let told =
            evictions.failed(&container(1, "idle", QosClass::BestEffort), oom(1), &log, &stats).unwrap();
        assert_eq!((told.result, evictions.offers(false).len()), (DecisionResult::WouldDo, 0));
        // Whoever carries rulings out is told all the same, and knows that this is a rehearsal.
        let task = tasks.try_recv().unwrap();
        assert_eq!((task.remedy, task.because_of), (Remedy::Evict, told.seq));
    }
}
