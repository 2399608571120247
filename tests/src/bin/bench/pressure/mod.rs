//! How soon the first write follows the kernel's word that memory is short.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_tests::cgroups::{CgroupTree, Tier};
use evenkeel_tests::product::Manifest;
use evenkeel_tests::thrash::Thrash;

use crate::ask::Asking;
use crate::figure::{Figure, Target};
use crate::pair::{Agent, Place};
use crate::run::Run;
use crate::usage::percentile;

/// Trials, and those of the long form.
const TRIALS: (usize, usize) = (5, 20);
/// How long pressure may take to come or go.
const PATIENCE: Duration = Duration::from_secs(90);
const COUNT: &str = "evenkeel_agent_pressure_first_write_seconds_count";
const LAST: &str = "evenkeel_agent_pressure_first_write_last_microseconds";
const HELD: &str = "evenkeel_agent_pressure_held";
/// A few percent of stalled time are pressure here, so that the machine itself need not run short. Polls count only
/// after longer than a trigger watches: what is measured begins with a trigger.
const RULES: &str = "[pressure]\ncalm_after = \"500ms\"\nredo_after = \"1s\"\nretriggers = 1000\n\
    look_ahead_below_percent = 1\nstall_below_percent = 100\nreserve_percent = 5\n\
    [pressure.warning]\nsome_percent = 2\nsome_leave_percent = 1\nfull_percent = 90\nfull_leave_percent = 80\n\
    available_percent = 3\navailable_leave_percent = 4\n\
    [pressure.high]\nsome_percent = 3\nsome_leave_percent = 2\nfull_percent = 90\nfull_leave_percent = 80\n\
    available_percent = 2\navailable_leave_percent = 3\ndwell = \"2s\"\n\
    [pressure.critical]\nsome_percent = 95\nsome_leave_percent = 90\nfull_percent = 95\nfull_leave_percent = 90\n\
    available_percent = 1\navailable_leave_percent = 2\n[starvation]\nenabled = false\n";

/// Gives the figure.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let name = "pressure/first-write";
    if !std::path::Path::new("/proc/pressure/memory").exists() {
        return Ok(vec![Figure::absent(name, "this kernel tells no memory pressure")]);
    }
    let place = Place::new()?;
    let mut tree = CgroupTree::new()?;
    if tree.group("")?.is_v2() {
        let why = "on cgroup v2 stalls count only while the machine itself is short of memory, which this is not to make it";
        return Ok(vec![Figure::absent(name, why)]);
    }
    let hog = tree.container(Tier::BestEffort, "hog", "main")?;
    let manifest = Manifest::best_effort("hog", &hog.path()).json().to_string();
    std::fs::write(place.manifests().join("hog.json"), manifest).context("cannot write a manifest")?;
    let mut held = std::process::Command::new(evenkeel_tests::places::program("evenkeel-workload")?);
    held.args(["hold", "64Mi"]);
    tree.spawn(&hog, &held)?;
    let agent = Agent::start_with(&place, None, RULES)?;
    Asking::connect(&place.agent_socket())?.await_converged(run, 1, false)?;
    let trials = if run.full { TRIALS.1 } else { TRIALS.0 };
    run.say(&format!("{trials} times memory pressure, one after the other"));
    let mut times = Vec::new();
    for trial in 0..trials * 3 {
        if times.len() == trials {
            break;
        }
        let group = tree.group(&format!("thrash-{trial}"))?;
        let before = metric(&agent, COUNT)?;
        let thrash = Thrash::start(&mut tree, &group, place.manifests().parent().context("no directory")?)?;
        let measured =
            await_that(run, "a write", || Ok(metric(&agent, COUNT)? > before || metric(&agent, HELD)? > 0.0));
        thrash.stop(&mut tree)?;
        measured?;
        // A step that a poll led to, just before the trigger, is not what is measured.
        if metric(&agent, COUNT)? > before {
            times.push(metric(&agent, LAST)? / 1000.0);
        }
        await_that(run, "everything to be let go", || Ok(metric(&agent, HELD)? == 0.0))?;
    }
    agent.stop()?;
    let most = percentile(&times, 1000).context("no trigger of the kernel led to a write")?;
    let figure = Figure::new(name, most, "ms", Target::AtMost(250.0)).spread(&times);
    Ok(vec![figure.what(format!(
        "from a pressure trigger's poll returning in the agent to its first write read back, the longest of {}; in \
         between it reads memory and pressure of every container that may be acted on, journals, and tells the guardian",
        times.len()
    ))])
}

fn metric(agent: &Agent, name: &str) -> Result<f64> {
    let text = agent.metrics()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok())
        .with_context(|| format!("the agent has no metric {name}"))
}

fn await_that(run: &Run, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > deadline {
            bail!("waited {PATIENCE:?} for {what}");
        }
        run.sleep(Duration::from_millis(50))?;
    }
    Ok(())
}
