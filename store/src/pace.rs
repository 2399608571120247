//! Owns the pace of work in the background: it leaves the processor often, so that who waits for an answer or an
//! acknowledgement has it at once even where there is one processor for everything. A scheduler alone lets a busy thread go
//! on for some milliseconds.

use std::thread;
use std::time::{Duration, Instant};

/// Longest work without a break: half of what an answer may take.
const WORK: Duration = Duration::from_micros(500);
/// Length of a break; with the time to fall asleep and wake up, about a quarter of the work.
const BREAK: Duration = Duration::from_micros(60);

/// Work that takes breaks.
#[derive(Debug)]
pub struct Pace {
    since: Instant,
}

impl Pace {
    /// Work begins.
    pub fn start() -> Self {
        Self { since: Instant::now() }
    }

    /// Whether a break is due.
    pub fn is_due(&self) -> bool {
        self.since.elapsed() >= WORK
    }

    /// Takes a break.
    pub fn rest(&mut self) {
        thread::sleep(BREAK);
        self.since = Instant::now();
    }

    /// Takes a break if one is due; to be called after every piece of work.
    pub(crate) fn step(&mut self) {
        if self.is_due() {
            self.rest();
        }
    }
}
