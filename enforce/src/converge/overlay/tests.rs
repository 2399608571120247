//! The agent around the overlay, second by second.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::overlay::Switch;
use crate::testing::workload;

const MIB: u64 = 1 << 20;
const RULES: OverlayRules = OverlayRules {
    accept: true,
    up_percent: 150,
    down_percent: 80,
    cpu_least_milli: 10,
    memory_least_bytes: 16 * MIB,
    most_percent: 80,
    pause: Duration::from_secs(10),
    patience: Duration::from_secs(60),
    rest: Duration::from_secs(600),
    oldest: Duration::from_secs(300),
};

/// The agent around the overlay: a container is brought to its wish as soon as it has one, unless it is stuck.
struct Rig {
    overlay: Overlay,
    now: Instant,
    workloads: Vec<Workload>,
    generations: HashMap<String, (ContainerResources, u64)>,
    stuck: Option<State>,
    told: Vec<(String, Option<String>)>,
    refused: Vec<(String, String)>,
    dry_run: bool,
}

impl Rig {
    fn new(names: &[&str]) -> Self {
        let now = Instant::now();
        Self {
            overlay: Overlay::new(RULES, now),
            now,
            workloads: names.iter().map(|name| workload(name)).collect(),
            generations: HashMap::new(),
            stuck: None,
            told: Vec::new(),
            refused: Vec::new(),
            dry_run: false,
        }
    }

    fn merge(&mut self) {
        let bound = |w: &Workload| Bound { workload: Arc::new(w.clone()), path: format!("/{}", w.pod.name) };
        let mut bound: Vec<Bound> = self.workloads.iter().map(bound).collect();
        self.overlay.apply(&mut bound, self.now);
        bound.retain(|bound| resources(&bound.workload).is_some());
        for Bound { workload, .. } in bound {
            let wish = resources(&workload).unwrap();
            let had = self.generations.entry(workload.id.clone()).or_insert((wish, 1));
            if had.0 != wish {
                *had = (wish, had.1 + 1);
            }
        }
    }

    /// A second of the agent.
    fn second(&mut self, offer: Option<&OverlayOffer>) {
        let (generations, stuck) = (&self.generations, self.stuck);
        let seen = |id: &str| {
            let (_, generation) = generations.get(id)?;
            let state = if *generation > 1 { stuck.unwrap_or(State::Converged) } else { State::Converged };
            Some(ObservedContainer { generation: *generation, state, processes: 1 })
        };
        let allocatable = || (4000, 4096 * MIB);
        let node = OverlayNode {
            cpu_milli: 4000,
            memory_bytes: 4096 * MIB,
            allocatable: &allocatable,
            seen: &seen,
            dry_run: self.dry_run,
        };
        let turn = self.overlay.turn(offer, &node, self.now);
        if turn.changed {
            self.merge();
        }
        if let Some(refusals) = turn.refusals {
            self.refused = refusals.into_iter().map(|r| (r.pod, r.why)).collect();
        }
        for draft in turn.drafts {
            let decision = draft.finish_for_tests();
            self.told.push((decision.reason, decision.new));
        }
        self.now += Duration::from_secs(1);
    }

    fn seconds(&mut self, count: u64, offer: Option<&OverlayOffer>) {
        (0..count).for_each(|_| self.second(offer));
    }

    fn wish(&self, name: &str) -> ContainerResources {
        self.generations[&format!("default/{name}/main")].0
    }

    fn cpu(&self, name: &str) -> u64 {
        self.wish(name).cpu_request.unwrap().get()
    }

    /// Makes a container ask for something else.
    fn ask(&mut self, name: &str, change: impl Fn(&mut ContainerResources)) {
        let workload = self.workloads.iter_mut().find(|w| w.pod.name == name).unwrap();
        let mut asked = resources(workload).unwrap();
        change(&mut asked);
        workload.requested = Requested::Stated(asked);
    }
}

fn offer(rig: &Rig, advice: &[(&str, u64)]) -> OverlayOffer {
    let entry = |(name, cpu): &(&str, u64)| {
        let place = ("default".to_owned(), (*name).to_owned(), "main".to_owned());
        (place, Advice { cpu_milli: Some(*cpu), policy: "default/p".into(), ..Advice::default() })
    };
    OverlayOffer {
        number: 1,
        panic: None,
        made_usec: 0,
        arrived: rig.now,
        until: rig.now + Duration::from_secs(200),
        entries: Arc::new(advice.iter().map(entry).collect()),
        frozen: Arc::default(),
    }
}

fn panic(offer: OverlayOffer, revert: bool) -> OverlayOffer {
    OverlayOffer { panic: Some(Switch { reason: "stop".into(), revert }), ..offer }
}

#[test]
fn panic_freezes_what_is_in_force_whatever_is_said_meanwhile() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.merge();
    let said = offer(&rig, &[("a", 100)]);
    rig.seconds(2, Some(&said));
    assert_eq!(rig.cpu("a"), 400, "a first step");
    // A step that is not proven yet stays, too, and nobody waits for its proof.
    rig.second(Some(&panic(said.clone(), false)));
    rig.stuck = Some(State::Denied);
    let told = rig.told.len();
    rig.seconds(3600, Some(&panic(OverlayOffer { entries: Arc::default(), ..said.clone() }, false)));
    assert_eq!((rig.cpu("a"), rig.told.len()), (400, told), "neither silence nor time ends it");
    // What somebody asks for anew is not a recommendation.
    rig.ask("b", |r| r.cpu_request = Some(MilliCpu::new(900)));
    rig.merge();
    rig.seconds(3, Some(&panic(said.clone(), false)));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (400, 900));
    rig.stuck = None;
    let again = OverlayOffer { arrived: rig.now, until: rig.now + Duration::from_secs(200), ..said };
    rig.seconds(150, Some(&again));
    assert_eq!(rig.cpu("a"), 100, "and goes on from there");
}

#[test]
fn a_frozen_namespace_keeps_what_is_in_force_while_others_go_on() {
    let rig = || {
        let mut rig = Rig::new(&["a", "b"]);
        rig.workloads[1].pod.namespace = "shop".into();
        rig
    };
    let (mut rig, mut other) = (rig(), rig());
    rig.merge();
    let place = |namespace: &str| (namespace.to_owned(), "b".to_owned(), "main".to_owned());
    let offered = |rig: &Rig, advice: &[(&str, u64)], frozen: &[&str]| {
        let mut said = offer(rig, advice);
        let entries = Arc::make_mut(&mut said.entries);
        let moved = entries.remove(&place("default"));
        entries.extend(moved.map(|advice| (place("shop"), advice)));
        OverlayOffer { frozen: Arc::new(frozen.iter().map(|name| (*name).to_owned()).collect()), ..said }
    };
    let said = offered(&rig, &[("b", 100)], &[]);
    rig.seconds(2, Some(&said));
    assert_eq!(rig.cpu("b"), 400, "a first step");
    // Neither the proof of a step, nor silence, nor a policy that is gone changes anything there; elsewhere it goes on.
    rig.stuck = Some(State::Denied);
    let frozen = offered(&rig, &[("b", 100)], &["shop"]);
    rig.seconds(3600, Some(&frozen));
    assert_eq!(rig.cpu("b"), 400);
    rig.stuck = None;
    let both = offered(&rig, &[("a", 100), ("b", 100)], &["shop"]);
    rig.seconds(150, Some(&both));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (100, 400));
    assert!(rig.refused.iter().any(|(pod, why)| pod == "shop/b" && why.contains("shop is frozen")));
    let none = offered(&rig, &[("a", 100)], &["shop"]);
    rig.seconds(5, Some(&none));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (100, 400));
    let back = panic(none, true);
    rig.seconds(150, Some(&back));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (500, 400));
    assert_eq!(rig.overlay.due(Some(&back)), None, "nothing is left to be done");
    // Nor a restart, however long it took.
    let kept = rig.overlay.unsaved(Some(&OverlayOffer { panic: None, ..back }), "boot", 1).unwrap();
    assert_eq!(other.overlay.resume(kept, other.now, 3_600_000_000), None);
    other.merge();
    other.seconds(100, None);
    assert_eq!((other.cpu("a"), other.cpu("b")), (500, 400));
    let let_go = offered(&other, &[], &[]);
    other.seconds(2, Some(&let_go));
    assert_eq!(other.cpu("b"), 500);
}

#[test]
fn a_revert_gives_back_step_by_step_one_container_at_a_time() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.merge();
    let said = offer(&rig, &[("a", 1000), ("b", 100)]);
    rig.seconds(150, Some(&said));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (1000, 100));
    let back = panic(said.clone(), true);
    let mut seen = vec![(1000, 100)];
    for _ in 0..200 {
        rig.second(Some(&back));
        let now = (rig.cpu("a"), rig.cpu("b"));
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    let steps = [
        (1000, 100),
        (1000, 150),
        (1000, 225),
        (1000, 337),
        (1000, 500),
        (800, 500),
        (640, 500),
        (512, 500),
        (500, 500),
    ];
    assert_eq!(seen, steps, "who gets more comes first");
    assert_eq!(rig.overlay.len(), 0);
    assert!(rig.told.iter().any(|(why, _)| why.starts_with("a step back towards") && why.ends_with("stop")));
    assert!(rig.told.iter().any(|(why, _)| why.starts_with("it has back")));
    rig.seconds(100, Some(&back));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (500, 500), "and stays there");
}

#[test]
fn a_freeze_stops_a_revert_where_it_is_and_a_step_back_is_not_undone() {
    let mut rig = Rig::new(&["a"]);
    rig.merge();
    let said = offer(&rig, &[("a", 100)]);
    rig.seconds(150, Some(&said));
    while rig.cpu("a") == 100 {
        rig.second(Some(&panic(said.clone(), true)));
    }
    assert_eq!(rig.cpu("a"), 150);
    rig.seconds(100, Some(&panic(said.clone(), false)));
    assert_eq!(rig.cpu("a"), 150);
    let back = panic(said, true);
    while rig.cpu("a") == 150 {
        rig.second(Some(&back));
    }
    rig.stuck = Some(State::Denied);
    rig.seconds(200, Some(&back));
    assert_eq!(rig.cpu("a"), 500);
    assert!(rig.told.iter().any(|(why, _)| why.contains("the step back was taken; the container is denied")));
}

#[test]
fn what_is_in_force_outlives_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    // Switch of the run before, seconds between the runs, what is in force after the start and after ten minutes.
    let table = [
        ("frozen", Some(false), 100_000, 400, 400),
        ("going back", Some(true), 100_000, 400, 500),
        ("recommended", None, 100, 400, 500),
        ("recommended long ago", None, 100_000, 500, 500),
    ];
    for (name, revert, pause, at_start, later) in table {
        let mut rig = Rig::new(&["a", "b"]);
        rig.merge();
        let mut said = offer(&rig, &[("a", 100), ("b", 100)]);
        rig.seconds(2, Some(&said));
        assert_eq!((rig.cpu("a"), rig.cpu("b")), (400, 500), "{name}");
        said = revert.map_or(said.clone(), |revert| panic(said, revert));
        let kept = rig.overlay.unsaved(Some(&said), "boot", 1_000_000).unwrap();
        assert_eq!(rig.overlay.unsaved(Some(&said), "boot", 2_000_000), None, "{name}: once is enough");
        kept.write(dir.path()).unwrap();

        let mut next = Rig::new(&["a", "b"]);
        let kept = StoredOverlay::read(dir.path(), "boot").0.unwrap();
        let switch = next.overlay.resume(kept, next.now, (1 + pause) * 1_000_000);
        assert_eq!(switch.as_ref().map(|(switch, _)| switch.revert), revert, "{name}");
        // Sources that have not spoken yet forget nothing.
        next.overlay.apply(&mut [], next.now);
        next.merge();
        let resumed = switch.map(|(switch, _)| {
            let none = OverlayOffer { entries: Arc::default(), until: next.now, ..offer(&next, &[]) };
            OverlayOffer { panic: Some(switch), ..none }
        });
        assert_eq!((next.cpu("a"), next.cpu("b")), (at_start, 500), "{name}");
        next.seconds(600, resumed.as_ref());
        assert_eq!((next.cpu("a"), next.cpu("b")), (later, 500), "{name}");
    }
}

#[test]
fn a_word_is_kept_at_once_and_everything_else_within_a_second() {
    let mut rig = Rig::new(&["a"]);
    let said = offer(&rig, &[("a", 100)]);
    let later = OverlayOffer { number: 2, ..panic(said.clone(), false) };
    let now = rig.now;
    let mut due = |word: &OverlayOffer, millis| {
        rig.overlay.is_time_to_keep(Some(word), now + Duration::from_millis(millis))
    };
    assert_eq!(
        [due(&said, 0), due(&said, 500), due(&later, 501), due(&later, 502)],
        [true, false, true, false]
    );
    assert!(due(&later, 1501));
}

#[test]
fn other_requirements_than_those_of_the_run_before_win() {
    let mut rig = Rig::new(&["a"]);
    rig.merge();
    let said = panic(offer(&rig, &[("a", 100)]), false);
    rig.seconds(2, Some(&OverlayOffer { panic: None, ..said.clone() }));
    let kept = rig.overlay.unsaved(Some(&said), "boot", 5).unwrap();
    let mut next = Rig::new(&["a"]);
    next.ask("a", |r| r.cpu_request = Some(MilliCpu::new(700)));
    next.overlay.resume(kept, next.now, 6).unwrap();
    next.merge();
    assert_eq!(next.cpu("a"), 700);
}

#[test]
fn one_container_at_a_time_goes_there_by_steps_and_back_at_once() {
    let mut rig = Rig::new(&["a", "b"]);
    rig.merge();
    let said = offer(&rig, &[("a", 1000), ("b", 100)]);
    rig.second(Some(&said));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (750, 500), "who needs more comes first");
    rig.seconds(5, Some(&said));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (750, 500), "there is a pause after the proof");
    rig.seconds(150, Some(&said));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (1000, 100));
    rig.seconds(100, Some(&said));
    assert_eq!((rig.cpu("a"), rig.cpu("b")), (500, 500), "it became too old");
    assert!(rig.told.last().unwrap().0.contains("too old"), "{:?}", rig.told.last());
}

#[test]
fn withdrawal_and_a_changed_mind_end_it() {
    for way in ["withdrawn", "edited", "gone"] {
        let mut rig = Rig::new(&["a"]);
        rig.merge();
        let said = offer(&rig, &[("a", 600)]);
        rig.seconds(30, Some(&said));
        assert_eq!(rig.cpu("a"), 600);
        let mut next = said.clone();
        match way {
            "withdrawn" => next.entries = Arc::default(),
            "edited" => {
                let mut resources = resources(&rig.workloads[0]).unwrap();
                resources.cpu_request = Some(MilliCpu::new(300));
                rig.workloads[0].requested = Requested::Stated(resources);
                next.entries = Arc::default();
                rig.merge();
                assert_eq!(rig.cpu("a"), 300, "what somebody says later counts");
            }
            _ => rig.workloads.clear(),
        }
        rig.merge();
        rig.seconds(3, Some(&next));
        assert_eq!(rig.overlay.len(), 0, "{way}");
        if way == "withdrawn" {
            assert_eq!(rig.cpu("a"), 500, "{way}");
        }
    }
}

#[test]
fn a_step_without_proof_is_undone_and_the_container_rests() {
    for (stuck, why) in [(State::Denied, "denied"), (State::Converging, "not verified in time")] {
        let mut rig = Rig::new(&["a"]);
        rig.stuck = Some(stuck);
        rig.merge();
        let said = OverlayOffer { until: rig.now + Duration::from_secs(250), ..offer(&rig, &[("a", 600)]) };
        rig.seconds(70, Some(&said));
        assert_eq!(rig.cpu("a"), 500);
        let told = &rig.told;
        assert!(told.iter().any(|(reason, _)| reason.ends_with(why)), "{told:?}");
        let steps = told.len();
        rig.seconds(100, Some(&said));
        assert_eq!(rig.told.len(), steps, "it rests");
    }
}

#[test]
fn neither_class_nor_room_nor_a_cluster_is_overrun() {
    let mut rig = Rig::new(&["a", "b", "c"]);
    let mut guaranteed = resources(&rig.workloads[0]).unwrap();
    guaranteed.cpu_limit = guaranteed.cpu_request;
    rig.workloads[0].requested = Requested::Stated(guaranteed);
    rig.workloads[1].source = SourceKind::Kubernetes;
    let mut large = resources(&rig.workloads[2]).unwrap();
    large.cpu_request = Some(MilliCpu::new(3000));
    rig.workloads[2].requested = Requested::Stated(large);
    rig.merge();
    let said = offer(&rig, &[("a", 400), ("b", 400), ("c", 3900)]);
    rig.seconds(100, Some(&said));
    // The band is 80 % of the node; a and c request 3,500 of 4,000.
    assert_eq!((rig.cpu("a"), rig.cpu("b"), rig.cpu("c")), (500, 500, 3200));
}

#[test]
fn a_dry_run_tells_of_the_first_step_once() {
    let mut rig = Rig::new(&["a"]);
    rig.dry_run = true;
    rig.merge();
    let said = offer(&rig, &[("a", 1000)]);
    rig.seconds(100, Some(&said));
    assert_eq!((rig.cpu("a"), rig.told.len()), (500, 1));
    assert_eq!(rig.told[0].1.as_deref(), Some("750"));
}

#[test]
fn a_request_that_was_never_asked_for_begins_at_the_least_and_ends_with_the_policy() {
    let mut rig = Rig::new(&["a"]);
    rig.ask("a", |r| {
        (r.cpu_request, r.cpu_limit) = (None, None);
        (r.memory_request, r.memory_limit) = (Some(Bytes::new(64 * MIB)), None);
    });
    rig.merge();
    let said = offer(&rig, &[("a", 100)]);
    rig.second(Some(&said));
    assert_eq!(rig.cpu("a"), 10, "the first step");
    assert!(rig.told[0].0.contains("held back by step"), "{:?}", rig.told);
    rig.seconds(150, Some(&said));
    assert_eq!(rig.cpu("a"), 100);
    assert_eq!(rig.refused, []);
    rig.seconds(300, Some(&panic(said, true)));
    assert_eq!(rig.wish("a").cpu_request, None, "nothing was asked for");
}

#[test]
fn what_would_change_a_class_is_refused_and_shown_until_there_is_another_word() {
    let mut rig = Rig::new(&["a", "b", "c", "d"]);
    rig.ask("a", |r| *r = ContainerResources::default());
    // By memory BestEffort, by CPU not.
    rig.ask("b", |r| (r.memory_request, r.memory_limit) = (None, None));
    rig.workloads[2].requested = Requested::Unknown;
    // Up to the limit would make it Guaranteed by CPU.
    rig.ask("d", |r| r.cpu_limit = Some(MilliCpu::new(600)));
    rig.merge();
    let mut said = offer(&rig, &[("a", 300), ("b", 600), ("c", 300), ("d", 600)]);
    let entries = Arc::make_mut(&mut said.entries);
    entries.values_mut().for_each(|advice| advice.memory_bytes = Some(512 * MIB));
    let before = (rig.wish("a"), rig.wish("b").memory_request);
    rig.seconds(150, Some(&said));
    assert_eq!((rig.wish("a"), rig.wish("b").memory_request), before);
    assert_eq!((rig.cpu("b"), rig.cpu("d")), (600, 500), "what keeps the class is done");
    rig.refused.sort();
    let of = |pod: &str| -> Vec<&str> {
        let all = rig.refused.iter().filter(|(p, _)| p == &format!("default/{pod}"));
        all.map(|(_, why)| why.as_str()).collect()
    };
    assert_eq!(of("a"), ["would change the class: cpu BestEffort to Burstable"]);
    assert_eq!(of("b"), ["would change the class: memory BestEffort to Burstable"]);
    assert_eq!(of("c"), ["nothing is known of what it asks for"]);
    assert_eq!(of("d"), ["would change the class: cpu Burstable to Guaranteed"]);
    rig.seconds(1, Some(&panic(said, false)));
    assert_eq!(rig.refused, [], "nothing is refused where nothing is offered");
}
