//! An empty timer thread: what this machine itself does to a deadline, to be set beside the agent's ticks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use crate::usage::monotonic;

/// A thread that wakes at each deadline and notes how late it is.
pub(crate) struct Timer {
    end: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<f64>>>,
}

impl Timer {
    /// Starts it.
    pub(crate) fn start(period: Duration) -> Timer {
        let end = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&end);
        let thread = std::thread::spawn(move || tick(period, &told));
        Timer { end, thread }
    }

    /// Ends it; how late each tick was, milliseconds.
    pub(crate) fn stop(self) -> Result<Vec<f64>> {
        self.end.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the timer thread panicked"))?
    }
}

fn tick(period: Duration, end: &AtomicBool) -> Result<Vec<f64>> {
    let mut late = Vec::new();
    let mut deadline = monotonic()?;
    while !end.load(Ordering::Relaxed) {
        deadline += period;
        sleep_until(deadline)?;
        late.push(monotonic()?.saturating_sub(deadline).as_secs_f64() * 1000.0);
    }
    Ok(late)
}

fn sleep_until(deadline: Duration) -> Result<()> {
    let at = TimeSpec::from_duration(deadline);
    loop {
        match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &at) {
            Err(Errno::EINTR) => {}
            other => return other.map(|_| ()).context("cannot sleep until a deadline"),
        }
    }
}
