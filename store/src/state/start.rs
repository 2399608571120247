//! Owns where a container is in its start: its first seconds, where it was seen to begin.
//!
//! What was running when its node's agent began to tell of it may be of any age, and is not taken for starting.

use super::minute::MINUTE_USEC;

/// Samples of a stream's first seconds may be of containers that its agent found only then.
const SETTLES_USEC: u64 = 10_000_000;

/// The start of a container. Times are microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Start {
    /// It was not seen.
    #[default]
    Unseen,
    /// It begins with the next sample.
    Awaited,
    /// It began then, and goes on.
    Since(u64),
    /// It began then, and is over.
    Over(u64),
}

impl Start {
    /// Of a container that is announced at a time in a stream that began then (0: no sample yet).
    pub(crate) fn announced(began_usec: u64, told_usec: u64) -> Self {
        let is_new = began_usec > 0 && told_usec.saturating_sub(began_usec) > SETTLES_USEC;
        if is_new { Self::Awaited } else { Self::Unseen }
    }

    /// Begins with a sample, where it is awaited.
    pub(crate) fn begin(&mut self, time_usec: u64) {
        if *self == Self::Awaited {
            *self = Self::Since(time_usec);
        }
    }

    /// Whether it goes on.
    pub(crate) const fn goes_on(self) -> bool {
        matches!(self, Self::Since(_))
    }

    /// Whether it goes on, and is over with a sample of this time.
    pub(crate) fn ends_at(self, time_usec: u64, length_usec: u64) -> bool {
        let is_within = |since: u64| time_usec.checked_sub(since).is_some_and(|age| age < length_usec);
        matches!(self, Self::Since(since) if !is_within(since))
    }

    /// It is over.
    pub(crate) fn end(&mut self) {
        if let Self::Since(since) = *self {
            *self = Self::Over(since);
        }
    }

    /// Whether any of a minute is of it.
    pub(crate) fn has_minute(self, minute: u32, length_usec: u64) -> bool {
        let (Self::Since(since) | Self::Over(since)) = self else { return false };
        let begins = u64::from(minute) * MINUTE_USEC;
        begins < since.saturating_add(length_usec) && begins + MINUTE_USEC > since
    }

    /// As it is written: what it is, and since when.
    pub(crate) const fn numbers(self) -> [u64; 2] {
        match self {
            Self::Unseen => [0, 0],
            Self::Awaited => [1, 0],
            Self::Since(since) => [2, since],
            Self::Over(since) => [3, since],
        }
    }

    /// As it was written; earlier releases wrote nothing.
    pub(crate) const fn of_numbers(numbers: &[u64]) -> Self {
        match numbers {
            [1, _] => Self::Awaited,
            [2, since] => Self::Since(*since),
            [3, since] => Self::Over(*since),
            _ => Self::Unseen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn a_start_is_of_what_begins_in_a_stream_that_goes_on() {
        for (began, told, want) in [
            (0, 50 * S, Start::Unseen),
            (40 * S, 50 * S, Start::Unseen),
            (40 * S, 51 * S, Start::Awaited),
            (40 * S, 0, Start::Unseen),
        ] {
            assert_eq!(Start::announced(began, told), want, "{began} {told}");
        }
        let mut start = Start::Awaited;
        assert!(!start.goes_on() && !start.ends_at(100 * S, 60 * S));
        start.begin(100 * S);
        start.begin(200 * S);
        assert!(start.goes_on());
        for (at, over) in [(100, false), (159, false), (160, true), (99, true)] {
            assert_eq!(start.ends_at(at * S, 60 * S), over, "{at}");
        }
        for (minute, of_it) in [(0, false), (1, true), (2, true), (3, false)] {
            assert_eq!(start.has_minute(minute, 60 * S), of_it, "minute {minute}");
        }
        start.end();
        assert!(!start.goes_on() && start.has_minute(2, 60 * S) && !start.ends_at(999 * S, 60 * S));
        for start in [Start::Unseen, Start::Awaited, start, Start::Since(7)] {
            assert_eq!(Start::of_numbers(&start.numbers()), start);
        }
        assert_eq!(Start::of_numbers(&[]), Start::Unseen);
    }
}
