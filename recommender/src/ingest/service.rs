//! Owns the gRPC side of ingest: one task per connection, which reads messages, hands them to the ingest thread, and says
//! each answer once it is durable.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use evenkeel_kubernetes::lease::Leadership;
use evenkeel_net::Peer;
use evenkeel_proto::convert::amounts_from_wire;
use evenkeel_proto::v1::stream_request::Message as Asked;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_proto::v1::{self, ingest_service_server::IngestService};
use evenkeel_store::ingest::engine::{Because, ConnectionId, Engine, IngestCommand, Reply};
use evenkeel_store::ingest::health::count;
use evenkeel_store::ingest::store::Mark;
use evenkeel_store::key::{NodeKey, StreamKey};
use evenkeel_store::state::belief::Dropped;
use futures::Stream;
use prost::Message as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::{debug, info};

use super::pods::Telling;
use super::quota::{Quota, Quotas, StreamSlot, Streams, lock};
use crate::config::Ingest;
use crate::followed::Followed;
use crate::identity::{Access, AccessRefusal, Identity};
use crate::leading::Leading;
use crate::serve::ended;

/// Longest cluster, node or version name accepted: a DNS subdomain (RFC 1123).
const MAX_NAME: usize = 253;
/// Answers waiting for a client that does not read.
const OUTBOX: usize = 16;

/// Messages of one connection that wait for the ingest thread: while one is dealt with, the next is read. What a client
/// sends beyond waits in its own connection, so that others wait for two of its messages at most.
const IN_QUEUE: usize = 2;

/// How often it is looked whether there is something to tell an agent.
const LOOK: Duration = Duration::from_secs(1);

/// What is told to agents without being asked.
pub(crate) trait Words: Send + Sync {
    /// How often an agent hears it even if nothing changed.
    fn interval(&self) -> Duration;
    /// Differs when there may be something new to tell.
    fn version(&self) -> (u64, u64);
    /// Whether anything was recommended yet: before, that nothing is to be told says nothing.
    fn is_made(&self) -> bool;
    /// What the node of a stream is told.
    fn word(&self, key: &StreamKey) -> v1::Overlay;
}

/// `IngestService`.
pub(crate) struct Ingestion {
    engine: Engine,
    credits: usize,
    quotas: Arc<Quotas>,
    streams: Arc<Streams>,
    places: Arc<Semaphore>,
    words: Option<Arc<dyn Words>>,
    followed: Option<Arc<Followed>>,
    leading: Arc<Leading>,
    access: Arc<Access>,
    stopping: watch::Receiver<bool>,
}

impl Ingestion {
    pub(crate) fn new(
        engine: Engine,
        limits: &Ingest,
        words: Option<Arc<dyn Words>>,
        followed: Option<Arc<Followed>>,
        leading: Arc<Leading>,
        access: Arc<Access>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let places = Arc::new(Semaphore::new(limits.max_streams.min(Semaphore::MAX_PERMITS)));
        let (credits, streams) = (limits.credits as usize, Arc::default());
        let quotas = Arc::new(Quotas::new(limits.max_bytes_per_minute.get()));
        Self { engine, credits, quotas, streams, places, words, followed, leading, access, stopping }
    }
}

/// Whose a newer token is, once that is known.
type Renewing = Pin<Box<dyn Future<Output = Result<Identity, AccessRefusal>> + Send>>;

type Answers = Pin<Box<dyn Stream<Item = Result<v1::StreamResponse, Status>> + Send>>;

#[tonic::async_trait]
impl IngestService for Ingestion {
    type StreamStream = Answers;

    async fn stream(
        &self,
        request: Request<Streaming<v1::StreamRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let identity = Identity::of(request.extensions());
        let own = self.streams.one_more(identity.node()).ok_or_else(|| {
            count(&self.engine.health().rivals_refused, 1);
            let name = identity.name().unwrap_or_default();
            Status::resource_exhausted(format!(
                "{name} has as many streams open as one node may; stop the other agents of this name, or wait until those that broke \
                 have ended"
            ))
        })?;
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(
                "as many agents are connected as ingest.max_streams allows; raise it or connect later",
            )
        })?;
        let (outbox, answers) = mpsc::channel(OUTBOX);
        let (replies, inbox) = mpsc::unbounded_channel();
        let peer = request.extensions().get::<Peer>().cloned();
        let from = peer.as_ref().map(ToString::to_string).unwrap_or_default();
        let connection = Connection {
            id: self.engine.connection(),
            engine: self.engine.clone(),
            identity,
            // Twice what the client was told, so that only one that ignores it is held up.
            limit: self.credits.saturating_mul(2),
            key: None,
            waiting: VecDeque::new(),
            unhandled: 0,
            replies,
            outbox,
            words: self.words.clone(),
            followed: self.followed.clone(),
            leading: Arc::clone(&self.leading),
            is_greeted: false,
            said: None,
            asks: None,
            telling: None,
            access: Arc::clone(&self.access),
            renewing: None,
            renewed: None,
            told: None,
            silent: None,
            quotas: Arc::clone(&self.quotas),
            quota: None,
            disbelieved: Dropped::default(),
            _places: (own, place),
        };
        debug!(from, "ingest connection opened");
        tokio::spawn(connection.run(request.into_inner(), inbox, self.stopping.clone()));
        Ok(Response::new(Box::pin(ReceiverStream::new(answers))))
    }
}

/// One connection.
struct Connection {
    id: ConnectionId,
    engine: Engine,
    /// Who sends.
    identity: Identity,
    limit: usize,
    key: Option<Arc<StreamKey>>,
    /// Answers in order, each to be said once its mark is durable.
    waiting: VecDeque<(Mark, v1::StreamResponse)>,
    /// Messages handed over and not answered yet.
    unhandled: usize,
    /// Given to the ingest thread with each greeting. Unbounded, but one answer (or refusals, one per frame) per message,
    /// and messages are read only while few are unanswered.
    replies: mpsc::UnboundedSender<Reply>,
    outbox: mpsc::Sender<Result<v1::StreamResponse, Status>>,
    words: Option<Arc<dyn Words>>,
    followed: Option<Arc<Followed>>,
    leading: Arc<Leading>,
    /// The first Resume was said; before that, the agent is told nothing that changes it.
    is_greeted: bool,
    /// What the agent was told last of who leads.
    said: Option<v1::Leading>,
    /// The agent asks for its pods, and knows so much.
    asks: Option<v1::PodsKnown>,
    /// What the agent is told of its pods, where it is.
    telling: Option<Telling>,
    access: Arc<Access>,
    /// A newer token that is looked at.
    renewing: Option<Renewing>,
    /// When one was taken up last.
    renewed: Option<Instant>,
    /// Version and time of the last word told.
    told: Option<((u64, u64), Instant)>,
    /// Version and time of the last look at which there was nothing to tell.
    silent: Option<((u64, u64), Instant)>,
    quotas: Arc<Quotas>,
    /// What of the node may be read, once it has said who it is.
    quota: Option<Arc<Mutex<Quota>>>,
    /// What the agent knows of what was not taken in.
    disbelieved: Dropped,
    _places: (StreamSlot, OwnedSemaphorePermit),
}

impl Connection {
    async fn run(
        mut self,
        mut requests: Streaming<v1::StreamRequest>,
        mut inbox: mpsc::UnboundedReceiver<Reply>,
        stopping: watch::Receiver<bool>,
    ) {
        let health = Arc::clone(self.engine.health());
        count(&health.connections, 1);
        let mut durable = self.engine.durable();
        let mut open = true;
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = pin!(ended(stopping));
        let mut lead = self.leading.changes();
        let status = loop {
            let room = open && self.unhandled < IN_QUEUE && self.waiting.len() + self.unhandled < self.limit;
            let room = room && self.quota.as_ref().is_none_or(|quota| lock(quota).is_open(Instant::now()));
            tokio::select! {
                request = requests.message(), if room => match request {
                    Ok(Some(request)) => if let Err(status) = self.asked(request).await { break Some(status) },
                    // The client has said all it wants; what it is owed is still told.
                    Ok(None) => open = false,
                    Err(status) => break told(status),
                },
                reply = inbox.recv() => match reply {
                    Some(Reply::Say { mark, response }) => self.waiting.push_back((mark, response)),
                    Some(Reply::Handled) => self.unhandled = self.unhandled.saturating_sub(1),
                    // A client that does not read is no better than one that does not answer.
                    Some(Reply::Ping) => {
                        let _unread = self.offer(Said::Ping(v1::Ping {}));
                    }
                    Some(Reply::Close { why, because }) => break Some(Status::new(code_of(because), why)),
                    None => break None,
                },
                // Thousands of connections are not all woken by each sync, but those that wait for it.
                changed = durable.changed(), if !self.waiting.is_empty() => if changed.is_err() { break None },
                renewed = or_never(&mut self.renewing) => self.renew(renewed),
                () = due(&mut self.telling) => self.tell_pods(),
                () = changed(&mut lead) => self.tell_lead(),
                _ = look.tick() => {
                    self.tell_lead();
                    self.tell_pods();
                    self.advise();
                    self.doubt();
                }
                () = &mut stopped => {
                    break Some(Status::unavailable("the recommender is stopping; connect again"));
                }
            }
            let upto = *durable.borrow_and_update();
            if self.tell(upto).await.is_err() || (!open && self.waiting.is_empty() && self.unhandled == 0) {
                break None;
            }
        };
        let _stopped = self.engine.commands().send(IngestCommand::Closed { from: self.id }).await;
        health.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(status) = status {
            let node = self.key.as_ref().map(|k| k.node.as_str()).unwrap_or_default();
            info!(node, status = status.message(), "ingest connection ended");
            // A client that does not read may not hear it.
            let _unread = self.outbox.try_send(Err(status));
        }
    }

    /// Counts what was read against what the node may send.
    fn take(&self, bytes: usize) {
        if let Some(quota) = &self.quota
            && lock(quota).take(bytes as u64, Instant::now())
        {
            count(&self.engine.health().held, 1);
        }
    }

    async fn asked(&mut self, request: v1::StreamRequest) -> Result<(), Status> {
        let bytes = request.encoded_len();
        let command = match request.message {
            Some(Asked::Hello(hello)) => {
                check(&hello)?;
                self.identity.speaks_for(&hello.cluster, &hello.node).inspect_err(|refusal| {
                    info!(why = refusal.why, "an agent was refused");
                    count(&self.engine.health().violations, 1);
                })?;
                let key = Arc::new(StreamKey::of(&hello));
                if self.key.as_ref() != Some(&key) {
                    info!(cluster = key.cluster, node = key.node, epoch = key.epoch, "agent connected");
                }
                self.quota = Some(self.quotas.of(&NodeKey::of(&key), Instant::now()));
                self.take(bytes);
                (self.said, self.asks) = (None, hello.pods);
                if self.may_tell() {
                    self.telling = self.telling.take().or_else(|| self.telling(&key, hello.pods));
                }
                self.key = Some(key);
                let (owner, replies) = (self.identity.owner(), self.replies.clone());
                IngestCommand::Hello { from: self.id, hello, owner, replies }
            }
            Some(Asked::Frames(v1::Frames { frames })) => {
                let key = self.key.clone().ok_or_else(|| {
                    Status::failed_precondition(
                        "frames before the first Hello; say Hello and wait for Resume",
                    )
                })?;
                if frames.is_empty() {
                    return Ok(());
                }
                self.take(bytes);
                IngestCommand::Frames { from: self.id, key, frames }
            }
            Some(Asked::Renewal(v1::Renewal { token })) => {
                self.asked_to_renew(token);
                return Ok(());
            }
            Some(Asked::Pong(_)) => IngestCommand::Alive { from: self.id },
            None => return Err(Status::invalid_argument("a message that is neither Hello nor Frames")),
        };
        self.unhandled += 1;
        let sent = self.engine.commands().send(command).await;
        sent.map_err(|_| Status::unavailable("the recommender is stopping; connect again"))
    }

    /// Says something that need not be durable, unless the client does not read; whether it will be heard.
    fn offer(&self, message: Said) -> bool {
        self.outbox.try_send(Ok(v1::StreamResponse { message: Some(message) })).is_ok()
    }

    /// What an agent is told of its pods: it asks for that, they are of the cluster that is followed, and nobody else hears of them.
    fn telling(&self, key: &StreamKey, known: Option<v1::PodsKnown>) -> Option<Telling> {
        let view = self.followed.as_ref()?.view_of(&key.cluster)?;
        self.identity.is_of_one_node().then(|| known.map(|known| Telling::new(view, &key.node, known)))?
    }

    /// Whether the agent is told what to do: this one leads, and the agent knows that.
    fn may_tell(&self) -> bool {
        let leads = || self.said.as_ref().is_some_and(|said| said.leads) && self.leading.leads();
        self.is_greeted && (!self.leading.is_shared() || leads())
    }

    /// Tells the agent who leads, when that changed since its Resume. Whoever begins to lead tells everything anew: the agent heard another
    /// one in between.
    fn tell_lead(&mut self) {
        let (Some(said), Some(now)) = (self.said.clone(), self.leading.said()) else { return };
        if said == now || !self.offer(Said::Leading(now.clone())) {
            return;
        }
        self.said = Some(now);
        (self.told, self.silent, self.telling) = (None, None, None);
        self.begin_telling(v1::PodsKnown::default());
    }

    /// Begins to tell the agent of its pods, where it asks for that and this one leads.
    fn begin_telling(&mut self, known: v1::PodsKnown) {
        if let (Some(key), Some(_), true) = (self.key.clone(), self.asks, self.may_tell()) {
            self.telling = self.telling(&key, Some(known));
        }
    }

    /// Tells the agent what its pods require, as far as it reads.
    fn tell_pods(&mut self) {
        if !self.may_tell() {
            return;
        }
        let Some(telling) = &mut self.telling else { return };
        while let Ok(place) = self.outbox.try_reserve() {
            let Some(pods) = telling.next() else { break };
            place.send(Ok(v1::StreamResponse { message: Some(Said::Pods(pods)) }));
        }
    }

    /// A newer token is looked at beside everything else; one that comes meanwhile is not.
    fn asked_to_renew(&mut self, token: String) {
        if self.renewing.is_some() {
            return;
        }
        // What comes at once again has to wait: each costs a question.
        let at = self.renewed.map_or_else(Instant::now, |before| Instant::now().max(before + LOOK / 2));
        self.renewed = Some(at);
        let access = Arc::clone(&self.access);
        self.renewing = Some(Box::pin(async move {
            tokio::time::sleep_until(at).await;
            access.renewal(&token).await
        }));
    }

    /// The stream rests on the newer token, if that is for the same node; else it ends when it would have.
    fn renew(&mut self, by: Result<Identity, AccessRefusal>) {
        self.renewing = None;
        let renewed = by.and_then(|by| self.identity.renew(&by));
        let refused = renewed.err().map(|refusal| refusal.why).unwrap_or_default();
        if !refused.is_empty() {
            let node = self.key.as_ref().map(|k| k.node.as_str()).unwrap_or_default();
            // The agent tells it as well.
            debug!(node, why = refused, "a newer token of an agent was not taken");
        }
        let token_ends = self.access.ends(&self.identity).unwrap_or(0);
        // Unheard, it sends the token again.
        let _unread = self.offer(Said::Renewed(v1::Renewed { token_ends, refused }));
    }

    /// Tells the agent what of its words was not taken in, when that has grown.
    fn doubt(&mut self) {
        let Some(key) = &self.key else { return };
        let Some(state) = self.engine.state().try_read() else { return };
        let dropped = state.node(&NodeKey::of(key)).map(|node| node.dropped).unwrap_or_default();
        drop(state);
        if dropped != self.disbelieved
            && self.offer(Said::Disbelieved(v1::Disbelieved { dropped: dropped.told() }))
        {
            self.disbelieved = dropped;
        }
    }

    /// Tells the agent what there is to tell, where that changed or it is time. A client that does not read hears it later.
    fn advise(&mut self) {
        let (Some(words), Some(key)) = (&self.words, &self.key) else { return };
        if !self.may_tell() {
            return;
        }
        let version = words.version();
        if self.told.is_some_and(|(told, at)| told == version && at.elapsed() < words.interval()) {
            return;
        }
        if self.silent.is_some_and(|(silent, at)| silent == version && at.elapsed() < words.interval()) {
            return;
        }
        let word = words.word(key);
        // A leader before this one may have told something.
        let is_first = self.told.is_none() && !self.leading.is_shared() || !words.is_made();
        if is_first && word.entries.is_empty() && word.frozen_namespaces.is_empty() && !word.panic {
            self.silent = Some((version, Instant::now()));
            return;
        }
        if self.offer(Said::Overlay(word)) {
            self.told = Some((version, Instant::now()));
        }
    }

    /// Says everything that is durable; of acknowledgements in a row only the last.
    async fn tell(&mut self, upto: Mark) -> Result<(), ()> {
        while self.waiting.front().is_some_and(|(mark, _)| *mark <= upto) {
            let Some((_, mut response)) = self.waiting.pop_front() else { break };
            if let Some(Said::Resume(resume)) = &mut response.message {
                resume.token_ends = self.access.ends(&self.identity).unwrap_or(0);
                resume.leading = self.leading.said();
                self.said.clone_from(&resume.leading);
                self.is_greeted = true;
                if let Some(known) = self.asks.filter(|_| self.telling.is_none()) {
                    self.begin_telling(known);
                }
            }
            if let (Some(Said::Ack(ack)), Some((mark, next))) = (&response.message, self.waiting.front())
                && *mark <= upto
                && matches!(&next.message, Some(Said::Ack(next)) if next.epoch == ack.epoch)
            {
                continue;
            }
            self.outbox.send(Ok(response)).await.map_err(|_| ())?;
        }
        Ok(())
    }
}

/// What comes of a future, where there is one.
async fn or_never(renewing: &mut Option<Renewing>) -> Result<Identity, AccessRefusal> {
    match renewing {
        Some(renewing) => renewing.await,
        None => pending().await,
    }
}

/// Waits until it may be another one that leads, where that can be.
async fn changed(lead: &mut Option<watch::Receiver<Leadership>>) {
    let heard = match lead {
        Some(lead) => lead.changed().await.is_ok(),
        None => false,
    };
    // Nobody is left who could change it.
    if !heard {
        pending::<()>().await;
    }
}

/// Waits until there may be something to tell, where anything is.
async fn due(telling: &mut Option<Telling>) {
    match telling {
        Some(telling) => telling.due().await,
        None => pending().await,
    }
}

const fn code_of(because: Because) -> Code {
    match because {
        Because::Rival => Code::FailedPrecondition,
        Because::Superseded => Code::Aborted,
        Because::Owned => Code::AlreadyExists,
        Because::Over => Code::DataLoss,
        Because::OutOfOrder => Code::OutOfRange,
    }
}

/// What a client is told whose message could not be read; nothing where the connection itself has ended.
fn told(status: Status) -> Option<Status> {
    let remedy = match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            "send fewer or smaller frames in a message, or raise ingest.max_message"
        }
        Code::Internal | Code::InvalidArgument | Code::Unimplemented => {
            "send messages of evenkeel.v1.StreamRequest"
        }
        _ => return None,
    };
    Some(Status::new(status.code(), format!("{}; {remedy}", status.message())))
}

fn check(hello: &v1::Hello) -> Result<(), Status> {
    for (what, name, may_be_empty) in [
        ("cluster", &hello.cluster, false),
        ("node", &hello.node, false),
        ("boot_id", &hello.boot_id, true),
        ("version", &hello.version, true),
    ] {
        if name.len() > MAX_NAME || (name.is_empty() && !may_be_empty) {
            return Err(Status::invalid_argument(format!(
                "Hello: {what} has {} bytes; give 1 to {MAX_NAME}",
                name.len()
            )));
        }
    }
    let mut stated = hello.facts.iter().map(|facts| amounts_from_wire("allocatable", &facts.allocatable));
    stated.try_for_each(|read| read.map(|_| ())).map_err(|error| {
        Status::invalid_argument(format!("Hello: {error}; correct node.allocatable and node.reserve"))
    })
}
