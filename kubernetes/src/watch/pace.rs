//! How often the API server is asked: what fails is asked for again after pauses that grow, each a little different, so that many who
//! lost it at once do not come back at once.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// How lists and watches are asked for.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Objects of one page of a list.
    pub page: u32,
    /// The pause after the first failure, and the least time from one watch or list to the next.
    pub least: Duration,
    /// The longest pause.
    pub most: Duration,
    /// How long a watch may go on before the API server ends it.
    pub watch: Duration,
    /// How long an answer's head, and the next bytes of a list, are waited for.
    pub answer: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            // What kubectl and controllers ask for (client-go's pager).
            page: 500,
            // client-go's reflector waits 0.8 s to 30 s.
            least: Duration::from_millis(800),
            most: Duration::from_secs(30),
            // client-go asks for 5 to 10 minutes.
            watch: Duration::from_secs(300),
            // The API server ends a request after 60 s (`--request-timeout`).
            answer: Duration::from_secs(65),
        }
    }
}

/// The longest pause that a server's `Retry-After` is obeyed for.
const MOST_ASKED: Duration = Duration::from_secs(120);

/// The pause before the next attempt.
#[derive(Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    failures: u32,
    chance: u64,
}

impl Backoff {
    /// Nothing has failed yet. Each starts elsewhere in its numbers.
    pub(crate) fn new(pace: &Pace) -> Self {
        Self::seeded(pace, RandomState::new().hash_one(0_u8))
    }

    fn seeded(pace: &Pace, chance: u64) -> Self {
        Self { least: pace.least, most: pace.most, failures: 0, chance: chance | 1 }
    }

    /// What was asked for has come.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The pause after one more failure: twice the one before, of which a half is by chance; at least what the server asked for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let whole = self.least.saturating_mul(1 << self.failures.min(20)).min(self.most);
        self.failures = self.failures.saturating_add(1);
        let pause = whole / 2 + self.part(whole / 2);
        let asked = asked.unwrap_or_default().min(MOST_ASKED);
        // Who is told the same time as others is told it with them.
        if asked > pause { asked + self.part(self.least) } else { pause }
    }

    /// The longest pause, for what only a person can change.
    pub(crate) fn longest(&mut self) -> Duration {
        self.most / 2 + self.part(self.most / 2)
    }

    /// What is left of the least time since the last attempt.
    pub(crate) fn rest(&mut self, since: Duration) -> Duration {
        let least = self.least + self.part(self.least / 4);
        least.saturating_sub(since)
    }

    /// A part of this by chance (xorshift).
    fn part(&mut self, of: Duration) -> Duration {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        of.mul_f64((self.chance >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_differ_and_are_bounded() {
        let pace = Pace::default();
        for seed in 0..50 {
            let mut backoff = Backoff::seeded(&pace, seed);
            for whole in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000].map(Duration::from_millis) {
                let pause = backoff.next(None);
                assert!(whole / 2 <= pause && pause <= whole, "{pause:?} of {whole:?}");
            }
            backoff.reset();
            assert!(backoff.next(None) <= pace.least);
            let asked = Duration::from_secs(7);
            backoff.reset();
            let pause = backoff.next(Some(asked));
            assert!(asked <= pause && pause <= asked + pace.least, "{pause:?}");
            assert!(backoff.next(Some(Duration::MAX)) <= MOST_ASKED + pace.least);
            assert!(backoff.rest(Duration::from_millis(300)) >= Duration::from_millis(500));
            assert_eq!(backoff.rest(Duration::from_secs(2)), Duration::ZERO);
            assert!(backoff.longest() >= pace.most / 2);
        }
        let firsts: Vec<_> = (0..9).map(|seed| Backoff::seeded(&pace, seed * 1000).next(None)).collect();
        assert!(firsts.windows(2).any(|pair| pair[0] != pair[1]));
    }
}
