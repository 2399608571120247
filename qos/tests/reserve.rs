//! The cap of all workloads: where it starts, what it follows, and that it never squeezes at once.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::units::Bytes;
use evenkeel_qos::reserve::{CapInput, NodeUse, Previous, Reserve, ReserveRule};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;
const MINUTE: u64 = 60_000_000;

fn mib(n: u64) -> Bytes {
    Bytes::new(n * MIB)
}

fn reserve() -> Reserve {
    Reserve::new(ReserveRule { configured: mib(512), margin_percent: 10 })
}

fn node(daemons: u64, workloads: u64) -> NodeUse {
    NodeUse { memory: mib(8000), daemons: mib(daemons), workloads: mib(workloads), page: Bytes::new(4096) }
}

#[test]
fn it_starts_as_configured_and_follows_what_was_measured() {
    let mut reserve = reserve();
    let cap = |reserve: &mut Reserve, minute: u64, n: NodeUse| {
        reserve.observe(minute * MINUTE, n).value.get() / MIB
    };
    assert_eq!(cap(&mut reserve, 0, node(100, 1000)), 7488);
    // Daemons that use more than was configured narrow the cap, half a percent of memory a minute at most.
    assert_eq!(cap(&mut reserve, 1, node(800, 1000)), 7448);
    assert_eq!(cap(&mut reserve, 1, node(800, 1000)), 7448);
    for minute in 2..30 {
        cap(&mut reserve, minute, node(800, 1000));
    }
    assert_eq!(cap(&mut reserve, 30, node(800, 1000)), 7120);
    // Ten minutes on, what was measured counts alone: here a day's 99th percentile of 100 MiB.
    let mut quiet = self::reserve();
    for minute in 0..=10 {
        quiet.observe(minute * MINUTE, node(100, 1000));
    }
    assert_eq!(cap(&mut quiet, 11, node(100, 1000)), 7890);
}

#[test]
fn a_single_minute_in_a_day_does_not_count() {
    let mut reserve = reserve();
    for minute in 0..1000 {
        let daemons = if minute == 500 { 3000 } else { 200 };
        reserve.observe(minute * MINUTE, node(daemons, 0));
    }
    let wish = reserve.observe(1000 * MINUTE, node(200, 0));
    assert_eq!(wish.value.get() / MIB, 7780);
    assert_eq!(wish.reason.inputs()["daemons_p99"], (200 * MIB).to_string());
    assert_eq!(wish.reason.inputs()["trusted"], "true");
    assert!(wish.reason.text().starts_with("memory less what daemons were measured to use: "));
}

#[test]
fn the_cap_is_never_below_what_workloads_use() {
    let mut reserve = reserve();
    assert_eq!(reserve.observe(0, node(100, 7900)).value, mib(7900));
    assert_eq!(reserve.observe(1, node(100, 7950)).value, mib(7950));
    // It comes down as they do, slowly.
    assert_eq!(reserve.observe(2, node(100, 1000)).value, mib(7950));
    assert_eq!(reserve.observe(MINUTE, node(100, 1000)).value, mib(7910));
    let odd = NodeUse { workloads: Bytes::new(7910 * MIB + 1), ..node(100, 0) };
    assert_eq!(reserve.observe(MINUTE, odd).value, Bytes::new(7910 * MIB + 4096));
}

#[test]
fn history_is_bounded_and_forgets() {
    let mut reserve = reserve();
    for minute in 0..3000 {
        reserve.observe(minute * MINUTE, node(if minute < 1000 { 2000 } else { 100 }, 0));
    }
    assert_eq!(reserve.observe(3000 * MINUTE, node(100, 0)).value.get() / MIB, 7890);
}

proptest! {
    #[test]
    fn any_numbers_give_a_cap_in_bounds(
        memory: u64, configured: u64, p99 in prop::option::of(any::<u64>()), trusted: bool, margin: u16,
        workloads in 0_u64..u64::MAX / 2, previous in prop::option::of((any::<u64>(), any::<u64>())),
    ) {
        let input = CapInput {
            memory: Bytes::new(memory),
            configured: Bytes::new(configured),
            daemons_p99: p99.map(Bytes::new),
            is_trusted: trusted,
            margin_percent: margin,
            workloads: Bytes::new(workloads),
            previous: previous.map(|(cap, step)| Previous { cap: Bytes::new(cap), step: Bytes::new(step) }),
            page: Bytes::new(4096),
        };
        prop_assert!(input.reserve().get() <= memory / 2);
        prop_assert!(input.cap().get() >= workloads);
        prop_assert_eq!(input.wish().value, input.cap());
    }
}
