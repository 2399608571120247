//! Suite `unit`: which pod of a workload is changed, how, and why others are not: one table of facts.

use std::collections::BTreeMap;

use crate::common::{MIB, NOW, Says, main_of, now, planned, pod, size, told, web};
use evenkeel_model::panic::Panic;
use evenkeel_model::qos_class::QosClass;
use evenkeel_rightsizing::policy::LimitsMode;
use evenkeel_rightsizing::policy::update::{Evict, MaxUnavailable, UpdateWindow};
use evenkeel_updater::{
    Health, Note, Now, PodAction, Reason, ReplayCase, Resizing, RunningPod, Size, Sizes, Stage,
    TargetRequest, UpdateRules, UpdaterMemory, Watched, Workload, plan,
};

fn note(stage: Stage, at: u64, target: Sizes) -> Note {
    let before = main_of(size(100, None), size(100 * MIB, None));
    Note {
        stage,
        is_canary: false,
        at,
        tries: 0,
        original: before.clone(),
        before,
        target,
        why: String::new(),
    }
}

/// The first pod was resized to 200m, or is to be.
fn resized(workload: &mut Workload, stage: Stage, at: u64, resizing: Resizing) {
    let target = main_of(size(200, None), size(100 * MIB, None));
    let pod = &mut workload.pods[0];
    pod.sizes.clone_from(&target);
    pod.resizing = resizing;
    pod.note = Some(note(stage, at, target));
}

type Change = fn(&mut Workload);
/// What it is, the workload, whether there is room in place and anywhere, what is done, and why the rest is not.
type Row<'a> = (&'a str, Change, (bool, bool), &'a [&'a str], &'a [Reason]);

#[test]
fn a_table_of_choices() {
    let always = |w: &mut Workload| w.updates.evict = Evict::Always;
    let one_by_one = [Reason::Budget];
    let table: &[Row<'_>] = &[
        ("a raise, one at a time", |_| {}, (true, true), &["resize a"], &one_by_one),
        (
            "more at a time",
            |w| w.updates.max_unavailable = MaxUnavailable::Count(2),
            (true, true),
            &["resize a", "resize b"],
            &one_by_one,
        ),
        ("within the tolerance", |w| w.updates.tolerance_up = 1.0, (true, true), &[], &[]),
        ("OOM-killed first", |w| w.pods[2].was_oom_killed = true, (true, true), &["resize c"], &one_by_one),
        (
            "the furthest first",
            |w| w.pods[3].sizes = main_of(size(50, None), size(100 * MIB, None)),
            (true, true),
            &["resize d"],
            &one_by_one,
        ),
        (
            "one is away already",
            |w| w.pods[3].is_ready = false,
            (true, true),
            &[],
            &[Reason::NotReady, Reason::Budget],
        ),
        ("one is missing", |w| w.pods.truncate(3), (true, true), &[], &one_by_one),
        (
            "what does not serve and was OOM-killed is resized",
            |w| {
                w.pods[3].is_ready = false;
                w.pods[3].was_oom_killed = true;
            },
            (true, true),
            &["resize d"],
            &one_by_one,
        ),
        (
            "young",
            |w| w.pods.iter_mut().for_each(|pod| pod.created = NOW - 60),
            (true, true),
            &[],
            &[Reason::TooYoung],
        ),
        ("no room, and nothing may be evicted", |_| {}, (false, true), &[], &[Reason::NoRoom]),
        ("no room, evicted", always, (false, true), &["evict a"], &[Reason::CanaryWatched]),
        ("no room anywhere", always, (false, false), &[], &[Reason::NoRoom]),
        (
            "evicted only when OOM-killed",
            |w| w.updates.evict = Evict::Oom,
            (false, true),
            &[],
            &[Reason::NoRoom],
        ),
        (
            "OOM-killed and evicted",
            |w| {
                w.updates.evict = Evict::Oom;
                w.pods[1].was_oom_killed = true;
            },
            (false, true),
            &["evict b"],
            &[Reason::CanaryWatched],
        ),
        (
            "nobody makes it anew",
            |w| {
                w.updates.evict = Evict::Always;
                w.pods.iter_mut().for_each(|pod| pod.is_remade = false);
            },
            (false, true),
            &[],
            &[Reason::NoRoom],
        ),
        (
            "too few replicas to disturb",
            |w| {
                w.updates.evict = Evict::Always;
                w.updates.min_replicas = 5;
            },
            (false, true),
            &[],
            &[Reason::NoRoom],
        ),
        (
            "too few replicas to disturb are resized",
            |w| w.updates.min_replicas = 5,
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "a budget that allows none",
            |w| {
                w.updates.evict = Evict::Always;
                w.allowed_disruptions = Some(0);
            },
            (false, true),
            &[],
            &[Reason::NoRoom],
        ),
        (
            "another updater",
            |w| w.updated_by = Some("VerticalPodAutoscaler web".into()),
            (true, true),
            &[],
            &[Reason::OtherUpdater],
        ),
        (
            "a namespace that is frozen",
            |w| w.frozen = Some("its namespace says so".into()),
            (true, true),
            &[],
            &[Reason::Frozen],
        ),
        (
            "a roll-out",
            |w| w.pods[3].owner = "ReplicaSet/web-b".into(),
            (true, true),
            &[],
            &[Reason::Rollout],
        ),
        (
            "no window is open",
            |w| {
                // 1970-01-12 13:46 was a Monday.
                w.updates.windows = vec![UpdateWindow { days: [true; 7], from: 0, to: 60 }];
            },
            (true, true),
            &[],
            &[Reason::WindowClosed],
        ),
        (
            "an autoscaler on CPU",
            |w| w.scaled_by[0] = Some("HorizontalPodAutoscaler web".into()),
            (true, true),
            &[],
            &[Reason::ScaledByHpa],
        ),
        (
            "an autoscaler on memory",
            |w| w.scaled_by[1] = Some("HorizontalPodAutoscaler web".into()),
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "resources of the pod as a whole",
            |w| w.pods.iter_mut().for_each(|pod| pod.is_sized_as_whole = true),
            (true, true),
            &[],
            &[Reason::Unsupported],
        ),
        (
            "a class would change",
            |w| {
                w.pods.iter_mut().for_each(|pod| {
                    pod.class = QosClass::BestEffort;
                    pod.sizes = main_of(Size::default(), Size::default());
                });
            },
            (true, true),
            &[],
            &[Reason::ClassWouldChange],
        ),
        (
            "a class changes by eviction alone",
            |w| {
                w.updates.evict = Evict::Always;
                w.pods.iter_mut().for_each(|pod| {
                    pod.class = QosClass::BestEffort;
                    pod.sizes = main_of(Size::default(), Size::default());
                });
            },
            (true, true),
            &["evict a"],
            &[Reason::CanaryWatched],
        ),
        (
            "a restart is a disruption",
            |w| {
                w.pods.iter_mut().for_each(|pod| {
                    pod.containers.get_mut("main").unwrap().restarts = [true, false];
                });
            },
            (true, true),
            &[],
            &[Reason::EvictNever],
        ),
        (
            "a restart where it may be",
            |w| {
                w.updates.evict = Evict::Always;
                w.pods
                    .iter_mut()
                    .for_each(|pod| pod.containers.get_mut("main").unwrap().restarts = [true, false]);
            },
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "memory in use",
            |w| {
                w.targets = BTreeMap::from([(
                    "main".to_owned(),
                    [None, Some(TargetRequest { request: 40 * MIB, limit: None })],
                )]);
            },
            (true, true),
            &[],
            &[Reason::MemoryInUse],
        ),
        (
            "memory that is not measured",
            |w| {
                w.targets = BTreeMap::from([(
                    "main".to_owned(),
                    [None, Some(TargetRequest { request: 60 * MIB, limit: None })],
                )]);
                w.pods.iter_mut().for_each(|pod| pod.containers.get_mut("main").unwrap().peak_memory = None);
            },
            (true, true),
            &[],
            &[Reason::MemoryInUse],
        ),
        (
            "memory that is not in use",
            |w| {
                w.targets = BTreeMap::from([(
                    "main".to_owned(),
                    [None, Some(TargetRequest { request: 60 * MIB, limit: None })],
                )]);
            },
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "done",
            |w| resized(w, Stage::Asked, NOW - 30, Resizing::Settled),
            (true, true),
            &["note a"],
            &one_by_one,
        ),
        (
            "in progress",
            |w| resized(w, Stage::Asked, NOW - 30, Resizing::InProgress),
            (true, true),
            &[],
            &[Reason::UnderWay, Reason::Budget],
        ),
        (
            "deferred for a while",
            |w| {
                resized(w, Stage::Asked, NOW - 299, Resizing::Deferred { since: NOW - 299, why: "x".into() });
            },
            (true, true),
            &[],
            &[Reason::UnderWay, Reason::Budget],
        ),
        (
            "deferred for long",
            |w| {
                resized(w, Stage::Asked, NOW - 300, Resizing::Deferred { since: NOW - 300, why: "x".into() });
            },
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "infeasible, evicted",
            |w| {
                w.updates.evict = Evict::Always;
                resized(w, Stage::Asked, NOW - 30, Resizing::Infeasible { why: "x".into() });
            },
            (true, true),
            &["evict a"],
            &[Reason::CanaryWatched],
        ),
        (
            "a failing node is tried again, and is not infeasible",
            |w| {
                w.updates.evict = Evict::Always;
                resized(w, Stage::Asked, NOW - 30, Resizing::Failing { why: "x".into() });
            },
            (true, true),
            &[],
            &[Reason::UnderWay, Reason::Budget],
        ),
        (
            "given up a moment ago",
            |w| {
                w.pods.truncate(1);
                w.replicas = 1;
                w.pods[0].note =
                    Some(
                        note(Stage::Asked, NOW - 30, main_of(size(200, None), size(100 * MIB, None)))
                            .at_stage(Stage::GivenUp, NOW - 30, "x"),
                    );
            },
            (true, true),
            &[],
            &[Reason::BackOff],
        ),
        (
            "given up long ago",
            |w| {
                w.pods.truncate(1);
                w.replicas = 1;
                w.pods[0].note =
                    Some(
                        note(Stage::Asked, NOW - 630, main_of(size(200, None), size(100 * MIB, None)))
                            .at_stage(Stage::GivenUp, NOW - 600, "x"),
                    );
            },
            (true, true),
            &["resize a"],
            &[],
        ),
        (
            "a give-up that was not sent",
            |w| {
                resized(w, Stage::GivenUp, NOW - 30, Resizing::Settled);
            },
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "a step that was not sent",
            |w| {
                w.pods[0].note =
                    Some(note(Stage::Asked, NOW - 30, main_of(size(200, None), size(100 * MIB, None))));
            },
            (true, true),
            &["resize a"],
            &one_by_one,
        ),
        (
            "resized by somebody else",
            |w| {
                w.pods.truncate(1);
                w.replicas = 1;
                resized(w, Stage::Done, NOW - 3000, Resizing::Settled);
                w.pods[0].sizes = main_of(size(300, None), size(100 * MIB, None));
            },
            (true, true),
            &[],
            &[Reason::ChangedByOthers],
        ),
    ];
    for (name, change, room, done, refused) in table {
        let mut workload = web();
        change(&mut workload);
        let plan = planned(&workload, &now(), *room);
        // By another process, from a text.
        let text = plan.case(&workload, &UpdateRules::default(), &now()).text();
        let case = ReplayCase::read(&text).unwrap();
        assert_eq!(case.again(), plan.outcome(&workload), "{name}");
        assert_eq!((case.seconds(), case.about()), (NOW, ("shop", "deployment/web")));
        let (got, why) = told(&plan);
        assert_eq!(
            (got.as_slice(), why.as_slice()),
            (&*done.iter().map(|d| (*d).to_owned()).collect::<Vec<_>>(), *refused),
            "{name}: {:#?}",
            plan.refusals
        );
    }
}

#[test]
fn a_guaranteed_pod_moves_request_and_limit_and_a_burstable_one_does_not_become_one() {
    let mut workload = web();
    for pod in &mut workload.pods {
        pod.class = QosClass::Guaranteed;
        pod.sizes = main_of(size(100, Some(100)), size(100 * MIB, Some(100 * MIB)));
    }
    let to = |workload: &Workload| match &planned(workload, &now(), (true, true)).actions[0].deed {
        PodAction::Resize { to, .. } => to.clone(),
        other => unreachable!("{other:?}"),
    };
    assert_eq!(to(&workload), main_of(size(200, Some(200)), size(100 * MIB, Some(100 * MIB))));
    for pod in &mut workload.pods {
        pod.class = QosClass::Burstable;
        pod.sizes = main_of(size(100, Some(200)), size(100 * MIB, Some(100 * MIB)));
    }
    assert_eq!(to(&workload), main_of(size(199, Some(200)), size(100 * MIB, Some(100 * MIB))));
    workload.limits = LimitsMode::Ratio;
    workload.targets =
        BTreeMap::from([("main".to_owned(), [Some(TargetRequest { request: 150, limit: Some(300) }), None])]);
    assert_eq!(to(&workload), main_of(size(150, Some(300)), size(100 * MIB, Some(100 * MIB))));
    // What is said of limits while replicas differ is of several of them; the pod's own ratio is what it is.
    workload.targets = BTreeMap::from([(
        "main".to_owned(),
        [Some(TargetRequest { request: 150, limit: Some(3000) }), None],
    )]);
    assert_eq!(to(&workload), main_of(size(150, Some(300)), size(100 * MIB, Some(100 * MIB))));
}

#[test]
fn nothing_is_evicted_while_it_is_not_proven_that_admission_works() {
    let mut workload = web();
    workload.updates.evict = Evict::Always;
    let silent = Now { admission: Err("the webhook is not there".into()), ..now() };
    let plan = planned(&workload, &silent, (false, true));
    assert_eq!(told(&plan).0, [""; 0]);
    assert!(plan.refusals[0].why.contains("AdmissionUnproven"), "{:?}", plan.refusals);
    assert_eq!(told(&planned(&workload, &silent, (true, true))).0, ["resize a"]);
}

#[test]
fn the_first_replica_is_watched_and_the_rest_follows_or_it_goes_back() {
    let mut workload = web();
    workload.updates.canary_seconds = 600;
    // Less CPU.
    workload.targets =
        BTreeMap::from([("main".to_owned(), [Some(TargetRequest { request: 50, limit: None }), None])]);
    let first = planned(&workload, &now(), (true, true));
    assert_eq!(told(&first), (vec!["resize a".to_owned()], vec![Reason::CanaryWatched]));
    let note = first.actions[0].note.clone().unwrap();
    assert!(note.is_canary && note.stage == Stage::Asked);
    let health =
        |seconds, starved: u64| Health { seconds, starved_usec: starved * 1_000_000, ..Health::default() };
    let with = |stage, at, before, after| {
        let mut workload = workload.clone();
        workload.pods[0].sizes = note.target.clone();
        workload.pods[0].note = Some(Note { stage, at, ..note.clone() });
        workload.pods[0].watched = Some(Watched { before, after });
        workload
    };
    let well = health(600, 6);
    let watched = with(Stage::Done, NOW - 599, well, health(599, 6));
    assert_eq!(told(&planned(&watched, &now(), (true, true))), (vec![], vec![Reason::CanaryWatched]));
    let unmeasured = with(Stage::Done, NOW - 6000, well, health(100, 0));
    assert_eq!(told(&planned(&unmeasured, &now(), (true, true))), (vec![], vec![Reason::CanaryWatched]));
    let over = with(Stage::Done, NOW - 600, well, health(600, 6));
    let plan = planned(&over, &now(), (true, true));
    assert_eq!((told(&plan).0, plan.actions[0].reason), (vec!["note a".to_owned()], Reason::CanaryPassed));
    let passed = with(Stage::Passed, NOW - 1, well, well);
    let plan = planned(&passed, &now(), (true, true));
    assert_eq!(told(&plan).0, ["resize b"]);
    assert!(!plan.actions[0].note.as_ref().unwrap().is_canary);
    // It goes back at once, and is remembered.
    let worse = with(Stage::Done, NOW - 60, well, health(60, 30));
    let plan = planned(&worse, &now(), (true, true));
    assert_eq!((told(&plan).0, plan.actions[0].reason), (vec!["resize a".to_owned()], Reason::CanaryWorse));
    assert_eq!(
        plan.actions[0].deed,
        PodAction::Resize { from: note.target.clone(), to: note.before.clone() }
    );
    let mut remembered = with(Stage::Worse, NOW - 3600, well, well);
    remembered.pods[0].sizes = note.before.clone();
    assert_eq!(told(&planned(&remembered, &now(), (true, true))), (vec![], vec![Reason::CanaryWorse]));
    // Another size is another question.
    remembered.targets =
        BTreeMap::from([("main".to_owned(), [Some(TargetRequest { request: 75, limit: None }), None])]);
    assert_eq!(told(&planned(&remembered, &now(), (true, true))).0, ["resize a"]);
}

#[test]
fn the_panic_switch_freezes_and_gives_back_step_by_step() {
    let mut workload = web();
    for at in 0..3 {
        let target = main_of(size(200, None), size(100 * MIB, None));
        workload.pods[at].sizes.clone_from(&target);
        workload.pods[at].note = Some(note(Stage::Done, NOW - 3000, target));
    }
    let frozen = planned(&workload, &Now { panic: Panic::Freeze, ..now() }, (true, true));
    assert_eq!(told(&frozen), (vec![], vec![Reason::Frozen]));
    let back = planned(&workload, &Now { panic: Panic::Revert, ..now() }, (true, true));
    assert_eq!(told(&back), (vec!["resize a".to_owned()], vec![Reason::Budget]));
    let PodAction::Resize { to, .. } = &back.actions[0].deed else { unreachable!() };
    assert_eq!(to, &main_of(size(100, None), size(100 * MIB, None)));
    // Windows, ages and tolerances are for what is recommended.
    workload.updates.windows = vec![UpdateWindow { days: [false; 7], from: 0, to: 1 }];
    workload.updates.max_unavailable = MaxUnavailable::Percent(100);
    let back = planned(&workload, &Now { panic: Panic::Revert, ..now() }, (true, true));
    assert_eq!(told(&back).0, ["resize a", "resize b", "resize c"]);
}

#[test]
fn a_choice_that_would_be_another_one_is_told_from_the_same() {
    let mut workload = web();
    workload.updates.evict = Evict::Always;
    let plan = planned(&workload, &now(), (false, true));
    let text = plan.case(&workload, &UpdateRules::default(), &now()).text();
    let other = |from: &str, to: &str| {
        assert!(text.contains(from), "{text}");
        let case = ReplayCase::read(&text.replacen(from, to, 1)).unwrap();
        (case.again() == *case.outcome(), case.again().to_string())
    };
    assert!(other("seconds", "seconds").0);
    // What the simulator said, what the policy says, and what was remembered.
    for (from, to, want) in [
        (r#"{"anywhere":{"Ok":null}}"#, r#"{"anywhere":{"Err":"full"}}"#, "leave a (NoRoom)"),
        (r#""evict":"always""#, r#""evict":"never""#, "leave a (NoRoom)"),
        (r#"{"paced":true}"#, r#"{"paced":false}"#, "leave a (Rate)"),
    ] {
        let (is_same, now) = other(from, to);
        assert!(!is_same && now.contains(want), "{now}");
    }
    let later = ReplayCase::read(&text.replacen(r#""version":1"#, r#""version":2"#, 1)).unwrap_err();
    assert!(later.contains("version 2"), "{later}");
    assert!(ReplayCase::read("{}").is_err());
}

#[test]
fn one_rate_holds_for_all() {
    let all: Vec<Workload> =
        (0..50).map(|at| Workload { name: format!("deployment/w{at}"), ..web() }).collect();
    let (mut kept, rules) =
        (UpdaterMemory::default(), UpdateRules { per_minute: 7, ..UpdateRules::default() });
    let mut says = Says { in_place: true, anywhere: true };
    let mut at = |seconds| plan(&all, &mut kept, &rules, &Now { seconds, ..now() }, &mut says).actions.len();
    assert_eq!((at(NOW), at(NOW + 59), at(NOW + 60)), (7, 0, 7));
}

#[test]
fn an_eviction_that_changed_nothing_is_not_repeated_soon() {
    let mut workload = web();
    workload.updates.evict = Evict::Always;
    let (mut kept, rules) = (UpdaterMemory::default(), UpdateRules::default());
    let mut says = Says { in_place: false, anywhere: true };
    let mut at = |workload: &Workload, seconds| {
        let plan =
            plan(std::slice::from_ref(workload), &mut kept, &rules, &Now { seconds, ..now() }, &mut says);
        told(&plan).0
    };
    assert_eq!(at(&workload, NOW), ["evict a"]);
    // It is made anew as it was.
    workload.pods[0] = RunningPod { uid: "new".into(), created: NOW + 5, ..pod("e") };
    assert_eq!(at(&workload, NOW + 30), [""; 0]);
    assert_eq!(at(&workload, NOW + 600), [""; 0]);
    assert_eq!(at(&workload, NOW + 700), ["evict b"]);
}
