//! Stalls of the machine itself. Owns a clock that notices when everything stood still: an emulated machine that its
//! host does not run is late with all it promised, and says nothing about the product.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time between two looks at the clock.
const PERIOD: Duration = Duration::from_millis(20);
/// Threads through which news of a container goes, each of which may have to wait for a processor.
const HAND_OVERS: u32 = 5;

/// A thread that does nothing but wake, outside of all test cgroups, for as long as this lives.
#[derive(Debug)]
pub struct Stalls {
    longest_msec: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stalls {
    /// Starts watching.
    #[must_use]
    pub fn watch() -> Stalls {
        let (longest_msec, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (longest, done) = (Arc::clone(&longest_msec), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let mut before = Instant::now();
            while !done.load(Ordering::Relaxed) {
                thread::sleep(PERIOD);
                let now = Instant::now();
                let late = now.duration_since(before).saturating_sub(PERIOD).as_millis();
                longest.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
                before = now;
            }
        });
        Stalls { longest_msec, over, thread: Some(thread) }
    }

    /// The longest time so far in which this machine woke nobody.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_msec.load(Ordering::Relaxed))
    }

    /// A promise's time on a machine that stood still for so long: as promised where it did not.
    #[must_use]
    pub fn allow(&self, promised: Duration) -> Duration {
        promised + self.longest() * HAND_OVERS
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
