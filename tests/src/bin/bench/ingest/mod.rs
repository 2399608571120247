//! What the recommender takes in per second of CPU, and what a sample costs on the wire.
//!
//! A real recommender is pinned to one processor and fed by this process from another one, over the same gRPC that
//! agents use, with frames made and encoded beforehand.

pub(crate) mod churn;
pub(crate) mod cost;
pub(crate) mod crowd;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod replay;
mod socket;
pub(crate) mod storm;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_proto::frame::synth::Load;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tokio::runtime::Runtime;

use crate::figure::{Figure, Target};
use crate::pair::{Place, Recommender, SYNC};
use crate::run::Run;
use crate::usage::cpu_time;
use link::Link;
use replay::{CONTAINERS, Recording};

/// Nodes that send, each over a connection of its own.
const NODES: usize = 100;
/// Nodes that send in a full run.
const NODES_FULL: usize = 300;
/// Different recordings; nodes share them, since only their bytes matter.
const VARIANTS: usize = 16;
/// Frames of a node: one to begin with, then three rounds. Together they cross two minutes.
const FRAMES: usize = 1 + ROUNDS * ROUND;
const ROUNDS: usize = 3;
const ROUND: usize = 45;
/// Frames over which bytes on the wire are counted: ten minutes, everything before the first sample included.
const WIRE_FRAMES: usize = 600;
/// What work may be left to do after the last acknowledgement.
const REST: Duration = Duration::from_secs(1);

/// Gives all three figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    pinned(|| Recommender::start(&place), |recommender, apart| measure(run, &place, recommender, apart))
}

/// Runs a measurement of something that is started on the last processor, from the first one; tells it whether these are
/// two.
fn pinned<S, T>(start: impl FnOnce() -> Result<S>, measure: impl FnOnce(S, bool) -> Result<T>) -> Result<T> {
    let all = sched_getaffinity(Pid::from_raw(0)).context("cannot read the own processors")?;
    let (first, last) = processors()?;
    // A child inherits its parent thread's processors (sched_setaffinity(2)).
    pin(last)?;
    let started = start();
    pin(first)?;
    let figures = started.and_then(|started| measure(started, first != last));
    sched_setaffinity(Pid::from_raw(0), &all).context("cannot go back to all processors")?;
    figures
}

/// The first and the last processor this thread may run on.
fn processors() -> Result<(usize, usize)> {
    let all = sched_getaffinity(Pid::from_raw(0)).context("cannot read the own processors")?;
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).collect();
    cpus.first().copied().zip(cpus.last().copied()).context("no processor")
}

pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu).context("not a processor")?;
    sched_setaffinity(Pid::from_raw(0), &one).with_context(|| format!("cannot be pinned to processor {cpu}"))
}

fn measure(run: &Run, place: &Place, recommender: Recommender, apart: bool) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let busy = wire(run, &runtime, &recommender, "ingest/wire-bytes-busy", Load::Busy, 16.0)?;
    let idle = wire(run, &runtime, &recommender, "ingest/wire-bytes-idle", Load::Idle, 4.0)?;
    let (speed, sent) = speed(run, &runtime, &recommender, apart)?;
    run.say("killing the recommender and asking a new one what it has");
    recommender.kill()?;
    let again = Recommender::start(place)?;
    runtime.block_on(async {
        for (node, last) in sent.iter().enumerate() {
            let link = Link::open(&again, &node_name(node), epoch(node), None).await?;
            if link.acknowledged() < *last {
                bail!(
                    "{} was acknowledged frame {last}, and {} of it are left",
                    node_name(node),
                    link.acknowledged()
                );
            }
        }
        Ok(())
    })?;
    // With it go the connections, which the recommender would wait for.
    drop(runtime);
    again.stop()?;
    Ok(vec![speed, busy, idle])
}

fn node_name(node: usize) -> String {
    format!("node-{node}")
}

fn epoch(node: usize) -> u64 {
    0x5eed_0000 + node as u64
}

/// Bytes on the socket in both directions for one sample.
fn wire(
    run: &Run,
    runtime: &Runtime,
    recommender: &Recommender,
    name: &str,
    load: Load,
    target: f64,
) -> Result<Figure> {
    let node = name.rsplit('-').next().unwrap_or(name);
    run.say(&format!("sending {WIRE_FRAMES} {node} frames of {CONTAINERS} containers and counting bytes"));
    let recording = Recording::make(42, load, WIRE_FRAMES)?;
    let frames = recording.of_node(node);
    let counter = socket::Counter::default();
    runtime.block_on(async {
        let mut link = Link::open(recommender, node, 1, Some(counter.clone())).await?;
        link.send(&frames).await?;
        link.close().await
    })?;
    let samples = (WIRE_FRAMES * CONTAINERS as usize) as f64;
    let (written, read) = counter.bytes();
    let figure = Figure::new(name, (written + read) as f64 / samples, "bytes/sample", Target::AtMost(target));
    Ok(figure.what(format!(
        "all bytes on the TCP socket ({written} sent, {read} received) for {samples} samples: connection, \
         announcements of {CONTAINERS} containers, and {WIRE_FRAMES} frames with a key frame every {}; fixed seed; \
         the codec's part is {:.2}",
        evenkeel_proto::frame::KEY_EVERY,
        recording.bytes() as f64 / samples,
    )))
}

/// Samples per second of the recommender's CPU; and the last frame each node was acknowledged.
fn speed(run: &Run, runtime: &Runtime, recommender: &Recommender, apart: bool) -> Result<(Figure, Vec<u64>)> {
    let nodes = if run.full { NODES_FULL } else { NODES };
    run.say(&format!("making {FRAMES} frames of {CONTAINERS} containers for {nodes} nodes"));
    let recordings: Vec<Recording> =
        (0..VARIANTS).map(|seed| Recording::make(seed as u64, Load::Busy, FRAMES)).collect::<Result<_>>()?;
    let frames: Vec<_> =
        (0..nodes).map(|node| recordings[node % VARIANTS].of_node(&node_name(node))).collect();
    let pid = recommender.daemon().pid()?;
    let mut links = runtime.block_on(async {
        let mut links = Vec::new();
        for node in 0..nodes {
            links.push(Link::open(recommender, &node_name(node), epoch(node), None).await?);
        }
        Ok::<_, anyhow::Error>(links)
    })?;
    let mut send = |from: usize, to: usize| -> Result<()> {
        runtime.block_on(async {
            let sending = links.iter_mut().zip(&frames).map(|(link, frames)| link.send(&frames[from..to]));
            futures::future::try_join_all(sending).await
        })?;
        std::thread::sleep(REST);
        Ok(())
    };
    send(0, 1)?;
    let samples = (nodes * ROUND * CONTAINERS as usize) as f64;
    let (mut rates, mut used, began) = (Vec::new(), 0.0, Instant::now());
    for round in 0..ROUNDS {
        run.check()?;
        run.say(&format!("round {}: {samples} samples", round + 1));
        let before = cpu_time(pid)?;
        send(1 + round * ROUND, 1 + (round + 1) * ROUND)?;
        let cpu = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
        rates.push(samples / cpu);
        used += cpu;
    }
    let total = samples * ROUNDS as f64;
    let took = (began.elapsed() - REST * ROUNDS as u32).as_secs_f64();
    let what = format!(
        "user and system time of a recommender {}, from the second frame until everything is acknowledged and a \
         second more, for {nodes} nodes' frames of {CONTAINERS} busy containers over as many connections; fdatasync \
         at least every {SYNC:?}; {:.0} samples a second of wall-clock time; a new recommender after SIGKILL had all \
         that was acknowledged",
        if apart { "pinned to one processor, fed from another" } else { "on this machine's only processor" },
        total / took,
    );
    let acknowledged = links.iter().map(Link::acknowledged).collect();
    let figure =
        Figure::new("ingest/samples-per-core-second", total / used, "samples/s", Target::AtLeast(300_000.0));
    Ok((figure.spread(&rates).what(what), acknowledged))
}
