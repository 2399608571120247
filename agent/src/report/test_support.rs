//! What tests of the report and of those who show its work build.

use std::sync::Arc;

use evenkeel_model::node::{NodeFacts, NodeKey};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_qos::rules::ResourceClasses;

use crate::shared::{Context, Stats, Stop, Tick, TrackChange, Tracked};
use crate::testing::workload;

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
    let trust = crate::trust::Trusts::open(&config, &node).unwrap();
    Arc::new(Context {
        trust,
        live: crate::config::InForce::new(config.clone(), crate::config::json(&loaded.raw)),
        config,
        node,
        boot_id: "boot".into(),
        epoch,
        facts: NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(2000)),
        stats: Stats::default(),
        stop: Stop::default(),
        overlays: crate::overlay::Overlays::default(),
    })
}
