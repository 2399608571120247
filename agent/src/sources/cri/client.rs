//! The runtime's socket: connect, list, ask, wait for events.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_enforce::shared::SourceProblem;
use hyper_util::rt::TokioIo;
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::super::answers::DetailsError;
use super::super::reach::Reach;
use super::info::Details;
use super::v1::runtime_service_client::RuntimeServiceClient;
use super::v1::{self, ContainerState, PodSandboxState};

/// A reading call that is not answered within this has failed.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest that one stream of events stands; then it is opened again. gRPC has no word for "no limit" that every
/// client can send (at most eight digits of hours), and a runtime would keep the stream of a client that hangs.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Shortest and longest wait before a stream of events that ended is opened again.
const REOPEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
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
}

impl CriError {
    pub(super) fn problem(&self, socket: &Path) -> SourceProblem {
        let remedy = match self {
            Self::Connect(_) => "start the container runtime, or set sources.cri.sockets to its socket",
            Self::NotARuntime(_) => {
                "set sources.cri.sockets to the socket of containerd (with its CRI plugin on) or CRI-O"
            }
            Self::Call { .. } => "look at the runtime's log; the agent tries again",
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

/// A connection to one runtime. Clones share it.
#[derive(Clone)]
pub(super) struct Client {
    rpc: RuntimeServiceClient<Channel>,
    runtime: String,
}

impl Client {
    /// Connects and asks who answers.
    pub(super) async fn connect(socket: &Path, reach: &Reach) -> Result<Self, CriError> {
        let (path, reach): (PathBuf, _) = (socket.to_owned(), reach.clone());
        // The address only fills the request's authority; the connector goes to the socket.
        let endpoint = Endpoint::from_static("http://runtime.invalid").connect_timeout(CALL_TIMEOUT);
        let connector = tower::service_fn(move |_| {
            let (path, reach) = (path.clone(), reach.clone());
            async move { reach.connect(&path).await.map(TokioIo::new) }
        });
        let channel = endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| CriError::Connect(chain(&error)))?;
        let mut rpc = RuntimeServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let request = timed(v1::VersionRequest { version: "v1".into() });
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
            .list_pod_sandbox(timed(v1::ListPodSandboxRequest { filter: Some(filter) }))
            .await
            .map_err(|s| CriError::call("ListPodSandbox", &s))?
            .into_inner();
        let running = v1::ContainerStateValue { state: ContainerState::ContainerRunning.into() };
        let filter =
            v1::ContainerFilter { id: String::new(), state: Some(running), pod_sandbox_id: String::new() };
        let containers = self
            .rpc
            .list_containers(timed(v1::ListContainersRequest { filter: Some(filter) }))
            .await
            .map_err(|s| CriError::call("ListContainers", &s))?
            .into_inner();
        let sandboxes = sandboxes.items.into_iter().map(|s| (s.id.clone(), s)).collect();
        Ok((sandboxes, containers.containers))
    }

    /// What the runtime keeps of one container or sandbox.
    pub(super) async fn details(mut self, id: &str, sandbox: bool) -> Result<Details, DetailsError> {
        let failed = |call, status: Status| match status.code() {
            Code::NotFound => DetailsError::Gone,
            _ => DetailsError::Failed(CriError::call(call, &status).to_string()),
        };
        let read = if sandbox {
            let request = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
            let answer = self.rpc.pod_sandbox_status(timed(request)).await;
            let answer = answer.map_err(|s| failed("PodSandboxStatus", s))?.into_inner();
            Details::read(id, None, &answer.info)
        } else {
            let request = v1::ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
            let answer = self.rpc.container_status(timed(request)).await;
            let answer = answer.map_err(|s| failed("ContainerStatus", s))?.into_inner();
            let resources = answer.status.and_then(|s| s.resources).and_then(|r| r.linux);
            Details::read(id, resources.as_ref(), &answer.info)
        };
        read.map_err(DetailsError::Strange)
    }

    /// Ends all containers of a pod, within so long.
    async fn stop(mut self, id: &str, within: Duration) -> Result<Stopped, String> {
        let known = v1::PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: false };
        match self.rpc.pod_sandbox_status(timed(known)).await {
            Err(status) if status.code() == Code::NotFound => return Ok(Stopped::Unknown),
            Err(status) => return Err(CriError::call("PodSandboxStatus", &status).to_string()),
            Ok(_) => {}
        }
        let mut request = tonic::Request::new(v1::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() });
        request.set_timeout(within);
        let stopped = self.rpc.stop_pod_sandbox(request).await;
        stopped.map_err(|status| CriError::call("StopPodSandbox", &status).to_string())?;
        Ok(Stopped::Done)
    }

    /// Begins to wait for events in a task of its own: some runtimes send no header before the first event, so
    /// that even opening the stream may wait.
    pub(super) fn events(&self) -> Events {
        let (sender, receiver) = mpsc::channel(1);
        let task = tokio::spawn(follow_events(self.rpc.clone(), sender));
        Events { receiver: Some(receiver), task }
    }
}

/// What became of a pod that was to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// All its containers are.
    Done,
    /// The runtime does not know it.
    Unknown,
}

/// Stops a pod by its sandbox, within so long.
///
/// # Errors
/// In the runtime's words, or why it cannot be reached.
pub(crate) async fn stop_sandbox(
    socket: &Path,
    reach: &Reach,
    id: &str,
    within: Duration,
) -> Result<Stopped, String> {
    let client = tokio::time::timeout(within, Client::connect(socket, reach)).await;
    let client = client.map_err(|_| "it does not answer".to_owned())?.map_err(|error| error.to_string())?;
    let stopped = tokio::time::timeout(within, client.stop(id, within)).await;
    stopped.map_err(|_| "it does not stop the pod in time".to_owned())?
}

/// Tells of events until the runtime has none or nobody listens; opens the stream again whenever it ends.
async fn follow_events(mut rpc: RuntimeServiceClient<Channel>, sender: mpsc::Sender<()>) {
    let (mut pause, mut is_heard) = (REOPEN.0, false);
    while !sender.is_closed() {
        let mut request = tonic::Request::new(v1::GetEventsRequest {});
        request.set_timeout(EVENTS_TIMEOUT);
        let ended = match rpc.get_container_events(request).await {
            Ok(stream) => {
                let mut stream = stream.into_inner();
                loop {
                    match stream.message().await {
                        Ok(Some(_)) => {
                            pause = REOPEN.0;
                            if !std::mem::replace(&mut is_heard, true) {
                                tracing::info!(
                                    "the runtime tells of its containers; its events wake a listing"
                                );
                            }
                            // A full channel means a listing is due anyway.
                            let _ = sender.try_send(());
                        }
                        Ok(None) => break None,
                        Err(status) => break Some(status),
                    }
                }
            }
            Err(status) => Some(status),
        };
        if ended.as_ref().is_some_and(|status| status.code() == Code::Unimplemented) {
            tracing::info!("the runtime has no container events; cgroup events and listing are used");
            return;
        }
        tracing::debug!(?ended, ?pause, "ignoring the end of container events; they are asked for again");
        tokio::time::sleep(pause).await;
        // What happened meanwhile is found by a listing.
        let _ = sender.try_send(());
        pause = (pause * 2).min(REOPEN.1);
    }
}

/// A request that the runtime is to answer, or to fail, in time.
fn timed<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(CALL_TIMEOUT);
    request
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
