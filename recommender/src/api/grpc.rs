//! Owns `RecommenderService`; `CapacityService` is in `capacity.rs`, `PolicyService` in `policies.rs`.
//!
//! Questions that walk over the state run on threads for blocking work, so that a large one does not hold up ingest.

use std::pin::Pin;

use evenkeel_model::causes::chain;
use evenkeel_model::panic::{MAX_REASON, Panic};
use evenkeel_model::pod::{Pod, ReadError};
use evenkeel_model::selector::{LabelSelector, Selector};
use evenkeel_proto::v1::{
    self, recommender_service_server::RecommenderService,
    recommender_service_watch_usage_response::Event as UsageEvent,
};
use evenkeel_store::state::PanicSwitch;
use futures::{Stream, StreamExt as _};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::deadline::{self, PodAnswerError};
use super::{Context, Late, convert, series, watch as watching};
use crate::allocated::AT_MOST_USEC;
use crate::audit::{AuditOutcome, Ticket};
use crate::identity::{Identity, Role};
use crate::policy::panic;
use crate::recommend::usage::{self, UsageScope};
use crate::recommend::{Desk, kept, list, pod};
use crate::serve::ended;
use crate::turns::{NoTurn, QueueSlot};
use crate::updater::told;

/// Messages waiting for a watcher that does not read.
const OUTBOX: usize = 64;

/// Pods of at most so many bytes are read where they arrive: it takes a millisecond.
pub(super) const SHORT_TEXT: usize = 64 << 10;

/// All services but ingest.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) late: Late,
    pub(crate) stopping: watch::Receiver<bool>,
}

type Watched<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Api {
    /// What everything but the last answers needs.
    pub(super) fn context(&self) -> Result<&Context, Status> {
        self.late.context.get().ok_or_else(|| {
            Status::unavailable(
                "what was acknowledged before the restart is still being read back; ask again later",
            )
        })
    }

    /// Runs a question where it may take its time.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Context) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let context = self.context()?.clone();
        let patience = context.config.now().serve.request_timeout.get();
        let turns = context.work.questions.clone();
        turns.run(patience, move |wanted| question(&context.asked_by(wanted))).await.map_err(no_turn)
    }

    /// The same for questions that begin with reading what somebody else wrote.
    pub(super) async fn ask_with_text<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Context) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let context = self.context()?.clone();
        let patience = context.config.now().serve.request_timeout.get();
        let turns = context.work.texts.clone();
        turns.run(patience, move |wanted| question(&context.asked_by(wanted))).await.map_err(no_turn)
    }

    /// A place for a watch.
    fn watching(&self) -> Result<QueueSlot, Status> {
        self.context()?.work.watches.place().map_err(|_| {
            Status::resource_exhausted("as many watches as are kept are open; end one, or ask again later")
        })
    }

    /// Asks under these rules, or those in force where none is named.
    async fn ask_desk<T: Send + 'static>(
        &self,
        rules: Vec<String>,
        question: impl FnOnce(&Desk<'_>, &[crate::recommend::rules::Chosen]) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let asked = self.ask(move |c| c.rules(&rules).map(|rules| c.at_desk(|desk| question(desk, &rules))));
        asked.await?.map_err(Status::invalid_argument)
    }
}

/// What is told of a switch that the log could not take in time.
const fn not_durable(on: bool) -> &'static str {
    match on {
        true => {
            "the switch is on, but not durable: once the log can be written, set it again, or a restart forgets it; see /readyz?verbose for what keeps the log"
        }
        false => "the switch is on until the log can be written; see /readyz?verbose for what keeps the log",
    }
}

/// A selector as people type it; an empty one selects everything.
///
/// # Errors
/// With the part that cannot be read.
pub(super) fn selector_of(text: &str) -> Result<Selector, String> {
    if text.is_empty() {
        return Ok(Selector::default());
    }
    let selector =
        LabelSelector::parse(text).and_then(|written| Selector::new(&written).map_err(|e| e.to_string()));
    selector.map_err(|why| format!("selector: {why}; write app=web,tier in (a,b),!canary"))
}

fn no_turn(why: NoTurn) -> Status {
    match why {
        NoTurn::Busy => {
            Status::resource_exhausted("as many questions as may wait are waiting; ask again later")
        }
        NoTurn::Late => Status::deadline_exceeded("the question took longer than serve.request_timeout"),
        NoTurn::Fault => Status::internal("the question could not be answered; see the log"),
    }
}

impl Api {
    async fn read_pod(&self, text: String) -> Result<Pod, Status> {
        let unreadable = |error: ReadError| {
            self.late.context.get().inspect(|context| context.work.refuse_text());
            Status::invalid_argument(chain(&error))
        };
        match self.late.context.get() {
            Some(context) if text.len() > SHORT_TEXT => {
                let patience = context.config.now().serve.request_timeout.get();
                let read = context.work.texts.run(patience, move |_| pod::read(&text)).await;
                read.map_err(no_turn)?.map_err(unreadable)
            }
            // Less work than changing threads for it.
            _ => pod::read(&text).map_err(unreadable),
        }
    }
}

#[tonic::async_trait]
impl RecommenderService for Api {
    type WatchRecommendationsStream = Watched<v1::WatchRecommendationsResponse>;
    type QuerySeriesStream = Watched<v1::QuerySeriesResponse>;
    type WatchUsageStream = Watched<v1::RecommenderServiceWatchUsageResponse>;

    async fn recommend_pod(
        &self,
        request: Request<v1::RecommendPodRequest>,
    ) -> Result<Response<v1::RecommendPodResponse>, Status> {
        let deadline = deadline::of_call(request.metadata());
        let identity = Identity::of(request.extensions());
        let v1::RecommendPodRequest { pod, rules } = request.into_inner();
        let pod = self.read_pod(pod).await?;
        identity.may(Role::View, &pod.metadata.namespace).await?;
        let Some(context) = self.late.context.get() else {
            let kept = kept::while_loading(&self.late.stored, &pod, self.late.clock.now_usec());
            return Ok(Response::new(convert::pod_response(kept)));
        };
        let advice = context.pod_within(context.patience(deadline), pod, rules).await;
        advice.map(|advice| Response::new(convert::pod_response(advice))).map_err(|why| match why {
            PodAnswerError::Rule(why) => Status::invalid_argument(why),
            PodAnswerError::Late => Status::deadline_exceeded(
                "no fresh answer was there in time, and none was kept; give the call more time",
            ),
            PodAnswerError::Fault => Status::internal("the question could not be answered; see the log"),
        })
    }

    async fn list_recommendations(
        &self,
        request: Request<v1::ListRecommendationsRequest>,
    ) -> Result<Response<v1::ListRecommendationsResponse>, Status> {
        let identity = Identity::of(request.extensions());
        let v1::ListRecommendationsRequest { namespace, rules, selector } = request.into_inner();
        identity.may(Role::View, &namespace).await?;
        let selector = selector_of(&selector).map_err(Status::invalid_argument)?;
        if self.late.context.get().is_none() && selector.is_everything() {
            let recommendations = self.late.stored.all(&namespace, self.late.clock.now_usec());
            let response =
                v1::ListRecommendationsResponse { recommendations, loading: true, ..Default::default() };
            return Ok(Response::new(response));
        }
        let PanicSwitch { on, revert, reason, .. } = self.context()?.engine.state().panic();
        let response = self.ask_desk(rules, move |desk, rules| v1::ListRecommendationsResponse {
            recommendations: list::selected(desk, &namespace, &selector, rules),
            loading: false,
            panic: on,
            panic_reason: reason,
            panic_revert: on && revert,
        });
        Ok(Response::new(response.await?))
    }

    async fn watch_recommendations(
        &self,
        _: Request<v1::WatchRecommendationsRequest>,
    ) -> Result<Response<Self::WatchRecommendationsStream>, Status> {
        let (outbox, answers) = mpsc::channel(OUTBOX);
        let context = self.context()?.clone();
        let (place, stopping) = (self.watching()?, self.stopping.clone());
        tokio::spawn(async move {
            watching::recommendations(context, stopping, outbox).await;
            drop(place);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn query_usage(
        &self,
        request: Request<v1::QueryUsageRequest>,
    ) -> Result<Response<v1::QueryUsageResponse>, Status> {
        let identity = Identity::of(request.extensions());
        let v1::QueryUsageRequest { namespace, workload, container, window_seconds } = request.into_inner();
        identity.may(Role::View, &namespace).await?;
        let question = UsageScope { namespace, workload, container, window_seconds };
        let found = self.ask(move |c| c.at_desk(|desk| usage::query(desk, &question))).await?;
        let records = found.iter().map(|u| {
            evenkeel_proto::convert::usage_record(&u.record, &u.namespace, &u.workload, &u.container)
        });
        Ok(Response::new(v1::QueryUsageResponse { records: records.collect() }))
    }

    async fn query_series(
        &self,
        request: Request<v1::QuerySeriesRequest>,
    ) -> Result<Response<Self::QuerySeriesStream>, Status> {
        let identity = Identity::of(request.extensions());
        let request = request.into_inner();
        identity.may(Role::View, &request.namespace).await?;
        let asked = series::asked(request).map_err(Status::invalid_argument)?;
        let context = self.context()?.clone();
        let pieces = series::told(context, asked, Some(self.stopping.clone()), self.watching()?);
        let messages = pieces.map(|piece| piece.map(series::message).map_err(no_turn));
        Ok(Response::new(Box::pin(messages)))
    }

    async fn watch_usage(
        &self,
        request: Request<v1::RecommenderServiceWatchUsageRequest>,
    ) -> Result<Response<Self::WatchUsageStream>, Status> {
        let place = self.watching()?;
        let (outbox, answers) = mpsc::channel(OUTBOX);
        let api = self.clone();
        tokio::spawn(async move {
            watch_usage(api, request.into_inner().node, outbox).await;
            drop(place);
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn list_nodes(
        &self,
        _: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let (nodes, clock_trouble, troubles, leading) = self
            .ask(|c| {
                let (health, allocated) = (c.engine.health(), c.allocated.within(c, AT_MOST_USEC));
                let connected = |node: &_| health.is_node_connected(node);
                let nodes = convert::nodes(&c.engine.state().study(), &allocated, connected);
                let troubles = c.readiness.troubles(health, c.engine.now_usec());
                let leading = c.readiness.leading().said();
                (nodes, health.clock_trouble().unwrap_or_default(), troubles, leading)
            })
            .await?;
        Ok(Response::new(v1::ListNodesResponse { nodes, clock_trouble, troubles, leading }))
    }

    async fn list_namespaces(
        &self,
        _: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesResponse>, Status> {
        let answer = self.ask(|c| convert::namespaces(&c.allocated.within(c, AT_MOST_USEC)));
        Ok(Response::new(answer.await?))
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let v1::ListEventsRequest { node, limit } = request.into_inner();
        let limit = if limit == 0 { usize::MAX } else { limit as usize };
        let events = self.ask(move |c| convert::events(&c.engine.state().study(), &node, limit)).await?;
        Ok(Response::new(v1::ListEventsResponse { events }))
    }

    async fn list_updates(
        &self,
        request: Request<v1::ListUpdatesRequest>,
    ) -> Result<Response<v1::ListUpdatesResponse>, Status> {
        let request = request.into_inner();
        Ok(Response::new(self.ask(move |c| told::list(c, &request)).await?))
    }

    async fn set_panic(
        &self,
        request: Request<v1::SetPanicRequest>,
    ) -> Result<Response<v1::SetPanicResponse>, Status> {
        let ticket = Ticket::of(request.extensions());
        ticket.about(panic::object());
        let v1::SetPanicRequest { on, reason, revert } = request.into_inner();
        if reason.len() > MAX_REASON {
            return Err(Status::invalid_argument(format!(
                "the reason has over {MAX_REASON} bytes; shorten it"
            )));
        }
        if revert && !on {
            return Err(Status::invalid_argument(
                "revert is given with on: requests go back while the switch is on; switch it off afterwards",
            ));
        }
        let switch = Panic::of(on, revert);
        let context = self.context()?;
        let config = context.config.now();
        let held = context.readiness.panic_held(&config);
        if let Some(holder) = held.filter(|_| !on) {
            return Err(Status::failed_precondition(format!(
                "the switch is held: {holder}; take that back first"
            )));
        }
        let patience = context.config.now().serve.request_timeout.get();
        let change = panic::change(&context.engine.state().panic(), switch, &reason);
        // Switched on it is in force from here, whether it can be recorded, or stored, or not.
        let stored = context.engine.set_panic(switch, reason.clone());
        let set = async move {
            match tokio::time::timeout(patience, stored).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => {
                    let status = Status::unavailable(format!("the switch was not stored: {error}"));
                    Err((status, AuditOutcome::Failed))
                }
                Err(_) => Err((Status::deadline_exceeded(not_durable(on)), AuditOutcome::Unknown)),
            }
        };
        // By itself: a caller that hangs up leaves no change without its end.
        let recorded = tokio::spawn(async move { ticket.around_async(change, on, set).await });
        let recorded = recorded.await.map_err(|_| Status::internal("a fault in the program; see the log"))?;
        match recorded {
            Ok(Ok(())) => {
                tracing::warn!(
                    on,
                    revert,
                    reason,
                    "the panic switch was set by a call: {}",
                    switch.meaning()
                );
                Ok(Response::new(v1::SetPanicResponse { on, revert }))
            }
            Ok(Err(status)) => Err(status),
            Err(unrecorded) => Err(Status::unavailable(unrecorded.told())),
        }
    }
}

async fn watch_usage(
    api: Api,
    node: String,
    outbox: mpsc::Sender<Result<v1::RecommenderServiceWatchUsageResponse, Status>>,
) {
    // Before the present state is read, so that nothing falls between the two; a tick may be told twice.
    let Ok(context) = api.context() else { return };
    let mut ticks = context.engine.watch();
    let wanted = node.clone();
    let Ok(present) = api.ask(move |c| convert::live_now(&c.engine.state().study(), &wanted)).await else {
        return;
    };
    let mut events: Vec<UsageEvent> = present.into_iter().map(UsageEvent::Usage).collect();
    events.push(UsageEvent::Bookmark(v1::Bookmark {}));
    loop {
        for event in events.drain(..) {
            let response = v1::RecommenderServiceWatchUsageResponse { event: Some(event) };
            if outbox.send(Ok(response)).await.is_err() {
                return;
            }
        }
        let tick = tokio::select! {
            tick = ticks.recv() => tick,
            () = outbox.closed() => return,
            () = ended(api.stopping.clone()) => return,
        };
        match tick {
            Ok(tick) if node.is_empty() || tick.key.node == node => {
                events.extend(tick.usage.iter().cloned().map(UsageEvent::Usage));
            }
            Ok(_) => {}
            Err(broadcast::error::RecvError::Lagged(missed)) => events.push(UsageEvent::MissedTicks(missed)),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}
