//! Processes that fork. Owns their shapes, their group and its end.

use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpid, setpgid};

use crate::{Outcome, USAGE, announce, block, number};

/// Starts `count` processes of a shape and reaps whatever they leave behind until told to stop.
pub(crate) fn run(shape: fn(Duration) -> Outcome, count: &str, lifetime: &[&str], usual: u64) -> Outcome {
    let count = number(count)?;
    let lifetime = match lifetime {
        [] => usual,
        [text] => number(text)?,
        _ => return Err(USAGE.to_string()),
    };
    let lifetime = Duration::from_micros(lifetime);
    let wanted = block(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD])?;
    // Orphans of the chains come back here, whatever reaps or does not reap above.
    prctl::set_child_subreaper(true).map_err(|errno| format!("cannot become a subreaper: {errno}"))?;
    // A group of its own, to be ended as a whole. The leader of a session has one already.
    match setpgid(Pid::from_raw(0), Pid::from_raw(0)) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(format!("cannot lead a process group: {errno}")),
    }
    for _ in 0..count {
        start(shape, lifetime, &wanted)?;
    }
    announce(&format!("churning with {count} lineages"))?;
    loop {
        match wanted.wait() {
            Ok(Signal::SIGCHLD) => while reap(WaitPidFlag::WNOHANG) == Reaped::One {},
            Ok(_) => return end_all(),
            Err(errno) => return Err(format!("cannot wait for a signal: {errno}")),
        }
    }
}

/// Kills the group, in which this process blocks the signal, and waits until no child is left.
fn end_all() -> Outcome {
    loop {
        killpg(getpid(), Signal::SIGTERM).map_err(|errno| format!("cannot end the group: {errno}"))?;
        if reap(WaitPidFlag::empty()) == Reaped::NoChild {
            return Ok(());
        }
    }
}

/// Becomes up to `count` processes, each of which forks on for ever: into its share of the others, then into children
/// that end at once.
pub(crate) fn bomb(count: u64) -> Outcome {
    let wanted = block(&[Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD])?;
    match setpgid(Pid::from_raw(0), Pid::from_raw(0)) {
        Ok(()) | Err(Errno::EPERM) => {}
        Err(errno) => return Err(format!("cannot lead a process group: {errno}")),
    }
    announce(&format!("a bomb of {count} processes"))?;
    if !split()? {
        let ended = wanted.thread_unblock().map_err(|errno| errno.to_string()).and_then(|()| spread(count));
        std::process::exit(i32::from(ended.is_err()))
    }
    loop {
        match wanted.wait() {
            Ok(Signal::SIGCHLD) => while reap(WaitPidFlag::WNOHANG) == Reaped::One {},
            Ok(_) => return end_all(),
            Err(errno) => return Err(format!("cannot wait for a signal: {errno}")),
        }
    }
}

/// Halves what is left with each child, so that all of them fork at the same time.
fn spread(mut left: u64) -> Outcome {
    while left > 1 {
        let share = left / 2;
        if split()? {
            left -= share;
        } else {
            left = share;
        }
    }
    worker(Duration::ZERO)
}

#[derive(PartialEq, Eq)]
enum Reaped {
    One,
    NoneReady,
    NoChild,
}

fn reap(flags: WaitPidFlag) -> Reaped {
    match waitpid(None, Some(flags)) {
        Ok(WaitStatus::StillAlive) => Reaped::NoneReady,
        Ok(_) | Err(Errno::EINTR) => Reaped::One,
        Err(_) => Reaped::NoChild,
    }
}

fn start(shape: fn(Duration) -> Outcome, lifetime: Duration, blocked: &SigSet) -> Outcome {
    if split()? {
        return Ok(());
    }
    let ended = blocked.thread_unblock().map_err(|errno| errno.to_string()).and_then(|()| shape(lifetime));
    std::process::exit(i32::from(ended.is_err()))
}

/// Forks children one after another, for ever.
pub(crate) fn worker(lifetime: Duration) -> Outcome {
    loop {
        if split()? {
            reap(WaitPidFlag::empty());
        } else {
            thread::sleep(lifetime);
            std::process::exit(0);
        }
    }
}

/// Forks once and exits, and so does the child, for ever.
pub(crate) fn chain(lifetime: Duration) -> Outcome {
    loop {
        if split()? {
            std::process::exit(0);
        }
        thread::sleep(lifetime);
    }
}

/// Forks; true in the parent. A fork refused for want of memory or process ids is tried again.
#[allow(unsafe_code)]
fn split() -> Result<bool, String> {
    loop {
        // SAFETY: the churn modes start no thread, so the child may call whatever the parent may.
        match unsafe { fork() } {
            Ok(ForkResult::Parent { .. }) => return Ok(true),
            Ok(ForkResult::Child) => return Ok(false),
            Err(Errno::EAGAIN | Errno::ENOMEM) => thread::sleep(Duration::from_millis(1)),
            Err(errno) => return Err(format!("cannot fork: {errno}")),
        }
    }
}
