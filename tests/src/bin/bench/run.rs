//! What every bench is given: how long, how often, whether somebody pressed Ctrl-C, and what else the machine does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::options::Options;

/// How long to sleep between two looks at the interruption.
const LOOK: Duration = Duration::from_millis(100);

/// Set by the signal handler.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_signal: i32) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// One call of `scripts/bench`.
pub(crate) struct Run {
    /// Length of a long measurement.
    pub(crate) length: Duration,
    /// Long forms.
    pub(crate) full: bool,
}

impl Run {
    /// Takes SIGINT, SIGTERM and SIGHUP over. A handler rather than a blocked signal, because programs started later
    /// inherit what is blocked but not what is handled (execve(2)).
    pub(crate) fn start(options: &Options) -> Result<Run> {
        let action = SigAction::new(SigHandler::Handler(interrupt), SaFlags::SA_RESTART, SigSet::empty());
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            #[allow(unsafe_code)]
            // SAFETY: the handler stores to an atomic and does nothing else, which is safe at any moment.
            unsafe { sigaction(signal, &action) }.with_context(|| format!("cannot handle {signal}"))?;
        }
        Ok(Run { length: Duration::from_secs(options.seconds), full: options.full })
    }

    /// Whether somebody wants it to end.
    pub(crate) fn interrupted(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }

    /// An error once somebody wants it to end: unwinding is what cleans up.
    pub(crate) fn check(&self) -> Result<()> {
        if self.interrupted() {
            bail!("interrupted");
        }
        Ok(())
    }

    /// Lets time pass.
    pub(crate) fn sleep(&self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            self.check()?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }

    /// Says what is being done.
    pub(crate) fn say(&self, text: &str) {
        eprintln!("    {text}");
    }
}

/// The machine's CPU time at one moment, clock ticks.
pub(crate) struct Machine {
    all: u64,
    stolen: u64,
}

/// What the machine did during a measurement.
pub(crate) struct Meanwhile {
    /// Load averages over one, five and fifteen minutes, at its end.
    pub(crate) load_average: [f64; 3],
    /// Share of all CPU time the hypervisor gave to others.
    pub(crate) steal_percent: f64,
}

impl Machine {
    /// Reads the first line of `/proc/stat`, proc_stat(5); zeros where it cannot be read.
    pub(crate) fn now() -> Machine {
        let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        // user nice system idle iowait irq softirq steal; guest time is in user already.
        let times: Vec<u64> =
            line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
        Machine { all: times.iter().sum(), stolen: times.get(7).copied().unwrap_or(0) }
    }

    /// What happened since.
    pub(crate) fn until_now(&self) -> Meanwhile {
        let now = Machine::now();
        let all = now.all.saturating_sub(self.all).max(1);
        let stolen = now.stolen.saturating_sub(self.stolen);
        let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let mut loads = text.split_whitespace().map(|n| n.parse().unwrap_or(0.0));
        let load_average = std::array::from_fn(|_| loads.next().unwrap_or(0.0));
        Meanwhile { load_average, steal_percent: 100.0 * stolen as f64 / all as f64 }
    }
}
