//! Questions to the running daemons, over the same gRPC anybody can use.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use evenkeel_proto::tonic::transport::{Channel, Endpoint};
use evenkeel_proto::tonic::{Status, Streaming};
use evenkeel_proto::v1::agent_service_client::AgentServiceClient;
use evenkeel_proto::v1::capacity_service_client::CapacityServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::{
    ContainerUsage, Decision, EstimateRequest, EstimateResponse, GetStatusRequest, GetStatusResponse,
    ListRecommendationsRequest, QueryUsageRequest, Recommendation, UsageRecord, WatchDecisionsRequest,
    WatchUsageRequest, watch_decisions_response, watch_usage_response,
};
use tokio::runtime::Runtime;

use crate::house::House;

/// Connections to both daemons.
pub(crate) struct Asking {
    runtime: Runtime,
    agent: AgentServiceClient<Channel>,
    recommender: RecommenderServiceClient<Channel>,
    capacity: CapacityServiceClient<Channel>,
    next_decision: u64,
}

impl Asking {
    /// Connects.
    pub(crate) fn connect(house: &House) -> Result<Asking> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let socket = format!("unix://{}", house.agent_socket().display());
        let agent = runtime.block_on(channel(&socket))?;
        let recommender = runtime.block_on(channel(&house.recommender_address()))?;
        Ok(Asking {
            runtime,
            agent: AgentServiceClient::new(agent),
            recommender: RecommenderServiceClient::new(recommender.clone()),
            capacity: CapacityServiceClient::new(recommender),
            next_decision: 0,
        })
    }

    /// The agent's status.
    pub(crate) fn status(&mut self) -> Result<GetStatusResponse> {
        let answer = self.runtime.block_on(self.agent.get_status(GetStatusRequest {}));
        Ok(answer.context("the agent does not give its status")?.into_inner())
    }

    /// Decisions since the last call.
    pub(crate) fn new_decisions(&mut self) -> Result<Vec<Decision>> {
        let request =
            WatchDecisionsRequest { from_seq: self.next_decision, no_follow: true, ..Default::default() };
        let (runtime, agent) = (&self.runtime, &mut self.agent);
        let found = runtime.block_on(async {
            let mut stream = agent.watch_decisions(request).await?.into_inner();
            let mut found = Vec::new();
            while let Some(message) = stream.message().await? {
                match message.event {
                    Some(watch_decisions_response::Event::Decision(decision)) => found.push(decision),
                    Some(watch_decisions_response::Event::Bookmark(_)) => break,
                    Some(watch_decisions_response::Event::Missed(_)) | None => {}
                }
            }
            Ok::<_, Status>(found)
        });
        let found = found.context("the agent does not list its decisions")?;
        if let Some(last) = found.last() {
            self.next_decision = last.seq + 1;
        }
        Ok(found)
    }

    /// The next second's use of all containers.
    pub(crate) fn usage(&mut self) -> Result<Vec<ContainerUsage>> {
        let (runtime, agent) = (&self.runtime, &mut self.agent);
        let usage = runtime.block_on(async {
            let stream = agent.watch_usage(WatchUsageRequest {}).await?.into_inner();
            tokio::time::timeout(std::time::Duration::from_secs(10), one_tick(stream))
                .await
                .unwrap_or_else(|_| Ok(Vec::new()))
        });
        usage.map_err(|status: Status| anyhow::anyhow!("no usage from the agent: {status}"))
    }

    /// What the recommender says, by pod and resource.
    pub(crate) fn recommendations(&mut self) -> Result<BTreeMap<(String, String), Recommendation>> {
        let request = ListRecommendationsRequest { namespace: "demo".into(), ..Default::default() };
        let answer = self.runtime.block_on(self.recommender.list_recommendations(request));
        let list = answer.context("the recommender does not answer")?.into_inner().recommendations;
        let main = list.into_iter().filter(|r| r.container == "main");
        Ok(main.map(|r| ((r.workload.clone(), r.resource.clone()), r)).collect())
    }

    /// Usage records the recommender keeps, by workload.
    pub(crate) fn records(&mut self) -> Result<BTreeMap<String, UsageRecord>> {
        let request = QueryUsageRequest { namespace: "demo".into(), ..QueryUsageRequest::default() };
        let answer = self.runtime.block_on(self.recommender.query_usage(request));
        let records = answer.context("the recommender gives no usage")?.into_inner().records;
        let main = records.into_iter().filter(|r| r.container == "main");
        Ok(main.map(|r| (r.workload.clone(), r)).collect())
    }

    /// How many more of a pod fit on what the agents reported.
    pub(crate) fn capacity(&mut self, pod: &str) -> Result<EstimateResponse> {
        let request = EstimateRequest { pods: vec![pod.to_string()], ..EstimateRequest::default() };
        let answer = self.runtime.block_on(self.capacity.estimate(request));
        Ok(answer.context("the recommender does not estimate")?.into_inner())
    }
}

async fn channel(address: &str) -> Result<Channel> {
    let endpoint =
        Endpoint::from_shared(address.to_string()).with_context(|| format!("bad address {address}"))?;
    endpoint.connect().await.with_context(|| format!("cannot connect to {address}"))
}

/// Reads until a tick after the bookmark has come, so that the numbers are of this second.
async fn one_tick(
    mut stream: Streaming<evenkeel_proto::v1::WatchUsageResponse>,
) -> Result<Vec<ContainerUsage>, Status> {
    let mut live = false;
    while let Some(message) = stream.message().await? {
        match message.event {
            Some(watch_usage_response::Event::Tick(tick)) if live => return Ok(tick.containers),
            Some(watch_usage_response::Event::Bookmark(_)) => live = true,
            _ => {}
        }
    }
    Ok(Vec::new())
}
