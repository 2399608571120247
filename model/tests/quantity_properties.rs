//! What holds for every quantity and every text.
#![allow(clippy::unwrap_used, clippy::panic)] // a failing helper fails its test

use evenkeel_model::quantity::{Format, Quantity, QuantityReport};
use proptest::prelude::*;

fn format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSI), Just(Format::BinarySI), Just(Format::DecimalExponent)]
}

/// Quantities of every magnitude, the extremes among them.
fn quantity() -> impl Strategy<Value = Quantity> {
    let magnitude = prop_oneof![
        any::<i128>(),
        (any::<i64>(), 0_u32..20).prop_map(|(n, power)| i128::from(n) * 10_i128.pow(power)),
        (any::<i32>(), 0_u32..6).prop_map(|(n, power)| i128::from(n) * (1 << (10 * power)) * 1_000_000_000),
        -5_i128..5,
    ];
    (magnitude, format()).prop_map(|(nano, format)| Quantity::from_nano(nano, format))
}

/// Texts that look like quantities.
fn almost() -> impl Strategy<Value = String> {
    "[+-]?[0-9]{0,40}\\.?[0-9]{0,40}(n|u|m|k|K|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{0,25})?"
}

proptest! {
    #[test]
    fn the_canonical_form_reads_back(q in quantity()) {
        let text = q.canonical();
        let back = Quantity::parse(&text).unwrap();
        prop_assert_eq!(back, q);
        prop_assert_eq!(back.canonical(), text);
    }

    #[test]
    fn the_exact_text_reads_back(q in quantity()) {
        prop_assert_eq!(Quantity::parse(&q.exact()).unwrap(), q);
    }

    #[test]
    fn the_canonical_form_has_no_fraction(q in quantity()) {
        prop_assert!(!q.canonical().contains('.'));
    }

    #[test]
    fn order_is_that_of_the_amounts(a in quantity(), b in quantity()) {
        prop_assert_eq!(a.cmp(&b), a.nano().cmp(&b.nano()));
        prop_assert_eq!(a == b, a.exact() == b.exact());
        prop_assert_eq!(a < b, b > a);
    }

    #[test]
    fn integers_are_rounded_away_from_zero(q in quantity()) {
        let (value, milli) = (q.value(), q.milli());
        prop_assert!(value.unsigned_abs() * 1_000_000_000 >= q.nano().unsigned_abs());
        prop_assert!(value.unsigned_abs().saturating_sub(1) * 1_000_000_000 < q.nano().unsigned_abs().max(1));
        prop_assert!(milli.unsigned_abs() * 1_000_000 >= q.nano().unsigned_abs());
    }

    #[test]
    fn arithmetic_neither_panics_nor_leaves_the_range(a in quantity(), b in quantity(), n in any::<i64>()) {
        for result in [a.saturating_add(b), a.saturating_sub(b), a.saturating_mul(n), a.rounded_up_to(b), a.negated()] {
            prop_assert!(Quantity::MIN <= result && result <= Quantity::MAX);
        }
        if let Some(sum) = a.checked_add(b) {
            prop_assert_eq!(sum, a.saturating_add(b));
            prop_assert_eq!(sum.checked_sub(b), Some(a));
        }
        let _ = (a.checked_scale(b), a.checked_unscale(b), a.checked_mul(n));
    }

    #[test]
    fn what_looks_like_a_quantity_never_panics_and_reads_back(text in almost()) {
        if let Ok(q) = Quantity::parse(&text) {
            prop_assert_eq!(Quantity::parse(&q.canonical()).unwrap(), q);
        }
    }

    #[test]
    fn any_text_gets_an_answer(text in any::<String>()) {
        let report = QuantityReport::of(&text);
        prop_assert_eq!(report.is_accepted(), Quantity::parse(&text).is_ok());
    }

    #[test]
    fn a_sum_of_texts_is_the_sum_of_their_amounts(a in 0_u64..1 << 40, b in 0_u64..1 << 40) {
        let read = |n: u64| Quantity::parse(&format!("{n}m")).unwrap();
        prop_assert_eq!(read(a).saturating_add(read(b)).milli(), i128::from(a) + i128::from(b));
    }
}
