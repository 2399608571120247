//! Tables for the rules, properties for the machine.

use evenkeel_model::qos_class::QosClass;
use proptest::prelude::*;

use super::*;
use crate::why::Why;

fn rules() -> StarvationConfig {
    StarvationConfig {
        act: true,
        evict: Evict::Offender,
        after_usec: 5_000_000,
        below: 9000,
        pressure: 2000,
        busy: 9500,
        dwell_usec: 3_000_000,
        evict_after_usec: 20_000_000,
        floor_milli: 50,
    }
}

fn facts(key: u32, class: QosClass, request: u64, usage: u64, waited: u32) -> ContainerCpu {
    ContainerCpu {
        key,
        managed: true,
        class,
        request_milli: request,
        usage_milli: usage,
        waited: Some(waited),
        throttled: false,
        least_weight: false,
        can_idle: true,
    }
}

#[test]
fn who_starves() {
    let base = Starving {
        request_milli: 500,
        usage_milli: 449,
        waited: Some(2000),
        throttled: false,
        node_busy: 9500,
        below: 9000,
        pressure: 2000,
        busy: 9500,
    };
    for (name, case, want) in [
        ("it wants more and does not get it", base, true),
        ("it has enough", Starving { usage_milli: 450, ..base }, false),
        ("it wants no more", Starving { waited: Some(1999), ..base }, false),
        ("nobody knows whether it wants more", Starving { waited: None, ..base }, false),
        ("its own quota stops it", Starving { throttled: true, ..base }, false),
        ("nobody keeps it from it", Starving { node_busy: 9499, ..base }, false),
        ("it asked for nothing", Starving { request_milli: 0, usage_milli: 0, ..base }, false),
    ] {
        assert_eq!(starves(&case), want, "{name}");
    }
}

#[test]
fn what_is_done_to_an_offender() {
    let base = StarvationCase {
        managed: true,
        class: QosClass::BestEffort,
        request_milli: 0,
        usage_milli: 800,
        least_weight: false,
        can_idle: true,
        quota_milli: None,
        floor_milli: 50,
        can_quota: true,
    };
    let idle = StarvationCase { least_weight: true, can_idle: false, ..base };
    let burstable = StarvationCase { class: QosClass::Burstable, request_milli: 300, ..base };
    for (name, case, want) in [
        ("weight first", base, Some(Squeeze::Weight)),
        ("then idle", StarvationCase { least_weight: true, ..base }, Some(Squeeze::Idle)),
        ("then half of what it uses", idle, Some(Squeeze::Quota(400))),
        (
            "and half of that",
            StarvationCase { quota_milli: Some(400), usage_milli: 400, ..idle },
            Some(Squeeze::Quota(200)),
        ),
        (
            "down to the floor",
            StarvationCase { quota_milli: Some(80), usage_milli: 80, ..idle },
            Some(Squeeze::Quota(50)),
        ),
        ("and no further", StarvationCase { quota_milli: Some(50), usage_milli: 50, ..idle }, None),
        ("a request is kept", burstable, Some(Squeeze::Quota(400))),
        (
            "a request is kept whole",
            StarvationCase { request_milli: 700, ..burstable },
            Some(Squeeze::Quota(700)),
        ),
        ("within its request", StarvationCase { request_milli: 800, ..burstable }, None),
        ("guaranteed", StarvationCase { class: QosClass::Guaranteed, ..base }, None),
        ("not managed", StarvationCase { managed: false, ..base }, None),
        ("nothing can be done", StarvationCase { can_quota: false, ..idle }, None),
    ] {
        assert_eq!(squeeze(&case), want, "{name}");
    }
}

#[test]
fn starvation_is_reported_answered_and_forgotten() {
    let (mut machine, rules) = (Machine::default(), rules());
    let mut log = Vec::new();
    for second in 0_u64..60 {
        let hungry = second < 25;
        let seen = [
            facts(
                1,
                QosClass::Guaranteed,
                1000,
                if hungry { 300 } else { 990 },
                if hungry { 8000 } else { 100 },
            ),
            facts(2, QosClass::BestEffort, 0, 700, 5000),
            facts(3, QosClass::Burstable, 100, 600, 5000),
        ];
        for action in machine.step(second * 1_000_000, 10_000, &seen, &rules) {
            log.push((second, action.key, action.value()));
            machine.done(&action, StarvationResult::Done);
        }
    }
    let said: Vec<String> = log.iter().map(|(at, key, what)| format!("{at} {key} {what}")).collect();
    assert_eq!(
        said[..6],
        ["5 1 starving", "5 2 least-weight", "8 2 idle", "11 2 350m", "14 2 175m", "17 2 87m"],
        "{said:?}"
    );
    assert!(!machine.holds(), "{said:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_squeezed_below_what_it_asked_for_and_all_is_undone(
        looks in prop::collection::vec(
            (1_u64..4, 0_u32..=10_000, prop::array::uniform4((0_u64..2000, 0_u32..=10_000, any::<bool>()))), 1..80),
        fails in any::<bool>(),
    ) {
        let (mut machine, rules) = (Machine::default(), rules());
        let mut now = 0;
        let mut held = [0_i32; 4];
        let calm = (1_u64, 0_u32, [(0_u64, 0_u32, false); 4]);
        for (seconds, busy, containers) in looks.iter().chain(std::iter::repeat_n(&calm, 200)) {
            now += seconds * 1_000_000;
            let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed, QosClass::BestEffort];
            let seen: Vec<ContainerCpu> = containers.iter().zip(classes).enumerate().map(|(key, ((usage, waited, throttled), class))| {
                let request = if class == QosClass::BestEffort { 0 } else { 500 };
                ContainerCpu { throttled: *throttled, managed: key < 3, ..facts(key as u32, class, request, *usage, *waited) }
            }).collect();
            for action in machine.step(now, *busy, &seen, &rules) {
                let key = action.key as usize;
                match action.deed {
                    StarvationChange::Squeeze(step, case, _) => {
                        prop_assert!(key < 2);
                        prop_assert_eq!(squeeze(&case), Some(step));
                        let Why::Squeeze(why) = action.why() else { panic!("{action:?}") };
                        prop_assert_eq!(why.again(), action.value());
                        if let Squeeze::Quota(milli) = step {
                            prop_assert!(milli >= rules.floor_milli.max(seen[key].request_milli));
                        }
                        machine.done(&action, if fails { StarvationResult::Failed } else { StarvationResult::Done });
                        held[key] = 1;
                    }
                    StarvationChange::Release(_) => prop_assert!(held[key] > 0),
                    StarvationChange::Report(_) => {
                        let Why::Starves(why) = action.why() else { panic!("{action:?}") };
                        prop_assert_eq!(why.again(), action.value());
                    }
                    StarvationChange::Evict(_) => prop_assert!(key < 2),
                }
            }
            prop_assert!(machine.len() <= 4);
        }
        prop_assert!(!machine.holds());
    }
}
