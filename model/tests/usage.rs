//! The usage record: exact statistics and the pinned JSON.
#![allow(clippy::unwrap_used, clippy::panic)] // a failing helper fails its test

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::usage::{Confidence, Percentile, Stats, UsageRecord, UsageWindow};
use proptest::prelude::*;

#[test]
fn percentiles_are_nearest_ranks() {
    let hundred: Vec<u64> = (1..=100).collect();
    let at = |tenths| Percentile::from_tenths(tenths).unwrap().of_sorted(&hundred);
    assert_eq!(
        [at(500), at(900), at(990), at(995), at(999), at(1000), at(1)],
        [Some(50), Some(90), Some(99), Some(100), Some(100), Some(100), Some(1)]
    );
    assert_eq!(Percentile::STANDARD[0].of_sorted(&[]), None);
    assert_eq!(Percentile::from_tenths(0), None);
    assert_eq!(Percentile::from_tenths(1001), None);
}

#[test]
fn percentiles_have_a_text() {
    for text in ["50", "90", "95", "99", "99.5", "99.9", "0.1", "100"] {
        assert_eq!(text.parse::<Percentile>().unwrap().to_string(), text);
    }
    for text in ["", "0", "101", "99.", "99.55", ".5", "-1", "+5", "5e1", "65536"] {
        assert!(text.parse::<Percentile>().is_err(), "{text}");
    }
}

#[test]
fn statistics_of_few_values() {
    let none = Stats::of([]);
    assert_eq!((none.count, none.mean, none.max, none.percentiles.len()), (Some(0), None, None, 0));
    let two = Stats::of([3, 4]);
    assert_eq!((two.mean, two.min, two.max), (Some(4), Some(3), Some(4)), "halves go up");
    let huge = Stats::of([u64::MAX, u64::MAX]);
    assert_eq!(huge.mean, Some(u64::MAX));
}

#[test]
fn the_record_has_the_pinned_form() {
    let record = UsageRecord {
        usage: BTreeMap::from([(ResourceName::CPU, Stats::of([100, 200, 300]))]),
        max_usage: BTreeMap::from([(ResourceName::MEMORY, Stats { max: Some(1 << 20), ..Stats::default() })]),
        predicted: BTreeMap::from([(ResourceName::CPU, Stats { max: Some(400), ..Stats::default() })]),
        predicted_seconds: Some(3_600),
        predicted_confidence: Some(Confidence::new(0.9).unwrap()),
        window: Some(UsageWindow::new(1_700_000_000, 1_700_000_060).unwrap()),
        confidence: Some(Confidence::of_coverage(57, 60)),
        dropped: 3,
    };
    let json = serde_json::to_string_pretty(&record).unwrap();
    insta::assert_snapshot!(json);
    assert_eq!(serde_json::from_str::<UsageRecord>(&json).unwrap(), record);
}

#[test]
fn every_part_is_optional_and_wrong_parts_are_refused() {
    assert_eq!(serde_json::from_str::<UsageRecord>("{}").unwrap(), UsageRecord::default());
    for json in [
        r#"{"confidence": 1.5}"#,
        r#"{"windowStartSeconds": 2, "windowEndSeconds": 1}"#,
        r#"{"usage": {"cpu": {"percentiles": {"101": 1}}}}"#,
        r#"{"usage": {"c pu": {}}}"#,
    ] {
        assert!(serde_json::from_str::<UsageRecord>(json).is_err(), "{json}");
    }
    assert!(UsageWindow::new(1, 0).is_err());
    assert_eq!(UsageWindow::new(i64::MIN, i64::MAX).unwrap().seconds(), u64::MAX);
    assert!(Confidence::new(f64::NAN).is_err());
}

proptest! {
    #[test]
    fn statistics_are_ordered(values in proptest::collection::vec(any::<u64>(), 1..200)) {
        let stats = Stats::of(values.iter().copied());
        let (min, max) = (stats.min.unwrap(), stats.max.unwrap());
        prop_assert_eq!(stats.count, Some(values.len() as u64));
        prop_assert!((min..=max).contains(&stats.mean.unwrap()));
        let ranks: Vec<u64> = stats.percentiles.values().copied().collect();
        prop_assert!(ranks.is_sorted() && ranks.len() == 6);
        for (percentile, value) in stats.percentiles {
            prop_assert!(values.contains(&value));
            let not_above = values.iter().filter(|v| **v <= value).count() as u128;
            prop_assert!(not_above * 1000 >= values.len() as u128 * u128::from(percentile.tenths()));
        }
    }
}
