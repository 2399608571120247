//! An agent in three processes, whose parts end all the time: what a new process and a second of samples notice of it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use evenkeel_tests::processes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::new_process::{DEEDS, Stage};
use crate::ask::Asking;
use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::nursery::Habit;
use crate::pair::{Agent, Place, Recommender};
use crate::run::Run;
use crate::usage::percentile;

/// The network part is killed so often, in short and with `--full`: a part that dies again and again is started again after 10 s.
const KILLS: (usize, usize) = (20, 100);
/// The enforcing part so often.
const RESTARTS: usize = 5;
const CONFIG: &str = "[parts]\nmode = \"three-processes\"\n";
/// Pause between two looks at what begins.
const LOOK: Duration = Duration::from_millis(2);
/// The same of processes, all of which are looked through.
const LOOK_THROUGH: Duration = Duration::from_millis(100);
/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Gives the three figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), CONTAINERS, 1, Habit::Asleep)?;
    let recommender = Recommender::start(&place)?;
    let agent = Agent::start_with(&place, Some(&recommender), CONFIG)?;
    let status = Asking::connect(&place.agent_socket())?.await_converged(run, CONTAINERS, true)?;
    let mut stage = Stage::of(run, fleet, &status)?;
    let mut figures = killed(run, &place, &agent, &mut stage)?;
    figures.push(restarted(run, &place, agent, &recommender)?);
    recommender.stop()?;
    stage.fleet.remove()?;
    Ok(figures)
}

/// New processes while the network part is killed under them.
fn killed(run: &Run, place: &Place, agent: &Agent, stage: &mut Stage<'_>) -> Result<Vec<Figure>> {
    let kills = if run.full { KILLS.1 } else { KILLS.0 };
    run.say(&format!("{kills} kills of the network part, each with a new process"));
    let enforcing = agent.daemon().pid()?;
    let missed = || metric(place, "evenkeel_agent_ticks_missed_total", agent);
    let (before, mut times) = (missed()?, Vec::new());
    for trial in 0..kills {
        run.check()?;
        let network = await_network(enforcing, None)?;
        kill(network, Signal::SIGKILL).context("cannot kill the network part")?;
        times.push(stage.trial(DEEDS[trial % DEEDS.len()].0)?);
        await_network(enforcing, Some(network))?;
    }
    let what = format!(
        "from the moment before an exec, fork or move in one of {CONTAINERS} containers until oom_score_adj reads as it should, each right \
         after a kill of the network part; {kills} kills"
    );
    let p99 = percentile(&times, 990).context("nothing was tried")?;
    let newcomers = Figure::new("converge/network-killed-p99", p99, "ms", Target::AtMost(100.0));
    let gap = missed()? - before;
    let gap = Figure::new("converge/network-killed-missed", gap, "s", Target::AtMost(0.0));
    let about =
        format!("seconds that the enforcing part did not sample during {kills} kills of the network part");
    Ok(vec![newcomers.spread(&times).what(what), gap.what(about)])
}

/// A counter of the agent, once its network part answers again.
fn metric(place: &Place, name: &str, agent: &Agent) -> Result<f64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Ok(text) = agent.metrics() {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            return line.with_context(|| format!("no {name}"))?.parse().context("not a number");
        }
        ensure!(Instant::now() < deadline, "no metrics from {}", place.agent_socket().display());
        std::thread::sleep(LOOK);
    }
}

/// The enforcing part killed and started anew, until its network part has samples of containers on its page.
fn restarted(run: &Run, place: &Place, agent: Agent, recommender: &Recommender) -> Result<Figure> {
    run.say(&format!("{RESTARTS} restarts of the enforcing part"));
    let (mut agent, mut times) = (agent, Vec::new());
    for _ in 0..RESTARTS {
        run.check()?;
        agent.kill()?;
        let killed = Instant::now();
        agent = Agent::start_with(place, Some(recommender), CONFIG)?;
        let deadline = killed + PATIENCE;
        while !agent.metrics().is_ok_and(|page| page.contains("container_memory_working_set_bytes{")) {
            ensure!(Instant::now() < deadline, "no samples within {PATIENCE:?}");
            std::thread::sleep(LOOK);
        }
        times.push(killed.elapsed().as_secs_f64());
    }
    agent.stop()?;
    let most = percentile(&times, 1000).context("nothing was tried")?;
    let figure = Figure::new("converge/restart-first-sample", most, "s", Target::AtMost(1.0)).spread(&times);
    Ok(figure.what(format!(
        "from the end of a killed enforcing part with {CONTAINERS} containers until another one's samples of them are on /metrics, the longest \
         of {RESTARTS}"
    )))
}

/// The network part, another one than `before`.
fn await_network(enforcing: Pid, before: Option<Pid>) -> Result<Pid> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let all = processes::of_group(enforcing)?;
        let found = all.into_iter().find(|pid| is_network(*pid) && Some(*pid) != before);
        if let Some(found) = found {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "no network part within {PATIENCE:?}");
        std::thread::sleep(LOOK_THROUGH);
    }
}

/// By its command line: `part network`.
fn is_network(pid: Pid) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|words| words.split(|byte| *byte == 0).any(|word| word == b"network"))
}
