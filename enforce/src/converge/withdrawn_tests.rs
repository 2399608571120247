//! What is switched off is put back: random sequences of options and containers end as if there had only been the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::hierarchy::CgroupMode;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_model::units::CpuWeight;
use evenkeel_model::workload::{Requested, SourceKind, Workload};
use evenkeel_qos::cpu::WeightConversion;
use proptest::prelude::*;

use super::container::Counters;
use super::enforce_tests::{Rig, limited, requesting};
use super::env::Env;
use super::withdrawn::Withdrawn;
use crate::holds::{HoldRequest, Holder};
use crate::reconcile::Bound;

/// Cgroups of the machine; the last lies in the subtree that is given to the agent, or not.
const PATHS: [&str; 3] = ["/a", "/b", "/own/c"];

/// One state of the configuration and of the sources, and whether the agent restarts to take it.
#[derive(Debug, Clone)]
struct Stage {
    restarts: bool,
    shares: bool,
    protection: bool,
    limits: bool,
    scores: bool,
    idle: bool,
    owns: bool,
    /// Of each path: no container, one with requests, one with limits.
    containers: [u8; 3],
}

prop_compose! {
    fn stage()(
        on in any::<[bool; 7]>(),
        containers in [0..3u8, 0..3u8, 0..3u8],
    ) -> Stage {
        let [restarts, shares, protection, limits, scores, idle, owns] = on;
        Stage { restarts, shares, protection, limits, scores, idle, owns, containers }
    }
}

impl Stage {
    fn own(&self) -> &'static [&'static str] {
        if self.owns { &["/own"] } else { &[] }
    }

    fn workloads(&self) -> Vec<(Workload, &'static str)> {
        let all = self.containers.iter().zip(PATHS).filter_map(|(kind, path)| match kind {
            0 => None,
            1 => Some((requesting(path.trim_start_matches('/'), 200, 64), path)),
            _ => Some((limited(path.trim_start_matches('/'), 500, 128), path)),
        });
        all.collect()
    }

    fn configure(&self, rig: &mut Rig) {
        let on = &mut rig.rules.switches;
        (on.cpu_shares, on.cpu_weight) = (self.shares, self.shares);
        let on = &mut rig.rules.plan.knobs;
        on.memory_protection = self.protection;
        (on.cpu_quota, on.memory_max, on.oom_score_adj) = (self.limits, self.limits, self.scores);
        rig.rules.plan.cpu_idle_best_effort = self.idle;
    }
}

/// An agent on a machine; a restart leaves it the kernel and the journal.
fn started(stage: &Stage, mode: CgroupMode, before: Option<Rig>) -> Rig {
    let mut rig = Rig::with(mode, stage.own(), if before.is_some() { &[] } else { &PATHS });
    if let Some(before) = before {
        (rig.kernel, rig.journal) = (before.kernel, before.journal);
    }
    stage.configure(&mut rig);
    rig
}

/// Takes up a stage and lets the time pass in which what nobody wishes is put back.
fn take(stage: &Stage, rig: &mut Rig) {
    rig.apply(&stage.workloads());
    pass(rig, true);
    rig.apply(&stage.workloads());
}

fn pass(rig: &mut Rig, all_said: bool) {
    let mut withdrawn = Withdrawn::new(Instant::now());
    for look in 1..4 {
        let mut writer = rig.kernel.clone();
        let mut env = Env {
            reader: &rig.kernel,
            writer: &mut writer,
            journal: &mut rig.journal,
            ticks: &|| 100_000,
            config: &rig.config,
            holds: Some(&rig.holds),
        };
        let later = Instant::now() + look * Duration::from_secs(60);
        withdrawn.turn(&mut env, &rig.table, &rig.owned, all_said, &Counters(&rig.stats), later);
    }
}

/// Every value of every cgroup and process.
fn values(rig: &Rig) -> BTreeMap<String, String> {
    rig.state(|state| {
        let paths = PATHS.into_iter().chain(["/own"]);
        let knobs = paths.flat_map(|path| Knob::ALL.map(|knob| (path, knob)));
        let knobs = knobs.filter_map(|(path, knob)| {
            Some((format!("{path} {knob}"), state.value(path, knob)?.to_string()))
        });
        let scores = (10..13).filter_map(|pid| Some((format!("score {pid}"), state.score(pid)?.to_string())));
        knobs.chain(scores).collect()
    })
}

const ALL_ON: Stage = Stage {
    restarts: true,
    shares: true,
    protection: true,
    limits: true,
    scores: true,
    idle: false,
    owns: false,
    containers: [2, 0, 0],
};

#[test]
fn a_container_whose_engine_cannot_be_asked_keeps_what_it_has() {
    let mut rig = started(&ALL_ON, CgroupMode::V2, None);
    let untouched = values(&rig);
    take(&ALL_ON, &mut rig);
    let set = values(&rig);
    // The next run sees the container by its name alone.
    let mut rig = started(&ALL_ON, CgroupMode::V2, Some(rig));
    let mut named = requesting("a", 1, 1);
    (named.source, named.requested) = (SourceKind::Names, Requested::Unknown);
    rig.apply(&[(named, "/a")]);
    pass(&mut rig, false);
    assert_eq!(values(&rig), set);
    pass(&mut rig, true);
    assert_eq!(values(&rig), untouched);
}

#[test]
fn what_cannot_be_read_for_a_moment_keeps_what_it_has() {
    for mode in [CgroupMode::V1, CgroupMode::V2] {
        let stage = Stage { owns: true, containers: [2, 1, 2], ..ALL_ON };
        let mut rig = started(&stage, mode, None);
        let untouched = values(&rig);
        take(&stage, &mut rig);
        let set = values(&rig);
        // The next run cannot open a container's cgroup, nor one between an owned root and a container.
        let mut rig = started(&stage, mode, Some(rig));
        rig.state(|state| state.unreadable = ["/a", "/own", "/own/c"].map(str::to_owned).into());
        rig.apply(&stage.workloads());
        assert!(!rig.table.is_whole());
        pass(&mut rig, true);
        rig.state(|state| state.unreadable.clear());
        assert_eq!(values(&rig), set, "{mode:?}");
        rig.apply(&stage.workloads());
        assert!(rig.table.is_whole());
        pass(&mut rig, true);
        assert_eq!(values(&rig), set, "{mode:?}");
        // The one between goes on as it was when it cannot be read later.
        rig.state(|state| state.unreadable = ["/own".to_owned()].into());
        rig.apply(&stage.workloads());
        rig.state(|state| state.unreadable.clear());
        assert_eq!(values(&rig), set, "{mode:?}");
        rig.apply(&[]);
        let nobody = Stage { owns: false, containers: [0; 3], ..stage.clone() };
        let mut rig = started(&nobody, mode, Some(rig));
        take(&nobody, &mut rig);
        assert_eq!(values(&rig), untouched, "{mode:?}");
    }
}

#[test]
fn one_that_cannot_be_read_when_it_changes_is_planned_once_it_can() {
    let mut rig = started(&ALL_ON, CgroupMode::V2, None);
    take(&ALL_ON, &mut rig);
    let weight = |rig: &Rig| {
        let all = &rig.table.iter().next().unwrap().knobs.all;
        all.iter().find(|knob| knob.knob() == Knob::CpuWeight).unwrap().wanted
    };
    let before = weight(&rig);
    let merge = |rig: &mut Rig| {
        let bound = Bound { workload: Arc::new(requesting("a", 900, 128)), path: "/a".into() };
        rig.table.apply(&rig.kernel, &mut rig.rules, vec![bound]);
    };
    let readable = |rig: &Rig, is: bool| {
        rig.state(|state| state.unreadable = if is { [].into() } else { ["/a".to_owned()].into() });
    };
    readable(&rig, false);
    merge(&mut rig);
    assert_eq!((weight(&rig), rig.table.is_whole()), (before, false));
    readable(&rig, true);
    merge(&mut rig);
    let after = weight(&rig);
    assert!(after != before && rig.table.is_whole());
    // Rules that changed meanwhile count, too.
    readable(&rig, false);
    rig.rules.plan.cpu_weight = WeightConversion::Linear;
    rig.table.replan_all(&rig.kernel, &rig.rules);
    rig.table.renew(&rig.kernel, &rig.rules);
    assert_eq!((weight(&rig), rig.table.is_whole()), (after, false));
    readable(&rig, true);
    merge(&mut rig);
    assert!(weight(&rig) != after && rig.table.is_whole());
}

#[test]
fn what_is_held_for_a_while_is_put_back_once_it_is_let_go() {
    let mut rig = started(&ALL_ON, CgroupMode::V2, None);
    let untouched = values(&rig);
    take(&ALL_ON, &mut rig);
    let container = rig.table.iter().next().unwrap();
    let (at, tracked) = (container.cpu.clone().unwrap(), Arc::clone(&container.tracked));
    let value = Setting::CpuWeight(CpuWeight::clamped(1));
    let wish = HoldRequest {
        at: &at,
        value,
        tracked: &tracked,
        by: Holder::Starvation,
        why: "others starve".into(),
    };
    let mut writer = rig.kernel.clone();
    rig.holds.hold(&rig.kernel, &mut writer, wish).unwrap();
    rig.apply(&[]);
    pass(&mut rig, true);
    assert_eq!(rig.value("/a", Knob::CpuWeight), "1");
    rig.holds.release(&rig.kernel, &mut writer, &at, Knob::CpuWeight);
    pass(&mut rig, true);
    assert_eq!(values(&rig), untouched);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_switched_off_is_put_back(
        stages in prop::collection::vec(stage(), 1..6),
        v2 in any::<bool>(),
        untouched in any::<bool>(),
    ) {
        let mode = if v2 { CgroupMode::V2 } else { CgroupMode::V1 };
        let mut stages = stages;
        if untouched && let Some(last) = stages.last_mut() {
            (last.containers, last.restarts, last.owns) = ([0; 3], true, false);
        }
        let mut rig: Option<Rig> = None;
        for stage in &stages {
            let mut now = match rig.take() {
                Some(rig) if !stage.restarts => rig,
                before => started(stage, mode, before),
            };
            take(stage, &mut now);
            rig = Some(now);
        }
        if let (Some(rig), Some(last)) = (rig, stages.last()) {
            // Options count from a start on.
            let given = stages.iter().rev().find(|stage| stage.restarts).or(stages.first());
            let given = given.cloned().unwrap_or_else(|| last.clone());
            let last = Stage { containers: last.containers, ..given };
            let mut fresh = started(&last, mode, None);
            take(&last, &mut fresh);
            prop_assert_eq!(values(&rig), values(&fresh));
        }
    }
}
