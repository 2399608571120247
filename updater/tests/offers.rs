//! Suite `unit`: offers of agents (pods that should go) are carried out where the policy lets them be, within everything else that holds.

use crate::common::{MIB, NOW, Says, main_of, now, planned, size, told, web};
use evenkeel_model::panic::Panic;
use evenkeel_rightsizing::policy::update::{Evict, UpdateWindow};
use evenkeel_updater::{
    EvictionOffer, Note, Now, OfferCause, PodAction, Reason, ReplayCase, Resizing, RunningPod, Stage,
    TargetRequest, UpdateRules, UpdaterMemory, Workload, plan,
};

fn offer(cause: OfferCause, at: u64) -> Option<EvictionOffer> {
    let why = "Container main: a Burstable container was OOM-killed after 3 of 3 restarts in 10m: its pod should go";
    Some(EvictionOffer { id: "node-1/7/4711".to_owned(), cause, why: why.to_owned(), at })
}

/// Four replicas that have what they should, one of which is offered.
fn offered(cause: OfferCause) -> Workload {
    let mut workload = web();
    workload.targets.clear();
    workload.updates.evict_offers = Evict::Always;
    workload.pods[1].offer = offer(cause, NOW - 30);
    workload
}

type Change = fn(&mut Workload);
type Row<'a> = (&'a str, OfferCause, Change, (bool, bool), &'a [&'a str], &'a [Reason]);

#[test]
fn a_table_of_offers() {
    use OfferCause::{OomKill, Pressure, Starvation};
    let table: &[Row<'_>] = &[
        ("after an OOM kill", OomKill, |_| {}, (true, true), &["evict b"], &[]),
        ("for want of memory", Pressure, |_| {}, (true, true), &["evict b"], &[]),
        ("for want of CPU", Starvation, |_| {}, (true, true), &["evict b"], &[]),
        (
            "by default nothing",
            OomKill,
            |w| w.updates.evict_offers = Evict::default(),
            (true, true),
            &[],
            &[Reason::EvictNever],
        ),
        (
            "what lets resizes evict lets no offer",
            OomKill,
            |w| (w.updates.evict, w.updates.evict_offers) = (Evict::Always, Evict::Never),
            (true, true),
            &[],
            &[Reason::EvictNever],
        ),
        (
            "after OOM kills alone",
            OomKill,
            |w| w.updates.evict_offers = Evict::Oom,
            (true, true),
            &["evict b"],
            &[],
        ),
        (
            "after OOM kills alone, and not for want of CPU",
            Starvation,
            |w| w.updates.evict_offers = Evict::Oom,
            (true, true),
            &[],
            &[Reason::EvictNever],
        ),
        ("too old", OomKill, |w| w.pods[1].offer = offer(OomKill, NOW - 600), (true, true), &[], &[]),
        ("young pods go, too", OomKill, |w| w.pods[1].created = NOW - 60, (true, true), &["evict b"], &[]),
        (
            "what does not serve goes, too",
            OomKill,
            |w| w.pods[1].is_ready = false,
            (true, true),
            &["evict b"],
            &[],
        ),
        (
            "nobody makes it anew",
            OomKill,
            |w| w.pods[1].is_remade = false,
            (true, true),
            &[],
            &[Reason::NotRemade],
        ),
        (
            "too few replicas",
            OomKill,
            |w| w.updates.min_replicas = 5,
            (true, true),
            &[],
            &[Reason::MinReplicas],
        ),
        (
            "a disruption budget that allows none",
            OomKill,
            |w| w.allowed_disruptions = Some(0),
            (true, true),
            &[],
            &[Reason::DisruptionBudget],
        ),
        (
            "another one is away",
            OomKill,
            |w| w.pods[3].is_ready = false,
            (true, true),
            &[],
            &[Reason::Budget],
        ),
        ("no room anywhere", OomKill, |_| {}, (true, false), &[], &[Reason::NoRoom]),
        (
            "a namespace that is frozen",
            OomKill,
            |w| w.frozen = Some("its namespace says so".into()),
            (true, true),
            &[],
            &[Reason::Frozen],
        ),
        ("it ends", OomKill, |w| w.pods[1].is_ending = true, (true, true), &[], &[Reason::UnderWay]),
        (
            "a resize of it is under way",
            OomKill,
            |w| w.pods[1].resizing = Resizing::InProgress,
            (true, true),
            &[],
            &[Reason::UnderWay],
        ),
        (
            "a roll-out",
            OomKill,
            |w| w.pods[3].owner = "ReplicaSet/web-b".into(),
            (true, true),
            &[],
            &[Reason::Rollout],
        ),
        (
            "no window is open",
            OomKill,
            |w| w.updates.windows = vec![UpdateWindow { days: [true; 7], from: 0, to: 60 }],
            (true, true),
            &[],
            &[Reason::WindowClosed],
        ),
        (
            "resources of the pod as a whole",
            OomKill,
            |w| w.pods[1].is_sized_as_whole = true,
            (true, true),
            &["evict b"],
            &[Reason::Unsupported],
        ),
        // More memory is tried before.
        ("it may get more memory", OomKill, more_memory, (true, true), &["resize b"], &[Reason::Budget]),
        (
            "it may get more, and there is no room for it",
            OomKill,
            more_memory,
            (false, true),
            &["evict b"],
            &[Reason::NoRoom, Reason::Budget],
        ),
        (
            "more memory does not help the node",
            Pressure,
            more_memory,
            (true, true),
            &["evict b"],
            &[Reason::Budget],
        ),
        ("it has got more memory since", OomKill, got_more_memory, (true, true), &[], &[]),
        (
            "it got more memory before",
            OomKill,
            |w| {
                got_more_memory(w);
                w.pods[1].offer = offer(OomKill, NOW - 5);
            },
            (true, true),
            &["evict b"],
            &[],
        ),
    ];
    for (name, cause, change, room, done, refused) in table {
        let mut workload = offered(*cause);
        change(&mut workload);
        let plan = planned(&workload, &now(), *room);
        let (got, mut why) = told(&plan);
        why.sort_unstable();
        let mut refused = refused.to_vec();
        refused.sort_unstable();
        assert_eq!(
            (got, why),
            (done.iter().map(|d| (*d).to_owned()).collect(), refused),
            "{name}: {:#?}",
            plan.refusals
        );
        let case = ReplayCase::read(&plan.case(&workload, &UpdateRules::default(), &now()).text()).unwrap();
        assert_eq!(case.again(), plan.outcome(&workload), "{name}");
    }
}

fn more_memory(workload: &mut Workload) {
    let target = [None, Some(TargetRequest { request: 200 * MIB, limit: None })];
    workload.targets.insert("main".to_owned(), target);
}

fn got_more_memory(workload: &mut Workload) {
    let (before, target) = (workload.pods[1].sizes.clone(), main_of(size(100, None), size(200 * MIB, None)));
    workload.pods[1].sizes.clone_from(&target);
    workload.pods[1].note = Some(Note {
        stage: Stage::Done,
        is_canary: false,
        at: NOW - 10,
        tries: 0,
        original: before.clone(),
        before,
        target,
        why: String::new(),
    });
}

#[test]
fn an_offer_says_why_in_the_kubelets_words_and_by_what_it_was_decided() {
    let plan = planned(&offered(OfferCause::Pressure), &now(), (true, true));
    let action = &plan.actions[0];
    assert_eq!(
        (&action.deed, action.reason),
        (&PodAction::Evict { to: Default::default() }, Reason::Offered)
    );
    assert!(
        action.why.starts_with("The node was low on resource: memory. Container main: "),
        "{}",
        action.why
    );
    for input in
        [("offer", "node-1/7/4711"), ("offer_cause", "pressure"), ("evict_offers", "always"), ("away", "0")]
    {
        assert!(action.inputs.contains(&(input.0, input.1.to_owned())), "{input:?} {:?}", action.inputs);
    }
    // The panic switch stops it, also where it gives back.
    for panic in [Panic::Freeze, Panic::Revert] {
        let plan = planned(&offered(OfferCause::Pressure), &Now { panic, ..now() }, (true, true));
        assert_eq!(plan.actions, [], "{panic:?}");
    }
}

#[test]
fn what_is_made_in_the_place_of_an_evicted_pod_has_its_time() {
    let mut workload = offered(OfferCause::OomKill);
    let (mut kept, rules) = (UpdaterMemory::default(), UpdateRules::default());
    let mut says = Says { in_place: true, anywhere: true };
    let mut at = |workload: &mut Workload, at: usize, seconds: u64| {
        workload.pods.iter_mut().for_each(|pod| pod.offer = None);
        workload.pods[at].offer = offer(OfferCause::OomKill, seconds - 1);
        let now = Now { seconds, ..now() };
        let plan = plan(std::slice::from_ref(workload), &mut kept, &rules, &now, &mut says);
        for action in &plan.actions {
            let pod = workload.pods.iter_mut().find(|pod| pod.uid == action.uid).unwrap();
            kept.took_offer("shop", "deployment/web", pod.created, seconds);
            *pod = RunningPod {
                uid: format!("uid-{seconds}"),
                created: seconds + 2,
                ..crate::common::pod(&pod.name)
            };
        }
        told(&plan)
    };
    let (none, waits) = (Vec::<String>::new(), vec![Reason::BackOff]);
    assert_eq!(at(&mut workload, 0, NOW), (vec!["evict a".to_owned()], vec![]));
    // Another one that was there before is none of its heirs.
    assert_eq!(at(&mut workload, 1, NOW + 60), (vec!["evict b".to_owned()], vec![]));
    assert_eq!(at(&mut workload, 0, NOW + 120), (none.clone(), waits.clone()));
    assert_eq!(at(&mut workload, 0, NOW + 601), (vec!["evict a".to_owned()], vec![]));
    // Twice as late each time, of all that were made since.
    assert_eq!(at(&mut workload, 0, NOW + 1500), (none, waits));
    assert_eq!(at(&mut workload, 0, NOW + 1802), (vec!["evict a".to_owned()], vec![]));
}
