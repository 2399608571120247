//! The runtime's socket: connect, list, ask, wait for events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::info::Details;
use super::v1::runtime_service_client::RuntimeServiceClient;
use super::v1::{self, ContainerState, PodSandboxState};
use crate::shared::SourceProblem;

/// A runtime that does not answer a reading call within this is taken for stuck.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer taken; a thousand containers with annotations are under 4 MiB.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Why a runtime could not be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CriError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Somebody answers who does not speak CRI v1.
    #[error("not a CRI v1 runtime: {0}")]
    NotARuntime(String),
    /// A call failed.
    #[error("{call} failed: {status}")]
    Call {
        /// Name of the call.
        call: &'static str,
        /// The runtime's words.
        status: String,
    },
    /// The container ended between two calls.
    #[error("container {id} is gone")]
    Gone {
        /// Runtime id.
        id: String,
    },
}

impl CriError {
    pub(super) fn problem(&self, socket: &Path) -> SourceProblem {
        let remedy = match self {
            Self::Connect(_) => "start the container runtime, or set sources.cri.sockets to its socket",
            Self::NotARuntime(_) => {
                "set sources.cri.sockets to the socket of containerd (with its CRI plugin on) or CRI-O"
            }
            Self::Call { .. } | Self::Gone { .. } => "look at the runtime's log; the agent tries again",
        };
        SourceProblem {
            what: "follow the container runtime".into(),
            where_: socket.display().to_string(),
            why: self.to_string(),
            remedy: remedy.into(),
        }
    }

    fn call(call: &'static str, status: &Status) -> Self {
        Self::Call { call, status: format!("{:?}: {}", status.code(), status.message()) }
    }
}

/// A connection to one runtime.
pub(super) struct Client {
    rpc: RuntimeServiceClient<Channel>,
    runtime: String,
}

impl Client {
    /// Connects and asks who answers.
    pub(super) async fn connect(socket: &Path) -> Result<Self, CriError> {
        let path: PathBuf = socket.to_owned();
        // The address only fills the request's authority; the connector goes to the socket.
        let endpoint = Endpoint::from_static("http://runtime.invalid")
            .timeout(CALL_TIMEOUT)
            .connect_timeout(CALL_TIMEOUT);
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| CriError::Connect(chain(&error)))?;
        let mut rpc = RuntimeServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let request = v1::VersionRequest { version: "v1".into() };
        let version = rpc.version(request).await.map_err(|s| CriError::NotARuntime(chain(&s)))?.into_inner();
        Ok(Self { rpc, runtime: format!("{} {}", version.runtime_name, version.runtime_version) })
    }

    /// Name and version of the runtime.
    pub(super) fn runtime(&self) -> &str {
        &self.runtime
    }

    /// All ready sandboxes by id, and all running containers.
    pub(super) async fn list(
        &mut self,
    ) -> Result<(HashMap<String, v1::PodSandbox>, Vec<v1::Container>), CriError> {
        let ready = v1::PodSandboxStateValue { state: PodSandboxState::SandboxReady.into() };
        let filter = v1::PodSandboxFilter { id: String::new(), state: Some(ready) };
        let sandboxes = self
            .rpc
            .list_pod_sandbox(v1::ListPodSandboxRequest { filter: Some(filter) })
            .await
            .map_err(|s| CriError::call("ListPodSandbox", &s))?
            .into_inner();
        let running = v1::ContainerStateValue { state: ContainerState::ContainerRunning.into() };
        let filter =
            v1::ContainerFilter { id: String::new(), state: Some(running), pod_sandbox_id: String::new() };
        let containers = self
            .rpc
            .list_containers(v1::ListContainersRequest { filter: Some(filter) })
            .await
            .map_err(|s| CriError::call("ListContainers", &s))?
            .into_inner();
        let sandboxes = sandboxes.items.into_iter().map(|s| (s.id.clone(), s)).collect();
        Ok((sandboxes, containers.containers))
    }

    /// What the runtime keeps of one container or sandbox.
    pub(super) async fn details(
        &mut self,
        id: &str,
        sandbox: bool,
    ) -> Result<Result<Details, SourceProblem>, CriError> {
        let failed = |call, status: Status| match status.code() {
            Code::NotFound => CriError::Gone { id: id.to_owned() },
            _ => CriError::call(call, &status),
        };
        if sandbox {
            let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
            let answer =
                self.rpc.pod_sandbox_status(request).await.map_err(|s| failed("PodSandboxStatus", s))?;
            Ok(Details::read(id, None, &answer.into_inner().info))
        } else {
            let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
            let answer =
                self.rpc.container_status(request).await.map_err(|s| failed("ContainerStatus", s))?;
            let answer = answer.into_inner();
            let resources = answer.status.and_then(|s| s.resources).and_then(|r| r.linux);
            Ok(Details::read(id, resources.as_ref(), &answer.info))
        }
    }

    /// Begins to wait for events in a task of its own: some runtimes send no header before the first event, so
    /// that even opening the stream may wait.
    pub(super) fn events(&self) -> Events {
        let mut rpc = self.rpc.clone();
        let (sender, receiver) = mpsc::channel(1);
        let task = tokio::spawn(async move {
            let mut request = tonic::Request::new(v1::GetEventsRequest {});
            request.set_timeout(Duration::MAX / 4);
            match rpc.get_container_events(request).await {
                Ok(stream) => {
                    let mut stream = stream.into_inner();
                    while let Ok(Some(_)) = stream.message().await {
                        // A full channel means a listing is due anyway.
                        let _ = sender.try_send(());
                    }
                }
                Err(status) if status.code() == Code::Unimplemented => {
                    tracing::info!("the runtime has no container events; cgroup events and listing are used");
                }
                Err(status) => tracing::debug!(%status, "ignoring lost container events; listing goes on"),
            }
        });
        Events { receiver: Some(receiver), task }
    }
}

/// Events of a runtime; only that there was one matters, since each is answered by a listing.
pub(super) struct Events {
    receiver: Option<mpsc::Receiver<()>>,
    task: tokio::task::JoinHandle<()>,
}

impl Events {
    /// Waits for an event; false when there will be no more.
    pub(super) async fn next(&mut self) -> bool {
        match &mut self.receiver {
            Some(receiver) => receiver.recv().await.is_some(),
            None => std::future::pending().await,
        }
    }

    /// From now on never wakes.
    pub(super) fn give_up(&mut self) {
        self.receiver = None;
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An error and its causes, for one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
