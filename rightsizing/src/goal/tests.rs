//! The rule on made-up histories.

use super::*;
use crate::backtest::past::TracePast;
use crate::backtest::trace::TraceSample;
use crate::histogram::Histogram;
use crate::history::{Cause, Day, Event, Hour, Minute};

pub(super) const T0: u64 = 20_000 * DAY_MS;
const MINUTE: u64 = 60_000;
pub(super) const MIB: u64 = 1 << 20;

/// A past with events, and with other scopes.
pub(super) struct Made {
    own: TracePast,
    events: Vec<Event>,
    wider: Vec<(Scope, TracePast)>,
}

impl History for Made {
    fn minutes(&self, scope: Scope, from: u64) -> Vec<Minute> {
        self.own.minutes(scope, from)
    }
    fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
        self.own.hours(scope, from)
    }
    fn days(&self, scope: Scope, from: u64) -> Vec<Day> {
        let of = self.wider.iter().find(|(s, _)| *s == scope).map(|(_, past)| past);
        of.or((scope == Scope::Own).then_some(&self.own)).map_or_else(Vec::new, |past| past.days(scope, from))
    }
    fn events(&self, from_ms: u64) -> Vec<Event> {
        self.events.iter().filter(|e| e.time_ms >= from_ms).copied().collect()
    }
}

/// Samples every five minutes from `T0` on.
pub(super) fn past(resource: Resource, minutes: u64, value: impl Fn(u64) -> u64) -> TracePast {
    let mut past = TracePast::new(resource, false);
    for at in (0..minutes).step_by(5) {
        past.add(TraceSample { time_ms: T0 + at * MINUTE, value: value(at) }, 5 * MINUTE);
    }
    past
}

pub(super) fn made(own: TracePast) -> Made {
    Made { own, events: Vec::new(), wider: Vec::new() }
}

fn ask(history: &Made, resource: Resource, at_minutes: u64) -> Answer {
    let question = Question { resource, now_ms: T0 + at_minutes * MINUTE, current: None, previous: None };
    GoalParams::default().recommend(&question, history)
}

pub(super) const DAY: u64 = 24 * 60;

#[test]
fn a_calm_series_pays_only_the_margin() {
    let answer = ask(&made(past(Resource::Cpu, 14 * DAY, |_| 1_000_000)), Resource::Cpu, 14 * DAY);
    let request = answer.request.unwrap() as f64 / 1e6;
    // One core, a few percent of doubt, and 0.95.
    assert!((1.09..1.2).contains(&request), "{request}");
    assert_eq!((answer.tier.as_str(), answer.confidence), ("own", 1.0));
    assert!(answer.lower < answer.request && answer.request < answer.upper);
    assert!(answer.risk_then.unwrap() < 0.01);
}

#[test]
fn a_quiet_weekend_does_not_shrink_monday() {
    // T0 is a Monday in this made-up calendar: five busy days, two quiet ones.
    let busy = |at: u64| if (at / DAY) % 7 < 5 { 2_000_000 } else { 100_000 };
    let history = made(past(Resource::Cpu, 14 * DAY, busy));
    assert!(ask(&history, Resource::Cpu, 14 * DAY).request.unwrap() > 2_000_000);
    let memory = |at: u64| if (at / DAY) % 7 < 5 { 2_000 * MIB } else { 100 * MIB };
    let history = made(past(Resource::Memory, 14 * DAY, memory));
    assert!(ask(&history, Resource::Memory, 14 * DAY).request.unwrap() > 2_000 * MIB);
}

#[test]
fn a_peak_of_one_hour_a_week_is_remembered_until_it_comes_again() {
    let peak = |at: u64| (at / DAY).is_multiple_of(7) && at / 60 % 24 == 9;
    let memory = |at: u64| if peak(at) { 900 * MIB } else { 100 * MIB };
    // Six and a half days after the last one.
    let now = 2 * 7 * DAY - 60;
    let answer = ask(&made(past(Resource::Memory, now, memory)), Resource::Memory, now);
    assert!(answer.request.unwrap() > 900 * MIB, "{answer:?}");
    // Two hours a week are more than the objective allows.
    let peak = |at: u64| (at / DAY).is_multiple_of(7) && (9..11).contains(&(at / 60 % 24));
    let cpu = |at: u64| if peak(at) { 240_000 } else { 200_000 };
    let answer = ask(&made(past(Resource::Cpu, now, cpu)), Resource::Cpu, now);
    assert!(answer.request.unwrap() as f64 * 0.95 > 240_000.0, "{answer:?}");
}

#[test]
fn a_burst_is_left_out_where_it_costs_more_than_it_saves() {
    // One sample in `every` is so many times the usual.
    let request = |every: u64, times: f64| {
        let burst = move |at: u64| {
            if (at / 5).is_multiple_of(every) { (1_000_000.0 * times) as u64 } else { 1_000_000 }
        };
        ask(&made(past(Resource::Cpu, 28 * DAY, burst)), Resource::Cpu, 28 * DAY).request.unwrap() as f64
            * 0.95
    };
    for (every, times, is_covered) in
        [(200, 10.0, false), (200, 1.06, true), (34, 1.5, true), (20, 10.0, true), (100, 3.0, false)]
    {
        let covered = request(every, times) >= 1e6 * times;
        assert_eq!(covered, is_covered, "one in {every}, {times} times: {}", request(every, times));
    }
}

#[test]
fn an_answer_explains_itself_in_a_sentence() {
    let burst = |at: u64| if (at / 5).is_multiple_of(100) { 3_000_000 } else { 1_000_000 };
    let answer = ask(&made(past(Resource::Cpu, 28 * DAY, burst)), Resource::Cpu, 28 * DAY);
    let [sentence] = &answer.notes[..] else { panic!("{answer:?}") };
    let (low, rest) = sentence.split_once(" cores, 99.8 % below ").unwrap();
    let low: f64 = low.strip_prefix("97 % of the time below ").unwrap().parse().unwrap();
    assert!((1.0..1.04).contains(&low), "{sentence}");
    assert!(
        rest.starts_with("3.") && rest.ends_with("covering the rest would cost more than it saves"),
        "{sentence}"
    );
    // The bursts are 1 % of the time, and 0.2 % are expected that nobody foretells.
    let risk = answer.risk_then.unwrap();
    assert!((0.008..0.02).contains(&risk), "{risk}");
}

#[test]
fn a_stricter_objective_asks_for_more() {
    let mut state = 7u64;
    let mut noise = Vec::new();
    for _ in 0..28 * 288 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        noise.push(100_000.0 / (((state >> 33) as f64 + 1.0) / 2f64.powi(31)).powf(0.4));
    }
    let history = made(past(Resource::Cpu, 28 * DAY, |at| noise[(at / 5) as usize] as u64));
    let of = |over| {
        let params = GoalParams { cpu_over: over, ..GoalParams::default() };
        let now_ms = T0 + 28 * DAY_MS;
        let question = Question { resource: Resource::Cpu, now_ms, current: None, previous: None };
        let answer = params.recommend(&question, &history);
        (answer.request.unwrap(), answer.risk_then.unwrap())
    };
    let all = [0.05, 0.01, 0.001].map(of);
    assert!(all.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 > w[1].1), "{all:?}");
    let (_, risk) = of(0.01);
    assert!((0.003..0.02).contains(&risk), "{risk}");
}

/// Another threshold is another share of the request for the same height of use.
#[test]
fn a_threshold_scales_the_request_and_nothing_else() {
    let wave = |at: u64| 300_000 + 90_000 * (at / 60 % 24) + 400_000 * u64::from((at / 5).is_multiple_of(61));
    let history = made(past(Resource::Cpu, 28 * DAY, wave));
    let height = |cpu_fill: f64| {
        let params = GoalParams { cpu_fill, ..GoalParams::default() };
        let now_ms = T0 + 28 * DAY_MS;
        let question = Question { resource: Resource::Cpu, now_ms, current: None, previous: None };
        let answer = params.recommend(&question, &history);
        (answer.request.unwrap() as f64 * cpu_fill, answer.risk_then)
    };
    for fill in [0.5, 0.8, 1.0] {
        assert!((height(fill).0 / height(0.95).0 - 1.0).abs() < 1e-4, "{fill}");
        assert_eq!(height(fill).1, height(0.95).1, "{fill}");
    }
}

#[test]
fn the_first_day_asks_for_more_cpu_than_the_fourth_week() {
    let wave = |at: u64| 500_000 + 20_000 * ((at / 60) % 24) + 7_000 * (at / 5 % 13);
    let request =
        |days: u64| ask(&made(past(Resource::Cpu, days * DAY, wave)), Resource::Cpu, days * DAY).request;
    assert!(request(1) > request(3) && request(3) > request(28), "{:?}", [1, 3, 28].map(request));
}

fn ask_changing(change: ChangeFrequency, history: &Made, at_minutes: u64, previous: Option<u64>) -> Answer {
    let now_ms = T0 + at_minutes * MINUTE;
    let question = Question { resource: Resource::Cpu, now_ms, current: previous, previous };
    GoalParams { change, ..GoalParams::default() }.recommend(&question, history)
}

#[test]
fn a_new_level_raises_within_the_hour_and_for_two() {
    let begins = 14 * DAY + 90;
    let level = |at: u64| if (begins..begins + 60).contains(&at) { 3_000_000 } else { 1_000_000 };
    let history = made(past(Resource::Cpu, 15 * DAY, level));
    let at = |change, minutes| ask_changing(change, &history, begins + minutes, None);
    let before = at(ChangeFrequency::Raise, 0).request.unwrap();
    assert_eq!(at(ChangeFrequency::Raise, 20).request, Some(before), "a third of an hour");
    let raised = at(ChangeFrequency::Raise, 45);
    assert!(raised.request.unwrap() as f64 * 0.95 > 3e6, "{raised:?}");
    assert!(raised.notes.iter().any(|note| note.starts_with("raised: use was above 1.")), "{raised:?}");
    assert!(at(ChangeFrequency::Raise, 90).request.unwrap() > 3_000_000);
    for (change, minutes) in [(ChangeFrequency::Raise, 4 * 60), (ChangeFrequency::Day, 45)] {
        assert!(at(change, minutes).request.unwrap() < 1_400_000, "{change:?} {minutes}");
    }
}

#[test]
fn requests_by_the_hour_follow_the_day_and_do_not_flutter() {
    let wave =
        |at: u64| if (8..20).contains(&(at / 60 % 24)) { 2_000_000 } else { 400_000 } + 9_000 * (at / 5 % 11);
    let history = made(past(Resource::Cpu, 14 * DAY, wave));
    let mut requests = Vec::new();
    for hour in 0..48 {
        let previous = requests.last().copied();
        let request =
            ask_changing(ChangeFrequency::Hourly, &history, 12 * DAY + hour * 60, previous).request.unwrap();
        requests.push(request);
    }
    let at = |hour: usize| requests[24 + hour] as f64;
    assert!(at(12) * 0.95 > 2_100_000.0 && at(2) < 900_000.0, "{requests:?}");
    // It is up before the first busy hour.
    assert!(at(7) * 0.95 > 2_100_000.0 || at(8) * 0.95 > 2_100_000.0, "{requests:?}");
    let changes = requests.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!((2..=8).contains(&changes), "{changes}: {requests:?}");
}

#[test]
fn the_first_days_ask_for_more_than_the_first_weeks() {
    let wave = |at: u64| (500 + 400 * ((at / 60) % 24) / 24) * MIB;
    let request =
        |days: u64| ask(&made(past(Resource::Memory, days * DAY, wave)), Resource::Memory, days * DAY);
    assert!(request(1).request > request(7).request);
    assert!(request(1).confidence < request(7).confidence);
    assert!(request(1).upper > request(7).upper);
}

/// A container capped at half of its demand, with the cap following the request, is freed within days and then asks
/// for what it would have asked for without a cap.
#[test]
fn starvation_ends_at_the_true_demand() {
    let demand = |at: u64| 1_000_000 + 1_000_000 * ((at / 60) % 24) / 24;
    let free = ask(&made(past(Resource::Cpu, 30 * DAY, demand)), Resource::Cpu, 30 * DAY).request.unwrap();
    let mut cap = 1_000_000;
    let mut hours: Vec<Hour> = Vec::new();
    let mut starved_days = Vec::new();
    for day in 0..30 {
        let mut is_starved = false;
        for hour in 0..24 {
            let wanted = demand(day * DAY + hour * 60);
            let used = wanted.min(cap);
            let mut all = Histogram::new();
            all.add(used, HOUR_MS);
            let starved_ms = if wanted > cap { HOUR_MS } else { 0 };
            is_starved |= starved_ms > 0;
            hours.push(Hour {
                hour: T0 / HOUR_MS + day * 24 + hour,
                all,
                worst: None,
                peak: used,
                starved_ms,
            });
        }
        starved_days.push(is_starved);
        let history = Hours(hours.clone());
        let now_ms = T0 + (day + 1) * DAY_MS;
        let question = Question { resource: Resource::Cpu, now_ms, current: Some(cap), previous: Some(cap) };
        let answer = GoalParams::default().recommend(&question, &history);
        cap = answer.request.unwrap();
        assert!(!is_starved || answer.notes.iter().any(|note| note.starts_with("starved")), "{answer:?}");
    }
    assert!(starved_days[0], "the cap binds at first");
    assert!(starved_days[3..].iter().all(|starved| !starved), "{starved_days:?}");
    assert!(cap as f64 >= free as f64 * 0.95, "{cap} of {free}");
    assert!(cap as f64 <= free as f64 * 1.6, "{cap} of {free}: it stops growing when starvation ends");
}

struct Hours(Vec<Hour>);

impl History for Hours {
    fn minutes(&self, _: Scope, _: u64) -> Vec<Minute> {
        Vec::new()
    }
    fn hours(&self, _: Scope, from: u64) -> Vec<Hour> {
        self.0.iter().filter(|hour| hour.hour >= from).cloned().collect()
    }
    fn days(&self, _: Scope, _: u64) -> Vec<Day> {
        Vec::new()
    }
    fn events(&self, _: u64) -> Vec<Event> {
        Vec::new()
    }
}

#[test]
fn the_goal_holds_for_the_worst_replica() {
    let one = |value| {
        let mut histogram = Histogram::new();
        histogram.add(value, HOUR_MS);
        histogram
    };
    let hour = |at: u64| Hour {
        hour: T0 / HOUR_MS + at,
        all: one(100_000),
        worst: Some(one(900_000)),
        peak: 900_000,
        starved_ms: 0,
    };
    let history = Hours((0..14 * 24).map(hour).collect());
    let question =
        Question { resource: Resource::Cpu, now_ms: T0 + 14 * DAY_MS, current: None, previous: None };
    assert!(GoalParams::default().recommend(&question, &history).request.unwrap() > 900_000);
}

fn kill(at_minutes: u64, mib: u64) -> Event {
    Event {
        time_ms: T0 + at_minutes * MINUTE,
        cause: Cause::OomKill,
        usage: Some(mib * MIB),
        request: None,
        limit: None,
        age_ms: None,
    }
}

#[test]
fn oom_kills_count_outside_of_percentiles_and_repeated_ones_grow() {
    let least = |events: Vec<Event>| {
        let history = Made { events, ..made(past(Resource::Memory, 3 * DAY, |_| 100 * MIB)) };
        ask(&history, Resource::Memory, 3 * DAY).request.unwrap() / MIB
    };
    let day = 2 * DAY;
    let without = least(vec![]);
    assert!(without < 400, "{without}");
    assert_eq!(least(vec![kill(day, 1_000)]), 1_200);
    assert_eq!(least(vec![kill(day, 300)]), 400, "at least 100 MiB more");
    assert_eq!(least(vec![kill(day, 1_000), kill(day + 1, 1_000)]), 1_200, "one incident");
    assert_eq!(least(vec![kill(day, 1_000), kill(day + 30, 1_000)]), 1_400);
    assert_eq!(least(vec![kill(day, 1_000), kill(day + 30, 1_000), kill(day + 60, 1_000)]), 1_800);
}

/// A container that is capped at what was answered last, and killed when it wants more, as a node would do it: use is
/// seen up to the cap only, and every kill is answered at once.
#[test]
fn kills_end_within_few_steps_when_the_request_is_the_limit() {
    // Half of what it wants on ordinary days, a day of double after two weeks, and leaks in between.
    for wanted in [
        |at: u64| if at < 15 * DAY { 1_000 } else { 2_000 },
        |at: u64| 1_000 + at / 60,
        |at: u64| if at / 60 % 24 == 3 { 6_000 } else { 500 },
    ] {
        let mut history = Made { events: Vec::new(), ..made(TracePast::new(Resource::Memory, false)) };
        let (mut cap, mut kills) = (500 * MIB, Vec::new());
        for at in (0..30 * DAY).step_by(5) {
            let ask = |history: &Made, cap, at: u64| {
                let now_ms = T0 + at * MINUTE;
                let question =
                    Question { resource: Resource::Memory, now_ms, current: Some(cap), previous: Some(cap) };
                GoalParams::default().recommend(&question, history).request.unwrap_or(cap)
            };
            if at > 0 && at % DAY == 0 {
                cap = ask(&history, cap, at);
            }
            let use_now = wanted(at) * MIB;
            if use_now > cap {
                kills.push(at);
                let limit = Some(cap);
                let usage = Some(cap);
                history.events.push(Event { usage, request: limit, limit, ..kill(at, 0) });
                cap = ask(&history, cap, at + 1);
            }
            history.own.add(TraceSample { time_ms: T0 + at * MINUTE, value: use_now.min(cap) }, 5 * MINUTE);
        }
        let in_days =
            |days: std::ops::Range<u64>| kills.iter().filter(|at| days.contains(&(*at / DAY))).count();
        assert!(in_days(0..1) > 0, "the first cap is too small");
        // From an eighth of the peak upwards by 0.2, 0.4, 0.8 and 1.6 of what there was.
        assert!(in_days(0..1) <= 5 && in_days(1..15) <= 1, "{kills:?}");
        assert!(in_days(15..16) <= 4 && in_days(16..30) == 0, "{kills:?}");
    }
}

#[test]
fn a_kill_alone_is_an_answer() {
    let history = Made { events: vec![kill(0, 1_000)], ..made(TracePast::new(Resource::Memory, false)) };
    let answer = ask(&history, Resource::Memory, 10);
    assert_eq!((answer.request, answer.tier.as_str()), (Some(1_200 * MIB), "own"));
    assert_eq!(answer.notes, ["oom kills: 1"]);
    assert_eq!(ask(&made(TracePast::new(Resource::Cpu, false)), Resource::Cpu, 10), Answer::none());
}

#[test]
fn the_specific_replaces_the_general_within_two_days() {
    let own_of = |minutes| past(Resource::Cpu, minutes, |_| 100_000);
    let others = |scope| (scope, past(Resource::Cpu, 3 * DAY, |_| 1_000_000));
    let ask_with = |own: TracePast, wider: Vec<(Scope, TracePast)>| {
        ask(&Made { own, events: Vec::new(), wider }, Resource::Cpu, 3 * DAY)
    };
    let nobody = TracePast::new(Resource::Cpu, false);
    let answer = ask_with(nobody.clone(), vec![others(Scope::Image)]);
    assert_eq!((answer.tier.as_str(), answer.request > Some(1_000_000)), ("image", true));
    let answer =
        ask_with(nobody, vec![others(Scope::Image), others(Scope::ImageTag), others(Scope::Command)]);
    assert_eq!(answer.tier, "command");
    assert!(answer.confidence < 0.5);
    let answer = ask_with(own_of(3 * DAY), vec![others(Scope::Image)]);
    assert_eq!((answer.tier.as_str(), answer.request < Some(200_000)), ("own", true));
    // Half a day of its own.
    let mut young = TracePast::new(Resource::Cpu, false);
    for at in (5 * DAY / 2..3 * DAY).step_by(5) {
        young.add(TraceSample { time_ms: T0 + at * MINUTE, value: 100_000 }, 5 * MINUTE);
    }
    let answer = ask_with(young, vec![others(Scope::Image)]);
    assert_eq!((answer.tier.as_str(), answer.request > Some(500_000)), ("image", true));
    assert_eq!(answer.notes[0], "75 % from image");
}

#[test]
fn a_request_that_is_enough_and_near_stays() {
    let history = made(past(Resource::Cpu, 14 * DAY, |_| 1_000_000));
    let wanted = ask(&history, Resource::Cpu, 14 * DAY).request.unwrap();
    for (current, kept) in [(wanted + wanted / 60, true), (wanted - 1, false), (wanted * 2, false)] {
        let now_ms = T0 + 14 * DAY_MS;
        let question = Question { resource: Resource::Cpu, now_ms, current: Some(current), previous: None };
        let request = GoalParams::default().recommend(&question, &history).request.unwrap();
        assert_eq!(request, if kept { current } else { wanted }, "{current}");
    }
}

#[test]
fn a_higher_memory_answer_is_kept_and_a_lower_one_never() {
    let ask = |history: &Made, resource, days: u64, previous| {
        let question = Question { resource, now_ms: T0 + days * DAY_MS, current: None, previous };
        GoalParams::default().recommend(&question, history).request.unwrap()
    };
    let cpu = made(past(Resource::Cpu, 14 * DAY, |_| 1_000_000));
    let memory = made(past(Resource::Memory, 14 * DAY, |_| 1_000 * MIB));
    for (history, resource, factors) in [
        (&cpu, Resource::Cpu, [(1.2, false), (1.05, false), (0.99, false)]),
        (&memory, Resource::Memory, [(1.2, true), (1.3, false), (0.99, false)]),
    ] {
        let wanted = ask(history, resource, 14, None);
        for (factor, kept) in factors {
            let previous = (wanted as f64 * factor) as u64;
            let request = ask(history, resource, 14, Some(previous));
            assert_eq!(request, if kept { previous } else { wanted }, "{resource:?} {factor}");
        }
    }
    // In the first days every answer is followed.
    let young = made(past(Resource::Memory, 3 * DAY, |_| 1_000 * MIB));
    let wanted = ask(&young, Resource::Memory, 3, None);
    assert_eq!(ask(&young, Resource::Memory, 3, Some(wanted * 6 / 5)), wanted);
}

#[test]
fn a_kill_outdoes_what_was_answered_before() {
    let history = Made {
        events: vec![kill(13 * DAY, 1_500)],
        ..made(past(Resource::Memory, 14 * DAY, |_| 1_000 * MIB))
    };
    let now_ms = T0 + 14 * DAY_MS;
    let question =
        Question { resource: Resource::Memory, now_ms, current: None, previous: Some(1_700 * MIB) };
    assert_eq!(GoalParams::default().recommend(&question, &history).request, Some(1_800 * MIB));
}

#[test]
fn what_lies_after_now_is_not_used() {
    let rising = |at: u64| if at < 7 * DAY { 1_000_000 } else { 50_000_000 };
    let now = ask(&made(past(Resource::Cpu, 8 * DAY, rising)), Resource::Cpu, 7 * DAY);
    let then = ask(&made(past(Resource::Cpu, 7 * DAY, rising)), Resource::Cpu, 7 * DAY);
    assert_eq!(now.request, then.request);
}
