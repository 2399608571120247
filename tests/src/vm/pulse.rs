//! Whether an emulated machine still runs. Owns the sign of life that needs nothing inside the guest.
//!
//! A kernel that runs arms timers, if only those of its watchdogs every few seconds, and qemu's main thread wakes for
//! each. A processor that qemu 7.2 lets run a breakpoint which the kernel has taken out of its code again (as it does
//! when the first CPU quota is set) is sent back to it for ever, with interrupts off; the other one soon waits for a lock
//! it holds. No timer is armed any more then, and that thread sleeps for good. Seen in some of a hundred guests.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use procfs::process::Process;

/// The guest's processors do nothing any more.
#[derive(Debug, thiserror::Error)]
#[error("no timer of the guest has run for {} s: its processors stand still", .0.as_secs())]
pub(super) struct Stopped(Duration);

/// Of one process.
#[derive(Debug)]
pub(super) struct Pulse {
    process: Process,
    patience: Duration,
    wakes: u64,
    since: Instant,
}

impl Pulse {
    /// Begins to feel it. So long without a beat is no life.
    pub(super) fn of(pid: u32, patience: Duration) -> Result<Pulse> {
        let process = Process::new(i32::try_from(pid)?).context("cannot look at qemu")?;
        Ok(Pulse { process, patience, wakes: 0, since: Instant::now() })
    }

    /// Feels it again.
    ///
    /// # Errors
    ///
    /// [`Stopped`].
    pub(super) fn feel(&mut self) -> Result<()> {
        // A process that has just ended has none to tell; whoever waits for it learns of that by itself.
        let Ok(status) = self.process.status() else { return Ok(()) };
        let wakes = status.voluntary_ctxt_switches.unwrap_or_default();
        if wakes != self.wakes {
            (self.wakes, self.since) = (wakes, Instant::now());
        } else if self.since.elapsed() > self.patience {
            bail!(Stopped(self.patience));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;
    use crate::wait;

    /// Looks at a shell that runs this.
    fn beside<T>(script: &str, look: impl FnOnce(&mut Child) -> Result<T>) -> Result<T> {
        let mut shell = Command::new("sh").args(["-c", script]).spawn().context("cannot run sh")?;
        let seen = look(&mut shell);
        // It may have ended by itself.
        let killed = shell.kill().and(shell.wait());
        killed.context("cannot end sh")?;
        seen
    }

    #[test]
    fn what_never_wakes_has_none() -> Result<()> {
        let stopped = beside("exec sleep 1000", |sleeper| {
            let mut pulse = Pulse::of(sleeper.id(), Duration::from_millis(200))?;
            let felt = || Ok(pulse.feel().err().map(|error| error.is::<Stopped>()));
            wait::until("the pulse to stop", wait::PATIENCE, felt)
        });
        assert!(stopped?, "another error");
        Ok(())
    }

    #[test]
    fn what_wakes_has_one_until_it_ends_and_its_end_is_no_fault() -> Result<()> {
        // Each sleep is waited for by the shell.
        let script = "i=0; while [ $i -lt 40 ]; do sleep 0.02; i=$((i + 1)); done";
        let wakes = beside(script, |shell| {
            let mut pulse = Pulse::of(shell.id(), wait::PATIENCE)?;
            pulse.feel()?;
            let first = pulse.wakes;
            wait::until("the shell to end", wait::PATIENCE, || {
                pulse.feel()?;
                Ok(shell.try_wait()?)
            })?;
            pulse.feel()?;
            Ok(pulse.wakes - first)
        });
        assert!(wakes? > 0);
        Ok(())
    }
}
