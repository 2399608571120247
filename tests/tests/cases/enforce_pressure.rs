//! A BestEffort hog beside containers with promises, with the pressure loop and without it. Sizes are parts of a guest
//! that is small enough to run out of memory; lateness is that of a service woken every 10 ms, which reads from the same
//! slow disk as its neighbours: memory that runs out takes their files from them, and the disk is where all wait.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::processes::{memory_total, score, vm_event};
use evenkeel_tests::product::{Agent, Heard, Manifest, Site, await_score};
use evenkeel_tests::stalls::Stalls;
use evenkeel_tests::{figures, machine, wait};
use nix::sys::signal::{Signal, kill};

const MIB: u64 = 1 << 20;
/// Part of memory the hog wants: more than there is beside the tenant, and less than there is without it.
const WANTED: &str = "50%";
/// Part of memory the tenant holds.
const TENANT: u64 = 40;
/// Growth in percent of memory per second, one per repetition.
const RATES: [&str; 5] = ["10", "3", "10", "5", "10"];
/// MiB the disk moves in a second.
pub(crate) const DISK_RATE: u64 = 12;
/// Processes that live off the disk, and the part of it each reads again and again.
const READERS: u64 = 4;
const READ: u64 = 24 * MIB;
/// Their rest after each 64 KiB, in microseconds: fast enough to keep the disk busy once their files leave memory.
const REST: &str = "4000";
/// A machine that wakes nobody for so long, twice what the loop waits between two looks, cannot be held to a promise
/// about a hog that takes a tenth of memory a second.
const STOOD_STILL: Duration = Duration::from_millis(500);
/// Such repetitions that are made again, for each that is wanted.
const AGAIN: usize = 3;

/// The probe's 99th percentiles of lateness, in milliseconds, one for each stretch of time.
#[derive(Default)]
struct Lateness {
    quiet: Vec<f64>,
    with: Vec<f64>,
    without: Vec<f64>,
}

fn median(of: &[f64]) -> Result<f64> {
    let mut sorted = of.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().context("nothing was measured")
}

impl Lateness {
    /// Shows all of it, and holds the medians against the promise.
    fn judge(&self) -> Result<()> {
        let shown = |of: &[f64]| of.iter().map(|p99| format!("{p99:.1}")).collect::<Vec<_>>().join(" ");
        let [quiet, with, without] = [median(&self.quiet)?, median(&self.with)?, median(&self.without)?];
        figures::show(&format!(
            "probe of 10 ms, p99 of its lateness in ms: median {quiet:.1} when quiet ({}), {with:.1} beside a growing hog \
             ({}), {without:.1} with the loop off ({})",
            shown(&self.quiet),
            shown(&self.with),
            shown(&self.without)
        ));
        ensure!(with < 2.0 * quiet + 20.0, "p99 {with:.1} ms with the loop, {quiet:.1} ms when it was quiet");
        ensure!(with < without / 2.0, "p99 {with:.1} ms with the loop, {without:.1} ms without");
        Ok(())
    }
}

/// A Guaranteed probe, and Burstable tenants within their requests, in a subtree of the agent's.
struct House {
    site: Site,
    probe: Heard,
    readers: Vec<Heard>,
}

impl House {
    fn new() -> Result<House> {
        let site = Site::new()?;
        let own = site.tree().group("own")?.path();
        // The default suits machines on which 100Mi is a small part.
        let mut site =
            site.with(|agent| agent.set("own", &format!("[{own:?}]")).set("pressure.kill_below", "\"24Mi\""));
        let cgroup = site.tree().group("own/probe")?;
        site.bind(&Manifest::guaranteed("probe", &cgroup.path(), "1", "96Mi"))?;
        let probe = site.run_heard(&cgroup, &["probe", "10", "4Mi", "/dev/vda"])?;
        ensure!(probe.await_word_or_end("holding")?, "the probe did not start");
        Ok(House { site, probe, readers: Vec::new() })
    }

    /// Tenants that live off the disk.
    fn readers(&mut self) -> Result<()> {
        for reader in 0..READERS {
            let name = format!("reader-{reader}");
            let cgroup = self.site.tree().group(&format!("own/{name}"))?;
            self.site.bind(&Manifest::burstable(&name, &cgroup.path(), "100m", "32Mi"))?;
            let (offset, size) = ((32 * MIB + reader * READ).to_string(), READ.to_string());
            let heard = self.site.run_heard(&cgroup, &["read", "/dev/vda", &offset, &size, "again", REST])?;
            self.readers.push(heard);
        }
        for reader in &self.readers {
            ensure!(reader.await_word_or_end("read")?, "a reader did not start");
        }
        Ok(())
    }

    /// Waits until the readers have their files in memory again.
    fn settle(&self, agent: &Agent) -> Result<()> {
        agent.ask().usage((READERS * READ / (DISK_RATE * MIB)) as usize + 4)?;
        self.lateness().map(drop)
    }

    /// Starts the agent, with the loop or without.
    fn agent(&mut self, looping: bool) -> Result<Agent> {
        self.site.agent = self.site.agent.clone().set("pressure.enabled", &looping.to_string());
        let agent = self.site.start()?;
        await_score(self.probe.pid, -999)?;
        Ok(agent)
    }

    fn tenant(&mut self, name: &str) -> Result<(TestCgroup, Heard)> {
        let cgroup = self.site.tree().group(&format!("own/{name}"))?;
        let asked = format!("{}Mi", memory_total()? * (TENANT + 2) / 100 / MIB);
        self.site.bind(&Manifest::burstable(name, &cgroup.path(), "100m", &asked))?;
        let heard = self.site.run_heard(&cgroup, &["hold", &format!("{TENANT}%")])?;
        ensure!(heard.await_word_or_end("holding")?, "the tenant did not start");
        Ok((cgroup, heard))
    }

    fn hog(&mut self, name: &str, words: &[&str]) -> Result<(TestCgroup, Heard)> {
        let path = format!("{}/own/{name}", self.site.tree().path());
        self.site.bind(&Manifest::best_effort(name, &path))?;
        let cgroup = self.site.tree().group(&format!("own/{name}"))?;
        // Without a score: it is to be scored in time. The agent promises that within 100 ms (99th percentile), on a
        // busy emulated processor within many times as long; a program takes its memory no sooner after its start.
        let heard = self.site.run_heard_after("sleep 2", &cgroup, words)?;
        Ok((cgroup, heard))
    }

    /// The 99th percentile of the probe's lateness since the last question, in milliseconds.
    fn lateness(&self) -> Result<f64> {
        let lines = |said: &str| said.lines().filter(|line| line.contains("late n=")).count();
        let before = lines(&self.probe.said());
        kill(self.probe.pid, Signal::SIGUSR1).context("the probe is gone")?;
        wait::until("the probe to tell", wait::PATIENCE, || {
            let said = self.probe.said();
            if lines(&said) == before {
                return Ok(None);
            }
            let line = said.lines().last().unwrap_or_default().to_string();
            let p99 = line.split(' ').find_map(|word| word.strip_prefix("p99="));
            let usec: f64 = p99.context("no p99")?.parse().context("p99 is not a number")?;
            Ok(Some(usec / 1000.0))
        })
    }

    fn clear(&self, name: &str, cgroup: &TestCgroup) -> Result<()> {
        cgroup.remove()?;
        self.site.unbind(name)
    }

    /// Ends pods of which nobody knows how far they came.
    fn abandon(&self, pods: &[String]) -> Result<()> {
        for pod in pods {
            let _ = self.site.unbind(pod);
            self.site.tree().group(&format!("own/{pod}"))?.remove()?;
        }
        Ok(())
    }
}

/// Whether anything holds a container back.
fn is_held(cgroup: &TestCgroup) -> Result<bool> {
    Ok(cgroup.is_frozen()? || cgroup.read("memory", "memory.high")? != "max")
}

/// What was decided about a pod's memory, by kind.
fn decided(agent: &Agent, pod: &str, kind: &str) -> Result<usize> {
    let pod = format!("default/{pod}");
    let all = agent.ask().decisions()?;
    Ok(all.iter().filter(|d| d.kind == kind && d.pod.as_deref() == Some(pod.as_str())).count())
}

/// The last that was done to a pod's memory.
fn story(agent: &Agent, pod: &str) -> Result<String> {
    let pod = format!("default/{pod}");
    let told = agent.ask().decisions()?.into_iter().filter(|d| d.pod.as_deref() == Some(pod.as_str()));
    let told: Vec<String> = told.map(|d| format!("{} {:?}: {}", d.kind, d.knob, d.reason)).collect();
    Ok(told[told.len().saturating_sub(8)..].join("; "))
}

/// One repetition, made again when the machine stood still and it failed.
fn contain(house: &mut House, agent: &Agent, round: usize, late: &mut Lateness) -> Result<String> {
    let mut again = 0;
    loop {
        let (stalls, name) = (Stalls::watch(), format!("{round}-{again}"));
        let done = contain_once(house, agent, &name, RATES[round % RATES.len()], late);
        let stood = stalls.longest();
        match done {
            Err(error) if stood >= STOOD_STILL && again < AGAIN => {
                figures::show(&format!(
                    "repetition {round} again, the machine stood still for {stood:?}: {error:#}"
                ));
                house.abandon(&[format!("hog-{name}"), format!("tenant-{name}")])?;
                again += 1;
            }
            done => return done.with_context(|| format!("the machine stood still for at most {stood:?}")),
        }
    }
}

/// The hog grows into the tenant's memory, is held, and is let go when the tenant leaves.
fn contain_once(
    house: &mut House,
    agent: &Agent,
    name: &str,
    rate: &str,
    late: &mut Lateness,
) -> Result<String> {
    let (tenant, hog) = (format!("tenant-{name}"), format!("hog-{name}"));
    let (tenant_at, tenant_runs) = house.tenant(&tenant)?;
    // The tenant came all at once, which looks like memory that runs out; that has to be forgotten first.
    house.settle(agent)?;
    agent.ask().usage(8)?;
    late.quiet.push(house.lateness()?);
    let killed = vm_event("oom_kill")?;
    let (hog_at, hog_runs) = house.hog(&hog, &["grow", rate, WANTED])?;
    let held = wait::until("the hog to be held", wait::PATIENCE, || {
        ensure!(hog_runs.is_alive(), "the hog is gone");
        ensure!(!hog_runs.said().contains("grown"), "nothing held the hog back");
        is_held(&hog_at)?.then(|| hog_at.read("memory", "memory.current")).transpose()
    });
    let held: u64 = held.with_context(|| format!("the agent's log:\n{}", agent.log_end()))?.parse()?;
    // It stays held while the tenant is there, three seconds of which are enough to outgrow what is left.
    agent.ask().usage(3)?;
    ensure!(
        hog_runs.is_alive() && !hog_runs.said().contains("grown"),
        "the hog was not contained: it said {:?}; {}",
        hog_runs.said(),
        story(agent, &hog)?
    );
    ensure!(tenant_runs.is_alive(), "the tenant is gone");
    tenant_at.remove()?;
    let grown = hog_runs.await_word_or_end("grown");
    let grown = grown.with_context(|| format!("not let go; the agent's log:\n{}", agent.log_end()))?;
    ensure!(grown, "the hog was killed after the tenant left");
    wait::until("the hog to be let go", wait::PATIENCE, || Ok((!is_held(&hog_at)?).then_some(())))?;
    late.with.push(house.lateness()?);
    let kills = [vm_event("oom_kill")? - killed, decided(agent, &hog, "kill")? as u64];
    ensure!(kills == [0, 0], "killed by the kernel and by the agent: {kills:?}");
    let told =
        format!("{rate} %/s held at {} MiB after {} steps", held / MIB, decided(agent, &hog, "relieve")?);
    house.clear(&hog, &hog_at)?;
    house.site.unbind(&tenant)?;
    Ok(told)
}

pub(crate) fn a_growing_hog_is_contained_and_the_probe_beside_it_stays_prompt() -> Result<()> {
    let mut house = House::new()?;
    house.readers()?;
    let agent = house.agent(true)?;
    let (mut told, mut late) = (Vec::new(), Lateness::default());
    let rounds = machine::scaled(3, 20);
    for round in 0..rounds {
        let done = contain(&mut house, &agent, round, &mut late);
        told.push(done.with_context(|| format!("repetition {round}"))?);
    }
    agent.stop()?;
    figures::show(&format!(
        "growing hog: contained without a kill and let go {} times: {}",
        told.len(),
        told.join("; ")
    ));
    for round in 0..rounds {
        late.without.push(uncontained(&mut house, round)?);
    }
    late.judge()
}

/// The same without the loop, until the OOM killer ends it.
fn uncontained(house: &mut House, round: usize) -> Result<f64> {
    let agent = house.agent(false)?;
    let (tenant, hog) = (format!("off-tenant-{round}"), format!("off-hog-{round}"));
    let (tenant_at, _) = house.tenant(&tenant)?;
    house.settle(&agent)?;
    let killed = vm_event("oom_kill")?;
    let (hog_at, _) = house.hog(&hog, &["grow", RATES[round % RATES.len()], "95%"])?;
    wait::until("memory to run out", 2 * wait::PATIENCE, || {
        Ok((vm_event("oom_kill")? > killed).then_some(()))
    })?;
    let late = house.lateness()?;
    for (name, cgroup) in [(&hog, &hog_at), (&tenant, &tenant_at)] {
        house.clear(name, cgroup)?;
    }
    agent.stop()?;
    Ok(late)
}

/// All of the memory at once leaves no time to act in. Whoever acts, the hog is what goes.
pub(crate) fn an_instantaneous_hog_is_its_own_victim() -> Result<()> {
    let mut house = House::new()?;
    let agent = house.agent(true)?;
    let (_, tenant) = house.tenant("tenant")?;
    let before = vm_event("oom_kill")?;
    let (mut by_kernel, mut by_agent, mut held) = (0, 0, 0);
    let rounds = machine::scaled(5, 20);
    for round in 0..rounds {
        let name = format!("now-{round}");
        let (cgroup, hog) = house.hog(&name, &["hold", "90%"])?;
        // It dies of what it takes, or is held before it has all of it.
        held += wait::until("the hog to die or to be held", wait::PATIENCE, || {
            ensure!(!hog.said().contains("holding"), "there was room for the hog");
            if hog.is_alive() { Ok(is_held(&cgroup)?.then_some(1)) } else { Ok(Some(0)) }
        })?;
        by_kernel += cgroup.oom_kills()?;
        by_agent += decided(&agent, &name, "kill")?;
        ensure!(
            tenant.is_alive() && house.probe.is_alive(),
            "round {round}: somebody else died; of the hog: {}; the agent's log:\n{}",
            story(&agent, &name)?,
            agent.log_end()
        );
        house.clear(&name, &cgroup)?;
    }
    let all = vm_event("oom_kill")? - before;
    figures::show(&format!(
        "instantaneous hog, {rounds} times: killed {by_kernel} by the kernel and {by_agent} by the agent, held in time {held}; {all} OOM kills in all; probe and tenant alive"
    ));
    ensure!(all == by_kernel, "{} OOM kills took somebody else", all - by_kernel);
    ensure!(score(house.probe.pid)? == -999, "the probe lost its score");
    agent.stop()
}
