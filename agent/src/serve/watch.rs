//! The two Watch calls: present state, a bookmark, then changes; a slow client learns how much it missed.

use std::collections::VecDeque;
use std::sync::Arc;

use evenkeel_proto::convert::decision_kinds;
use evenkeel_proto::v1;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Agent, wire};

/// Messages that may wait for a client.
const CLIENT_CAP: usize = 64;
/// The newest decisions held back for one client at most.
const MOST_NEWEST: usize = 10_000;
/// Stored decisions read at once; reading goes to a thread of its own, since it waits for the disk.
const CHUNK: usize = 256;

/// A stream of messages to one client.
pub(super) type Messages<T> = ReceiverStream<Result<T, Status>>;

/// Live use: the first tick, a bookmark, then every tick.
pub(super) fn usage(agent: Arc<Agent>) -> Messages<v1::WatchUsageResponse> {
    use v1::watch_usage_response::Event;
    // Few messages, because each holds all containers.
    let (sender, receiver) = mpsc::channel(2);
    let mut live = agent.live.subscribe();
    tokio::spawn(async move {
        let wrap = |event| Ok(v1::WatchUsageResponse { event: Some(event) });
        let mut marked = false;
        loop {
            let received = tokio::select! {
                received = live.recv() => received,
                () = sender.closed() => return,
            };
            let event = match received {
                Ok(tick) => Event::Tick(wire::usage(&agent, &tick)),
                Err(RecvError::Lagged(missed)) => Event::MissedTicks(missed),
                Err(RecvError::Closed) => return,
            };
            if sender.send(wrap(event)).await.is_err() {
                return;
            }
            if !std::mem::replace(&mut marked, true)
                && sender.send(wrap(Event::Bookmark(v1::Bookmark {}))).await.is_err()
            {
                return;
            }
        }
    });
    ReceiverStream::new(receiver)
}

/// Refuses a question that could never be answered: a kind that there is not.
///
/// # Errors
/// A sentence that names it.
pub(super) fn check(request: v1::WatchDecisionsRequest) -> Result<v1::WatchDecisionsRequest, String> {
    match request.kinds.iter().find(|kind| !decision_kinds().any(|known| known == kind.as_str())) {
        None => Ok(request),
        Some(kind) => {
            let known: Vec<&str> = decision_kinds().collect();
            Err(format!("there is no kind of decision called {kind:?}; there are {}", known.join(", ")))
        }
    }
}

/// Whether a decision was asked for.
fn is_wanted(request: &v1::WatchDecisionsRequest, decision: &v1::Decision) -> bool {
    let of_pod =
        |full: &str| full == request.pod || full.split_once('/').is_some_and(|(_, name)| name == request.pod);
    decision.time_usec >= request.since_usec
        && (request.kinds.is_empty() || request.kinds.contains(&decision.kind))
        && (request.pod.is_empty() || decision.pod.as_deref().is_some_and(of_pod))
}

/// Decisions from `request.from_seq` on, a bookmark, then (unless it says otherwise) every new one.
pub(super) fn decisions(
    agent: Arc<Agent>,
    request: v1::WatchDecisionsRequest,
) -> Messages<v1::WatchDecisionsResponse> {
    let (sender, receiver) = mpsc::channel(CLIENT_CAP);
    tokio::spawn(async move {
        // An error is the client going away.
        let _gone = follow_decisions(&agent, request, &sender).await;
    });
    ReceiverStream::new(receiver)
}

type Sender = mpsc::Sender<Result<v1::WatchDecisionsResponse, Status>>;
type Gone = mpsc::error::SendError<Result<v1::WatchDecisionsResponse, Status>>;

async fn follow_decisions(
    agent: &Agent,
    request: v1::WatchDecisionsRequest,
    sender: &Sender,
) -> Result<(), Gone> {
    use v1::watch_decisions_response::Event;
    let send = async |event| sender.send(Ok(v1::WatchDecisionsResponse { event: Some(event) })).await;
    let (mut history, mut live) = agent.decisions.watch(request.from_seq);
    let mut last = 0;
    let (limit, mut newest) = ((request.limit as usize).min(MOST_NEWEST), VecDeque::new());
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let chunk = history.next_chunk(CHUNK);
            (history, chunk)
        });
        let Ok((rest, chunk)) = read.await else { return Ok(()) };
        history = rest;
        if chunk.is_empty() {
            break;
        }
        for decision in chunk {
            last = decision.seq;
            let decision = v1::Decision::from((*decision).clone());
            if !is_wanted(&request, &decision) {
                continue;
            }
            if limit == 0 {
                send(Event::Decision(decision)).await?;
                continue;
            }
            if newest.len() >= limit {
                newest.pop_front();
            }
            newest.push_back(decision);
        }
    }
    drop(history);
    for decision in newest {
        send(Event::Decision(decision)).await?;
    }
    send(Event::Bookmark(v1::Bookmark {})).await?;
    if request.no_follow {
        return Ok(());
    }
    loop {
        let received = tokio::select! {
            received = live.recv() => received,
            () = sender.closed() => return Ok(()),
        };
        match received {
            // Recorded between reading the history and its end: told already.
            Ok(decision) if decision.seq <= last || decision.seq < request.from_seq => {}
            Ok(decision) => {
                let decision = v1::Decision::from((*decision).clone());
                if is_wanted(&request, &decision) {
                    send(Event::Decision(decision)).await?;
                }
            }
            Err(RecvError::Lagged(missed)) => send(Event::Missed(missed)).await?,
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}
