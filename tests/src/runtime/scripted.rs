//! A scripted container runtime: what the agent uses of the CRI, answered from a script instead of from containers.
//!
//! It is slow, fails, lies, and is hostile on demand, call by call, and has container events in each of the ways
//! runtimes have them. It starts nothing: cgroups and processes of its containers are the test's own.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};
use futures::{Stream, StreamExt, stream};
use serde_json::json;
use tokio::net::UnixListener;
use tokio::sync::broadcast;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Code, Request, Response, Status};

use reading::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use reading::{
    Container, ContainerEventResponse, ContainerMetadata, ContainerState, ContainerStatus,
    ContainerStatusRequest, ContainerStatusResponse, GetEventsRequest, ListContainersRequest,
    ListContainersResponse, ListPodSandboxRequest, ListPodSandboxResponse, PodSandbox, PodSandboxMetadata,
    PodSandboxStatusRequest, PodSandboxStatusResponse, StopPodSandboxRequest, StopPodSandboxResponse,
    VersionRequest, VersionResponse,
};

/// The messages and the server of what the agent reads.
mod reading {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = "generated code")]
    include!(concat!(env!("OUT_DIR"), "/reading/runtime.v1.rs"));
}

/// How a runtime tells of container events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// Not at all: containerd 1.6.
    Unimplemented,
    /// As containerd 1.7 does: not even a header before the first event.
    SilentUntilFirst,
    /// A stream that is open at once, as CRI-O's.
    OpenAtOnce,
    /// A stream that ends after each event.
    EndsAfterEach,
}

/// How a runtime answers when it is asked about one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Manner {
    /// As it should.
    Answers,
    /// With an error.
    Errs(Code),
    /// Never.
    Hangs,
    /// With this in place of its record.
    Says(String),
}

/// A pod with one container, `main`, as the runtime tells it.
#[derive(Debug, Clone)]
pub struct Told {
    /// Name of the pod, from which the ids follow.
    pub pod: String,
    /// Namespace.
    pub namespace: String,
    /// Annotations of the pod.
    pub annotations: HashMap<String, String>,
    /// Path of the container's cgroup.
    pub cgroup: String,
    /// CPU shares.
    pub shares: i64,
    /// The score that was asked for.
    pub score: i64,
    /// Memory limit, bytes; 0 is none.
    pub memory_limit: i64,
    /// What the runtime does when it is asked about it.
    pub manner: Manner,
}

impl Told {
    /// A BestEffort pod in the namespace `default` whose container is in the cgroup at `path`.
    pub fn best_effort(pod: &str, path: &str) -> Told {
        Told {
            pod: pod.to_string(),
            namespace: "default".to_string(),
            annotations: HashMap::new(),
            cgroup: path.to_string(),
            shares: 2,
            score: 1000,
            memory_limit: 0,
            manner: Manner::Answers,
        }
    }

    /// The same that answers differently.
    #[must_use]
    pub fn manner(mut self, manner: Manner) -> Told {
        self.manner = manner;
        self
    }

    /// Adds an annotation.
    #[must_use]
    pub fn annotation(mut self, key: &str, value: &str) -> Told {
        self.annotations.insert(key.to_string(), value.to_string());
        self
    }

    /// Id of its container: that by which its cgroup is named, as by a real runtime, or else it follows from the pod's name.
    pub fn id(&self) -> String {
        let last = self.cgroup.rsplit('/').next().unwrap_or_default();
        let is_id = last.len() == 64 && last.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_id { last.to_string() } else { format!("container-{}", self.pod) }
    }

    fn sandbox_id(&self) -> String {
        format!("sandbox-{}", self.pod)
    }

    /// What a runtime says under `info`, as containerd writes it.
    fn record(&self, is_sandbox: bool) -> String {
        let cgroup = if is_sandbox {
            format!("{}/{}", self.cgroup.rsplit_once('/').map_or("", |(parent, _)| parent), self.sandbox_id())
        } else {
            self.cgroup.clone()
        };
        let resources = json!({
            "cpu_shares": self.shares, "oom_score_adj": self.score, "memory_limit_in_bytes": self.memory_limit,
        });
        json!({
            "config": { "linux": { "resources": resources } },
            "runtimeSpec": { "linux": { "cgroupsPath": cgroup } },
        })
        .to_string()
    }
}

#[derive(Debug)]
struct Script {
    events: Events,
    lists_fail: bool,
    pods: BTreeMap<String, Told>,
    lists: u64,
    streams: u64,
    stopped: Vec<String>,
}

/// A running scripted runtime; it ends when dropped.
#[derive(Debug)]
pub struct Scripted {
    script: Arc<Mutex<Script>>,
    happened: broadcast::Sender<String>,
    socket: PathBuf,
    // Dropped with everything it serves.
    _runtime: tokio::runtime::Runtime,
}

impl Scripted {
    /// Serves a runtime without pods at a socket in `directory`.
    ///
    /// # Errors
    ///
    /// Fails when the socket cannot be made.
    pub fn start(directory: &Path, events: Events) -> Result<Scripted> {
        let socket = directory.join("cri.sock");
        let script = Script {
            events,
            lists_fail: false,
            pods: BTreeMap::new(),
            lists: 0,
            streams: 0,
            stopped: Vec::new(),
        };
        let script = Arc::new(Mutex::new(script));
        let (happened, _) = broadcast::channel(64);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot make an async runtime")?;
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(&socket).with_context(|| format!("cannot listen at {}", socket.display()))?
        };
        let service = Service { script: Arc::clone(&script), happened: happened.clone() };
        runtime.spawn(
            tonic::transport::Server::builder()
                .add_service(RuntimeServiceServer::new(service))
                .serve_with_incoming(UnixListenerStream::new(listener)),
        );
        Ok(Scripted { script, happened, socket, _runtime: runtime })
    }

    /// Path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Adds a pod, or tells of it otherwise than before; the moment from which on it is listed. An event says so where
    /// there are events.
    pub fn tell(&self, told: Told) -> Instant {
        let id = told.id();
        lock(&self.script).pods.insert(told.pod.clone(), told);
        let now = Instant::now();
        // Nobody may be listening.
        let _ = self.happened.send(id);
        now
    }

    /// Lets the calls that list fail, or work again.
    pub fn fail_lists(&self, fail: bool) {
        lock(&self.script).lists_fail = fail;
    }

    /// How often its containers were listed.
    pub fn lists(&self) -> u64 {
        lock(&self.script).lists
    }

    /// Pods it was asked to stop, by name.
    pub fn stopped(&self) -> Vec<String> {
        lock(&self.script).stopped.clone()
    }

    /// How often its events were asked for.
    pub fn streams(&self) -> u64 {
        lock(&self.script).streams
    }
}

struct Service {
    script: Arc<Mutex<Script>>,
    happened: broadcast::Sender<String>,
}

impl Service {
    /// The record of a container or sandbox, in the manner of the script.
    async fn record(&self, id: &str, is_sandbox: bool) -> Result<HashMap<String, String>, Status> {
        let found = {
            let script = lock(&self.script);
            let is_meant = |told: &&Told| if is_sandbox { told.sandbox_id() == id } else { told.id() == id };
            script.pods.values().find(is_meant).cloned()
        };
        let told = found.ok_or_else(|| Status::not_found(format!("there is no {id}")))?;
        let text = match &told.manner {
            Manner::Says(text) if !is_sandbox => text.clone(),
            Manner::Errs(code) if !is_sandbox => return Err(Status::new(*code, "the script says so")),
            Manner::Hangs if !is_sandbox => std::future::pending().await,
            _ => told.record(is_sandbox),
        };
        Ok(HashMap::from([("info".to_string(), text)]))
    }

    fn listing(&self) -> Result<Vec<Told>, Status> {
        let script = lock(&self.script);
        if script.lists_fail {
            return Err(Status::unavailable("the script says so"));
        }
        Ok(script.pods.values().cloned().collect())
    }
}

#[tonic::async_trait]
impl RuntimeService for Service {
    type GetContainerEventsStream =
        Pin<Box<dyn Stream<Item = Result<ContainerEventResponse, Status>> + Send + 'static>>;

    async fn version(&self, _: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".to_string(),
            runtime_name: "scripted".to_string(),
            runtime_version: "1".to_string(),
            runtime_api_version: "v1".to_string(),
        }))
    }

    async fn list_pod_sandbox(
        &self,
        _: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        let items = self.listing()?.into_iter().map(|told| PodSandbox {
            id: told.sandbox_id(),
            metadata: Some(PodSandboxMetadata {
                uid: format!("uid-{}", told.pod),
                name: told.pod,
                namespace: told.namespace,
                attempt: 0,
            }),
            annotations: told.annotations,
            ..PodSandbox::default()
        });
        Ok(Response::new(ListPodSandboxResponse { items: items.collect() }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Result<Response<PodSandboxStatusResponse>, Status> {
        let info = self.record(&request.into_inner().pod_sandbox_id, true).await?;
        Ok(Response::new(PodSandboxStatusResponse { info }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Result<Response<StopPodSandboxResponse>, Status> {
        let id = request.into_inner().pod_sandbox_id;
        let mut script = lock(&self.script);
        let pod = script.pods.values().find(|told| told.sandbox_id() == id).map(|told| told.pod.clone());
        script.stopped.push(pod.ok_or_else(|| Status::not_found(format!("there is no {id}")))?);
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn list_containers(
        &self,
        _: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        let containers = self.listing()?.into_iter().map(|told| Container {
            id: told.id(),
            pod_sandbox_id: told.sandbox_id(),
            metadata: Some(ContainerMetadata { name: "main".to_string(), attempt: 0 }),
            state: ContainerState::ContainerRunning.into(),
            ..Container::default()
        });
        lock(&self.script).lists += 1;
        Ok(Response::new(ListContainersResponse { containers: containers.collect() }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Result<Response<ContainerStatusResponse>, Status> {
        let id = request.into_inner().container_id;
        let info = self.record(&id, false).await?;
        let status = ContainerStatus { id, ..ContainerStatus::default() };
        Ok(Response::new(ContainerStatusResponse { status: Some(status), info }))
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Result<Response<Self::GetContainerEventsStream>, Status> {
        let events = {
            let mut script = lock(&self.script);
            script.streams += 1;
            script.events
        };
        let mut happened = self.happened.subscribe();
        let event = |id| Ok(ContainerEventResponse { container_id: id });
        if events == Events::Unimplemented {
            return Err(Status::unimplemented("unknown method GetContainerEvents"));
        }
        let first = match events {
            // A lagging or closed channel ends the stream, as a runtime that stops does.
            Events::SilentUntilFirst => happened.recv().await.ok(),
            _ => None,
        };
        let rest = stream::unfold(happened, |mut happened| async move {
            let id = happened.recv().await.ok()?;
            Some((id, happened))
        });
        let all = stream::iter(first).chain(rest).map(event);
        let all: Self::GetContainerEventsStream =
            if events == Events::EndsAfterEach { Box::pin(all.take(1)) } else { Box::pin(all) };
        Ok(Response::new(all))
    }
}

fn lock(script: &Mutex<Script>) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}
