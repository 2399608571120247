//! From inside a pod: own mount, cgroup and network namespace, the host's procfs and cgroupfs below `/host`.
//!
//! The outer test runs this test binary again under `unshare`, with the inner test named.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use common::{RealCgroup, skip};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::error::Category;
use evenkeel_host::events::ProcConnector;
use evenkeel_host::hierarchy::Layout;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::kernel_writer::KernelWriter;
use evenkeel_host::knob::Setting;
use evenkeel_host::roots::Roots;
use evenkeel_host::sampler::{ContainerReader, Descriptors, Plan, SampleContext};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{HostWriter, Outcome, Refusal, Write};
use evenkeel_model::sample::Field;
use evenkeel_model::units::OomScoreAdj;

/// Moves the host's view to a place of its own and takes the usual one away, as a pod has it.
const POD: &str = r#"
set -e
mkdir -p "$HOST/proc" "$HOST/cgroup"
mount --make-rprivate /
mount --rbind /proc "$HOST/proc"
mount --rbind /sys/fs/cgroup "$HOST/cgroup"
umount -l /sys/fs/cgroup
exec "$TEST" --exact inner --nocapture
"#;

#[test]
fn everything_works_with_the_hosts_trees_mounted_elsewhere() {
    let Some(mut target) = RealCgroup::new("a pod's view") else { return };
    let Some(own) = RealCgroup::new("a pod's view") else { return };
    let pid = target.spawn("sleep", &["1000"]);
    let host = tempfile::tempdir().unwrap();
    // The shell moves itself into the pod's cgroup before the namespaces are made.
    let roots = own.tree.layout().mounts().iter();
    let moves: String =
        roots.map(|m| format!("echo $$ > {}{}/cgroup.procs\n", m.path.display(), own.path)).collect();
    let script = format!("set -e\n{moves}exec unshare --mount --cgroup --net sh -c '{POD}'");
    let out = Command::new("sh")
        .args(["-c", &script])
        .env("HOST", host.path())
        .env("TEST", std::env::current_exe().unwrap())
        .env("POD_TARGET", &target.path)
        .env("POD_OWN", &own.path)
        .env("POD_PID", pid.to_string())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    if text.contains("unshare failed")
        || text.contains("unshare: not found")
        || text.contains("unrecognized option")
    {
        return skip("a pod's view", text.trim());
    }
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

fn given(name: &str) -> String {
    std::env::var(name).expect("the outer test sets it")
}

/// The part that runs in the pod, started there by the other test; by itself it has no pod to look at and ends.
#[test]
fn inner() {
    if std::env::var_os("POD_TARGET").is_none() {
        return;
    }
    let host = std::path::PathBuf::from(given("HOST"));
    let roots = Roots::new(host.join("proc"), host.join("cgroup"));
    assert!(Layout::detect(&Roots::default()).is_err(), "the usual place is empty in this pod");
    assert_eq!(roots.pids_agree(), Ok(true));
    let tree = Arc::new(CgroupTree::open(&roots).unwrap());
    let reader = KernelReader::new(roots.clone(), Arc::clone(&tree));
    let target = given("POD_TARGET");
    let facts = reader.cgroup(&target).unwrap();
    let pid: u32 = given("POD_PID").parse().unwrap();
    assert_eq!(reader.pids(facts.processes_at().unwrap()), Ok(vec![pid]));

    let mut context = SampleContext::new(Arc::clone(&tree), Descriptors::within(10_000), Plan::default());
    let mut sampler = ContainerReader::open(&context, &target).unwrap().reader;
    let (sample, _) = sampler.sample(&mut context, Duration::ZERO, 0).unwrap();
    assert!(sample.get(Field::CpuUsageUsec).is_some());

    let score = |n| Setting::OomScoreAdj(OomScoreAdj::clamped(n));
    let process = reader.process(pid).unwrap();
    let mut writer = KernelWriter::new(roots.clone(), Arc::clone(&tree), &[]).unwrap();
    assert!(writer.apply(&Write::process(process.id, score(321))).is_done());
    assert_eq!(reader.score(pid).unwrap().get(), 321);
    // Membership paths are relative to our own cgroup here; the deny list holds all the same.
    let mut denying = KernelWriter::new(roots, tree, std::slice::from_ref(&target)).unwrap();
    let refused = Outcome::Refused(Refusal::DenyList { prefix: target });
    assert_eq!(denying.apply(&Write::process(process.id, score(400))), refused);

    let own = reader.cgroup(&given("POD_OWN")).unwrap();
    for fact in own.settings.iter().filter_map(|f| f.value.clone().ok().map(|v| (f.place.clone(), v))) {
        assert_eq!(writer.apply(&Write::cgroup(fact.0, fact.1)), Outcome::Refused(Refusal::OwnCgroup));
    }
    // A pod without hostNetwork is told so.
    let error = ProcConnector::open().unwrap_err();
    assert_eq!(error.category(), Category::Unsupported, "{error}");
    assert!(error.remedy().is_some_and(|r| r.contains("hostNetwork")), "{error:?}");
}
