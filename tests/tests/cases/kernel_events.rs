//! What the kernel wakes us for, on whatever kernel this runs: out of memory, pressure, its log.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use evenkeel_host::error::Category;
use evenkeel_host::events::{OomEvent, OomWatch, PressureLevel, V1Pressure};
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_log::{Constraint, KernelLog, LogEvent, OomKill};
use evenkeel_host::psi::{self, PsiScope, Resource, Stall, Trigger};
use evenkeel_host::roots::Roots;
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup, Tier};
use evenkeel_tests::{machine, require, wait};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::primitives::{Rig, workload};

/// Whether somebody has something to say.
fn ready(fd: &impl std::os::fd::AsFd, flags: PollFlags) -> Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), flags)];
    poll(&mut fds, PollTimeout::ZERO).context("cannot poll")?;
    Ok(fds[0].revents().is_some_and(|seen| seen.intersects(flags)))
}

fn limit_memory(cgroup: &TestCgroup, bytes: &str) -> Result<()> {
    let file = if cgroup.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
    cgroup.set("memory", file, bytes)
}

/// Reads until a kill is told.
fn await_kill(watch: &mut OomWatch) -> Result<Vec<OomEvent>> {
    let mut seen = Vec::new();
    wait::until("a kill to be told", wait::PATIENCE, || {
        if ready(watch, PollFlags::POLLIN)? {
            watch.read(&mut seen)?;
        }
        if watch.is_expecting() {
            watch.recheck(&mut seen);
        }
        Ok(seen.iter().any(|e| matches!(e, OomEvent::Killed { .. })).then_some(()))
    })?;
    Ok(seen)
}

#[test]
fn a_kill_by_the_limit_is_told_and_logged() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::Burstable, "0201", "c1")?;
    let quiet = tree.container(Tier::Burstable, "0201", "c2")?;
    let rig = Rig::new(&[], &[])?;
    let at = rig.place(&cgroup, Controller::Memory)?;
    let mut watch = OomWatch::new(Arc::clone(&rig.tree))?;
    watch.watch(&at)?;
    watch.watch(&at)?;
    watch.watch(&rig.place(&quiet, Controller::Memory)?)?;
    ensure!(watch.len() == 2 && !ready(&watch, PollFlags::POLLIN)?);
    let mut log = KernelLog::open(&Roots::default());
    limit_memory(&cgroup, "16777216")?;
    let pid = tree.spawn(&cgroup, &workload(&["hold", "64Mi"])?)?;
    let seen = await_kill(&mut watch)?;
    let kill = seen.iter().find(|e| matches!(e, OomEvent::Killed { .. }));
    ensure!(kill == Some(&OomEvent::Killed { cgroup: at.clone(), new: 1, total: 1 }), "{seen:?}");
    match &mut log {
        Ok(log) => {
            let logged = await_log(log, pid.as_raw())?;
            ensure!(logged.constraint == Some(Constraint::Memcg), "{logged:?}");
            ensure!(logged.task_memcg.is_some_and(|path| path.ends_with(&*at.path)));
            ensure!(logged.anon_rss.is_some_and(|rss| rss.get() > 4 << 20));
        }
        Err(error) => ensure!(error.remedy().is_some(), "{error}"),
    }
    // Counted once only, and no watch outlives its cgroup.
    let mut again = Vec::new();
    watch.check(&mut again);
    ensure!(!again.iter().any(|e| matches!(e, OomEvent::Killed { .. })), "{again:?}");
    drop(tree);
    watch.check(&mut again);
    ensure!(watch.is_empty() && again.contains(&OomEvent::Removed { cgroup: at }), "{again:?}");
    Ok(())
}

fn await_log(log: &mut KernelLog, pid: i32) -> Result<OomKill> {
    let pid = u32::try_from(pid)?;
    let mut events = Vec::new();
    wait::until("the kill to be logged", wait::PATIENCE, || {
        log.read(&mut events)?;
        let killed = events.iter().find_map(|event| match event {
            LogEvent::Killed(kill) if kill.pid == pid => Some(kill.clone()),
            _ => None,
        });
        Ok(killed)
    })
}

#[test]
fn a_kill_in_a_cgroup_inside_is_counted_for_the_container() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.group("outer")?;
    let inside = tree.group("outer/inside")?;
    let rig = Rig::new(&[], &[])?;
    let mut watch = OomWatch::new(Arc::clone(&rig.tree))?;
    watch.watch(&rig.place(&cgroup, Controller::Memory)?)?;
    limit_memory(&cgroup, "16777216")?;
    tree.spawn(&inside, &workload(&["hold", "64Mi"])?)?;
    await_kill(&mut watch).map(|_| ())
}

#[test]
fn pressure_of_the_machine_is_read_and_its_trigger_armed() -> Result<()> {
    let roots = Roots::default();
    for resource in Resource::ALL {
        let pressure = psi::read(PsiScope::Node(&roots), resource);
        require!(
            !pressure.as_ref().is_err_and(|e| e.category() == Category::Unsupported),
            "this kernel tells no pressure"
        );
        ensure!(pressure?.some.avg10 <= 100.0);
    }
    require!(machine::is_root(), "pressure files of the machine are root's to write");
    let place = PsiScope::Node(&roots);
    let armed = Trigger::open(place, Resource::Memory, Stall::Some, 100_000, 1_000_000);
    match armed {
        Ok(trigger) => {
            let window = trigger.threshold().window_usec;
            ensure!(window == if trigger.is_lengthened() { 2_000_000 } else { 1_000_000 });
            ensure!(!machine::may_lower_scores() || !trigger.is_lengthened());
        }
        // Kernels before 6.4 without CAP_SYS_RESOURCE.
        Err(error) => ensure!(error.category() == Category::Denied && error.remedy().is_some(), "{error}"),
    }
    let nonsense = Trigger::open(place, Resource::Memory, Stall::Some, 3_000_000, 2_000_000);
    ensure!(nonsense.is_err_and(|e| matches!(e.category(), Category::Rejected | Category::Denied)));
    Ok(())
}

#[test]
fn a_trigger_of_a_cgroup_fires_when_its_processes_wait() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::BestEffort, "0202", "c1")?;
    let rig = Rig::new(&[], &[])?;
    require!(rig.tree.layout().pressure_home().is_some(), "cgroups have pressure files on v2 only");
    let dir = rig.tree.dir(Hierarchy::V2, &cgroup.path())?;
    let place = PsiScope::Cgroup(&dir);
    let trigger = match Trigger::open(place, Resource::Cpu, Stall::Some, 50_000, 1_000_000) {
        Ok(trigger) => trigger,
        Err(error) => {
            ensure!(error.category() == Category::Denied && error.remedy().is_some(), "{error}");
            return Ok(());
        }
    };
    for _ in 0..2 {
        tree.spawn(&cgroup, &workload(&["burn-on", "0"])?)?;
    }
    wait::until("two on one CPU to wait", wait::PATIENCE, || {
        Ok((ready(&trigger, PollFlags::POLLPRI)?).then_some(()))
    })?;
    ensure!(psi::read(place, Resource::Cpu)?.some.total_usec > 0);
    drop(tree);
    wait::until("the trigger of a removed cgroup to end", wait::PATIENCE, || {
        Ok(trigger.has_fired().is_err_and(|e| e.is_gone()).then_some(()))
    })
}

#[test]
fn v1_tells_when_memory_is_hard_to_find() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut tree = CgroupTree::new()?;
    let cgroup = tree.container(Tier::BestEffort, "0203", "c1")?;
    let rig = Rig::new(&[], &[])?;
    let at = rig.place(&cgroup, Controller::Memory)?;
    let armed = V1Pressure::open(&rig.tree, &at, PressureLevel::Medium);
    if cgroup.is_v2() {
        ensure!(armed.is_err_and(|e| e.category() == Category::Unsupported));
        return Ok(());
    }
    let armed = armed?;
    ensure!(armed.take() == 0 && !ready(&armed, PollFlags::POLLIN)?);
    limit_memory(&cgroup, "16777216")?;
    tree.spawn(&cgroup, &workload(&["hold", "64Mi"])?)?;
    wait::until("memory to be hard to find", wait::PATIENCE, || {
        Ok((ready(&armed, PollFlags::POLLIN)? && armed.take() > 0).then_some(()))
    })?;
    let critical = V1Pressure::open(&rig.tree, &at, PressureLevel::Critical)?;
    ensure!(critical.level() == PressureLevel::Critical && *critical.cgroup() == at);
    Ok(())
}
