//! What rules expect against what comes: of requests that were to be exceeded for 1 % of the time, how much was over?

/// Bounds of the bins in parts; a bin reaches from one to the next.
const BOUNDS: [f64; 9] = [0.0, 0.0025, 0.005, 0.0075, 0.015, 0.03, 0.06, 0.12, 0.25];

/// Time (CPU) or days (memory) by the part of it that a rule expected to be over.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Calibration {
    bins: [CalibrationTotals; BOUNDS.len()],
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct CalibrationTotals {
    expected: f64,
    came: u64,
    of: u64,
    answers: u64,
}

/// One bin, of those that have an answer in them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Mean part that was expected to be over.
    pub expected: f64,
    /// Part that was over.
    pub came: f64,
    /// Answers.
    pub answers: u64,
}

impl Calibration {
    /// Counts a request that was expected to be exceeded for this part of the time, and how much of which time was over.
    pub(super) fn count(&mut self, expected: f64, came: u64, of: u64) {
        let at = BOUNDS.partition_point(|bound| *bound <= expected).saturating_sub(1);
        let bin = &mut self.bins[at];
        bin.expected += expected * of as f64;
        bin.came += came;
        bin.of += of;
        bin.answers += 1;
    }

    /// Counts all that another one counted.
    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.expected += theirs.expected;
            mine.came += theirs.came;
            mine.of += theirs.of;
            mine.answers += theirs.answers;
        }
    }

    /// The curve, from what was expected least on.
    pub fn bins(&self) -> impl Iterator<Item = Bin> {
        self.bins.iter().filter(|bin| bin.of > 0).map(|bin| Bin {
            expected: bin.expected / bin.of as f64,
            came: bin.came as f64 / bin.of as f64,
            answers: bin.answers,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_over_is_held_against_what_was_expected() {
        let mut calibration = Calibration::default();
        calibration.count(0.01, 2, 100);
        calibration.count(0.012, 0, 100);
        let mut other = Calibration::default();
        other.count(0.5, 30, 100);
        other.count(0.001, 0, 0);
        calibration.merge(&other);
        let bins: Vec<Bin> = calibration.bins().collect();
        let want =
            [Bin { expected: 0.011, came: 0.01, answers: 2 }, Bin { expected: 0.5, came: 0.3, answers: 1 }];
        for (bin, want) in bins.iter().zip(want) {
            assert!((bin.expected - want.expected).abs() < 1e-12 && bin.came == want.came, "{bin:?}");
            assert_eq!(bin.answers, want.answers);
        }
        assert_eq!(bins.len(), 2);
    }
}
