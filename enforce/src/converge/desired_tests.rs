//! What containers and inner cgroups are brought to, one change after the other, against the whole desired state made at
//! once.

use std::collections::BTreeMap;

use evenkeel_host::hierarchy::CgroupMode;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::Workload;
use evenkeel_qos::cores::{CoresRequest, Cpu, allocate};
use evenkeel_qos::dynamic::{Dynamic, DynamicRule, ScoreCandidate};
use evenkeel_qos::fair::{Fair, Hysteresis, Layout, Member, MicroCpu};
use evenkeel_qos::rules::RuleSet;
use proptest::prelude::*;

use super::enforce_tests::{Rig, limited, requesting};
use super::table::Input;

const PATHS: [&str; 4] = ["/own/a/c0", "/own/a/c1", "/own/b/c2", "/pods/c3"];

/// Something that changes what is desired.
#[derive(Debug, Clone)]
enum Change {
    /// A source reports these containers: each not at all, with requests, or with limits and so many whole cores.
    Report([(u8, u8); 4]),
    /// Everybody is given a fair part; who is active.
    Divide([bool; 4]),
    /// One container is ranked by its use, as a part of its request.
    Rank(usize, u8),
    /// Processors are allocated anew, or nobody has any to itself.
    Cores(bool),
    /// Knobs are looked at and written.
    Turn,
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => prop::array::uniform4((0_u8..4, 1_u8..4)).prop_map(Change::Report),
        2 => prop::array::uniform4(any::<bool>()).prop_map(Change::Divide),
        2 => (0_usize..4, 0_u8..30).prop_map(|(at, use_)| Change::Rank(at, use_)),
        1 => any::<bool>().prop_map(Change::Cores),
        2 => Just(Change::Turn),
    ]
}

fn workload(at: usize, (kind, size): (u8, u8)) -> Option<Workload> {
    let name = format!("c{at}");
    let (cpu, memory) = (u64::from(size) * 300, u64::from(size) * 32);
    match kind {
        0 => None,
        1 => Some(requesting(&name, cpu, memory)),
        2 => Some(limited(&name, cpu, 128)),
        _ => {
            let mut whole = limited(&name, 1000 * u64::from(size), 64);
            if let evenkeel_model::workload::Requested::Stated(resources) = &mut whole.requested {
                resources.cpu_request = resources.cpu_limit;
            }
            Some(whole)
        }
    }
}

fn divide(rig: &mut Rig, active: [bool; 4]) {
    let mut members = Vec::new();
    for (key, container) in rig.table.entries() {
        let path = &container.tracked.cgroup;
        let at = PATHS.iter().position(|known| **known == **path).unwrap_or(0);
        members.push(Member {
            key,
            parent: path.rsplit_once('/').map_or("", |(parent, _)| parent).to_owned(),
            request: MilliCpu::new(200),
            used: Some(MicroCpu::new(if active[at] { 900_000 } else { 0 })),
            waits: false,
        });
    }
    let mut fair = Fair::new(Layout::TwoLevel, Hysteresis::default());
    let Some(shared) = fair.observe(0, MilliCpu::new(4000), &members) else { return };
    for (key, part) in &shared.members {
        rig.table.give(&rig.rules, *key, Input::Part(*part));
    }
    rig.parts = shared.parents;
}

fn rank(rig: &mut Rig, at: usize, use_: u8) {
    let Some((key, id)) = rig.table.entries().nth(at).map(|(key, c)| (key, c.tracked.workload.id.clone()))
    else {
        return;
    };
    let (request, usage) = (Bytes::new(64 << 20), Bytes::new((8 << 20) * u64::from(use_)));
    let mut dynamic = Dynamic::new(DynamicRule::new(RuleSet::Proposal));
    dynamic.observe(
        rig.rules.facts.memory_bytes,
        &[ScoreCandidate { id: id.clone(), request, usage, largest: None, priority: 0 }],
    );
    if let Some(wish) = dynamic.wish(&id) {
        rig.table.give(&rig.rules, key, Input::Score(wish.clone()));
    }
}

fn cores(rig: &mut Rig, any: bool) {
    let asks: Vec<CoresRequest> = rig
        .table
        .iter()
        .filter_map(|c| Some(CoresRequest { id: c.tracked.workload.id.clone(), count: c.cores? }))
        .collect();
    let machine: Vec<Cpu> = (0..4).map(|id| Cpu { id, numa: 0, socket: 0, core: id / 2 }).collect();
    let allocation = allocate(&machine, 1, &asks, &BTreeMap::new());
    rig.rules.allocation = Some(allocation).filter(|a| any && !a.exclusive.is_empty());
    rig.table.renew(&rig.kernel, &rig.rules);
}

/// Everything as the whole desired state has it.
fn check(rig: &Rig) -> Result<(), TestCaseError> {
    let whole = rig.table.desired(&rig.rules, &rig.parts);
    for (container, planned) in rig.table.iter().zip(&whole.containers) {
        let workload = &container.tracked.workload;
        prop_assert_eq!(&planned.id, &workload.id);
        let score = planned.wishes.oom_score_adj.as_ref().map(|wish| (wish.value, &wish.reason));
        let kept = container.scores.as_ref().map(|scores| (scores.looper.target().score, &*scores.reason));
        prop_assert_eq!(kept, score);
        let settings = rig.rules.settings(workload, planned);
        for knob in &container.knobs.all {
            let wanted = settings.iter().find(|wanted| wanted.setting.knob() == knob.knob());
            let wanted = wanted.map(|wanted| (wanted.setting, wanted.why));
            prop_assert_eq!(Some((knob.wanted, &*knob.reason)), wanted, "{} of {}", knob.knob(), workload.id);
        }
        // On this machine every knob of cgroup v2 is there.
        let v2 = settings
            .iter()
            .filter(|wanted| container.knobs.all.iter().any(|knob| knob.knob() == wanted.setting.knob()));
        prop_assert_eq!(v2.count(), container.knobs.all.len());
    }
    prop_assert_eq!(&rig.table.inner(&rig.rules, &rig.parts), &whole.inner);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn what_changes_one_after_the_other_comes_to_the_whole_desired_state(
        changes in prop::collection::vec(change(), 1..14),
    ) {
        let mut rig = Rig::with(CgroupMode::V2, &["/own"], &PATHS);
        for path in ["/own", "/own/a", "/own/b", "/pods"] {
            rig.kernel.with(|state| state.add_cgroup(path));
        }
        for change in changes {
            match change {
                Change::Report(all) => {
                    let reported = all.into_iter().enumerate()
                        .filter_map(|(at, of)| Some((workload(at, of)?, PATHS[at])));
                    let reported: Vec<_> = reported.collect();
                    rig.apply(&reported);
                }
                Change::Divide(active) => divide(&mut rig, active),
                Change::Rank(at, use_) => rank(&mut rig, at, use_),
                Change::Cores(any) => cores(&mut rig, any),
                Change::Turn => rig.turn(),
            }
            check(&rig)?;
        }
    }
}
