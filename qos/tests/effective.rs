//! Effective protection by the kernel's own arithmetic, and where weights compete.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::units::Bytes;
use evenkeel_qos::effective::{
    Competition, Path, PathCgroup, ProtectionEffect, ProtectionKnob, WeightLevel, WeightVerdict, competition,
    effective,
};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn node(path: &str, setting: u64, usage: u64, siblings: u64) -> PathCgroup {
    let mib = |n: u64| Bytes::new(n * MIB);
    PathCgroup { path: path.into(), setting: mib(setting), usage: mib(usage), siblings_claim: mib(siblings) }
}

fn judge(nodes: &[PathCgroup], recursive: bool) -> (u64, u64, ProtectionEffect) {
    let found = effective(ProtectionKnob::Min, Path { nodes, recursive });
    (found.now.get() / MIB, found.at_full_use.get() / MIB, found.verdict)
}

#[test]
fn a_path_that_grants_everything() {
    let nodes = [node("/own", 300, 250, 0), node("/own/pod", 200, 150, 100), node("/own/pod/c", 200, 150, 0)];
    assert_eq!(judge(&nodes, true), (150, 200, ProtectionEffect::Granted));
    assert_eq!(judge(&nodes, false), (150, 200, ProtectionEffect::Granted));
    // A topmost cgroup has what it asks for.
    assert_eq!(judge(&[node("/c", 200, 50, 0)], true), (50, 200, ProtectionEffect::Granted));
    assert_eq!(judge(&[], true), (0, 0, ProtectionEffect::Granted));
    // Nothing wished: nothing to take away.
    let nodes = [node("/pods", 0, 100, 0), node("/pods/c", 0, 100, 0)];
    assert_eq!(judge(&nodes, true).2, ProtectionEffect::Granted);
}

#[test]
fn an_ancestor_without_protection_takes_all_of_it() {
    let nodes = [
        node("/kubepods", 0, 800, 0),
        node("/kubepods/pod1", 0, 300, 0),
        node("/kubepods/pod1/c", 100, 40, 0),
    ];
    let (now, full, verdict) = judge(&nodes, true);
    assert_eq!((now, full), (0, 0));
    let ProtectionEffect::Ineffective { ancestor, remedy } = verdict else { panic!("{verdict:?}") };
    assert_eq!(ancestor, "/kubepods");
    assert_eq!(
        remedy,
        "set memory.min of /kubepods to at least 104857600 bytes (it is 0 bytes) and of /kubepods/pod1 to at \
         least 104857600 bytes (it is 0 bytes), or give the subtree to the agent with own = [\"/kubepods\"]"
    );
    let low = effective(ProtectionKnob::Low, Path { nodes: &nodes, recursive: false });
    assert_eq!(low.short.len(), 2);
    assert!(
        matches!(low.verdict, ProtectionEffect::Ineffective { remedy, .. } if remedy.contains("memory.low"))
    );
}

#[test]
fn too_little_is_shared_in_proportion_to_claims() {
    // The parent grants 100 of 200 claimed.
    let nodes = [node("/p", 100, 400, 0), node("/p/c", 150, 150, 50)];
    let (now, full, verdict) = judge(&nodes, false);
    assert_eq!((now, full), (75, 75));
    let ProtectionEffect::Partly { granted, by, .. } = verdict else { panic!("{verdict:?}") };
    assert_eq!((granted.get(), by.as_str()), (75 * MIB, "/p"));
    // Claims are capped by use: siblings that use little leave it all.
    assert_eq!(
        judge(&[node("/p", 100, 400, 0), node("/p/c", 80, 80, 20)], false).2,
        ProtectionEffect::Granted
    );
    // A grandparent that is short is named although the parent's own value would do.
    let nodes = [node("/g", 50, 400, 0), node("/g/p", 200, 300, 100), node("/g/p/c", 100, 100, 0)];
    let ProtectionEffect::Partly { by, .. } = judge(&nodes, false).2 else { panic!("not partly") };
    assert_eq!(by, "/g");
}

#[test]
fn unclaimed_protection_is_spread_where_the_mount_says_so() {
    // The pod has no value of its own; with memory_recursiveprot its part of the unclaimed 300 is all of it.
    let nodes = [node("/own", 300, 200, 0), node("/own/pod", 0, 200, 0), node("/own/pod/c", 100, 200, 0)];
    assert_eq!(judge(&nodes, true).2, ProtectionEffect::Granted);
    assert!(
        matches!(judge(&nodes, false).2, ProtectionEffect::Ineffective { ancestor, .. } if ancestor == "/own/pod")
    );
}

proptest! {
    #[test]
    fn whatever_the_path_nothing_overflows_and_no_more_than_use_is_protected(
        values in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>()), 0..8),
        recursive: bool,
    ) {
        let nodes: Vec<_> = values.iter().map(|(setting, usage, siblings)| PathCgroup {
            path: "/x".into(),
            setting: Bytes::new(*setting),
            usage: Bytes::new(*usage),
            siblings_claim: Bytes::new(*siblings),
        }).collect();
        let found = effective(ProtectionKnob::Min, Path { nodes: &nodes, recursive });
        prop_assert!(found.now <= nodes.last().map_or(Bytes::ZERO, |n| n.usage));
    }

    #[test]
    fn sums_of_children_grant_everything(leaves in prop::collection::vec(0_u64..1000, 1..8), used in prop::collection::vec(0_u64..1000, 8)) {
        // Every inner cgroup holds the sum of its children: each leaf is granted.
        let sum: u64 = leaves.iter().sum();
        let usage: u64 = leaves.iter().zip(&used).map(|(_, u)| u).sum();
        let claims: u64 = leaves.iter().zip(&used).map(|(l, u)| l.min(u)).sum();
        for (leaf, used) in leaves.iter().zip(&used) {
            let nodes = [
                node("/own", sum, usage, 0),
                node("/own/pod", sum, usage, 0),
                node("/own/pod/c", *leaf, *used, claims - leaf.min(used)),
            ];
            for recursive in [false, true] {
                prop_assert_eq!(judge(&nodes, recursive).2, ProtectionEffect::Granted);
            }
        }
    }
}

fn level(path: &str, siblings: u32, is_ours: bool) -> WeightLevel {
    WeightLevel { path: path.into(), populated_siblings: siblings, processes_beside: 0, is_ours }
}

fn at(cgroup: &str, under: &str, with: u32) -> Competition {
    Competition { cgroup: cgroup.into(), under: under.into(), with }
}

#[test]
fn a_weight_competes_where_siblings_run() {
    let path = [level("/a", 1, false), level("/a/b", 2, false)];
    assert_eq!(competition(&path), Some(WeightVerdict::Granted(at("/a/b", "/a", 2))));
    // No sibling, but the agent weighs the pod.
    let path = [level("/own", 3, true), level("/own/pod", 1, true), level("/own/pod/c", 0, true)];
    assert_eq!(competition(&path), Some(WeightVerdict::Carried(at("/own/pod", "/own", 1))));
    // No sibling, and the pod's weight is the kubelet's.
    let path =
        [level("/kubepods", 3, false), level("/kubepods/pod", 4, false), level("/kubepods/pod/c", 0, true)];
    let Some(WeightVerdict::Ineffective { ancestor, remedy }) = competition(&path) else { panic!() };
    assert_eq!(ancestor, "/kubepods/pod");
    assert!(remedy.contains("own = [\"/kubepods/pod\"]"), "{remedy}");
    // Alone on the machine.
    let Some(WeightVerdict::Ineffective { ancestor, remedy }) = competition(&[level("/c", 0, true)]) else {
        panic!()
    };
    assert_eq!(ancestor, "/");
    assert!(remedy.contains("nothing competes"), "{remedy}");
    assert_eq!(competition(&[]), None);
    // Processes in the parent compete on v1.
    let path = [WeightLevel { processes_beside: 1, ..level("/a/b", 0, true) }];
    assert_eq!(competition(&path), Some(WeightVerdict::Granted(at("/a/b", "/a", 1))));
}
