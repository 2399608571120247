//! How long nothing is written after the API server gave no answer, or asked for patience.

use std::time::{Duration, Instant};

use evenkeel_kubernetes::objects::ApiError;

/// The shortest and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));
/// How long nothing is written where who writes may not.
const FORBIDDEN: Duration = Duration::from_secs(300);

/// A pause that is longer each time.
#[derive(Debug, Default)]
pub(crate) struct ApiPause {
    until: Option<Instant>,
    failures: u32,
}

impl ApiPause {
    /// Whether nothing is to be written yet.
    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// Begins one, as long as the API server asked for at least.
    pub(crate) fn begin(&mut self, after: Option<Duration>) {
        let (least, most) = PAUSES;
        let pause = least.saturating_mul(1 << self.failures.min(10)).max(after.unwrap_or_default()).min(most);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(Instant::now() + pause);
    }

    /// Begins one where what was refused is to be tried again: why it was.
    pub(crate) fn begin_after<'e>(&mut self, refused: &'e ApiError) -> Option<&'e str> {
        match refused {
            ApiError::Forbidden(why) => {
                self.until = Some(Instant::now() + FORBIDDEN);
                Some(why)
            }
            ApiError::Later(why, after) => {
                self.begin(*after);
                Some(why)
            }
            ApiError::Silent(why) => {
                self.begin(None);
                Some(why)
            }
            ApiError::Conflict(_) | ApiError::Absent(_) | ApiError::Wrong(_) => None,
        }
    }

    /// The API server did what it was asked for.
    pub(crate) fn end(&mut self) {
        self.failures = 0;
    }
}
