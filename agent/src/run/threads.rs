//! The agent's threads: their handles and signs of life, and their end.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_enforce::shared::Heartbeat;
use nix::sys::signalfd::SignalFd;

/// A thread without a sign of life for so long is stuck: every one beats at least once a second, and a container is
/// frozen for five seconds at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// Threads with their heartbeats.
#[derive(Default)]
pub(super) struct Threads {
    handles: Vec<(&'static str, JoinHandle<()>)>,
    beats: Vec<Arc<Heartbeat>>,
}

impl Threads {
    /// Starts a thread that shows that it lives by itself.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(
        &mut self,
        name: &'static str,
        body: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<()> {
        let handle = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(body)
            .with_context(|| format!("cannot start thread {name}"))?;
        self.keep(name, handle);
        Ok(())
    }

    /// Takes a thread that runs.
    pub(super) fn keep(&mut self, name: &'static str, handle: JoinHandle<()>) {
        self.handles.push((name, handle));
    }

    /// The sign of life of a new thread.
    pub(super) fn beat(&mut self, name: &'static str) -> Arc<Heartbeat> {
        let beat = Arc::new(Heartbeat::new(name, PATIENCE));
        self.beats.push(Arc::clone(&beat));
        beat
    }

    /// The first thread that ended by itself.
    pub(super) fn ended(&self) -> Option<&'static str> {
        self.handles.iter().find(|(_, handle)| handle.is_finished()).map(|(name, _)| *name)
    }

    /// True when every thread gave a sign of life lately.
    pub(super) fn alive(&self) -> bool {
        let stuck = self.beats.iter().find(|beat| beat.age() > beat.patience);
        if let Some(beat) = stuck {
            tracing::error!(thread = beat.name, age = ?beat.age(), "a thread is stuck; the watchdog is not told");
        }
        stuck.is_none()
    }

    /// Waits for all to end; a second signal or the deadline ends the waiting.
    pub(super) fn drain(self, signals: &SignalFd, deadline: Instant) -> anyhow::Result<()> {
        for (name, handle) in self.handles {
            while !handle.is_finished() {
                if Instant::now() >= deadline {
                    anyhow::bail!("thread {name} did not end in time; ending without it");
                }
                if matches!(signals.read_signal(), Ok(Some(_))) {
                    anyhow::bail!("a second signal: ending at once, without waiting for thread {name}");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            if handle.join().is_err() {
                tracing::error!(thread = name, "a thread panicked");
            }
        }
        Ok(())
    }
}
