//! Cases run in a guest by the very test program that boots it. Owns the road there and back: the program and its
//! companions go in, each case's result and every figure come out.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use super::VmBuilder;
use crate::chance::Chance;
use crate::{figures, machine, places};

/// A named piece of a test.
pub type Case = (&'static str, fn() -> Result<()>);

/// Programs every guest with cases gets.
const PROGRAMS: [&str; 4] = ["evenkeel-agent", "evenkeel-recommender", "evenkeel", "evenkeel-workload"];

/// Names the one case to run, for whoever works on it.
const ONLY: &str = "EVENKEEL_CASE";

/// Outside, boots `guest` with all programs and runs the test `test` of this program there; inside, that test runs the
/// cases one after another and fails with all that failed.
///
/// # Errors
///
/// Fails with the guest's output when a case fails, and when test cgroups are left behind.
pub fn in_guest(test: &str, guest: VmBuilder, cases: &[Case]) -> Result<()> {
    in_guest_abreast(test, guest, &[cases])
}

/// The same with lists of cases that run beside each other: for cases that mostly wait.
///
/// # Errors
///
/// As [`in_guest`].
pub fn in_guest_abreast(test: &str, guest: VmBuilder, lists: &[&[Case]]) -> Result<()> {
    if machine::is_emulated() {
        return thread::scope(|scope| {
            let lists: Vec<_> = lists.iter().map(|cases| scope.spawn(|| run(cases))).collect();
            lists.into_iter().try_for_each(|list| list.join().map_err(|_| anyhow!("a list panicked"))?)
        });
    }
    let mut guest = guest.program(std::env::current_exe().context("no path of this program")?, "bin/cases");
    for name in PROGRAMS {
        guest = guest.program(places::program_for_guest(name)?, &format!("bin/{name}"));
    }
    let full = if machine::full() { "EVENKEEL_FULL=1 " } else { "" };
    let only = std::env::var(ONLY).map(|case| format!("{ONLY}='{case}' ")).unwrap_or_default();
    let script = format!(
        "CI=true EVENKEEL_EMULATED=1 {full}{only}EVENKEEL_SEED={} /bin/cases --exact {test} --nocapture 2>&1; status=$?
        find /sys/fs/cgroup -maxdepth 2 -name 'ek-*' | sed 's/^/left: /'; exit $status",
        Chance::seed()
    );
    let result = guest.script(&script).run()?;
    figures::forward(test, &result.output);
    ensure!(
        result.status == 0 && result.output.contains("1 passed"),
        "{}\nend of the guest's console:\n{}",
        result.output,
        crate::daemon::last_lines(&result.console)
    );
    ensure!(!result.output.contains("left: "), "test cgroups are left: {}", result.output);
    Ok(())
}

/// Runs all cases, also after one that fails.
fn run(cases: &[Case]) -> Result<()> {
    let only = std::env::var(ONLY).ok();
    let mut failed = Vec::new();
    for (name, case) in cases.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name)) {
        let start = Instant::now();
        let done = std::panic::catch_unwind(case).unwrap_or_else(|_| Err(anyhow!("it panicked, see above")));
        let took = start.elapsed().as_secs_f64();
        match done {
            Ok(()) => println!("case {name}: ok, {took:.1} s"),
            Err(error) => {
                println!("case {name}: FAILED, {took:.1} s: {error:#}");
                failed.push(*name);
            }
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}
