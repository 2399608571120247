//! Whether a live process has a wrong score after the agent said that none has, while processes come and go.
//!
//! A trial changes what the container asks for, and with it the score of all its processes, waits until the agent
//! reports the new wish as converged, and looks at every process. The agent is given nothing else to do, so that many
//! trials fit into little time; they are no easier for it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup, Tier};
use evenkeel_tests::places;

use super::verify::{Checked, check};
use crate::ask::{Asking, Said};
use crate::figure::{Figure, Target};
use crate::fleet::{burstable, write_manifest};
use crate::pair::{Agent, Place};
use crate::run::Run;
use crate::usage::percentile;

/// Name of the one pod.
const POD: &str = "churn";
/// How long a wish may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two questions to the agent.
const LOOK: Duration = Duration::from_millis(1);

/// Twenty processes that fork children one after the other.
pub(crate) fn workers(run: &Run) -> Result<Vec<Figure>> {
    measure(run, "converge/churn-workers", &["workers", "20"])
}

/// One lineage of which each process forks the next and ends.
pub(crate) fn chain(run: &Run) -> Result<Vec<Figure>> {
    measure(run, "converge/churn-chain", &["chains", "1"])
}

/// 32 of them.
pub(crate) fn chains(run: &Run) -> Result<Vec<Figure>> {
    measure(run, "converge/churn-chains", &["chains", "32"])
}

/// Everything a trial needs.
struct Stage<'a> {
    run: &'a Run,
    manifests: &'a Path,
    cgroup: &'a TestCgroup,
    asking: Asking,
    said: Said,
}

fn measure(run: &Run, name: &str, shape: &[&str]) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Burstable, POD, "main")?;
    // Standard output is for the figures alone.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec \"$@\" > /dev/null", "sh"]);
    command.arg(places::program("evenkeel-workload")?).arg("fork-churn").args(shape);
    tree.spawn(&cgroup, &command)?;
    let manifests = place.manifests();
    write_manifest(&manifests, POD, &cgroup, &burstable(64))?;
    let agent = Agent::start(&place, None)?;
    let mut asking = Asking::connect(&place.agent_socket())?;
    asking.await_converged(run, 1, false)?;
    let said = asking.said(POD)?.context("the agent does not know the pod")?;
    let mut stage = Stage { run, manifests: &manifests, cgroup: &cgroup, asking, said };
    let figure = trials(&mut stage, name, &shape.join(" "));
    agent.stop()?;
    tree.remove()?;
    Ok(vec![figure?])
}

fn trials(stage: &mut Stage<'_>, name: &str, shape: &str) -> Result<Figure> {
    let count = if stage.run.full { 1000 } else { 100 };
    stage.run.say(&format!("{count} trials against fork-churn {shape}"));
    let (mut missed, mut times, mut processes, mut examples) = (Vec::new(), Vec::new(), 0, Vec::new());
    for trial in 0..count {
        stage.run.check()?;
        times.push(stage.converge(trial)?);
        let checked = check(stage.cgroup, stage.said.wanted)?;
        missed.push(f64::from(u8::from(!checked.wrong.is_empty())));
        processes += checked.live;
        if let Checked { wrong, .. } = &checked
            && let Some((pid, score)) = wrong.first()
        {
            examples.push(format!("trial {trial}: process {pid} had {score}, not {}", stage.said.wanted));
        }
    }
    let misses: f64 = missed.iter().sum();
    let p = |per_mille| percentile(&times, per_mille).unwrap_or(f64::NAN);
    let figure = Figure::new(name, misses, "trials", Target::AtMost(0.0)).spread(&missed);
    let examples = examples.first().map(|first| format!("; {first}")).unwrap_or_default();
    Ok(figure.what(format!(
        "trials of {count} with a live process whose score was wrong after the agent reported the new wish converged; \
         fork-churn {shape}, looked at once as it runs and once frozen, {processes} processes in all; from the \
         manifest to `converged` p50 {:.1}, p99 {:.1} ms{examples}",
        p(500),
        p(990)
    )))
}

impl Stage<'_> {
    /// Changes the wish and waits until it is reported as fulfilled; milliseconds it took.
    fn converge(&mut self, trial: u32) -> Result<f64> {
        // Far apart, so that the score differs on every size of machine.
        let mebibytes = if trial.is_multiple_of(2) { 4096 + trial } else { 64 + trial };
        let began = Instant::now();
        write_manifest(self.manifests, POD, self.cgroup, &burstable(mebibytes))?;
        loop {
            let said = self.asking.said(POD)?;
            if let Some(said) = said
                && said.converged
                && said.generation > self.said.generation
                && said.wanted != self.said.wanted
            {
                self.said = said;
                return Ok(began.elapsed().as_secs_f64() * 1000.0);
            }
            if began.elapsed() > PATIENCE {
                bail!(
                    "{PATIENCE:?} after the wish changed the agent says {said:?}, before it {:?}",
                    self.said
                );
            }
            self.run.sleep(LOOK)?;
        }
    }
}
