//! A whole cluster at once: 300,000 containers every second, in real time.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use evenkeel_proto::frame::synth::Load;

use super::crowd::{self, Late};
use super::replay::Recording;
use super::{VARIANTS, node_name, pinned};
use crate::figure::{Figure, Target};
use crate::pair::{Carrier, Place, Recommender};
use crate::run::Run;
use crate::usage::{cpu_time, memory_mib};

/// Nodes, and containers of each, as Kubernetes' largest clusters have them.
const NODES: usize = 5000;
const CONTAINERS: u32 = 60;
/// Containers of all of them.
const ALL: f64 = NODES as f64 * CONTAINERS as f64;

/// Time after the turn of the hour that belongs to it.
const TURN: Duration = Duration::from_secs(5);

/// Gives CPU and memory of a recommender under the load, and how soon it acknowledges.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    over(run, Carrier::Socket, measure)
}

/// Gives the CPU with nodes at an address.
pub(crate) fn tcp(run: &Run) -> Result<Vec<Figure>> {
    over(run, Carrier::Tcp, |run, place, recommender, apart| {
        Ok(vec![
            load(run, place, recommender, apart)?.cpu("ingest/load-300k-tcp", "over TCP, each with a token"),
        ])
    })
}

/// The same over TLS.
pub(crate) fn tls(run: &Run) -> Result<Vec<Figure>> {
    over(run, Carrier::Tls, |run, place, recommender, apart| {
        Ok(vec![
            load(run, place, recommender, apart)?
                .cpu("ingest/load-300k-tls", "over TLS 1.3, each with a token"),
        ])
    })
}

fn over(
    run: &Run,
    carrier: Carrier,
    measure: impl FnOnce(&Run, &Place, &Recommender, bool) -> Result<Vec<Figure>>,
) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    pinned(
        || Recommender::start_over(&place, carrier),
        |recommender: Recommender, apart| measure(run, &place, &recommender, apart),
    )
}

/// Moment of the first frame: so that the frames cross the last full hour in their middle, where every container's
/// minute and hour end at once.
fn began(seconds: u64) -> Result<Duration> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?.as_secs();
    let hour = (now - seconds) / 3600 * 3600;
    Ok(Duration::from_secs(hour - seconds / 2))
}

/// What a run under the load shows.
struct Loaded {
    seconds: u64,
    wall: f64,
    cpu: f64,
    apart: bool,
    late: Vec<Late>,
    /// When the hour of the frames turned.
    turn: Instant,
    /// When checkpoints were written.
    checkpoints: Vec<(Instant, Instant)>,
    /// Before anything, with all connections, at the end, and at the peak, MiB.
    memory: [f64; 4],
    subjects: f64,
    history_bytes: f64,
}

fn load(run: &Run, place: &Place, recommender: &Recommender, apart: bool) -> Result<Loaded> {
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
        let checkpoint = place.path("recommender").join("checkpoint");
        let feeding = crowd::feed(run, &mut links, 1..seconds as usize + 1, second, || false);
        let (late, written) = watched(&checkpoint, feeding).await;
        let late = late?;
        // What is left to do after the last acknowledgement counts as well.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let wall = start.elapsed().as_secs_f64();
        let cpu = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
        let (resident, peak) = memory_mib(pid)?;
        let metrics = evenkeel_tests::product::parse_metrics(&recommender.metrics()?)?;
        let number = |name: &str| metrics.sum(&format!("evenkeel_recommender_{name}")).unwrap_or(0.0);
        let took = Duration::from_secs_f64(number("checkpoint_seconds"));
        Ok(Loaded {
            seconds,
            wall,
            cpu,
            apart,
            late,
            turn: start + Duration::from_secs(seconds / 2 - 2),
            checkpoints: written.into_iter().filter_map(|end| Some((end.checked_sub(took)?, end))).collect(),
            memory: [empty, connected, resident, peak],
            subjects: number("history_subjects").max(1.0),
            history_bytes: number("history_memory_bytes"),
        })
    })
}

/// Does something, and notes when a file was replaced meanwhile.
async fn watched<T>(file: &Path, work: impl Future<Output = T>) -> (T, Vec<Instant>) {
    let modified = || std::fs::metadata(file).and_then(|file| file.modified()).ok();
    let (mut last, mut written) = (modified(), Vec::new());
    let mut work = std::pin::pin!(work);
    let mut look = tokio::time::interval(Duration::from_millis(20));
    loop {
        tokio::select! {
            done = &mut work => return (done, written),
            _ = look.tick() => {
                let now = modified();
                if now != last {
                    last = now;
                    written.push(Instant::now());
                }
            }
        }
    }
}

impl Loaded {
    fn cpu(&self, name: &'static str, over: &str) -> Figure {
        let Self { seconds, wall, apart, .. } = self;
        let slowest = self.late.iter().map(|(_, late)| *late).max().unwrap_or_default();
        let what = format!(
            "user and system time of a recommender {} per second of {ALL} busy containers' samples, in real time for \
             {seconds} s ({wall:.0} s with the rest of the work) of {NODES} nodes {over}; the frames cross a full hour, \
             so that all minutes and hours end at once; the slowest frame was acknowledged after {:.1} s; checkpoints, \
             syncs, the history's files and recommendations for every workload included",
            if *apart {
                "pinned to one processor, fed from another"
            } else {
                "on this machine's only processor"
            },
            slowest.as_secs_f64(),
        );
        Figure::new(name, self.cpu / *seconds as f64, "cores", Target::AtMost(1.0)).what(what)
    }

    fn memory(&self) -> Figure {
        let [empty, connected, resident, peak] = self.memory;
        let memory = format!(
            "resident memory of the same recommender at its peak, a checkpoint in the making included ({resident:.0} MiB at \
             the end, {empty:.0} MiB before anything, {:.1} KiB for each of {NODES} connections): state {:.1} KiB per \
             container and {:.1} KiB of sealed hours and days per workload, command or image ({} of them)",
            (connected - empty).max(0.0) * 1024.0 / NODES as f64,
            (resident - connected).max(0.0) * 1024.0 / ALL,
            self.history_bytes / self.subjects / 1024.0,
            self.subjects,
        );
        Figure::new("ingest/load-300k-memory", peak, "MiB", Target::AtMost(4096.0)).what(memory)
    }

    /// The 99th percentile of the time from when a frame was due to its acknowledgement: as a rule, of frames that were
    /// due or waited while a checkpoint was written, and after the turn of the hour.
    fn acknowledged(&self) -> Vec<Figure> {
        let turn = self.turn..self.turn + TURN;
        let meets = |(due, late): &Late, from: Instant, to: Instant| *due < to && *due + *late > from;
        let in_checkpoint = |frame: &Late| self.checkpoints.iter().any(|(from, to)| meets(frame, *from, *to));
        let in_turn = |frame: &Late| meets(frame, turn.start, turn.end);
        let of = |name, most, when: &str, is: &dyn Fn(&Late) -> bool| {
            let mut late: Vec<Duration> = self.late.iter().filter(|f| is(f)).map(|(_, late)| *late).collect();
            late.sort_unstable();
            let p99 = late.get((late.len() * 99 / 100).min(late.len().checked_sub(1)?))?.as_secs_f64();
            let what = format!(
                "99th percentile of the time from a frame's second to its acknowledgement, of {} frames {when} in the run \
                 of ingest/load-300k; median {:.3} s, slowest {:.3} s",
                late.len(),
                late[late.len() / 2].as_secs_f64(),
                late[late.len() - 1].as_secs_f64(),
            );
            Some(Figure::new(name, p99, "s", Target::AtMost(most)).what(what))
        };
        let checkpoints = format!("while one of {} checkpoints was written", self.checkpoints.len());
        [
            of("ingest/ack-p99", 0.5, "outside of both", &|f| !in_checkpoint(f) && !in_turn(f)),
            of("ingest/ack-p99-checkpoint", 2.0, &checkpoints, &in_checkpoint),
            of("ingest/ack-p99-hour", 2.0, "around the turn of the hour", &in_turn),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn measure(run: &Run, place: &Place, recommender: &Recommender, apart: bool) -> Result<Vec<Figure>> {
    let loaded = load(run, place, recommender, apart)?;
    let mut figures = vec![loaded.cpu("ingest/load-300k", "over Unix sockets"), loaded.memory()];
    figures.extend(loaded.acknowledged());
    Ok(figures)
}
