//! Nothing acknowledged is lost and no tick counts twice, whatever is killed, late, torn or full.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use evenkeel_tests::product::{Pair, await_acknowledged, await_written, kept};
use evenkeel_tests::{machine, require, wait};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// Frames made so far.
fn frames_written(agent: &evenkeel_tests::product::Agent) -> Result<u64> {
    Ok(agent.ask().status()?.stream.context("no stream in the status")?.frames_written)
}

/// Frames acknowledged so far.
fn acknowledged(agent: &evenkeel_tests::product::Agent) -> Result<u64> {
    Ok(agent.ask().status()?.stream.context("no stream in the status")?.last_acknowledged)
}

#[test]
fn a_recommender_killed_in_mid_stream_lost_nothing_and_counts_nothing_twice() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::hurried()?;
    let mut recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 5)?;
    let before = kept(&recommender)?;
    let missing = before.node.frames - before.samples;
    for round in 0..machine::scaled(2, 20) {
        let promised = acknowledged(&agent)?;
        recommender.kill()?;
        // The agent goes on by itself and keeps what it sees.
        let written = await_written(&agent, promised + 5)?;
        recommender = pair.recommender.start()?;
        // Answers before anything new arrives may lag behind the agent, never behind what was acknowledged.
        let after = kept(&recommender)?;
        assert!(after.node.frames >= promised, "round {round}: {promised} of {:?}", after.node);
        await_acknowledged(&agent, written)?;
        let after = kept(&recommender)?;
        assert_eq!(after.node.gaps, 0, "{:?}", after.node);
        assert!(after.node.frames <= frames_written(&agent)?, "nothing counts twice: {:?}", after.node);
        assert_eq!(after.node.frames - after.samples, missing, "{after:?} after {before:?}");
        assert!(after.node.frames >= written);
    }
    agent.stop()?;
    recommender.stop()
}

#[test]
fn what_was_acknowledged_is_answered_after_a_restart_without_the_agent() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::hurried()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 5)?;
    agent.stop()?;
    let before = kept(&recommender)?;
    recommender.kill()?;
    let recommender = pair.recommender.start()?;
    let after = kept(&recommender)?;
    assert_eq!((after.samples, after.node.frames), (before.samples, before.node.frames));
    assert_eq!(after.node.samples, before.node.samples);
    let list = recommender.ask().recommendations("default")?;
    assert!(list.iter().any(|r| r.workload == "web" && r.request.is_some()), "{list:#?}");
    // Stopped in order and started again, the same.
    recommender.stop()?;
    let recommender = pair.recommender.start()?;
    assert_eq!(kept(&recommender)?.samples, before.samples);
    recommender.stop()
}

#[test]
fn an_agent_spools_without_recommender_and_a_killed_ones_spool_is_delivered() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::hurried()?;
    let first = pair.site.start()?;
    let spooled = await_written(&first, 3)?;
    let status = first.ask().status()?.stream.context("no stream in the status")?;
    assert!(!status.connected && !status.last_error.is_empty(), "{status:?}");
    first.kill()?;

    let second = pair.site.start()?;
    let more = await_written(&second, 2)?;
    let recommender = pair.recommender.start()?;
    await_acknowledged(&second, more)?;
    let all = kept(&recommender)?;
    assert!(all.node.frames >= spooled + more, "{spooled} + {more} in {:?}", all.node);
    assert_eq!(all.node.gaps, 0, "{:?}", all.node);
    assert!(all.node.frames - all.samples <= 4, "only first ticks lack the pod: {all:?}");
    second.stop()?;
    recommender.stop()
}

/// The newest segment of the ingest log.
fn newest_segment(state: &Path) -> Result<PathBuf> {
    let mut files = Vec::new();
    let mut pending = vec![state.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory)?.flatten() {
            if entry.path().is_dir() {
                pending.push(entry.path());
            } else if entry.file_name().to_string_lossy().ends_with(".seg") {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files.pop().with_context(|| format!("no segment in {}", state.display()))
}

#[test]
fn a_torn_log_is_told_and_left_behind() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::hurried()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 5)?;
    kept(&recommender)?;
    recommender.kill()?;
    let segment = newest_segment(&pair.recommender.state())?;
    let file = OpenOptions::new().write(true).open(&segment)?;
    let length = file.metadata()?.len();
    file.set_len(length - 7)?;
    let recommender = pair.recommender.start()?;
    let log = recommender.daemon().log();
    let name = segment.file_name().context("a segment has a name")?.to_string_lossy().into_owned();
    assert!(log.contains(&name), "{name} is not in {log}");
    let promised = acknowledged(&agent)?;
    await_acknowledged(&agent, promised + 5)?;
    let after = kept(&recommender)?;
    assert!(after.node.frames <= frames_written(&agent)?, "nothing counts twice: {after:?}");
    agent.stop()?;
    recommender.stop()
}

/// A file system in memory, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: &Path, size: &str) -> Result<SmallDisk> {
        std::fs::create_dir_all(at)?;
        let options = format!("size={size},mode=700");
        mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .with_context(|| format!("cannot mount a tmpfs at {}", at.display()))?;
        Ok(SmallDisk(at.to_path_buf()))
    }

    /// Fills what is left of it and returns the file that does.
    fn fill(&self) -> Result<PathBuf> {
        let path = self.0.join("ballast");
        let mut file = File::create(&path)?;
        let chunk = [0x5a; 4096];
        loop {
            match file.write_all(&chunk) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(nix::libc::ENOSPC) => return Ok(path),
                Err(error) => bail!("cannot fill {}: {error}", path.display()),
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(errno) = umount2(&self.0, MntFlags::MNT_DETACH) {
            eprintln!("{} is left mounted: {errno}", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_stops_acknowledging_says_so_and_is_survived() -> Result<()> {
    require!(machine::is_root(), "mounting needs root");
    let pair = Pair::hurried()?;
    let disk = SmallDisk::new(&pair.recommender.state(), "4m")?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 5)?;
    let before = kept(&recommender)?;
    let missing = before.node.frames - before.samples;
    let ballast = disk.fill()?;
    // What is left of the page the log is writing still takes some frames.
    let body = wait::until("the recommender to be not ready", wait::PATIENCE * 2, || {
        let (status, body) = recommender.get("/readyz")?;
        Ok((status == 503).then_some(body))
    })?;
    assert!(body.to_lowercase().contains("space"), "{body}");
    assert_eq!(recommender.get("/healthz")?.0, 200);
    // A last small frame may still have found room. Then they wait: more than ever are under way between two syncs.
    let status = agent.await_status("frames to wait", |status| {
        status.stream.as_ref().is_some_and(|s| s.frames_written >= s.last_acknowledged + 15)
    })?;
    assert_eq!(recommender.get("/readyz")?.0, 503);
    let written = status.stream.context("it was there")?.frames_written;
    std::fs::remove_file(ballast)?;
    await_acknowledged(&agent, written)?;
    wait::until("the recommender to be ready again", wait::PATIENCE, || {
        Ok((recommender.get("/readyz")?.0 == 200).then_some(()))
    })?;
    let after = kept(&recommender)?;
    assert_eq!((after.node.gaps, after.node.frames - after.samples), (0, missing), "{after:?}");
    agent.stop()?;
    recommender.stop()?;
    drop(disk);
    Ok(())
}
