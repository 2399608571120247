//! The three containers, one of each class: what they ask for and what they really do.

use anyhow::{Context, Result};
use evenkeel_tests::cgroups::{CgroupTree, Tier};
use evenkeel_tests::image::Image;
use evenkeel_tests::places;
use evenkeel_tests::runtime::{ContainerSpec, PodSpec, Runtime, resources};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// Image the containers run.
const IMAGE: &str = "localhost/evenkeel-workload:1";

/// One container of the story.
pub(crate) struct Role {
    /// Name of its pod.
    pub(crate) pod: &'static str,
    tier: Tier,
    cpu: Option<&'static str>,
    memory: Option<&'static str>,
    limits: bool,
    burn_milli: &'static str,
    hold: &'static str,
    // Bytes the runtime is told; shares and score it is not told, so that they are the agent's to set.
    memory_limit: Option<i64>,
}

/// All of them. Together they want more CPU than one core has, so that shares matter on small machines.
pub(crate) const ROLES: [Role; 3] = [
    Role {
        pod: "payments",
        tier: Tier::Guaranteed,
        cpu: Some("500m"),
        memory: Some("96Mi"),
        limits: true,
        burn_milli: "400",
        hold: "64Mi",
        memory_limit: Some(96 << 20),
    },
    Role {
        pod: "web",
        tier: Tier::Burstable,
        cpu: Some("250m"),
        memory: Some("128Mi"),
        limits: false,
        burn_milli: "300",
        hold: "96Mi",
        memory_limit: None,
    },
    Role {
        pod: "batch",
        tier: Tier::BestEffort,
        cpu: None,
        memory: None,
        limits: false,
        burn_milli: "600",
        hold: "48Mi",
        memory_limit: None,
    },
];

impl Role {
    fn command(&self) -> [&str; 4] {
        ["/bin/evenkeel-workload", "burn-and-hold", self.burn_milli, self.hold]
    }

    /// Kubernetes' `resources` of the container.
    pub(crate) fn requirements(&self) -> Value {
        let mut asked = serde_json::Map::new();
        asked.extend(self.cpu.map(|cpu| ("cpu".to_string(), json!(cpu))));
        asked.extend(self.memory.map(|memory| ("memory".to_string(), json!(memory))));
        if asked.is_empty() {
            json!({})
        } else if self.limits {
            json!({"requests": asked, "limits": asked})
        } else {
            json!({"requests": asked})
        }
    }

    /// A manifest of the pod, with the annotations given.
    pub(crate) fn manifest(&self, annotations: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": self.pod, "namespace": "demo", "annotations": annotations},
            "spec": {"containers": [{"name": "main", "image": IMAGE, "resources": self.requirements()}]}
        })
    }

    /// One line for people.
    pub(crate) fn describe(&self) -> String {
        let asks = match (self.cpu, self.memory) {
            (Some(cpu), Some(memory)) if self.limits => format!("asks for exactly {cpu} and {memory}"),
            (Some(cpu), Some(memory)) => format!("asks for {cpu} and {memory}, without limits"),
            _ => "asks for nothing".to_string(),
        };
        format!("{:<9} {asks}; burns {}m, holds {}", self.pod, self.burn_milli, self.hold)
    }

    /// Runs it as a real container; its first process.
    pub(crate) fn run_container(&self, runtime: &Runtime) -> Result<i32> {
        let stated = json!({"main": self.requirements()}).to_string();
        let container = ContainerSpec::new("main", &self.command()).image(IMAGE).resources(resources(
            0,
            self.memory_limit,
            0,
        ));
        let pod = PodSpec::new(self.pod, self.tier)
            .namespace("demo")
            .annotation("evenkeel.dev/resources", &stated)
            .container(container);
        let pod = runtime.run_pod(&pod).with_context(|| format!("cannot run pod {}", self.pod))?;
        pod.containers.first().map(|c| c.pid).context("the pod has no container")
    }

    /// Runs it as a process in a cgroup, bound by a manifest; that process.
    pub(crate) fn run_process(&self, tree: &mut CgroupTree, manifests: &Path) -> Result<i32> {
        let cgroup = tree.container(self.tier, self.pod, "main")?;
        let mut command = Command::new(places::program("evenkeel-workload")?);
        command.args(&self.command()[1..]);
        let pid = tree.spawn(&cgroup, &command)?;
        let manifest = self.manifest(&json!({"evenkeel.dev/cgroup.main": cgroup.path()}));
        let file = manifests.join(format!("{}.json", self.pod));
        std::fs::write(&file, manifest.to_string())
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(pid.as_raw())
    }
}

/// Builds the image out of busybox and the workload and gives it to the runtime.
pub(crate) fn import(runtime: &Runtime) -> Result<()> {
    let image = Image::new(IMAGE).program(&places::program("evenkeel-workload")?, "/bin/evenkeel-workload");
    runtime.import(&image)
}
