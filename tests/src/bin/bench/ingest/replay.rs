//! Frames made and encoded beforehand.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use evenkeel_proto::frame::synth::{Load, Synth};
use evenkeel_proto::frame::{Encoder, KEY_EVERY};
use evenkeel_proto::v1::{Announcement, ContainerIdentity, ContainerKind, Frame, QosClass, ResourceValues};

/// Containers of a large node.
pub(crate) const CONTAINERS: u32 = 1000;

/// One node's seconds, that any number of nodes may send.
pub(crate) struct Recording {
    containers: u32,
    frames: Vec<Frame>,
}

impl Recording {
    /// Makes and encodes that many seconds of a large node, the last of them now.
    pub(crate) fn make(seed: u64, load: Load, seconds: usize) -> Result<Recording> {
        Self::make_until_now(seed, CONTAINERS, load, seconds)
    }

    /// The same of a node with so many containers.
    pub(crate) fn make_until_now(
        seed: u64,
        containers: u32,
        load: Load,
        seconds: usize,
    ) -> Result<Recording> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
        Self::make_from(seed, containers, load, seconds, now - Duration::from_secs(seconds as u64))
    }

    /// Makes and encodes that many seconds from a moment (since 1970) on.
    pub(crate) fn make_from(
        seed: u64,
        containers: u32,
        load: Load,
        seconds: usize,
        began: Duration,
    ) -> Result<Recording> {
        let mut synth = Synth::new(seed, containers, load);
        let mut encoder = Encoder::new();
        let mut time = u64::try_from(began.as_micros()).context("the clock is far off")?;
        let mut frames = Vec::with_capacity(seconds);
        for index in 0..seconds {
            let (_, interval, samples) = synth.tick();
            time += u64::from(interval);
            let mut bytes = Vec::new();
            let key = index.is_multiple_of(KEY_EVERY as usize);
            encoder.encode_seconds(key, time, interval, samples, &mut bytes)?;
            frames.push(Frame {
                sequence: index as u64 + 1,
                samples_crc32c: crc32c::crc32c(&bytes),
                samples: bytes.into(),
                ..Frame::default()
            });
        }
        Ok(Recording { containers, frames })
    }

    /// Bytes of encoded samples.
    pub(crate) fn bytes(&self) -> usize {
        self.frames.iter().map(|frame| frame.samples.len()).sum()
    }

    /// Some of the frames, without announcements.
    pub(crate) fn frames(&self, range: std::ops::Range<usize>) -> &[Frame] {
        &self.frames[range]
    }

    /// The first frame as one node sends it, with its announcements.
    pub(crate) fn first_of_node(&self, node: &str) -> Frame {
        Frame { announced: self.announced(node), ..self.frames[0].clone() }
    }

    /// The frames as one node sends them: the first announces its containers.
    pub(crate) fn of_node(&self, node: &str) -> Vec<Frame> {
        let mut frames = self.frames.clone();
        if let Some(first) = frames.first_mut() {
            first.announced = self.announced(node);
        }
        frames
    }

    fn announced(&self, node: &str) -> Vec<Announcement> {
        (1..=self.containers).map(|slot| announcement(node, slot)).collect()
    }
}

/// One replica of one of 500 workloads; a node's are those of its number on, so that all have as many.
fn announcement(node: &str, slot: u32) -> Announcement {
    let number: u32 = node.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(0);
    let workload = (number.wrapping_mul(61) + slot) % 500;
    let identity = ContainerIdentity {
        // As long as a runtime's.
        id: format!("{node:>32}{slot:032x}").replace(' ', "0"),
        namespace: format!("team-{}", workload % 20),
        pod: format!("app-{workload}-7d9f8b6c5d-{node}-{slot}"),
        pod_uid: format!("00000000-0000-4000-8000-{slot:012x}"),
        container: "main".into(),
        kind: ContainerKind::Regular.into(),
        workload: format!("deployment/app-{workload}"),
        image: format!("registry.test/team-{}/app-{workload}:1.2.3", workload % 20),
        command_hash: Some(u64::from(workload)),
        cgroup_inode: u64::from(slot) + 1000,
        requested: Some(ResourceValues {
            cpu_request_milli: Some(100),
            memory_request_bytes: Some(128 << 20),
            ..ResourceValues::default()
        }),
        estimated: false,
        memory_class: QosClass::Burstable.into(),
        cpu_class: QosClass::Burstable.into(),
        ..ContainerIdentity::default()
    };
    Announcement { slot, identity: Some(identity) }
}
