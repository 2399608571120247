//! Containers with all their knobs against a fake kernel: limits, order, withdrawal, effects, owned subtrees, the fair
//! mode.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::fake::{FakeKernel, FakeState};
use evenkeel_host::hierarchy::{CgroupMode, Controller, Hierarchy};
use evenkeel_host::knob::{BurstUsec, Knob, PeriodUsec, QuotaUsec, Setting};
use evenkeel_model::node::NodeFacts;
use evenkeel_model::units::{Bytes, CpuShares, CpuWeight, Limit, MilliCpu, OomScoreAdj};
use evenkeel_model::workload::{ContainerResources, Requested, ScorePolicy, Workload};
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::fair::Allotment;
use evenkeel_qos::rules::RuleSet;

use super::board::{Board, ContainerView, KnobView};
use super::container::{Counters, State};
use super::cores::Cores;
use super::dynamic::DynamicScores;
use super::effect::Survey;
use super::env::Env;
use super::fair::FairMode;
use super::own::{Homes, InnerKnobs, Owned};
use super::table::{Rules, Table};
use crate::converge::rules::Switches;
use crate::converge::rules::{Converge, FreezeWhen};
use crate::converge::rules::{CpuRules, Excess};
use crate::holds::{Holder, Holds};
use crate::journal::Journal;
use crate::reconcile::Bound;
use crate::stats::Stats;
use crate::testing::{Samples, tick, workload};
use crate::transients::Transients;

const MIB: u64 = 1 << 20;

const ON: Switches = Switches {
    oom_score_adj: true,
    cpu_shares: true,
    cpu_weight: true,
    cpu_quota: true,
    cpu_burst: true,
    memory_protection: true,
    memory_max: true,
    memory_oom_group: true,
    memory_swap: true,
};

/// A fake machine with containers on it, and what a converger has.
pub(super) struct Rig {
    pub(super) kernel: FakeKernel,
    pub(super) journal: Journal,
    pub(super) config: Converge,
    pub(super) rules: Rules,
    pub(super) table: Table,
    survey: Survey,
    pub(super) owned: Owned,
    board: Board,
    pub(super) stats: Stats,
    pub(super) holds: Holds,
    /// Fair parts of cgroups between owned roots and containers.
    pub(super) parts: BTreeMap<String, Allotment>,
}

impl Rig {
    pub(super) fn new(mode: CgroupMode, own: &[&str]) -> Self {
        let own: Vec<String> = own.iter().map(|path| (*path).to_owned()).collect();
        let now = Instant::now();
        let period = Duration::from_secs(10);
        let home = |controller| match mode {
            CgroupMode::V2 => Hierarchy::V2,
            CgroupMode::V1 | CgroupMode::Hybrid => Hierarchy::V1(controller),
        };
        let homes = Homes { cpu: Some(home(Controller::Cpu)), memory: Some(home(Controller::Memory)) };
        let plan = PlanConfig {
            cpu_burst: evenkeel_qos::config::BurstPercent::new(100).ok(),
            ..PlanConfig::default()
        };
        let facts = NodeFacts {
            memory_bytes: Bytes::new(4096 * MIB),
            cpu_milli: MilliCpu::new(4000),
            swap_total_bytes: Bytes::ZERO,
            page_bytes: Bytes::new(4096),
        };
        let transients = Transients::in_memory("boot");
        transients.set_witness(Box::new(Vec::new()));
        Self {
            kernel: FakeKernel::new(mode),
            journal: Journal::in_memory("boot"),
            config: Converge {
                audit_period: period,
                freeze: FreezeWhen::Never,
                freeze_max: Duration::from_millis(20),
                score: ScorePolicy::Respect,
                contended_after: 3,
                answer_within: Duration::ZERO,
            },
            rules: Rules {
                facts,
                plan,
                switches: ON,
                score: ScorePolicy::Respect,
                own: own.clone(),
                agent_started: 50_000,
                allocation: None,
                detect_weight: false,
            },
            table: Table::new(None),
            survey: Survey::new(false, own.clone(), period, now),
            owned: Owned::new(&own, homes, period, now, |_| None),
            board: Board::default(),
            stats: Stats::default(),
            holds: Holds::new(transients),
            parts: BTreeMap::new(),
        }
    }

    /// A machine with cgroups, each with a process in it.
    pub(super) fn with(mode: CgroupMode, own: &[&str], paths: &[&str]) -> Self {
        let rig = Self::new(mode, own);
        for (path, pid) in paths.iter().zip(10..) {
            rig.kernel.with(|state| {
                state.add_cgroup(path);
                state.add_process(pid, 1, OomScoreAdj::clamped(0), path);
            });
        }
        rig
    }

    pub(super) fn state<R>(&self, act: impl FnOnce(&mut FakeState) -> R) -> R {
        self.kernel.with(act)
    }

    /// Brings the table to these containers and takes a turn of each.
    pub(super) fn apply(&mut self, workloads: &[(Workload, &str)]) {
        let bound =
            workloads.iter().map(|(w, path)| Bound { workload: Arc::new(w.clone()), path: (*path).into() });
        self.table.apply(&self.kernel, &mut self.rules, bound.collect());
        self.owned.changed(Instant::now());
        self.turn();
    }

    pub(super) fn turn(&mut self) {
        self.inner();
        let mut writer = self.kernel.clone();
        let mut env = Env {
            reader: &self.kernel,
            writer: &mut writer,
            journal: &mut self.journal,
            ticks: &|| 100_000,
            config: &self.config,
            holds: Some(&self.holds),
        };
        for (key, container) in self.table.iter_mut() {
            container.whole = true;
            container.turn(&mut env, Instant::now(), &Counters(&self.stats)).unwrap();
            self.survey.judge(&self.kernel, container);
            self.board.show(key, container);
        }
    }

    fn inner(&mut self) {
        let mut writer = self.kernel.clone();
        let mut env = Env {
            reader: &self.kernel,
            writer: &mut writer,
            journal: &mut self.journal,
            ticks: &|| 100_000,
            config: &self.config,
            holds: None,
        };
        let wanted = self.table.inner(&self.rules, &self.parts);
        let options = InnerKnobs { on: &ON, cores: false };
        self.owned.changed(Instant::now());
        self.owned.turn(&mut env, options, wanted, &Counters(&self.stats), Instant::now());
    }

    /// Reads the families around containers again.
    fn survey_again(&mut self) {
        let later = Instant::now() + Duration::from_secs(3600);
        assert!(self.survey.refresh(&self.kernel, later));
        self.turn();
    }

    fn view(&self, name: &str) -> Arc<ContainerView> {
        let mut all = self.board.containers().into_iter();
        all.find(|view| view.tracked.workload.pod.name == name).unwrap()
    }

    fn knob(&self, name: &str, knob: Knob) -> KnobView {
        self.view(name).knobs.iter().find(|view| view.wanted.knob() == knob).unwrap().clone()
    }

    pub(super) fn value(&self, path: &str, knob: Knob) -> String {
        self.state(|state| state.value(path, knob)).unwrap().to_string()
    }

    /// Knobs written since the last call, in order.
    fn written(&self) -> Vec<String> {
        let writes = self.state(|state| std::mem::take(&mut state.writes));
        let cgroup = |w: &&evenkeel_host::write::Write| w.knob() != Knob::OomScoreAdj;
        writes.iter().filter(cgroup).map(|w| format!("{} {}", w.knob(), w.setting)).collect()
    }
}

fn asking(name: &str, resources: ContainerResources) -> Workload {
    Workload { requested: Requested::Stated(resources), ..workload(name) }
}

pub(super) fn limited(name: &str, cpu: u64, memory_mib: u64) -> Workload {
    asking(
        name,
        ContainerResources {
            cpu_request: Some(MilliCpu::new(100)),
            cpu_limit: Some(MilliCpu::new(cpu)),
            memory_request: Some(Bytes::new(64 * MIB)),
            memory_limit: Some(Bytes::new(memory_mib * MIB)),
        },
    )
}

pub(super) fn requesting(name: &str, cpu: u64, memory_mib: u64) -> Workload {
    let resources = ContainerResources {
        cpu_request: Some(MilliCpu::new(cpu)),
        memory_request: Some(Bytes::new(memory_mib * MIB)),
        ..ContainerResources::default()
    };
    asking(name, resources)
}

#[test]
fn a_new_container_is_timed_from_its_first_process() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/old"]);
    rig.kernel.with(|state| {
        state.add_cgroup("/new");
        for (pid, start) in [(20, 99_000), (21, 99_700)] {
            state.add_process(pid, start, OomScoreAdj::clamped(0), "/new");
        }
    });
    rig.apply(&[(requesting("old", 100, 64), "/old"), (requesting("new", 100, 64), "/new")]);
    for _ in 0..3 {
        rig.turn();
    }
    let seen = &rig.stats.first_pid_to_right;
    assert_eq!(seen.buckets.iter().map(|bucket| bucket.get()).sum::<u64>(), 1, "the old one began before us");
    let ticks = super::env::ticks_per_second();
    assert_eq!(seen.sum_usec.get(), 1000 * 1_000_000 / ticks);
}

#[test]
fn a_cgroup_made_in_one_hierarchy_after_the_other_gets_every_knob() {
    let mut rig = Rig::with(CgroupMode::V1, &[], &["/slow"]);
    rig.state(|state| state.set_missing("/slow", &[Controller::Cpu]));
    let wish = [(requesting("slow", 500, 256), "/slow")];
    rig.apply(&wish);
    assert_eq!(rig.value("/slow", Knob::CpuShares), "1024", "there is none to write to");
    let due = rig.table.incomplete_due().unwrap();
    rig.state(|state| state.set_missing("/slow", &[]));
    std::thread::sleep(due.saturating_duration_since(Instant::now()));
    rig.apply(&wish);
    assert_eq!(rig.value("/slow", Knob::CpuShares), "512");
    assert_eq!(rig.table.incomplete_due(), None);
}

#[test]
fn limits_follow_the_manifest_and_are_put_back_when_it_has_none() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/web"]);
    rig.apply(&[(limited("web", 500, 128), "/web")]);
    assert_eq!(rig.value("/web", Knob::CpuMax), "50000 100000");
    assert_eq!(rig.value("/web", Knob::CpuMaxBurst), "50000");
    assert_eq!(rig.value("/web", Knob::MemoryMax), (128 * MIB).to_string());
    assert_eq!(rig.value("/web", Knob::MemoryLow), (64 * MIB).to_string());
    assert_eq!(rig.stats.writes.of(Knob::MemoryMax).done.get(), 1);
    let before = rig.view("web");
    // A resize in place, and then no limit at all: what stood before the first write is back.
    rig.apply(&[(limited("web", 250, 256), "/web")]);
    let after = rig.view("web");
    assert_eq!(after.tracked.slot, before.tracked.slot, "its counters go on");
    assert_ne!(after.tracked.workload.requested, before.tracked.workload.requested);
    assert_eq!(rig.value("/web", Knob::CpuMax), "25000 100000");
    rig.apply(&[(requesting("web", 100, 64), "/web")]);
    assert_eq!(rig.value("/web", Knob::CpuMax), "max 100000");
    assert_eq!(rig.value("/web", Knob::CpuMaxBurst), "0");
    assert_eq!(rig.value("/web", Knob::MemoryMax), "max");
    assert!(rig.journal.originals().all(|original| original.old.knob() != Knob::MemoryMax));
}

#[test]
fn what_somebody_else_changed_meanwhile_is_not_put_back() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/web"]);
    rig.apply(&[(limited("web", 500, 128), "/web")]);
    rig.state(|state| state.set("/web", Setting::MemoryMax(Limit::Value(Bytes::new(MIB)))));
    rig.apply(&[(requesting("web", 100, 64), "/web")]);
    assert_eq!(rig.value("/web", Knob::MemoryMax), MIB.to_string());
}

#[test]
fn a_limit_below_what_is_used_is_refused_and_set_once_there_is_room() {
    for (mode, knob) in [(CgroupMode::V2, Knob::MemoryMax), (CgroupMode::V1, Knob::MemoryLimit)] {
        let mut rig = Rig::with(mode, &[], &["/web"]);
        rig.state(|state| state.set_memory("/web", Bytes::new(300 * MIB), Bytes::new(100 * MIB)));
        rig.apply(&[(limited("web", 500, 128), "/web")]);
        let shown = rig.knob("web", knob);
        assert_eq!(
            (shown.state, rig.value("/web", knob) == shown.wanted.to_string()),
            (State::Denied, false)
        );
        assert!(shown.reason.to_string().contains("would call the OOM killer"), "{}", shown.reason);
        assert_eq!(rig.stats.writes.of(knob).done.get(), 0);
        // 110 MiB in use, of which nothing has to be reclaimed the hard way above the limit.
        rig.state(|state| state.set_memory("/web", Bytes::new(150 * MIB), Bytes::new(40 * MIB)));
        rig.turn();
        assert_eq!(rig.value("/web", knob), (128 * MIB).to_string());
    }
}

#[test]
fn bandwidth_is_written_in_the_order_the_kernel_takes() {
    let mut rig = Rig::with(CgroupMode::V1, &[], &["/web"]);
    let cpu = |cpu| limited("web", cpu, 1024);
    let set = |rig: &Rig, quota: u64, period: u64, burst: u64| {
        rig.state(|state| {
            state.set("/web", Setting::CpuCfsQuota(Limit::Value(QuotaUsec::new(quota).unwrap())));
            state.set("/web", Setting::CpuCfsPeriod(PeriodUsec::new(period).unwrap()));
            state.set("/web", Setting::CpuCfsBurst(BurstUsec::new(burst).unwrap()));
        });
    };
    let only_bandwidth = |rig: &Rig| -> Vec<String> {
        rig.written().into_iter().filter(|write| write.starts_with("cpu.cfs")).collect()
    };
    // The period grows: it goes first. The burst shrinks: before the quota.
    set(&rig, 80_000, 50_000, 60_000);
    rig.apply(&[(cpu(500), "/web")]);
    assert_eq!(
        only_bandwidth(&rig),
        ["cpu.cfs_burst_us 50000", "cpu.cfs_period_us 100000", "cpu.cfs_quota_us 50000"]
    );
    // The period shrinks: it goes last. The burst grows: after the quota.
    let mut rig = Rig::with(CgroupMode::V1, &[], &["/web"]);
    set(&rig, 20_000, 200_000, 0);
    rig.apply(&[(cpu(500), "/web")]);
    assert_eq!(
        only_bandwidth(&rig),
        ["cpu.cfs_quota_us 50000", "cpu.cfs_period_us 100000", "cpu.cfs_burst_us 50000"]
    );
}

#[test]
fn a_held_knob_is_left_and_verified_when_it_is_let_go() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/web"]);
    rig.apply(&[(requesting("web", 100, 64), "/web")]);
    let container = rig.table.iter().next().unwrap();
    let (at, tracked) = (container.cpu.clone().unwrap(), Arc::clone(&container.tracked));
    let wish = crate::holds::HoldRequest {
        at: &at,
        value: Setting::CpuWeight(CpuWeight::clamped(1)),
        tracked: &tracked,
        by: Holder::Starvation,
        why: "somebody starves".into(),
    };
    let mut writer = rig.kernel.clone();
    rig.holds.hold(&rig.kernel, &mut writer, wish).unwrap();
    rig.turn();
    let shown = rig.knob("web", Knob::CpuWeight);
    assert_eq!((rig.value("/web", Knob::CpuWeight), shown.state), ("1".into(), State::Converged));
    assert_eq!(shown.reason.to_string(), "held by starvation: somebody starves");
    rig.holds.release(&rig.kernel, &mut writer, &at, Knob::CpuWeight);
    rig.turn();
    assert_eq!(rig.value("/web", Knob::CpuWeight), shown.wanted.to_string());
    assert_eq!(rig.table.iter().next().unwrap().knobs.all.iter().map(|k| k.rewrites.count).max(), Some(0));
}

#[test]
fn who_rewrites_is_shown_with_count_since_and_value() {
    let mut rig = Rig::with(CgroupMode::V1, &[], &["/web"]);
    rig.apply(&[(requesting("web", 500, 64), "/web")]);
    for _ in 0..6 {
        rig.state(|state| state.set("/web", Setting::CpuShares(CpuShares::clamped(2))));
        rig.turn();
    }
    let shown = rig.knob("web", Knob::CpuShares);
    let trouble = shown.trouble.unwrap();
    assert_eq!((shown.state, trouble.count, trouble.by().as_str()), (State::Contended, 3, "rewritten to 2"));
    assert!(trouble.since_usec > 0 && trouble.remedy().contains("[knobs]"));
    assert_eq!(rig.value("/web", Knob::CpuShares), "2");
}

#[test]
fn a_protection_no_ancestor_grants_is_ineffective_until_one_does() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/pods", "/pods/web", "/pods/other"]);
    rig.apply(&[(requesting("web", 100, 64), "/pods/web")]);
    let shown = rig.knob("web", Knob::MemoryLow);
    let trouble = shown.trouble.unwrap();
    assert_eq!((shown.state, trouble.by().as_str()), (State::Ineffective, "/pods"));
    assert!(trouble.remedy().contains("own = [\"/pods\"]"), "{}", trouble.remedy());
    // It holds what is wished all the same. Its scores take another look to be confirmed.
    rig.turn();
    assert_eq!(rig.view("web").state, State::Converged);
    assert_eq!(rig.knob("web", Knob::CpuWeight).state, State::Converged);
    rig.state(|state| {
        state.set("/pods", Setting::MemoryLow(Limit::Value(Bytes::new(64 * MIB))));
        state.set_memory("/pods", Bytes::new(64 * MIB), Bytes::ZERO);
        state.set_memory("/pods/web", Bytes::new(64 * MIB), Bytes::ZERO);
    });
    rig.survey_again();
    assert_eq!(rig.knob("web", Knob::MemoryLow).state, State::Converged);
    assert_eq!(rig.view("web").state, State::Converged);
}

#[test]
fn a_weight_without_a_sibling_is_ineffective() {
    for (mode, knob) in [(CgroupMode::V2, Knob::CpuWeight), (CgroupMode::V1, Knob::CpuShares)] {
        let mut rig = Rig::with(mode, &[], &["/pods/web", "/elsewhere"]);
        rig.state(|state| state.add_cgroup("/pods"));
        rig.apply(&[(requesting("web", 500, 64), "/pods/web")]);
        let shown = rig.knob("web", knob);
        assert_eq!((shown.state, shown.trouble.unwrap().by().as_str()), (State::Ineffective, "/pods"));
        rig.state(|state| {
            state.add_cgroup("/pods/other");
            state.add_process(99, 1, OomScoreAdj::clamped(0), "/pods/other");
        });
        rig.survey_again();
        assert_eq!(rig.knob("web", knob).state, State::Converged);
    }
}

#[test]
fn an_owned_subtree_grants_what_its_containers_are_promised() {
    let mut rig = Rig::with(CgroupMode::V2, &["/own"], &["/own/a/web", "/own/a/db", "/own/b/job"]);
    for path in ["/own", "/own/a", "/own/b"] {
        rig.state(|state| state.add_cgroup(path));
    }
    let all = [
        (requesting("web", 600, 64), "/own/a/web"),
        (requesting("db", 300, 32), "/own/a/db"),
        (requesting("job", 100, 16), "/own/b/job"),
    ];
    rig.apply(&all);
    let low = |rig: &Rig, path: &str| rig.value(path, Knob::MemoryLow).parse::<u64>().unwrap() / MIB;
    assert_eq!((low(&rig, "/own"), low(&rig, "/own/a"), low(&rig, "/own/b")), (112, 96, 16));
    for path in ["/own", "/own/a", "/own/b"] {
        assert_eq!(rig.value(path, Knob::SubtreeControl(Controller::Memory)), "+memory");
    }
    let weight = |rig: &Rig, path: &str| rig.value(path, Knob::CpuWeight).parse::<u32>().unwrap();
    assert_eq!((weight(&rig, "/own/a"), weight(&rig, "/own/b")), (2250, 250));
    assert_eq!((weight(&rig, "/own/a/web"), weight(&rig, "/own/a/db")), (1500, 750));
    rig.survey_again();
    assert_eq!(rig.knob("web", Knob::MemoryLow).state, State::Converged);
    assert_eq!(rig.knob("job", Knob::CpuWeight).state, State::Converged, "its ancestor carries its weight");
    // One goes: the sums follow, and a level without containers is as it was.
    rig.apply(&all[..2]);
    assert_eq!((low(&rig, "/own"), low(&rig, "/own/b"), weight(&rig, "/own/b")), (96, 0, 100));
    assert_eq!(rig.value("/own/b", Knob::SubtreeControl(Controller::Memory)), "-memory");
}

#[test]
fn ancestors_are_raised_from_the_top_before_their_containers() {
    let mut rig = Rig::with(CgroupMode::V2, &["/own"], &["/own/a/web"]);
    for path in ["/own", "/own/a"] {
        rig.state(|state| state.add_cgroup(path));
    }
    rig.apply(&[(requesting("web", 600, 64), "/own/a/web")]);
    let low = |rig: &Rig| -> Vec<String> {
        let writes = rig.state(|state| std::mem::take(&mut state.writes));
        let is_low = |w: &&evenkeel_host::write::Write| w.knob() == Knob::MemoryLow;
        let path = |w: &evenkeel_host::write::Write| match &w.target {
            evenkeel_host::write::Target::Cgroup(at) => at.path.to_string(),
            other => other.to_string(),
        };
        writes.iter().filter(is_low).map(path).collect()
    };
    assert_eq!(low(&rig), ["/own", "/own/a", "/own/a/web"]);
    // A smaller request: the container lets go first, its ancestors at the next turn.
    rig.apply(&[(requesting("web", 600, 32), "/own/a/web")]);
    assert_eq!(low(&rig), ["/own/a/web"]);
    rig.turn();
    assert_eq!(low(&rig), ["/own/a", "/own"]);
}

#[test]
fn restoring_puts_an_owned_subtree_back_leaves_first() {
    let mut rig = Rig::with(CgroupMode::V2, &["/own"], &["/own/a/web"]);
    for path in ["/own", "/own/a"] {
        rig.state(|state| state.add_cgroup(path));
    }
    rig.apply(&[(limited("web", 500, 128), "/own/a/web")]);
    rig.written();
    crate::restore::restore(&rig.kernel, &mut rig.kernel.clone(), &mut rig.journal);
    assert_eq!(rig.journal.originals().count(), 0);
    for (path, knob, value) in [
        ("/own/a/web", Knob::MemoryMax, "max"),
        ("/own/a/web", Knob::CpuMax, "max 100000"),
        ("/own/a", Knob::MemoryLow, "0"),
        ("/own", Knob::CpuWeight, "100"),
    ] {
        assert_eq!(rig.value(path, knob), value, "{path} {knob}");
    }
    let order = rig.written();
    let at = |text: &str| order.iter().position(|write| write == text).unwrap();
    assert!(at("cpu.max.burst 0") < at("cpu.max max 100000"));
    assert!(at("memory.low 0") < at("cgroup.subtree_control:memory -memory"), "{order:?}");
}

#[test]
fn fair_weights_follow_who_is_active() {
    for (mode, knob) in [(CgroupMode::V2, Knob::CpuWeight), (CgroupMode::V1, Knob::CpuShares)] {
        let mut rig = Rig::with(mode, &[], &["/pods/a", "/pods/b"]);
        rig.state(|state| state.add_cgroup("/pods"));
        rig.apply(&[(requesting("a", 500, 64), "/pods/a"), (requesting("b", 0, 64), "/pods/b")]);
        let usage = Samples::shared();
        let rules = CpuRules {
            excess: Excess::Fair,
            burst: None,
            idle_best_effort: false,
            exclusive_cores: false,
            kubelet_dir: "/nonexistent".into(),
            period: evenkeel_qos::config::CpuPeriod::default(),
            fair_active_above_milli: 10,
            fair_idle_after: Duration::from_secs(2),
        };
        let start = Instant::now();
        let mut fair = FairMode::new(&rules, &[], usage.clone(), start);
        let cpu = MilliCpu::new(1000);
        let mut second = 0;
        let mut pass = |rig: &mut Rig, milli: &[u64]| {
            second += 1;
            tick(&usage, second, milli);
            let now = start + Duration::from_secs(second);
            let changed = fair.turn(&mut rig.table, &rig.rules, cpu, second * 1_000_000 + 1, now).keys.len();
            rig.turn();
            changed
        };
        let ratio = |rig: &Rig| {
            let value = |path: &str| rig.value(path, knob).parse::<f64>().unwrap();
            value("/pods/a") / value("/pods/b")
        };
        // Both at work: half a core each of the excess, so 75 % and 25 %.
        pass(&mut rig, &[700, 200]);
        pass(&mut rig, &[700, 200]);
        assert!((ratio(&rig) - 3.0).abs() < 0.05, "{}", ratio(&rig));
        assert_eq!(pass(&mut rig, &[700, 200]), 0, "nothing is written while nobody comes or goes");
        // The other pauses: its weight is kept until it has been idle for a while.
        assert_eq!(pass(&mut rig, &[700, 0]), 0);
        let changed: usize = (0..4).map(|_| pass(&mut rig, &[700, 0])).sum();
        assert!(changed > 0 && ratio(&rig) > 3.5, "{}", ratio(&rig));
        assert_eq!(rig.knob("a", knob).state, State::Converged);
        assert!(
            rig.knob("a", knob).reason.to_string().starts_with("fair excess"),
            "{}",
            rig.knob("a", knob).reason
        );
        // A new request is no rewrite by somebody else, and old samples change nothing.
        rig.apply(&[(requesting("a", 600, 64), "/pods/a"), (requesting("b", 0, 64), "/pods/b")]);
        assert!(rig.knob("a", knob).reason.to_string().starts_with("fair excess"));
    }
}

#[test]
fn whole_cores_are_given_and_taken_back() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/web", "/db"]);
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("cpu")).unwrap();
    std::fs::write(dir.path().join("cpu/online"), "0-3\n").unwrap();
    let mut cores = Cores::open(dir.path(), dir.path()).unwrap();
    let guaranteed = |cpu: u64| {
        let (cpu, memory) = (Some(MilliCpu::new(cpu)), Some(Bytes::new(64 * MIB)));
        asking(
            "db",
            ContainerResources {
                cpu_request: cpu,
                cpu_limit: cpu,
                memory_request: memory,
                memory_limit: memory,
            },
        )
    };
    let mut divide = |rig: &mut Rig| {
        rig.rules.allocation = cores.allocate(&rig.table, &rig.journal);
        rig.table.renew(&rig.kernel, &rig.rules);
        rig.turn();
    };
    rig.apply(&[(limited("web", 500, 128), "/web"), (guaranteed(2000), "/db")]);
    assert_eq!(rig.value("/db", Knob::CpuMax), "200000 100000");
    divide(&mut rig);
    assert_eq!(rig.value("/db", Knob::CpusetCpus), "2-3");
    assert_eq!(rig.value("/web", Knob::CpusetCpus), "0-1");
    assert_eq!(rig.value("/db", Knob::CpuMax), "max 100000");
    assert_eq!(rig.value("/web", Knob::CpuMax), "50000 100000");
    // An agent that starts again finds who has which in the journal.
    let found = Cores::open(dir.path(), dir.path()).unwrap().allocate(&rig.table, &rig.journal).unwrap();
    assert_eq!(found.exclusive["default/db/main"].cpus.to_string(), "2-3");
    // No whole cores any more: everything is as it was, but for the quota that follows from the limit.
    rig.apply(&[(limited("web", 500, 128), "/web"), (guaranteed(1500), "/db")]);
    divide(&mut rig);
    for path in ["/web", "/db"] {
        assert_eq!(rig.value(path, Knob::CpusetCpus), "", "{path}");
    }
    assert_eq!(rig.value("/db", Knob::CpuMax), "150000 100000");
}

#[test]
fn dynamic_scores_follow_use_and_priority_and_survive_a_new_manifest() {
    let mut rig = Rig::with(CgroupMode::V2, &[], &["/over", "/within", "/meek"]);
    let mut meek = requesting("meek", 100, 64);
    meek.pod_facts.priority = Some(-10);
    let all = [
        (requesting("over", 100, 64), "/over"),
        (requesting("within", 100, 512), "/within"),
        (meek, "/meek"),
    ];
    rig.apply(&all);
    let usage = Samples::shared();
    let now = Instant::now();
    let mut dynamic = DynamicScores::new(RuleSet::Proposal, usage.clone(), now);
    let mut pass = |rig: &mut Rig, second: u64, mib: [u64; 3]| {
        tick(&usage, second, &[1, 1, 1]);
        crate::shared::lock(&usage).working_sets(&mib.map(|mib| mib * MIB));
        let later = now + Duration::from_secs(second * 10);
        let memory = rig.rules.facts.memory_bytes;
        let changed = dynamic.turn(&mut rig.table, &rig.rules, memory, second * 1_000_000 + 1, later).len();
        rig.turn();
        changed
    };
    let scores = |rig: &Rig| [10, 11, 12].map(|pid| rig.state(|state| state.score(pid)).unwrap().get());
    let by_formula = scores(&rig);
    assert_eq!(pass(&mut rig, 1, [128, 64, 130]), 2, "the third has the formula's score");
    let [over, within, meek] = scores(&rig);
    // What counts is the sum of score and memory, in thousandths of the machine.
    let sum = |score: i16, mib: i16| score + mib * 10 / 41;
    assert!(within <= by_formula[1] && sum(within, 64) < sum(over, 128), "{over} {within} {meek}");
    assert!(meek > over, "the less important of two that exceed alike goes first: {over} {meek}");
    assert_eq!(pass(&mut rig, 2, [128, 65, 130]), 0, "next to no change is no write");
    // A manifest that changes something else does not take the rank away.
    let mut again = all.clone();
    again[0].0.image = Some("another".into());
    rig.apply(&again);
    assert_eq!(scores(&rig), [over, within, meek]);
}
