//! A workload for tests and demonstrations: burns a set amount of CPU, takes memory at once or bit by bit, reads files,
//! forks so fast that whoever writes to its processes has to chase them, or measures how late it is woken.
//!
//! Owns no knowledge of cgroups or of Evenkeel: to them it is any program. Only the standard library and nix are used,
//! so that it also links statically:
//! `cargo rustc -p evenkeel-workload -- -C target-feature=+crt-static`.
//!
//! Every mode prints one line when it has reached its state and ends with status 0 on SIGTERM or SIGINT, also as the
//! first process of a container, for which the kernel drops signals without a handler.

mod churn;
mod memory;
mod probe;

use std::hint::black_box;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::{SigSet, Signal};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

const USAGE: &str = "usage: evenkeel-workload MODE
  sleep                                  wait for SIGTERM
  burn MILLICORES                        use that much CPU
  burn-on CPU                            use all of one CPU; the end tells how much CPU time it got
  hold BYTES                             touch and keep that much memory (suffixes Ki, Mi, Gi; % of the machine's)
  grow PERCENT|BYTES BYTES               take so much (PERCENT of the machine's memory) per second, up to BYTES
  burn-and-hold MILLICORES BYTES         both
  read FILE OFFSET BYTES [again [USEC]]  read that much of a file, once or for ever, with a rest after each 64 KiB
  read-random FILE OFFSET BYTES THREADS  read pages of that much of a file at random, for ever
  touch BYTES                            take that much memory and write to pages of it at random, for ever
  probe MSEC BYTES [FILE]                touch that much memory and read a cold piece of FILE every MSEC; SIGUSR1 tells
                                         how late it was
  bomb N                                 become up to N processes that all fork on
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
        ["burn-on", cpu] => number(cpu).and_then(burn_on),
        ["hold", size] => memory::bytes(size).and_then(memory::hold).and_then(|_held| until_told()),
        ["grow", pace, most] => memory::grow(memory::pace(pace)?, memory::bytes(most)?),
        ["read", file, offset, size] => memory::read(file, memory::Part::new(offset, size)?, None),
        ["read", file, offset, size, "again", rest @ ..] if rest.len() < 2 => {
            let rest = rest.first().map_or(Ok(0), |text| number(text)).map(Duration::from_micros)?;
            memory::read(file, memory::Part::new(offset, size)?, Some(rest))
        }
        ["read-random", file, offset, size, threads] => {
            memory::read_random(file, memory::Part::new(offset, size)?, number(threads)?)
        }
        ["touch", size] => memory::touch(memory::bytes(size)?),
        ["probe", period, size, file @ ..] if file.len() < 2 => {
            let period = Duration::from_millis(number(period)?);
            probe::run(period, memory::bytes(size)?, file.first().copied())
        }
        ["bomb", count] => churn::bomb(number(count)?),
        ["burn-and-hold", millicores, size] => burn_and_hold(millicores, size),
        ["fork-churn", "workers", count, lifetime @ ..] => churn::run(churn::worker, count, lifetime, 1000),
        ["fork-churn", "chains", count, lifetime @ ..] => churn::run(churn::chain, count, lifetime, 200),
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

/// Uses all of one CPU.
fn burn_on(cpu: u64) -> Outcome {
    let index = usize::try_from(cpu).map_err(|_| format!("no such CPU: {cpu}"))?;
    let mut set = CpuSet::new();
    let pinned = set.set(index).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
    pinned.map_err(|errno| format!("cannot run on CPU {cpu} alone: {errno}"))?;
    thread::spawn(|| burn_share(1000));
    announce(&format!("burning CPU {cpu}"))?;
    until_told()?;
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from);
    announce(&format!("used {} usec", used.as_micros()))
}

fn thread_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::MAX, Duration::from)
}

fn burn_and_hold(millicores: &str, size: &str) -> Outcome {
    let millicores = number(millicores)?;
    let _held = memory::hold(memory::bytes(size)?)?;
    burn(millicores)?;
    until_told()
}

/// Sets the own score and executes a program in place.
fn become_with_score(score: &str, program: &str, rest: &[&str]) -> Outcome {
    std::fs::write("/proc/self/oom_score_adj", score)
        .map_err(|error| format!("cannot set oom_score_adj to {score}: {error}"))?;
    Err(format!("cannot run {program}: {}", Command::new(program).args(rest).exec()))
}
