//! The `initial` rule: Initial Resources' chain of tiers.
//!
//! The request is the 90th percentile of the first set of samples that is large enough: image and tag over 7
//! days, image and tag over 30 days, image over 30 days (Kubernetes design proposal "Initial Resources",
//! "Predicting algorithm details"). A sample is a rollup of at most one minute, the proposal's resolution; an
//! unfinished minute counts as one, so that a container seconds old is answered from the image tier. Beyond the proposal,
//! a set of less than two days gives way to one further down that knows more, and what was idle still asks for something.

use serde::{Deserialize, Serialize};

use crate::Resource;
use crate::evidence;
use crate::histogram::Histogram;
use crate::history::{self, History, Minute};
use crate::percentile::{nearest_rank, risk_above};
use crate::rule::{self, Question, Rule};

/// Minutes of a day.
const DAY: u64 = 24 * 60;

/// Least requests: a container that was idle is not one that needs nothing, and a request of 0 is none. Kubernetes counts
/// CPU in thousandths of a core and turns one of them into the least shares there are (2); cgroups are charged in pages.
const LEAST_CPU_MICRO: u64 = 1_000;
const LEAST_MEMORY_BYTES: u64 = 4_096;

/// Whose samples a tier looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Containers of the same image and tag.
    ImageTag,
    /// Containers of the same image, any tag.
    Image,
}

/// One step of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tier {
    /// Name shown with the answer.
    pub name: String,
    /// Whose samples.
    pub scope: Scope,
    /// How far back, minutes.
    pub window_minutes: u64,
    /// Samples needed for this tier to answer.
    pub min_samples: usize,
}

/// Parameters of the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitialParams {
    /// Percentile in thousandths.
    pub percentile_per_mille: u32,
    /// Tiers from first to last choice.
    pub tiers: Vec<Tier>,
}

impl Default for InitialParams {
    /// The proposal's own numbers.
    fn default() -> Self {
        let tier = |name: &str, scope, days: u64, min_samples| Tier {
            name: name.into(),
            scope,
            window_minutes: days * DAY,
            min_samples,
        };
        Self {
            percentile_per_mille: 900,
            tiers: vec![
                tier("image:tag 7d", Scope::ImageTag, 7, 60),
                tier("image:tag 30d", Scope::ImageTag, 30, 60),
                tier("image 30d", Scope::Image, 30, 1),
            ],
        }
    }
}

impl Scope {
    /// The same scope in the terms of histories.
    pub const fn of_history(self) -> history::Scope {
        match self {
            Self::ImageTag => history::Scope::ImageTag,
            Self::Image => history::Scope::Image,
        }
    }
}

impl Rule for InitialParams {
    fn name(&self) -> &'static str {
        "initial"
    }

    fn recommend(&self, question: &Question, history: &dyn History) -> rule::Answer {
        best(self.answers(question, history))
    }
}

impl InitialParams {
    /// Answers of the tiers that have samples enough, each made when it is asked for.
    fn answers<'a>(
        &'a self,
        question: &'a Question,
        history: &'a dyn History,
    ) -> impl Iterator<Item = rule::Answer> + 'a {
        self.tiers.iter().filter_map(move |tier| {
            let seen = TierSamples::new(tier, tier.scope.of_history(), question, history);
            seen.answer(self, tier, question)
        })
    }
}

/// The first that rests on enough, or else on the most.
fn best(answers: impl Iterator<Item = rule::Answer>) -> rule::Answer {
    let known = answers.map(|answer| (answer.evidence(), answer));
    evidence::best(known).unwrap_or_else(rule::Answer::none)
}

/// The rule with a tier before all others: image and tag in the container's own namespace, over as long and of as many
/// samples as the first tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceFirst(pub InitialParams);

impl Rule for NamespaceFirst {
    fn name(&self) -> &'static str {
        "initial"
    }

    fn recommend(&self, question: &Question, history: &dyn History) -> rule::Answer {
        let own = self.0.tiers.first().and_then(|first| {
            let tier = Tier { name: format!("namespace {}", first.name), ..first.clone() };
            let seen = TierSamples::new(&tier, history::Scope::NamespaceImageTag, question, history);
            seen.answer(&self.0, &tier, question)
        });
        best(own.into_iter().chain(self.0.answers(question, history)))
    }
}

/// The samples of one tier: exactly where minutes are kept, by buckets for whole days before these.
struct TierSamples {
    values: Vec<u64>,
    before: Histogram,
    /// Minute of the earliest and of the latest.
    span: Option<(u64, u64)>,
}

impl TierSamples {
    fn new(tier: &Tier, scope: history::Scope, question: &Question, history: &dyn History) -> Self {
        let now = question.now_ms / 60_000;
        let from = now.saturating_sub(tier.window_minutes);
        let mut minutes: Vec<Minute> = history.minutes(scope, from);
        minutes.retain(|minute| minute.minute * 60_000 < question.now_ms);
        let oldest = minutes.first().map_or(now + 1, |minute| minute.minute);
        // The day in which minutes begin is known better as a day, if days are known at all.
        let split = oldest.div_ceil(DAY) * DAY;
        let is_covered = oldest.saturating_sub(from) <= 1;
        let mut days = if is_covered { Vec::new() } else { history.days(scope, from.div_ceil(DAY)) };
        days.retain(|day| day.day * DAY < split && !day.minutes.is_empty());
        let mut before = Histogram::new();
        days.iter().for_each(|day| before.merge(&day.minutes));
        if days.iter().any(|day| (day.day + 1) * DAY == split) {
            minutes.retain(|minute| minute.minute >= split);
        }
        let first_day = days.first().map(|day| day.day * DAY);
        let last_day = days.last().map(|day| ((day.day + 1) * DAY - 1).min(now));
        let first = first_day.or(minutes.first().map(|minute| minute.minute));
        // A day is known as a whole, whenever its containers began.
        let since = history.since_ms(scope).map_or(0, |since_ms| since_ms / 60_000);
        let first = first.map(|first| first.max(since.min(now)));
        let last = minutes.last().map(|minute| minute.minute).or(last_day);
        let value = |minute: &Minute| match question.resource {
            Resource::Cpu => minute.mean,
            Resource::Memory => minute.peak,
        };
        let mut values: Vec<u64> = minutes.iter().map(value).collect();
        values.sort_unstable();
        Self { values, before, span: first.zip(last) }
    }

    fn answer(&self, params: &InitialParams, tier: &Tier, question: &Question) -> Option<rule::Answer> {
        let samples = self.values.len() as u64 + self.before.total();
        if samples == 0 || samples < tier.min_samples as u64 {
            return None;
        }
        let least = match question.resource {
            Resource::Cpu => LEAST_CPU_MICRO,
            Resource::Memory => LEAST_MEMORY_BYTES,
        };
        let request = self.percentile(params.percentile_per_mille).map(|request| request.max(least));
        let minutes = self.span.map_or(0, |(first, last)| last.saturating_sub(first) + 1);
        Some(rule::Answer {
            request,
            lower: None,
            upper: None,
            tier: tier.name.clone(),
            samples,
            span_seconds: minutes * 60,
            confidence: (minutes as f64 / tier.window_minutes.max(1) as f64).min(1.0),
            risk_now: question.current.and_then(|current| self.risk(current)),
            risk_then: request.and_then(|request| self.risk(request)),
            notes: Vec::new(),
        })
    }

    fn percentile(&self, per_mille: u32) -> Option<u64> {
        if self.before.is_empty() {
            return nearest_rank(&self.values, per_mille);
        }
        self.all().quantile(f64::from(per_mille) / 1_000.0)
    }

    fn risk(&self, request: u64) -> Option<f64> {
        if self.before.is_empty() {
            return risk_above(&self.values, request);
        }
        self.all().part_above(request)
    }

    fn all(&self) -> Histogram {
        let mut all = self.before.clone();
        self.values.iter().for_each(|value| all.add(*value, 1));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the values of tests: above the least requests.
    const UNIT: u64 = 4_096;

    /// History of one image: (scope it counts for, minute, value).
    struct Image(Vec<(Scope, u64, u64)>);

    impl History for Image {
        fn minutes(&self, scope: history::Scope, from: u64) -> Vec<Minute> {
            let counts = |s: Scope| scope == history::Scope::Image || s.of_history() == scope;
            self.0.iter().filter(|(s, m, _)| counts(*s) && *m >= from).map(|(_, m, v)| at(*m, *v)).collect()
        }
        fn hours(&self, _: history::Scope, _: u64) -> Vec<history::Hour> {
            Vec::new()
        }
        fn days(&self, _: history::Scope, _: u64) -> Vec<history::Day> {
            Vec::new()
        }
        fn events(&self, _: u64) -> Vec<history::Event> {
            Vec::new()
        }
    }

    fn answer(history: &[(Scope, u64, u64)], now: u64) -> rule::Answer {
        // In the middle of the last minute, which counts although it is not over.
        let now_ms = now * 60_000 + 30_000;
        let question = Question { resource: Resource::Cpu, now_ms, current: Some(50 * UNIT), previous: None };
        InitialParams::default().recommend(&question, &Image(history.to_vec()))
    }

    fn minutes(scope: Scope, from: u64, count: u64) -> Vec<(Scope, u64, u64)> {
        (0..count).map(|i| (scope, from + i, i + 1)).collect()
    }

    #[test]
    fn the_chain_is_walked_in_the_documents_order() {
        let now = 100 * DAY;
        let table = [
            (
                "an hour this week",
                minutes(Scope::ImageTag, now - 60, 60),
                "image:tag 7d",
                Some(54 * UNIT),
                60,
            ),
            (
                "59 minutes fall through to the image",
                minutes(Scope::ImageTag, now - 60, 59),
                "image 30d",
                Some(54 * UNIT),
                59,
            ),
            (
                "an hour two weeks ago",
                minutes(Scope::ImageTag, now - 14 * DAY, 60),
                "image:tag 30d",
                Some(54 * UNIT),
                60,
            ),
            ("another tag only", minutes(Scope::Image, now - 14 * DAY, 1), "image 30d", Some(UNIT), 1),
            ("older than a month", minutes(Scope::ImageTag, now - 31 * DAY, 60), "none", None, 0),
            ("nothing", vec![], "none", None, 0),
        ];
        for (name, history, tier, request, samples) in table {
            let got = answer(&history, now);
            assert_eq!((got.tier.as_str(), got.request, got.samples), (tier, request, samples), "{name}");
        }
    }

    #[test]
    fn a_tier_of_minutes_gives_way_to_one_that_knows_days() {
        let now = 100 * DAY;
        let (hour, days) =
            (minutes(Scope::ImageTag, now - 70, 70), minutes(Scope::ImageTag, now - 3 * DAY, 3 * DAY));
        let image = |days: u64| minutes(Scope::Image, now - days * DAY, days * DAY);
        let month = minutes(Scope::ImageTag, now - 20 * DAY, 120);
        let table = [
            ("an hour, nothing else", hour.clone(), "image:tag 7d"),
            ("an hour, another tag for days", [image(5), hour.clone()].concat(), "image 30d"),
            ("an hour, and one of three weeks ago", [month, hour.clone()].concat(), "image:tag 30d"),
            ("days, another tag for longer", [image(20), days].concat(), "image:tag 7d"),
            (
                "an hour, another tag for ten minutes",
                [minutes(Scope::Image, now - 10, 10), hour].concat(),
                "image:tag 7d",
            ),
        ];
        for (name, history, tier) in table {
            assert_eq!(answer(&history, now).tier, tier, "{name}");
        }
    }

    /// Use below a thousandth of a core is told as 0 by many sources.
    #[test]
    fn idle_containers_ask_for_the_least_there_is_and_never_for_nothing() {
        let now = 100 * DAY;
        for (resource, least) in [(Resource::Cpu, 1_000), (Resource::Memory, 4_096)] {
            let mut history = Mixed {
                minutes: (0..100).map(|i| at(now - 100 + i, 0)).collect(),
                days: Vec::new(),
                only: history::Scope::ImageTag,
            };
            let question = Question { resource, now_ms: now * 60_000, current: None, previous: None };
            let ask = |history: &Mixed| InitialParams::default().recommend(&question, history);
            assert_eq!((ask(&history).request, ask(&history).risk_then), (Some(least), Some(0.0)));
            let mut day = history::Day { day: 97, ..history::Day::default() };
            day.minutes.add(0, 1_000);
            history.days.push(day);
            assert_eq!(ask(&history).request, Some(least), "{resource:?} of days");
        }
    }

    #[test]
    fn span_confidence_and_risk_come_from_the_tiers_own_samples() {
        let now = 100 * DAY;
        let got = answer(&minutes(Scope::ImageTag, now - 99, 100), now);
        assert_eq!((got.span_seconds, got.risk_now, got.risk_then), (6000, Some(0.5), Some(0.1)));
        assert!((got.confidence - 100.0 / (7.0 * DAY as f64)).abs() < 1e-12);
    }

    /// Minutes of the last day and days before.
    struct Mixed {
        minutes: Vec<Minute>,
        days: Vec<history::Day>,
        only: history::Scope,
    }

    impl History for Mixed {
        fn minutes(&self, scope: history::Scope, from: u64) -> Vec<Minute> {
            let asked = self.minutes.iter().filter(|m| scope == self.only && m.minute >= from);
            asked.copied().collect()
        }
        fn hours(&self, _: history::Scope, _: u64) -> Vec<history::Hour> {
            Vec::new()
        }
        fn days(&self, scope: history::Scope, from: u64) -> Vec<history::Day> {
            self.days.iter().filter(|d| scope == self.only && d.day >= from).cloned().collect()
        }
        fn events(&self, _: u64) -> Vec<history::Event> {
            Vec::new()
        }
    }

    fn at(minute: u64, value: u64) -> Minute {
        Minute { minute, mean: value * UNIT, peak: 2 * value * UNIT, weight_ms: 60_000 }
    }

    #[test]
    fn the_rule_takes_minutes_exactly_and_days_before_them() {
        let now = 100 * DAY;
        let question =
            Question { resource: Resource::Cpu, now_ms: now * 60_000, current: None, previous: None };
        let mut history = Mixed {
            minutes: (0..100).map(|i| at(now - 100 + i, i + 1)).collect(),
            days: Vec::new(),
            only: history::Scope::ImageTag,
        };
        let exact = InitialParams::default().recommend(&question, &history);
        assert_eq!(
            (exact.request, exact.samples, exact.tier.as_str()),
            (Some(90 * UNIT), 100, "image:tag 7d")
        );
        let memory = Question { resource: Resource::Memory, ..question };
        assert_eq!(InitialParams::default().recommend(&memory, &history).request, Some(180 * UNIT));
        // A day of a thousand higher minutes before; and the day of the minutes itself, which is not counted twice.
        for day in [97, 99] {
            let mut all = history::Day { day, ..history::Day::default() };
            all.minutes.add(1_000_000 * UNIT, 1_000);
            history.days.push(all);
        }
        history.minutes.iter_mut().for_each(|m| m.minute += DAY);
        let question = Question { now_ms: question.now_ms + DAY * 60_000, ..question };
        let mixed = InitialParams::default().recommend(&question, &history);
        assert_eq!((mixed.samples, mixed.request > Some(990_000 * UNIT)), (2_100, true));
    }

    #[test]
    fn the_namespace_comes_first_where_wished() {
        let now = 100 * DAY;
        let question =
            Question { resource: Resource::Cpu, now_ms: now * 60_000, current: None, previous: None };
        let of =
            |only| Mixed { minutes: (0..60).map(|i| at(now - 60 + i, 5)).collect(), days: Vec::new(), only };
        let rule = NamespaceFirst(InitialParams::default());
        let tier = |only| rule.recommend(&question, &of(only)).tier;
        assert_eq!(tier(history::Scope::NamespaceImageTag), "namespace image:tag 7d");
        assert_eq!(tier(history::Scope::Image), "image 30d");
        let without = InitialParams::default().recommend(&question, &of(history::Scope::NamespaceImageTag));
        assert_eq!(without.tier, "none");
    }
}
