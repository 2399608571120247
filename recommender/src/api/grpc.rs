//! Owns `RecommenderService`.
//!
//! Questions that walk over the state run on threads for blocking work, so that a large one does not hold up ingest.

use std::collections::HashMap;
use std::pin::Pin;

use evenkeel_proto::v1::{
    self, recommender_service_server::RecommenderService,
    recommender_service_watch_usage_response::Event as UsageEvent,
    watch_recommendations_response::Event as RecommendationEvent,
};
use futures::Stream;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{Context, convert};
use crate::ingest::engine::now_usec;
use crate::recommend::usage::{self, Question};
use crate::recommend::{self, pod};
use crate::serve::ended;

/// Messages waiting for a watcher that does not read.
const OUTBOX: usize = 64;

/// The services that answer questions.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    pub(crate) context: Context,
    pub(crate) stopping: watch::Receiver<bool>,
}

type Watched<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// What a watch remembers of a recommendation, to say only what changed: the value and what it rests on, not its age.
type Said = (Option<u64>, Option<u64>, String);

impl Api {
    /// Runs a question where it may take its time.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Context) -> T + Send + 'static,
    ) -> Result<T, Status> {
        let context = self.context.clone();
        let answer = tokio::task::spawn_blocking(move || question(&context));
        let patience = self.context.config.serve.request_timeout.get();
        match tokio::time::timeout(patience, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Status::internal("the question could not be answered; see the log")),
            Err(_) => Err(Status::deadline_exceeded("the question took longer than serve.request_timeout")),
        }
    }

    async fn recommendations(&self, namespace: String) -> Result<Vec<v1::Recommendation>, Status> {
        self.ask(move |c| recommend::all(&c.engine.state().read(), &c.params, now_usec(), &namespace)).await
    }
}

fn read_pod(text: &str) -> Result<evenkeel_model::pod::Pod, Status> {
    pod::read(text).map_err(|error| Status::invalid_argument(crate::ingest::engine::chain(&error)))
}

#[tonic::async_trait]
impl RecommenderService for Api {
    type WatchRecommendationsStream = Watched<v1::WatchRecommendationsResponse>;
    type WatchUsageStream = Watched<v1::RecommenderServiceWatchUsageResponse>;

    async fn recommend_pod(
        &self,
        request: Request<v1::RecommendPodRequest>,
    ) -> Result<Response<v1::RecommendPodResponse>, Status> {
        let pod = read_pod(&request.into_inner().pod)?;
        let advice =
            self.ask(move |c| pod::advise_pod(&c.engine.state().read(), &c.params, now_usec(), &pod)).await?;
        let recommendations = advice.into_iter().flat_map(|container| container.recommendations).collect();
        Ok(Response::new(v1::RecommendPodResponse { recommendations }))
    }

    async fn list_recommendations(
        &self,
        request: Request<v1::ListRecommendationsRequest>,
    ) -> Result<Response<v1::ListRecommendationsResponse>, Status> {
        let recommendations = self.recommendations(request.into_inner().namespace).await?;
        Ok(Response::new(v1::ListRecommendationsResponse { recommendations }))
    }

    async fn watch_recommendations(
        &self,
        _: Request<v1::WatchRecommendationsRequest>,
    ) -> Result<Response<Self::WatchRecommendationsStream>, Status> {
        let (outbox, answers) = mpsc::channel(OUTBOX);
        tokio::spawn(watch_recommendations(self.clone(), outbox));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn query_usage(
        &self,
        request: Request<v1::QueryUsageRequest>,
    ) -> Result<Response<v1::QueryUsageResponse>, Status> {
        let v1::QueryUsageRequest { namespace, workload, container, window_seconds } = request.into_inner();
        let question = Question { namespace, workload, container, window_seconds };
        let found = self
            .ask(move |c| usage::query(&c.engine.state().read(), &c.params, now_usec(), &question))
            .await?;
        let records = found.iter().map(|u| {
            evenkeel_proto::convert::usage_record(&u.record, &u.namespace, &u.workload, &u.container)
        });
        Ok(Response::new(v1::QueryUsageResponse { records: records.collect() }))
    }

    async fn watch_usage(
        &self,
        request: Request<v1::RecommenderServiceWatchUsageRequest>,
    ) -> Result<Response<Self::WatchUsageStream>, Status> {
        let (outbox, answers) = mpsc::channel(OUTBOX);
        tokio::spawn(watch_usage(self.clone(), request.into_inner().node, outbox));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }

    async fn list_nodes(
        &self,
        _: Request<v1::ListNodesRequest>,
    ) -> Result<Response<v1::ListNodesResponse>, Status> {
        let nodes = self
            .ask(|c| {
                let health = c.engine.health();
                convert::nodes(&c.engine.state().read(), |key| health.is_connected(key))
            })
            .await?;
        Ok(Response::new(v1::ListNodesResponse { nodes }))
    }

    async fn list_events(
        &self,
        request: Request<v1::ListEventsRequest>,
    ) -> Result<Response<v1::ListEventsResponse>, Status> {
        let v1::ListEventsRequest { node, limit } = request.into_inner();
        let limit = if limit == 0 { usize::MAX } else { limit as usize };
        let events = self.ask(move |c| convert::events(&c.engine.state().read(), &node, limit)).await?;
        Ok(Response::new(v1::ListEventsResponse { events }))
    }

    async fn set_panic(
        &self,
        request: Request<v1::SetPanicRequest>,
    ) -> Result<Response<v1::SetPanicResponse>, Status> {
        const MAX_REASON: usize = 4096;
        let v1::SetPanicRequest { on, reason } = request.into_inner();
        if reason.len() > MAX_REASON {
            return Err(Status::invalid_argument(format!(
                "the reason has over {MAX_REASON} bytes; shorten it"
            )));
        }
        let set = tokio::time::timeout(
            self.context.config.serve.request_timeout.get(),
            self.context.engine.set_panic(on, reason),
        );
        match set.await {
            Ok(Ok(())) => Ok(Response::new(v1::SetPanicResponse { on })),
            Ok(Err(error)) => Err(Status::unavailable(format!("the switch was not stored: {error}"))),
            Err(_) => Err(Status::deadline_exceeded(
                "the switch is not durable yet; see /readyz?verbose for what keeps the log",
            )),
        }
    }
}

async fn watch_recommendations(
    api: Api,
    outbox: mpsc::Sender<Result<v1::WatchRecommendationsResponse, Status>>,
) {
    let mut said: HashMap<(String, String, String, String), Said> = HashMap::new();
    let mut tick = tokio::time::interval(api.context.config.recommend.watch_interval.get());
    let mut bookmarked = false;
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = outbox.closed() => return,
            () = ended(api.stopping.clone()) => return,
        }
        let all = match api.recommendations(String::new()).await {
            Ok(all) => all,
            Err(status) => {
                let _gone = outbox.send(Err(status)).await;
                return;
            }
        };
        let mut events = Vec::new();
        for r in all {
            let place = (r.namespace.clone(), r.workload.clone(), r.container.clone(), r.resource.clone());
            let value = (r.request, r.current, r.tier.clone());
            if said.get(&place) != Some(&value) {
                said.insert(place, value);
                events.push(RecommendationEvent::Recommendation(r));
            }
        }
        if !bookmarked {
            bookmarked = true;
            events.push(RecommendationEvent::Bookmark(v1::Bookmark {}));
        }
        for event in events {
            let response = v1::WatchRecommendationsResponse { event: Some(event) };
            if outbox.send(Ok(response)).await.is_err() {
                return;
            }
        }
    }
}

async fn watch_usage(
    api: Api,
    node: String,
    outbox: mpsc::Sender<Result<v1::RecommenderServiceWatchUsageResponse, Status>>,
) {
    // Before the present state is read, so that nothing falls between the two; a tick may be told twice.
    let mut ticks = api.context.engine.watch();
    let wanted = node.clone();
    let Ok(present) = api.ask(move |c| convert::live_now(&c.engine.state().read(), &wanted)).await else {
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
