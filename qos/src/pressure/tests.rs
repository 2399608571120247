//! Tables for the rules, properties for the machine.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Bytes;
use proptest::prelude::*;

use super::grade::part_of;
use super::*;
use crate::why::Why;

const MIB: u64 = 1 << 20;
const TOTAL: u64 = 4096;

fn mib(n: u64) -> Bytes {
    Bytes::new(n * MIB)
}

fn band(some: u32, full: u32, available: u32, ahead: u64, dwell: u64, cool_down: u64) -> Band {
    Band {
        some: Pair { enter: some, leave: some / 2 },
        full: Pair { enter: full, leave: full / 2 },
        available: Pair { enter: available, leave: available + 200 },
        exhaustion_usec: Some(ahead * 1_000_000),
        dwell_usec: dwell * 1000,
        cool_down_usec: cool_down * 1000,
    }
}

fn rules() -> PressureConfig {
    PressureConfig {
        bands: Bands {
            warning: band(1000, 500, 1000, 20, 1000, 2000),
            high: band(4000, 1000, 500, 10, 1000, 1000),
            critical: band(9000, 4000, 250, 2, 0, 250),
            basis_at_most: Bytes::new(u64::MAX),
            look_ahead_below: 5000,
            stall_below: 1000,
            calm_after_usec: 3_000_000,
        },
        can: Switches { reclaim: true, high: true, soft_limit: false, freeze: true, kill: true },
        step: 1000,
        reserve: 1500,
        floor: mib(100),
        kill_after_usec: 2_000_000,
        kill_cool_down_usec: 5_000_000,
        freeze_at_most_usec: 5_000_000,
        redo_after_usec: 5_000_000,
        retrigger_window_usec: 600_000_000,
        retriggers: 3,
    }
}

fn case(class: QosClass, request: u64, current: u64) -> PressureCase {
    PressureCase {
        grade: Grade::High,
        urgent: false,
        rung: Rung::High,
        available: mib(150),
        short_below: None,
        floor: mib(100),
        swap_free: Bytes::ZERO,
        managed: true,
        class,
        request: mib(request),
        current: mib(current),
        anon: mib(current / 2),
        file: mib(current / 2),
        age_usec: 0,
        held_at: None,
        frozen: false,
        held_for_usec: None,
        kill_after_usec: 2_000_000,
        step: 1000,
        can: rules().can,
    }
}

#[test]
fn one_container_one_step() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let base = case(BestEffort, 0, 1000);
    let cap = |n| Some(PressureStep::High(mib(n)));
    let v1 = Switches { reclaim: false, high: false, soft_limit: true, freeze: true, kill: true };
    let old = Some(3_000_000);
    let critical =
        PressureCase { grade: Grade::Critical, rung: Rung::Kill, held_at: Some(mib(1000)), ..base };
    let reclaim = |n, file_only| Some(PressureStep::Reclaim { amount: mib(n), file_only });
    let warning = PressureCase { grade: Grade::Warning, rung: Rung::Reclaim, ..base };
    let table = [
        ("a tenth less", base, cap(900)),
        ("where it stands", PressureCase { urgent: true, ..base }, cap(1000)),
        ("never below the request", case(Burstable, 950, 1000), cap(950)),
        ("within the request", case(Burstable, 1000, 1000), None),
        ("guaranteed", case(Guaranteed, 10, 1000), None),
        ("not managed", PressureCase { managed: false, ..base }, None),
        ("old numbers", PressureCase { age_usec: 3_000_001, ..base }, None),
        ("calm", PressureCase { grade: Grade::Calm, ..base }, None),
        ("waiting while memory is short", PressureCase { short_below: Some(mib(151)), ..base }, cap(900)),
        ("waiting while there is plenty", PressureCase { short_below: Some(mib(150)), ..base }, None),
        ("no further than the kernel can follow", PressureCase { file: mib(30), ..base }, cap(970)),
        ("nothing to take: held where it stands", PressureCase { file: mib(0), ..base }, cap(1000)),
        ("held there already", PressureCase { file: mib(0), held_at: Some(mib(1000)), ..base }, None),
        ("swap takes the rest", PressureCase { file: mib(0), swap_free: mib(5000), ..base }, cap(900)),
        ("steered on v1", PressureCase { can: v1, ..base }, Some(PressureStep::SoftLimit(mib(900)))),
        ("reclaimed", warning, reclaim(100, true)),
        ("reclaimed with swap", PressureCase { swap_free: mib(9), ..warning }, reclaim(100, false)),
        ("frozen once it is held", critical, Some(PressureStep::Freeze)),
        ("held first", PressureCase { held_at: None, ..critical }, cap(900)),
        (
            "frozen at once",
            PressureCase { held_at: None, urgent: true, ..critical },
            Some(PressureStep::Freeze),
        ),
        (
            "killed last",
            PressureCase { frozen: true, available: mib(99), held_for_usec: old, ..critical },
            Some(PressureStep::Kill),
        ),
        (
            "not while memory is left",
            PressureCase { frozen: true, held_for_usec: old, file: mib(0), ..critical },
            None,
        ),
        (
            "not before milder steps had their time",
            PressureCase {
                frozen: true,
                available: mib(9),
                held_for_usec: Some(1),
                file: mib(0),
                ..critical
            },
            None,
        ),
        (
            "killed where nothing else can be done",
            PressureCase {
                available: mib(9),
                held_at: None,
                can: Switches { kill: true, ..Switches::default() },
                ..critical
            },
            Some(PressureStep::Kill),
        ),
    ];
    for (name, case, want) in table {
        assert_eq!(decide(&case), want, "{name}");
    }
}

#[test]
fn undoing_needs_what_it_may_take() {
    let base = Giving {
        held: Restriction::High,
        grade: Grade::Calm,
        protected: false,
        available: mib(1000),
        reserve: mib(600),
        current: mib(500),
        limit: None,
        peak: mib(700),
        growth: Bytes::ZERO,
        cap: Some(mib(900)),
        held_for_usec: 0,
        freeze_at_most_usec: 5_000_000,
        raise: mib(80),
    };
    let frozen = Giving { held: Restriction::Frozen, cap: None, growth: mib(40), ..base };
    let table = [
        ("fits", base, Some(Letting::Whole)),
        ("would eat the reserve", Giving { peak: mib(901), ..base }, None),
        (
            "its limit holds it",
            Giving { peak: mib(901), limit: Some(mib(600)), ..base },
            Some(Letting::Whole),
        ),
        ("not in a bad grade", Giving { grade: Grade::Warning, ..base }, None),
        (
            "not ours to hold",
            Giving { grade: Grade::Critical, protected: true, ..base },
            Some(Letting::Whole),
        ),
        ("it presses: a little more", Giving { current: mib(890), ..base }, Some(Letting::Raise(mib(980)))),
        ("it presses, nothing to spare", Giving { current: mib(890), available: mib(650), ..base }, None),
        ("thawed", frozen, Some(Letting::Thaw)),
        ("it grew too fast", Giving { growth: mib(41), ..frozen }, None),
        (
            "it grew too fast, but a cap stands",
            Giving { growth: mib(41), cap: Some(mib(550)), ..frozen },
            Some(Letting::Thaw),
        ),
        (
            "long enough",
            Giving { grade: Grade::Critical, held_for_usec: 5_000_000, ..frozen },
            Some(Letting::Thaw),
        ),
    ];
    for (name, case, want) in table {
        assert_eq!(let_go(&case), want, "{name}");
    }
}

fn look(ms: u64, available: u64, containers: Vec<ContainerMemory>) -> Observation {
    Observation {
        now_usec: ms * 1000,
        node: NodePressure { total: mib(TOTAL), available: mib(available), ..NodePressure::default() },
        containers,
    }
}

fn facts(key: u32, class: QosClass, request: u64, current: u64, ms: u64) -> ContainerMemory {
    ContainerMemory {
        key,
        managed: true,
        class,
        request: mib(request),
        limit: None,
        current: mib(current),
        anon: mib(current),
        file: Bytes::ZERO,
        some_usec: Some(0),
        read_usec: ms * 1000,
    }
}

#[test]
fn a_hog_is_capped_before_memory_ends_and_let_go_when_it_is_done() {
    let (mut machine, rules) = (Machine::default(), rules());
    let mut log = Vec::new();
    // A hog at a tenth of memory in a second beside a Guaranteed neighbour.
    let (mut hog, mut cap) = (100_u64, u64::MAX);
    for ms in (0..60_000).step_by(250) {
        // After 20 s it wants no more and gives back.
        let wish = if ms < 20_000 { hog + TOTAL / 40 } else { 200 };
        hog = wish.min(cap.max(hog.min(wish)));
        let available = 3900 - hog - 1000;
        let seen = look(
            ms,
            available,
            vec![facts(1, QosClass::BestEffort, 0, hog, ms), facts(2, QosClass::Guaranteed, 1000, 1000, ms)],
        );
        for action in machine.step(&seen, &rules) {
            assert_eq!(action.key, 1);
            match action.deed {
                PressureChange::Restrict(PressureStep::High(at), _) => cap = at.get() / MIB,
                PressureChange::Release(Letting::Raise(to), _) => cap = to.get() / MIB,
                PressureChange::Release(Letting::Whole, _) => cap = u64::MAX,
                other => panic!("{other:?}"),
            }
            log.push((ms, action.value()));
            machine.done(ms * 1000, &action, PressureResult::Done);
        }
        assert!(available > 400, "{ms} {available} {log:?}");
    }
    assert!(log.len() >= 2, "{log:?}");
    assert_eq!(cap, u64::MAX, "{log:?}");
    assert!(log.len() < 30, "{log:?}");
}

#[test]
fn stalls_of_a_capped_container_are_its_own() {
    let (mut machine, rules) = (Machine::default(), rules());
    let mut released = false;
    for tick in 0_u64..80 {
        let ms = tick * 250;
        // Memory is short for two seconds; then there is plenty, but whoever is capped stalls all the time.
        let mut seen = look(
            ms,
            if ms < 2000 { 150 } else { 3000 },
            vec![facts(1, QosClass::BestEffort, 0, 500, ms), facts(2, QosClass::Burstable, 300, 200, ms)],
        );
        seen.node.some_usec = Some(ms * 1000);
        seen.node.full_usec = Some(ms * 1000);
        seen.containers[0].some_usec = Some(ms * 1000);
        for action in machine.step(&seen, &rules) {
            released |= matches!(action.deed, PressureChange::Release(..));
            machine.done(ms * 1000, &action, PressureResult::Done);
        }
    }
    assert!(released);
}

#[test]
fn a_grade_that_waits_for_its_end_takes_no_steps() {
    let (mut machine, rules) = (Machine::default(), rules());
    let mut last = 0;
    for ms in (0..8000).step_by(250) {
        // Short for two seconds; the grade stays for three more. Page cache that is there to be reclaimed.
        let mut seen =
            look(ms, if ms < 2000 { 390 } else { 3000 }, vec![facts(1, QosClass::BestEffort, 0, 500, ms)]);
        seen.containers[0].file = mib(400);
        for action in machine.step(&seen, &rules) {
            assert!(
                matches!(action.deed, PressureChange::Restrict(PressureStep::Reclaim { .. }, _)),
                "{action:?}"
            );
            last = ms;
            machine.done(seen.now_usec, &action, PressureResult::Done);
        }
        if ms == 4000 {
            assert_eq!(machine.grade(), Grade::Warning);
        }
    }
    assert!((1..2000).contains(&last), "{last}");
}

/// What a machine does in `seconds` of looks at a hog of 500 MiB without a request.
fn steps_of(seconds: u64, node: impl Fn(u64) -> NodePressure) -> Vec<(u64, String)> {
    let (mut machine, rules) = (Machine::default(), rules());
    let mut steps = Vec::new();
    for ms in (0..seconds * 1000).step_by(250) {
        let mut seen = look(ms, 0, vec![facts(1, QosClass::BestEffort, 0, 500, ms)]);
        seen.node = NodePressure { total: mib(TOTAL), ..node(ms) };
        // As the agent does it: the cheap look first, and containers only when something is up.
        if machine.glance(seen.now_usec, &seen.node, &rules) {
            for action in machine.step(&seen, &rules) {
                steps.push((ms, action.value()));
                machine.done(seen.now_usec, &action, PressureResult::Done);
            }
        }
    }
    steps
}

#[test]
fn whoever_stalls_at_its_own_limit_is_nobody_elses_trouble() {
    // Somebody stalls all the time, as the kernel's triggers and averages say, too.
    let stalled = |available: u64, own_limits: OwnLimits, ms: u64| NodePressure {
        some_usec: Some(ms * 1000),
        full_usec: Some(ms * 800),
        some_avg10: Some(9900),
        full_avg10: Some(8000),
        available: mib(available),
        own_limits,
        fired: Some((Grade::Critical, 1_000_000)),
        ..NodePressure::default()
    };
    // Somebody is at its limit when first looked at, and stalls there.
    let own = |ms: u64| if ms == 0 { OwnLimits::Pending } else { OwnLimits::Stalled(ms * 1000) };
    // 96 %, 16 % and 9 % of memory; warning begins at 10 %, high at 5 %.
    for (available, what) in [(3932, "plenty"), (655, "enough")] {
        let steps = steps_of(60, |ms| stalled(available, OwnLimits::Untold, ms));
        assert_eq!(steps, [], "{what} is available, and on v1 that decides");
        assert_eq!(steps_of(60, |ms| stalled(available, own(ms), ms)), [], "{what} is available");
    }
    let short = |own_limits: &dyn Fn(u64) -> OwnLimits| {
        steps_of(10, |ms| NodePressure { fired: None, ..stalled(368, own_limits(ms), ms) })
    };
    // Little is available: on v1 nobody knows better, and growth is held at once and stopped.
    let held = (500 * MIB).to_string();
    assert_eq!(short(&|_| OwnLimits::Untold)[0], (0, held.clone()));
    // Told apart, all of it is the stalled one's own: only what is available counts, and that is a warning.
    assert!(short(&own).is_empty(), "{:?}", short(&own));
    // A trigger alone is no reason while nobody has looked who waited.
    let fired = steps_of(10, |ms| NodePressure {
        some_avg10: Some(0),
        full_avg10: Some(0),
        some_usec: Some(0),
        full_usec: Some(0),
        ..stalled(368, OwnLimits::Unread, ms)
    });
    assert_eq!(fired, []);
    // Told apart, none of it is; and while it is not yet known, nothing is done for it. The averages hold what was
    // before the first look: they do not count yet.
    assert_eq!(short(&|_| OwnLimits::Stalled(0))[0], (250, held.clone()));
    let past = |_: u64| NodePressure {
        some_usec: Some(0),
        full_usec: Some(0),
        ..stalled(368, OwnLimits::Stalled(0), 0)
    };
    assert_eq!(steps_of(10, |ms| NodePressure { fired: None, ..past(ms) }), []);
    let late = |ms| if ms < 2000 { OwnLimits::Pending } else { OwnLimits::Stalled(0) };
    assert_eq!(short(&late)[0], (2250, held));
}

#[test]
fn a_third_return_goes_one_rung_higher() {
    let (mut machine, mut rules) = (Machine::default(), rules());
    // Only what is available counts here, not how fast it went.
    rules.bands.look_ahead_below = 0;
    let mut steps = Vec::new();
    for round in 0_u64..5 {
        for tick in 0_u64..200 {
            let ms = (round * 200 + tick) * 250;
            let available = if tick < 20 { 180 } else { 3500 };
            let seen = look(ms, available, vec![facts(1, QosClass::BestEffort, 0, 300, ms)]);
            for action in machine.step(&seen, &rules) {
                if let PressureChange::Restrict(step, _) = action.deed {
                    steps.push((round, step.rung()));
                }
                machine.done(ms * 1000, &action, PressureResult::Done);
            }
        }
    }
    let highest = |round| steps.iter().filter(|(r, _)| *r == round).map(|(_, rung)| *rung).max();
    assert_eq!(highest(0), Some(Rung::High), "{steps:?}");
    assert_eq!(highest(2), Some(Rung::High), "{steps:?}");
    assert_eq!(highest(3), Some(Rung::Freeze), "{steps:?}");
}

#[test]
fn what_failed_is_left_alone() {
    let (mut machine, rules) = (Machine::default(), rules());
    let mut tried = Vec::new();
    for tick in 0_u64..40 {
        let ms = tick * 250;
        let seen = look(ms, 90, vec![facts(1, QosClass::BestEffort, 0, 300, ms)]);
        for action in machine.step(&seen, &rules) {
            if let PressureChange::Restrict(step, _) = action.deed {
                tried.push(step.rung());
                machine.done(
                    ms * 1000,
                    &action,
                    if step.rung() < Rung::Kill { PressureResult::Failed } else { PressureResult::Done },
                );
            }
        }
    }
    assert_eq!(tried[..3], [Rung::High, Rung::Freeze, Rung::Kill], "{tried:?}");
}

#[derive(Debug, Clone, Copy)]
struct Tick {
    step_ms: u64,
    available: u64,
    stall: u64,
    fired: bool,
    sizes: [u64; 4],
    age_ms: u64,
    fails: bool,
}

fn ticks() -> impl Strategy<Value = Vec<Tick>> {
    let tick = (
        (50_u64..2000, 0_u64..TOTAL, 0_u64..=100, any::<bool>()),
        (prop::array::uniform4(0_u64..2000), prop_oneof![3 => Just(0_u64), 1 => 0_u64..6000], any::<bool>()),
    );
    let tick = tick.prop_map(|((step_ms, available, stall, fired), (sizes, age_ms, fails))| Tick {
        step_ms,
        available,
        stall,
        fired,
        sizes,
        age_ms,
        fails,
    });
    prop::collection::vec(tick, 1..120)
}

/// BestEffort, Burstable, Guaranteed, and a BestEffort one that is not managed.
fn observed(tick: &Tick, now_ms: u64, stalled: u64) -> Observation {
    let read = now_ms.saturating_sub(tick.age_ms);
    let mut containers = vec![
        facts(0, QosClass::BestEffort, 0, tick.sizes[0], read),
        facts(1, QosClass::Burstable, 500, tick.sizes[1], read),
        facts(2, QosClass::Guaranteed, 500, tick.sizes[2], read),
        facts(3, QosClass::BestEffort, 0, tick.sizes[3], read),
    ];
    containers[3].managed = false;
    let mut seen = look(now_ms, tick.available, containers);
    seen.node.some_usec = Some(stalled);
    seen.node.full_usec = Some(stalled / 2);
    seen.node.fired = tick.fired.then_some((Grade::High, 1_000_000));
    seen
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_machine_keeps_its_word(ticks in ticks(), v1 in any::<bool>()) {
        let mut rules = rules();
        if v1 {
            rules.can = Switches { reclaim: false, high: false, soft_limit: true, freeze: true, kill: true };
        }
        let mut machine = Machine::default();
        let (mut now, mut stalled) = (10_000_u64, 0_u64);
        let mut released: Vec<(u32, Rung, u64)> = Vec::new();
        // What a kernel would hold: cap, frozen.
        let mut held = [(false, false); 4];
        let calm = Tick { step_ms: 500, available: 4000, stall: 0, fired: false, sizes: [100; 4], age_ms: 0, fails: false };
        let trace = ticks.iter().chain(std::iter::repeat_n(&calm, 120));
        for tick in trace {
            now += tick.step_ms;
            stalled += tick.step_ms * 10 * tick.stall;
            let seen = observed(tick, now, stalled);
            let before = machine.clone();
            let actions = machine.step(&seen, &rules);
            prop_assert!(actions.len() <= 8);
            prop_assert!(machine.len() <= 4);
            for action in actions {
                let facts = &seen.containers[action.key as usize];
                let slot = &mut held[action.key as usize];
                match action.deed {
                    PressureChange::Restrict(step, case) => {
                        prop_assert!(action.key < 2, "{action:?}");
                        prop_assert!(tick.age_ms <= 3000, "{action:?}");
                        prop_assert!(facts.class != QosClass::Burstable || facts.current > facts.request);
                        if let PressureStep::High(at) | PressureStep::SoftLimit(at) = step {
                            prop_assert!(at <= facts.current);
                            prop_assert!(facts.class != QosClass::Burstable || at >= facts.request);
                        }
                        if let PressureStep::Reclaim { amount, file_only } = step {
                            prop_assert!(file_only && amount <= facts.file);
                        }
                        if step == PressureStep::Kill {
                            prop_assert!(seen.node.available < rules.floor);
                        }
                        let again = released.iter().any(|(key, rung, at)| {
                            *key == action.key && *rung == step.rung() && now * 1000 - at < rules.redo_after_usec
                        });
                        prop_assert!(!again, "{action:?} at {now} after {released:?}");
                        let Why::PressureStep(why) = action.why() else { panic!("{action:?}") };
                        prop_assert_eq!(why.again(), action.value());
                        prop_assert_eq!(decide(&case), Some(step));
                        let fails = tick.fails;
                        machine.done(now * 1000, &action, if fails { PressureResult::Failed } else { PressureResult::Done });
                        if !fails {
                            match step {
                                PressureStep::High(_) | PressureStep::SoftLimit(_) => slot.0 = true,
                                PressureStep::Freeze => slot.1 = true,
                                PressureStep::Kill => *slot = (false, false),
                                PressureStep::Reclaim { .. } => {}
                            }
                        }
                    }
                    PressureChange::Release(letting, giving) => {
                        prop_assert!(slot.0 || slot.1, "{action:?} {before:?}");
                        let Why::PressureRelease(why) = action.why() else { panic!("{action:?}") };
                        prop_assert_eq!(why.again(), action.value());
                        let bound = giving.held == Restriction::Frozen && giving.held_for_usec >= rules.freeze_at_most_usec;
                        let spare = giving.available.saturating_sub(part_of(mib(TOTAL), rules.reserve));
                        prop_assert!(bound || giving.grade == Grade::Calm);
                        let takes = if matches!(letting, Letting::Raise(_)) { giving.raise } else { giving.may_take() };
                        prop_assert!(bound || takes <= spare, "{action:?}");
                        machine.done(now * 1000, &action, if tick.fails { PressureResult::Failed } else { PressureResult::Done });
                        if !tick.fails {
                            match letting {
                                Letting::Thaw => slot.1 = false,
                                Letting::Whole => slot.0 = false,
                                Letting::Raise(_) => {}
                            }
                        }
                        let rung = if letting == Letting::Thaw { Rung::Freeze } else { Rung::High };
                        released.push((action.key, rung, now * 1000));
                    }
                }
            }
        }
        // Everything that was done is undone once there is no pressure.
        prop_assert_eq!(held, [(false, false); 4]);
        prop_assert!(!machine.holds());
        prop_assert_eq!(machine.grade(), Grade::Calm);
    }
}
