//! `AgentService`, with health and reflection, over a Unix socket or TCP.

use std::sync::Arc;

use anyhow::Context as _;
use evenkeel_enforce::allocatable;
use evenkeel_enforce::converge::board::Board;
use evenkeel_enforce::oom::evictions::Evictions;
use evenkeel_model::pod::read_pod;
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_net::{Gate, Limits, Speech};
use evenkeel_proto::v1;
use evenkeel_proto::v1::agent_service_server::{AgentService, AgentServiceServer};
use tokio::sync::Semaphore;
use tonic::server::NamedService;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};
use tower::layer::util::{Identity as NoLayer, Stack};

use super::Listening;
use super::answers::Answers;
use super::door::Door;
use super::watch::Messages;
use crate::decisions::Decisions;
use crate::parts::keeper::PartsView;
use crate::report::{LatestUse, Ring};
use crate::shared::{Context, LiveBus};

/// Calls one connection may have open: a person's tools need a few.
const CALLS_PER_CONNECTION: u32 = 64;
/// What is wrong where reflection cannot be served.
const DESCRIPTORS: &str = "the descriptors built into this program do not read";

/// Largest message taken: a pod, which is at most 1.5 MiB.
const MAX_MESSAGE: usize = 2 << 20;
/// Pods that may wait to be admitted, each at most a message long.
const ADMITTING: usize = 8;
/// Connections to the TCP address: people and tools on the node, or a few beside it.
const CONNECTIONS: Limits = Limits { connections: 128, per_peer: 64 };
/// Connections to the socket, whose users are root and its group.
const LOCAL_CONNECTIONS: Limits = Limits { connections: 512, per_peer: 512 };

/// Everything the service answers from.
pub(crate) struct Agent {
    /// Configuration, node, counters.
    pub context: Arc<Context>,
    /// Containers, sources, knobs.
    pub board: Arc<Board>,
    /// Decisions.
    pub decisions: Arc<Decisions>,
    /// Live use.
    pub live: LiveBus,
    /// Use in the last minute.
    pub usage: LatestUse,
    /// Use before that; `None` where none is kept.
    pub ring: Option<Arc<Ring>>,
    /// What is offered for containers that failed.
    pub evictions: Arc<Evictions>,
    /// Capabilities held.
    pub capabilities: Vec<String>,
    /// The node as a whole.
    pub node: Arc<evenkeel_enforce::node::View>,
    /// Memory pressure and CPU starvation.
    pub pressure: Arc<evenkeel_enforce::pressure::view::View>,
    /// What is set for a while.
    pub holds: Arc<evenkeel_enforce::holds::Holds>,
    /// The parts that are processes of their own.
    pub parts: PartsView,
}

struct Service {
    answers: Answers,
    types: Arc<ResourceTypes>,
    /// Pods that wait to be read, or are.
    places: Arc<Semaphore>,
    /// One is read at a time: what that costs is bounded, and so is what all of them cost.
    turn: Arc<Semaphore>,
}

#[tonic::async_trait]
impl AgentService for Service {
    type WatchUsageStream = Messages<v1::WatchUsageResponse>;
    type WatchDecisionsStream = Messages<v1::WatchDecisionsResponse>;

    async fn get_status(
        &self,
        _request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        self.answers.status().await.map(Response::new)
    }

    async fn list_containers(
        &self,
        _request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        self.answers.containers().await.map(Response::new)
    }

    async fn watch_usage(
        &self,
        _request: Request<v1::WatchUsageRequest>,
    ) -> Result<Response<Self::WatchUsageStream>, Status> {
        self.answers.watch_usage().await.map(Response::new)
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        self.answers.usage(request.into_inner().at_usec).await.map(Response::new)
    }

    async fn watch_decisions(
        &self,
        request: Request<v1::WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        self.answers.watch_decisions(request.into_inner()).await.map(Response::new)
    }

    async fn list_oom_kills(
        &self,
        _request: Request<v1::ListOomKillsRequest>,
    ) -> Result<Response<v1::ListOomKillsResponse>, Status> {
        self.answers.oom_kills().await.map(Response::new)
    }

    async fn list_evictions(
        &self,
        request: Request<v1::ListEvictionsRequest>,
    ) -> Result<Response<v1::ListEvictionsResponse>, Status> {
        self.answers.evictions(request.into_inner().all).await.map(Response::new)
    }

    async fn admit(&self, request: Request<v1::AdmitRequest>) -> Result<Response<v1::AdmitResponse>, Status> {
        let text = request.into_inner().pod;
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "{ADMITTING} pods wait to be admitted already; ask again later"
            )));
        };
        let stopped = |_| Status::unavailable("the agent is stopping");
        let turn = Arc::clone(&self.turn).acquire_owned().await.map_err(stopped)?;
        let read = tokio::task::spawn_blocking(move || {
            // Held until it is read, also when nobody waits for it any more.
            let _held = (place, turn);
            read_pod(&text, "pod")
        });
        let read = read.await.map_err(|_| Status::internal("the pod could not be read; see the log"))?;
        let pod = read.map_err(|e| Status::invalid_argument(e.to_string()))?;
        self.answers.fits(&allocatable::asked(&pod, &self.types)).await.map(Response::new)
    }
}

/// A server behind a door.
type Guarded = Router<Stack<InterceptorLayer<Door>, NoLayer>>;

async fn router(answers: Answers, types: Arc<ResourceTypes>, door: Door) -> anyhow::Result<Guarded> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<AgentServiceServer<Service>>().await;
    // Python's own client of reflection, and older tools, speak v1alpha only.
    let current_reflection = reflection().build_v1().context(DESCRIPTORS)?;
    let earlier_reflection = reflection().build_v1alpha().context(DESCRIPTORS)?;
    let service = Service {
        answers,
        types,
        places: Arc::new(Semaphore::new(ADMITTING)),
        turn: Arc::new(Semaphore::new(1)),
    };
    Ok(Server::builder()
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .layer(InterceptorLayer::new(door))
        .add_service(AgentServiceServer::new(service).max_decoding_message_size(MAX_MESSAGE))
        .add_service(health_service)
        .add_service(current_reflection)
        .add_service(earlier_reflection))
}

fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(evenkeel_proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The descriptors know more services than this program serves.
        .with_service_name(<AgentServiceServer<Service> as NamedService>::NAME)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .with_service_name("grpc.reflection.v1alpha.ServerReflection")
}

/// Serves on a bound Unix socket until the agent stops.
///
/// # Errors
/// When the listener cannot be used or serving fails.
pub(crate) async fn serve_unix(
    answers: Answers,
    types: Arc<ResourceTypes>,
    listener: std::os::unix::net::UnixListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("cannot use the agent's socket")?;
    let listener = tokio::net::UnixListener::from_std(listener).context("cannot use the agent's socket")?;
    let incoming =
        evenkeel_net::incoming(listener, Gate::new("serve.socket", LOCAL_CONNECTIONS), Speech::Grpc);
    router(answers, types, Door::default())
        .await?
        .serve_with_incoming_shutdown(incoming, stop)
        .await
        .context("serving on the agent's socket failed")
}

/// Serves on a TCP address until the agent stops.
///
/// # Errors
/// When the address cannot be bound or serving fails.
pub(crate) async fn serve_tcp(
    answers: Answers,
    types: Arc<ResourceTypes>,
    Listening { address, door, tls }: Listening,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; free it, or set serve.address"))?;
    let gate = Gate::new("serve.address", CONNECTIONS);
    let incoming = evenkeel_net::at_address(listener, gate, Speech::Grpc, tls);
    router(answers, types, door)
        .await?
        .serve_with_incoming_shutdown(incoming, stop)
        .await
        .with_context(|| format!("serving on {address} failed"))
}
