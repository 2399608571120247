//! One node that brings too much costs the others nothing: its containers, its names, its kills.

use std::fs;

use evenkeel_model::key::ContainerKey;

use super::*;
use crate::key::{Image, SeriesKey, Subject};
use evenkeel_proto::frame::Encoder;

const START: u64 = 1_700_049_600_000_000;
const MINUTE: u64 = 60_000_000;

fn limits() -> Limits {
    Limits {
        history: HistoryBounds { retention_minutes: 35 * 24 * 60, series: 1_000, of_node: 50 },
        epochs: 100,
        containers: 10_000_000,
        per_node: 50,
        names_per_minute: 10,
        kills_per_hour: 500,
        gone_minutes: 5,
        events: 100,
        subjects: 1_000_000,
        start_usec: 0,
    }
}

fn key(node: &str) -> StreamKey {
    StreamKey { cluster: "c".into(), node: node.into(), epoch: 1 }
}

fn announcement(slot: u32, workload: String) -> v1::Announcement {
    let identity = v1::ContainerIdentity {
        namespace: "shop".into(),
        pod: format!("{workload}-x"),
        container: "main".into(),
        workload,
        image: "web:1".into(),
        ..v1::ContainerIdentity::default()
    };
    v1::Announcement { slot, identity: Some(identity) }
}

fn announce(state: &mut StoreState, node: &str, time: u64, announced: Vec<v1::Announcement>, gone: Vec<u32>) {
    let sequence = state.stream(&key(node)).map_or(0, |s| s.position.last) + 1;
    // No container has a sample; what time it is at the node is in the frame.
    let mut samples = Vec::new();
    Encoder::new().encode_seconds(true, time, 1_000_000, &[], &mut samples).unwrap();
    let frame = v1::Frame { sequence, announced, gone, samples: samples.into(), ..v1::Frame::default() };
    state.apply(time, LogEntry::Taken(Taken::new(key(node), frame)));
}

/// Time this thread has been on a processor, nanoseconds (Documentation/scheduler/sched-stats.rst).
fn worked() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn announcing_is_linear_in_what_is_announced() {
    let cost = |count: u32| {
        let mut state = StoreState::new(Limits { per_node: 1_000_000, ..limits() });
        let names = (0..count).map(|slot| announcement(slot, format!("deployment/w{}", slot % 20))).collect();
        let before = worked();
        announce(&mut state, "n", START, names, Vec::new());
        assert_eq!((state.followed(), state.counters.refused_containers), (count as usize, 0));
        worked() - before
    };
    let best = |count| (0..3).map(|_| cost(count)).min().unwrap();
    let (few, many) = (best(2_000), best(16_000));
    // Eight times as many: a walk over all for each would make it 64 times.
    assert!(many < few * 24, "{few} ns for 2,000 containers, {many} ns for 16,000");
}

#[test]
fn a_node_has_its_quota_of_containers_and_of_new_names_and_refusals_are_counted() {
    let mut state = StoreState::new(limits());
    let many =
        |from: u32, count: u32| (from..from + count).map(|i| announcement(i, format!("job/j{i}"))).collect();
    announce(&mut state, "evil", START, many(0, 100_000), Vec::new());
    announce(&mut state, "good", START, many(0, 50), Vec::new());
    let refused = |state: &StoreState, node: &str| state.nodes[&NodeKey::of(&key(node))].refused;
    assert_eq!((refused(&state, "evil"), refused(&state, "good")), (99_950, 0));
    assert_eq!((state.followed(), state.counters.refused_containers), (100, 99_950));
    // What ends makes room for what is known, and time for new names.
    announce(&mut state, "evil", START, Vec::new(), (0..50).collect());
    announce(&mut state, "evil", START, many(0, 20), Vec::new());
    assert_eq!(refused(&state, "evil"), 99_950);
    announce(&mut state, "evil", START, many(200_000, 20), Vec::new());
    assert_eq!(refused(&state, "evil"), 99_970);
    for minute in 1..=3 {
        announce(&mut state, "good", START + minute * MINUTE, Vec::new(), Vec::new());
    }
    announce(&mut state, "evil", START + 3 * MINUTE, many(200_000, 40), Vec::new());
    assert_eq!(refused(&state, "evil"), 99_980, "ten names for each of three minutes");
}

#[test]
fn idle_history_of_others_stays_when_one_node_brings_ever_new_names() {
    let mut state = StoreState::new(Limits { names_per_minute: 1_000_000, ..limits() });
    // Jobs that do not run just now, of twenty nodes.
    let mut jobs = Vec::new();
    for node in 0..20 {
        let name = |i: u32| format!("job/n{node}-{i}");
        announce(
            &mut state,
            &format!("n{node}"),
            START,
            (0..50).map(|i| announcement(i, name(i))).collect(),
            vec![],
        );
        announce(&mut state, &format!("n{node}"), START, Vec::new(), (0..50).collect());
        jobs.extend((0..50).map(name));
    }
    assert_eq!(state.history.all().count(), 1_000);
    for round in 0..400 {
        let time = START + MINUTE + round;
        let names = (0..50).map(|i| announcement(i, format!("job/evil-{round}-{i}"))).collect();
        announce(&mut state, "evil", time, names, Vec::new());
        announce(&mut state, "evil", time, Vec::new(), (0..50).collect());
    }
    let there = |state: &StoreState, workload: &str| {
        let of = ContainerKey::new("c", "shop", workload, "main");
        let key = SeriesKey { of, image: Image::parse("web:1") };
        state.history.find(&key).is_some()
    };
    let lost = jobs.iter().filter(|job| !there(&state, job)).count();
    // As many as a node may bring take the places of those silent longest, and some at once; 20,000 names came.
    assert!(lost <= 60, "{lost} of 1,000 jobs lost their history");
    assert!(state.history.all().count() <= 1_000);
    // Whoever brought little still finds room: in the places of the one that brought much.
    announce(
        &mut state,
        "new",
        START + 9 * MINUTE,
        (0..40).map(|i| announcement(i, format!("job/new-{i}"))).collect(),
        vec![],
    );
    assert_eq!(state.nodes[&NodeKey::of(&key("new"))].refused, 0);
    let after = jobs.iter().filter(|job| !there(&state, job)).count();
    assert!(after <= lost + 40 && there(&state, "job/new-39"), "{lost} {after}");
}

/// A container whose image has so many bytes, and so many subjects with it.
fn wordy(slot: u32, workload: String, bytes: usize) -> v1::Announcement {
    let mut announced = announcement(slot, workload.clone());
    let identity = announced.identity.as_mut().unwrap();
    identity.image = format!("registry.example/{}/{workload}:1", "x".repeat(bytes));
    announced
}

/// Workloads whose series and own subject are known.
fn known(state: &StoreState, workloads: &[String]) -> (usize, usize) {
    let subject = |workload: &String| Subject::Own(ContainerKey::new("c", "shop", workload.as_str(), "main"));
    let series = state.history.all().filter(|(_, series)| workloads.contains(&series.key.of.workload));
    let subjects = workloads.iter().filter(|workload| state.past.find(&subject(workload)).is_some());
    (series.count(), subjects.count())
}

#[test]
fn names_are_bounded_in_bytes_and_those_of_others_stay() {
    let mut state = StoreState::new(Limits { names_per_minute: 1_000_000, ..limits() });
    let most = state.limits.history.name_bytes();
    let mut jobs = Vec::new();
    for node in 0..10 {
        let (name, own) = (format!("n{node}"), |i| format!("job/n{node}-{i}"));
        announce(&mut state, &name, START, (0..40).map(|i| announcement(i, own(i))).collect(), Vec::new());
        announce(&mut state, &name, START, Vec::new(), (0..40).collect());
        jobs.extend((0..40).map(own));
    }
    // Four megabytes of names, where there is room for half of one.
    for round in 1..=60 {
        let names = (0..20).map(|i| wordy(i, format!("job/evil-{round}-{i}"), 3000)).collect();
        announce(&mut state, "evil", START + round * MINUTE, names, Vec::new());
        announce(&mut state, "evil", START + round * MINUTE, Vec::new(), (0..20).collect());
        let bytes = (state.history.name_bytes(), state.past.name_bytes());
        assert!(bytes.0 <= most && bytes.1 <= most, "{bytes:?} bytes, round {round}");
    }
    assert_eq!(known(&state, &jobs), (400, 400));
    assert!(state.history.dropped() > 500 && state.past.counts.refused_subjects > 500);
    // There is room for what is new elsewhere, in the places of the one that brought much.
    let new: Vec<String> = (0..40).map(|i| format!("job/new-{i}")).collect();
    let announced = (0..).zip(&new).map(|(i, name)| wordy(i, name.clone(), 100)).collect();
    announce(&mut state, "new", START + 61 * MINUTE, announced, Vec::new());
    assert_eq!(state.nodes[&NodeKey::of(&key("new"))].refused, 0);
    assert_eq!((known(&state, &new), known(&state, &jobs)), ((40, 40), (400, 400)));
}

#[test]
fn names_of_what_runs_stay_and_what_is_too_much_beside_them_is_refused() {
    let mut state = StoreState::new(limits());
    let most = state.limits.history.name_bytes();
    for node in 0..8 {
        let names = (0..50).map(|i| wordy(i, format!("job/n{node}-{i}"), 3000)).collect();
        announce(&mut state, &format!("n{node}"), START, names, Vec::new());
    }
    let series = state.history.all().count();
    assert!(state.history.name_bytes() <= most && state.past.name_bytes() <= most);
    assert_eq!((state.containers(), state.counters.refused_containers), (series, 400 - series as u64));
    assert!((150..180).contains(&series), "{series} of 3,000 bytes");
    assert_eq!(state.history.dropped(), 0);
}

#[test]
fn kills_count_for_what_runs_and_not_more_often_than_a_container_can_be_killed() {
    let mut state = StoreState::new(limits());
    let names = (0..40).map(|i| announcement(i, format!("job/j{i}"))).collect();
    announce(&mut state, "evil", START, names, Vec::new());
    let kills = |pod: &str, count: u64, time_usec: u64| -> Vec<v1::Decision> {
        let kill = |seq| v1::Decision {
            seq,
            epoch: 1,
            time_usec,
            pod: Some(pod.to_owned()),
            container: Some("main".into()),
            kind: "oom-kill".into(),
            result: "done".into(),
            ..v1::Decision::default()
        };
        (1..=count).map(kill).collect()
    };
    let mut told = 0;
    let mut tell = |state: &mut StoreState, pod: &str, count: u64, time: u64| {
        let sequence = state.stream(&key("evil")).unwrap().position.last + 1;
        let mut decisions = kills(pod, count, time);
        for decision in &mut decisions {
            told += 1;
            decision.seq = told;
        }
        let mut samples = Vec::new();
        Encoder::new().encode_seconds(true, time, 1_000_000, &[], &mut samples).unwrap();
        let frame = v1::Frame { sequence, decisions, samples: samples.into(), ..v1::Frame::default() };
        state.apply(time, LogEntry::Taken(Taken::new(key("evil"), frame)));
        (state.past.counts.events, state.counters.refused_kills)
    };
    assert_eq!(tell(&mut state, "job/j0-x", 50_000, START), (20, 49_980));
    assert_eq!(tell(&mut state, "job/j0-x", 5, START + 61 * MINUTE), (25, 49_980), "another hour");
    for pod in 0..40 {
        tell(&mut state, &format!("job/j{pod}-x"), 20, START + 130 * MINUTE);
    }
    assert_eq!(state.past.counts.events, 25 + 500, "of one node in an hour");
    assert_eq!(tell(&mut state, "job/none-x", 3, START + 200 * MINUTE).0, 525);
    assert_eq!(state.past.counts.unplaced_events, 3);
}

#[test]
fn epochs_that_never_deliver_take_no_more_room_than_a_node_has() {
    let mut state = StoreState::new(limits());
    for epoch in 1..=30 {
        let names = (0..50).map(|i| announcement(i, format!("job/j{i}"))).collect();
        let frame = v1::Frame { sequence: 1, announced: names, ..v1::Frame::default() };
        state.apply(START, LogEntry::Taken(Taken::new(StreamKey { epoch, ..key("evil") }, frame)));
    }
    assert!(state.followed() <= 100 && state.containers() == 0, "{} kept", state.followed());
    // The run that delivers counts, and keeps its slots.
    announce(
        &mut state,
        "evil",
        START,
        (0..50).map(|i| announcement(i, format!("job/j{i}"))).collect(),
        Vec::new(),
    );
    assert_eq!(state.containers(), 50);
}

#[test]
fn decisions_of_one_node_push_out_its_own() {
    let mut state = StoreState::new(limits());
    let mut sequences = [0; 2];
    let mut tell = |state: &mut StoreState, node: usize, count: u64| {
        let decision = |_| v1::Decision { kind: "set".into(), ..v1::Decision::default() };
        sequences[node] += 1;
        let (sequence, decisions) = (sequences[node], (0..count).map(decision).collect());
        let frame = v1::Frame { sequence, decisions, ..v1::Frame::default() };
        state.apply(START, LogEntry::Taken(Taken::new(key(["good", "evil"][node]), frame)));
    };
    tell(&mut state, 0, 30);
    (0..50).for_each(|_| tell(&mut state, 1, 40));
    let of_good = state.events().filter(|event| event.node.node == "good").count();
    assert_eq!((state.events().count(), of_good), (100, 30));
}
