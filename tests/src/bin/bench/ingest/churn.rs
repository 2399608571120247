//! Pods that come and go: memory must not grow with how many there have been.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1::{Announcement, ContainerIdentity, ContainerKind, Frame};

use super::link::Link;
use super::pinned;
use crate::figure::{Figure, Target};
use crate::pair::{Place, Recommender};
use crate::run::Run;
use crate::usage::memory_mib;

/// Containers at any time.
const RUNNING: u32 = 1000;
/// Of them so many are replaced every second.
const REPLACED: u32 = 50;
/// Workloads they belong to.
const WORKLOADS: u32 = 100;
/// Frames sent together.
const ROUND: usize = 60;

/// Gives the growth of a recommender's memory.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    // The short run passes hours in seconds, in which checkpoints come as rarely: every few minutes of samples.
    let keys = if run.full { "" } else { "log.checkpoint_interval = \"1s\"\n" };
    let start = || Recommender::start_with(&place, keys);
    pinned(start, |recommender: Recommender, _| measure(run, &recommender))
}

/// One node whose every container is another one 20 seconds later.
struct Churn {
    encoder: Encoder,
    sequence: u64,
    time_usec: u64,
    oldest: u32,
    next: u32,
}

impl Churn {
    fn second(&mut self) -> Result<Frame> {
        let gone: Vec<u32> =
            if self.sequence == 0 { Vec::new() } else { (self.oldest..self.oldest + REPLACED).collect() };
        self.oldest += gone.len() as u32;
        let new = self.next..self.oldest + RUNNING;
        self.next = new.end;
        let announced = new.map(announcement).collect();
        self.sequence += 1;
        self.time_usec += 1_000_000;
        let sample = |slot: u32| {
            let mut sample = Sample::new(Duration::from_secs(1));
            let age = self.sequence + u64::from(slot % 7);
            sample.set(Field::CpuUsageUsec, age * 100_000);
            sample.set(Field::MemoryWorkingSetBytes, (1 + age % 50) << 20);
            (slot, sample)
        };
        let samples: Vec<_> = (self.oldest..self.next).map(sample).collect();
        let mut bytes = Vec::new();
        self.encoder.encode_seconds(
            self.sequence % 60 == 1,
            self.time_usec,
            1_000_000,
            &samples,
            &mut bytes,
        )?;
        Ok(Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&bytes),
            samples: bytes.into(),
            announced,
            gone,
            ..Frame::default()
        })
    }
}

fn announcement(slot: u32) -> Announcement {
    let workload = slot % WORKLOADS;
    let identity = ContainerIdentity {
        id: format!("{slot:064x}"),
        namespace: "churn".into(),
        pod: format!("job-{workload}-{slot}"),
        pod_uid: format!("00000000-0000-4000-8000-{slot:012x}"),
        container: "main".into(),
        kind: ContainerKind::Regular.into(),
        workload: format!("job/job-{workload}"),
        image: format!("registry.test/job-{workload}:1"),
        ..ContainerIdentity::default()
    };
    Announcement { slot, identity: Some(identity) }
}

fn measure(run: &Run, recommender: &Recommender) -> Result<Vec<Figure>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    // A full run goes on for two hours; the clock of the samples is that of the machine.
    let seconds = if run.full { 7200 } else { run.length.as_secs().clamp(30, 60) * 60 };
    let time_usec =
        u64::try_from(now.as_micros()).context("the clock is far off")? - (seconds + 60) * 1_000_000;
    let mut churn = Churn { encoder: Encoder::new(), sequence: 0, time_usec, oldest: 1, next: 1 };
    let pid = recommender.daemon().pid()?;
    run.say(&format!("{seconds} seconds of {RUNNING} containers, {REPLACED} replaced in each"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut sizes = Vec::new();
    runtime.block_on(async {
        let mut link = Link::open(recommender, "churn", 1, None).await?;
        for _ in 0..(seconds as usize).div_ceil(ROUND) {
            run.check()?;
            let frames: Vec<Frame> = (0..ROUND).map(|_| churn.second()).collect::<Result<_>>()?;
            link.send(&frames).await?;
            sizes.push(memory_mib(pid)?.0);
            if run.full {
                // In real time.
                run.sleep(Duration::from_secs(ROUND as u64))?;
            }
        }
        link.close().await
    })?;
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    let third = sizes.len() / 3;
    let (middle, last) = (mean(&sizes[third..2 * third]), mean(&sizes[2 * third..]));
    let metrics = evenkeel_tests::product::parse_metrics(&recommender.metrics()?)?;
    let number = |name: &str| metrics.sum(&format!("evenkeel_recommender_{name}")).unwrap_or(0.0);
    let figure = Figure::new("ingest/rss-flat", last / middle.max(1.0), "times", Target::AtMost(1.1));
    Ok(vec![figure.baseline(1.0).what(format!(
        "resident memory of a recommender in the last third of {seconds} seconds of samples ({last:.1} MiB) against that in \
         the middle third ({middle:.1} MiB); {} pods came and went, {RUNNING} at a time, of {WORKLOADS} workloads: {:.1} \
         KiB for each container followed at the end, the program included, {:.1} KiB of sealed hours and days per workload, \
         command or image",
        churn.next - 1,
        last * 1024.0 / number("containers").max(1.0),
        number("history_memory_bytes") / 1024.0 / number("history_subjects").max(1.0),
    ))])
}
