//! What tests of several modules build.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_log::{LogError, SyncHandle};
use evenkeel_model::decision::Decision;
use evenkeel_model::node::NodeFacts;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, PodFacts, PodRef, Requested, ScorePolicy,
    SourceKind, Workload,
};
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::{eviction, pressure, starvation};

use crate::admission;
use crate::allocatable::Allocatable;
use crate::config::{Config, Expected, Features, InForce, Mode, Roots};
use crate::converge::overlay::rules::OverlayRules;
use crate::converge::rules::{Converge, CpuRules, Excess, FreezeWhen, Switches};
use crate::decisions::KeepsDecisions;
use crate::evict::{Acting, CarryOut};
use crate::node::rules::{DaemonRules, NodeMemory, Overcommit};
use crate::oom::OomRules;
use crate::overlay::Overlays;
use crate::pressure::rules::{PressureRules, StarvationRules};
use crate::reconcile::Manage;
use crate::shared::{Context, Stop, Tracked, lock};
use crate::usage::{LastSeconds, LatestSamples};

/// [`workload`] as something tracked, in slot 1 with inode 1.
pub(crate) fn tracked(name: &str) -> Tracked {
    in_slot(1, name)
}

/// The same under another slot, which is its inode too.
pub(crate) fn in_slot(slot: u32, name: &str) -> Tracked {
    Tracked {
        slot,
        workload: Arc::new(workload(name)),
        classes: evenkeel_qos::rules::ResourceClasses::default(),
        cgroup: format!("/{name}").into(),
        inode: u64::from(slot),
    }
}

/// A burstable container `main` of the pod `name`, in the cgroup `/name`: half a core and 256 MiB requested.
pub(crate) fn workload(name: &str) -> Workload {
    Workload {
        id: format!("default/{name}/main"),
        source: SourceKind::Manifests,
        pod: PodRef { namespace: "default".into(), name: name.into(), uid: None },
        container: "main".into(),
        kind: ContainerKind::Regular,
        workload: name.into(),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(format!("/{name}")),
        pid: None,
        requested: Requested::Stated(ContainerResources {
            cpu_request: Some(MilliCpu::new(500)),
            cpu_limit: None,
            memory_request: Some(Bytes::new(256 << 20)),
            memory_limit: None,
        }),
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::Respect,
        oom_kill: None,
    }
}

/// The defaults of the agent's configuration, enforcing, with the state in `dir`.
pub(crate) fn config(dir: &Path) -> Config {
    let plan = PlanConfig::default();
    Config {
        mode: Mode::Enforce,
        mode_is_set: true,
        strict: false,
        roots: Roots { proc: "/proc".into(), cgroup: "/sys/fs/cgroup".into(), run: dir.join("run") },
        sources: Expected { manifests: true, systemd: false, cri: 0 },
        manage: Manage {
            exclude_namespaces: vec!["kube-system".into()],
            deny: Vec::new(),
            trust_annotations: Vec::new(),
        },
        admission: admission::Mode::Report,
        plan,
        weight_conversion: None,
        knobs: switches(),
        cpu: cpu_rules(),
        node_memory: NodeMemory { overcommit: Overcommit::Check, cap: None },
        daemons: DaemonRules::default(),
        allocatable: Allocatable::default(),
        own: Vec::new(),
        dynamic_scores: false,
        pressure: PressureRules { enabled: true, rules: pressure_rules(), window_usec: 1_000_000 },
        starvation: StarvationRules { enabled: true, rules: starvation_rules() },
        overlay: overlay_rules(),
        oom: OomRules { history: Duration::from_secs(60) },
        eviction: eviction::EvictionPolicy::default(),
        acting: Acting { mode: CarryOut::Offer, pause: Duration::from_secs(10), min_available: 0 },
        converge: Converge {
            audit_period: Duration::from_secs(10),
            freeze: FreezeWhen::Forking,
            freeze_max: Duration::from_millis(500),
            score: ScorePolicy::Respect,
            contended_after: 3,
            answer_within: Duration::ZERO,
        },
        state_dir: dir.join("state"),
        features: Features { proc_connector: true, short_psi: true, v1_kill: false, kernel_log: true },
    }
}

fn switches() -> Switches {
    Switches {
        oom_score_adj: true,
        cpu_shares: true,
        cpu_weight: true,
        cpu_quota: true,
        cpu_burst: true,
        memory_protection: true,
        memory_max: true,
        memory_oom_group: true,
        memory_swap: false,
    }
}

fn cpu_rules() -> CpuRules {
    CpuRules {
        excess: Excess::Proportional,
        burst: None,
        idle_best_effort: false,
        exclusive_cores: false,
        kubelet_dir: "/nonexistent".into(),
        period: evenkeel_qos::config::CpuPeriod::default(),
        fair_active_above_milli: 10,
        fair_idle_after: Duration::from_secs(10),
    }
}

fn overlay_rules() -> OverlayRules {
    OverlayRules {
        accept: false,
        up_percent: 150,
        down_percent: 80,
        cpu_least_milli: 10,
        memory_least_bytes: 16 << 20,
        most_percent: 80,
        pause: Duration::from_secs(10),
        patience: Duration::from_secs(60),
        rest: Duration::from_secs(600),
        oldest: Duration::from_secs(300),
    }
}

/// A grade of percentages; times in milliseconds.
fn band(some: [u32; 2], full: [u32; 2], available: [u32; 2], ahead: u64, times: [u64; 2]) -> pressure::Band {
    let pair = |[enter, leave]: [u32; 2]| pressure::Pair { enter: enter * 100, leave: leave * 100 };
    pressure::Band {
        some: pair(some),
        full: pair(full),
        available: pair(available),
        exhaustion_usec: Some(ahead * 1_000_000).filter(|ahead| *ahead > 0),
        dwell_usec: times[0] * 1000,
        cool_down_usec: times[1] * 1000,
    }
}

fn pressure_rules() -> pressure::PressureConfig {
    pressure::PressureConfig {
        bands: pressure::Bands {
            warning: band([10, 5], [5, 2], [10, 12], 0, [1000, 2000]),
            high: band([40, 20], [15, 7], [5, 7], 10, [1000, 1000]),
            critical: band([80, 60], [40, 20], [2, 4], 2, [0, 250]),
            basis_at_most: Bytes::new(64 << 30),
            look_ahead_below: 5000,
            stall_below: 1000,
            calm_after_usec: 3_000_000,
        },
        can: pressure::Switches { reclaim: true, high: true, soft_limit: true, freeze: true, kill: true },
        step: 1000,
        reserve: 1500,
        floor: Bytes::new(100 << 20),
        kill_after_usec: 2_000_000,
        kill_cool_down_usec: 15_000_000,
        freeze_at_most_usec: 8_000_000,
        redo_after_usec: 5_000_000,
        retrigger_window_usec: 600_000_000,
        retriggers: 3,
    }
}

fn starvation_rules() -> starvation::StarvationConfig {
    starvation::StarvationConfig {
        act: true,
        evict: starvation::Evict::Off,
        after_usec: 30_000_000,
        below: 9000,
        pressure: 2000,
        busy: 9500,
        dwell_usec: 10_000_000,
        evict_after_usec: 60_000_000,
        floor_milli: 50,
    }
}

/// A context with this configuration, on a machine of two processors and a gibibyte.
pub(crate) fn context(config: Config) -> Arc<Context> {
    let config = Arc::new(config);
    Arc::new(Context {
        live: InForce::new(Arc::clone(&config)),
        config,
        boot_id: "boot".into(),
        facts: NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(2000)),
        stats: Arc::default(),
        overlays: Overlays::default(),
        stop: Stop::default(),
    })
}

/// The newest samples, as a test gives them.
#[derive(Default)]
pub(crate) struct Samples {
    time_usec: u64,
    samples: Vec<(u32, Sample)>,
}

impl Samples {
    /// Shared, as whoever asks expects it.
    pub(crate) fn shared() -> Arc<Mutex<Self>> {
        Arc::default()
    }
}

impl LatestSamples for Samples {
    fn time_usec(&self) -> u64 {
        self.time_usec
    }

    fn each(&self, take: &mut dyn FnMut(u32, &Sample)) {
        self.samples.iter().for_each(|(slot, sample)| take(*slot, sample));
    }

    fn before(&self, _: &Tracked, _: u64, _: Duration) -> Option<LastSeconds> {
        None
    }
}

/// A tick of the slots from 1 at `second`, each having used so many thousandths of a core all the time.
pub(crate) fn tick(samples: &Mutex<Samples>, second: u64, milli: &[u64]) {
    let mut now = lock(samples);
    now.time_usec = second * 1_000_000;
    let of = |milli: &u64| {
        let mut sample = Sample::with_interval_usec(1_000_000);
        sample.set(Field::CpuUsageUsec, second * milli * 1000);
        sample
    };
    now.samples = (1..).zip(milli.iter().map(of)).collect();
}

impl Samples {
    /// Sets the working set of the slots from 1.
    pub(crate) fn working_sets(&mut self, bytes: &[u64]) {
        for ((_, sample), bytes) in self.samples.iter_mut().zip(bytes) {
            sample.set(Field::MemoryWorkingSetBytes, *bytes);
        }
    }
}

/// Who keeps decisions that must arrive, and does not.
pub(crate) struct Lost;

impl KeepsDecisions for Lost {
    fn add(&self, _: &Decision) -> Result<(), LogError> {
        Ok(())
    }

    fn unsynced(&self) -> Option<SyncHandle> {
        None
    }
}
