//! Dynamic scores: order of death, the band, hysteresis and bounded writes.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::units::Bytes;
use evenkeel_qos::dynamic::{Dynamic, DynamicInput, DynamicRule, Rank, ScoreCandidate, score};
use evenkeel_qos::rules::RuleSet;
use proptest::prelude::*;

const CAPACITY: Bytes = Bytes::new(1000);

fn candidate(id: &str, request: u64, usage: u64, priority: i32) -> ScoreCandidate {
    ScoreCandidate {
        id: id.into(),
        request: Bytes::new(request),
        usage: Bytes::new(usage),
        largest: None,
        priority,
    }
}

fn dynamic() -> Dynamic {
    Dynamic::new(DynamicRule::new(RuleSet::Proposal))
}

/// Sum the kernel compares, by container, highest first; memory in thousandths because capacity is 1000.
fn order(of: &[ScoreCandidate]) -> Vec<(String, i64)> {
    let mut d = dynamic();
    d.observe(CAPACITY, of);
    let mut sums: Vec<_> = of
        .iter()
        .map(|c| {
            let largest = c.largest.unwrap_or(c.usage).get();
            (c.id.clone(), i64::from(d.wish(&c.id).unwrap().value.get()) + i64::try_from(largest).unwrap())
        })
        .collect();
    sums.sort_by_key(|(_, sum)| std::cmp::Reverse(*sum));
    sums
}

fn ids(of: &[(String, i64)]) -> Vec<&str> {
    of.iter().map(|(id, _)| id.as_str()).collect()
}

#[test]
fn over_the_request_dies_before_within_and_all_after_best_effort() {
    let many = ScoreCandidate { largest: Some(Bytes::new(5)), ..candidate("many-small", 100, 200, 0) };
    let found = order(&[
        candidate("twice", 150, 320, 0),
        many,
        candidate("slightly", 300, 310, 0),
        candidate("full", 100, 100, 0),
        candidate("little", 400, 50, 0),
    ]);
    assert_eq!(ids(&found), ["twice", "many-small", "slightly", "full", "little"]);
    assert!(found.iter().all(|(_, sum)| *sum < 1000), "{found:?}");
}

#[test]
fn within_one_step_of_overuse_priority_decides() {
    let found = order(&[
        candidate("batch", 100, 152, -10),
        candidate("web", 100, 158, 1000),
        candidate("worse", 100, 170, 1000),
    ]);
    assert_eq!(ids(&found), ["worse", "batch", "web"]);
}

#[test]
fn small_changes_are_not_written_and_crossing_is() {
    let mut d = dynamic();
    let see = |d: &mut Dynamic, usage: u64| d.observe(CAPACITY, &[candidate("a", 200, usage, 0)]);
    assert_eq!(see(&mut d, 100), ["a"]);
    assert_eq!(d.wish("a").unwrap().value.get(), 799);
    assert!(see(&mut d, 109).is_empty());
    assert_eq!(see(&mut d, 110), ["a"]);
    // Over it, and back only well below it.
    assert_eq!(see(&mut d, 201), ["a"]);
    assert_eq!(d.wish("a").unwrap().value.get(), 798);
    assert!(see(&mut d, 195).is_empty());
    assert_eq!(
        d.wish("a").unwrap().reason.text(),
        "Burstable over its request, place 1 of 1: uses 201 of 200"
    );
    assert_eq!(see(&mut d, 189), ["a"]);
    assert_eq!(d.wish("a").unwrap().value.get(), 710);
    // Gone is forgotten.
    d.observe(CAPACITY, &[]);
    assert!(d.wish("a").is_none());
}

#[test]
fn a_round_writes_no_more_than_allowed_and_the_next_goes_on() {
    let all: Vec<_> = (0..50).map(|i| candidate(&format!("c{i:02}"), 10, 5 + i % 20, 0)).collect();
    let mut d = dynamic();
    let rounds: Vec<_> = (0..4).map(|_| d.observe(CAPACITY, &all).len()).collect();
    assert_eq!(rounds, [20, 20, 10, 0]);
}

proptest! {
    #[test]
    fn scores_stay_in_the_band(capacity: u64, request: u64, usage: u64, largest: u64, rank in prop::option::of((any::<u64>(), any::<u64>()))) {
        for (rules, floor) in [(RuleSet::Proposal, 2), (RuleSet::Kubelet, 3)] {
            let value = score(&DynamicInput {
                rules,
                capacity: Bytes::new(capacity),
                request: Bytes::new(request),
                usage: Bytes::new(usage),
                largest: Bytes::new(largest),
                priority: 0,
                rank: rank.map(|(rank, count)| Rank { rank, count }),
            })
            .get();
            prop_assert!((floor..=999).contains(&value), "{value}");
        }
    }

    #[test]
    fn within_the_request_never_above_the_formula(request in 0_u64..1000, usage in 0_u64..1000) {
        prop_assume!(usage <= request);
        let mut d = dynamic();
        d.observe(CAPACITY, &[candidate("a", request, usage, 0)]);
        let value = u64::try_from(d.wish("a").unwrap().value.get()).unwrap();
        prop_assert!(value <= (1000 - request).max(2));
    }
}
