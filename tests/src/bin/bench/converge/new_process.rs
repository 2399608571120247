//! Time until a new process with a wrong score in one of 1,000 containers has the right one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_proto::frame::synth::Lcg;
use evenkeel_proto::v1::{ContainerStatus, GetStatusResponse};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::ask::{Asking, said};
use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::nursery::{Deed, Habit};
use crate::pair::{Agent, Place};
use crate::run::Run;
use crate::usage::{monotonic, percentile};

/// Trials that the kernel wakes the agent for.
const TRIALS: usize = 201;
/// What wakes it, in turn.
pub(super) const DEEDS: [(Deed, &str); 3] =
    [(Deed::Exec, "exec"), (Deed::Fork, "fork"), (Deed::Move, "move into the cgroup")];
/// Processes that change their own score, all at once.
const SILENT: u32 = 50;
/// How long a trial may last before it counts as that long: several audits.
const PATIENCE: Duration = Duration::from_secs(40);
/// Pause between two looks at a score. It is part of the result and short against the target.
const LOOK: Duration = Duration::from_micros(500);

/// The agent at work, and what each container's score should be.
pub(super) struct Stage<'a> {
    run: &'a Run,
    pub(super) fleet: Fleet,
    wanted: Vec<i32>,
    random: Lcg,
}

/// Gives both figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), CONTAINERS, 1, Habit::Asleep)?;
    let agent = Agent::start(&place, None)?;
    let status = Asking::connect(&place.agent_socket())?.await_converged(run, CONTAINERS, false)?;
    let mut stage = Stage::of(run, fleet, &status)?;
    let wake = status.wake.unwrap_or_default();
    let figures = vec![
        woken(&mut stage, wake.process_events && wake.cgroup_events, &wake.why),
        silent(&mut stage, Duration::from_micros(wake.audit_period_usec)),
    ];
    agent.stop()?;
    stage.fleet.remove()?;
    figures.into_iter().collect()
}

/// New processes, one after the other.
fn woken(stage: &mut Stage<'_>, events: bool, why: &str) -> Result<Figure> {
    let name = "converge/new-process-p99";
    if !events {
        return Ok(Figure::absent(name, &format!("the kernel sends the agent no events here: {why}")));
    }
    stage.run.say(&format!("{TRIALS} new processes, one after the other"));
    let mut times = [const { Vec::new() }; DEEDS.len()];
    for trial in 0..TRIALS {
        stage.run.check()?;
        let kind = trial % DEEDS.len();
        times[kind].push(stage.trial(DEEDS[kind].0)?);
    }
    let p = |times: &[f64], per_mille| percentile(times, per_mille).unwrap_or(f64::NAN);
    let all = times.concat();
    let kinds: Vec<String> = DEEDS
        .iter()
        .zip(&times)
        .map(|((_, kind), times)| format!("{kind} p50 {:.2}, p99 {:.2} ms", p(times, 500), p(times, 990)))
        .collect();
    let figure = Figure::new(name, p(&all, 990), "ms", Target::AtMost(100.0)).spread(&all);
    Ok(figure.what(format!(
        "from the moment before the exec, fork or move until oom_score_adj reads as it should; {TRIALS} trials in \
         random ones of {CONTAINERS} containers, scores too high and too low: {}",
        kinds.join("; ")
    )))
}

/// Processes that change their own score, all at once: only an audit finds them.
fn silent(stage: &mut Stage<'_>, audit: Duration) -> Result<Figure> {
    stage
        .run
        .say(&format!("{SILENT} processes that change their own score, found by audits every {audit:?}"));
    let mut waiting = Vec::new();
    let mut times = Vec::new();
    for _ in 0..SILENT {
        let (berth, wrong) = stage.pick();
        let pid = stage.fleet.nursery.prepare(Deed::Rest, wrong)?;
        stage.fleet.berths[berth].cgroup.attach(pid)?;
        waiting.push((pid, stage.wanted[berth]));
    }
    // What the agent does because they were moved is over before they act.
    stage.run.sleep(audit / 2)?;
    let mut acted = Vec::new();
    for (pid, wanted) in waiting {
        let (pid, since) = stage.fleet.nursery.go(pid)?;
        acted.push((pid, wanted, since));
    }
    let mut waiting = acted;
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
    let most = percentile(&times, 1000).context("no process acted")?;
    // Audits are spread over the period; one may begin a tenth of it late on a busy machine.
    let target = Target::AtMost(audit.as_secs_f64() * 1.1);
    let figure = Figure::new("converge/audit-max", most, "s", target).spread(&times);
    Ok(figure.what(format!(
        "from the moment a process in one of {CONTAINERS} containers set its own score wrong, which the kernel \
         reports to nobody, until it is right, the longest of {SILENT}; audit period {audit:?}, of which a tenth more is \
         allowed; p50 {:.2} s",
        percentile(&times, 500).unwrap_or(f64::NAN)
    )))
}

impl<'a> Stage<'a> {
    /// With scores as the agent says that they should be.
    pub(super) fn of(run: &'a Run, fleet: Fleet, status: &GetStatusResponse) -> Result<Self> {
        let mut wanted = Vec::new();
        for berth in &fleet.berths {
            let of_pod =
                |c: &&ContainerStatus| c.identity.as_ref().is_some_and(|identity| identity.pod == berth.pod);
            let found = status.containers.iter().find(of_pod).and_then(said);
            wanted.push(found.with_context(|| format!("the agent does not know {}", berth.pod))?.wanted);
        }
        Ok(Self { run, fleet, wanted, random: Lcg::new(7) })
    }

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
    pub(super) fn trial(&mut self, deed: Deed) -> Result<f64> {
        let (berth, wrong) = self.pick();
        let nursery = &mut self.fleet.nursery;
        let prepared = nursery.prepare(deed, wrong)?;
        let before = monotonic()?;
        self.fleet.berths[berth].cgroup.attach(prepared)?;
        let (judged, since) = if deed == Deed::Move { (prepared, before) } else { nursery.go(prepared)? };
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
