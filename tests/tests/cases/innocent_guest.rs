//! The same where it takes a small guest to see it: page cache that fills the machine, and swap.

use anyhow::{Context, Result};
use evenkeel_tests::processes::{memory_total, vm_event};
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{figures, machine, wait};

use super::innocent::{DISK, House, LIMIT, PATIENCE, SWAP_MIB, named};

const MIB: u64 = 1 << 20;
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
