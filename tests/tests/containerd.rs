//! Suite `containerd`: real containers under a private containerd, over its CRI socket.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::image::Image;
use evenkeel_tests::runtime::{self, ContainerSpec, PodSpec, Runtime, resources};
use evenkeel_tests::{places, require, wait};

const MIB: i64 = 1 << 20;

fn score(pid: i32) -> Result<i32> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(text.trim().parse()?)
}

#[test]
fn three_pods_run_are_listed_and_leave_nothing() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let containerd = Runtime::start()?;
    let directory = containerd.directory().to_path_buf();
    let wanted = [
        ("guaranteed", Tier::Guaranteed, resources(1024, Some(64 * MIB), 0)),
        ("burstable", Tier::Burstable, resources(256, Some(128 * MIB), 900)),
        ("besteffort", Tier::BestEffort, resources(2, None, 1000)),
    ];
    let mut uids = BTreeMap::new();
    for (name, tier, given) in wanted {
        let container = ContainerSpec::new("main", &["sleep", "1000000"]).resources(given);
        let pod = containerd.run_pod(&PodSpec::new(name, tier).label("app", "demo").container(container))?;
        let main = &pod.containers[0];
        assert_eq!(score(main.pid)?, i32::try_from(given.oom_score_adj)?, "{name}");
        let own = std::fs::read_to_string(format!("/proc/{}/cgroup", main.pid))?;
        assert!(own.lines().any(|line| line.ends_with(&main.cgroup)), "{} is not in {own}", main.cgroup);
        uids.insert(pod.uid, name);
    }

    let cri = containerd.cri();
    let sandboxes = cri.sandboxes()?;
    assert_eq!(sandboxes.len(), 3);
    for sandbox in &sandboxes {
        let name = uids[&sandbox.labels["io.kubernetes.pod.uid"]];
        assert_eq!(sandbox.labels["io.kubernetes.pod.name"], name);
        assert_eq!(sandbox.labels["app"], "demo");
    }
    let containers = cri.containers()?;
    assert_eq!(containers.len(), 3);
    assert!(containers.iter().all(|container| container.labels["io.kubernetes.container.name"] == "main"));

    drop(containerd);
    assert!(!directory.exists());
    Ok(())
}

#[test]
fn a_program_of_ours_runs_in_an_image_and_follows_an_update() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let containerd = Runtime::start()?;
    let image =
        Image::new("localhost/workload:1").program(&places::program("evenkeel-workload")?, "/bin/workload");
    containerd.import(&image)?;
    let container = ContainerSpec::new("hold", &["/bin/workload", "hold", "8Mi"])
        .image(image.reference())
        .annotation("example.com/note", "kept")
        .resources(resources(512, Some(64 * MIB), 500));
    let pod = containerd.run_pod(&PodSpec::new("holder", Tier::Burstable).container(container))?;
    let log = pod.logs.join("hold.log");
    wait::until_true("the workload to hold its memory", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("holding 8388608 bytes"))
    })?;

    let id = &pod.containers[0].id;
    containerd.cri().update(id, resources(1024, Some(96 * MIB), 500))?;
    let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let (root, file) = if v2 { ("", "memory.max") } else { ("/memory", "memory.limit_in_bytes") };
    let limit = std::fs::read_to_string(format!("/sys/fs/cgroup{root}{}/{file}", pod.containers[0].cgroup))?;
    assert_eq!(limit.trim(), (96 * MIB).to_string());
    let status = containerd.cri().status(id)?.status.context("no status")?;
    assert_eq!(status.annotations["example.com/note"], "kept");
    Ok(())
}

/// What a node agent in a DaemonSet needs of a pod: the node's processes, and its cgroups to write to.
#[test]
fn a_privileged_pod_sees_the_nodes_processes_and_writes_its_cgroups() -> Result<()> {
    require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    let containerd = Runtime::start()?;
    let tree = containerd.cgroups().path();
    let script = format!(
        "test -d /host/proc/{} && echo sees us; mkdir $(find /host/cgroup -maxdepth 2 -path '*{tree}' | head -1)/made && \
         echo made; exec sleep 1000000",
        std::process::id()
    );
    let container = ContainerSpec::new("agent", &["sh", "-c", &script])
        .mount(Path::new("/proc"), "/host/proc", true)
        .mount(Path::new("/sys/fs/cgroup"), "/host/cgroup", false)
        .privileged()
        .node_pids();
    let pod = containerd
        .run_pod(&PodSpec::new("agent", Tier::BestEffort).namespace("kube-system").container(container))?;
    let log = pod.logs.join("agent.log");
    wait::until_true("the pod to see the node", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("sees us") && text.contains("made"))
    })
}
