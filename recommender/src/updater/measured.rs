//! What the store's seconds and minutes say of pods: how much memory they used lately, and whether a canary is worse than its like were.

use std::collections::BTreeMap;

use evenkeel_store::history::minute::StoredMinute;
use evenkeel_store::key::SeriesId;
use evenkeel_store::state::StoreState;
use evenkeel_updater::{Health, RunningPod, Watched, Workload};

/// Minutes of one pod, each once: what was seen of them before its hour went into a file, where replicas are not told apart.
type Minutes = BTreeMap<u32, Health>;

/// Minutes of canaries, remembered while they are watched.
#[derive(Debug, Default)]
pub(super) struct Remembered(BTreeMap<String, Minutes>);

/// Canaries that are remembered, and minutes of each.
const MOST_CANARIES: usize = 4096;
const MOST_MINUTES: usize = 24 * 60;

fn health(kept: &StoredMinute) -> Health {
    Health {
        seconds: kept.weight_ms / 1000,
        oom_kills: u64::from(kept.oom_kills),
        throttled_usec: kept.throttled_ms.saturating_mul(1000),
        starved_usec: kept.starved_ms.saturating_mul(1000),
    }
}

fn add(sum: &mut Health, one: &Health) {
    sum.seconds += one.seconds;
    sum.oom_kills += one.oom_kills;
    sum.throttled_usec += one.throttled_usec;
    sum.starved_usec += one.starved_usec;
}

/// Series of a container of a workload, of all its images.
fn series(state: &StoreState, cluster: &str, workload: &Workload, container: &str) -> Vec<SeriesId> {
    state.history.of_workload(&workload.namespace, &workload.name, |key| {
        key.of.cluster == cluster && key.of.container == container
    })
}

impl Remembered {
    /// Fills in what is measured of a workload's pods.
    pub(super) fn fill(&mut self, state: &StoreState, cluster: &str, workload: &mut Workload, now: u64) {
        let mut pods = std::mem::take(&mut workload.pods);
        for pod in &mut pods {
            let names: Vec<String> = pod.containers.keys().cloned().collect();
            let mut minutes = Minutes::new();
            for name in names {
                let ids = series(state, cluster, workload, &name);
                let peak = ids.iter().filter_map(|id| container(state, *id, pod, &mut minutes)).max();
                if let Some(container) = pod.containers.get_mut(&name) {
                    container.peak_memory = peak;
                }
            }
            let since = pod.note.as_ref().map(|note| note.at);
            pod.was_oom_killed |= killed(&minutes, since.unwrap_or(pod.created));
            pod.watched = self.watched(state, cluster, workload, pod, minutes, now);
        }
        workload.pods = pods;
    }

    /// What a canary is like since its change, and what the replicas of its workload were like before.
    fn watched(
        &mut self,
        state: &StoreState,
        cluster: &str,
        workload: &Workload,
        pod: &RunningPod,
        minutes: Minutes,
        now: u64,
    ) -> Option<Watched> {
        let note = pod.note.as_ref().filter(|note| note.is_canary)?;
        if self.0.len() >= MOST_CANARIES && !self.0.contains_key(&pod.uid) {
            return None;
        }
        let known = self.0.entry(pod.uid.clone()).or_default();
        for (minute, health) in minutes {
            let before = known.entry(minute).or_default();
            if health.seconds >= before.seconds {
                *before = health;
            }
        }
        while known.len() > MOST_MINUTES {
            known.pop_first();
        }
        let mut watched = Watched::default();
        // The minute of the change itself is neither before nor after.
        for (_, one) in known.iter().filter(|(minute, _)| u64::from(**minute) * 60 >= note.at) {
            add(&mut watched.after, one);
        }
        let long = workload.updates.canary_seconds.max(60);
        let minute = |at: u64| u32::try_from(at / 60).unwrap_or(u32::MAX);
        let (from, to) = (minute(note.at.saturating_sub(long).min(now)), minute(note.at));
        for name in pod.containers.keys() {
            for id in series(state, cluster, workload, name) {
                let kept = state.history.kept_within(id, from, to);
                kept.iter().for_each(|kept| add(&mut watched.before, &health(kept)));
            }
        }
        Some(watched)
    }

    /// Forgets pods that are no canaries any more.
    pub(super) fn forget_others(&mut self, all: &[Workload]) {
        let is_canary = |pod: &&RunningPod| pod.note.as_ref().is_some_and(|note| note.is_canary);
        let there: Vec<&str> =
            all.iter().flat_map(|of| of.pods.iter().filter(is_canary)).map(|pod| pod.uid.as_str()).collect();
        self.0.retain(|uid, _| there.contains(&uid.as_str()));
    }
}

/// The most memory that a container of a pod used in the present hour, and its minutes beside those of the pod's other containers.
fn container(state: &StoreState, id: SeriesId, pod: &RunningPod, minutes: &mut Minutes) -> Option<u64> {
    let mut peak = None;
    for kept in state.history.of_pod(id, &pod.name) {
        add(minutes.entry(kept.minute).or_default(), &health(&kept));
        peak = peak.max((kept.memory.count > 0).then_some(kept.memory.max));
    }
    for (_, slot) in state.live_of(id).filter(|(_, slot)| slot.identity.pod == pod.name) {
        peak = peak.max(slot.recent().filter_map(|moment| moment.memory_bytes).max());
        if let Some((minute, rollup)) = &slot.open {
            let open = Health {
                seconds: rollup.time_usec / 1_000_000,
                oom_kills: rollup.oom_kills,
                throttled_usec: rollup.throttled_usec,
                starved_usec: rollup.starved_usec,
            };
            add(minutes.entry(*minute).or_default(), &open);
        }
    }
    peak
}

/// Whether the kernel killed something in it since then.
fn killed(minutes: &Minutes, since: u64) -> bool {
    minutes.iter().any(|(minute, health)| health.oom_kills > 0 && u64::from(*minute) * 60 >= since)
}
