//! A workload for tests and demonstrations: burns a set amount of CPU, holds a set amount of memory, or forks so fast
//! that whoever writes to its processes has to chase them.
//!
//! Owns no knowledge of cgroups or of Evenkeel: to them it is any program. Only the standard library and nix are used,
//! so that it also links statically:
//! `cargo rustc -p evenkeel-tests --bin evenkeel-workload -- -C target-feature=+crt-static`.
//!
//! Every mode prints one line when it has reached its state and ends with status 0 on SIGTERM or SIGINT, also as the
//! first process of a container, for which the kernel drops signals without a handler.

use std::hint::black_box;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{ForkResult, Pid, fork, getpid, setpgid};

const USAGE: &str = "usage: evenkeel-workload MODE
  sleep                                  wait for SIGTERM
  burn MILLICORES                        use that much CPU
  hold BYTES                             touch and keep that much memory (suffixes Ki, Mi, Gi)
  burn-and-hold MILLICORES BYTES         both
  fork-churn workers N [USEC]            N processes, each forking children that live USEC (1000)
  fork-churn chains N [USEC]             N chains: each process forks one child and exits after USEC (200)
  oomadj SCORE PROGRAM [ARGUMENT...]     set the own oom_score_adj, then become PROGRAM";

/// How often a burning thread stops: short enough that each second of a measurement sees the same share.
const PERIOD: Duration = Duration::from_millis(20);

/// Signals that end the workload.
const ENDS: [Signal; 2] = [Signal::SIGTERM, Signal::SIGINT];

type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["oomadj", score, program, rest @ ..] => become_with_score(score, program, rest),
        words => block(&ENDS).and_then(|_| run(words)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("evenkeel-workload: {text}");
            ExitCode::from(2)
        }
    }
}

/// The modes that wait for a signal. It is blocked by now, so that it ends them in order whenever it comes, and every
/// thread started later leaves it to the one that waits.
fn run(words: &[&str]) -> Outcome {
    match words {
        ["sleep"] => announce("sleeping").and_then(|()| until_told()),
        ["burn", millicores] => number(millicores).and_then(burn).and_then(|()| until_told()),
        ["hold", size] => bytes(size).and_then(hold).and_then(|_held| until_told()),
        ["burn-and-hold", millicores, size] => burn_and_hold(millicores, size),
        ["fork-churn", "workers", count, lifetime @ ..] => churn(worker, count, lifetime, 1000),
        ["fork-churn", "chains", count, lifetime @ ..] => churn(chain, count, lifetime, 200),
        _ => Err(USAGE.to_string()),
    }
}

fn announce(text: &str) -> Outcome {
    writeln!(std::io::stdout(), "evenkeel-workload: {text}")
        .map_err(|error| format!("cannot report: {error}"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("not a whole number: {text}"))
}

fn bytes(text: &str) -> Result<usize, String> {
    let units = [("Ki", 10), ("Mi", 20), ("Gi", 30)];
    let scaled = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = scaled.unwrap_or((text, 0));
    let size = number(digits)?.checked_mul(1 << shift).ok_or_else(|| format!("too large: {text}"))?;
    usize::try_from(size).map_err(|_| format!("too large: {text}"))
}

/// Blocks signals, to be waited for.
fn block(signals: &[Signal]) -> Result<SigSet, String> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block().map_err(|errno| format!("cannot block signals: {errno}"))?;
    Ok(set)
}

/// Waits for SIGTERM or SIGINT.
fn until_told() -> Outcome {
    block(&ENDS)?.wait().map_err(|errno| format!("cannot wait for a signal: {errno}"))?;
    Ok(())
}

/// Starts threads that together use `millicores`; they end with the process.
fn burn(millicores: u64) -> Outcome {
    let mut left = millicores;
    while left > 0 {
        let share = left.min(1000);
        thread::spawn(move || burn_share(share));
        left -= share;
    }
    announce(&format!("burning {millicores} millicores"))
}

/// Uses `share` thousandths of each period on one thread, measured in its own CPU time: a busy machine does not make it
/// claim less than it is given.
fn burn_share(share: u64) {
    let budget = PERIOD.mul_f64(share as f64 / 1000.0);
    let mut start = Instant::now();
    let mut seed = 1_u64;
    loop {
        let before = thread_time();
        while thread_time().saturating_sub(before) < budget {
            for _ in 0..2000 {
                seed = black_box(seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            }
        }
        start += PERIOD;
        match start.checked_duration_since(Instant::now()) {
            Some(rest) => thread::sleep(rest),
            None => start = Instant::now(),
        }
    }
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::MAX, Duration::from)
}

/// Takes memory and writes to each page, so that the kernel has to give it.
fn hold(size: usize) -> Result<Vec<u8>, String> {
    let mut held = Vec::new();
    held.try_reserve_exact(size).map_err(|error| format!("cannot hold {size} bytes: {error}"))?;
    held.resize(size, 0x5a);
    announce(&format!("holding {size} bytes"))?;
    Ok(black_box(held))
}

fn burn_and_hold(millicores: &str, size: &str) -> Outcome {
    let millicores = number(millicores)?;
    let _held = hold(bytes(size)?)?;
    burn(millicores)?;
    until_told()
}

/// Sets the own score and executes a program in place.
fn become_with_score(score: &str, program: &str, rest: &[&str]) -> Outcome {
    std::fs::write("/proc/self/oom_score_adj", score)
        .map_err(|error| format!("cannot set oom_score_adj to {score}: {error}"))?;
    Err(format!("cannot run {program}: {}", Command::new(program).args(rest).exec()))
}

/// Starts `count` processes of a shape and reaps whatever they leave behind until told to stop.
fn churn(shape: fn(Duration) -> Outcome, count: &str, lifetime: &[&str], usual: u64) -> Outcome {
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
fn worker(lifetime: Duration) -> Outcome {
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
fn chain(lifetime: Duration) -> Outcome {
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
