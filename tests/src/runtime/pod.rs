//! Pods as a kubelet would run them: labels, cgroup parent, resources. Owns the translation of a short description to
//! the CRI's messages.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::api::{
    ContainerConfig, ContainerMetadata, ImageSpec, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, NamespaceMode,
    NamespaceOption, PodSandboxConfig, PodSandboxMetadata,
};
use super::cri::Cri;
use crate::cgroups::Tier;

/// A pod to run.
#[derive(Debug, Clone)]
pub struct PodSpec {
    name: String,
    namespace: String,
    tier: Tier,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    containers: Vec<ContainerSpec>,
    /// As an API server gave it; drawn where none is.
    uid: Option<String>,
}

impl PodSpec {
    /// A pod in the namespace `default`, its cgroup in the place of `tier`.
    pub fn new(name: &str, tier: Tier) -> PodSpec {
        PodSpec {
            name: name.to_string(),
            namespace: "default".to_string(),
            tier,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            containers: Vec::new(),
            uid: None,
        }
    }

    /// Sets the uid.
    #[must_use]
    pub fn uid(mut self, uid: &str) -> PodSpec {
        self.uid = Some(uid.to_string());
        self
    }

    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> PodSpec {
        self.namespace = namespace.to_string();
        self
    }

    /// Adds a label to the sandbox.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> PodSpec {
        self.labels.insert(key.to_string(), value.to_string());
        self
    }

    /// Adds an annotation to the sandbox.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> PodSpec {
        self.annotations.insert(key.to_string(), value.to_string());
        self
    }

    /// Adds a container.
    #[must_use]
    pub fn container(mut self, container: ContainerSpec) -> PodSpec {
        self.containers.push(container);
        self
    }

    fn kubelet_labels(&self, uid: &str) -> HashMap<String, String> {
        let pairs = [("pod.name", self.name.as_str()), ("pod.namespace", &self.namespace), ("pod.uid", uid)];
        pairs.iter().map(|(key, value)| (format!("io.kubernetes.{key}"), (*value).to_string())).collect()
    }

    fn sandbox(&self, uid: &str, cgroup_parent: &str, logs: &Path) -> PodSandboxConfig {
        let mut labels = self.kubelet_labels(uid);
        labels.extend(self.labels.clone());
        let privileged = self.containers.iter().any(|container| container.privileged);
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: uid.to_string(),
                namespace: self.namespace.clone(),
                attempt: 0,
            }),
            hostname: String::new(),
            log_directory: logs.display().to_string(),
            labels,
            annotations: self.annotations.clone().into_iter().collect(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup_parent.to_string(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    privileged,
                }),
            }),
        }
    }

    /// The node's network, so that no network plugin is needed.
    fn namespaces(&self) -> NamespaceOption {
        let node_pids = self.containers.iter().any(|container| container.node_pids);
        let pid = if node_pids { NamespaceMode::Node } else { NamespaceMode::Container };
        NamespaceOption {
            network: NamespaceMode::Node.into(),
            pid: pid.into(),
            ipc: NamespaceMode::Pod.into(),
        }
    }
}

/// A container of a pod.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    name: String,
    image: String,
    command: Vec<String>,
    resources: LinuxContainerResources,
    annotations: BTreeMap<String, String>,
    mounts: Vec<Mount>,
    privileged: bool,
    node_pids: bool,
}

impl ContainerSpec {
    /// A container that runs `command` in [`BUSYBOX`](super::BUSYBOX), or in another image by [`ContainerSpec::image`].
    pub fn new(name: &str, command: &[&str]) -> ContainerSpec {
        ContainerSpec {
            name: name.to_string(),
            image: super::BUSYBOX.to_string(),
            command: command.iter().map(|word| (*word).to_string()).collect(),
            resources: LinuxContainerResources::default(),
            annotations: BTreeMap::new(),
            mounts: Vec::new(),
            privileged: false,
            node_pids: false,
        }
    }

    /// Sets the image.
    #[must_use]
    pub fn image(mut self, reference: &str) -> ContainerSpec {
        self.image = reference.to_string();
        self
    }

    /// Sets the resources, as the kubelet would have computed them.
    #[must_use]
    pub fn resources(mut self, resources: LinuxContainerResources) -> ContainerSpec {
        self.resources = resources;
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> ContainerSpec {
        self.annotations.insert(key.to_string(), value.to_string());
        self
    }

    /// Mounts a directory of this machine.
    #[must_use]
    pub fn mount(mut self, host: &Path, target: &str, readonly: bool) -> ContainerSpec {
        let host_path = host.display().to_string();
        self.mounts.push(Mount { container_path: target.to_string(), host_path, readonly });
        self
    }

    /// Gives the container all capabilities and devices this machine gives us.
    #[must_use]
    pub fn privileged(mut self) -> ContainerSpec {
        self.privileged = true;
        self
    }

    /// Lets the whole pod see the node's process ids, as `hostPID: true` does.
    #[must_use]
    pub fn node_pids(mut self) -> ContainerSpec {
        self.node_pids = true;
        self
    }

    fn config(&self, pod: &PodSpec, uid: &str) -> ContainerConfig {
        let mut labels = pod.kubelet_labels(uid);
        labels.insert("io.kubernetes.container.name".to_string(), self.name.clone());
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: self.name.clone(), attempt: 0 }),
            image: Some(ImageSpec { image: self.image.clone() }),
            command: self.command.clone(),
            args: Vec::new(),
            envs: Vec::new(),
            mounts: self.mounts.clone(),
            labels,
            annotations: self.annotations.clone().into_iter().collect(),
            log_path: format!("{}.log", self.name),
            linux: Some(LinuxContainerConfig {
                resources: Some(self.resources),
                security_context: Some(LinuxContainerSecurityContext {
                    privileged: self.privileged,
                    namespace_options: Some(pod.namespaces()),
                }),
            }),
        }
    }
}

/// Resources as CRI carries them: CPU shares, a memory limit in bytes where there is one, and the OOM score adjustment.
pub fn resources(
    cpu_shares: i64,
    memory_limit_bytes: Option<i64>,
    oom_score_adj: i64,
) -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_shares,
        // In the CRI, 0 is how an absent limit is written.
        memory_limit_in_bytes: memory_limit_bytes.unwrap_or_default(),
        oom_score_adj,
        ..LinuxContainerResources::default()
    }
}

/// A pod that runs.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its uid.
    pub uid: String,
    /// Id of its sandbox.
    pub sandbox: String,
    /// Path of its cgroup in each hierarchy.
    pub cgroup: String,
    /// Directory in which each container has its output, in `<name>.log`.
    pub logs: PathBuf,
    /// Its containers, in order.
    pub containers: Vec<RunningContainer>,
}

/// A container that runs.
#[derive(Debug, Clone)]
pub struct RunningContainer {
    /// Name in the pod.
    pub name: String,
    /// Id in the runtime.
    pub id: String,
    /// Its first process, by the id it has on this machine.
    pub pid: i32,
    /// Path of its cgroup in each hierarchy.
    pub cgroup: String,
}

/// A new uid.
///
/// # Errors
///
/// Fails when the kernel draws none.
pub fn uid() -> Result<String> {
    let uid = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("cannot draw a uid")?;
    Ok(uid.trim().to_string())
}

/// Runs a pod below the cgroup `tree`.
pub(super) fn run(cri: &Cri, tree: &str, directory: &Path, spec: &PodSpec) -> Result<Pod> {
    let uid = match &spec.uid {
        Some(uid) => uid.clone(),
        None => uid()?,
    };
    let cgroup = format!("{tree}/{}", spec.tier.pod_path(&uid));
    let logs = directory.join("logs").join(&uid);
    std::fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let config = spec.sandbox(&uid, &cgroup, &logs);
    let sandbox = cri.run_pod_sandbox(&config)?;
    let mut containers = Vec::new();
    for container in &spec.containers {
        let id = cri.run_container(&sandbox, &config, container.config(spec, &uid))?;
        let pid = cri.pid(&id)?;
        let cgroup = format!("{cgroup}/{id}");
        containers.push(RunningContainer { name: container.name.clone(), id, pid, cgroup });
    }
    Ok(Pod { uid, sandbox, cgroup, logs, containers })
}
