//! The reader, the schedule and the judge by example.

use super::past::TracePast;
use super::replay::{self, replay};
use super::score::Summary;
use super::trace::{TraceReader, TraceSeries};
use super::*;
use crate::Resource;
use crate::history::{Day, History, Hour, Scope};
use crate::named::NamedRule;
use crate::units::HOUR_MS;
use proptest::prelude::*;

fn read(text: &str, resource: Resource) -> Result<Vec<TraceSeries>, String> {
    let mut reader = TraceReader::new(resource);
    reader.feed(text.as_bytes()).map_err(|bad| bad.to_string())?;
    reader.finish().map_err(|bad| bad.to_string())
}

#[test]
fn series_may_be_mixed_and_names_quoted() {
    let text =
        "\u{feff}series,t,value\r\na,1,0.5\r\n\"b, \"\"2\"\"\",1.5,2\n\na,2,1e-3\n\"b, \"\"2\"\"\",3,0";
    let trace = read(text, Resource::Cpu).unwrap();
    let flat: Vec<_> = trace
        .iter()
        .flat_map(|series| series.samples.iter().map(|s| (series.name.as_str(), s.time_ms, s.value)))
        .collect();
    let b = "b, \"2\"";
    assert_eq!(flat, [("a", 1_000, 500_000), ("a", 2_000, 1_000), (b, 1_500, 2_000_000), (b, 3_000, 0)]);
}

#[test]
fn bad_lines_are_told_with_number_reason_and_remedy() {
    for (text, part) in [
        ("", "line 1: no sample"),
        ("series,t,value\n", "line 1: no sample"),
        ("a,1,2\n", "line 1: the header is \"a,1,2\"; begin with the line series,t,value"),
        ("series,t,value\na,1\n", "line 2: 2 fields instead of 3"),
        ("series,t,value\na,1,2,3\n", "line 2: 4 fields instead of 3"),
        ("series,t,value\na\n", "line 2: 1 field"),
        ("series,t,value\n,1,2\n", "line 2: the name of the series is empty"),
        ("series,t,value\n\"a,1,2\n", "line 2: a quote is not closed"),
        ("series,t,value\na,1,2\na,2,NaN\n", "line 3: value \"NaN\" is no number"),
        ("series,t,value\na,1,-2\n", "line 2: value \"-2\" is negative"),
        ("series,t,value\na,-1,2\n", "line 2: t \"-1\" is negative"),
        ("series,t,value\na,1,inf\n", "line 2: value \"inf\" is too large"),
        (
            "series,t,value\na,1700000000000,1\n",
            "line 2: t \"1700000000000\" is too large; give t in seconds",
        ),
        ("series,t,value\na,2,1\nb,1,1\na,1.5,1\n", "line 4: t 1.5 does not come after 2"),
        ("series,t,value\na,2,1\na,2,1\n", "line 3: t 2 does not come after 2"),
    ] {
        let error = read(text, Resource::Cpu).unwrap_err();
        assert!(error.contains(part), "{text:?}: {error}");
    }
    let long = format!("series,t,value\n{}", "a".repeat(100_000));
    assert!(read(&long, Resource::Cpu).unwrap_err().contains("line 2: longer than 65536 bytes"));
}

proptest! {
    #[test]
    fn where_the_bytes_are_cut_does_not_matter(cut in 1usize..40) {
        let text = "series,t,value\na,1,0.5\nlonger name,10,7.25\na,2,0.125\n";
        let mut reader = TraceReader::new(Resource::Cpu);
        for part in text.as_bytes().chunks(cut) {
            reader.feed(part).unwrap();
        }
        prop_assert_eq!(reader.finish().unwrap(), read(text, Resource::Cpu).unwrap());
    }
}

/// A series of so many hours, a sample every five minutes.
fn series(hours: u64, value: impl Fn(u64) -> u64) -> TraceSeries {
    let at = |n| TraceSample { time_ms: 1_000_000_000 + n * 300_000, value: value(n) };
    TraceSeries { name: "s".into(), samples: (0..=hours * 12).map(at).collect() }
}

#[test]
fn short_series_warm_up_for_half_their_days() {
    let first = |hours| {
        let series = series(hours, |_| 1);
        let times: Vec<u64> = Schedule::default().times(&series.samples).collect();
        times.first().map(|time| (time - 1_000_000_000) / DAY_MS)
    };
    assert_eq!(
        [12, 36, 5 * 24, 8 * 24 - 1, 10 * 24 - 1, 10 * 24, 30 * 24].map(first),
        [None, Some(1), Some(2), Some(3), Some(4), Some(7), Some(7)]
    );
}

#[test]
fn a_gap_is_not_filled() {
    let at = |time_ms| TraceSample { time_ms, value: 1 };
    let samples = [at(0), at(60_000), at(120_000), at(9_000_000), at(9_060_000)];
    let weights = Weighted::new(&samples).range(0..5).map(|(_, weight)| weight);
    assert_eq!(weights.collect::<Vec<_>>(), [60_000; 5]);
}

#[test]
fn a_known_rule_gets_the_score_worked_out_by_hand() {
    // Use is 1 core, and on the last day 2 for 6 hours; `initial` asks for 1 core throughout.
    let series = series(240, |n| if (2_700..2_772).contains(&n) { 2_000_000 } else { 1_000_000 });
    let outcome = replay(&series, Resource::Cpu, &NamedRule::parse("initial").unwrap(), &Schedule::default());
    assert_eq!(outcome.requests.iter().map(|r| r.request).collect::<Vec<_>>(), [1_000_000; 4]);
    let score = &outcome.score;
    assert_eq!(score.steps, 3);
    // Over: 1 core is above 0.95 all the time.
    assert!((score.over() - 1.0).abs() < 1e-9);
    assert!((score.oom24() - 1.0 / 3.0).abs() < 1e-9);
    // (1 + 1 + 1.25) / 3 used of 1.
    assert!((score.slack() + 1.0 / 12.0).abs() < 1e-9, "{}", score.slack());
    assert_eq!(score.churn(), 0.0);
    let summary = Summary::of(Resource::Cpu, [score]).unwrap();
    // 8.3 % of the time at 2 cores: the factor that leaves 1 % is 2 / 0.95.
    assert!((summary.factor - 2.0 / 0.95).abs() < 0.01, "{}", summary.factor);
    assert_eq!((summary.series, summary.steps, summary.bad), (1, 3, 1.0));
}

proptest! {
    /// The past that is counted fast is the one that is counted plainly.
    #[test]
    fn hours_and_days_are_those_of_the_samples(
        steps in prop::collection::vec((1u64..40 * 60_000, any::<u64>(), 0u64..1 << 20), 1..400),
        gap in 0u64..40 * DAY_MS,
        from in 0u64..100,
    ) {
        let mut past = TracePast::new(Resource::Cpu, false);
        let (mut hours, mut days): (Vec<Hour>, Vec<Day>) = Default::default();
        let mut time_ms = 1_000 * DAY_MS;
        for (at, (distance, value, weight)) in steps.iter().enumerate() {
            time_ms += distance + if at == 100 { gap } else { 0 };
            past.add(TraceSample { time_ms, value: *value }, *weight);
            let (hour, day) = (time_ms / HOUR_MS, time_ms / DAY_MS);
            if hours.last().is_none_or(|last| last.hour != hour) {
                hours.push(Hour { hour, ..Hour::default() });
            }
            if days.last().is_none_or(|last| last.day != day) {
                days.push(Day { day, ..Day::default() });
            }
            let (hour, day) = (hours.last_mut().unwrap(), days.last_mut().unwrap());
            hour.all.add(*value, *weight);
            day.all.add(*value, *weight);
            (hour.peak, day.peak) = (hour.peak.max(*value), day.peak.max(*value));
        }
        // Nine days of hours are kept, and 31 of days.
        let now = (time_ms / HOUR_MS, time_ms / DAY_MS);
        hours.retain(|hour| hour.hour >= (now.0 - 216).max(24_000 + from));
        days.retain(|day| day.day >= (now.1 - 31).max(1_000 + from / 24));
        prop_assert_eq!(past.hours(Scope::Own, 24_000 + from), hours);
        prop_assert_eq!(past.days(Scope::Own, 1_000 + from / 24), days);
    }
}

/// Requests that a change of how the past is counted must not change.
#[test]
fn requests_of_a_seeded_series_stay_what_they_are() {
    let mut state = 42u64;
    let mut chance = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    let series = series(20 * 24, |_| 0);
    let value = |n: u64, chance: u64| {
        200_000
            + 50 * n
            + 10_000 * (n / 12 % 24)
            + chance % 100_000 * (1 + 9 * u64::from(chance.is_multiple_of(97)))
    };
    let samples = series
        .samples
        .iter()
        .zip(0..)
        .map(|(sample, n)| TraceSample { value: value(n, chance()), ..*sample });
    let series = TraceSeries { name: "seeded".into(), samples: samples.collect() };
    let schedule = Schedule { every_ms: 3 * DAY_MS, ..Schedule::default() };
    let requests = |rule| {
        let rule = NamedRule::parse(rule).unwrap();
        replay(&series, Resource::Cpu, &rule, &schedule)
            .requests
            .iter()
            .map(|r| r.request)
            .collect::<Vec<_>>()
    };
    for (rule, want) in [
        ("goal", [689_852, 724_345, 776_084, 827_823, 862_315]),
        ("goal:change=hourly", [689_852, 758_837, 793_330, 845_069, 896_808]),
        ("vpa", [671_000, 716_000, 763_000, 813_000, 864_000]),
        ("initial", [529_007, 573_306, 615_720, 657_168, 703_629]),
    ] {
        assert_eq!(requests(rule), want, "{rule}");
    }
}

#[test]
fn nobody_known_is_tier_none_under_every_rule() {
    for rule in ["goal", "vpa", "vpa-p99", "initial"] {
        for resource in [Resource::Cpu, Resource::Memory] {
            let rule = NamedRule::parse(rule).unwrap();
            let answer = replay::answer_at(&series(240, |_| 1_000_000), resource, &rule, 999_999_999);
            assert_eq!(
                (answer.tier.as_str(), answer.request, answer.confidence),
                ("none", None, 0.0),
                "{rule:?}"
            );
        }
    }
}

#[test]
fn a_steady_request_is_not_changed_by_every_sample() {
    // Bursts that make up 5 % of the time, a little more or less from day to day.
    let bursts = |n: u64| if n % 288 < if n / 288 % 6 < 3 { 12 } else { 17 } { 1_000_000 } else { 300_000 };
    let churn = |rule| {
        let rule = NamedRule::parse(rule).unwrap();
        replay(&series(28 * 24, bursts), Resource::Cpu, &rule, &Schedule::default()).score.churn()
    };
    assert!(churn("goal") < 0.02, "{}", churn("goal"));
}

#[test]
fn rules_see_only_what_lies_before_a_request() {
    let calm = series(240, |_| 1_000_000);
    let later = series(240, |n| if n >= 7 * 288 { 9_000_000 } else { 1_000_000 });
    for rule in ["goal", "vpa", "initial"] {
        let first = |series| {
            let rule = NamedRule::parse(rule).unwrap();
            replay(series, Resource::Cpu, &rule, &Schedule::default()).requests[0].request
        };
        assert_eq!(first(&calm), first(&later), "{rule}");
    }
}

#[test]
fn the_chart_shows_series_request_and_axes() {
    let mut series = series(240, |n| 1_000_000 + n * 100);
    series.name = "<web> & \"co\"".into();
    let outcome = replay(&series, Resource::Cpu, &NamedRule::default(), &Schedule::default());
    let svg = svg::chart(&series, &outcome.requests, Resource::Cpu, "goal");
    for part in [
        "&lt;web&gt; &amp; &quot;co&quot;",
        "<polygon",
        "<polyline",
        "cores",
        "days since",
        "request, rule goal",
    ] {
        assert!(svg.contains(part), "{part}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    let empty = TraceSeries { name: "one".into(), samples: series.samples[..1].to_vec() };
    assert!(!svg::chart(&empty, &[], Resource::Memory, "goal").contains("NaN"));
}

#[test]
fn the_report_holds_rules_against_each_other_and_draws() {
    let trace = [series(240, |n| 1_000_000 + n % 50 * 1_000), series(240, |n| 300_000 + n % 288 * 900)];
    let names = ["goal", "<krr>"];
    let outcomes = ["goal", "krr"].map(|rule| {
        let rule = NamedRule::parse(rule).unwrap();
        trace.iter().map(|one| replay(one, Resource::Cpu, &rule, &Schedule::default())).collect::<Vec<_>>()
    });
    let replayed = [0, 1].map(|at| html::Replayed { rule: names[at], outcomes: &outcomes[at] });
    let report = html::report(&trace, &replayed, Resource::Cpu, Some(0.04));
    for part in [
        "<h2>Less goal</h2>",
        "&lt;krr&gt;",
        "unused, a month",
        "cores requested",
        "<svg",
        "was over",
        "</html>",
    ] {
        assert!(report.contains(part), "{part}");
    }
    assert!(!report.contains("NaN") && !report.contains("<script"), "{report}");
    // Two series: each is drawn as one of those most over and as one of those most unused.
    assert_eq!(report.matches("<svg").count(), 4);
    assert!(!html::report(&[], &[], Resource::Memory, None).contains("NaN"));
}

/// Every rule answers series that hardly are any, and its requests stay what can be requested.
#[test]
fn odd_series_are_replayed_under_every_rule() {
    let every = |count: u64, value: fn(u64) -> u64| {
        (0..count)
            .map(|n| TraceSample { time_ms: 1_000_000_000 + n * 300_000, value: value(n) })
            .collect::<Vec<_>>()
    };
    // Two days, three weeks of nothing, and ten days.
    let gap = |n: u64| if n < 576 { 0 } else { 21 * DAY_MS };
    let mut gaps = every(12 * 288, |_| 500_000);
    gaps.iter_mut().zip(0..).for_each(|(sample, n)| sample.time_ms += gap(n));
    let kinds = [
        ("one sample", every(1, |_| 500_000), None),
        ("zero", every(12 * 288, |_| 0), Some(0..=100_000_000)),
        ("constant", every(12 * 288, |_| 500_000), Some(500_000..=700_000)),
        // A node whose cores are half as fast, where no conversion is known: the level of the last days is what counts.
        (
            "moved",
            every(12 * 288, |n| if n < 6 * 288 { 500_000 } else { 1_000_000 }),
            Some(1_000_000..=1_300_000),
        ),
        ("gaps", gaps, Some(500_000..=900_000)),
        ("huge", every(12 * 288, |_| u64::MAX), Some(u64::MAX / 2..=u64::MAX)),
        // A counter that was reset is a rate of nothing, and one that was read twice a rate twice as high.
        (
            "resets",
            every(
                12 * 288,
                |n| if n % 1_000 == 0 { 0 } else { 500_000 + 500_000 * u64::from(n % 1_000 == 1) },
            ),
            Some(500_000..=700_000),
        ),
    ];
    for (kind, samples, range) in kinds {
        let series = TraceSeries { name: kind.into(), samples };
        for name in [
            "goal",
            "goal:change=raise",
            "goal:change=hourly",
            "goal:over=0.001",
            "krr:min-cpu=0",
            "p99-7d",
            "vpa",
            "initial",
        ] {
            let rule = NamedRule::parse(name).unwrap();
            let schedule = Schedule { every_ms: 6 * HOUR_MS, ..Schedule::default() };
            let outcome = replay(&series, Resource::Cpu, &rule, &schedule);
            let score = &outcome.score;
            assert!(
                score.slack().is_finite() && (0.0..=1.0).contains(&score.over()),
                "{kind} {name}: {score:?}"
            );
            if let (Some(range), Some(last)) =
                (&range, outcome.requests.last().filter(|_| name.starts_with("goal:c") || name == "goal"))
            {
                assert!(range.contains(&last.request), "{kind} {name}: {last:?}");
            }
            let memory = replay(&series, Resource::Memory, &rule, &schedule);
            assert_eq!(memory.requests.is_empty(), outcome.requests.is_empty(), "{kind} {name}");
        }
    }
}
