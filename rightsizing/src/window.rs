//! Rules of a plain window: a percentile of the last days for CPU, their maximum for memory, and a margin. `krr` and Crane
//! recommend so by default; they stand beside `goal` in backtests.
//!
//! Owned here: the request of one container from its own history. Not owned: bounds and caps.

use evenkeel_model::narrow::f64_to_u64;
use serde::{Deserialize, Serialize};

use crate::Resource;
use crate::histogram::{BucketTally, Histogram, Scheme};
use crate::history::{History, Scope};
use crate::rule::{Answer, Question, Rule};
use crate::units::{DAY_MS, HOUR_MS, rounded};

/// Days back from now of which hours are asked; older ones are asked as days.
const HOURLY_DAYS: u64 = 8;

/// Parameters of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WindowParams {
    /// Percentile of CPU use, 0 to 1.
    pub cpu_percentile: f64,
    /// Part added to it.
    pub cpu_margin: f64,
    /// Part added to the maximum of memory use.
    pub memory_margin: f64,
    /// Days of history.
    pub days: u64,
    /// Least CPU request, millionths of a core.
    pub min_cpu_micro: u64,
    /// Least memory request, bytes.
    pub min_memory_bytes: u64,
    /// Least time measured before anything is said, milliseconds.
    pub min_history_ms: u64,
}

impl WindowParams {
    /// robusta-dev/krr, strategy `simple`: 95th percentile of CPU, maximum of memory and 15 %, of 14 days; at least three
    /// hours of history, 10 m and 100 MiB.
    pub const KRR: Self = Self {
        cpu_percentile: 0.95,
        cpu_margin: 0.0,
        memory_margin: 0.15,
        days: 14,
        min_cpu_micro: 10_000,
        min_memory_bytes: 100 << 20,
        min_history_ms: 3 * HOUR_MS,
    };

    /// 99th percentile of seven days and 15 %, as Crane recommends; memory likewise from the maximum. One millicore at
    /// least.
    pub const P99_7D: Self = Self {
        cpu_percentile: 0.99,
        cpu_margin: 0.15,
        memory_margin: 0.15,
        days: 7,
        min_cpu_micro: 1_000,
        min_memory_bytes: 1 << 20,
        min_history_ms: 0,
    };
}

impl Default for WindowParams {
    fn default() -> Self {
        Self::P99_7D
    }
}

/// What was measured in the window.
#[derive(Default)]
struct WindowUsage {
    time: BucketTally,
    measured_ms: u64,
    peak: u64,
    oldest_ms: Option<u64>,
}

impl WindowUsage {
    fn of(days: u64, now: u64, history: &dyn History) -> Self {
        let mut window = Self::default();
        let from = now.saturating_sub(days.min(HOURLY_DAYS) * DAY_MS) / HOUR_MS;
        let mut oldest = now / HOUR_MS;
        history.visit_hours(Scope::Own, from, &mut |hour| {
            if hour.hour * HOUR_MS < now {
                oldest = oldest.min(hour.hour);
                window.count(&hour.all, hour.peak, hour.hour * HOUR_MS);
            }
        });
        if days > HOURLY_DAYS {
            let until = oldest / 24;
            history.visit_days(Scope::Own, now.saturating_sub(days * DAY_MS) / DAY_MS, &mut |day| {
                if day.day < until {
                    window.count(&day.all, day.peak, day.day * DAY_MS);
                }
            });
        }
        window
    }

    fn count(&mut self, heights: &Histogram, peak: u64, start_ms: u64) {
        self.measured_ms = self.measured_ms.saturating_add(self.time.merge(heights));
        self.peak = self.peak.max(peak);
        self.oldest_ms = Some(self.oldest_ms.map_or(start_ms, |oldest| oldest.min(start_ms)));
    }

    fn percentile(&self, part: f64) -> f64 {
        let mut beyond = f64_to_u64(self.measured_ms as f64 * (1.0 - part));
        for (bucket, weight) in self.time.downward() {
            match beyond.checked_sub(weight) {
                Some(left) => beyond = left,
                None => return Scheme::Octaves32.end(bucket) as f64,
            }
        }
        0.0
    }

    fn risk(&self, height: f64) -> f64 {
        let bucket = Scheme::Octaves32.bucket(f64_to_u64(height));
        let above: u64 =
            self.time.downward().take_while(|(at, _)| *at > bucket).map(|(_, weight)| weight).sum();
        above as f64 / self.measured_ms.max(1) as f64
    }
}

impl Rule for WindowParams {
    fn name(&self) -> &'static str {
        "window"
    }

    fn asks_for_minutes(&self) -> bool {
        false
    }

    fn recommend(&self, question: &Question, history: &dyn History) -> Answer {
        let window = WindowUsage::of(self.days, question.now_ms, history);
        let Some(oldest_ms) = window.oldest_ms.filter(|_| window.measured_ms >= self.min_history_ms.max(1))
        else {
            return Answer::none();
        };
        let (request, least) = match question.resource {
            Resource::Cpu => {
                (window.percentile(self.cpu_percentile) * (1.0 + self.cpu_margin), self.min_cpu_micro)
            }
            Resource::Memory => (window.peak as f64 * (1.0 + self.memory_margin), self.min_memory_bytes),
        };
        let request = rounded(request).max(least);
        let risk = |request: u64| match question.resource {
            Resource::Cpu => window.risk(request as f64 * 0.95),
            Resource::Memory => window.risk(request as f64),
        };
        Answer {
            request: Some(request),
            tier: "own".into(),
            samples: window.measured_ms.div_ceil(60_000),
            span_seconds: question.now_ms.saturating_sub(oldest_ms) / 1_000,
            confidence: (window.measured_ms as f64 / (self.days * DAY_MS).max(1) as f64).min(1.0),
            risk_now: question.current.map(risk),
            risk_then: Some(risk(request)),
            ..Answer::none()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::past::TracePast;
    use crate::backtest::trace::TraceSample;

    #[test]
    fn percentile_of_cpu_and_maximum_of_memory() {
        let mut past = TracePast::new(Resource::Cpu, false);
        // A hundred values on each of twenty days, 1 to 100; the first days are of ten times the height.
        for at in 0..2_000u64 {
            let value = (at * 37 % 100 + 1) * 10_000 * if at < 500 { 10 } else { 1 };
            past.add(TraceSample { time_ms: at * DAY_MS / 100, value }, DAY_MS / 100);
        }
        let ask = |rule: WindowParams, resource| {
            let question = Question { resource, now_ms: 20 * DAY_MS, current: Some(500_000), previous: None };
            rule.recommend(&question, &past)
        };
        for (rule, resource, want) in [
            (WindowParams::KRR, Resource::Cpu, 950_000.0),
            (WindowParams::P99_7D, Resource::Cpu, 990_000.0 * 1.15),
            (WindowParams::KRR, Resource::Memory, f64::from(100 << 20)),
            (WindowParams::P99_7D, Resource::Memory, 1_150_000.0),
        ] {
            let got = ask(rule, resource).request.unwrap() as f64;
            assert!((got / want - 1.0).abs() < 0.035, "{rule:?} {resource:?}: {got}");
        }
        let risk = ask(WindowParams::KRR, Resource::Cpu).risk_now.unwrap();
        assert!((risk - 0.52).abs() < 0.03, "{risk}");
        let nothing = TracePast::new(Resource::Cpu, false);
        let question = Question { resource: Resource::Cpu, now_ms: DAY_MS, current: None, previous: None };
        assert_eq!(WindowParams::P99_7D.recommend(&question, &nothing), Answer::none());
    }

    #[test]
    fn krr_says_nothing_before_three_hours() {
        let mut past = TracePast::new(Resource::Cpu, false);
        let question = Question { resource: Resource::Cpu, now_ms: DAY_MS, current: None, previous: None };
        past.add(TraceSample { time_ms: HOUR_MS, value: 5 }, 2 * HOUR_MS);
        assert_eq!(WindowParams::KRR.recommend(&question, &past).request, None);
        past.add(TraceSample { time_ms: 4 * HOUR_MS, value: 5 }, 2 * HOUR_MS);
        assert_eq!(WindowParams::KRR.recommend(&question, &past).request, Some(10_000));
    }
}
