//! Questions over gRPC, blocking. Owns its own async runtimes, so nothing here may be called from async code.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_proto::v1;
use evenkeel_proto::v1::agent_service_client::AgentServiceClient;
use evenkeel_proto::v1::capacity_service_client::CapacityServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::{
    ContainerStatus, ContainerUsage, Decision, EstimateRequest, EstimateResponse, GetStatusRequest,
    GetStatusResponse, ListContainersRequest, ListNodesRequest, ListRecommendationsRequest, Node,
    QueryUsageRequest, Recommendation, UsageRecord, WatchDecisionsRequest, WatchUsageRequest,
    watch_decisions_response, watch_usage_response,
};
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client with the runtime it needs.
#[derive(Debug)]
struct Asking<C> {
    runtime: Runtime,
    client: C,
}

impl<C: Clone> Asking<C> {
    fn new(address: &str, client: impl Fn(Channel) -> C) -> Result<Asking<C>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot make an async runtime")?;
        let endpoint = Endpoint::from_shared(address.to_string())
            .with_context(|| format!("{address} is not an address"))?
            .timeout(PATIENCE);
        let channel = runtime.block_on(async { endpoint.connect_lazy() });
        Ok(Asking { runtime, client: client(channel) })
    }

    fn call<T, F>(&self, what: &'static str, call: impl FnOnce(C) -> F) -> Result<T>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let answer = self.runtime.block_on(call(self.client.clone()));
        answer.map(Response::into_inner).with_context(|| format!("no answer to {what}"))
    }
}

/// Questions to an agent.
#[derive(Debug)]
pub struct AskAgent(Asking<AgentServiceClient<Channel>>);

impl AskAgent {
    /// Will ask the agent at an address such as `unix:///run/evenkeel/agent.sock`.
    ///
    /// # Errors
    ///
    /// Fails when that is no address.
    pub fn new(address: &str) -> Result<AskAgent> {
        Asking::new(address, AgentServiceClient::new).map(AskAgent)
    }

    /// Its status.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn status(&self) -> Result<GetStatusResponse> {
        self.0.call("GetStatus", |mut client| async move { client.get_status(GetStatusRequest {}).await })
    }

    /// The container `main` of a pod, when the agent knows it.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn container(&self, pod: &str) -> Result<Option<ContainerStatus>> {
        let named =
            |c: &ContainerStatus| c.identity.as_ref().is_some_and(|i| i.pod == pod && i.container == "main");
        let containers = self.0.call("ListContainers", |mut client| async move {
            client.list_containers(ListContainersRequest {}).await
        })?;
        Ok(containers.containers.into_iter().find(named))
    }

    /// All decisions it keeps.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer, or leaves some out.
    pub fn decisions(&self) -> Result<Vec<Decision>> {
        let request = WatchDecisionsRequest { no_follow: true, ..WatchDecisionsRequest::default() };
        let mut stream = self
            .0
            .call("WatchDecisions", |mut client| async move { client.watch_decisions(request).await })?;
        self.0.runtime.block_on(async {
            let mut found = Vec::new();
            while let Some(message) = stream.message().await? {
                match message.event {
                    Some(watch_decisions_response::Event::Decision(decision)) => found.push(decision),
                    Some(watch_decisions_response::Event::Missed(n)) => {
                        anyhow::bail!("{n} decisions missed")
                    }
                    Some(watch_decisions_response::Event::Bookmark(_)) | None => {}
                }
            }
            Ok(found)
        })
    }

    /// OOM kills it has seen in a pod.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn oom_kills(&self, pod: &str) -> Result<Vec<Decision>> {
        self.oom_kills_in("default", pod)
    }

    /// The same of a pod of another namespace.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn oom_kills_in(&self, namespace: &str, pod: &str) -> Result<Vec<Decision>> {
        let list = |mut client: AgentServiceClient<Channel>| async move {
            client.list_oom_kills(v1::ListOomKillsRequest {}).await
        };
        let kills = self.0.call("ListOomKills", list)?.kills;
        Ok(kills.into_iter().filter(|kill| kill.pod == Some(format!("{namespace}/{pod}"))).collect())
    }

    /// Restarts and evictions it offers for a pod; those acted on too where `all` is wished.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn offers(&self, pod: &str, all: bool) -> Result<Vec<v1::EvictionOffer>> {
        let list = |mut client: AgentServiceClient<Channel>| async move {
            client.list_evictions(v1::ListEvictionsRequest { all }).await
        };
        let offers = self.0.call("ListEvictions", list)?.offers;
        Ok(offers.into_iter().filter(|offer| offer.pod == pod).collect())
    }

    /// Live use of all containers at `ticks` moments after the bookmark.
    ///
    /// # Errors
    ///
    /// Fails when the stream ends before.
    pub fn usage(&self, ticks: usize) -> Result<Vec<Vec<ContainerUsage>>> {
        let mut stream = self
            .0
            .call("WatchUsage", |mut client| async move { client.watch_usage(WatchUsageRequest {}).await })?;
        self.0.runtime.block_on(async {
            let (mut found, mut live) = (Vec::new(), false);
            while found.len() < ticks {
                let message = stream.message().await?.context("the stream of usage ended")?;
                match message.event {
                    Some(watch_usage_response::Event::Tick(tick)) if live => found.push(tick.containers),
                    Some(watch_usage_response::Event::Bookmark(_)) => live = true,
                    _ => {}
                }
            }
            Ok(found)
        })
    }

    /// When the container `main` of a pod was sampled, `count` times from now on, in microseconds since 1970.
    ///
    /// # Errors
    ///
    /// Fails when the stream ends before.
    pub fn sample_times(&self, pod: &str, count: usize) -> Result<Vec<u64>> {
        let of_pod = |usage: &ContainerUsage| usage.identity.as_ref().is_some_and(|i| i.pod == pod);
        let ticks = self.usage(count)?;
        Ok(ticks.iter().flatten().filter(|usage| of_pod(usage)).map(|usage| usage.time_usec).collect())
    }
}

/// Questions to a recommender.
#[derive(Debug)]
pub struct AskRecommender {
    about: Asking<RecommenderServiceClient<Channel>>,
    capacity: Asking<CapacityServiceClient<Channel>>,
}

impl AskRecommender {
    /// Will ask the recommender at an address such as `http://127.0.0.1:9520`.
    ///
    /// # Errors
    ///
    /// Fails when that is no address.
    pub fn new(address: &str) -> Result<AskRecommender> {
        let about = Asking::new(address, RecommenderServiceClient::new)?;
        Ok(AskRecommender { about, capacity: Asking::new(address, CapacityServiceClient::new)? })
    }

    /// Nodes it knows.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let answer = self
            .about
            .call("ListNodes", |mut client| async move { client.list_nodes(ListNodesRequest {}).await })?;
        Ok(answer.nodes)
    }

    /// Usage records of a namespace.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn usage(&self, namespace: &str) -> Result<Vec<UsageRecord>> {
        let request = QueryUsageRequest { namespace: namespace.to_string(), ..QueryUsageRequest::default() };
        let answer =
            self.about.call("QueryUsage", |mut client| async move { client.query_usage(request).await })?;
        Ok(answer.records)
    }

    /// Recommendations of a namespace.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn recommendations(&self, namespace: &str) -> Result<Vec<Recommendation>> {
        let request = ListRecommendationsRequest { namespace: namespace.to_string(), ..Default::default() };
        let answer = self.about.call("ListRecommendations", |mut client| async move {
            client.list_recommendations(request).await
        })?;
        Ok(answer.recommendations)
    }

    /// How many more of a pod fit on the nodes it knows.
    ///
    /// # Errors
    ///
    /// Fails when it does not answer.
    pub fn estimate(&self, pod: &str) -> Result<EstimateResponse> {
        let request = EstimateRequest { pods: vec![pod.to_string()], ..EstimateRequest::default() };
        self.capacity.call("Estimate", |mut client| async move { client.estimate(request).await })
    }
}

/// Names of the services at an address by reflection, after each was asked for its health.
///
/// # Errors
///
/// Fails when reflection or health does not answer, or a service is not serving.
pub fn services(address: &str) -> Result<Vec<String>> {
    let asking = Asking::new(address, ServerReflectionClient::new)?;
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = asking.call("reflection", |mut client| async move {
        client.server_reflection_info(tokio_stream::once(request)).await
    })?;
    let answer = asking.runtime.block_on(answers.message())?.context("reflection gave no answer")?;
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        anyhow::bail!("reflection lists no services: {answer:?}")
    };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    let health = Asking::new(address, HealthClient::new)?;
    for service in names.iter().filter(|name| name.starts_with("evenkeel.")) {
        let request = HealthCheckRequest { service: service.clone() };
        let answer = health.call("health", |mut client| async move { client.check(request).await })?;
        anyhow::ensure!(answer.status().as_str_name() == "SERVING", "{service} is {answer:?}");
    }
    Ok(names)
}
