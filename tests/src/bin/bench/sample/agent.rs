//! The whole agent: CPU time, memory, and how late its ticks are, while it streams and audits.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use evenkeel_tests::places;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ask::Asking;
use crate::clock::Timer;
use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::nursery::Habit;
use crate::pair::{Agent, Place, Recommender};
use crate::run::Run;
use crate::usage::{cpu_time, memory_mib, percentile};

/// What comes before the measurement: a few audits and frames of the steady state.
const SETTLE: Duration = Duration::from_secs(12);

const LATENESS: &str = "evenkeel_agent_tick_lateness_seconds";
const RING: &str = "evenkeel_agent_ring_bytes";

/// What one run gives.
struct Measured {
    /// CPU use, percent of a core.
    cpu: f64,
    resident: f64,
    peak: f64,
    /// MiB the ring of seconds takes for an hour.
    ring_hour: f64,
    /// Counts by upper bound in milliseconds, of the measured time alone.
    lateness: Vec<(f64, f64)>,
    /// How late an empty timer was, milliseconds.
    timer: Vec<f64>,
    about: String,
}

/// 1,000 containers of one sleeping process.
pub(crate) fn one_process(run: &Run) -> Result<Vec<Figure>> {
    let measured = measure(run, 1, Habit::Asleep)?;
    let cpu =
        Figure::new("sample/agent-cpu-1x", measured.cpu, "% of a core", Target::AtMost(2.5)).what(format!(
            "{}; for scale, cAdvisor at one second was measured to take 31 to 42 % for as many cgroups",
            measured.about
        ));
    let rss = Figure::new("sample/agent-rss", measured.resident, "MiB", Target::AtMost(40.0)).what(format!(
        "resident memory (VmRSS) at the end of the run; {:.1} MiB at its peak (VmHWM)",
        measured.peak
    ));
    Ok(vec![cpu, rss, ring("sample/ring-hour", &measured), lateness(&measured)?])
}

/// 1,000 containers of ten sleeping processes.
pub(crate) fn ten_processes(run: &Run) -> Result<Vec<Figure>> {
    let measured = measure(run, 10, Habit::Asleep)?;
    let figure = Figure::new("sample/agent-cpu-10x", measured.cpu, "% of a core", Target::AtMost(6.0));
    Ok(vec![figure.what(format!("{}; peak resident memory {:.1} MiB", measured.about, measured.peak))])
}

/// 1,000 containers of one process that makes every file change every second.
pub(crate) fn active(run: &Run) -> Result<Vec<Figure>> {
    let measured = measure(run, 1, Habit::Active)?;
    let figure = Figure::new("sample/agent-cpu-active", measured.cpu, "% of a core", Target::AtMost(6.0));
    let cpu = figure.what(format!(
        "{}; peak resident memory {:.1} MiB; held to the target of ten processes each, for want of one of its own",
        measured.about, measured.peak
    ));
    Ok(vec![cpu, ring("sample/ring-hour-active", &measured)])
}

/// Room for an hour in the ring, from what it grew by.
fn ring(name: &'static str, measured: &Measured) -> Figure {
    Figure::new(name, measured.ring_hour, "MiB", Target::AtMost(64.0)).what(
        "growth of the ring of seconds while it was measured, times what is left of an hour; beyond 64 MiB, the default bound, an hour \
         is not kept whole"
            .to_owned(),
    )
}

/// The first while processes of nobody's are forked and end all the time.
pub(crate) fn storm(run: &Run) -> Result<Vec<Figure>> {
    let storm = Storm::start()?;
    let measured = measure(run, 1, Habit::Asleep)?;
    let figure = Figure::new("sample/agent-cpu-storm", measured.cpu, "% of a core", Target::AtMost(6.0));
    Ok(vec![figure.what(format!(
        "{}; {:.0} processes a second were made on the machine meanwhile; held to the target of ten processes each, for \
         want of one of its own",
        measured.about,
        storm.rate()?
    ))])
}

/// Processes outside all containers that fork all the time.
struct Storm {
    process: Child,
    began: Instant,
    made: f64,
}

impl Storm {
    fn start() -> Result<Storm> {
        let mut command = Command::new(places::program("evenkeel-workload")?);
        command.args(["fork-churn", "workers", "2"]).stdout(Stdio::null());
        let process = command.spawn().context("cannot start the storm")?;
        Ok(Storm { process, began: Instant::now(), made: made()? })
    }

    /// How many processes were made in a second since it began.
    fn rate(&self) -> Result<f64> {
        Ok((made()? - self.made) / self.began.elapsed().as_secs_f64())
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        // Its group ends with it; one that is gone already needs no ending.
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let _ = self.process.wait();
    }
}

/// Processes made since boot.
fn made() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let made = text.lines().find_map(|line| line.strip_prefix("processes ")).context("no line processes")?;
    made.trim().parse().context("processes is no number")
}

fn measure(run: &Run, processes: u32, habit: Habit) -> Result<Measured> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), CONTAINERS, processes, habit)?;
    let recommender = Recommender::start(&place)?;
    let agent = Agent::start(&place, Some(&recommender))?;
    let measured = watch(run, &place, &agent, processes, habit);
    agent.stop()?;
    recommender.stop()?;
    fleet.remove()?;
    measured
}

fn watch(run: &Run, place: &Place, agent: &Agent, processes: u32, habit: Habit) -> Result<Measured> {
    let mut asking = Asking::connect(&place.agent_socket())?;
    let status = asking.await_converged(run, CONTAINERS, true)?;
    let seen: u32 = status.containers.iter().map(|container| container.processes).sum();
    anyhow::ensure!(seen >= CONTAINERS * processes, "the agent sees {seen} processes only");
    run.sleep(SETTLE)?;
    run.say(&format!("measuring for {:?}", run.length));
    let pid = agent.daemon().pid()?;
    let sent = asking.status()?.stream.unwrap_or_default().last_acknowledged;
    let page = agent.metrics()?;
    let (late_before, ring_before) = (histogram(&page), value(&page, RING)?);
    let timer = Timer::start(Duration::from_secs(1));
    let (before, (user_before, all_before)) = (cpu_time(pid)?, split(pid.as_raw())?);
    let began = Instant::now();
    run.sleep(run.length)?;
    let used = cpu_time(pid)?.saturating_sub(before).as_secs_f64();
    let took = began.elapsed().as_secs_f64();
    let (user_after, all_after) = split(pid.as_raw())?;
    let timer = timer.stop()?;
    let page = agent.metrics()?;
    let (late_after, ring_after) = (histogram(&page), value(&page, RING)?);
    let ring_hour = (ring_after - ring_before) * 3600.0 / took / f64::from(1 << 20);
    let frames = asking.status()?.stream.unwrap_or_default().last_acknowledged.saturating_sub(sent);
    anyhow::ensure!(frames as f64 > took / 2.0, "only {frames} frames were acknowledged in {took:.0} s");
    let (resident, peak) = memory_mib(pid)?;
    let user = (user_after - user_before) / (all_after - all_before).max(1.0);
    let awake = if status.wake.is_some_and(|wake| wake.process_events) {
        "process events and audits"
    } else {
        "audits alone"
    };
    let about = format!(
        "user and system time of the agent over {took:.0} s ({:.0} % of it user), {CONTAINERS} containers of \
         {processes} {} processes, {frames} frames acknowledged by a recommender in another process, woken by {awake}",
        user * 100.0,
        match habit {
            Habit::Asleep => "sleeping",
            Habit::Active => "active",
        },
    );
    let lateness = late_after.iter().zip(late_before.iter().chain(std::iter::repeat(&(0.0, 0.0))));
    let lateness = lateness.map(|((bound, after), (_, before))| (*bound, after - before)).collect();
    Ok(Measured { cpu: 100.0 * used / took, resident, peak, ring_hour, lateness, timer, about })
}

/// A metric without labels.
fn value(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|text| text.trim().parse().ok())
        .with_context(|| format!("the agent's metrics have no {name}"))
}

/// Clock ticks in user mode, and all, of a process: proc_pid_stat(5), fields 14 and 15.
fn split(pid: i32) -> Result<(f64, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("the agent is gone")?;
    let (_, rest) = text.rsplit_once(')').context("not a stat line")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next().and_then(|field| field.parse::<f64>().ok()).context("not a stat line");
    let (user, system) = (next()?, next()?);
    Ok((user, user + system))
}

/// The p99 of the ticks' lateness against that of the empty timer.
fn lateness(measured: &Measured) -> Result<Figure> {
    let all = measured.lateness.last().map_or(0.0, |(_, count)| *count);
    anyhow::ensure!(all > 0.0, "the agent's metrics have no {LATENESS}");
    // Buckets are cumulative: the first that holds 99 % of the ticks ends where p99 is at most.
    let rank = (all * 0.99).ceil();
    let bound =
        measured.lateness.iter().find(|(_, count)| *count >= rank).map_or(f64::MAX, |(bound, _)| *bound);
    let timer = percentile(&measured.timer, 990).context("the timer never fired")?;
    let target = Target::AtMost(20_f64.max(2.0 * timer));
    let figure = Figure::new("sample/tick-lateness-p99", bound, "ms", target).baseline(timer);
    Ok(figure.what(format!(
        "upper end of the bucket of the agent's histogram in which the p99 of {all} ticks lies; beside it, the p99 of \
         {} ticks of an empty timer thread in the same time; the target is 20 ms or twice that",
        measured.timer.len()
    )))
}

/// Cumulative counts by upper bound in milliseconds.
fn histogram(metrics: &str) -> Vec<(f64, f64)> {
    let bucket = format!("{LATENESS}_bucket");
    let bound = |line: &str| -> Option<f64> {
        let text = line.split_once("le=\"")?.1.split_once('"')?.0;
        if text == "+Inf" { Some(f64::MAX) } else { Some(text.parse::<f64>().ok()? * 1000.0) }
    };
    let count = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
    let lines = metrics.lines().filter(|line| line.starts_with(&bucket));
    lines.filter_map(|line| Some((bound(line)?, count(line)?))).collect()
}
