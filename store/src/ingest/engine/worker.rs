//! Owns the ingest thread: the one that judges and logs, in one order.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_log::LogError;
use evenkeel_model::causes::chain;
use evenkeel_proto::v1;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::rivals::{Greeted, Rivals};
use super::{Because, ConnectionId, IngestCommand, IngestShared, RETRY, Reply, raise};
use crate::clock::WallClock;
use crate::ingest::backlog::Unreadable;
use crate::ingest::health::count;
use crate::ingest::room::is_full_disk;
use crate::ingest::store::{FrameOutcome, Mark, Store, StoreError, unreadable};
use crate::key::{NodeKey, StreamKey};

/// Messages handled between two flushes.
const BATCH: usize = 64;
/// Time after which a flush is not put off any longer: who waits for an acknowledgement does not wait for what others send
/// meanwhile.
const BATCH_TIME: Duration = Duration::from_millis(10);
/// Time in which messages gather once all were handled, so that thousands of nodes a second do not each cost a wake-up and
/// a write. Nothing waits for it: an acknowledgement waits for the next sync, which is much later.
const GATHER: Duration = Duration::from_millis(1);
/// How often the ingest thread looks at what the others ask for while nothing arrives.
const ATTEND_EVERY: Duration = Duration::from_millis(250);
/// How often streams that fell silent are looked for.
const LOOK_FOR_IDLE: Duration = Duration::from_secs(60);

/// How often the API of a cluster is asked again which pods are where.
const PLACE_AGAIN: Duration = Duration::from_secs(1);

/// The ingest thread.
pub(super) struct Ingest {
    pub(super) store: Store,
    pub(super) shared: Arc<IngestShared>,
    pub(super) publish: Arc<watch::Sender<Mark>>,
    pub(super) wake_sync: SyncSender<()>,
    pub(super) wake_checkpoint: SyncSender<()>,
    /// Which connection a stream belongs to, and whether its next frame is the first after the greeting.
    pub(super) owners: HashMap<StreamKey, (ConnectionId, bool)>,
    pub(super) connections: HashMap<ConnectionId, mpsc::UnboundedSender<Reply>>,
    pub(super) rivals: Rivals,
    pub(super) clock: WallClock,
    /// When the last command was taken.
    pub(super) taken: Instant,
}

impl Ingest {
    pub(super) fn run(mut self, runtime: &Runtime, mut queue: mpsc::Receiver<IngestCommand>) {
        let (mut looked, mut placed) = (Instant::now(), Instant::now());
        while !self.shared.stop.load(Ordering::SeqCst) {
            if self.shared.backlog.is_abandoned() {
                return self.give_up();
            }
            self.shared.health.beat();
            if !self.shared.backlog.has_room(ATTEND_EVERY) {
                self.attend();
                continue;
            }
            match runtime.block_on(async { timeout(ATTEND_EVERY, queue.recv()).await }) {
                Ok(Some(command)) => {
                    self.handle(command);
                    let (mut handled, began) = (1, Instant::now());
                    while handled < BATCH
                        && began.elapsed() < BATCH_TIME
                        && let Ok(command) = queue.try_recv()
                    {
                        self.handle(command);
                        handled += 1;
                    }
                    self.settle();
                    if handled < BATCH && began.elapsed() < BATCH_TIME {
                        thread::sleep(GATHER);
                    }
                }
                Ok(None) => break,
                Err(_) => self.attend(),
            }
            for (node, rival) in self.rivals.due(Instant::now()) {
                self.take_over(&node, rival);
            }
            if placed.elapsed() > PLACE_AGAIN {
                placed = Instant::now();
                let now = self.clock.now_usec();
                let news = self.persist("say which pods are where", |store| store.place_again(now));
                let kills = self.persist("count kills", |store| store.count_kills(now));
                if news.unwrap_or(0) + kills.unwrap_or(0) > 0 {
                    self.settle();
                }
            }
            if looked.elapsed() > LOOK_FOR_IDLE {
                looked = Instant::now();
                let (now, quiet) = (self.clock.now_usec(), self.taken.elapsed());
                self.persist("drop idle streams", |store| store.retire_idle(now, quiet).map(|_| ()));
            }
        }
        self.end();
    }

    fn handle(&mut self, command: IngestCommand) {
        self.taken = Instant::now();
        match command {
            IngestCommand::Hello { from, hello, owner, replies } => {
                self.lives(from);
                self.connections.insert(from, replies.clone());
                self.hello(Greeted { from, hello, owner, replies });
                self.handled(from);
            }
            IngestCommand::Alive { from } => {
                self.lives(from);
                self.handled(from);
            }
            IngestCommand::Frames { from, key, frames } => {
                self.lives(from);
                self.frames(from, &key, frames);
                self.handled(from);
            }
            IngestCommand::Closed { from } => {
                self.connections.remove(&from);
                let free = self.rivals.closed(from);
                let health = &self.shared.health;
                self.owners.retain(|key, (owner, _)| {
                    let stays = *owner != from;
                    if !stays {
                        health.set_connected(key, false);
                    }
                    stays
                });
                if let Some(rival) = free {
                    self.greet(rival);
                }
            }
            IngestCommand::SetPanic { switch, reason, wish, done } => {
                let now = self.clock.now_usec();
                let mark =
                    self.persist("set the panic switch", |s| s.set_panic(now, switch, reason.clone(), wish));
                // Whoever asked may have gone.
                let _ignored = mark.map(|mark| done.send(mark));
            }
        }
    }

    /// Somebody speaks for a node; where an older connection of another run does, that is asked first whether it lives.
    fn hello(&mut self, greeted: Greeted) {
        let (key, node) = (StreamKey::of(&greeted.hello), NodeKey::of(&StreamKey::of(&greeted.hello)));
        let older = self.rivals.holder(&node).filter(|older| *older != greeted.from);
        // The same run on a new connection has given the old one up.
        let is_same_run =
            older.is_some_and(|older| self.owners.get(&key).is_some_and(|(of, _)| *of == older));
        match older.and_then(|older| self.connections.get(&older)) {
            Some(older) if !is_same_run => {
                let _gone = older.send(Reply::Ping);
                if let Some(second) = self.rivals.wait(&node, greeted) {
                    self.refuse(&node, &second);
                }
            }
            _ => self.greet(greeted),
        }
    }

    /// A connection has said something: whoever wants to speak for its node does not.
    fn lives(&mut self, connection: ConnectionId) {
        if let Some((node, rival)) = self.rivals.lives(connection) {
            self.refuse(&node, &rival);
        }
    }

    fn refuse(&self, node: &NodeKey, rival: &Greeted) {
        count(&self.shared.health.rivals_refused, 1);
        self.shared.health.contested(node);
        let why =
            "another agent speaks for this node, and lives; stop one of them, or give each its own node.name";
        let _gone = rival.replies.send(Reply::Close { why: why.to_owned(), because: Because::Rival });
    }

    /// The older connection has not shown that it lives.
    fn take_over(&mut self, node: &NodeKey, rival: Greeted) {
        if let Some(older) = self.rivals.holder(node).filter(|older| *older != rival.from) {
            self.supersede(
                node,
                older,
                "it did not answer within 5 s, and a newer agent speaks for this node",
            );
        }
        self.greet(rival);
    }

    fn supersede(&mut self, node: &NodeKey, older: ConnectionId, why: &str) {
        let Some(replies) = self.connections.remove(&older) else { return };
        count(&self.shared.health.superseded, 1);
        self.shared.health.contested(node);
        let _gone = replies.send(Reply::Close { why: why.to_owned(), because: Because::Superseded });
    }

    fn greet(&mut self, greeted: Greeted) {
        let Greeted { from, hello, owner, replies } = greeted;
        let (key, now) = (StreamKey::of(&hello), self.clock.now_usec());
        let Some(is_own) = self.persist("greet", |store| store.claim(now, &key, &owner)) else { return };
        if !is_own {
            count(&self.shared.health.violations, 1);
            warn!(node = key.node, owner, "an epoch was opened by another identity");
            let why = "another identity opened this epoch; the agent begins a new one";
            let _gone = replies.send(Reply::Close { why: why.to_owned(), because: Because::Owned });
            return;
        }
        let Some(greeting) = self.persist("greet", |store| store.hello(now, &hello)) else { return };
        self.shared.health.set_connected(&key, true);
        let node = NodeKey::of(&key);
        self.rivals.hold(node.clone(), from);
        if let Some((before, _)) = self.owners.insert(key, (from, true))
            && before != from
        {
            self.supersede(&node, before, "a newer connection of the same agent took this stream over");
        }
        let resume = v1::Resume {
            epoch: hello.epoch,
            last_seq: greeting.last,
            credits: self.shared.config.ingest.credits,
            knows_slots: greeting.knows_slots,
            // Said by the connection, which knows.
            token_ends: 0,
            leading: None,
        };
        let message = v1::stream_response::Message::Resume(resume);
        self.say(from, greeting.mark, message);
    }

    fn frames(&mut self, from: ConnectionId, key: &Arc<StreamKey>, frames: Vec<v1::Frame>) {
        if !self.owners.get(&**key).is_some_and(|(owner, _)| *owner == from) {
            // The stream was taken over; the connection has been told.
            return;
        }
        let mut acknowledged = None;
        for frame in frames {
            count(&self.shared.health.sample_bytes, frame.samples.len() as u64);
            let now = self.clock.now_usec();
            let sequence = frame.sequence;
            let resumed =
                sequence > 0 && self.owners.get_mut(&**key).is_some_and(|(_, first)| mem::take(first));
            let before = self.store.mark();
            let Some(outcome) = self.persist("take a frame", |store| store.take(now, key, &frame, resumed))
            else {
                return;
            };
            match outcome {
                FrameOutcome::Acknowledge { last, mark } => {
                    if mark == before {
                        count(&self.shared.health.duplicates, 1);
                    }
                    acknowledged = Some((mark, last));
                }
                FrameOutcome::Nothing => {}
                FrameOutcome::Refused { mark, why, remedy } => {
                    self.acknowledge(from, key, acknowledged.take());
                    self.refuse_frame(
                        Some(from),
                        key,
                        mark,
                        v1::Refused { epoch: key.epoch, sequence, why, remedy },
                    );
                }
                FrameOutcome::Close { why, is_over } => {
                    count(&self.shared.health.violations, 1);
                    self.acknowledge(from, key, acknowledged.take());
                    if let Some(replies) = self.connections.get(&from) {
                        let because = if is_over { Because::Over } else { Because::OutOfOrder };
                        let _gone = replies.send(Reply::Close { why, because });
                    }
                    return;
                }
            }
        }
        self.acknowledge(from, key, acknowledged);
    }

    fn refuse_frame(&self, to: Option<ConnectionId>, key: &StreamKey, mark: Mark, refused: v1::Refused) {
        count(&self.shared.health.refused, 1);
        let (sequence, why) = (refused.sequence, &refused.why);
        warn!(node = key.node, epoch = key.epoch, sequence, why, "frame refused");
        if let Some(to) = to {
            self.say(to, mark, v1::stream_response::Message::Refused(refused));
        }
    }

    /// Tells agents which of their frames could not be read when they were counted.
    fn tell_unreadable(&self) {
        for Unreadable { key, sequence, mark, why } in self.shared.backlog.unreadable() {
            let FrameOutcome::Refused { mark, why, remedy } = unreadable(mark, &why) else { continue };
            let to = self.owners.get(&key).map(|(owner, _)| *owner);
            self.refuse_frame(to, &key, mark, v1::Refused { epoch: key.epoch, sequence, why, remedy });
        }
    }

    fn handled(&self, connection: ConnectionId) {
        if let Some(replies) = self.connections.get(&connection) {
            let _gone = replies.send(Reply::Handled);
        }
    }

    fn acknowledge(&self, to: ConnectionId, key: &StreamKey, upto: Option<(Mark, u64)>) {
        if let Some((mark, last_seq)) = upto {
            let ack = v1::Ack { epoch: key.epoch, last_seq };
            self.say(to, mark, v1::stream_response::Message::Ack(ack));
        }
    }

    fn say(&self, to: ConnectionId, mark: Mark, message: v1::stream_response::Message) {
        if let Some(replies) = self.connections.get(&to) {
            let response = v1::StreamResponse { message: Some(message) };
            // A connection that has gone asks again when it comes back.
            let _gone = replies.send(Reply::Say { mark, response });
        }
    }

    /// Ends a batch: flushes, and wakes whom it concerns.
    fn settle(&mut self) {
        self.persist("write to the log", Store::flush);
        // A full channel means the thread is about to look anyway.
        let _awake = self.wake_sync.try_send(());
        let (bytes, behind) = self.store.bytes();
        self.shared.health.log_bytes.store(bytes, Ordering::Relaxed);
        if behind >= self.shared.config.log.checkpoint_bytes.get() {
            self.want_checkpoint();
        }
        self.attend();
    }

    fn want_checkpoint(&mut self) {
        if !self.shared.checkpoint_due.swap(true, Ordering::SeqCst) {
            self.store.checkpoint_begun();
        }
        let _awake = self.wake_checkpoint.try_send(());
    }

    /// Does what the other threads asked for.
    fn attend(&mut self) {
        self.tell_unreadable();
        let upto = self.shared.trim_to.swap(0, Ordering::SeqCst);
        if upto > 0
            && let Err(error) = self.store.trim(upto)
        {
            warn!(%error, "log not trimmed; trying again after the next checkpoint");
        }
        while self.shared.poisoned.load(Ordering::SeqCst) && !self.shared.stop.load(Ordering::SeqCst) {
            self.reopen();
        }
    }

    /// Does something with the store, again and again until it works or the process is to end. What failed has changed
    /// nothing, so repeating is safe; meanwhile nothing is acknowledged.
    fn persist<T>(
        &mut self,
        what: &'static str,
        mut act: impl FnMut(&mut Store) -> Result<T, StoreError>,
    ) -> Option<T> {
        loop {
            match act(&mut self.store) {
                Ok(value) => {
                    if self.shared.health.set_log_trouble(None) {
                        info!("the ingest log works again");
                    }
                    return Some(value);
                }
                Err(error) => {
                    count(&self.shared.health.log_failures, 1);
                    if self.shared.health.set_log_trouble(Some(chain(&error))) {
                        error!(
                            error = chain(&error),
                            "cannot {what}; nothing is acknowledged until it works"
                        );
                    }
                    self.relieve(&error);
                }
            }
            if self.shared.stop.load(Ordering::SeqCst) {
                return None;
            }
        }
    }

    /// Does what may help against an error of the log, or waits.
    fn relieve(&mut self, error: &StoreError) {
        match error {
            StoreError::Log(LogError::Poisoned { .. }) | StoreError::Closed => self.reopen(),
            _ => {
                self.want_checkpoint();
                let until = Instant::now() + RETRY;
                while Instant::now() < until && !self.shared.stop.load(Ordering::SeqCst) {
                    self.shared.health.beat();
                    thread::sleep(Duration::from_millis(50));
                    let upto = self.shared.trim_to.load(Ordering::SeqCst);
                    if upto == 0 {
                        continue;
                    }
                    if is_full_disk(error) {
                        // A checkpoint that found room on a full disk has left the log as it was: it is closed and trimmed
                        // with the room that is kept, which is not taken back before.
                        self.store.room().release();
                    }
                    let trimmed = self.store.trim(upto);
                    let asked = &self.shared.trim_to;
                    let _newer = asked.compare_exchange(upto, 0, Ordering::SeqCst, Ordering::SeqCst);
                    if trimmed.is_ok() {
                        return;
                    }
                }
            }
        }
    }

    fn reopen(&mut self) {
        match self.store.reopen().and_then(|mark| Ok((mark, self.store.syncer()?))) {
            Ok((mark, syncer)) => {
                *self.shared.syncer.lock().unwrap_or_else(PoisonError::into_inner) = syncer;
                // Numbers asked to be trimmed to were those of the log as it was before.
                self.shared.trim_to.store(0, Ordering::SeqCst);
                self.shared.poisoned.store(false, Ordering::SeqCst);
                // The checkpoint has everything the log lost.
                self.publish.send_if_modified(|durable| raise(durable, mark));
                if self.shared.health.set_log_trouble(None) {
                    info!("the ingest log was opened anew and works again");
                }
            }
            Err(error) => {
                self.shared.health.set_log_trouble(Some(chain(&error)));
                thread::sleep(RETRY);
            }
        }
    }

    /// Nobody counts any more: nothing is taken either, and readiness, watchdog and log say so until a restart, which counts
    /// what was logged.
    fn give_up(&self) {
        let why = StoreError::Uncounted.to_string();
        error!(why, "nothing is taken any more");
        self.shared.health.set_log_trouble(Some(why));
    }

    /// Makes everything durable at the end.
    fn end(&mut self) {
        match self.store.sync() {
            Ok(mark) => {
                self.publish.send_if_modified(|durable| raise(durable, mark));
            }
            Err(error) => error!(error = chain(&error), "the last records are not synced"),
        }
        if let Err(error) = self.store.checkpoint() {
            warn!(error = chain(&error), "no checkpoint at the end; the next start replays more");
        }
    }
}
