//! Order, budget, pace, retries and rehearsal, with hands that do as they are told.

use std::cell::RefCell;
use std::rc::Rc;

use evenkeel_model::workload::PodFacts;

use super::*;
use crate::config::Config;
use crate::testing::{config, context, in_slot};

/// What was asked, and what to answer.
#[derive(Default)]
struct Told {
    asked: Vec<(Runner, Remedy)>,
    failures: usize,
}

struct FakeHands(Rc<RefCell<Told>>);

impl Hands for FakeHands {
    fn carry_out(&mut self, runner: &Runner, remedy: Remedy, _: &dyn Fn()) -> Result<EvictionResult, String> {
        let mut told = self.0.borrow_mut();
        told.asked.push((runner.clone(), remedy));
        if told.failures > 0 {
            told.failures -= 1;
            return Err("away".into());
        }
        Ok(EvictionResult::Done("it is inactive".into()))
    }
}

struct Bench {
    evictor: Evictor<FakeHands>,
    told: Rc<RefCell<Told>>,
    now: Instant,
}

impl Bench {
    fn new(choose: impl FnOnce(&mut Config)) -> Self {
        let mut config = config(tempfile::tempdir().unwrap().path());
        choose(&mut config);
        let told = Rc::new(RefCell::new(Told::default()));
        let parts = Parts {
            context: context(config),
            board: Arc::new(Board::default()),
            decisions: Arc::new(DecisionLog::for_tests()),
            hands: FakeHands(Rc::clone(&told)),
        };
        let evictor = Evictor { has_systemd: true, ..Evictor::new(parts) };
        Self { evictor, told, now: Instant::now() }
    }

    fn rule(&mut self, remedy: Remedy, class: QosClass, tracked: Tracked) {
        self.evictor.take(Task { remedy, class, tracked: Arc::new(tracked), because_of: 7 }, self.now);
    }

    fn present(&self, all: Vec<Tracked>) {
        self.evictor.parts.board.publish_roster(all.into_iter().map(entry).collect());
    }

    /// What is asked within so many seconds, looked at each second.
    fn after(&mut self, seconds: u64) -> Vec<String> {
        for _ in 0..seconds {
            self.evictor.step(self.now, &|| ());
            self.now += Duration::from_secs(1);
        }
        let asked = std::mem::take(&mut self.told.borrow_mut().asked);
        let text = |(runner, remedy): &(Runner, Remedy)| match runner {
            Runner::Unit(name) | Runner::Sandbox(name) => format!("{} {name}", remedy.as_str()),
        };
        asked.iter().map(text).collect()
    }

    fn decisions(&self) -> Vec<(DecisionResult, String)> {
        let all = self.evictor.parts.decisions.rulings();
        all.iter().map(|decision| (decision.result, decision.reason.clone())).collect()
    }
}

fn entry(tracked: Tracked) -> RosterEntry {
    let (memory, cpu, freezer) = (None, None, None);
    RosterEntry { tracked: Arc::new(tracked), managed: true, memory, cpu, freezer }
}

fn unit(slot: u32, name: &str) -> Tracked {
    let mut tracked = in_slot(slot, name);
    Arc::make_mut(&mut tracked.workload).cgroup = CgroupBinding::Unit(format!("{name}.service"));
    tracked
}

/// A container of a runtime, or its sandbox.
fn cri(slot: u32, pod: &str, kind: ContainerKind, path: &str) -> Tracked {
    let mut tracked = in_slot(slot, pod);
    let workload = Arc::make_mut(&mut tracked.workload);
    (workload.source, workload.kind) = (SourceKind::Cri, kind);
    workload.id = format!("{pod}-{kind:?}");
    tracked.cgroup = path.into();
    tracked
}

fn act(config: &mut Config) {
    config.acting.mode = CarryOut::Act;
}

#[test]
fn the_least_class_goes_first_at_a_bounded_pace_and_each_deed_is_told() {
    let mut bench = Bench::new(act);
    bench.rule(Remedy::Restart, QosClass::Guaranteed, unit(1, "db"));
    bench.rule(Remedy::Evict, QosClass::Burstable, unit(2, "web"));
    bench.rule(Remedy::Evict, QosClass::BestEffort, unit(3, "batch"));
    assert_eq!(bench.after(10), ["evict batch.service"]);
    assert_eq!(bench.after(20), ["evict web.service", "restart db.service"]);
    assert_eq!(bench.after(60), [""; 0]);
    let told = bench.decisions();
    assert_eq!(told.len(), 3);
    assert_eq!(told[0], (DecisionResult::Done, "asked systemd to stop batch.service: it is inactive".into()));
}

#[test]
fn what_fails_is_tried_again_and_then_stays_an_offer() {
    let mut bench = Bench::new(act);
    bench.told.borrow_mut().failures = 2;
    bench.rule(Remedy::Evict, QosClass::BestEffort, unit(1, "batch"));
    assert_eq!(bench.after(60).len(), 3, "after 2 s and 10 s");
    assert_eq!(bench.decisions()[0].0, DecisionResult::Done);
    bench.told.borrow_mut().failures = 9;
    bench.rule(Remedy::Evict, QosClass::BestEffort, unit(1, "batch"));
    assert_eq!(bench.after(300).len(), 4);
    let last = bench.decisions().pop().unwrap();
    assert_eq!(last.0, DecisionResult::Failed);
    assert!(last.1.contains("away; it stays an offer"), "{}", last.1);
}

#[test]
fn a_group_keeps_as_many_pods_as_it_must() {
    let of_group = |slot: u32, least: Option<u32>| {
        let mut tracked = unit(slot, &format!("web-{slot}"));
        let workload = Arc::make_mut(&mut tracked.workload);
        workload.workload = "deployment/web".into();
        workload.pod_facts = PodFacts { min_available: least, ..PodFacts::default() };
        tracked
    };
    let mut bench = Bench::new(act);
    bench.present(vec![of_group(1, None), of_group(2, None)]);
    bench.rule(Remedy::Evict, QosClass::BestEffort, of_group(1, Some(2)));
    assert_eq!(bench.after(30), [""; 0]);
    let held = bench.decisions();
    assert_eq!((held.len(), held[0].0), (1, DecisionResult::Denied));
    assert!(held[0].1.contains("1 other pods of deployment/web run and 2 must"), "{}", held[0].1);
    // A third one comes up: the budget lets go.
    bench.present(vec![of_group(1, None), of_group(2, None), of_group(3, None)]);
    assert_eq!(bench.after(10), ["evict web-1.service"]);
    // A restart takes nobody away; the configuration's number holds where the manifest says none.
    let mut bench = Bench::new(|config| {
        act(config);
        config.acting.min_available = 1;
    });
    bench.present(vec![of_group(1, None)]);
    bench.rule(Remedy::Restart, QosClass::Burstable, of_group(1, None));
    bench.rule(Remedy::Evict, QosClass::BestEffort, of_group(1, None));
    assert_eq!(bench.after(60), ["restart web-1.service"]);
}

#[test]
fn a_rehearsal_says_what_it_would_ask_and_the_default_does_nothing() {
    for (mode, carry_out, told) in [
        (Mode::Enforce, CarryOut::Offer, 0),
        (Mode::Enforce, CarryOut::DryRun, 1),
        (Mode::DryRun, CarryOut::Act, 1),
    ] {
        let mut bench = Bench::new(|config| (config.mode, config.acting.mode) = (mode, carry_out));
        bench.rule(Remedy::Evict, QosClass::BestEffort, unit(1, "batch"));
        assert_eq!(bench.after(30), [""; 0], "{mode:?} {carry_out:?}");
        let decisions = bench.decisions();
        assert_eq!(decisions.len(), told, "{mode:?} {carry_out:?}");
        assert!(decisions.iter().all(|(result, _)| *result == DecisionResult::WouldDo));
    }
}

#[test]
fn only_what_nobody_else_runs_is_ended() {
    let evict = |tracked: Tracked| Task {
        remedy: Remedy::Evict,
        class: QosClass::BestEffort,
        tracked: Arc::new(tracked),
        because_of: 1,
    };
    let roster = [
        entry(cri(1, "web", ContainerKind::Infrastructure, "/pods/web/pause")),
        entry(cri(2, "other", ContainerKind::Infrastructure, "/pods/other/pause")),
    ];
    let who = |task: &Task| runner(task, &roster, true);
    let at = |path: &str| {
        let mut tracked = in_slot(1, "x");
        tracked.cgroup = path.into();
        evict(tracked)
    };
    let service = |name: &str| Ok(Runner::Unit(name.into()));
    assert_eq!(who(&at("/system.slice/db.service")), service("db.service"));
    assert_eq!(who(&evict(unit(1, "db"))), service("db.service"));
    assert_eq!(runner(&evict(unit(1, "db")), &roster, false), Err(NOBODY), "nobody there to ask");
    // Of others, of no one, or more than one container.
    for path in ["/system.slice/docker-1.scope", "/machine.slice", "/system.slice/db.service/inner", "/plain"]
    {
        assert_eq!(who(&at(path)), Err(NOBODY), "{path}");
    }
    let pod = evict(cri(3, "web", ContainerKind::Regular, "/pods/web/main"));
    assert_eq!(who(&pod), Ok(Runner::Sandbox("web-Infrastructure".into())));
    assert_eq!(runner(&pod, &[], true), Err(NO_SANDBOX));
    assert_eq!(who(&Task { remedy: Remedy::Restart, ..pod }), Err(ONE_CONTAINER));
    let kubelets = evict(cri(3, "web", ContainerKind::Regular, "/kubepods/burstable/pod1/main"));
    assert_eq!(who(&kubelets), Err(OF_KUBELET));
}

#[test]
fn the_restart_of_one_container_of_a_runtime_stays_an_offer_and_says_so_once() {
    let mut bench = Bench::new(act);
    bench.present(vec![cri(1, "web", ContainerKind::Infrastructure, "/pods/web/pause")]);
    bench.rule(Remedy::Restart, QosClass::Burstable, cri(2, "web", ContainerKind::Regular, "/pods/web/main"));
    bench.rule(Remedy::Evict, QosClass::BestEffort, cri(3, "web", ContainerKind::Regular, "/pods/web/side"));
    assert_eq!(bench.after(60), ["evict web-Infrastructure"], "the pod can be stopped");
    let told = bench.decisions();
    assert_eq!(told.len(), 2, "{told:?}");
    let offer = told.iter().find(|(result, _)| *result == DecisionResult::Unsupported).unwrap();
    assert!(offer.1.starts_with("it stays an offer: a container runtime cannot start"), "{}", offer.1);
}
