//! What people wait for: the dashboard's pages over a large cluster, what a screen of `top` costs, how soon an agent that was started has
//! a first sample.

use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::frame::synth::Load;
use evenkeel_tests::daemon::http_get_at;
use evenkeel_tests::product::parse_metrics;
use evenkeel_tests::{places, wait};
use nix::pty::{Winsize, openpty};
use nix::unistd::Pid;

use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::ingest::crowd;
use crate::ingest::replay::Recording;
use crate::nursery::Habit;
use crate::pair::{Agent, Place, Recommender};
use crate::run::Run;
use crate::usage::{cpu_time, percentile};

/// Nodes, and containers of each, of the cluster whose pages are looked at: a third of `ingest/load-300k`, each second.
const NODES: usize = 1_000;
const EACH: u32 = 100;
/// Each page, as a browser asks for it: lists from their beginning, a workload of a hundred replicas, a node.
const PAGES: [&str; 9] = [
    "/ui/",
    "/ui/workloads",
    "/ui/workloads?sort=saving&q=app-1",
    "/ui/workload?namespace=team-7&workload=deployment%2Fapp-7&container=main&range=1h",
    "/ui/workload?namespace=team-7&workload=deployment%2Fapp-7&container=main&range=30d",
    "/ui/nodes",
    "/ui/node?name=node-7",
    "/ui/decisions",
    "/ui/policies",
];
/// How often each is asked for, and how long after the one before: passes over all workloads and checkpoints fall between.
const TIMES: usize = 20;
const APART: Duration = Duration::from_millis(200);

/// Gives how long pages take and how large they are.
pub(crate) fn pages(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let recommender = Recommender::start(&place)?;
    let figures = looked_at(run, &recommender);
    recommender.stop()?;
    figures
}

/// Times of one page, milliseconds, and its largest answer, bytes.
struct Looked {
    page: &'static str,
    times: Vec<f64>,
    bytes: usize,
}

fn looked_at(run: &Run, recommender: &Recommender) -> Result<Vec<Figure>> {
    // A minute before, so that a first pass over all workloads has something; the rest while pages are asked for.
    const BEFORE: usize = 70;
    const MOST: usize = BEFORE + 600;
    run.say(&format!("making frames of {EACH} containers"));
    let began = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    let began = began.saturating_sub(Duration::from_secs(MOST as u64 + 60));
    let recordings: Vec<Recording> = (0..2)
        .map(|seed| Recording::make_from(seed, EACH, Load::Busy, MOST, began))
        .collect::<Result<_>>()?;
    let of = |node: usize| &recordings[node % recordings.len()];
    let names: Vec<String> = (0..NODES).map(|node| format!("node-{node}")).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let is_done = AtomicBool::new(false);
    let looked = runtime.block_on(async {
        run.say(&format!("connecting {NODES} nodes"));
        let mut links = crowd::open(recommender, &names).await?;
        let first = |node: usize| {
            let rest = of(node).frames(1..BEFORE).iter().cloned();
            std::iter::once(of(node).first_of_node(&names[node])).chain(rest).collect()
        };
        crowd::begin(&mut links, first).await?;
        run.say("looking at pages while every node sends a frame a second");
        let socket = recommender.socket().to_owned();
        let asking = tokio::task::spawn_blocking(move || -> Result<Vec<Looked>> {
            await_pass(&socket)?;
            PAGES.iter().map(|page| look(&socket, page)).collect()
        });
        let second = |node: usize, second: usize| of(node).frames(second..second + 1);
        let feeding = crowd::feed(run, &mut links, BEFORE..MOST, second, || is_done.load(Ordering::Relaxed));
        let asked = async {
            let looked = asking.await.context("asking for pages broke off");
            is_done.store(true, Ordering::Relaxed);
            looked
        };
        let (fed, looked) = tokio::join!(feeding, asked);
        fed?;
        looked?
    })?;
    let (mut slow, mut large) = (Vec::new(), 0);
    for Looked { page, times, bytes } in &looked {
        let p90 = percentile(times, 900).context("no page was asked for")?;
        slow.push((p90, *page));
        large = large.max(*bytes);
    }
    slow.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: Vec<f64> = slow.iter().map(|(time, _)| *time).collect();
    let told: Vec<String> = slow.iter().map(|(time, page)| format!("{page} {time:.0} ms")).collect();
    let about = format!(
        "of {} pages, each asked for {TIMES} times over {NODES} nodes with {} containers of 500 workloads, which send a frame a second \
         each meanwhile",
        PAGES.len(),
        NODES as u64 * u64::from(EACH)
    );
    let time =
        Figure::new("people/pages", all.first().copied().unwrap_or(f64::MAX), "ms", Target::AtMost(200.0));
    let bytes = Figure::new("people/pages-bytes", large as f64, "bytes", Target::AtMost(150_000.0));
    Ok(vec![
        time.spread(&all).what(format!("the slowest 90th percentile {about}: {}", told.join(", "))),
        bytes.what(format!("the largest answer {about}")),
    ])
}

/// Waits until a pass over all workloads has ended: before, pages lack most of what they show.
fn await_pass(socket: &std::path::Path) -> Result<()> {
    wait::until("a pass over all workloads", wait::PATIENCE, || {
        let (_, metrics) = http_get_at(socket, "/metrics")?;
        let took = parse_metrics(&metrics)?.sum("evenkeel_recommender_pass_seconds");
        Ok(took.is_some_and(|took| took > 0.0).then_some(()))
    })
}

fn look(socket: &std::path::Path, page: &'static str) -> Result<Looked> {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..TIMES {
        std::thread::sleep(APART);
        let began = Instant::now();
        let (status, text) = http_get_at(socket, page)?;
        times.push(began.elapsed().as_secs_f64() * 1_000.0);
        ensure!(status == 200, "{page} answers {status}: {text}");
        bytes = bytes.max(text.len());
    }
    Ok(Looked { page, times, bytes })
}

/// `top` on a terminal of its own, ended when dropped.
struct Screen {
    child: Child,
    drawn: std::sync::Arc<AtomicBool>,
}

impl Screen {
    fn start(place: &Place) -> Result<Screen> {
        let size = Winsize { ws_row: 50, ws_col: 160, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).context("no terminal can be made")?;
        let end = || Ok::<_, anyhow::Error>(Stdio::from(pty.slave.try_clone().context("no terminal")?));
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(places::program("evenkeel")?).arg("top");
        command.arg("--agent").arg(format!("unix://{}", place.agent_socket().display()));
        command.env_clear().env("TERM", "xterm-256color").env("PATH", "/usr/bin:/bin");
        let child =
            command.stdin(end()?).stdout(end()?).stderr(end()?).spawn().context("cannot start top")?;
        drop(pty.slave);
        let drawn = std::sync::Arc::new(AtomicBool::new(false));
        let (mut from, seen) = (File::from(pty.master), std::sync::Arc::clone(&drawn));
        std::thread::spawn(move || {
            let mut bytes = [0; 16 << 10];
            // The end of the program is an error of its terminal.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                let text = String::from_utf8_lossy(bytes.get(..count).unwrap_or_default()).into_owned();
                if text.contains("pod-") {
                    seen.store(true, Ordering::Relaxed);
                }
            }
        });
        Ok(Screen { child, drawn })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It is a child of this program, so its number is its own until it is waited for.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Gives what a screen costs.
pub(crate) fn top(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), CONTAINERS, 1, Habit::Active)?;
    let agent = Agent::start(&place, None)?;
    let measured = (|| {
        let screen = Screen::start(&place)?;
        wait::until("top to show containers", wait::PATIENCE, || {
            Ok(screen.drawn.load(Ordering::Relaxed).then_some(()))
        })?;
        run.sleep(Duration::from_secs(3))?;
        let pid = Pid::from_raw(i32::try_from(screen.child.id()).context("no process")?);
        let (before, began) = (cpu_time(pid)?, Instant::now());
        run.say(&format!("watching top for {} s", run.length.as_secs()));
        run.sleep(run.length)?;
        let used = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
        anyhow::Ok(100.0 * used / began.elapsed().as_secs_f64())
    })();
    agent.stop()?;
    fleet.remove()?;
    let what = format!(
        "user and system time of `evenkeel top` on a terminal of 50 rows and 160 columns, over {} s, while each of {CONTAINERS} containers \
         uses something every second",
        run.length.as_secs()
    );
    Ok(vec![Figure::new("people/top-cpu", measured?, "% of a core", Target::AtMost(2.0)).what(what)])
}

/// Starts of an agent.
const STARTS: usize = 10;
/// Containers there are then.
const FEW: u32 = 10;

/// Gives how soon an agent that was started has sampled containers.
pub(crate) fn first_sample(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), FEW, 1, Habit::Asleep)?;
    let mut times = Vec::new();
    for number in 1..=STARTS {
        run.check()?;
        run.say(&format!("starting an agent, {number} of {STARTS}"));
        let began = Instant::now();
        let agent = Agent::start(&place, None)?;
        // Its address is served a moment after its socket.
        while !agent.metrics().is_ok_and(|page| page.contains("container_memory_working_set_bytes{")) {
            ensure!(began.elapsed() < wait::PATIENCE, "no sample came");
            std::thread::sleep(Duration::from_millis(2));
        }
        times.push(began.elapsed().as_secs_f64() * 1_000.0);
        agent.stop()?;
    }
    fleet.remove()?;
    let median = percentile(&times, 500).context("it was never started")?;
    Ok(vec![Figure::new("sample/first-sample", median, "ms", Target::AtMost(300.0)).spread(&times).what(format!(
        "from the start of the process until /metrics has samples of {FEW} containers, median of {STARTS} starts; waiting for its socket \
         looks every few milliseconds"
    ))])
}
