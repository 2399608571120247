//! A whole cluster at once: 300,000 containers every second, in real time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use evenkeel_proto::frame::synth::Load;

use super::replay::Recording;
use super::{VARIANTS, crowd, node_name, pinned};
use crate::figure::{Figure, Target};
use crate::pair::{Place, Recommender};
use crate::run::Run;
use crate::usage::{cpu_time, memory_mib};

/// Nodes, and containers of each, as Kubernetes' largest clusters have them.
const NODES: usize = 5000;
const CONTAINERS: u32 = 60;
/// Containers of all of them.
const ALL: f64 = NODES as f64 * CONTAINERS as f64;

/// Gives CPU and memory of a recommender under the load.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    pinned(|| Recommender::start(&place), |recommender: Recommender, apart| measure(run, &recommender, apart))
}

/// Moment of the first frame: so that the frames cross the last full hour in their middle, where every container's
/// minute and hour end at once.
fn began(seconds: u64) -> Result<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    let hour = (now - seconds) / 3600 * 3600;
    Ok(Duration::from_secs(hour - seconds / 2))
}

fn measure(run: &Run, recommender: &Recommender, apart: bool) -> Result<Vec<Figure>> {
    let seconds = run.length.as_secs().max(10);
    run.say(&format!("making {seconds} frames of {CONTAINERS} containers for {NODES} nodes"));
    let began = began(seconds)?;
    let make =
        |seed: usize| Recording::make_from(seed as u64, CONTAINERS, Load::Busy, seconds as usize + 1, began);
    let recordings: Vec<Recording> = (0..VARIANTS).map(make).collect::<Result<_>>()?;
    let of = |node: usize| &recordings[node % VARIANTS];
    let pid = recommender.daemon().pid()?;
    let empty = memory_mib(pid)?.0;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let names: Vec<String> = (0..NODES).map(node_name).collect();
        run.say(&format!("connecting {NODES} nodes"));
        let mut links = crowd::open(recommender, &names).await?;
        let connected = memory_mib(pid)?.0;
        run.say("announcing the containers");
        crowd::begin(&mut links, |node| vec![of(node).first_of_node(&names[node])]).await?;
        run.say(&format!("sending {ALL} samples a second for {seconds} s"));
        let (before, start) = (cpu_time(pid)?, Instant::now());
        let second = |node: usize, second: usize| of(node).frames(second..second + 1);
        let late = crowd::feed(run, &mut links, 1..seconds as usize + 1, second, || false).await?;
        // What is left to do after the last acknowledgement counts as well.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let wall = start.elapsed().as_secs_f64();
        let cpu = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
        let (resident, peak) = memory_mib(pid)?;
        let metrics = evenkeel_tests::product::parse_metrics(&recommender.metrics()?)?;
        let number = |name: &str| metrics.sum(&format!("evenkeel_recommender_{name}")).unwrap_or(0.0);
        let subjects = number("history_subjects").max(1.0);
        let what = format!(
            "user and system time of a recommender {} per second of {ALL} busy containers' samples, in real time for \
             {seconds} s ({wall:.0} s with the rest of the work) over {NODES} connections; the frames cross a full hour, \
             so that all minutes and hours end at once; the slowest frame was acknowledged after {:.1} s; checkpoints, \
             syncs, the history's files and recommendations for every workload included",
            if apart { "pinned to one processor, fed from another" } else { "on this machine's only processor" },
            late.as_secs_f64(),
        );
        let memory = format!(
            "resident memory of the same recommender at its peak, a checkpoint in the making included ({resident:.0} MiB at \
             the end, {empty:.0} MiB before anything, {:.1} KiB for each of {NODES} connections): state {:.1} KiB per \
             container and {:.1} KiB of sealed hours and days per workload, command or image ({subjects} of them)",
            (connected - empty).max(0.0) * 1024.0 / NODES as f64,
            (resident - connected).max(0.0) * 1024.0 / ALL,
            number("history_memory_bytes") / subjects / 1024.0,
        );
        Ok(vec![
            Figure::new("ingest/load-300k", cpu / seconds as f64, "cores", Target::AtMost(1.0)).what(what),
            Figure::new("ingest/load-300k-memory", peak, "MiB", Target::AtMost(4096.0)).what(memory),
        ])
    })
}
