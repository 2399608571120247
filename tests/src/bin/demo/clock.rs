//! Time and interruption: seconds counted from the start of the watch, ended early by Ctrl-C or SIGTERM.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{SigSet, Signal};

/// Counts seconds and hears signals.
pub(crate) struct Clock {
    interrupted: Receiver<Arc<str>>,
    began: Cell<Option<Instant>>,
}

impl Clock {
    /// Takes SIGINT, SIGTERM and SIGHUP over. Called before any other thread is there, so that all inherit the mask;
    /// programs started later begin with an empty one.
    pub(crate) fn start() -> Result<Clock> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            signals.add(signal);
        }
        signals.thread_block().context("cannot block signals")?;
        let (sender, interrupted) = sync_channel(1);
        std::thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                // A second signal changes nothing: cleaning up is under way.
                let _ = sender.try_send(Arc::from(signal.as_str()));
            }
        });
        Ok(Clock { interrupted, began: Cell::new(None) })
    }

    /// Waits for the given second since the first call; false when interrupted.
    pub(crate) fn until(&self, second: u64) -> bool {
        let began = self.began.get().unwrap_or_else(Instant::now);
        self.began.set(Some(began));
        let left = (began + Duration::from_secs(second)).saturating_duration_since(Instant::now());
        matches!(self.interrupted.recv_timeout(left), Err(RecvTimeoutError::Timeout))
    }

    /// Waits for a signal.
    pub(crate) fn until_interrupted(&self) {
        let _ = self.interrupted.recv();
    }
}
