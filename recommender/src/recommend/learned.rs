//! Owns what the start of a container could use of the CPU, as learned from starts that were seen: of its own workload, else of its command,
//! its image and tag, or its image.

use evenkeel_rightsizing::history::Scope;
use evenkeel_store::history::{HistoryView, Starts};

/// Days looked at: two weeks of roll-outs.
const DAYS: u64 = 14;
/// Part of the time of starts in which no more was used.
const PART: f64 = 0.95;
/// Seconds of starts below which nothing is said.
const LEAST_MS: u64 = 30_000;
/// Part of the time in which use may be held down: beyond, what was measured is the least that was wanted.
const STARVED: f64 = 0.01;
/// By how much more could be used then at least: as the rule `goal` raises a request at which a container starves.
const WANTED: f64 = 1.5;
/// Amounts are whole tens of thousandths of a core, so that a status does not change with each start.
const STEP_MILLI: u64 = 10;

/// Scopes that stand in for a container whose own starts were not seen.
const WIDER: [Scope; 3] = [Scope::Command, Scope::ImageTag, Scope::Image];

/// What a start could use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Seconds of starts that it rests on.
    pub seconds: u64,
}

/// What is known of the starts of a container; of those of its image only where its policy gives starts more.
pub(super) fn learned(view: &HistoryView<'_>, now_usec: u64, is_wider: bool) -> Option<Learned> {
    let from = u32::try_from((now_usec / 86_400_000_000).saturating_sub(DAYS)).unwrap_or(u32::MAX);
    let of = |scope: Scope| read(&view.starts(scope, from));
    of(Scope::Own).or_else(|| WIDER.into_iter().filter(|_| is_wider).find_map(of))
}

fn read(starts: &Starts) -> Option<Learned> {
    let total = starts.heights.total();
    let used = starts.heights.quantile(PART).filter(|_| total >= LEAST_MS)?;
    let is_starved = starts.starved_ms as f64 > STARVED * total as f64;
    let wanted = if is_starved { evenkeel_model::narrow::f64_to_u64(used as f64 * WANTED) } else { used };
    let cpu_milli = wanted.div_ceil(1_000).max(1).next_multiple_of(STEP_MILLI);
    Some(Learned { cpu_milli, seconds: total / 1_000 })
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::histogram::Histogram;

    use super::*;

    #[test]
    fn a_start_is_told_by_nearly_all_of_its_seconds() {
        let starts = |seconds: &[(u64, u64)], starved_ms: u64| {
            let mut heights = Histogram::new();
            seconds.iter().for_each(|(milli, seconds)| heights.add(milli * 1_000, seconds * 1_000));
            read(&Starts { heights, starved_ms })
        };
        // Thousandths and seconds, time held down: what is said.
        for (seconds, starved_ms, want) in [
            (vec![], 0, None),
            (vec![(900, 29)], 0, None),
            (vec![(900, 60)], 0, Some((910, 60))),
            (vec![(900, 57), (4000, 3)], 0, Some((910, 60))),
            (vec![(900, 56), (4000, 4)], 0, Some((4070, 60))),
            // Held down: it could have used more.
            (vec![(900, 60)], 601, Some((1360, 60))),
            (vec![(900, 60)], 600, Some((910, 60))),
            (vec![(0, 60)], 0, Some((10, 60))),
        ] {
            let found = starts(&seconds, starved_ms);
            let found = found.map(|learned| (learned.cpu_milli, learned.seconds));
            assert_eq!(found, want, "{seconds:?} {starved_ms}");
        }
    }
}
