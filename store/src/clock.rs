//! Owns the one place where the wall clock is read: a value that is passed to whoever needs the time.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

/// A wall clock.
#[derive(Clone)]
pub struct WallClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl WallClock {
    /// The machine's.
    pub fn system() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
    }

    /// One that says what `now_usec` says: microseconds since 1970.
    pub fn new(now_usec: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_usec))
    }

    /// Microseconds since 1970.
    pub fn now_usec(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WallClock({})", self.now_usec())
    }
}
