//! A node's worth of containers: cgroups as a kubelet would lay them out, processes in them, and a manifest each that
//! binds them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup, Tier};
use evenkeel_tests::wait;
use serde_json::{Value, json};

use crate::nursery::{Habit, Nursery};
use crate::run::Run;

/// Containers of a full node, as the promises count them.
pub(crate) const CONTAINERS: u32 = 1000;

/// Namespace of all pods made here.
pub(crate) const NAMESPACE: &str = "bench";

/// One container.
pub(crate) struct Berth {
    /// Name of its pod.
    pub(crate) pod: String,
    /// Its cgroup.
    pub(crate) cgroup: TestCgroup,
}

/// Containers with their processes; all of it goes when it is dropped.
pub(crate) struct Fleet {
    // Dropped first to last: the helper that forks before its cgroups.
    /// What forks.
    pub(crate) nursery: Nursery,
    /// The containers.
    pub(crate) berths: Vec<Berth>,
    tree: CgroupTree,
}

impl Fleet {
    /// Makes containers with processes in them, and a manifest for each in `manifests`.
    pub(crate) fn launch(
        run: &Run,
        manifests: &Path,
        containers: u32,
        processes: u32,
        habit: Habit,
    ) -> Result<Fleet> {
        run.say(&format!("making {containers} cgroups with {processes} processes each"));
        let tree = CgroupTree::new()?;
        let mut nursery = Nursery::start()?;
        let helper = nursery.pid()?;
        let mut berths = Vec::new();
        for number in 0..containers {
            run.check()?;
            let (pod, tier) = (format!("pod-{number}"), tier(number));
            let cgroup = tree.container(tier, &pod, "main")?;
            cgroup.attach(helper)?;
            nursery.hold(processes, habit)?;
            write_manifest(manifests, &pod, &cgroup, &resources(number))?;
            berths.push(Berth { pod, cgroup });
        }
        // The helper itself lives where nobody manages it.
        tree.group("helper")?.attach(helper)?;
        let count = usize::try_from(processes).context("too many processes")?;
        let last = berths.last().context("a fleet has containers")?;
        wait::until_true("the last processes", || {
            last.cgroup.processes().is_ok_and(|all| all.len() == count)
        })?;
        Ok(Fleet { nursery, berths, tree })
    }

    /// The cgroups, for what else is to be started in them.
    pub(crate) fn remove(mut self) -> Result<()> {
        self.tree.remove()
    }
}

/// One in three asks for nothing; no Guaranteed ones, whose negative score not every machine allows.
fn tier(number: u32) -> Tier {
    if number.is_multiple_of(3) { Tier::BestEffort } else { Tier::Burstable }
}

/// What a container asks for: from 64 MiB to 3 GiB, so that scores differ.
fn resources(number: u32) -> Value {
    match tier(number) {
        Tier::BestEffort => json!({}),
        _ => burstable(64 * (1 + number % 48)),
    }
}

/// Requests without limits.
pub(crate) fn burstable(mebibytes: u32) -> Value {
    json!({"requests": {"cpu": "10m", "memory": format!("{mebibytes}Mi")}})
}

/// Writes the manifest that binds the one container of a pod to a cgroup; replaces an earlier one at once.
pub(crate) fn write_manifest(
    manifests: &Path,
    pod: &str,
    cgroup: &TestCgroup,
    resources: &Value,
) -> Result<()> {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod, "namespace": NAMESPACE,
            "annotations": {"evenkeel.dev/cgroup.main": cgroup.path()},
        },
        "spec": {"containers": [{"name": "main", "image": "registry.test/bench:1", "resources": resources}]}
    });
    let file: PathBuf = manifests.join(format!("{pod}.json"));
    let fresh = manifests.join(format!(".{pod}.new"));
    std::fs::write(&fresh, manifest.to_string())
        .and_then(|()| std::fs::rename(&fresh, &file))
        .with_context(|| format!("cannot write {}", file.display()))
}
