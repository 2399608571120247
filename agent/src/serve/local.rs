//! What the agent answers, from what it knows: the same whether the address is served by this process or by the network's part.
//!
//! Owned here: gathering of what an answer is made of, and how much of that at the same time. Not owned: who may ask, and by which
//! protocol (`grpc`, `metrics`, `pages`, `crate::parts`).

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_border::ask::{Amount, DecisionFilter};
use evenkeel_enforce::allocatable;
use evenkeel_enforce::shared::lock;
use evenkeel_enforce::usage::LatestSamples as _;
use evenkeel_model::name::ResourceName;
use evenkeel_model::quantity::{Format, Quantity};
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::workload::{SourceKind, Workload};
use evenkeel_proto::v1;
use tokio::sync::Semaphore;
use tonic::Status;

use super::grpc::Agent;
use super::watch::{self, Messages};
use super::{metrics, pages, wire};
use crate::report::NotKept;

/// Answers from what this process knows.
#[derive(Clone)]
pub(crate) struct Local {
    pub(super) agent: Arc<Agent>,
    /// One moment is looked up at a time.
    looks: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

/// Pages made at the same time; more are told to come back.
const PAGES: usize = 4;

impl Local {
    /// Of an agent.
    pub(crate) fn new(agent: Arc<Agent>) -> Self {
        Self { agent, looks: Arc::new(Semaphore::new(1)), pages: Arc::new(Semaphore::new(PAGES)) }
    }

    /// The agent that it is of.
    pub(crate) fn agent(&self) -> &Agent {
        &self.agent
    }

    pub(crate) fn status(&self) -> v1::GetStatusResponse {
        wire::status(&self.agent)
    }

    pub(crate) fn containers(&self) -> v1::ListContainersResponse {
        v1::ListContainersResponse { containers: wire::containers(&self.agent, true) }
    }

    pub(crate) fn watch_usage(&self) -> Messages<v1::WatchUsageResponse> {
        watch::usage(Arc::clone(&self.agent))
    }

    /// What was used at a moment, microseconds since 1970.
    ///
    /// # Errors
    /// When nothing is kept of it.
    pub(crate) async fn usage(&self, at_usec: u64) -> Result<v1::GetUsageResponse, Status> {
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
            Ok(tick) => Ok(v1::GetUsageResponse { tick: Some(tick) }),
            Err(error @ (NotKept::Log(_) | NotKept::Damaged(_))) => Err(Status::data_loss(error.to_string())),
            Err(error) => Err(Status::not_found(error.to_string())),
        }
    }

    /// Decisions that were asked for.
    ///
    /// # Errors
    /// When there can be none.
    pub(crate) fn watch_decisions(
        &self,
        request: v1::WatchDecisionsRequest,
    ) -> Result<Messages<v1::WatchDecisionsResponse>, Status> {
        let request = watch::check(request).map_err(Status::invalid_argument)?;
        Ok(watch::decisions(Arc::clone(&self.agent), request))
    }

    pub(crate) fn oom_kills(&self) -> v1::ListOomKillsResponse {
        let kills = self.agent.decisions.oom_kills().iter().map(|kill| (**kill).clone().into()).collect();
        v1::ListOomKillsResponse { kills }
    }

    pub(crate) fn evictions(&self, all: bool) -> v1::ListEvictionsResponse {
        let offers = self.agent.evictions.offers(all);
        v1::ListEvictionsResponse { offers: offers.iter().map(wire::offer).collect() }
    }

    /// Whether a pod that asks for so much fits beside those that are here.
    pub(crate) fn fits(&self, asked: &ResourceList) -> v1::AdmitResponse {
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
        let short = allocatable::shortages(&allocatable::of_node(&context.enforce), &taken, asked);
        let short = allocatable::with_types(short, &context.config.types);
        let short: Vec<_> = short.into_iter().map(wire::shortage).collect();
        v1::AdmitResponse { fits: short.is_empty(), short }
    }

    /// The text of `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        metrics::text(&self.agent).await
    }

    /// The page of the node, so many pages on.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn node_page(&self, number: u32) -> Result<String, Status> {
        self.page(move |agent| pages::node_text(agent, number as usize)).await
    }

    /// The page of decisions.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) async fn decisions_page(&self, filter: DecisionFilter) -> Result<String, Status> {
        self.page(move |agent| pages::decisions_text(agent, filter)).await
    }

    /// Makes a page on a thread that may wait for the disk.
    async fn page(&self, make: impl FnOnce(&Agent) -> String + Send + 'static) -> Result<String, Status> {
        let Ok(turn) = Arc::clone(&self.pages).try_acquire_owned() else {
            return Err(Status::resource_exhausted("too many pages at the same time; load it again"));
        };
        let agent = Arc::clone(&self.agent);
        let made = tokio::task::spawn_blocking(move || {
            // Held until it is made, also when nobody waits for it any more.
            let _held = turn;
            make(&agent)
        });
        let made = made.await;
        made.map_err(|_| Status::internal("the page could not be made; see the log"))
    }

    /// The time of the newest tick, microseconds since 1970.
    pub(crate) fn ticked(&self) -> u64 {
        lock(&self.agent.usage).time_usec()
    }
}

/// What is asked of each resource, as it crosses the border.
pub(crate) fn amounts(asked: &ResourceList) -> Vec<Amount> {
    let amount = |(name, quantity): (&ResourceName, Quantity)| Amount {
        name: name.to_string(),
        nano: quantity.nano(),
        is_binary: quantity.format() == Format::BinarySI,
    };
    asked.iter().map(amount).collect()
}

/// The same, read; what is no resource is refused.
///
/// # Errors
/// Names it.
pub(crate) fn of_amounts(amounts: Vec<Amount>) -> Result<ResourceList, Status> {
    let mut list = ResourceList::new();
    let mut seen = BTreeMap::new();
    for Amount { name, nano, is_binary } in amounts {
        let parsed =
            ResourceName::parse(&name).map_err(|error| Status::invalid_argument(error.to_string()))?;
        let format = if is_binary { Format::BinarySI } else { Format::DecimalSI };
        if seen.insert(name, ()).is_none() {
            list.set(parsed, Quantity::from_nano(nano, format));
        }
    }
    Ok(list)
}
