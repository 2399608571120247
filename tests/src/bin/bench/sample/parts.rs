//! The agent in three processes: what all of them cost together, guardian and starter included.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_tests::processes;
use nix::unistd::Pid;

use crate::ask::Asking;
use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::nursery::Habit;
use crate::pair::{Agent, Place, Recommender};
use crate::run::Run;
use crate::usage::cpu_time;

/// What comes before the measurement: a few audits and frames of the steady state.
const SETTLE: Duration = Duration::from_secs(12);
const CONFIG: &str = "[parts]\nmode = \"three-processes\"\n";

/// 1,000 containers of one sleeping process.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), CONTAINERS, 1, Habit::Asleep)?;
    let recommender = Recommender::start(&place)?;
    let agent = Agent::start_with(&place, Some(&recommender), CONFIG)?;
    let measured = watch(run, &place, &agent);
    agent.stop()?;
    recommender.stop()?;
    fleet.remove()?;
    measured
}

fn watch(run: &Run, place: &Place, agent: &Agent) -> Result<Vec<Figure>> {
    let mut asking = Asking::connect(&place.agent_socket())?;
    let status = asking.await_converged(run, CONTAINERS, true)?;
    let named = |pid: Pid| {
        let part = status.parts.iter().find(|part| i64::from(part.pid) == i64::from(pid.as_raw()));
        part.map_or("guardian or starter", |part| part.name.as_str())
    };
    run.sleep(SETTLE)?;
    run.say(&format!("measuring for {:?}", run.length));
    let all = processes::of_group(agent.daemon().pid()?)?;
    ensure!(all.len() > status.parts.len(), "only {} processes are there", all.len());
    let used = || all.iter().map(|pid| cpu_time(*pid)).collect::<Result<Vec<_>>>();
    let (before, began) = (used()?, Instant::now());
    run.sleep(run.length)?;
    let (after, took) = (used()?, began.elapsed().as_secs_f64());
    let (mut memory, mut cpu, mut each) = (0.0, 0.0, Vec::new());
    for ((pid, before), after) in all.iter().zip(before).zip(after) {
        let mib = processes::proportional_memory(*pid)? as f64 / f64::from(1 << 20);
        let percent = 100.0 * after.saturating_sub(before).as_secs_f64() / took;
        (memory, cpu) = (memory + mib, cpu + percent);
        each.push(format!("{} {mib:.1} MiB and {percent:.2} %", named(*pid)));
    }
    let sent = asking.status()?.stream.context("no stream")?.last_acknowledged;
    ensure!(sent as f64 > took / 2.0, "only {sent} frames were acknowledged in {took:.0} s");
    let about = format!(
        "{CONTAINERS} containers of one sleeping process, streaming to a recommender, over {took:.0} s: {}",
        each.join(", ")
    );
    let pss = Figure::new("sample/agent-parts-pss", memory, "MiB", Target::AtMost(40.0));
    let pss = pss.what(format!("proportional memory (PSS) of all processes at the end of the run; {about}"));
    let cpu = Figure::new("sample/agent-parts-cpu", cpu, "% of a core", Target::AtMost(2.5));
    Ok(vec![pss, cpu.what(format!("user and system time of all processes; {about}"))])
}
