//! The stream client: takes frames from the spool to the recommender and acknowledgements back.
//!
//! Owned here: the connection, the handshake of each epoch, credits, what a refusal means. Not owned: which frames
//! there are (`spool`). Nothing is held here that a lost connection could lose: after each handshake everything
//! starts from the sequence number the recommender states. Each recommender has a client of its own; what changes this node is taken from the
//! one that leads (`leaders`).

#[cfg(test)]
mod several_tests;
#[cfg(test)]
mod tests;
mod token;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use evenkeel_enforce::allocatable;
use evenkeel_enforce::decisions::Draft;
use evenkeel_enforce::shared::lock;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_proto::line::Trust;
use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_request::Message as Request;
use evenkeel_proto::v1::stream_response::Message as Response;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::backoff::Backoff;
use super::canonical;
use super::leaders::Leaders;
use super::outbox::Outbox;
use super::spool::{Renewed, SpoolError};
use crate::decisions::Decisions;
use crate::outward::Responses;
use crate::overlay;
use crate::shared::{Context, StreamState};
use crate::trust::membership::NewCertificate;
use token::Token;

/// A recommender that does not answer for so long is taken for gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames and bytes of one message at most; gRPC's usual limit is 4 MiB.
const BATCH_FRAMES: usize = 64;
const BATCH_BYTES: usize = 1 << 20;

/// The recommender takes nothing more of an epoch: another identity opened it, or no number could follow its last one.
#[derive(Debug, thiserror::Error)]
#[error("the recommender takes nothing more of epoch {epoch:016x}: {why}")]
struct Ended {
    epoch: u64,
    why: String,
}

/// The client of one agent.
pub(super) struct Client {
    context: Arc<Context>,
    outbox: Arc<Outbox>,
    decisions: Arc<Decisions>,
    /// Place of the recommender in the configuration.
    at: usize,
    address: String,
    leaders: Arc<Leaders>,
}

/// One connection.
struct Connection {
    trust: Trust,
    requests: mpsc::Sender<v1::StreamRequest>,
    responses: Responses,
    token: Token,
}

/// One epoch on one connection, since its last handshake.
struct Delivery {
    epoch: u64,
    /// Last sequence number sent, or stated by the recommender.
    at: u64,
    /// Last sequence numbers of frames sent and not acknowledged.
    outstanding: VecDeque<u64>,
    credits: usize,
    /// The next frame is the first since the handshake: a gap before it is understood.
    first: bool,
    /// The next frame announces every slot again.
    announce: bool,
    /// This run's own epoch, which never ends.
    current: bool,
    /// The configuration at the handshake, which told what this node has to give.
    config: Arc<evenkeel_enforce::config::Config>,
}

/// What to do next with an epoch.
enum Next {
    /// Wait for something to happen.
    Wait,
    /// Frames were lost here, or a reload changed what this node gives: say Hello again.
    Greet,
    /// Everything is delivered.
    Done,
}

impl Client {
    /// Of the recommender at a place of the configuration.
    pub(super) fn new(
        context: Arc<Context>,
        outbox: Arc<Outbox>,
        decisions: Arc<Decisions>,
        at: usize,
        leaders: Arc<Leaders>,
    ) -> Self {
        let address = context.config.stream.recommenders.get(at).cloned().unwrap_or_default();
        Self { context, outbox, decisions, at, address, leaders }
    }

    /// Connects and delivers until the agent stops.
    pub(super) async fn run(self) {
        let mut backoff = Backoff::new();
        while !self.context.enforce.stop.is_set() {
            let mut greeted = false;
            let Err(error) = self.session(&mut greeted).await;
            if self.leaders.follows(self.at, Instant::now()) {
                self.context.pods.cut();
            }
            self.leaders.cut(self.at);
            if greeted {
                backoff.reset();
            }
            if error.is::<NewCertificate>() {
                continue;
            }
            let refused = error.chain().find_map(|cause| cause.downcast_ref::<Status>());
            if let Some(status) = refused.filter(|status| status.code() == Code::Unauthenticated) {
                self.context.trust.membership.refuse(status.message());
            }
            if let Some(epoch) = over(&error) {
                self.renew(epoch, &error).await;
            }
            let wait = backoff.next();
            self.disconnected(&error, greeted, wait);
            tokio::time::sleep(wait).await;
        }
    }

    /// The recommender claims more of an epoch than it was sent: what it does not have goes on under another name.
    async fn renew(&self, epoch: u64, why: &anyhow::Error) {
        let at = self.at;
        let renewed = match super::new_epoch().and_then(|new| Ok((new, super::new_epoch()?))) {
            Ok((new, next)) => self
                .outbox
                .with_later(move |spool| spool.renew(at, epoch, new, next))
                .await
                .map_err(Into::into),
            Err(error) => Err(error),
        };
        let Renewed { old, new, shift, frames, is_whole } = match renewed {
            Ok(Some(renewed)) => renewed,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "a new epoch cannot be begun; it is tried again"
                );
                return;
            }
        };
        if let Some(kept) = self.decisions.kept().filter(|_| is_whole) {
            kept.moved(old, new, shift);
        }
        let before = lock(&self.context.stats.epoch).replace(self.current());
        if before.unwrap_or(self.context.epoch) == old {
            self.context.stats.streams.renew();
        }
        self.context.stats.epochs_renewed.add(1);
        let reason = format!(
            "{why:#}: this machine was set back to an earlier state, or somebody else spoke in its name; the {frames} frames \
             that were not acknowledged before go on as a new epoch"
        );
        tracing::error!(old = format!("{old:016x}"), new = format!("{new:016x}"), "{reason}");
        let draft = Draft::node(DecisionKind::Agent, reason)
            .result(DecisionResult::Rejected)
            .input("epoch", format!("{old:016x}"))
            .input("new_epoch", format!("{new:016x}"))
            .input("frames", frames);
        self.decisions.record(draft, &self.context.stats.enforce);
    }

    fn disconnected(&self, error: &anyhow::Error, was_connected: bool, wait: Duration) {
        let text = format!("{error:#}");
        let before = self.state(|state| {
            (state.connected, state.leads) = (false, false);
            state.last_error.replace(text.clone())
        });
        // The same failure again and again is said once.
        if was_connected || before.as_ref() != Some(&text) {
            tracing::warn!(
                address = self.address, error = text, retry_in = ?wait,
                "no stream to the recommender; frames are spooled"
            );
        }
    }

    /// One connection from beginning to end; ends only in an error.
    async fn session(&self, greeted: &mut bool) -> anyhow::Result<std::convert::Infallible> {
        let configured = &self.context.config.stream.trust;
        let trust = self.context.trust.membership.trust(&self.address, configured).await?;
        let token = Token::read(trust.token.as_deref())?;
        let (requests, receiver) = mpsc::channel(4);
        let (mut epoch, mut config) = (self.next_epoch(), self.context.enforce.live.now());
        // The first Hello is in the channel before the call: the server may wait for it before it answers.
        requests.send(self.hello(epoch)).await.context("the connection ended before it began")?;
        let outward = &self.context.outward;
        let responses = outward.stream(&self.address, &trust, token.text(), receiver).await?;
        let mut connection = Connection { trust, requests, responses, token };
        loop {
            let resumed = self.greeted(&mut connection, epoch, config).await;
            let mut delivery = resumed.map_err(|error| ended(epoch, error))?;
            *greeted = true;
            self.context.trust.membership.accept();
            let delivered = self.deliver(&mut connection, &mut delivery).await;
            delivered.map_err(|error| ended(epoch, error))?;
            (epoch, config) = (self.next_epoch(), self.context.enforce.live.now());
            self.send(&connection, self.hello(epoch)).await?;
        }
    }

    /// The oldest epoch with something to deliver.
    fn next_epoch(&self) -> u64 {
        let epochs = self.outbox.with(|spool| spool.epochs(self.at));
        epochs.first().copied().unwrap_or_else(|| self.current())
    }

    /// This run's epoch, which may be renewed.
    fn current(&self) -> u64 {
        self.outbox.with(|spool| spool.current())
    }

    /// What status says of this stream.
    fn state<T>(&self, work: impl FnOnce(&mut StreamState) -> T) -> T {
        self.context.stats.streams.with(self.at, work)
    }

    /// Whether what changes this node is taken from this recommender.
    fn is_followed(&self) -> bool {
        let leads = self.leaders.follows(self.at, Instant::now());
        self.state(|state| state.leads = leads);
        leads
    }

    /// The recommender says whether it leads.
    fn leading(&self, said: Option<&v1::Leading>) {
        if self.leaders.says(self.at, said, Instant::now()) {
            // What another one began to tell is told anew.
            self.context.pods.cut();
            let (term, leader) = said.map(|said| (said.term, said.leader.clone())).unwrap_or_default();
            tracing::info!(address = self.address, leader, term, "what changes this node is taken from here");
        }
        // Of another one, too, which may not know yet that it leads no more.
        for at in 0..self.context.config.stream.recommenders.len() {
            let leads = self.leaders.follows(at, Instant::now());
            self.context.stats.streams.with(at, |state| state.leads = leads);
        }
    }

    /// Takes what the leader says of this node's pods.
    fn take_pods(&self, told: v1::NodePods) {
        if self.is_followed() {
            self.context.pods.take(told);
        }
    }

    /// Takes recommended requests of the leader, which are in canonical cores.
    fn take_overlay(&self, mut word: v1::Overlay) {
        if !self.is_followed() {
            tracing::debug!(address = self.address, "ignoring requests of a recommender that does not lead");
            return;
        }
        let factor = self.context.config.cpu_factor;
        for entry in &mut word.entries {
            entry.cpu_request_milli = entry.cpu_request_milli.map(|milli| factor.physical(milli));
        }
        self.context.enforce.overlays.take(overlay::read(word, Instant::now()));
    }

    fn hello(&self, epoch: u64) -> v1::StreamRequest {
        let hello = v1::Hello {
            cluster: self.context.node.cluster.clone(),
            node: self.context.node.node.clone(),
            boot_id: self.context.enforce.boot_id.clone(),
            epoch,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pods: Some(self.context.pods.known()),
            facts: Some(canonical::facts(
                &self.context.enforce.facts,
                self.context.config.cpu_factor,
                allocatable::stated(&self.context.enforce),
            )),
        };
        v1::StreamRequest { message: Some(Request::Hello(hello)) }
    }

    async fn send(&self, connection: &Connection, request: v1::StreamRequest) -> anyhow::Result<()> {
        let sent = tokio::time::timeout(PATIENCE, connection.requests.send(request)).await;
        sent.context("the recommender takes nothing any more")?.context("the connection ended")
    }

    /// Waits for the answer to a Hello. Acknowledgements of what was sent before may come first.
    async fn greeted(
        &self,
        connection: &mut Connection,
        epoch: u64,
        config: Arc<evenkeel_enforce::config::Config>,
    ) -> anyhow::Result<Delivery> {
        loop {
            let message = tokio::time::timeout(PATIENCE, connection.responses.message()).await;
            let message =
                message.context("no answer to Hello")??.context("the recommender ended the stream")?;
            match message.message {
                Some(Response::Resume(resume)) if resume.epoch == epoch => {
                    connection.token.ends(resume.token_ends);
                    self.token_ends(resume.token_ends);
                    return self.resume(&resume, config).await;
                }
                Some(Response::Ack(ack)) => self.acknowledge(ack.epoch, ack.last_seq).await?,
                Some(Response::Refused(refused)) => self.refused(&refused).await?,
                Some(Response::Overlay(word)) => self.take_overlay(word),
                Some(Response::Pods(told)) => self.take_pods(told),
                Some(Response::Leading(said)) => self.leading(Some(&said)),
                Some(Response::Ping(_)) => self.pong(connection).await?,
                Some(Response::Disbelieved(said)) => self.disbelieved(said),
                Some(Response::Renewed(answer)) => self.renewed(connection, answer),
                Some(Response::Resume(other)) => {
                    bail!("the recommender answered for epoch {:016x}, not {epoch:016x}", other.epoch)
                }
                None => {}
            }
        }
    }

    async fn resume(
        &self,
        resume: &v1::Resume,
        config: Arc<evenkeel_enforce::config::Config>,
    ) -> anyhow::Result<Delivery> {
        let (epoch, last, at) = (resume.epoch, resume.last_seq, self.at);
        self.leading(resume.leading.as_ref());
        self.outbox.with_later(move |spool| spool.resume(at, epoch, last)).await?;
        self.arrived(epoch, last);
        let current = epoch == self.current();
        if current && last > 0 && !resume.knows_slots {
            // It kept the number but not what later frames are coded against.
            self.outbox.want_key();
        }
        let was_connected = self.state(|state| {
            state.last_error = None;
            if current {
                state.last_acknowledged = last;
            }
            std::mem::replace(&mut state.connected, true)
        });
        if !was_connected {
            tracing::info!(address = self.address, last, "stream to the recommender stands");
        }
        Ok(Delivery {
            epoch,
            at: last,
            outstanding: VecDeque::new(),
            credits: (resume.credits as usize).max(1),
            first: true,
            announce: !resume.knows_slots,
            current,
            config,
        })
    }

    /// Sends one epoch's frames until all are acknowledged (never, for this run's) or a gap asks for a new Hello.
    async fn deliver(&self, connection: &mut Connection, delivery: &mut Delivery) -> anyhow::Result<()> {
        let membership = &self.context.trust.membership;
        loop {
            match self.send_ready(connection, delivery).await? {
                Next::Wait => {}
                Next::Greet | Next::Done => return Ok(()),
            }
            let patience = if delivery.outstanding.is_empty() { Duration::MAX } else { PATIENCE };
            tokio::select! {
                message = tokio::time::timeout(patience, connection.responses.message()) => {
                    let message = message.context("frames are not acknowledged")??;
                    let message = message.context("the recommender ended the stream")?;
                    self.answered(connection, delivery, message).await?;
                }
                () = self.outbox.appended(self.at), if delivery.current => {}
                () = tokio::time::sleep(connection.token.due()) => {
                    if let Some(renewal) = connection.token.renewal() {
                        let message = Some(Request::Renewal(renewal));
                        self.send(connection, v1::StreamRequest { message }).await?;
                    }
                }
                () = tokio::time::sleep(membership.due()) => membership.renew(&self.address, &connection.trust).await?,
            }
        }
    }

    /// Sends what the spool has and credits allow.
    async fn send_ready(&self, connection: &Connection, delivery: &mut Delivery) -> anyhow::Result<Next> {
        if self.context.enforce.live.now().allocatable != delivery.config.allocatable {
            return Ok(Next::Greet);
        }
        while delivery.outstanding.len() < delivery.credits {
            let (epoch, at, reader) = (delivery.epoch, delivery.at, self.at);
            // It goes on under another name where another recommender's client had to begin one.
            delivery.current = epoch == self.current();
            let max = BATCH_FRAMES.min(delivery.credits - delivery.outstanding.len());
            let read = self.outbox.with_later(move |s| Ok(s.read(reader, epoch, at, max, BATCH_BYTES))).await;
            let mut frames = read?;
            let Some(first) = frames.first() else {
                let done = !delivery.current && delivery.outstanding.is_empty();
                return Ok(if done { Next::Done } else { Next::Wait });
            };
            let gap = first_of(first) != at + 1;
            if gap && !delivery.first {
                return Ok(Next::Greet);
            }
            let whole = frames.windows(2).take_while(|w| first_of(&w[1]) == w[0].sequence + 1).count() + 1;
            frames.truncate(whole);
            if gap || delivery.announce {
                frames[0].announced =
                    self.outbox.with_later(move |spool| Ok(spool.announcements(epoch))).await?;
            }
            (delivery.first, delivery.announce) = (false, false);
            delivery.outstanding.extend(frames.iter().map(|f| f.sequence));
            delivery.at = frames.last().map_or(at, |f| f.sequence);
            self.context.stats.frames_sent.add(frames.len() as u64);
            let message = Some(Request::Frames(v1::Frames { frames }));
            self.send(connection, v1::StreamRequest { message }).await?;
        }
        Ok(Next::Wait)
    }

    async fn answered(
        &self,
        connection: &mut Connection,
        delivery: &mut Delivery,
        message: v1::StreamResponse,
    ) -> anyhow::Result<()> {
        match message.message {
            Some(Response::Ack(ack)) => {
                if ack.epoch == delivery.epoch {
                    delivery.settle(ack.last_seq);
                }
                self.acknowledge(ack.epoch, ack.last_seq).await?;
            }
            Some(Response::Refused(refused)) => {
                if refused.epoch == delivery.epoch {
                    delivery.settle(refused.sequence);
                    delivery.announce = true;
                }
                self.refused(&refused).await?;
            }
            Some(Response::Overlay(word)) => self.take_overlay(word),
            Some(Response::Pods(told)) => self.take_pods(told),
            Some(Response::Leading(said)) => self.leading(Some(&said)),
            Some(Response::Ping(_)) => self.pong(connection).await?,
            Some(Response::Disbelieved(said)) => self.disbelieved(said),
            Some(Response::Renewed(answer)) => self.renewed(connection, answer),
            Some(Response::Resume(_)) => bail!("the recommender sent a Resume nobody asked for"),
            None => {}
        }
        Ok(())
    }

    /// The recommender has looked at a newer token.
    fn renewed(&self, connection: &mut Connection, answer: v1::Renewed) {
        if answer.refused.is_empty() {
            self.token_ends(answer.token_ends);
        }
        connection.token.answered(answer);
    }

    /// When the token ends; 0 where it does not.
    fn token_ends(&self, at: u64) {
        self.state(|state| state.token_ends = Some(at).filter(|at| *at > 0));
    }

    /// Somebody else speaks in this node's name: this agent lives.
    async fn pong(&self, connection: &Connection) -> anyhow::Result<()> {
        let message = Some(Request::Pong(v1::Pong {}));
        self.send(connection, v1::StreamRequest { message }).await
    }

    /// Part of what this node said is not believed: kept for the status, and each reason told once.
    fn disbelieved(&self, said: v1::Disbelieved) {
        let before = self.state(|state| std::mem::replace(&mut state.dropped, said.dropped.clone()));
        for v1::Dropped { reason, count, remedy } in &said.dropped {
            if !before.iter().any(|known| known.reason == *reason) {
                tracing::warn!(reason, count, remedy, "the recommender does not take in what this node says");
            }
        }
    }

    async fn acknowledge(&self, epoch: u64, last: u64) -> anyhow::Result<()> {
        let at = self.at;
        self.outbox.with_later(move |spool| spool.acknowledge(at, epoch, last)).await?;
        self.arrived(epoch, last);
        if epoch == self.current() {
            self.context.stats.frames_acknowledged.add(self.context.stats.streams.acknowledged(at, last));
        }
        Ok(())
    }

    /// What frames up to `last` carried is with one recommender: another one gets it with the frame.
    fn arrived(&self, epoch: u64, last: u64) {
        if let Some(kept) = self.decisions.kept() {
            kept.acknowledged(epoch, last);
            self.context.stats.events_waiting.set(kept.len() as u64);
        }
    }

    /// A frame that can never be accepted is passed over: told, and followed by a key frame as soon as may be.
    async fn refused(&self, refused: &v1::Refused) -> anyhow::Result<()> {
        let v1::Refused { epoch, sequence, why, remedy } = refused;
        tracing::warn!(sequence, why, remedy, "the recommender refused a frame");
        let draft = Draft::node(
            DecisionKind::Agent,
            format!("the recommender refused frame {sequence}: {why}; {remedy}"),
        )
        .result(DecisionResult::Rejected)
        .input("epoch", format!("{epoch:016x}"))
        .input("sequence", sequence);
        self.decisions.record(draft, &self.context.stats.enforce);
        self.outbox.want_key();
        if let Some(kept) = self.decisions.kept() {
            kept.lost(*epoch, *sequence, *sequence);
        }
        self.acknowledge(*epoch, *sequence).await
    }
}

impl Delivery {
    fn settle(&mut self, upto: u64) {
        while self.outstanding.front().is_some_and(|sequence| *sequence <= upto) {
            self.outstanding.pop_front();
        }
    }
}

/// The same error, or that the recommender ended the epoch for good.
fn ended(epoch: u64, error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Status>() {
        Some(status) if matches!(status.code(), Code::AlreadyExists | Code::DataLoss) => {
            Ended { epoch, why: status.message().to_owned() }.into()
        }
        _ => error,
    }
}

/// The epoch that cannot go on under its name.
fn over(error: &anyhow::Error) -> Option<u64> {
    match error.downcast_ref() {
        Some(SpoolError::Ahead { epoch, .. }) => Some(*epoch),
        _ => error.downcast_ref().map(|Ended { epoch, .. }| *epoch),
    }
}

fn first_of(frame: &v1::Frame) -> u64 {
    if frame.replaces_first == 0 { frame.sequence } else { frame.replaces_first }
}
