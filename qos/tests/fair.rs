//! Fair excess CPU: the proposal's example, bounds for any input, and who counts as active.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::units::{CpuShares, CpuWeight, MilliCpu};
use evenkeel_qos::fair::{
    ActiveSet, Competitor, Fair, FairShares, Hysteresis, Layout, Level, Member, MicroCpu,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;

fn member(key: u32, parent: &'static str, request: u64, used: u64) -> Member<u32, &'static str> {
    Member {
        key,
        parent,
        request: MilliCpu::new(request),
        used: Some(MilliCpu::new(used).into()),
        waits: false,
    }
}

fn divide(
    layout: Layout,
    capacity: u64,
    members: &[Member<u32, &'static str>],
) -> FairShares<u32, &'static str> {
    let mut fair = Fair::new(layout, Hysteresis::default());
    fair.observe(0, MilliCpu::new(capacity), members).unwrap()
}

/// Part of the first in what the first and second get, in ten thousandths, by weight and by shares.
fn parts(shared: &FairShares<u32, &'static str>) -> (u32, u32) {
    let (a, b) = (&shared.members[&1], &shared.members[&2]);
    let part = |a: u32, b: u32| a * 10_000 / (a + b);
    (part(a.weight.get(), b.weight.get()), part(a.shares.get(), b.shares.get()))
}

#[test]
fn half_a_cpu_beside_nothing_ends_at_three_to_one() {
    let shared = divide(Layout::Flat, 1000, &[member(1, "p", 500, 900), member(2, "p", 0, 90)]);
    assert_eq!(parts(&shared), (7500, 7500));
    assert_eq!(shared.members[&1].target, MicroCpu::new(750_000));
    assert_eq!((shared.members[&1].weight.get(), shared.members[&2].weight.get()), (75, 25));
    assert_eq!((shared.members[&1].shares.get(), shared.members[&2].shares.get()), (768, 256));
}

#[test]
fn divisions_of_one_parent() {
    // Capacity, (request, active) of each, target of each in millionths.
    type Row = (u64, &'static [(u64, bool)], &'static [u64]);
    let table: [Row; 8] = [
        (1000, &[(600, true), (300, true)], &[650_000, 350_000]),
        (1000, &[(500, true), (0, false)], &[1_000_000, 20_000]),
        (1000, &[(500, false), (0, true)], &[500_000, 1_000_000]),
        (2000, &[(0, true), (0, true), (0, true)], &[666_666, 666_666, 666_666]),
        // Requests above capacity: no excess, and nobody gets nothing.
        (1000, &[(900, true), (600, true), (0, true)], &[900_000, 600_000, 100]),
        (0, &[(100, true), (0, true), (0, false)], &[100_000, 100, 100]),
        (1000, &[(0, false)], &[20_000]),
        (1000, &[], &[]),
    ];
    for (capacity, siblings, targets) in table {
        let ones: Vec<_> = siblings
            .iter()
            .map(|(request, is_active)| Competitor {
                request: MilliCpu::new(*request),
                is_active: *is_active,
            })
            .collect();
        let level = Level::of(MilliCpu::new(capacity).into(), MilliCpu::new(10), &ones);
        let found: Vec<_> = ones.iter().map(|one| level.target(*one).get()).collect();
        assert_eq!(found, targets, "{capacity}m among {siblings:?}");
    }
}

#[test]
fn two_levels_share_among_pods_first() {
    // Two busy pods without requests: half each, whatever the number of their containers.
    let members = [
        member(1, "one", 0, 300),
        member(2, "two", 0, 300),
        member(3, "two", 0, 300),
        member(4, "two", 0, 300),
        member(5, "idle", 200, 0),
    ];
    let shared = divide(Layout::TwoLevel, 1200, &members);
    assert_eq!(shared.parents["one"].target, MicroCpu::new(600_000));
    assert_eq!(shared.parents["two"].target, MicroCpu::new(600_000));
    assert_eq!(shared.parents["idle"].target, MicroCpu::new(200_000));
    assert_eq!(shared.members[&1].target, MicroCpu::new(600_000));
    assert_eq!(shared.members[&3].target, MicroCpu::new(200_000));
    assert_eq!(shared.members[&5].target, MicroCpu::new(200_000));
    // Flat, each pod has its part by requests, and here all requests are the idle pod's.
    let flat = divide(Layout::Flat, 1200, &members);
    assert!(flat.parents.is_empty());
    assert_eq!(flat.members[&5].target, MicroCpu::new(200_000).max(flat.members[&5].target));
}

#[test]
fn it_is_divided_again_only_when_something_changed() {
    let rule = Hysteresis { active_above: MilliCpu::new(10), idle_after_usec: 10 * SECOND };
    let mut fair = Fair::new(Layout::Flat, rule);
    let node = MilliCpu::new(1000);
    let both = [member(1, "p", 500, 800), member(2, "p", 0, 100)];
    assert!(fair.observe(0, node, &both).is_some());
    assert!(fair.observe(SECOND, node, &both).is_none());
    // One falls silent: nothing changes until it has been silent for long enough.
    let silent = [member(1, "p", 500, 800), member(2, "p", 0, 3)];
    for second in 2..12 {
        assert!(fair.observe(second * SECOND, node, &silent).is_none(), "{second}");
    }
    let after = fair.observe(12 * SECOND, node, &silent).unwrap();
    assert_eq!(after.members[&1].target, MicroCpu::new(1_000_000));
    assert!(!after.members[&2].is_active && !fair.is_active(&2));
    // It wakes at once, and a changed capacity, request or member is a change.
    assert!(fair.observe(13 * SECOND, node, &both).is_some());
    assert!(fair.observe(14 * SECOND, MilliCpu::new(2000), &both).is_some());
    assert!(fair.observe(15 * SECOND, MilliCpu::new(2000), &both[..1]).is_some());
    assert!(!fair.is_active(&2));
}

#[test]
fn a_pause_shorter_than_the_dwell_keeps_it_active() {
    let rule = Hysteresis { active_above: MilliCpu::new(10), idle_after_usec: 10 * SECOND };
    let mut set = ActiveSet::new(rule);
    // Seconds, use in thousandths, waits for cpu, then active.
    let table = [
        (0, 9, false, false),
        (1, 10, false, true),
        (2, 0, false, true),
        (11, 0, false, true),
        (11, 50, false, true),
        (12, 0, false, true),
        (21, 0, false, true),
        (22, 0, false, false),
        (23, 0, true, true),
        (24, 0, false, true),
    ];
    for (second, used, waits, active) in table {
        set.observe(&1, second * SECOND, MilliCpu::new(used).into(), waits, None);
        assert_eq!(set.is_active(&1), active, "second {second}");
    }
    set.retain(|_| false);
    assert!(!set.is_active(&1));
}

#[test]
fn a_small_part_of_a_crowded_node_can_still_be_seen() {
    // One busy container, 400 silent ones that request nothing: when all wake, each can only get about 0.25m.
    let mut members = vec![member(1, "p", 900, 990)];
    members.extend((2..402).map(|key| member(key, "p", 0, 0)));
    let mut fair = Fair::new(Layout::Flat, Hysteresis::default());
    let node = MilliCpu::new(1000);
    let shared = fair.observe(0, node, &members).unwrap();
    let busy = u64::from(shared.members[&1].weight.get());
    let all: u64 = shared.members.values().map(|a| u64::from(a.weight.get())).sum();
    assert!(busy * 1000 / all >= 880, "its request holds within the resolution of weights: {busy} of {all}");
    for m in &mut members[1..] {
        m.used = Some(MicroCpu::new(200));
    }
    fair.observe(SECOND, node, &members);
    assert!(fair.is_active(&2));
}

#[test]
fn without_a_fresh_measurement_nothing_changes() {
    let mut fair = Fair::new(Layout::Flat, Hysteresis::default());
    let node = MilliCpu::new(1000);
    fair.observe(0, node, &[member(1, "p", 100, 500)]);
    let stale = [Member { used: None, waits: true, ..member(1, "p", 100, 0) }];
    assert!(fair.observe(3600 * SECOND, node, &stale).is_none());
    assert!(fair.is_active(&1));
}

#[test]
fn a_wish_carries_its_numbers() {
    let shared = divide(Layout::Flat, 1000, &[member(1, "p", 500, 900), member(2, "p", 0, 90)]);
    let wish = shared.members[&1].weight_wish();
    assert_eq!(
        wish.reason.text(),
        "fair excess: request 500m and an equal part of what 2 active siblings leave, 250m of 1000m"
    );
    assert_eq!(wish.reason.inputs()["scale"], "100/1000000");
    assert_eq!(wish.reason.inputs()["active_siblings"], "2");
    assert_eq!(shared.members[&2].shares_wish().value.get(), 256);
}

fn competitors() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((prop_oneof![Just(0), 1_u64..4000, any::<u64>()], 0_u64..3000), 0..40)
}

proptest! {
    #[test]
    fn any_input_is_bounded(capacity in prop_oneof![Just(0), 1_u64..256_000, any::<u64>()], all in competitors()) {
        let keys = 1_u32..;
        let members: Vec<_> = keys.zip(&all).map(|(key, (r, used))| member(key, ["p", "q"][key as usize % 2], *r, *used)).collect();
        for layout in [Layout::Flat, Layout::TwoLevel] {
            let shared = divide(layout, capacity, &members);
            prop_assert_eq!(shared.members.len(), members.len());
            for a in shared.members.values().chain(shared.parents.values()) {
                prop_assert!(a.weight >= CpuWeight::MIN && a.weight <= CpuWeight::MAX);
                prop_assert!(a.shares >= CpuShares::MIN && a.shares <= CpuShares::MAX);
            }
        }
    }

    #[test]
    fn active_siblings_compare_within_one_percent(capacity in 1000_u64..128_000, requests in prop::collection::vec(0_u64..4000, 2..30)) {
        let keys = 1_u32..;
        let members: Vec<_> = keys.zip(&requests).map(|(key, r)| member(key, "p", *r, 500)).collect();
        let shared = divide(Layout::Flat, capacity, &members);
        let targets: Vec<_> = shared.members.values().map(|a| a.target.get()).collect();
        let (least, most) = (targets.iter().min().unwrap(), targets.iter().max().unwrap());
        // A hundredth of the largest needs a value of 1 percent's resolution itself.
        prop_assume!(most / least <= 75);
        for a in shared.members.values() {
            for b in shared.members.values() {
                let wanted = a.target.get() as f64 / b.target.get() as f64;
                let weights = f64::from(a.weight.get()) / f64::from(b.weight.get());
                let shares = f64::from(a.shares.get()) / f64::from(b.shares.get());
                prop_assert!((weights / wanted - 1.0).abs() < 0.01, "{weights} for {wanted}");
                prop_assert!((shares / wanted - 1.0).abs() < 0.01, "{shares} for {wanted}");
            }
        }
    }

    #[test]
    fn targets_of_active_siblings_fill_the_capacity(capacity in 1_u64..64_000, requests in prop::collection::vec(0_u64..2000, 1..30)) {
        let sum: u64 = requests.iter().sum();
        prop_assume!(sum <= capacity);
        let ones: Vec<_> = requests.iter().map(|r| Competitor { request: MilliCpu::new(*r), is_active: true }).collect();
        let level = Level::of(MilliCpu::new(capacity).into(), MilliCpu::new(10), &ones);
        let targets: u64 = ones.iter().map(|one| level.target(*one).get()).sum();
        let least = ones.len() as u64 * 100;
        prop_assert!(targets <= capacity * 1000 + least);
        prop_assert!(targets + ones.len() as u64 >= capacity * 1000);
        for one in &ones {
            prop_assert!(level.target(*one) >= MicroCpu::from(one.request));
        }
    }
}
