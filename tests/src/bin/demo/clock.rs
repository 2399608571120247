//! Time and interruption: seconds counted from the start of the watch, ended early by Ctrl-C or SIGTERM.

use std::cell::Cell;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Counts seconds and hears signals.
pub(crate) struct Clock {
    interrupted: Receiver<()>,
    began: Cell<Option<Instant>>,
}

impl Clock {
    /// Takes SIGINT, SIGTERM and SIGHUP over, by handlers: unlike a blocked signal, a handler is not inherited by
    /// the programs started later.
    pub(crate) fn start() -> Result<Clock> {
        let (sender, interrupted) = sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _inside = runtime.enter();
            [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal)
        };
        for heard in signals {
            let heard = heard.context("cannot hear signals")?;
            runtime.spawn(tell(heard, sender.clone()));
        }
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
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

async fn tell(mut heard: Signal, sender: SyncSender<()>) {
    while heard.recv().await.is_some() {
        // A second signal changes nothing: cleaning up is under way.
        let _ = sender.try_send(());
    }
}
