//! What the cgroup fixtures and the workload do, on whatever kernel this runs: the machine's own, or a guest's.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup, Tier};
use evenkeel_tests::{machine, places, require, wait};
use nix::sys::signal::{Signal, kill};

fn workload(words: &[&str]) -> Result<Command> {
    let mut command = Command::new(places::program("evenkeel-workload")?);
    command.args(words);
    Ok(command)
}

/// Everything below the cgroup mounts that belongs to a tree.
fn remains(tree: &str) -> Vec<PathBuf> {
    let name = tree.trim_start_matches('/');
    let below = |parent: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let root = Path::new("/sys/fs/cgroup");
    let mounts = below(root).into_iter().chain([root.to_path_buf()]);
    mounts.map(|mount| mount.join(name)).filter(|path| path.exists()).collect()
}

/// CPU time of a cgroup's processes so far, in microseconds.
fn cpu_usec(cgroup: &TestCgroup) -> Result<u64> {
    if cgroup.is_v2() {
        let stat = cgroup.read("cpu", "cpu.stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        return Ok(line.context("no usage_usec in cpu.stat")?.parse()?);
    }
    Ok(cgroup.read("cpuacct", "cpuacct.usage")?.parse::<u64>()? / 1000)
}

#[test]
fn a_tree_of_pods_is_built_used_and_gone() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let path = tree.path();
    for tier in Tier::ALL {
        let cgroup = tree.container(tier, "0001", "c1")?;
        let pid = tree.spawn(&cgroup, &workload(&["sleep"])?)?;
        assert_eq!(cgroup.processes()?, [pid]);
        let (file, value) = if cgroup.is_v2() { ("cpu.weight", "50") } else { ("cpu.shares", "512") };
        cgroup.set("cpu", file, value)?;
        assert_eq!(cgroup.read("cpu", file)?, value);
    }
    assert!(!remains(&path).is_empty());
    drop(tree);
    assert_eq!(remains(&path), Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn a_panic_leaves_no_cgroup_behind() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let path = tree.path();
    let cgroup = tree.container(Tier::Burstable, "0002", "c1")?;
    tree.spawn(&cgroup, &workload(&["sleep"])?)?;
    let thread = std::thread::spawn(move || {
        let _tree = tree;
        panic!("as a failed assertion would");
    });
    assert!(thread.join().is_err());
    assert_eq!(remains(&path), Vec::<PathBuf>::new());
    Ok(())
}

#[test]
fn a_process_can_be_moved_in_later() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Guaranteed, "0003", "c1")?;
    let mut child = workload(&["sleep"])?.spawn()?;
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
    cgroup.attach(pid)?;
    assert_eq!(cgroup.processes()?, [pid]);
    drop(tree);
    assert!(!child.wait()?.success(), "the tree killed what was in it");
    Ok(())
}

#[test]
fn the_workload_burns_and_holds_what_it_is_told() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Burstable, "0004", "c1")?;
    let pid = tree.spawn(&cgroup, &workload(&["burn-and-hold", "100", "16Mi"])?)?;
    let file = if cgroup.is_v2() { "memory.current" } else { "memory.usage_in_bytes" };
    wait::until("16 MiB to be held", wait::PATIENCE, || {
        Ok((cgroup.read("memory", file)?.parse::<u64>()? >= 16 << 20).then_some(()))
    })?;
    let before = cpu_usec(&cgroup)?;
    wait::until("50 ms of CPU time more", wait::PATIENCE, || {
        Ok((cpu_usec(&cgroup)? > before + 50_000).then_some(()))
    })?;
    kill(pid, Signal::SIGTERM)?;
    wait::until_true("the workload to obey SIGTERM", || cgroup.processes().is_ok_and(|left| left.is_empty()))
}

#[test]
fn the_workload_churns_in_every_shape_and_ends_with_all_its_children() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    for shape in [["workers", "20"], ["chains", "1"], ["chains", "32"]] {
        let mut tree = CgroupTree::new()?;
        let cgroup = tree.container(Tier::BestEffort, "0005", "c1")?;
        let pid = tree.spawn(&cgroup, &workload(&["fork-churn", shape[0], shape[1]])?)?;
        let mut seen = std::collections::BTreeSet::new();
        wait::until(&format!("{shape:?} to fork"), wait::PATIENCE, || {
            seen.extend(cgroup.processes()?);
            Ok((seen.len() > 50).then_some(()))
        })?;
        kill(pid, Signal::SIGTERM)?;
        wait::until_true("the churn to end", || cgroup.processes().is_ok_and(|left| left.is_empty()))?;
    }
    Ok(())
}
