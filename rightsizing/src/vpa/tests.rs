//! The estimator against values computed by hand from the published rules.

use super::*;
use crate::history::{Day, Event, Hour, Minute};

const MIB: u64 = 1 << 20;
const T0: u64 = 20_000 * DAY_MS;

/// End of the bucket of a value, as the documented bounds give it.
fn end(resource: Resource, value: f64) -> f64 {
    let buckets = Buckets::of(resource);
    buckets.start(buckets.index(value) + 1)
}

/// What the rule makes of a percentile without widening: cut, a margin that is cut, and in the units of answers.
fn estimate(resource: Resource, percentile: f64) -> u64 {
    let (units, size) = if resource == Resource::Cpu { (1e3, 1_000) } else { (1.0, 1) };
    let base = (percentile * units) as u64;
    (base + (base as f64 * 0.15) as u64) * size
}

fn bare() -> VpaParams {
    VpaParams { min_cpu_micro: 0, min_memory_bytes: 0, ..VpaParams::default() }
}

#[test]
fn steady_cpu_is_its_bucket_and_fifteen_percent() {
    let mut estimator = Estimator::new(bare(), Resource::Cpu);
    for minute in 0..=1_440 {
        estimator.sample(T0 + minute * 60_000, 500_000);
    }
    let answer = estimator.answer(None);
    let base = estimate(Resource::Cpu, end(Resource::Cpu, 0.5));
    assert_eq!(answer.request, Some(base));
    let base = base as f64;
    // A day of one sample a minute: confidence 1, upper x2, lower x(1.001)^-2.
    assert!((estimator.confidence() - 1.0).abs() < 1e-3);
    let (lower, upper) = (answer.lower.unwrap() as f64, answer.upper.unwrap() as f64);
    assert!((upper / base - 2.0).abs() < 1e-3, "{upper}");
    assert!((lower / base - 1.001f64.powi(-2)).abs() < 2e-3, "{lower}");
}

/// Target, lower and upper bound in millicores or bytes of a day (or so many minutes) of one use, worked out step by step
/// from the published bucket bounds. 0.2 cores lie in the bucket that
/// ends at 0.215785: 215 m, and 15 % of that are 32.25.
#[test]
fn every_step_is_cut_to_whole_millicores_and_bytes() {
    let cpu = [
        (200_000, 1_440, [247, 246, 494]),
        (0, 1_440, [11, 10, 22]),
        (5_000, 1_440, [11, 10, 22]),
        (10_000, 1_440, [23, 22, 46]),
        (50_000, 1_440, [63, 62, 126]),
        (100_000, 1_440, [126, 125, 252]),
        (500_000, 1_440, [587, 585, 1_174]),
        (1_000_000, 1_440, [1_168, 1_165, 2_336]),
        (4_000_000, 1_440, [4_742, 4_732, 9_484]),
        (200_000, 720, [247, 246, 741]),
        (200_000, 60, [247, 235, 6_175]),
        (200_000, 2 * 1_440, [247, 246, 370]),
    ];
    for (value, minutes, want) in cpu {
        let mut estimator = Estimator::new(bare(), Resource::Cpu);
        (0..=minutes).for_each(|minute| estimator.sample(T0 + minute * 60_000, value));
        let answer = estimator.answer(None);
        let got = [answer.request, answer.lower, answer.upper].map(|v| v.unwrap());
        assert_eq!(got, want.map(|milli| milli * 1_000), "{value} for {minutes} minutes");
    }
    // One peak at the end of its window; 100 MiB lie in the bucket that ends at 110,265,643.195 bytes.
    for (value, want) in [
        (100 * MIB, [126_805_489, 126_552_257, 253_610_978]),
        (9_000_000, [11_500_000, 11_477_034, 23_000_000]),
        (1 << 30, [1_238_659_775, 1_236_186_166, 2_477_319_550]),
    ] {
        let mut estimator = Estimator::new(bare(), Resource::Memory);
        (0..=1_440).for_each(|minute| estimator.sample(T0 + minute * 60_000, value));
        let answer = estimator.answer(None);
        assert_eq!([answer.request, answer.lower, answer.upper].map(|v| v.unwrap()), want, "{value}");
    }
}

/// What the recommender of VPA 1.7.1 wrote into the status of two objects, from the bucket weights of its own checkpoints
/// at that time and 553 seconds of samples (recorded beside a kube-apiserver 1.36.2).
#[test]
fn a_recorded_recommender_is_answered_like() {
    let web = [(6, 6_002), (7, 6_669), (8, 10_000), (9, 9_345), (10, 8_004), (11, 8_008), (12, 2_666)];
    let oomer = [(1, 2_220), (2, 10_000), (3, 8_886)];
    for (weights, want) in [(&web[..], [182, 106, 31_919]), (&oomer[..], [49, 26, 7_704])] {
        let mut estimator = Estimator::new(VpaParams::default(), Resource::Cpu);
        let buckets = Buckets::of(Resource::Cpu);
        let (first, last) = (T0, T0 + 553_000);
        for (bucket, count) in weights {
            let middle = buckets.start(*bucket).midpoint(buckets.start(*bucket + 1));
            let value = (middle * 1e6) as u64;
            estimator.alike(AggregateSample { time_ms: last, value, count: *count });
        }
        estimator.cover(first, last);
        let answer = estimator.answer(None);
        let got = [answer.request, answer.lower, answer.upper].map(|v| v.unwrap() / 1_000);
        assert_eq!(got, want);
    }
}

/// After 12 hours the upper bound is three times, after 5 minutes the lower one 0.6 times the estimate.
#[test]
fn bounds_widen_while_there_is_little_history() {
    for (minutes, lower, upper) in [(5, 0.603, 289.0), (30, 0.91, 49.0), (60, 0.954, 25.0), (720, 0.996, 3.0)]
    {
        let mut estimator = Estimator::new(bare(), Resource::Cpu);
        for minute in 0..=minutes {
            estimator.sample(T0 + minute * 60_000, 1_000_000);
        }
        let answer = estimator.answer(None);
        let base = answer.request.unwrap() as f64;
        assert!((answer.lower.unwrap() as f64 / base - lower).abs() < 0.002, "{minutes} lower");
        assert!((answer.upper.unwrap() as f64 / base / upper - 1.0).abs() < 0.01, "{minutes} upper");
    }
}

#[test]
fn ninety_percent_of_decayed_time_counts() {
    let mut estimator = Estimator::new(bare(), Resource::Cpu);
    // Two days ago 2 cores, since then 0.1: 48 samples weigh a quarter each, 96 of the last day 1 or more.
    for at in 0..10 {
        estimator.sample(T0 + at, 2_000_000);
    }
    for at in 0..20 {
        estimator.sample(T0 + 2 * DAY_MS + at, 100_000);
    }
    // 10 / 4 of 22.5 is 11.1 % above.
    assert_eq!(estimator.answer(None).request, Some(estimate(Resource::Cpu, end(Resource::Cpu, 2.0))));
    for at in 20..30 {
        estimator.sample(T0 + 2 * DAY_MS + at, 100_000);
    }
    // 2.5 of 32.5 is 7.7 %.
    assert_eq!(estimator.answer(None).request, Some(estimate(Resource::Cpu, end(Resource::Cpu, 0.1))));
}

#[test]
fn memory_counts_one_peak_a_day_from_the_first_sample() {
    let mut estimator = Estimator::new(bare(), Resource::Memory);
    for (hours, mib) in [(0, 100), (5, 900), (23, 200), (24, 300), (30, 250)] {
        estimator.sample(T0 + hours * 3_600_000, mib * MIB);
    }
    // Peaks 900 (weight 1) and 300 (weight 2): p90 is 900, p50 is 300.
    let answer = estimator.answer(None);
    let value = |mib: f64| estimate(Resource::Memory, end(Resource::Memory, mib * MIB as f64));
    assert_eq!(answer.request, Some(value(900.0)));
    assert!(answer.lower.unwrap() <= value(300.0));
}

/// `addMemorySample` only replaces a peak that is not zero (`oldMaxMem != 0`), and so does this.
#[test]
fn a_window_that_begins_with_zero_keeps_it() {
    let mut estimator = Estimator::new(bare(), Resource::Memory);
    estimator.sample(T0, 0);
    estimator.sample(T0 + 1_000, 900 * MIB);
    assert_eq!(estimator.answer(None).request, Some(estimate(Resource::Memory, end(Resource::Memory, 0.0))));
}

#[test]
fn an_oom_kill_is_a_peak_a_fifth_or_100_mib_above() {
    for (used, request, wanted) in [(100, None, 200), (1_000, None, 1_200), (100, Some(2_000), 2_400)] {
        let mut estimator = Estimator::new(bare(), Resource::Memory);
        estimator.sample(T0, used * MIB);
        estimator.oom(T0 + 1_000, request.map(|mib: u64| mib * MIB));
        // A second one starts from usage and request again, not from the first bump.
        estimator.oom(T0 + 2_000, request.map(|mib: u64| mib * MIB));
        let value = estimate(Resource::Memory, end(Resource::Memory, f64::from(wanted) * MIB as f64));
        assert_eq!(estimator.answer(None).request, Some(value), "{used} {request:?}");
    }
    let mut old = Estimator::new(bare(), Resource::Memory);
    old.sample(T0 + 2 * DAY_MS, 100 * MIB);
    old.oom(T0, Some(5_000 * MIB));
    assert_eq!(
        old.answer(None).request,
        Some(estimate(Resource::Memory, end(Resource::Memory, 100.0 * MIB as f64)))
    );
}

#[test]
fn floors_hold_and_nothing_is_said_of_nothing() {
    let mut estimator = Estimator::new(VpaParams::default(), Resource::Cpu);
    assert_eq!(estimator.answer(None), Answer::none());
    estimator.sample(T0, 1_000);
    assert_eq!(estimator.answer(None).request, Some(25_000));
}

#[derive(Default)]
struct Past {
    minutes: Vec<Minute>,
    hours: Vec<Hour>,
    days: Vec<Day>,
    events: Vec<Event>,
}

impl History for Past {
    fn minutes(&self, _: Scope, from: u64) -> Vec<Minute> {
        self.minutes.iter().filter(|m| m.minute >= from).copied().collect()
    }
    fn hours(&self, _: Scope, from: u64) -> Vec<Hour> {
        self.hours.iter().filter(|h| h.hour >= from).cloned().collect()
    }
    fn days(&self, _: Scope, from: u64) -> Vec<Day> {
        self.days.iter().filter(|d| d.day >= from).cloned().collect()
    }
    fn events(&self, from_ms: u64) -> Vec<Event> {
        self.events.iter().filter(|e| e.time_ms >= from_ms).copied().collect()
    }
}

#[test]
fn the_rule_reads_minutes_and_events_before_now_in_order() {
    let first = T0 / 60_000;
    let minute = |at, mib| Minute { minute: first + at, mean: mib * MIB, peak: mib * MIB, weight_ms: 60_000 };
    let event = Event {
        time_ms: T0 + 90_000,
        cause: Cause::OomKill,
        usage: None,
        request: Some(500 * MIB),
        limit: None,
        age_ms: None,
    };
    let history = Past {
        minutes: vec![minute(0, 100), minute(1, 150), minute(9, 9_000)],
        events: vec![event],
        ..Past::default()
    };
    let question =
        Question { resource: Resource::Memory, now_ms: T0 + 5 * 60_000, current: None, previous: None };
    let wanted = estimate(Resource::Memory, end(Resource::Memory, 600.0 * MIB as f64));
    assert_eq!(bare().recommend(&question, &history).request, Some(wanted));
}

/// Three replicas for eight and a half days with days, nights and a growing load, and one kill.
fn replicas() -> Past {
    let (first, minutes) = (T0 / 60_000 + 600, 8 * 1_440 + 720);
    let mut past = Past::default();
    for minute in first..first + minutes {
        for replica in 0..3 {
            let swing = (minute * 7 + replica * 13) % 29 + if minute % 1_440 < 600 { 10 } else { 60 };
            let mean = swing * 10 * MIB + (minute - first) * MIB / 100;
            past.minutes.push(Minute { minute, mean, peak: mean + 5 * MIB, weight_ms: 60_000 });
        }
    }
    for one in &past.minutes {
        let (hour, day) = (one.minute / 60, one.minute / 1_440);
        if past.hours.last().is_none_or(|last| last.hour != hour) {
            past.hours.push(Hour { hour, ..Hour::default() });
        }
        if past.days.last().is_none_or(|last| last.day != day) {
            past.days.push(Day { day, ..Day::default() });
        }
        let (hour, day) = (past.hours.last_mut().unwrap(), past.days.last_mut().unwrap());
        hour.all.add(one.mean, one.weight_ms);
        hour.peak = hour.peak.max(one.peak);
        day.minutes.add(one.mean, 1);
        day.peak = day.peak.max(one.peak);
    }
    past.events.push(Event {
        time_ms: (first + minutes) * 60_000 - 12 * 3_600_000,
        cause: Cause::OomKill,
        usage: None,
        request: Some(700 * MIB),
        limit: None,
        age_ms: None,
    });
    past
}

#[test]
fn days_and_hours_answer_nearly_as_minutes_do() {
    let mut past = replicas();
    let now_ms = (past.minutes.last().unwrap().minute + 1) * 60_000;
    for resource in Resource::ALL {
        let question = Question { resource, now_ms, current: Some(800 * MIB), previous: None };
        past = Past { minutes: replicas().minutes, ..past };
        let exact = bare().recommend(&question, &past);
        past.minutes.clear();
        let wide = bare().recommend(&question, &past);
        let near = |a: Option<u64>, b: Option<u64>, part: f64| {
            let (a, b) = (a.unwrap() as f64, b.unwrap() as f64);
            assert!((a / b - 1.0).abs() <= part, "{resource:?}: {wide:?} instead of {exact:?}");
        };
        // One bucket of the rule, five percent, at most; memory's window may begin within the hour.
        near(wide.request, exact.request, 0.051);
        near(wide.lower, exact.lower, 0.051);
        near(wide.upper, exact.upper, 0.051);
        near(Some(wide.span_seconds), Some(exact.span_seconds), 0.02);
        near(Some(wide.samples), Some(exact.samples), 0.07);
        assert_eq!(wide.confidence, exact.confidence);
        assert!((wide.risk_now.unwrap() - exact.risk_now.unwrap()).abs() < 0.05, "{wide:?} {exact:?}");
    }
    let nothing = Past::default();
    let question = Question { resource: Resource::Cpu, now_ms, current: None, previous: None };
    assert_eq!(bare().recommend(&question, &nothing), Answer::none());
}

#[test]
fn the_least_of_a_pod_is_split_over_its_containers() {
    // 25 m and 250 MiB, cut to whole millicores and bytes.
    for (containers, cpu, memory) in [
        (0, 25, 262_144_000),
        (1, 25, 262_144_000),
        (2, 12, 131_072_000),
        (3, 8, 87_381_333),
        (5, 5, 52_428_800),
    ] {
        let params = VpaParams::default().of_pod(containers);
        assert_eq!((params.min_cpu_micro, params.min_memory_bytes), (cpu * 1_000, memory), "{containers}");
    }
}

#[test]
fn what_a_checkpoint_keeps_answers_alike() {
    let params = VpaParams::default();
    for resource in Resource::ALL {
        let mut whole = Estimator::new(params, resource);
        for minute in 0..3 * 1_440u64 {
            let value = match resource {
                Resource::Cpu => 100_000 + (minute * 7_919) % 900_000,
                Resource::Memory => (200 << 20) + (minute * 7_919) % (300 << 20),
            };
            whole.sample(minute * 60_000, value);
        }
        let now_ms = 3 * 1_440 * 60_000;
        let saved = whole.saved(now_ms);
        assert!(saved.histogram.weights.values().max() == Some(&10_000));
        let again = Estimator::of_saved(params, resource, &saved);
        let (before, after) = (whole.answer(None), again.answer(None));
        assert_eq!(
            (before.samples, before.span_seconds, before.confidence),
            (after.samples, after.span_seconds, after.confidence)
        );
        let near =
            |a: Option<u64>, b: Option<u64>| (a.unwrap() as f64 / b.unwrap() as f64 - 1.0).abs() < 0.06;
        assert!(
            near(before.request, after.request) && near(before.upper, after.upper),
            "{before:?} {after:?}"
        );
        // The weights of a checkpoint are what is left of them.
        let twice = again.saved(now_ms);
        assert_eq!(twice.histogram.weights, saved.histogram.weights);
        assert!((twice.histogram.total / saved.histogram.total - 1.0).abs() < 1e-9);
        // Two halves are the whole, whichever is later.
        let halves = [0..1_440u64, 1_440..3 * 1_440].map(|minutes| {
            let mut half = Estimator::new(params, resource);
            minutes.for_each(|minute| half.sample(minute * 60_000, 500_000_000));
            half
        });
        let mut merged = halves[1].clone();
        merged.merge(&halves[0]);
        assert_eq!(merged.answer(None).samples, 3 * 1_440);
        assert_eq!(merged.answer(None).request, halves[0].answer(None).request);
    }
}

#[test]
fn a_checkpoint_that_makes_no_sense_tells_nothing() {
    let histogram = |weights: &[(usize, u32)], total: f64| SavedHistogram {
        reference_ms: 0,
        weights: weights.iter().copied().collect(),
        total,
    };
    for wrong in [
        histogram(&[], 1.0),
        histogram(&[(3, 0)], 1.0),
        histogram(&[(3, 1)], -1.0),
        histogram(&[(3, 1)], f64::NAN),
        histogram(&[(900, 1)], 1.0),
    ] {
        let saved = Saved { histogram: wrong, span_ms: Some((0, 1)), samples: 5 };
        assert_eq!(
            Estimator::of_saved(VpaParams::default(), Resource::Cpu, &saved).answer(None).request,
            None
        );
    }
}
