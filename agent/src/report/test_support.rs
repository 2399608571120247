//! What tests of the report and of those who show its work build.

use std::sync::Arc;

use evenkeel_enforce::config::InForce;
use evenkeel_enforce::overlay::Overlays;
use evenkeel_enforce::shared::{self as enforce, Stop, TrackChange, Tracked};
use evenkeel_model::node::{NodeFacts, NodeKey};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, PodFacts, PodRef, Requested, ScorePolicy,
    SourceKind, Workload,
};
use evenkeel_qos::rules::ResourceClasses;

use crate::config::Reload;
use crate::pods::Pods;
use crate::shared::{Context, Stats, Tick};

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

/// Container `main` of the pod `name` under a slot.
pub(crate) fn tracked(slot: u32, name: &str) -> Tracked {
    Tracked {
        slot,
        workload: Arc::new(workload(name)),
        classes: ResourceClasses { memory: None, cpu: None },
        cgroup: format!("/{name}").into(),
        inode: u64::from(slot),
    }
}

/// A tick in which container `slot` has used `second` milliseconds of CPU per slot number.
pub(crate) fn tick(second: u64, slots: std::ops::Range<u32>) -> Tick {
    let samples = slots.map(|slot| {
        let mut sample = Sample::with_interval_usec(1_000_000);
        sample.set(Field::CpuUsageUsec, second * 1000 * u64::from(slot));
        sample.set(Field::MemoryWorkingSetBytes, u64::from(slot) << 20);
        (slot, sample)
    });
    Tick {
        time_usec: second * 1_000_000,
        samples: samples.collect(),
        traffic: Vec::new(),
        changes: Vec::new(),
        lateness_usec: 0,
    }
}

/// The same, with the containers' announcements.
pub(crate) fn first_tick(second: u64, slots: std::ops::Range<u32>) -> Tick {
    let added = slots.clone().map(|slot| TrackChange::Added(Arc::new(tracked(slot, &format!("pod-{slot}")))));
    Tick { changes: added.collect(), ..tick(second, slots) }
}

/// A context with its state in `dir` that streams to `address`.
pub(crate) fn context(dir: &std::path::Path, epoch: u64, address: &str) -> Arc<Context> {
    let text = format!(
        "state_dir = {:?}\n[stream]\nrecommender = {address:?}\nspool_bytes = \"8Mi\"\n",
        dir.join("state")
    );
    configured(dir, epoch, &text)
}

/// A context with the configuration `text`, whose file is in `dir`.
pub(crate) fn configured(dir: &std::path::Path, epoch: u64, text: &str) -> Arc<Context> {
    let file = dir.join("agent.toml");
    std::fs::write(&file, text).unwrap();
    let (config, loaded) = crate::config::read(Some(&file), &[]).unwrap();
    let node = NodeKey { cluster: "test".into(), node: "n1".into() };
    let trust = crate::trust::Trusts::open(&config, &node, &crate::outward::Outward::Here).unwrap();
    let stats = Stats::default();
    let enforce = enforce::Context {
        live: InForce::new(Arc::clone(&config.enforce)),
        config: Arc::clone(&config.enforce),
        boot_id: "boot".into(),
        facts: NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(2000)),
        stats: Arc::clone(&stats.enforce),
        stop: Stop::default(),
        overlays: Overlays::default(),
    };
    let reload = Reload::new(crate::config::json(&loaded.value));
    let pods = Arc::new(Pods::none());
    let outward = crate::outward::Outward::Here;
    Arc::new(Context { config, enforce: Arc::new(enforce), reload, node, epoch, stats, trust, pods, outward })
}
