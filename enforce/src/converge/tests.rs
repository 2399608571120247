//! Tables of the converge loop against a fake kernel: respect and pin, churn, freezing, denial, contention.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use evenkeel_host::error::{Category, HostError, HostOperation};
use evenkeel_host::fake::{FakeKernel, FakeState};
use evenkeel_host::hierarchy::{CgroupMode, Hierarchy};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::{CgroupFacts, Family, HostReader, MemoryUse, ProcessFacts};
use evenkeel_host::write::{CgroupRef, Target as WriteTarget};
use evenkeel_model::units::{CpuShares, OomScoreAdj};
use evenkeel_model::workload::ScorePolicy;
use evenkeel_qos::why::Why;

use super::env::Env;
use super::knob::{KnobLoop, KnobState};
use super::members::Target;
use super::score::{ScoreLoop, Turn, Verdict};
use crate::converge::rules::{Converge, FreezeWhen};
use crate::journal::Journal;

const TARGET: i64 = 500;

fn score(value: i64) -> OomScoreAdj {
    OomScoreAdj::clamped(value)
}

fn config() -> Converge {
    Converge {
        audit_period: Duration::from_secs(10),
        freeze: FreezeWhen::Forking,
        freeze_max: Duration::from_millis(20),
        score: ScorePolicy::Respect,
        contended_after: 3,
        answer_within: Duration::ZERO,
    }
}

/// A fake machine with the cgroup `/c`, and everything a turn needs.
struct Rig {
    kernel: FakeKernel,
    journal: Journal,
    config: Converge,
    ticks: u64,
    looper: ScoreLoop,
}

impl Rig {
    fn new(policy: ScorePolicy) -> Self {
        let kernel = FakeKernel::new(CgroupMode::V1);
        kernel.with(|state| state.add_cgroup("/c"));
        let target = Target { score: score(TARGET), policy };
        Self {
            kernel,
            journal: Journal::in_memory("boot"),
            config: config(),
            ticks: 1000,
            looper: ScoreLoop::new(target),
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut FakeState) -> R) -> R {
        self.kernel.with(act)
    }

    fn process(&self, pid: u32, start: u64, value: i64) {
        self.with(|state| state.add_process(pid, start, score(value), "/c"));
    }

    fn turn(&mut self) -> Turn {
        let facts = self.kernel.cgroup("/c").unwrap();
        let freezer = facts.knob(Knob::FreezerState).unwrap().place.clone();
        let mut writer = self.kernel.clone();
        let ticks = self.ticks;
        let mut env = Env {
            reader: &self.kernel,
            writer: &mut writer,
            journal: &mut self.journal,
            ticks: &move || ticks,
            config: &self.config,
            holds: None,
        };
        self.looper.turn(&mut env, facts.processes_at().unwrap(), Some(&freezer)).unwrap()
    }

    /// Turns until something else than "again" comes out.
    fn settle(&mut self) -> (Verdict, u32) {
        let mut froze = 0;
        for _ in 0..50 {
            let turn = self.turn();
            froze += u32::from(turn.froze);
            if !matches!(turn.verdict, Verdict::Again(_)) {
                return (turn.verdict, froze);
            }
        }
        panic!("not settled after 50 turns");
    }

    fn scores(&self, pids: &[u32]) -> Vec<i16> {
        pids.iter().map(|pid| self.with(|state| state.score(*pid).unwrap().get())).collect()
    }
}

fn verified(processes: u32) -> Verdict {
    Verdict::Verified { processes, respected: 0 }
}

#[test]
fn a_quiet_container_is_written_confirmed_and_left_alone() {
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 1, 0);
    rig.process(11, 2, 1000);
    assert!(matches!(rig.turn().verdict, Verdict::Again(_)), "one clean pass after a write is no proof");
    assert_eq!(rig.settle(), (verified(2), 0));
    assert_eq!(rig.scores(&[10, 11]), [500, 500]);
    let writes = rig.with(|state| state.writes.len());
    let audit = rig.turn();
    assert_eq!((audit.verdict, audit.passes), (verified(2), 0));
    assert_eq!(rig.with(|state| state.writes.len()), writes);
    assert_eq!(rig.journal.originals().count(), 2);
}

#[test]
fn young_processes_are_given_time_to_show_whether_they_fork() {
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 990, 0);
    let waits: Vec<Verdict> = (0..3).map(|_| rig.turn().verdict).collect();
    assert!(matches!(waits[1], Verdict::Again(wait) if wait >= Duration::from_secs(1)), "{waits:?}");
    rig.ticks = 2000;
    assert_eq!(rig.turn().verdict, verified(1));
}

#[test]
fn a_container_found_right_needs_no_proof_and_an_empty_one_is_right() {
    let mut rig = Rig::new(ScorePolicy::Respect);
    assert_eq!(rig.turn().verdict, verified(0));
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 1, TARGET);
    assert_eq!(rig.turn().verdict, verified(1));
}

#[test]
fn forks_that_outrun_passes_are_frozen_once_and_then_proven() {
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 1, 0);
    // Before each listing the youngest process forks and ends: a chain that no listing catches twice.
    let state = Mutex::new((10, 2));
    rig.kernel.before_listing(move |kernel| {
        let mut state = state.lock().unwrap();
        let (parent, start) = *state;
        kernel.fork(parent, parent + 1, start);
        if kernel.score(parent + 1).is_some() {
            kernel.exit(parent);
            *state = (parent + 1, start + 1);
        }
    });
    let (verdict, froze) = rig.settle();
    assert_eq!((verdict, froze), (verified(1), 1));
    let frozen = rig.with(|kernel| kernel.value("/c", Knob::FreezerState));
    assert_eq!(frozen, Some(Setting::FreezerState(false)), "thawed again");
    assert!(rig.journal.left_frozen().is_empty());
    rig.kernel.before_listing(|_| {});
    assert_eq!(rig.settle().0, verified(1));
}

#[test]
fn without_freezing_a_forking_container_takes_longer_but_gets_there() {
    for never in [true, false] {
        let mut rig = Rig::new(ScorePolicy::Respect);
        rig.process(10, 1, 0);
        if never {
            rig.config.freeze = FreezeWhen::Never;
        } else {
            rig.with(|kernel| kernel.never_freezes("/c"));
        }
        let next = Mutex::new(11);
        rig.kernel.before_listing(move |kernel| {
            let mut next = next.lock().unwrap();
            kernel.exit(*next - 1 + u32::from(*next == 11));
            kernel.fork(10, *next, u64::from(*next));
            *next += 1;
        });
        rig.process(10, 1, 0);
        let (verdict, froze) = rig.settle();
        assert!(matches!(verdict, Verdict::Verified { .. }), "{verdict:?}");
        assert_eq!(froze, 0);
        let frozen = rig.with(|kernel| kernel.value("/c", Knob::FreezerState));
        assert_eq!(frozen, Some(Setting::FreezerState(false)));
    }
}

/// A machine so busy that every process of a container has ended before its files can be read, unless it is frozen.
struct Vanishing(FakeKernel);

impl Vanishing {
    fn unless_frozen<T>(&self, value: Result<T, HostError>) -> Result<T, HostError> {
        let frozen =
            self.0.with(|state| state.value("/c", Knob::FreezerState)) == Some(Setting::FreezerState(true));
        if frozen {
            value
        } else {
            Err(HostError::of_text(Category::Gone, HostOperation::Read, "process", "it has ended"))
        }
    }
}

impl HostReader for Vanishing {
    fn cgroup(&self, path: &str) -> Result<CgroupFacts, HostError> {
        self.0.cgroup(path)
    }
    fn children(&self, path: &str) -> Result<Vec<String>, HostError> {
        self.0.children(path)
    }
    fn exists(&self, path: &str) -> bool {
        self.0.exists(path)
    }
    fn place(&self, hierarchy: Hierarchy, path: &str) -> Result<CgroupRef, HostError> {
        self.0.place(hierarchy, path)
    }
    fn family(&self, parent: &CgroupRef) -> Result<Family, HostError> {
        self.0.family(parent)
    }
    fn memory(&self, cgroup: &CgroupRef) -> Result<MemoryUse, HostError> {
        self.0.memory(cgroup)
    }
    fn pids(&self, cgroup: &CgroupRef) -> Result<Vec<u32>, HostError> {
        self.0.pids(cgroup)
    }
    fn process(&self, pid: u32) -> Result<ProcessFacts, HostError> {
        self.unless_frozen(self.0.process(pid))
    }
    fn score(&self, pid: u32) -> Result<OomScoreAdj, HostError> {
        self.unless_frozen(self.0.score(pid))
    }
    fn setting(&self, target: &WriteTarget, knob: Knob) -> Result<Setting, HostError> {
        self.0.setting(target, knob)
    }
    fn is_frozen(&self, cgroup: &CgroupRef) -> Result<bool, HostError> {
        self.0.is_frozen(cgroup)
    }
}

#[test]
fn processes_that_end_unseen_prove_nothing() {
    for (freeze, proven) in [(FreezeWhen::Forking, true), (FreezeWhen::Never, false)] {
        let mut rig = Rig::new(ScorePolicy::Respect);
        rig.process(10, 1, 0);
        rig.config.freeze = freeze;
        let reader = Vanishing(rig.kernel.clone());
        let facts = rig.kernel.cgroup("/c").unwrap();
        let freezer = facts.knob(Knob::FreezerState).unwrap().place.clone();
        let mut verdicts = Vec::new();
        for _ in 0..20 {
            let mut env = Env {
                reader: &reader,
                writer: &mut rig.kernel.clone(),
                journal: &mut rig.journal,
                ticks: &|| 1000,
                config: &rig.config,
                holds: None,
            };
            let turn = rig.looper.turn(&mut env, facts.processes_at().unwrap(), Some(&freezer)).unwrap();
            if let Verdict::Verified { .. } = turn.verdict {
                verdicts.push(turn.verdict);
                break;
            }
        }
        assert_eq!(verdicts.is_empty(), !proven, "{freeze:?}");
        assert_eq!(rig.scores(&[10]), [if proven { 500 } else { 0 }]);
    }
}

#[test]
fn a_container_somebody_else_paused_is_written_and_stays_paused() {
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 1, 0);
    rig.with(|kernel| kernel.set("/c", Setting::FreezerState(true)));
    assert_eq!(rig.settle().0, verified(1));
    assert_eq!(rig.with(|kernel| kernel.value("/c", Knob::FreezerState)), Some(Setting::FreezerState(true)));
}

#[test]
fn self_raised_scores_are_respected_or_pinned() {
    for (policy, after) in [(ScorePolicy::Respect, [900, 900, 500]), (ScorePolicy::Pin, [500, 500, 500])] {
        let mut rig = Rig::new(policy);
        rig.process(10, 1, 0);
        rig.settle();
        // It raises itself and forks; another comes in from outside with a score of its own.
        rig.with(|kernel| kernel.set_score(10, score(900)));
        rig.with(|kernel| kernel.fork(10, 11, 2000));
        rig.process(12, 2000, 800);
        rig.ticks = 3000;
        let (verdict, _) = rig.settle();
        let respected = if policy == ScorePolicy::Respect { 2 } else { 0 };
        assert_eq!(verdict, Verdict::Verified { processes: 3, respected });
        assert_eq!(rig.scores(&[10, 11, 12]), after, "{policy:?}");
        assert_eq!(rig.turn().passes, 0, "seen as it was: nothing to do");
    }
}

#[test]
fn zombies_are_neither_right_nor_wrong() {
    let mut rig = Rig::new(ScorePolicy::Pin);
    rig.process(10, 1, 0);
    rig.with(|kernel| kernel.zombify(10));
    assert_eq!(rig.settle().0, verified(0));
    assert_eq!(rig.scores(&[10]), [0]);
}

#[test]
fn what_is_not_allowed_is_said_and_tried_once() {
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 1, 900);
    rig.with(|kernel| kernel.deny(Knob::OomScoreAdj));
    let turn = rig.turn();
    let Verdict::Denied(error) = turn.verdict else { panic!("{:?}", turn.verdict) };
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("CAP_SYS_RESOURCE")));
    assert_eq!((turn.passes, rig.with(|kernel| kernel.writes.len())), (1, 1));
}

#[test]
fn a_vanished_cgroup_is_gone_and_a_reused_path_is_another_one() {
    let rig = Rig::new(ScorePolicy::Respect);
    let cgroup: CgroupRef = rig.kernel.cgroup("/c").unwrap().processes_at().unwrap().clone();
    rig.with(|kernel| kernel.remove_cgroup("/c"));
    rig.with(|kernel| kernel.add_cgroup("/c"));
    rig.process(10, 1, 0);
    let mut journal = Journal::in_memory("boot");
    let mut writer = rig.kernel.clone();
    let mut env = Env {
        reader: &rig.kernel,
        writer: &mut writer,
        journal: &mut journal,
        ticks: &|| 0,
        config: &rig.config,
        holds: None,
    };
    let mut looper = ScoreLoop::new(Target { score: score(TARGET), policy: ScorePolicy::Pin });
    assert!(looper.turn(&mut env, &cgroup, None).unwrap_err().is_gone());
    assert_eq!(rig.scores(&[10]), [0]);
}

struct KnobRig {
    kernel: FakeKernel,
    journal: Journal,
    config: Converge,
    looper: KnobLoop,
}

impl KnobRig {
    fn new() -> Self {
        let kernel = FakeKernel::new(CgroupMode::V1);
        kernel.with(|state| state.add_cgroup("/c"));
        let place = kernel.cgroup("/c").unwrap().knob(Knob::CpuShares).unwrap().place.clone();
        let reason = Why::Controller("any".into());
        let looper = KnobLoop::new(place, shares(512), reason);
        Self { kernel, journal: Journal::in_memory("boot"), config: config(), looper }
    }

    fn turn(&mut self) -> KnobState {
        let mut writer = self.kernel.clone();
        let mut env = Env {
            reader: &self.kernel,
            writer: &mut writer,
            journal: &mut self.journal,
            ticks: &|| 0,
            config: &self.config,
            holds: None,
        };
        self.looper.turn(&mut env);
        self.looper.state.clone()
    }

    fn rewrite(&self, value: i64) {
        self.kernel.with(|state| state.set("/c", shares(value)));
    }

    fn value(&self) -> Setting {
        self.kernel.with(|state| state.value("/c", Knob::CpuShares)).unwrap()
    }
}

fn shares(value: i64) -> Setting {
    Setting::CpuShares(CpuShares::clamped(value))
}

#[test]
fn an_audit_before_the_source_has_answered_undoes_nothing() {
    let mut rig = KnobRig::new();
    rig.config.answer_within = Duration::from_secs(3600);
    assert_eq!(rig.turn(), KnobState::Right);
    rig.rewrite(2);
    for _ in 0..3 {
        assert_eq!((rig.turn(), rig.value()), (KnobState::Doubted, shares(2)));
    }
    // It tells of another wish, which the knob has already.
    assert!(rig.looper.rewish(shares(2), &Why::Controller("any".into())));
    assert_eq!((rig.turn(), rig.value()), (KnobState::Right, shares(2)));
}

#[test]
fn a_knob_that_somebody_else_keeps_rewriting_is_left_to_them() {
    let mut rig = KnobRig::new();
    assert_eq!((rig.turn(), rig.value()), (KnobState::Right, shares(512)));
    for _ in 0..2 {
        rig.rewrite(2);
        // Its source is asked before it is undone: the wish may have changed.
        assert_eq!((rig.turn(), rig.value()), (KnobState::Doubted, shares(2)));
        assert_eq!((rig.turn(), rig.value()), (KnobState::Right, shares(512)));
    }
    rig.rewrite(2);
    assert_eq!((rig.turn(), rig.value()), (KnobState::Contended, shares(2)));
    assert_eq!((rig.turn(), rig.value()), (KnobState::Contended, shares(2)));
    // They gave it up: after a while it is ours again.
    rig.rewrite(512);
    for _ in 0..10 {
        rig.turn();
    }
    assert_eq!(rig.looper.state, KnobState::Right);
    assert_eq!(rig.journal.originals().next().unwrap().old, shares(1024));
}

#[test]
fn rare_rewrites_are_forgiven() {
    let mut rig = KnobRig::new();
    for _ in 0..5 {
        rig.rewrite(2);
        assert_ne!(rig.turn(), KnobState::Contended);
        for _ in 0..11 {
            assert_eq!(rig.turn(), KnobState::Right);
        }
    }
}

#[test]
fn a_denied_knob_keeps_the_kernels_words() {
    let mut rig = KnobRig::new();
    rig.kernel.with(|state| state.deny(Knob::CpuShares));
    assert!(matches!(rig.turn(), KnobState::Denied { .. }));
    assert_eq!(rig.value(), shares(1024));
}

#[test]
fn settling_takes_no_time_that_matters() {
    // The proof of a quiet container is one look, 50 ms after its write.
    let mut rig = Rig::new(ScorePolicy::Respect);
    rig.process(10, 1, 0);
    let Verdict::Again(after) = rig.turn().verdict else { panic!("not confirmed yet") };
    assert!(Instant::now() + after < Instant::now() + Duration::from_millis(100));
}
