//! Owns the interfaces of questions about capacity: `CapacityService`, and the same over HTTP.
//!
//! A question is given up when its future is dropped: both servers do that when the caller leaves, and here when its time
//! is over.

use std::io::{self, Read};
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request as HttpRequest, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{get, post};
use evenkeel_capacity::question::Whole;
use evenkeel_proto::v1::{self, capacity_service_server::CapacityService};
use futures::{Stream, StreamExt};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::Context;
use super::answers::{EstimateAnswer, EstimateQuestion, WatchedAnswer};
use super::grpc::Api;
use super::http::{Json, Problem, Refusal, Site, parameters};
use crate::capacity::pool::{Busy, StillWanted};
use crate::capacity::read::{self, CapacityRequest, Interrupted, Types};
use crate::capacity::reported::Reported;
use crate::capacity::{self, EstimateError};

/// Largest question in one gRPC message, which is in memory as a whole; HTTP takes `capacity.max_snapshot` as a stream.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;
/// Pieces of a request's body that wait to be read; the client's sending waits when there are more.
const CHUNKS: usize = 8;
/// Objects in one message of a snapshot.
const OBJECTS: usize = 256;
/// Messages of a snapshot waiting for a client that does not read; the copying waits then.
const OUTBOX: usize = 4;

const ESTIMATE: &str = "/api/v1/capacity";
const WATCHED: &str = "/api/v1/capacity/watched";
const SNAPSHOT: &str = "/api/v1/capacity/snapshot";

/// The routes.
pub(super) fn routes() -> Router<Site> {
    Router::new().route(ESTIMATE, post(estimate)).route(WATCHED, get(watched)).route(SNAPSHOT, get(snapshot))
}

/// Why there is no answer, whoever asks.
pub(crate) enum CapacityRefusal {
    Busy(Busy),
    Late(Duration),
    Fault,
    Estimate(EstimateError),
}

/// Runs a question on a thread for questions, and gives it up when this is dropped or its time is over.
pub(crate) async fn ask<T: Send + 'static>(
    context: &Context,
    alongside: impl Future<Output = ()>,
    question: impl FnOnce(&Context, &StillWanted) -> Result<T, EstimateError> + Send + 'static,
) -> Result<T, CapacityRefusal> {
    let asking = context.clone();
    let waiting =
        context.capacity.submit(move |wanted| question(&asking, wanted)).map_err(CapacityRefusal::Busy)?;
    let patience = context.config.now().capacity.timeout.get();
    // The answer may come before all of the question was sent, when that is wrong.
    let alongside = async {
        alongside.await;
        std::future::pending::<()>().await;
    };
    let answer = async {
        tokio::select! {
            answer = waiting.answer() => answer,
            () = alongside => None,
        }
    };
    match tokio::time::timeout(patience, answer).await {
        Ok(Some(answer)) => answer.map_err(CapacityRefusal::Estimate),
        Ok(None) => Err(CapacityRefusal::Fault),
        Err(_) => Err(CapacityRefusal::Late(patience)),
    }
}

impl CapacityRefusal {
    pub(crate) fn problem(self) -> Problem {
        let (status, why, remedy) = match self {
            Self::Busy(busy) => (StatusCode::TOO_MANY_REQUESTS, busy.to_string(), "ask again later"),
            Self::Late(patience) => (
                StatusCode::GATEWAY_TIMEOUT,
                format!("it took longer than {} ms", patience.as_millis()),
                "ask for less (max), or raise capacity.timeout",
            ),
            Self::Fault => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "a fault in the program".to_owned(),
                "report it with the log of this moment",
            ),
            Self::Estimate(EstimateError::Question(error)) => {
                (StatusCode::BAD_REQUEST, format!("{}: {}", error.option, error.why), error.remedy)
            }
            Self::Estimate(EstimateError::Unreadable(why)) => {
                (StatusCode::BAD_REQUEST, why, "send {\"pods\": [...], ...}; see /openapi.json")
            }
            Self::Estimate(error @ EstimateError::GivenUp) => {
                (StatusCode::GATEWAY_TIMEOUT, error.to_string(), "ask again")
            }
        };
        let what = "the question was not answered".to_owned();
        Problem { status, what, place: ESTIMATE.to_owned(), why, remedy }
    }

    fn status(self) -> Status {
        match self {
            Self::Busy(busy) => Status::resource_exhausted(format!("{busy}; ask again later")),
            Self::Late(_) => Status::deadline_exceeded("the question took longer than capacity.timeout"),
            Self::Fault => Status::internal("the question could not be answered; see the log"),
            Self::Estimate(EstimateError::GivenUp) => Status::cancelled("the question was given up"),
            Self::Estimate(error) => Status::invalid_argument(error.to_string()),
        }
    }
}

/// A body as it arrives, read by a thread that may wait.
struct Incoming {
    chunks: mpsc::Receiver<Result<Bytes, axum::Error>>,
    current: Bytes,
    left: u64,
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.chunks.blocking_recv() {
                Some(chunk) => self.current = chunk.map_err(io::Error::other)?,
                None => return Ok(0),
            }
            let size = self.current.len() as u64;
            self.left = self
                .left
                .checked_sub(size)
                .ok_or_else(|| io::Error::other("it is larger than capacity.max_snapshot"))?;
        }
        let size = buffer.len().min(self.current.len());
        buffer[..size].copy_from_slice(&self.current.split_to(size));
        Ok(size)
    }
}

async fn send(body: Body, chunks: mpsc::Sender<Result<Bytes, axum::Error>>) {
    let mut body = body.into_data_stream();
    while let Some(chunk) = body.next().await {
        if chunks.send(chunk).await.is_err() {
            return;
        }
    }
}

/// How many more pods fit, over what agents report or a posted snapshot; given up when the caller leaves.
///
/// The question is read as it arrives in JSON, or in YAML of at most 16 MiB.
#[utoipa::path(
    post, path = ESTIMATE, operation_id = "estimateCapacity", request_body = EstimateQuestion,
    responses((status = OK, description = "The answer in the form of evenkeel capacity -o json", body = EstimateAnswer), Refusal)
)]
pub(super) async fn estimate(From(site): From<Site>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let context = site.context(ESTIMATE)?;
    let most = context.config.now().capacity.max_snapshot.get();
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(Problem {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            what: "the question is too large".to_owned(),
            place: ESTIMATE.to_owned(),
            why: format!("it has more than {most} bytes"),
            remedy: "leave out of the snapshot what does not matter, or raise capacity.max_snapshot",
        });
    }
    let (chunks, arriving) = mpsc::channel(CHUNKS);
    let sending = send(request.into_body(), chunks);
    let answer = ask(&context, sending, move |context, wanted| {
        let incoming = Incoming { chunks: arriving, current: Bytes::new(), left: most };
        let types = capacity::types(context);
        let asked = read::question(Interrupted { inner: incoming, wanted }, types.as_ref());
        let whole = capacity::estimate(context, asked.map_err(EstimateError::Unreadable)?, wanted)?;
        Ok(text(&whole))
    });
    let text = answer.await.map_err(CapacityRefusal::problem)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// The answer in its pinned form.
fn text(whole: &Whole) -> String {
    serde_json::to_string(whole).expect("an answer has only text keys and finite numbers")
}

/// Answers to the questions of `[[capacity.watch]]` over time, with their trend.
#[utoipa::path(
    get, path = WATCHED, operation_id = "watchedCapacity",
    responses((status = OK, description = "One entry for each question", body = Vec<WatchedAnswer>), Refusal)
)]
pub(super) async fn watched(
    From(site): From<Site>,
    request: HttpRequest,
) -> Result<Json<Vec<WatchedAnswer>>, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct NoParameters {}
    let NoParameters {} = parameters(&request)?;
    let context = site.context(WATCHED)?;
    let lines = context.watched.lines(&context.config.now().capacity);
    Ok(Json(lines.into_iter().map(Into::into).collect()))
}

#[derive(Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
struct InCluster {
    /// Which cluster, where agents of several report.
    cluster: String,
}

/// The cluster as agents reported it, in Kubernetes objects; sent while it is made.
#[utoipa::path(
    get, path = SNAPSHOT, operation_id = "snapshotCapacity", params(InCluster),
    responses((status = OK, description = "A List", body = Object), Refusal)
)]
pub(super) async fn snapshot(From(site): From<Site>, request: HttpRequest) -> Result<HttpResponse, Problem> {
    let InCluster { cluster } = parameters(&request)?;
    let context = site.context(SNAPSHOT)?;
    let reported = capacity::gather(&context, &cluster).map_err(|why| Problem {
        status: StatusCode::BAD_REQUEST,
        what: "the cluster cannot be told".to_owned(),
        place: SNAPSHOT.to_owned(),
        why,
        remedy: "name one with ?cluster=",
    })?;
    let mut first = true;
    let parts = batches(&context, reported).map(move |objects| {
        let mut text = String::new();
        for object in objects {
            text.push_str(if first { "" } else { ",\n" });
            first = false;
            text.push_str(&object);
        }
        text
    });
    let once = |text: &'static str| futures::stream::iter([text.to_owned()]);
    let parts =
        once("{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n").chain(parts).chain(once("\n]}\n"));
    let parts = parts.map(Ok::<_, io::Error>);
    Ok(([(header::CONTENT_TYPE, "application/json")], Body::from_stream(parts)).into_response())
}

/// The objects of a cluster in batches, made on a thread that waits for whoever reads.
fn batches(context: &Context, reported: Reported) -> ReceiverStream<Vec<String>> {
    let (outbox, batches) = mpsc::channel(OUTBOX);
    let config = context.config.now();
    tokio::task::spawn_blocking(move || {
        let mut batch = Vec::new();
        let sent = reported.objects(&config.capacity, |object| {
            batch.push(object.to_string());
            if batch.len() < OBJECTS { Ok(()) } else { outbox.blocking_send(std::mem::take(&mut batch)) }
        });
        if sent.is_ok() {
            // Nobody reads any more.
            let _gone = outbox.blocking_send(batch);
        }
    });
    ReceiverStream::new(batches)
}

pub(crate) fn asked(
    request: v1::EstimateRequest,
    types: Types<'_>,
    wanted: &StillWanted,
) -> Result<CapacityRequest, String> {
    let v1::EstimateRequest { pods, snapshot, max, place, options_json, recommended, cluster } = request;
    let written: Map<String, Value> = match options_json.trim() {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|error| format!("options_json: {error}"))?,
    };
    let mut asked = CapacityRequest { cluster, recommended, ..CapacityRequest::default() };
    asked.question.options = read::options(written)?;
    asked.question.options.max = asked.question.options.max.or((max > 0).then_some(max));
    for (index, text) in pods.iter().enumerate() {
        let pods = read::pods(text).map_err(|why| format!("pods[{index}]: {why}"))?;
        asked.question.asks(pods);
    }
    for (index, text) in place.iter().enumerate() {
        let pods = read::pods(text).map_err(|why| format!("place[{index}]: {why}"))?;
        asked.question.places_first(pods);
    }
    if !snapshot.is_empty() {
        let reader = Interrupted { inner: snapshot.as_bytes(), wanted };
        asked.snapshot = Some(read::snapshot(reader, types).map_err(|why| format!("snapshot: {why}"))?);
    }
    Ok(asked)
}

#[tonic::async_trait]
impl CapacityService for Api {
    type SnapshotStream = Pin<Box<dyn Stream<Item = Result<v1::SnapshotResponse, Status>> + Send>>;

    async fn estimate(
        &self,
        request: Request<v1::EstimateRequest>,
    ) -> Result<Response<v1::EstimateResponse>, Status> {
        let request = request.into_inner();
        let answer = ask(self.context()?, std::future::pending(), move |context, wanted| {
            let types = capacity::types(context);
            let asked = asked(request, types.as_ref(), wanted).map_err(EstimateError::Unreadable)?;
            capacity::estimate(context, asked, wanted)
        });
        let context = self.context()?;
        let whole = answer.await.map_err(|refused| {
            if matches!(refused, CapacityRefusal::Estimate(EstimateError::Unreadable(_))) {
                context.work.refuse_text();
            }
            refused.status()
        })?;
        let answer_json = text(&whole);
        Ok(Response::new(v1::EstimateResponse {
            count: whole.answer.count,
            per_node: whole.answer.per_node,
            stop: format!("{:?}", whole.answer.stop),
            message: whole.answer.message,
            bounds: whole.answer.bounds,
            binding: whole.answer.binding,
            answer_json,
        }))
    }

    async fn snapshot(
        &self,
        request: Request<v1::SnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        let reported = capacity::gather(self.context()?, &request.into_inner().cluster)
            .map_err(Status::invalid_argument)?;
        let batches = batches(self.context()?, reported);
        Ok(Response::new(Box::pin(batches.map(|objects| Ok(v1::SnapshotResponse { objects })))))
    }

    async fn list_watched(
        &self,
        _: Request<v1::ListWatchedRequest>,
    ) -> Result<Response<v1::ListWatchedResponse>, Status> {
        let context = self.context()?;
        let lines = context.watched.lines(&context.config.now().capacity);
        let questions = lines.into_iter().map(|line| v1::Watched {
            question: line.question,
            interval_seconds: line.interval_seconds,
            answers: line
                .points
                .into_iter()
                .map(|point| v1::WatchedAnswer {
                    time_usec: point.time_usec,
                    count: point.count,
                    binding: point.binding,
                })
                .collect(),
            per_day: line.trend.map(|trend| trend.per_day),
            days_until_none: line.trend.and_then(|trend| trend.days_until_none),
            trouble: line.trouble.map(|trouble| trouble.why().to_owned()).unwrap_or_default(),
        });
        Ok(Response::new(v1::ListWatchedResponse { questions: questions.collect() }))
    }
}
