//! Suite `soak`: the same thing many times, for what only shows then. `EVENKEEL_FULL=1` makes it many times more.

use std::process::Command;

use anyhow::Result;
use evenkeel_tests::cgroups::{CgroupTree, Tier};
use evenkeel_tests::{machine, places, require, wait};

#[test]
fn trees_full_of_forking_processes_are_removed_every_time() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    for round in 0..machine::scaled(5, 200) {
        let mut tree = CgroupTree::new()?;
        let cgroup = tree.container(Tier::BestEffort, "0001", &format!("c{round}"))?;
        let mut churn = Command::new(places::program("evenkeel-workload")?);
        tree.spawn(&cgroup, churn.args(["fork-churn", "chains", "8"]))?;
        wait::until_true("the chains to run", || cgroup.processes().is_ok_and(|members| members.len() > 4))?;
        tree.remove()?;
    }
    Ok(())
}
