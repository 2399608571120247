//! Series of what containers did: values, gaps, replicas, pieces; what is predicted of them; and what bounds their answers.

use evenkeel_model::name::ResourceName;
use evenkeel_rightsizing::Resource;

use super::series::{Piece, SeriesRequest, SeriesStep, places, size, throttled};
use super::tests::{DAY, Feed, HOUR, MIB, MINUTE, SECOND, START, Site};
use super::usage::{self, UsageScope};

fn asked(resource: Resource, step: SeriesStep) -> SeriesRequest {
    SeriesRequest { whose: UsageScope::default(), resource, step, from: 0, to: 0 }
}

/// All of it, slice by slice, with the number of slices.
fn all(feed: &Feed, asked: &SeriesRequest) -> (Vec<Piece>, usize) {
    let (mut pieces, mut slices) = (Vec::new(), 0);
    for mut place in places(&feed.state, asked) {
        while place.has_more() {
            pieces.extend(place.read(&feed.state, asked, feed.now));
            slices += 1;
        }
    }
    (pieces, slices)
}

type Pairs = Vec<(u64, u64)>;

/// All values, and all gaps.
fn joined(pieces: &[Piece]) -> (Pairs, Pairs) {
    (
        pieces.iter().flat_map(|piece| piece.values.clone()).collect(),
        pieces.iter().flat_map(|piece| piece.gaps.clone()).collect(),
    )
}

#[test]
fn minutes_hours_and_days_come_with_their_gaps() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.run(26 * HOUR, |_| (500, 300));
    feed.now += 3 * HOUR;
    feed.run(21 * HOUR, |_| (100, 40));
    let start = START / SECOND;
    let (pieces, slices) = all(&feed, &asked(Resource::Memory, SeriesStep::Minute));
    let (values, gaps) = joined(&pieces);
    assert!(slices >= 3 && pieces.iter().all(|piece| piece.series == "shop/deployment/web/main"));
    assert!(values.windows(2).all(|pair| pair[0].0 < pair[1].0), "times grow");
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    let (from, to) = gaps[0];
    assert!(
        to - from >= 3 * 3_600 - 120 && to - from <= 3 * 3_600 && from > start + 26 * 3_600 - 120,
        "{gaps:?}"
    );
    assert!(values.iter().all(|(time, bytes)| *bytes == if *time < from { 300 * MIB } else { 40 * MIB }));
    assert!(values.len() as u64 >= 47 * 60 - 4);

    let hours = joined(&all(&feed, &asked(Resource::Cpu, SeriesStep::Hour)).0);
    assert!(hours.0.len() >= 45 && hours.0.iter().all(|(time, _)| time % 3_600 == 0), "{hours:?}");
    assert!(hours.0[1].1.abs_diff(500_000) < 16_000, "the middle of a bucket: {:?}", hours.0[1]);
    assert!(!hours.1.is_empty());
    let days = joined(&all(&feed, &asked(Resource::Memory, SeriesStep::Day)).0);
    assert_eq!(days.0.iter().map(|(_, bytes)| bytes / MIB).collect::<Vec<_>>(), [300, 300]);

    // A part of it, with what is missing at both ends.
    let part =
        SeriesRequest { from: start - 3_600, to: start + 600, ..asked(Resource::Memory, SeriesStep::Minute) };
    let (values, gaps) = joined(&all(&feed, &part).0);
    assert!(values.iter().all(|(time, _)| *time < start + 600) && values.len() >= 9, "{values:?}");
    assert_eq!(gaps.first().map(|gap| gap.0), Some(start - 3_600), "{gaps:?}");
    // Nothing was measured at all.
    let before = SeriesRequest { from: start - 7_200, to: start - 3_600, ..part };
    assert_eq!(joined(&all(&feed, &before).0), (vec![], vec![(start - 7_200, start - 3_600)]));
    let other =
        SeriesRequest { whose: UsageScope { namespace: "other".into(), ..UsageScope::default() }, ..before };
    assert_eq!(all(&feed, &other).0, []);
}

#[test]
fn throttled_minutes_are_told_and_what_would_be_read_grows_with_replicas() {
    let mut feed = Feed::new();
    (0..3).for_each(|_| feed.start(("web", "web:1", None)));
    feed.run(2 * HOUR, |_| (500, 300));
    let begin = feed.now / SECOND;
    feed.held_usec = 200_000;
    feed.run(5 * MINUTE, |_| (500, 300));
    feed.held_usec = 20_000;
    feed.run(2 * HOUR, |_| (500, 300));
    let question = asked(Resource::Cpu, SeriesStep::Minute);
    let held = throttled(&feed.state, &question);
    assert!((4..=6).contains(&held.len()) && held.windows(2).all(|pair| pair[0] < pair[1]), "{held:?}");
    assert!(held.iter().all(|at| (begin - 60..=begin + 360).contains(at)), "{held:?} {begin}");
    let (bytes, containers) = size(&feed.state, &question);
    assert!(bytes > 0 && containers == 3, "{bytes} {containers}");
    let recent = SeriesRequest { from: feed.now / SECOND - 60, ..question };
    assert!(size(&feed.state, &recent).0 < bytes);
    assert!(throttled(&feed.state, &recent).is_empty());
}

#[test]
fn of_several_replicas_the_one_at_rank_95_percent_is_told_and_seconds_are_told_of_each() {
    let mut feed = Feed::new();
    // One workload of three containers: the name of the pod is all that differs.
    (0..3).for_each(|_| feed.start(("web", "web:1", None)));
    for _ in 0..180 {
        feed.sample(SECOND, |i| ([100, 900, 300][i], [10, 30, 20][i]));
    }
    let (cpu, _) = joined(&all(&feed, &asked(Resource::Cpu, SeriesStep::Minute)).0);
    assert!(cpu.iter().skip(1).all(|(_, value)| *value == 900_000) && cpu.len() >= 2, "{cpu:?}");
    let (seconds, _) = all(&feed, &asked(Resource::Memory, SeriesStep::Second));
    assert_eq!(seconds.len(), 3);
    for (piece, mib) in seconds.iter().zip([10, 30, 20]) {
        assert_eq!(piece.series, "shop/web-1/main");
        assert!(
            piece.values.len() >= 60 && piece.values.iter().all(|(_, bytes)| *bytes == mib * MIB),
            "{piece:?}"
        );
        assert_eq!(piece.gaps, []);
    }
}

#[test]
fn the_next_hour_and_day_are_predicted_with_their_confidence() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    let site = Site::new();
    let record = |feed: &Feed, window_seconds| {
        let question = UsageScope { window_seconds, ..UsageScope::default() };
        usage::query(&feed.desk(&site), &question)[0].record.clone()
    };
    feed.run(20 * MINUTE, |_| (400, 200));
    let young = record(&feed, 0);
    assert_eq!(young.predicted_confidence.map(|c| c.get()), Some(0.0), "nothing can be promised yet");
    feed.run(10 * HOUR, |_| (400, 200));
    let hours = record(&feed, 3_600);
    assert_eq!((hours.predicted_seconds, record(&feed, 0).predicted_seconds), (Some(3_600), Some(3_600)));
    assert!(hours.predicted_confidence.is_some_and(|c| c.get() > 0.85), "{hours:?}");
    let cpu = &hours.predicted[&ResourceName::CPU];
    assert!(cpu.mean.is_some_and(|mean| (390..=420).contains(&mean)), "{cpu:?}");
    assert_eq!((cpu.max, cpu.percentiles.len()), (Some(400), 6));
    assert!(cpu.min <= cpu.mean && cpu.count.is_some_and(|count| count >= 3_500), "{cpu:?}");
    feed.run(6 * DAY, |_| (400, 200));
    let days = record(&feed, 0);
    assert_eq!(days.predicted_seconds, Some(86_400));
    assert!(
        days.predicted_confidence.is_some_and(|c| c.get() > 0.75 && c.get() < 0.9),
        "of few days: {days:?}"
    );
    assert_eq!(days.predicted[&ResourceName::MEMORY].max, Some(200 * MIB));
    assert_eq!(record(&feed, 60).predicted_seconds, Some(3_600));
}

/// What is limited to 512 MiB and was killed there, and what a namespace gives where nothing is known.
#[test]
fn namespaces_and_kills_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let objects = "kind: LimitRange\nmetadata: {name: a, namespace: other}\nspec: {limits: [{type: Container, \
        default: {memory: 300Mi}, defaultRequest: {memory: 200Mi}, max: {cpu: 700m}}]}\n";
    std::fs::write(dir.path().join("a.yaml"), objects).unwrap();
    let site = Site::new();
    let config = crate::config::Config {
        objects: vec![dir.path().join("a.yaml")],
        ..crate::config::Config::default()
    };
    site.advisor.limits.look(&config, None);
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.run(3 * DAY, |_| (900, 400));
    let [cpu, memory] = feed.new_pod(&site, "main", "nobody/knows:1", "goal");
    assert_eq!((memory.tier.as_str(), memory.request, memory.raw), ("LimitRange", Some(200 * MIB), None));
    assert_eq!((cpu.tier.as_str(), cpu.request), ("LimitRange", Some(700)), "what a maximum is filled up to");
    let [cpu, memory] = feed.new_pod(&site, "main", "web:1", "goal");
    assert_eq!((cpu.request, cpu.capped_by), (Some(700), vec!["LimitRange max".to_owned()]));
    assert_eq!((memory.request, memory.capped_by), (Some(300 * MIB), vec!["LimitRange default".to_owned()]));
}
