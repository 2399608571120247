//! A whole cluster at once: 300,000 containers every second, in real time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use evenkeel_proto::frame::synth::Load;

use super::link::Link;
use super::replay::{CONTAINERS, Recording};
use super::{VARIANTS, epoch, node_name, pinned};
use crate::figure::{Figure, Target};
use crate::pair::{Place, Recommender};
use crate::run::Run;
use crate::usage::{cpu_time, memory_mib};

/// Nodes, of 1,000 containers each.
const NODES: usize = 300;
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
    let make = |seed: usize| Recording::make_from(seed as u64, Load::Busy, seconds as usize + 1, began);
    let recordings: Vec<Recording> = (0..VARIANTS).map(make).collect::<Result<_>>()?;
    let pid = recommender.daemon().pid()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut links = Vec::new();
        for node in 0..NODES {
            links.push(Link::open(recommender, &node_name(node), epoch(node), None).await?);
        }
        run.say("announcing the containers");
        for (node, link) in links.iter_mut().enumerate() {
            let frame = recordings[node % VARIANTS].first_of_node(&node_name(node));
            link.send(&[frame]).await?;
        }
        run.say(&format!("sending {ALL} samples a second for {seconds} s"));
        let (before, start) = (cpu_time(pid)?, Instant::now());
        let (mut late, mut tick) = (Duration::ZERO, tokio::time::interval(Duration::from_secs(1)));
        for second in 1..=seconds as usize {
            run.check()?;
            tick.tick().await;
            let due = Instant::now();
            let sending = links
                .iter_mut()
                .enumerate()
                .map(|(node, link)| link.send(recordings[node % VARIANTS].frames(second..second + 1)));
            futures::future::try_join_all(sending).await?;
            late = late.max(due.elapsed());
        }
        // What is left to do after the last acknowledgement counts as well.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let wall = start.elapsed().as_secs_f64();
        let cpu = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
        let (resident, peak) = memory_mib(pid)?;
        let metrics = evenkeel_tests::product::parse_metrics(&recommender.metrics()?)?;
        let of = |name: &str| metrics.sum(&format!("evenkeel_recommender_{name}"));
        let workloads = of("history_subjects").unwrap_or(1.0).max(1.0);
        let per_second = cpu / seconds as f64;
        let what = format!(
            "user and system time of a recommender {} per second of {ALL} busy containers' samples, in real time for \
             {seconds} s ({wall:.0} s with the rest of the work) over {NODES} connections; the frames cross a full hour, \
             so that all minutes and hours end at once; the slowest second was acknowledged after {:.1} s; checkpoints, \
             syncs and the history's files included",
            if apart { "pinned to one processor, fed from another" } else { "on this machine's only processor" },
            late.as_secs_f64(),
        );
        let memory = format!(
            "resident memory of the same recommender at its peak ({resident:.0} MiB at the end): {:.1} KiB for each \
             container followed; {:.0} bytes of sealed hours and days in {workloads} workloads, commands and images. An \
             hour of one workload adds 100 to 400 bytes for each resource, a day of a subject likewise",
            peak * 1024.0 / ALL,
            of("history_memory_bytes").unwrap_or(0.0),
        );
        Ok(vec![
            Figure::new("ingest/load-300k", per_second, "cores", Target::AtMost(1.0)).what(what),
            Figure::new("ingest/load-300k-memory", peak, "MiB", Target::AtMost(4096.0)).what(memory),
        ])
    })
}
