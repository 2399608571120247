//! Owns the way of series to whoever asks: piece by piece, so that no more is in memory than a few of them, and the state is
//! held for one day of one container at a time.

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use evenkeel_model::shown;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use futures::StreamExt as _;
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use utoipa::ToSchema;

use super::Context;
use super::answers::{SeriesGap, SeriesLine, SeriesValue};
use crate::recommend::series::{Piece, SeriesCursor, SeriesRequest, SeriesStep, places};
use crate::recommend::usage::UsageScope;
use crate::serve::ended;
use crate::turns::{NoTurn, QueueSlot};

/// Pieces that wait for a reader who is slow.
const OUTBOX: usize = 4;

/// Parameters of `/api/v1/usage/series`.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub(super) struct SeriesQuery {
    /// Only this namespace.
    pub(super) namespace: String,
    /// Only this workload, such as deployment/web.
    workload: String,
    /// Only this container.
    container: String,
    /// `cpu` or `memory`.
    #[param(required)]
    resource: String,
    /// 1, 60 (where it is not given), 3600 or 86400.
    step_seconds: u64,
    /// Since 1970; 0 = all that is kept.
    from_seconds: u64,
    /// Not included; 0 = to the present.
    to_seconds: u64,
    #[param(inline)]
    pub(super) format: Format,
}

/// Form of the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    /// A JSON object a line: values, and gaps.
    #[default]
    Json,
    /// The CSV that `evenkeel backtest` reads; a gap is where `t` leaps.
    Csv,
}

impl From<&SeriesQuery> for v1::QuerySeriesRequest {
    fn from(query: &SeriesQuery) -> Self {
        Self {
            namespace: query.namespace.clone(),
            workload: query.workload.clone(),
            container: query.container.clone(),
            resource: query.resource.clone(),
            step_seconds: query.step_seconds,
            from_seconds: query.from_seconds,
            to_seconds: query.to_seconds,
        }
    }
}

/// What is asked for, or what is wrong with it.
pub(super) fn asked(request: v1::QuerySeriesRequest) -> Result<SeriesRequest, String> {
    let v1::QuerySeriesRequest { namespace, workload, container, .. } = request;
    let resource = Resource::ALL.into_iter().find(|resource| resource.as_str() == request.resource);
    let resource = resource.ok_or("resource: write cpu or memory")?;
    let step =
        SeriesStep::of_seconds(request.step_seconds).ok_or("step: write 1, 60, 3600 or 86400 seconds")?;
    let (from, to) = (request.from_seconds, request.to_seconds);
    if to > 0 && to <= from {
        return Err(format!("the end, {to}, does not come after the beginning, {from}"));
    }
    // The year 9999, behind which no time can be written.
    if from.max(to) > 253_402_300_799 {
        return Err("times are in seconds since 1970; what was given lies after the year 9999".to_owned());
    }
    let whose = UsageScope { namespace, workload, container, window_seconds: 0 };
    Ok(SeriesRequest { whose, resource, step, from, to })
}

/// Tells series piece by piece until all were, the process ends, or nobody reads any more. The place is given back then.
pub(super) fn told(
    context: Context,
    asked: SeriesRequest,
    stopping: Option<watch::Receiver<bool>>,
    place: QueueSlot,
) -> ReceiverStream<Result<Piece, NoTurn>> {
    let (outbox, pieces) = mpsc::channel(OUTBOX);
    tokio::spawn(async move {
        let telling = tell(&context, &asked, &outbox);
        match stopping {
            Some(stopping) => tokio::select! { () = telling => {}, () = ended(stopping) => {} },
            None => telling.await,
        }
        drop(place);
    });
    ReceiverStream::new(pieces)
}

async fn tell(context: &Context, asked: &SeriesRequest, outbox: &mpsc::Sender<Result<Piece, NoTurn>>) {
    let wanted = asked.clone();
    let mut all = match ask(context, move |context| places(&context.engine.state().study(), &wanted)).await {
        Ok(all) => all,
        Err(why) => return drop(outbox.send(Err(why)).await),
    };
    for mut place in all.drain(..) {
        while place.has_more() {
            let wanted = asked.clone();
            let read = ask(context, move |context| -> (SeriesCursor, Vec<Piece>) {
                let now = context.engine.now_usec();
                let pieces = place.read(&context.engine.state().study(), &wanted, now);
                (place, pieces)
            });
            let pieces = match read.await {
                Ok((read, pieces)) => {
                    place = read;
                    pieces
                }
                Err(why) => return drop(outbox.send(Err(why)).await),
            };
            for piece in pieces {
                if outbox.send(Ok(piece)).await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn ask<T: Send + 'static>(
    context: &Context,
    question: impl FnOnce(&Context) -> T + Send + 'static,
) -> Result<T, NoTurn> {
    let patience = context.config.now().serve.request_timeout.get();
    let asking = context.clone();
    context.work.questions.run(patience, move |wanted| question(&asking.asked_by(wanted))).await
}

/// A piece as a message.
pub(super) fn message(piece: Piece) -> v1::QuerySeriesResponse {
    let (times, values) = piece.values.into_iter().unzip();
    let gaps =
        piece.gaps.into_iter().map(|(from_seconds, to_seconds)| v1::SeriesGap { from_seconds, to_seconds });
    v1::QuerySeriesResponse { series: piece.series, times, values, gaps: gaps.collect() }
}

/// The answer over HTTP, as it comes. One that ends early is cut off, so that nobody takes it for whole.
pub(super) fn response(
    pieces: ReceiverStream<Result<Piece, NoTurn>>,
    resource: Resource,
    format: Format,
) -> Response {
    let head = match format {
        Format::Json => String::new(),
        Format::Csv => "series,t,value\n".to_owned(),
    };
    let head = futures::stream::once(async move { Ok(Bytes::from(head)) });
    let lines = pieces.map(move |piece| {
        let piece = piece.map_err(|_| std::io::Error::other("the rest could not be read; ask again"))?;
        Ok::<_, std::io::Error>(Bytes::from(match format {
            Format::Json => json_lines(&piece, resource),
            Format::Csv => csv_lines(&piece, resource),
        }))
    });
    let kind = match format {
        Format::Json => "application/x-ndjson",
        Format::Csv => "text/csv; charset=utf-8",
    };
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(head.chain(lines))).into_response()
}

/// Cores or bytes.
fn in_units(value: u64, resource: Resource) -> String {
    match resource {
        Resource::Cpu => format!("{}", value as f64 / 1e6),
        Resource::Memory => value.to_string(),
    }
}

fn json_lines(piece: &Piece, resource: Resource) -> String {
    let mut text = String::new();
    let mut tell = |t: Option<u64>, value: Option<SeriesValue>, gap: Option<SeriesGap>| {
        let line = SeriesLine { series: &piece.series, t, value, gap };
        text.push_str(&serde_json::to_string(&line).expect("a line has only text keys and finite numbers"));
        text.push('\n');
    };
    for &(from_seconds, to_seconds) in &piece.gaps {
        tell(None, None, Some(SeriesGap { from_seconds, to_seconds }));
    }
    for &(time, value) in &piece.values {
        let value = match resource {
            Resource::Cpu => SeriesValue::Cores(value as f64 / 1e6),
            Resource::Memory => SeriesValue::Bytes(value),
        };
        tell(Some(time), Some(value), None);
    }
    shown::json(text)
}

fn csv_lines(piece: &Piece, resource: Resource) -> String {
    let name = shown::csv(&piece.series);
    piece
        .values
        .iter()
        .map(|(time, value)| format!("{name},{time},{}\n", in_units(*value, resource)))
        .collect()
}
