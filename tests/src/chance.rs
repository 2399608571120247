//! Chance that can be repeated: a small seeded generator for tests that try random moments. Owns the seed of a run, which
//! every test that uses it prints.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

/// The variable that repeats a run.
const VARIABLE: &str = "EVENKEEL_SEED";

/// A generator of numbers: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// The seed of this run: that of `EVENKEEL_SEED` where it is set to a number, a new one otherwise.
    pub fn seed() -> u64 {
        static SEED: OnceLock<u64> = OnceLock::new();
        *SEED.get_or_init(|| {
            let given = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
            // The keys of a hasher are the standard library's only random numbers.
            given.unwrap_or_else(|| RandomState::new().build_hasher().finish() % 1_000_000)
        })
    }

    /// The generator of a test, the same in each run of one seed.
    pub fn of(test: &str) -> Chance {
        let mut state = Chance::seed();
        for byte in test.bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        crate::figures::show(&format!("{test}: seed {} (repeat with {VARIABLE})", Chance::seed()));
        Chance(state)
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        mixed.checked_rem(bound).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_numbers_and_tests_have_their_own() {
        let draw = |test: &str| {
            let mut chance = Chance::of(test);
            (0..8).map(|_| chance.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw("one"), draw("one"));
        assert_ne!(draw("one"), draw("two"));
        assert!(draw("one").iter().all(|number| *number < 1000));
        assert_eq!(Chance(1).below(0), 0);
    }
}
