//! A workload of four pods, and a simulator that says the same of all.

#![allow(dead_code, reason = "each suite uses a part of it")]

use std::collections::BTreeMap;

use evenkeel_model::panic::Panic;
use evenkeel_model::qos_class::QosClass;
use evenkeel_rightsizing::policy::LimitsMode;
use evenkeel_rightsizing::policy::update::Updates;
use evenkeel_updater::{
    Now, Plan, Reason, Resizing, Room, RunningContainer, RunningPod, Size, Sizes, TargetRequest, UpdateRules,
    UpdaterMemory, Workload, plan,
};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const NOW: u64 = 1_000_000;

pub(crate) fn size(request: u64, limit: Option<u64>) -> Size {
    Size { request: Some(request), limit }
}

pub(crate) fn main_of(cpu: Size, memory: Size) -> Sizes {
    BTreeMap::from([("main".to_owned(), [cpu, memory])])
}

pub(crate) fn pod(name: &str) -> RunningPod {
    let container = RunningContainer { peak_memory: Some(50 * MIB), ..RunningContainer::default() };
    RunningPod {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        node: "node-1".to_owned(),
        owner: "ReplicaSet/web-a".to_owned(),
        is_remade: true,
        class: QosClass::Burstable,
        created: NOW - 100_000,
        is_ready: true,
        is_ending: false,
        was_oom_killed: false,
        is_sized_as_whole: false,
        resizing: Resizing::Settled,
        note: None,
        containers: BTreeMap::from([("main".to_owned(), container)]),
        sizes: main_of(size(100, None), size(100 * MIB, None)),
        asked: None,
        watched: None,
        offer: None,
    }
}

/// Four replicas of 100m and 100Mi that should have 200m.
pub(crate) fn web() -> Workload {
    let target = [Some(TargetRequest { request: 200, limit: None }), None];
    Workload {
        namespace: "shop".to_owned(),
        name: "deployment/web".to_owned(),
        policy: "shop/web".to_owned(),
        updates: Updates { canary_seconds: 0, ..Updates::default() },
        limits: LimitsMode::Keep,
        replicas: 4,
        pods: ["a", "b", "c", "d"].map(pod).into(),
        targets: BTreeMap::from([("main".to_owned(), target)]),
        allowed_disruptions: None,
        scaled_by: [None, None],
        updated_by: None,
        frozen: None,
    }
}

/// A simulator that says the same of all.
pub(crate) struct Says {
    pub(crate) in_place: bool,
    pub(crate) anywhere: bool,
}

impl Room for Says {
    fn in_place(&mut self, _: &Workload, _: &RunningPod, _: &Sizes) -> Result<(), String> {
        self.in_place.then_some(()).ok_or_else(|| "the node is full".to_owned())
    }

    fn anywhere(&mut self, _: &Workload, _: &RunningPod, _: &Sizes) -> Result<(), String> {
        self.anywhere.then_some(()).ok_or_else(|| "no node has room".to_owned())
    }
}

pub(crate) fn now() -> Now {
    Now { seconds: NOW, panic: Panic::Off, admission: Ok(()) }
}

pub(crate) fn planned(workload: &Workload, now: &Now, room: (bool, bool)) -> Plan {
    let (mut kept, rules) = (UpdaterMemory::default(), UpdateRules::default());
    let mut says = Says { in_place: room.0, anywhere: room.1 };
    plan(std::slice::from_ref(workload), &mut kept, &rules, now, &mut says)
}

/// What is done, such as `resize a`, and why what is not.
pub(crate) fn told(plan: &Plan) -> (Vec<String>, Vec<Reason>) {
    let done = plan.actions.iter().map(|action| format!("{} {}", action.deed.as_str(), action.pod)).collect();
    let mut refused: Vec<Reason> = plan.refusals.iter().map(|refusal| refusal.reason).collect();
    refused.sort_unstable();
    refused.dedup();
    (done, refused)
}
