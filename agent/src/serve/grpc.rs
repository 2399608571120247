//! `AgentService`, with health and reflection, over a Unix socket or TCP.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use evenkeel_enforce::allocatable;
use evenkeel_enforce::converge::board::Board;
use evenkeel_enforce::oom::evictions::Evictions;
use evenkeel_model::pod::read_pod;
use evenkeel_model::workload::{SourceKind, Workload};
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

use super::door::Door;
use super::watch::{self, Messages};
use super::wire;
use crate::decisions::Decisions;
use crate::report::{LatestUse, NotKept, Ring};
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
}

struct Service {
    agent: Arc<Agent>,
    /// Pods that wait to be read, or are.
    places: Arc<Semaphore>,
    /// One is read at a time: what that costs is bounded, and so is what all of them cost.
    turn: Arc<Semaphore>,
    /// One moment is looked up at a time.
    looks: Arc<Semaphore>,
}

#[tonic::async_trait]
impl AgentService for Service {
    type WatchUsageStream = Messages<v1::WatchUsageResponse>;
    type WatchDecisionsStream = Messages<v1::WatchDecisionsResponse>;

    async fn get_status(
        &self,
        _request: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        Ok(Response::new(wire::status(&self.agent)))
    }

    async fn list_containers(
        &self,
        _request: Request<v1::ListContainersRequest>,
    ) -> Result<Response<v1::ListContainersResponse>, Status> {
        Ok(Response::new(v1::ListContainersResponse { containers: wire::containers(&self.agent, true) }))
    }

    async fn watch_usage(
        &self,
        _request: Request<v1::WatchUsageRequest>,
    ) -> Result<Response<Self::WatchUsageStream>, Status> {
        Ok(Response::new(watch::usage(Arc::clone(&self.agent))))
    }

    async fn get_usage(
        &self,
        request: Request<v1::GetUsageRequest>,
    ) -> Result<Response<v1::GetUsageResponse>, Status> {
        let at_usec = request.into_inner().at_usec;
        let Some(ring) = self.agent.ring.clone() else {
            return Err(Status::failed_precondition("no seconds are kept to look back at: ring.bytes is 0"));
        };
        let Ok(turn) = Arc::clone(&self.looks).try_acquire_owned() else {
            return Err(Status::resource_exhausted("somebody looks back already; ask again later"));
        };
        let agent = Arc::clone(&self.agent);
        let looked = tokio::task::spawn_blocking(move || {
            // Held until it is read, also when nobody waits for it any more.
            let _held = turn;
            ring.at(at_usec, &agent.context.stats).map(|past| wire::past(&agent, past))
        });
        match looked.await.map_err(|_| Status::internal("the ring could not be read; see the log"))? {
            Ok(tick) => Ok(Response::new(v1::GetUsageResponse { tick: Some(tick) })),
            Err(error @ (NotKept::Log(_) | NotKept::Damaged(_))) => Err(Status::data_loss(error.to_string())),
            Err(error) => Err(Status::not_found(error.to_string())),
        }
    }

    async fn watch_decisions(
        &self,
        request: Request<v1::WatchDecisionsRequest>,
    ) -> Result<Response<Self::WatchDecisionsStream>, Status> {
        let request = watch::check(request.into_inner()).map_err(Status::invalid_argument)?;
        Ok(Response::new(watch::decisions(Arc::clone(&self.agent), request)))
    }

    async fn list_oom_kills(
        &self,
        _request: Request<v1::ListOomKillsRequest>,
    ) -> Result<Response<v1::ListOomKillsResponse>, Status> {
        let kills = self.agent.decisions.oom_kills().iter().map(|kill| (**kill).clone().into()).collect();
        Ok(Response::new(v1::ListOomKillsResponse { kills }))
    }

    async fn list_evictions(
        &self,
        request: Request<v1::ListEvictionsRequest>,
    ) -> Result<Response<v1::ListEvictionsResponse>, Status> {
        let offers = self.agent.evictions.offers(request.into_inner().all);
        let offers = offers.iter().map(wire::offer).collect();
        Ok(Response::new(v1::ListEvictionsResponse { offers }))
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
        let present = self.agent.board.containers();
        let waiting = self.agent.board.waiting_workloads();
        let workloads = present.iter().map(|view| &view.tracked.workload).chain(&waiting);
        let refused = self.agent.board.refused();
        let is_in = |workload: &Workload| {
            workload.source != SourceKind::Manifests
                || !refused.contains(&(workload.pod.namespace.clone(), workload.pod.name.clone()))
        };
        let taken =
            allocatable::requested(workloads.map(|workload| &**workload).filter(|workload| is_in(workload)));
        let context = &self.agent.context;
        let asked = allocatable::asked(&pod, &context.config.types);
        let short = allocatable::shortages(&allocatable::of_node(&context.enforce), &taken, &asked);
        let short = allocatable::with_types(short, &context.config.types);
        let short: Vec<_> = short.into_iter().map(wire::shortage).collect();
        Ok(Response::new(v1::AdmitResponse { fits: short.is_empty(), short }))
    }
}

/// A server behind a door.
type Guarded = Router<Stack<InterceptorLayer<Door>, NoLayer>>;

async fn router(agent: &Arc<Agent>, door: Door) -> anyhow::Result<Guarded> {
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<AgentServiceServer<Service>>().await;
    // Python's own client of reflection, and older tools, speak v1alpha only.
    let current_reflection = reflection().build_v1().context(DESCRIPTORS)?;
    let earlier_reflection = reflection().build_v1alpha().context(DESCRIPTORS)?;
    let service = Service {
        agent: Arc::clone(agent),
        places: Arc::new(Semaphore::new(ADMITTING)),
        turn: Arc::new(Semaphore::new(1)),
        looks: Arc::new(Semaphore::new(1)),
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
    agent: Arc<Agent>,
    listener: std::os::unix::net::UnixListener,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    listener.set_nonblocking(true).context("cannot use the agent's socket")?;
    let listener = tokio::net::UnixListener::from_std(listener).context("cannot use the agent's socket")?;
    let incoming =
        evenkeel_net::incoming(listener, Gate::new("serve.socket", LOCAL_CONNECTIONS), Speech::Grpc);
    router(&agent, Door::default())
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
    agent: Arc<Agent>,
    address: SocketAddr,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}; free it, or set serve.address"))?;
    let gate = Gate::new("serve.address", CONNECTIONS);
    let incoming = evenkeel_net::at_address(listener, gate, Speech::Grpc, agent.context.trust.tls());
    let rules = &agent.context.config.trust;
    router(&agent, Door::of(rules, &rules.service))
        .await?
        .serve_with_incoming_shutdown(incoming, stop)
        .await
        .with_context(|| format!("serving on {address} failed"))
}
