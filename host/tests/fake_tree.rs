//! The real readers and writers on trees of ordinary files, one for each cgroup set-up.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use evenkeel_host::error::Category;
use evenkeel_host::fake::FakeTree;
use evenkeel_host::hierarchy::{CgroupMode, Controller, Hierarchy};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::kernel_writer::KernelWriter;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::sampler::{ContainerReader, Descriptors, Flaws, Plan, SampleContext};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{HostWriter, Outcome, ProcessId, Refusal, Write};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::units::{Bytes, CpuShares, Limit, OomScoreAdj};

const PATH: &str = "/kubepods/pod1/c1";

fn tree(mode: CgroupMode) -> FakeTree {
    let tree = FakeTree::new(mode).unwrap();
    tree.add_cgroup(PATH).unwrap();
    tree
}

fn context(tree: &FakeTree, plan: Plan) -> SampleContext {
    SampleContext::new(tree.open().unwrap(), Descriptors::within(1000), plan)
}

fn sample_once(tree: &FakeTree) -> (Sample, Flaws) {
    let mut context = context(tree, Plan::default());
    let mut reader = ContainerReader::open(&context, PATH).unwrap().reader;
    reader.sample(&mut context, Duration::ZERO, 0).unwrap()
}

fn v1(c: Controller) -> Hierarchy {
    Hierarchy::V1(c)
}

/// Sets files, takes one sample, compares the fields named.
fn check(
    mode: CgroupMode,
    files: &[(Hierarchy, &str, &str)],
    want: &[(Field, Option<u64>)],
    malformed: &[Field],
) {
    let tree = tree(mode);
    for (hierarchy, file, text) in files {
        tree.set(*hierarchy, PATH, file, text).unwrap();
    }
    let (sample, flaws) = sample_once(&tree);
    for (field, value) in want {
        assert_eq!(sample.get(*field), *value, "{mode:?} {field:?} of {files:?}");
    }
    let bits = malformed.iter().fold(0, |all, f| all | 1u16 << f.index());
    assert_eq!((flaws.malformed, flaws.unreadable), (bits, 0), "{files:?}");
}

#[test]
fn every_field_of_v2_is_read() {
    let files = [
        (Hierarchy::V2, "cpu.stat", "usage_usec 7\nnr_periods 3\nnr_throttled 2\nthrottled_usec 9\nnew 1\n"),
        (Hierarchy::V2, "memory.current", "10000\n"),
        (Hierarchy::V2, "memory.stat", "anon 4000\nfile 1\nkernel x\ninactive_file 2500\n"),
        (Hierarchy::V2, "memory.swap.current", "8\n"),
        (Hierarchy::V2, "memory.events", "low 0\noom 5\noom_kill 4\n"),
        (Hierarchy::V2, "pids.current", "12\n"),
        (Hierarchy::V2, "cpu.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=11\n"),
        (Hierarchy::V2, "memory.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=12\n"),
        (Hierarchy::V2, "io.pressure", "some avg10=1.00 avg60=0.00 avg300=0.00 total=13\n"),
    ];
    let values = [7, 3, 2, 9, 10_000, 7_500, 4_000, 8, 11, 12, 13, 4, 12].map(Some);
    let want: Vec<_> = Field::ALL.into_iter().zip(values).collect();
    check(CgroupMode::V2, &files, &want, &[]);
}

#[test]
fn every_field_of_v1_and_hybrid_is_read_in_the_units_of_v2() {
    use Controller::{Cpu, Cpuacct, Memory, Pids};
    let files = [
        (v1(Cpuacct), "cpuacct.usage", "7999\n"),
        (v1(Cpu), "cpu.stat", "nr_periods 3\nnr_throttled 2\nthrottled_time 9000\n"),
        (v1(Memory), "memory.usage_in_bytes", "10000\n"),
        (v1(Memory), "memory.stat", "rss 1\ntotal_rss 4000\ntotal_swap 8\ntotal_inactive_file 2500\n"),
        (v1(Memory), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"),
        (v1(Pids), "pids.current", "12\n"),
    ];
    let mut values = [7, 3, 2, 9, 10_000, 7_500, 4_000, 8, 0, 0, 0, 4, 12].map(Some);
    let want: Vec<_> = Field::ALL.into_iter().zip(values).collect();
    check(CgroupMode::Hybrid, &files, &want, &[]);
    values[8..11].fill(None);
    let want: Vec<_> = Field::ALL.into_iter().zip(values).collect();
    check(CgroupMode::V1, &files, &want, &[]);
}

#[test]
fn malformed_files_cost_their_fields_only() {
    use Field::{CpuUsageUsec, MemoryCurrentBytes, MemoryWorkingSetBytes, Pids};
    let v2 = Hierarchy::V2;
    check(
        CgroupMode::V2,
        &[(v2, "pids.current", "many\n")],
        &[(Pids, None), (CpuUsageUsec, Some(0))],
        &[Pids],
    );
    check(CgroupMode::V2, &[(v2, "pids.current", "")], &[(Pids, None)], &[Pids]);
    check(CgroupMode::V2, &[(v2, "cpu.stat", "usage_usec -1\n")], &[(CpuUsageUsec, None)], &[CpuUsageUsec]);
    // A line this kernel does not have is no error.
    check(CgroupMode::V2, &[(v2, "cpu.stat", "")], &[(CpuUsageUsec, None)], &[]);
    // A cut line is not trusted.
    check(
        CgroupMode::V2,
        &[(v2, "memory.stat", "anon 1\ninactive_file 12")],
        &[(MemoryWorkingSetBytes, None)],
        &[],
    );
    let huge = [(v2, "memory.current", "99999999999999999999\n")];
    check(
        CgroupMode::V2,
        &huge,
        &[(MemoryCurrentBytes, None), (MemoryWorkingSetBytes, None)],
        &[MemoryCurrentBytes],
    );
}

#[test]
fn an_idle_container_costs_one_read_until_its_turn_comes() {
    let tree = tree(CgroupMode::V2);
    let mut context = context(&tree, Plan::refresh_every(10));
    let mut reader = ContainerReader::open(&context, PATH).unwrap().reader;
    let mut at = |tick: u64| reader.sample(&mut context, Duration::from_secs(tick), tick).unwrap().0;
    at(0);
    tree.set(Hierarchy::V2, PATH, "io.pressure", "some total=5\n").unwrap();
    tree.set(Hierarchy::V2, PATH, "memory.stat", "anon 77\ninactive_file 0\n").unwrap();
    let seen: Vec<u64> = (1..=10).map(|t| at(t).get(Field::IoPressureUsec).unwrap()).collect();
    assert_eq!(seen.iter().filter(|v| **v == 0).count() + seen.iter().filter(|v| **v == 5).count(), 10);
    assert_eq!(seen.last(), Some(&5), "read at least every tenth tick: {seen:?}");
    // Less is charged without CPU time: seen at half of these ticks.
    tree.set(Hierarchy::V2, PATH, "memory.current", "4096\n").unwrap();
    let seen: Vec<u64> = (11..=15).map(|t| at(t).get(Field::MemoryCurrentBytes).unwrap()).collect();
    assert_eq!(seen.last(), Some(&4096), "{seen:?}");
    // What moved is read at once, and only what depends on it.
    tree.set(Hierarchy::V2, PATH, "memory.stat", "anon 88\ninactive_file 0\n").unwrap();
    tree.set(Hierarchy::V2, PATH, "memory.current", "8192\n").unwrap();
    tree.set(Hierarchy::V2, PATH, "cpu.stat", "usage_usec 7000\n").unwrap();
    let now = at(16);
    assert_eq!((now.get(Field::MemoryAnonBytes), now.get(Field::MemoryCurrentBytes)), (Some(88), Some(8192)));
}

#[test]
fn missing_files_are_named_once_and_a_missing_cgroup_is_gone() {
    let tree = tree(CgroupMode::V2);
    std::fs::remove_file(tree.file(Hierarchy::V2, PATH, "io.pressure")).unwrap();
    let context = context(&tree, Plan::default());
    let before = context.descriptors().left();
    let opened = ContainerReader::open(&context, PATH).unwrap();
    assert_eq!((opened.missing, opened.errors), (vec![Field::IoPressureUsec], vec![]));
    assert_eq!(before - context.descriptors().left(), 8);
    drop(opened.reader);
    assert_eq!(context.descriptors().left(), before);
    assert!(ContainerReader::open(&context, "/kubepods/none").unwrap_err().is_gone());
}

#[test]
fn without_descriptors_a_replaced_cgroup_is_not_taken_for_the_old_one() {
    let tree = tree(CgroupMode::V2);
    let mut context = SampleContext::new(tree.open().unwrap(), Descriptors::within(0), Plan::default());
    let mut reader = ContainerReader::open(&context, PATH).unwrap().reader;
    reader.sample(&mut context, Duration::ZERO, 0).unwrap();
    // The old directory stays until the new one is made, so that its inode cannot be given out again.
    let old = tree.file(Hierarchy::V2, PATH, "");
    std::fs::rename(&old, old.parent().unwrap().with_file_name("moved")).unwrap();
    tree.add_cgroup(PATH).unwrap();
    assert!(reader.sample(&mut context, Duration::ZERO, 1).unwrap_err().is_gone());
}

fn hands(tree: &FakeTree, deny: &[String]) -> (KernelReader, KernelWriter) {
    let opened = tree.open().unwrap();
    let reader = KernelReader::new(tree.roots(), Arc::clone(&opened));
    (reader, KernelWriter::new(tree.roots(), opened, deny).unwrap())
}

#[test]
fn each_set_up_has_its_knobs_and_they_are_written() {
    for (mode, has, lacks) in [
        (CgroupMode::V1, Knob::CpuShares, Knob::CpuWeight),
        (CgroupMode::Hybrid, Knob::FreezerState, Knob::CgroupFreeze),
        (CgroupMode::V2, Knob::MemoryHigh, Knob::MemorySoftLimit),
    ] {
        let tree = tree(mode);
        let (reader, mut writer) = hands(&tree, &[]);
        let facts = reader.cgroup(PATH).unwrap();
        assert!(facts.value(has).is_some() && facts.knob(lacks).is_none(), "{mode:?} {facts:?}");
        let setting = match has {
            Knob::CpuShares => Setting::CpuShares(CpuShares::new(7).unwrap()),
            Knob::MemoryHigh => Setting::MemoryHigh(Limit::Value(Bytes::new(8192))),
            _ => Setting::FreezerState(true),
        };
        let write = Write::cgroup(facts.knob(has).unwrap().place.clone(), setting);
        assert_eq!(writer.apply(&write), Outcome::Written { old: facts.value(has), new: setting });
        assert_eq!(reader.cgroup(PATH).unwrap().value(has), Some(setting));
        assert_eq!(writer.apply(&write), Outcome::Unchanged { value: setting });
    }
}

#[test]
fn processes_of_the_whole_subtree_are_listed_and_strangers_left_out() {
    let tree = tree(CgroupMode::Hybrid);
    tree.add_cgroup("/kubepods/pod1/c1/inner/deep").unwrap();
    tree.set_procs(PATH, &[30, 0, 10]).unwrap();
    tree.set_procs("/kubepods/pod1/c1/inner/deep", &[20, 10]).unwrap();
    let (reader, _) = hands(&tree, &[]);
    let facts = reader.cgroup(PATH).unwrap();
    assert_eq!(reader.pids(facts.processes_at().unwrap()).unwrap(), vec![10, 20, 30]);
    assert_eq!(reader.children("/kubepods/pod1").unwrap(), vec!["c1"]);
    assert!(reader.cgroup("/kubepods/none").unwrap_err().is_gone());
    assert!(reader.cgroup("/kubepods/../../..").is_err());
    tree.add_cgroup(&format!("{PATH}{}", "/n".repeat(70))).unwrap();
    let error = reader.pids(facts.processes_at().unwrap()).unwrap_err();
    assert!(error.to_string().contains("nested deeper"), "a list that is not whole is an error: {error}");
}

#[test]
fn a_process_is_written_by_pid_and_start_time() {
    let tree = tree(CgroupMode::V2);
    tree.add_process(77_777, 42, 0, PATH).unwrap();
    let (reader, mut writer) = hands(&tree, &["/kube-system".to_owned()]);
    let id = reader.process(77_777).unwrap().id;
    assert_eq!(id.start_time, 42);
    let score = Setting::OomScoreAdj(OomScoreAdj::clamped(-5));
    let reused = ProcessId { start_time: 41, ..id };
    assert_eq!(writer.apply(&Write::process(reused, score)), Outcome::Refused(Refusal::Replaced));
    assert!(matches!(writer.apply(&Write::process(id, score)), Outcome::Written { .. }));
    assert_eq!(reader.score(77_777).unwrap().get(), -5);
    let none = ProcessId { pid: 77_778, ..id };
    assert!(writer.apply(&Write::process(none, score)).is_done(), "a process that has ended needs nothing");
    tree.add_process(77_779, 42, 0, "/kube-system/dns").unwrap();
    let denied = writer.apply(&Write::process(ProcessId { pid: 77_779, ..id }, score));
    assert_eq!(denied, Outcome::Refused(Refusal::DenyList { prefix: "/kube-system".to_owned() }));
}

#[test]
fn a_knob_that_is_missing_or_says_nonsense_has_its_category() {
    let tree = tree(CgroupMode::V2);
    std::fs::remove_file(tree.file(Hierarchy::V2, PATH, "memory.high")).unwrap();
    tree.set(Hierarchy::V2, PATH, "memory.max", "plenty\n").unwrap();
    let (reader, mut writer) = hands(&tree, &[]);
    let facts = reader.cgroup(PATH).unwrap();
    let category = |knob| facts.knob(knob).unwrap().value.as_ref().unwrap_err().category();
    assert_eq!(category(Knob::MemoryHigh), Category::Unsupported);
    assert_eq!(category(Knob::MemoryMax), Category::Malformed);
    let write = Write::cgroup(facts.places[0].clone(), Setting::MemoryHigh(Limit::Max));
    match writer.apply(&write) {
        Outcome::Failed { error, .. } => assert_eq!(error.category(), Category::Unsupported),
        other => panic!("{other:?}"),
    }
}
