//! Against this machine's kernel, v1, v2 or hybrid. Needs root; says so and passes where it cannot run.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{RealCgroup, skip, wait_for};
use evenkeel_host::caps::UsableCapability;
use evenkeel_host::dry_run::DryRunWriter;
use evenkeel_host::error::Category;
use evenkeel_host::events::{CgroupEvent, CgroupWatch, ProcConnector, ProcessEvent};
use evenkeel_host::freeze::{freeze_write, with_frozen};
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::kernel_writer::KernelWriter;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::sampler::{ContainerReader, Descriptors, Keeping, Plan, SampleContext};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Refusal, Write};
use evenkeel_model::sample::Field;
use evenkeel_model::units::{CpuShares, CpuWeight, OomScoreAdj};

fn pair(cg: &RealCgroup, deny: &[String]) -> (KernelReader, KernelWriter) {
    let reader = KernelReader::new(cg.roots.clone(), Arc::clone(&cg.tree));
    let writer = KernelWriter::new(cg.roots.clone(), Arc::clone(&cg.tree), deny).unwrap();
    (reader, writer)
}

fn score(n: i16) -> Setting {
    Setting::OomScoreAdj(OomScoreAdj::new(n).unwrap())
}

#[test]
fn a_sleeping_container_is_sampled_and_gone_when_removed() {
    let Some(mut cg) = RealCgroup::new("sampling") else { return };
    cg.spawn("sleep", &["1000"]);
    for descriptors in [Descriptors::within(100_000), Descriptors::within(0)] {
        let kept = descriptors.left() > 0;
        let mut context = SampleContext::new(Arc::clone(&cg.tree), descriptors, Plan::default());
        let opened = ContainerReader::open(&context, &cg.path).unwrap();
        let mut reader = opened.reader;
        assert_eq!(reader.keeping() == Keeping::Kept, kept);
        reader.sample(&mut context, Duration::from_secs(1), 0).unwrap();
        let (sample, flaws) = reader.sample(&mut context, Duration::from_secs(2), 1).unwrap();
        assert!(flaws.is_empty(), "{flaws:?}");
        assert_eq!(sample.interval(), Duration::from_secs(1));
        for field in Field::ALL {
            let known = sample.get(field).is_some();
            assert!(
                known || opened.missing.contains(&field) || field == Field::OomKills,
                "{field:?} {sample:?}"
            );
        }
        assert!(sample.get(Field::CpuUsageUsec).is_some());
        if cg.tree.layout().is_delegated(Controller::Pids) {
            assert_eq!(sample.get(Field::Pids), Some(1));
        }
    }
    let mut context = SampleContext::new(Arc::clone(&cg.tree), Descriptors::within(10_000), Plan::default());
    let mut reader = ContainerReader::open(&context, &cg.path).unwrap().reader;
    reader.sample(&mut context, Duration::ZERO, 0).unwrap();
    let path = cg.path.clone();
    cg.remove();
    assert!(reader.sample(&mut context, Duration::ZERO, 1).unwrap_err().is_gone());
    assert!(ContainerReader::open(&context, &path).unwrap_err().is_gone());
}

#[test]
fn cpu_time_of_a_busy_container_moves() {
    let Some(mut cg) = RealCgroup::new("sampling a busy container") else { return };
    cg.spawn("sh", &["-c", "while :; do :; done"]);
    let mut context = SampleContext::new(Arc::clone(&cg.tree), Descriptors::within(10_000), Plan::default());
    let mut reader = ContainerReader::open(&context, &cg.path).unwrap().reader;
    let (first, _) = reader.sample(&mut context, Duration::ZERO, 0).unwrap();
    let mut tick = 0;
    assert!(wait_for(|| {
        tick += 1;
        let (now, _) = reader.sample(&mut context, Duration::from_secs(tick), tick).unwrap();
        now.delta(&first, Field::CpuUsageUsec).is_some_and(|d| d > 0)
    }));
}

#[test]
fn shares_and_scores_are_written_and_read_back() {
    let Some(mut cg) = RealCgroup::new("writing") else { return };
    let pid = cg.spawn("sleep", &["1000"]);
    let (reader, mut writer) = pair(&cg, &[]);
    let facts = reader.cgroup(&cg.path).unwrap();
    let wanted = match facts.knob(Knob::CpuShares) {
        Some(_) => Setting::CpuShares(CpuShares::new(2048).unwrap()),
        None => Setting::CpuWeight(CpuWeight::new(200).unwrap()),
    };
    if let Some(fact) = facts.knob(wanted.knob()).filter(|f| f.value.is_ok()) {
        let write = Write::cgroup(fact.place.clone(), wanted);
        let old = fact.value.clone().ok();
        let (_, real) = pair(&cg, &[]);
        assert_eq!(DryRunWriter::new(real).apply(&write), Outcome::WouldWrite { old });
        assert_eq!(writer.apply(&write), Outcome::Written { old, new: wanted });
        assert_eq!(writer.apply(&write), Outcome::Unchanged { value: wanted });
        let impostor = CgroupRef { inode: fact.place.inode + 1, ..fact.place.clone() };
        assert_eq!(writer.apply(&Write::cgroup(impostor, wanted)), Outcome::Refused(Refusal::Replaced));
    } else {
        skip("cpu knob", "the cpu controller is not given to children of the root");
    }
    let process = reader.process(pid).unwrap();
    assert_eq!(reader.pids(facts.processes_at().unwrap()).unwrap(), vec![pid]);
    let done = writer.apply(&Write::process(process.id, score(500)));
    let old = Some(Setting::OomScoreAdj(process.score));
    assert_eq!(done, Outcome::Written { old, new: score(500) });
    assert_eq!(reader.score(pid).unwrap().get(), 500);
}

#[test]
fn a_score_below_the_floor_is_written_or_denied_with_the_remedy() {
    let Some(mut cg) = RealCgroup::new("scores below zero") else { return };
    let pid = cg.spawn("sleep", &["1000"]);
    let (reader, mut writer) = pair(&cg, &[]);
    let process = reader.process(pid).unwrap();
    let allowed = evenkeel_host::caps::held().unwrap().contains(&UsableCapability::SysResource);
    match writer.apply(&Write::process(process.id, score(-997))) {
        Outcome::Written { new, .. } => assert!(allowed && new == score(-997)),
        Outcome::Failed { old, error } => {
            assert!(!allowed, "{error}");
            assert_eq!(
                (old, error.category()),
                (Some(Setting::OomScoreAdj(process.score)), Category::Denied)
            );
            assert!(error.remedy().is_some_and(|r| r.contains("CAP_SYS_RESOURCE")), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_writer_refuses_what_must_not_be_written() {
    let Some(mut cg) = RealCgroup::new("refusals") else { return };
    let pid = cg.spawn("sleep", &["1000"]);
    let (reader, mut writer) = pair(&cg, std::slice::from_ref(&cg.path));
    let refused = |w: &mut KernelWriter, write: &Write| match w.apply(write) {
        Outcome::Refused(why) => why,
        other => panic!("{write:?}: {other:?}"),
    };
    let deny = Refusal::DenyList { prefix: cg.path.clone() };
    let process = reader.process(pid).unwrap();
    assert_eq!(refused(&mut writer, &Write::process(process.id, score(900))), deny);
    let place = reader.cgroup(&cg.path).unwrap().places[0].clone();
    assert_eq!(refused(&mut writer, &freeze_write(&place, true)), deny);
    let own = reader.process(std::process::id()).unwrap();
    assert_eq!(refused(&mut writer, &Write::process(own.id, score(1))), Refusal::OwnProcess);
    let init = reader.process(1).unwrap();
    assert_eq!(refused(&mut writer, &Write::process(init.id, score(1))), Refusal::Init);
    let root = CgroupRef { path: "/".into(), ..place };
    assert_eq!(refused(&mut writer, &freeze_write(&root, true)), Refusal::RootCgroup);
    assert_eq!(refused(&mut writer, &Write::cgroup(place, score(1))), Refusal::WrongTarget);
    if let Some(thread) = (2..64).filter_map(|p| reader.process(p).ok()).find(|f| f.kernel_thread) {
        assert_eq!(refused(&mut writer, &Write::process(thread.id, score(1))), Refusal::KernelThread);
    }
}

#[test]
fn a_container_is_frozen_for_the_work_and_thawed_after_it() {
    let Some(mut cg) = RealCgroup::new("freezing") else { return };
    cg.spawn("sh", &["-c", "while :; do :; done"]);
    let (reader, mut writer) = pair(&cg, &[]);
    let facts = reader.cgroup(&cg.path).unwrap();
    let home = cg.tree.layout().home(Controller::Freezer).expect("every kernel since 5.2 can freeze");
    let place = facts.place(home).unwrap().clone();
    let patience = Duration::from_secs(10);
    let (seen, thawed) = with_frozen(&reader, &mut writer, &place, patience, |_| {
        (reader.is_frozen(&place), reader.pids(&place).map(|p| p.len()))
    })
    .unwrap();
    assert_eq!(seen, (Ok(true), Ok(1)));
    assert!(thawed.is_done());
    assert!(wait_for(|| reader.is_frozen(&place) == Ok(false)));
}

#[test]
fn made_and_removed_cgroups_and_written_files_wake_us() {
    let Some(mut cg) = RealCgroup::new("watching cgroups") else { return };
    let place = cg.tree.dirs(&cg.path).unwrap()[0].at().clone();
    let mut watch = CgroupWatch::new(Arc::clone(&cg.tree)).unwrap();
    watch.watch_directory(&place).unwrap();
    watch.watch_directory(&place).unwrap();
    assert_eq!(watch.len(), 1);
    let root = cg.tree.layout().mount(place.hierarchy).unwrap().path.clone();
    let child = root.join(place.path.trim_start_matches('/')).join("inner");
    std::fs::create_dir(&child).unwrap();
    std::fs::remove_dir(&child).unwrap();
    cg.spawn("sleep", &["1000"]);
    let mut events = Vec::new();
    let written = CgroupEvent::FileWritten { cgroup: place.clone(), file: "cgroup.procs".to_owned() };
    assert!(wait_for(|| watch.read(&mut events).is_ok() && events.contains(&written)), "{events:?}");
    let name = || "inner".to_owned();
    assert!(events.contains(&CgroupEvent::ChildCreated { parent: place.clone(), name: name() }));
    assert!(events.contains(&CgroupEvent::ChildRemoved { parent: place.clone(), name: name() }));
    let (parent, _) = place.path.rsplit_once('/').unwrap();
    let parent = cg.tree.dir(place.hierarchy, parent).unwrap().at().clone();
    watch.watch_directory(&parent).unwrap();
    cg.remove();
    let removed = CgroupEvent::Removed { cgroup: place };
    assert!(wait_for(|| watch.read(&mut events).is_ok() && events.contains(&removed)), "{events:?}");
    assert_eq!(watch.len(), 1);
    watch.sweep(&mut events);
    assert!(watch.is_empty() && events.contains(&CgroupEvent::Removed { cgroup: parent }));
}

#[test]
fn a_filled_v2_cgroup_wakes_us() {
    let Some(mut cg) = RealCgroup::new("watching cgroup.events") else { return };
    let Ok(dir) = cg.tree.dir(Hierarchy::V2, &cg.path) else {
        eprintln!("SKIPPED watching cgroup.events: no v2 tree on this machine");
        return;
    };
    let place = dir.at().clone();
    let mut watch = CgroupWatch::new(Arc::clone(&cg.tree)).unwrap();
    watch.watch_events(&place).unwrap();
    cg.spawn("sleep", &["1000"]);
    let mut events = Vec::new();
    let changed = CgroupEvent::EventsChanged { cgroup: place };
    assert!(wait_for(|| watch.read(&mut events).is_ok() && events.contains(&changed)), "{events:?}");
}

#[test]
fn forks_and_execs_wake_us() {
    let connector = match ProcConnector::open() {
        Ok(c) => c,
        Err(e) => {
            assert!(matches!(e.category(), Category::Denied | Category::Unsupported), "{e}");
            assert!(e.remedy().is_some());
            return skip("process events", &e.to_string());
        }
    };
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = child.id();
    let mut events = Vec::new();
    let forked = |e: &ProcessEvent| matches!(e, ProcessEvent::Fork { child, .. } if *child == pid);
    assert!(wait_for(|| {
        connector.read(&mut events).unwrap();
        events.iter().any(forked) && events.contains(&ProcessEvent::Exec { pid })
    }));
    // Nothing arrives while it pauses, and nothing of it afterwards.
    connector.pause().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let mut unseen = std::process::Command::new("true").spawn().unwrap();
    unseen.wait().unwrap();
    events.clear();
    assert_eq!(connector.read(&mut events), Ok(0));
    connector.resume().unwrap();
    let mut seen = std::process::Command::new("true").spawn().unwrap();
    seen.wait().unwrap();
    let exec = |pid| ProcessEvent::Exec { pid };
    assert!(wait_for(|| {
        connector.read(&mut events).unwrap();
        events.contains(&exec(seen.id()))
    }));
    assert!(!events.contains(&exec(unseen.id())));
    assert!(!events.iter().any(|e| matches!(e, ProcessEvent::Exit { .. })), "ends are not asked for");
}
