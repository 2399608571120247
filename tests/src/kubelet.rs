//! A kubelet as small as tests need one: the pods of one node that an API server holds run under a real runtime, are resized in place as they are
//! asked to be, end when they are deleted, and are told of in their status.
//!
//! Owns a thread that looks at the pods of one namespace. Not owned: which API server that is ([`Api`]), and who makes pods. There are no probes,
//! volumes, restarts and no admission of its own: every resize has room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_model::quantity::Quantity;
use serde_json::{Value, json};

use crate::cgroups::Tier;
use crate::processes;
use crate::runtime::api::LinuxContainerResources;
use crate::runtime::{ContainerSpec, Pod, PodSpec, Runtime};

/// Time between two looks at the pods.
const PERIOD: Duration = Duration::from_millis(100);
/// Length of a period of CPU quotas, microseconds (`kubelet --cpu-cfs-quota-period`).
const CPU_PERIOD: i64 = 100_000;

/// An API server, as a client that waits for each answer.
pub trait Api: Send + Sync {
    /// Status and body of a request; a PATCH is a strategic merge.
    ///
    /// # Errors
    ///
    /// Fails when nothing answers.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)>;
}

/// Which pods are run, and where.
struct Node {
    api: Arc<dyn Api>,
    runtime: Arc<Runtime>,
    namespace: String,
    name: String,
    /// Bytes of its memory.
    memory: u64,
}

/// A pod that runs.
#[derive(Debug, Clone)]
struct Ran {
    name: String,
    pod: Pod,
    /// Resources that are in force, by container.
    granted: BTreeMap<String, Value>,
    /// Generation of the pod that was told last, and whether a resize to it was under way.
    told: (i64, bool),
}

#[derive(Debug, Default)]
struct Shared {
    ran: Mutex<BTreeMap<String, Ran>>,
    trouble: Mutex<Option<String>>,
    held: AtomicBool,
    over: AtomicBool,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The kubelet, which ends when dropped; its pods run on.
#[derive(Debug)]
pub struct Kubelet {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    /// Begins to run the pods of a namespace that are bound to a node.
    ///
    /// # Errors
    ///
    /// Fails when the size of this machine's memory cannot be read.
    pub fn start(api: Arc<dyn Api>, runtime: Arc<Runtime>, namespace: &str, node: &str) -> Result<Kubelet> {
        let memory = processes::memory_total()?;
        let node = Node { api, runtime, namespace: namespace.to_string(), name: node.to_string(), memory };
        let shared = Arc::new(Shared::default());
        let looking = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            while !looking.over.load(Ordering::Relaxed) {
                let trouble = node.look(&looking).err().map(|error| format!("{error:#}"));
                *lock(&looking.trouble) = trouble;
                thread::sleep(PERIOD);
            }
        });
        Ok(Kubelet { shared, thread: Some(thread) })
    }

    /// Resizes are begun and not brought to their end while this is so.
    pub fn hold(&self, yes: bool) {
        self.shared.held.store(yes, Ordering::Relaxed);
    }

    /// A pod by its name, once it runs.
    pub fn pod(&self, name: &str) -> Option<Pod> {
        lock(&self.shared.ran).values().find(|ran| ran.name == name).map(|ran| ran.pod.clone())
    }

    /// How many pods run.
    pub fn count(&self) -> usize {
        lock(&self.shared.ran).len()
    }

    /// What went wrong at the last look.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.shared.trouble).clone()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("the kubelet of a test panicked");
        }
    }
}

/// The score a kubelet gives containers that request so much memory (pkg/kubelet/qos/policy.go, `GetContainerOOMScoreAdjust`).
#[must_use]
pub fn score(class: &str, request: u64, memory: u64) -> i64 {
    match class {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let share = u128::from(request) * 1000 / u128::from(memory.max(1));
            (1000 - i64::try_from(share).unwrap_or(1000)).clamp(3, 999)
        }
    }
}

/// An amount of CPU in thousandths of a core, or of memory in bytes.
#[must_use]
pub fn amount(value: &Value, resource: &str) -> Option<u64> {
    let quantity: Quantity = value[resource].as_str()?.parse().ok()?;
    if resource == "cpu" { quantity.milli_u64() } else { quantity.to_u64() }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_string()
}

/// Name and resources of each container.
fn asked(pod: &Value) -> BTreeMap<String, Value> {
    let all = list(&pod["spec"]["containers"]).iter();
    all.map(|container| (text(&container["name"]), container["resources"].clone())).collect()
}

impl Node {
    fn place(&self, name: &str) -> String {
        format!("/api/v1/namespaces/{}/pods/{name}", self.namespace)
    }

    fn asks(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let (status, body) = self.api.ask(method, path, body)?;
        // What is gone meanwhile is seen by the next look.
        ensure!(status < 300 || status == 404, "{method} {path}: {status} {body}");
        Ok(body)
    }

    /// Brings what runs to what the API server says.
    fn look(&self, shared: &Shared) -> Result<()> {
        let list_at =
            format!("/api/v1/namespaces/{}/pods?fieldSelector=spec.nodeName%3D{}", self.namespace, self.name);
        let found = self.asks("GET", &list_at, &Value::Null)?;
        let pods = list(&found["items"]);
        let there: BTreeSet<String> = pods.iter().map(|pod| text(&pod["metadata"]["uid"])).collect();
        let known: Vec<String> = lock(&shared.ran).keys().cloned().collect();
        for uid in known.iter().filter(|uid| !there.contains(*uid)) {
            self.end(shared, uid)?;
        }
        for pod in pods {
            let uid = text(&pod["metadata"]["uid"]);
            let ran = lock(&shared.ran).get(&uid).cloned();
            match ran {
                _ if !pod["metadata"]["deletionTimestamp"].is_null() => {
                    self.end(shared, &uid)?;
                    let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
                    self.asks("DELETE", &self.place(&text(&pod["metadata"]["name"])), &options)?;
                }
                None => {
                    let ran = self.run(pod)?;
                    lock(&shared.ran).insert(uid, ran);
                }
                Some(mut ran) => {
                    self.resize(&mut ran, pod, shared.held.load(Ordering::Relaxed))?;
                    lock(&shared.ran).insert(uid, ran);
                }
            }
        }
        Ok(())
    }

    fn end(&self, shared: &Shared, uid: &str) -> Result<()> {
        let sandbox = lock(&shared.ran).get(uid).map(|ran| ran.pod.sandbox.clone());
        if let Some(sandbox) = sandbox {
            self.runtime.cri().remove_sandbox(&sandbox)?;
            lock(&shared.ran).remove(uid);
        }
        Ok(())
    }

    fn run(&self, pod: &Value) -> Result<Ran> {
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let tier = match pod["status"]["qosClass"].as_str() {
            Some("Guaranteed") => Tier::Guaranteed,
            Some("BestEffort") => Tier::BestEffort,
            _ => Tier::Burstable,
        };
        let mut spec = PodSpec::new(&name, tier).uid(&uid).namespace(&self.namespace);
        for (key, value) in pod["metadata"]["labels"].as_object().into_iter().flatten() {
            spec = spec.label(key, &text(value));
        }
        for container in list(&pod["spec"]["containers"]) {
            let command: Vec<&str> = list(&container["command"]).iter().filter_map(Value::as_str).collect();
            let one =
                ContainerSpec::new(&text(&container["name"]), &command).image(&text(&container["image"]));
            spec = spec.container(one.resources(self.linux(pod, &container["resources"])));
        }
        let ran = self.runtime.run_pod(&spec)?;
        let mut ran = Ran { name, pod: ran, granted: asked(pod), told: (0, false) };
        self.tell(&mut ran, pod, None)?;
        Ok(ran)
    }

    /// Brings a pod to the resources that are asked for, and tells how far that is.
    fn resize(&self, ran: &mut Ran, pod: &Value, is_held: bool) -> Result<()> {
        let wanted = asked(pod);
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or(1);
        if wanted == ran.granted {
            return if ran.told == (generation, false) { Ok(()) } else { self.tell(ran, pod, None) };
        }
        if ran.told != (generation, true) {
            self.tell(ran, pod, Some(""))?;
        }
        if is_held {
            return Ok(());
        }
        for container in &ran.pod.containers {
            let resources = wanted.get(&container.name).context("a container that is gone")?;
            if let Err(error) = self.runtime.cri().update(&container.id, self.linux(pod, resources)) {
                return self.tell(ran, pod, Some(&format!("{error:#}")));
            }
        }
        ran.granted = wanted;
        self.tell(ran, pod, None)
    }

    /// Tells how a pod stands; with a resize that is under way, and what is wrong with it, where one is.
    fn tell(&self, ran: &mut Ran, pod: &Value, under_way: Option<&str>) -> Result<()> {
        let generation = pod["metadata"]["generation"].as_i64().unwrap_or(1);
        let resizing = match under_way {
            None => json!({ "type": "PodResizeInProgress", "$patch": "delete" }),
            Some("") => {
                json!({ "type": "PodResizeInProgress", "status": "True", "observedGeneration": generation })
            }
            Some(why) => json!({
                "type": "PodResizeInProgress", "status": "True", "observedGeneration": generation, "reason": "Error", "message": why,
            }),
        };
        let images: BTreeMap<String, &Value> =
            list(&pod["spec"]["containers"]).iter().map(|of| (text(&of["name"]), &of["image"])).collect();
        let of = |container: &crate::runtime::RunningContainer| {
            let granted = ran.granted.get(&container.name).cloned().unwrap_or_default();
            json!({
                "name": container.name, "image": images.get(&container.name), "imageID": "", "restartCount": 0,
                "containerID": format!("containerd://{}", container.id), "ready": true, "started": true, "state": { "running": {} },
                "allocatedResources": granted["requests"], "resources": granted,
            })
        };
        let statuses: Vec<Value> = ran.pod.containers.iter().map(of).collect();
        let status = json!({
            "phase": "Running", "observedGeneration": generation, "containerStatuses": statuses,
            "conditions": [{ "type": "Ready", "status": "True" }, resizing],
        });
        self.asks("PATCH", &format!("{}/status", self.place(&ran.name)), &json!({ "status": status }))?;
        ran.told = (generation, under_way.is_some());
        Ok(())
    }

    /// Resources as a kubelet gives them to a runtime (pkg/kubelet/cm/helpers_linux.go, `MilliCPUToShares`, `MilliCPUToQuota`).
    fn linux(&self, pod: &Value, resources: &Value) -> LinuxContainerResources {
        let (requests, limits) = (&resources["requests"], &resources["limits"]);
        let limit = |resource: &str| amount(limits, resource).and_then(|amount| i64::try_from(amount).ok());
        let request = |resource: &str| amount(requests, resource).or_else(|| amount(limits, resource));
        let milli = request("cpu").and_then(|milli| i64::try_from(milli).ok()).unwrap_or_default();
        let class = pod["status"]["qosClass"].as_str().unwrap_or("Burstable");
        LinuxContainerResources {
            cpu_period: CPU_PERIOD,
            cpu_quota: limit("cpu").map_or(0, |milli| (milli * CPU_PERIOD / 1000).max(1000)),
            cpu_shares: (milli * 1024 / 1000).max(2),
            // In the CRI, 0 is how an absent limit is written.
            memory_limit_in_bytes: limit("memory").unwrap_or_default(),
            oom_score_adj: score(class, request("memory").unwrap_or_default(), self.memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_a_kubelets() {
        let memory = 16 << 30;
        for (class, request, want) in [
            ("BestEffort", 0, 1000),
            ("Guaranteed", memory, -997),
            ("Burstable", 0, 999),
            ("Burstable", memory / 4, 750),
            ("Burstable", memory, 3),
            ("Burstable", 2 * memory, 3),
        ] {
            assert_eq!(score(class, request, memory), want, "{class} {request}");
        }
        let requests = json!({ "cpu": "1500m", "memory": "32Mi" });
        assert_eq!((amount(&requests, "cpu"), amount(&requests, "memory")), (Some(1500), Some(32 << 20)));
        assert_eq!(amount(&Value::Null, "cpu"), None);
    }
}
