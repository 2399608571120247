//! Time until a new process with a wrong score in one of 1,000 containers has the right one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_proto::frame::synth::Lcg;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ask::{Asking, said};
use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::nursery::{Deed, Habit};
use crate::pair::{Agent, Place};
use crate::run::Run;
use crate::usage::{monotonic, percentile};

/// Trials that the kernel wakes the agent for, half of them exec and half fork.
const TRIALS: u32 = 200;
/// Processes moved into containers at once, of which the kernel tells nobody.
const MOVED: u32 = 50;
/// How long a trial may last before it counts as that long: several audits.
const PATIENCE: Duration = Duration::from_secs(40);
/// Pause between two looks at a score. It is part of the result and short against the target.
const LOOK: Duration = Duration::from_micros(500);

/// The agent at work, and what each container's score should be.
struct Stage<'a> {
    run: &'a Run,
    fleet: Fleet,
    wanted: Vec<i32>,
    random: Lcg,
}

/// Gives both figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), 1, Habit::Asleep)?;
    let agent = Agent::start(&place, None)?;
    let mut asking = Asking::connect(&place.agent_socket())?;
    let status = asking.await_converged(run, CONTAINERS, false)?;
    let mut wanted = Vec::new();
    for berth in &fleet.berths {
        let of_pod = |c: &&evenkeel_proto::v1::ContainerStatus| {
            c.identity.as_ref().is_some_and(|identity| identity.pod == berth.pod)
        };
        let found = status.containers.iter().find(of_pod).and_then(said);
        wanted.push(found.with_context(|| format!("the agent does not know {}", berth.pod))?.wanted);
    }
    let wake = status.wake.unwrap_or_default();
    let mut stage = Stage { run, fleet, wanted, random: Lcg::new(7) };
    let figures = vec![
        woken(&mut stage, wake.process_events, &wake.why),
        moved(&mut stage, Duration::from_micros(wake.audit_period_usec)),
    ];
    agent.stop()?;
    stage.fleet.remove()?;
    figures.into_iter().collect()
}

/// Fork and exec, one trial after the other.
fn woken(stage: &mut Stage<'_>, events: bool, why: &str) -> Result<Figure> {
    let name = "converge/new-process-p99";
    if !events {
        return Ok(Figure::absent(
            name,
            &format!("the kernel sends the agent no process events here: {why}"),
        ));
    }
    stage.run.say(&format!("{TRIALS} new processes, one after the other"));
    let (mut exec, mut fork) = (Vec::new(), Vec::new());
    for trial in 0..TRIALS {
        stage.run.check()?;
        let deed = if trial % 2 == 0 { Deed::Exec } else { Deed::Fork };
        let time = stage.trial(deed)?;
        if deed == Deed::Exec { &mut exec } else { &mut fork }.push(time);
    }
    let all: Vec<f64> = exec.iter().chain(&fork).copied().collect();
    let p = |times: &[f64], per_mille| percentile(times, per_mille).unwrap_or(f64::NAN);
    let figure = Figure::new(name, p(&all, 990), "ms", Target::AtMost(100.0)).spread(&all);
    Ok(figure.what(format!(
        "from the moment before the exec or fork until oom_score_adj reads as it should; {TRIALS} trials in random \
         ones of {CONTAINERS} containers, scores too high and too low in turn; exec p50 {:.2}, p99 {:.2} ms; \
         fork p50 {:.2}, p99 {:.2} ms",
        p(&exec, 500),
        p(&exec, 990),
        p(&fork, 500),
        p(&fork, 990)
    )))
}

/// Processes that come with a wrong score, all at once: only an audit finds them.
fn moved(stage: &mut Stage<'_>, audit: Duration) -> Result<Figure> {
    stage.run.say(&format!("{MOVED} processes moved in at once, found by audits every {audit:?}"));
    let mut waiting = Vec::new();
    let mut times = Vec::new();
    for _ in 0..MOVED {
        let (berth, wrong) = stage.pick();
        let pid = stage.fleet.nursery.prepare(Deed::Rest, wrong)?;
        stage.fleet.berths[berth].cgroup.attach(pid)?;
        waiting.push((pid, stage.wanted[berth], monotonic()?));
    }
    let deadline = Instant::now() + PATIENCE.max(audit * 4);
    while !waiting.is_empty() {
        stage.run.sleep(Duration::from_millis(2))?;
        let late = Instant::now() > deadline;
        let mut left = Vec::new();
        for (pid, wanted, since) in waiting {
            if score(pid)? == wanted || late {
                times.push(monotonic()?.saturating_sub(since).as_secs_f64());
                kill(pid, Signal::SIGKILL).context("cannot end a process")?;
            } else {
                left.push((pid, wanted, since));
            }
        }
        waiting = left;
    }
    let most = percentile(&times, 1000).context("no process was moved")?;
    // Audits are spread over the period; one may begin a tenth of it late on a busy machine.
    let target = Target::AtMost(audit.as_secs_f64() * 1.1);
    let figure = Figure::new("converge/moved-process-max", most, "s", target).spread(&times);
    Ok(figure.what(format!(
        "from the move of a process into one of {CONTAINERS} containers, which the kernel reports to nobody, until \
         its oom_score_adj is right; audit period {audit:?}, of which a tenth more is allowed; p50 {:.2} s",
        percentile(&times, 500).unwrap_or(f64::NAN)
    )))
}

impl Stage<'_> {
    /// A container and a score that is wrong there, too high or too low.
    fn pick(&mut self) -> (usize, i32) {
        let berth = self.random.below(u64::from(CONTAINERS)) as usize;
        let right = self.wanted[berth];
        let higher = self.random.below(2) == 0 && right < 1000;
        let room = if higher { 1000 - right } else { right }.unsigned_abs();
        let away = 1 + i32::try_from(self.random.below(u64::from(room.max(1)))).unwrap_or(0);
        (berth, if higher { right + away } else { right - away })
    }

    /// One process; milliseconds until it was right.
    fn trial(&mut self, deed: Deed) -> Result<f64> {
        let (berth, wrong) = self.pick();
        let nursery = &mut self.fleet.nursery;
        let prepared = nursery.prepare(deed, wrong)?;
        self.fleet.berths[berth].cgroup.attach(prepared)?;
        let (judged, since) = nursery.go(prepared)?;
        let deadline = Instant::now() + PATIENCE;
        while score(judged)? != self.wanted[berth] && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        let took = monotonic()?.saturating_sub(since);
        for pid in [judged, prepared] {
            // One process in case of an exec, whose second killing finds nothing.
            let _ = kill(pid, Signal::SIGKILL);
        }
        Ok(took.as_secs_f64() * 1000.0)
    }
}

fn score(pid: Pid) -> Result<i32> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    match text.trim().parse() {
        Ok(score) => Ok(score),
        Err(_) => bail!("{path} holds {text:?}"),
    }
}
