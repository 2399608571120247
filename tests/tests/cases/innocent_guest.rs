//! The same where it takes a small guest to see it: page cache that fills the machine, swap, and a machine that really
//! runs out.

use anyhow::{Context, Result, ensure};
use evenkeel_tests::processes::{memory_total, vm_event};
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{figures, machine, wait};

use super::innocent::{DISK, House, LIMIT, PATIENCE, SWAP_MIB, is_step, named};

const MIB: u64 = 1 << 20;
/// Part of memory that a container holds which asked for it, percent.
const TENANT: u64 = 40;
/// MiB that disk moves in a second: a slow one, on which whoever thrashes does little but wait.
pub(crate) const DISK_RATE: u64 = 32;

/// Somebody without a limit reads more than the machine has memory, again and again: page cache that anybody may have.
pub(crate) fn a_page_cache_storm_touches_nobody() -> Result<()> {
    let mut house = House::new(Site::new()?)?;
    let cgroup = house.site.cgroup("reader")?;
    house.site.bind(&Manifest::burstable("reader", &cgroup.path(), "100m", "16Mi"))?;
    let agent = house.start()?;
    // Counted in KiB. What is reclaimed for a soft limit (cgroup v1) is in none of the machine's counters of reclaim.
    let read = || Ok::<_, anyhow::Error>(vm_event("pgpgin")? * 1024);
    let enough = read()? + memory_total()? + 256 * MIB;
    for part in 0..4 {
        let offset = format!("{}Mi", SWAP_MIB + 8 + part * 400);
        house.site.run(&cgroup, &["read", DISK, &offset, "400Mi", "again"])?;
    }
    wait::until("more to be read than memory holds", 2 * PATIENCE, || {
        house.is_untouched(&agent)?;
        Ok((read()? > enough).then_some(()))
    })
    .with_context(|| agent.log_end())?;
    house.is_untouched(&agent)?;
    agent.stop()
}

/// Somebody wants twice what it may use and swaps at its own limit.
pub(crate) fn swapping_at_a_limit_touches_nobody_and_is_named() -> Result<()> {
    let swap = Swap::on()?;
    let mut house = House::new(Site::new()?)?;
    let cgroup = house.limited("swapper")?;
    let agent = house.start()?;
    agent.await_container("swapper", "known", |_| true)?;
    house.site.run(&cgroup, &["touch", &(2 * LIMIT).to_string()])?;
    house.watch(&agent, &cgroup)?;
    let told = named(&agent, "swapper")?;
    figures::show(&format!("swap at a limit beside BestEffort: {}", told.reason));
    house.is_untouched(&agent)?;
    agent.stop()?;
    cgroup.remove()?;
    swap.off()
}

/// The machine's own memory runs out: by the default thresholds the loop acts on the BestEffort container that takes it, and
/// on nobody who has what was asked for.
pub(crate) fn a_machine_that_runs_out_acts_on_best_effort_alone() -> Result<()> {
    let mut site = Site::new()?.with(|agent| agent.set("starvation.enabled", "false"));
    let asked = format!("{}Mi", memory_total()? * (TENANT + 2) / 100 / MIB);
    let mut promised = Vec::new();
    for (name, holds) in [("guaranteed", "32Mi".to_string()), ("tenant", format!("{TENANT}%"))] {
        let cgroup = site.cgroup(name)?;
        site.bind(&match name {
            "tenant" => Manifest::burstable(name, &cgroup.path(), "100m", &asked),
            _ => Manifest::guaranteed(name, &cgroup.path(), "100m", "64Mi"),
        })?;
        let heard = site.run_heard(&cgroup, &["hold", &holds])?;
        ensure!(heard.await_word_or_end("holding")?, "{name} did not start");
        promised.push((name, cgroup, heard));
    }
    let hog = site.cgroup("hog")?;
    site.bind(&Manifest::best_effort("hog", &hog.path()))?;
    let agent = site.start()?;
    agent.await_settled("tenant")?;
    // The tenant came all at once, which looks like memory that runs out; that has to be forgotten first.
    agent.ask().usage(8)?;
    let killed = vm_event("oom_kill")?;
    let grows = site.run_heard(&hog, &["grow", "10", "95%"])?;
    let acted = wait::until("the hog to be acted on", PATIENCE, || {
        for (name, cgroup, heard) in &promised {
            ensure!(heard.is_alive() && !cgroup.is_frozen()?, "{name} was harmed");
        }
        let mut steps = agent.ask().decisions()?;
        steps.retain(is_step);
        let others = steps.iter().filter(|d| d.pod.as_deref() != Some("default/hog")).count();
        ensure!(others == 0, "somebody else was acted on: {steps:#?}");
        // Held back at least, and it did not get what it wanted.
        Ok(steps.into_iter().find(|d| ["relieve", "kill"].contains(&d.kind.as_str()) && d.result == "done"))
    })
    .with_context(|| agent.log_end())?;
    figures::show(&format!("the machine runs out: {}", acted.reason));
    ensure!(!grows.said().contains("grown"), "the hog had all it wanted");
    let [all, of_hog] = [vm_event("oom_kill")? - killed, hog.oom_kills()?];
    ensure!(all == of_hog, "{all} OOM kills, {of_hog} of them of the hog");
    agent.stop()
}

/// Swap on the beginning of the guest's disk.
pub(crate) struct Swap;

impl Swap {
    pub(crate) fn on() -> Result<Swap> {
        let kib = (SWAP_MIB << 10).to_string();
        machine::run(std::process::Command::new("mkswap").args([DISK, &kib]))?;
        machine::run(std::process::Command::new("swapon").arg(DISK))?;
        Ok(Swap)
    }

    pub(crate) fn off(self) -> Result<()> {
        machine::run(std::process::Command::new("swapoff").arg(DISK)).map(drop)
    }
}
