//! Exclusive cores: packing, stability, the shared pool, and what it means for a plan.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::units::{Bytes, Limit, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, PodFacts, PodRef, Requested, ScorePolicy,
    SourceKind, Workload,
};
use evenkeel_qos::cores::{
    Allocation, CoresRequest, Cpu, CpuList, allocate, pick, read_topology, topology_text, wanted,
};
use evenkeel_qos::plan::{PlanConfig, plan};
use proptest::prelude::*;

use crate::desired::with_cores;

/// Two NUMA nodes of `cores` physical cores with two threads each; the second threads come after all firsts.
fn machine(cores: u32) -> Vec<Cpu> {
    let total = cores * 2;
    (0..total * 2)
        .map(|id| {
            let core = id % total;
            Cpu { id, numa: core / cores, socket: core / cores, core }
        })
        .collect()
}

fn list(text: &str) -> CpuList {
    text.parse().unwrap()
}

fn requests(of: &[(&str, usize)]) -> Vec<CoresRequest> {
    of.iter().map(|(id, count)| CoresRequest { id: (*id).into(), count: *count }).collect()
}

fn shown(a: &Allocation) -> Vec<(String, String)> {
    let own = a.exclusive.iter().map(|(id, x)| (id.clone(), x.cpus.to_string()));
    own.chain([("shared".to_owned(), a.shared.to_string())]).collect()
}

fn rows(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
}

#[test]
fn lists_print_and_parse_as_the_kernel_writes_them() {
    for (text, printed, len) in
        [("0-3,8", "0-3,8", 5), ("3,2,1,7\n", "1-3,7", 4), ("", "", 0), ("5-5", "5", 1)]
    {
        assert_eq!((list(text).to_string().as_str(), list(text).len()), (printed, len));
    }
    for wrong in ["3-1", "a", "0-", "1;2", "0-9999999", "-1"] {
        assert!(wrong.parse::<CpuList>().is_err(), "{wrong}");
    }
}

#[test]
fn whole_cores_of_one_numa_node_come_first() {
    // Node 1 has cpus 2, 3, 6 and 7; physical core 3 is cpus 3 and 7.
    let all = machine(2);
    let table =
        [(1, "7"), (2, "3,7"), (3, "3,6-7"), (4, "2-3,6-7"), (5, "2-3,5-7"), (6, "1-3,5-7"), (8, "0-7")];
    for (count, expected) in table {
        assert_eq!(pick(count, &all, &all).unwrap(), list(expected), "{count}");
    }
    assert_eq!(pick(9, &all, &all), None);
    assert_eq!(pick(0, &all, &all), None);
    // A core that is already broken up is used before a whole one is broken.
    let free: Vec<_> = all.iter().copied().filter(|c| c.numa == 0 && c.id != 5).collect();
    assert_eq!(pick(1, &free, &all).unwrap(), list("1"));
    assert_eq!(pick(2, &free, &all).unwrap(), list("0,4"));
    // The node it fits with the least left over.
    let free: Vec<_> = all.iter().copied().filter(|c| c.id != 0).collect();
    assert_eq!(pick(2, &free, &all).unwrap(), list("1,5"));
}

#[test]
fn a_node_is_allocated_and_stays_so() {
    let all = machine(2);
    let first = allocate(&all, 1, &requests(&[("a", 2), ("b", 4), ("c", 3), ("none", 0)]), &BTreeMap::new());
    assert_eq!(shown(&first), rows(&[("b", "2-3,6-7"), ("c", "1,4-5"), ("shared", "0")]));
    assert_eq!(first.refused["a"], "asks for 2 cpus of its own, 0 can be given while 1 stay shared");
    // Who has CPUs keeps them whoever comes or goes; what is given back goes to whoever waited.
    let again = allocate(&all, 1, &requests(&[("z", 1), ("a", 2), ("b", 4)]), &first.assigned());
    assert_eq!(shown(&again), rows(&[("a", "1,5"), ("b", "2-3,6-7"), ("z", "4"), ("shared", "0")]));
    // Asking for another number is asking anew.
    let more = allocate(&all, 2, &requests(&[("a", 3), ("b", 4)]), &again.assigned());
    assert_eq!(shown(&more), rows(&[("b", "2-3,6-7"), ("shared", "0-1,4-5")]));
    // CPUs that went offline are taken from whoever had them.
    let less = allocate(&all[..7], 1, &requests(&[("a", 2), ("b", 4)]), &again.assigned());
    assert_eq!(shown(&less), rows(&[("a", "1,5"), ("b", "2-4,6"), ("shared", "0")]));
    assert!(less.refused.is_empty());
    // One CPU: nothing to give, and nothing to panic about.
    assert_eq!(
        shown(&allocate(&all[..1], 0, &requests(&[("a", 1)]), &BTreeMap::new())),
        rows(&[("shared", "0")])
    );
    assert_eq!(shown(&allocate(&[], 0, &requests(&[("a", 1)]), &BTreeMap::new())), rows(&[("shared", "")]));
}

#[test]
fn topologies_survive_as_text() {
    let all = machine(2);
    assert_eq!(read_topology(&topology_text(&all)), Some(all));
    assert_eq!(read_topology(""), Some(Vec::new()));
    for wrong in ["1", "1:0/0", "a:0/0/0", "1:0/0/x"] {
        assert_eq!(read_topology(wrong), None, "{wrong}");
    }
}

fn workload(id: &str, cpu: (u64, u64), memory: (u64, u64)) -> Workload {
    let resources = ContainerResources {
        cpu_request: Some(MilliCpu::new(cpu.0)),
        cpu_limit: Some(MilliCpu::new(cpu.1)).filter(|l| !l.is_zero()),
        memory_request: Some(Bytes::new(memory.0)),
        memory_limit: Some(Bytes::new(memory.1)).filter(|l| !l.is_zero()),
    };
    Workload {
        id: id.into(),
        source: SourceKind::Manifests,
        pod: PodRef { namespace: "default".into(), name: id.into(), uid: None },
        container: "app".into(),
        kind: ContainerKind::Regular,
        workload: id.into(),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(format!("/{id}")),
        pid: None,
        requested: Requested::Stated(resources),
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::Respect,
        oom_kill: None,
    }
}

#[test]
fn guaranteed_containers_with_whole_cores_lose_their_quota() {
    const GIB: u64 = 1 << 30;
    let node = NodeFacts::of_size(Bytes::new(8 * GIB), MilliCpu::new(8000));
    let workloads = [
        workload("own", (2000, 2000), (GIB, GIB)),
        workload("part", (1500, 1500), (GIB, GIB)),
        workload("burst", (1000, 2000), (GIB, GIB)),
        workload("memory", (1000, 1000), (GIB, 2 * GIB)),
        workload("none", (0, 0), (0, 0)),
        workload("large", (7000, 7000), (GIB, GIB)),
    ];
    let made = plan(&node, &PlanConfig::default(), &workloads);
    let asks: Vec<_> = made
        .containers
        .iter()
        .zip(&workloads)
        .filter_map(|(c, w)| Some(CoresRequest { id: c.id.clone(), count: wanted(c, &w.requested)? }))
        .collect();
    assert_eq!(asks, requests(&[("own", 2), ("large", 7)]));
    let had = BTreeMap::from([("own".to_owned(), list("3,7"))]);
    let allocation = allocate(&machine(2), 1, &asks, &had);
    let made = with_cores(&node, &workloads, &allocation);
    let of = |id: &str| &made.iter().find(|c| c.id == id).unwrap().wishes;
    assert_eq!(of("own").cpuset_cpus.as_ref().unwrap().value, list("3,7"));
    let quota = of("own").cpu_quota.as_ref().unwrap();
    assert_eq!(quota.value.quota_usec, Limit::Max);
    assert_eq!(quota.reason.text(), "no quota: it has cpus 3,7 to itself");
    assert_eq!(of("part").cpuset_cpus.as_ref().unwrap().value, list("0-2,4-6"));
    assert_eq!(of("part").cpu_quota.as_ref().unwrap().value.quota_usec, Limit::Value(150_000));
    assert_eq!(
        of("large").cpuset_cpus.as_ref().unwrap().reason.text(),
        "shared pool: asks for 7 cpus of its own, 5 can be given while 1 stay shared"
    );
    assert_eq!(of("large").cpu_quota.as_ref().unwrap().value.quota_usec, Limit::Value(700_000));
}

proptest! {
    #[test]
    fn nobody_shares_what_somebody_has(
        cores in 1_u32..6,
        least in 0_usize..6,
        first in prop::collection::btree_map("[a-e]", 0_usize..6, 0..5),
        second in prop::collection::btree_map("[a-e]", 0_usize..6, 0..5),
    ) {
        let all = machine(cores);
        let asked = |m: &BTreeMap<String, usize>| -> Vec<CoresRequest> {
            m.iter().map(|(id, count)| CoresRequest { id: id.clone(), count: *count }).collect()
        };
        let before = allocate(&all, least, &asked(&first), &BTreeMap::new());
        let after = allocate(&all, least, &asked(&second), &before.assigned());
        for a in [&before, &after] {
            let mut seen = a.shared.clone();
            let mut count = seen.len();
            for own in a.exclusive.values() {
                seen.extend(&own.cpus);
                count += own.cpus.len();
            }
            prop_assert_eq!(count, all.len());
            prop_assert_eq!(seen.len(), all.len());
            prop_assert!(a.shared.len() >= least.max(1).min(all.len()));
        }
        for (id, own) in &before.exclusive {
            if second.get(id) == Some(&own.cpus.len()) {
                prop_assert_eq!(&after.exclusive[id].cpus, &own.cpus);
            }
        }
    }
}
