//! Inner cgroups of owned subtrees: sums, weights and the order of writes.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_qos::cpu::WeightConversion;
use evenkeel_qos::own::{Current, InnerValue, Leaf, Rule, inner, leaf_weight, scaled_weight, steps};
use proptest::prelude::*;

const RULE: Rule = Rule {
    conversion: WeightConversion::Quadratic,
    root_request: MilliCpu::new(1000),
    node: MilliCpu::new(1000),
};

fn leaf(path: &str, min: u64, low: u64, request: u64) -> Leaf {
    Leaf { path: path.into(), min: Bytes::new(min), low: Bytes::new(low), request: MilliCpu::new(request) }
}

fn leaves() -> Vec<Leaf> {
    vec![
        leaf("/own/one/a", 100, 0, 300),
        leaf("/own/one/b", 0, 50, 200),
        leaf("/own/two/c", 30, 0, 0),
        // Inside a container, outside the subtree, and beside it by name only.
        leaf("/other/d", 1000, 1000, 1000),
        leaf("/owned/e", 1000, 1000, 1000),
    ]
}

#[test]
fn inner_cgroups_hold_the_sums_of_what_is_below() {
    let found = inner("/own", RULE, &leaves());
    let rows: Vec<_> = found
        .iter()
        .map(|(path, i)| {
            (path.as_str(), i.min.value.get(), i.low.value.get(), i.request.get(), i.weight.value.get())
        })
        .collect();
    // The topmost counts as the whole node among others' cgroups (100); inside, 10000 is the whole node.
    let expected =
        [("/own", 130, 50, 1000, 100), ("/own/one", 100, 50, 500, 5000), ("/own/two", 30, 0, 0, 20)];
    assert_eq!(rows, expected);
    assert_eq!(found["/own/one"].shares.value.get(), 512);
    assert_eq!(found["/own/one"].min.reason.inputs()["children_sum"], "100");
    assert!(inner("/nothing", RULE, &leaves()).is_empty());
    // A container within a container is its own business.
    let nested = [leaf("/own/a", 10, 0, 0), leaf("/own/a/sub", 5, 0, 0)];
    assert_eq!(inner("/own/", RULE, &nested).keys().collect::<Vec<_>>(), ["/own"]);
}

#[test]
fn sums_stop_at_the_largest_number() {
    let found =
        inner("/o", RULE, &[leaf("/o/a", u64::MAX, 1, u64::MAX), leaf("/o/b", u64::MAX, 1, u64::MAX)]);
    assert_eq!(found["/o"].min.value.get(), u64::MAX);
}

#[test]
fn excess_is_two_to_one_inside_an_owned_subtree() {
    let weight = |milli, node| scaled_weight(MilliCpu::new(milli), MilliCpu::new(node)).get();
    assert_eq!((weight(600, 1000), weight(300, 1000)), (6000, 3000));
    assert_eq!((weight(600, 64_000), weight(300, 64_000)), (94, 47));
    assert_eq!((weight(0, 1000), weight(5000, 1000), weight(1, 0)), (20, 10_000, 10_000));
    // Who asks for next to nothing gets what the smallest shares give, not what the scale leaves.
    assert_eq!((weight(1, 1000), weight(2, 1000), weight(3, 1000), weight(0, 64_000)), (20, 20, 30, 1));
    assert_eq!(leaf_weight(MilliCpu::new(600), MilliCpu::new(1000)).value.get(), 6000);
}

#[test]
fn protections_grow_from_the_top_and_shrink_from_the_bottom() {
    let wanted = inner("/own", RULE, &leaves());
    let now = BTreeMap::from([
        ("/own".to_owned(), Current { min: Some(Bytes::new(10)), low: Some(Bytes::new(90)) }),
        ("/own/one".to_owned(), Current { min: Some(Bytes::new(20)), low: Some(Bytes::new(90)) }),
        ("/own/two".to_owned(), Current { min: Some(Bytes::new(30)), low: None }),
    ]);
    let order: Vec<_> = steps(&wanted, &now)
        .into_iter()
        .filter_map(|step| match step.value {
            InnerValue::Min(w) => Some(format!("{} min {}", step.path, w.value.get())),
            InnerValue::Low(w) => Some(format!("{} low {}", step.path, w.value.get())),
            InnerValue::Weight(_) | InnerValue::Shares(_) => None,
        })
        .collect();
    let expected = ["/own min 130", "/own/one min 100", "/own/two low 0", "/own/one low 50", "/own low 50"];
    assert_eq!(order, expected);
}

proptest! {
    #[test]
    fn at_every_step_a_parent_covers_what_both_states_promise(old in prop::collection::vec(0_u64..100, 6), new in prop::collection::vec(0_u64..100, 6)) {
        let tree = |values: &[u64]| -> Vec<Leaf> {
            values.iter().enumerate().map(|(i, v)| leaf(&format!("/o/p{}/c{i}", i % 3), *v, 0, *v)).collect()
        };
        let (before, after) = (inner("/o", RULE, &tree(&old)), inner("/o", RULE, &tree(&new)));
        let mut held: BTreeMap<String, Current> = before
            .iter()
            .map(|(path, i)| (path.clone(), Current { min: Some(i.min.value), low: Some(i.low.value) }))
            .collect();
        for step in steps(&after, &held.clone()) {
            let InnerValue::Min(wish) = step.value else { continue };
            held.get_mut(&step.path).unwrap().min = Some(wish.value);
            let top = held["/o"].min.unwrap().get();
            for path in ["/o/p0", "/o/p1", "/o/p2"] {
                let covered = before[path].min.value.get().min(after[path].min.value.get());
                prop_assert!(held[path].min.unwrap().get() >= covered);
                prop_assert!(top >= covered);
            }
        }
        for (path, inner) in &after {
            prop_assert_eq!(held[path].min, Some(inner.min.value));
        }
    }

    #[test]
    fn any_path_is_taken(root in "[/a.]{0,6}", paths in prop::collection::vec("[/ab.]{0,12}", 0..10)) {
        let leaves: Vec<_> = paths.iter().map(|p| leaf(p, 1, 1, 1)).collect();
        for path in inner(&root, RULE, &leaves).keys() {
            prop_assert!(leaves.iter().any(|l| l.path.starts_with(path.as_str())));
            prop_assert!(leaves.iter().all(|l| l.path != *path));
        }
    }
}
