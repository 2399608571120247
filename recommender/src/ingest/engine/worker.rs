//! Owns the ingest thread: the one that judges, logs and applies, in one order.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_log::LogError;
use evenkeel_proto::v1;
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::{Command, ConnectionId, RETRY, Reply, Shared, Tick, chain, raise};
use crate::clock::WallClock;
use crate::ingest::health::count;
use crate::ingest::record::Key;
use crate::ingest::store::{Mark, Outcome, Store, StoreError};

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

/// The ingest thread.
pub(super) struct Ingest {
    pub(super) store: Store,
    pub(super) shared: Arc<Shared>,
    pub(super) live: broadcast::Sender<Tick>,
    pub(super) publish: Arc<watch::Sender<Mark>>,
    pub(super) wake_sync: SyncSender<()>,
    pub(super) wake_checkpoint: SyncSender<()>,
    /// Which connection a stream belongs to, and whether its next frame is the first after the greeting.
    pub(super) owners: HashMap<Key, (ConnectionId, bool)>,
    pub(super) connections: HashMap<ConnectionId, mpsc::UnboundedSender<Reply>>,
    pub(super) clock: WallClock,
    /// When the last command was taken.
    pub(super) taken: Instant,
}

impl Ingest {
    pub(super) fn run(mut self, runtime: &Runtime, mut queue: mpsc::Receiver<Command>) {
        let mut looked = Instant::now();
        while !self.shared.stop.load(Ordering::SeqCst) {
            self.shared.health.beat();
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
            if looked.elapsed() > LOOK_FOR_IDLE {
                looked = Instant::now();
                let (now, quiet) = (self.clock.now_usec(), self.taken.elapsed());
                self.persist("drop idle streams", |store| store.retire_idle(now, quiet).map(|_| ()));
            }
        }
        self.end();
    }

    fn handle(&mut self, command: Command) {
        self.taken = Instant::now();
        match command {
            Command::Hello { from, hello, replies } => {
                self.hello(from, hello, replies);
                self.handled(from);
            }
            Command::Frames { from, key, frames } => {
                self.frames(from, &key, frames);
                self.handled(from);
            }
            Command::Closed { from } => {
                self.connections.remove(&from);
                let health = &self.shared.health;
                self.owners.retain(|key, (owner, _)| {
                    let stays = *owner != from;
                    if !stays {
                        health.set_connected(key, false);
                    }
                    stays
                });
            }
            Command::SetPanic { switch, reason, done } => {
                let now = self.clock.now_usec();
                let mark = self.persist("set the panic switch", |s| s.set_panic(now, switch, reason.clone()));
                // Whoever asked may have gone.
                let _ignored = mark.map(|mark| done.send(mark));
            }
        }
    }

    fn hello(&mut self, from: ConnectionId, hello: v1::Hello, replies: mpsc::UnboundedSender<Reply>) {
        self.connections.insert(from, replies);
        let key = Key::of(&hello);
        self.shared.health.set_connected(&key, true);
        if let Some((before, _)) = self.owners.insert(key, (from, true))
            && before != from
            && let Some(older) = self.connections.remove(&before)
        {
            count(&self.shared.health.superseded, 1);
            let why = "a newer connection of the same agent took this stream over".to_owned();
            let _gone = older.send(Reply::Close { why, superseded: true });
        }
        let now = self.clock.now_usec();
        let Some(greeting) = self.persist("greet", |store| store.hello(now, &hello)) else { return };
        let resume = v1::Resume {
            epoch: hello.epoch,
            last_seq: greeting.last,
            credits: self.shared.config.ingest.credits,
            knows_slots: greeting.knows_slots,
        };
        let message = v1::stream_response::Message::Resume(resume);
        self.say(from, greeting.mark, message);
    }

    fn frames(&mut self, from: ConnectionId, key: &Arc<Key>, frames: Vec<v1::Frame>) {
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
                Outcome::Acknowledge { last, mark } => {
                    if mark == before {
                        count(&self.shared.health.duplicates, 1);
                    } else {
                        self.broadcast(key);
                    }
                    acknowledged = Some((mark, last));
                }
                Outcome::Nothing => {}
                Outcome::Refused { mark, why, remedy } => {
                    count(&self.shared.health.refused, 1);
                    warn!(node = key.node, epoch = key.epoch, sequence, why, "frame refused");
                    let refused = v1::Refused { epoch: key.epoch, sequence, why, remedy };
                    self.acknowledge(from, key, acknowledged.take());
                    self.say(from, mark, v1::stream_response::Message::Refused(refused));
                }
                Outcome::Close { why } => {
                    count(&self.shared.health.violations, 1);
                    self.acknowledge(from, key, acknowledged.take());
                    if let Some(replies) = self.connections.get(&from) {
                        let _gone = replies.send(Reply::Close { why, superseded: false });
                    }
                    return;
                }
            }
        }
        self.acknowledge(from, key, acknowledged);
    }

    fn handled(&self, connection: ConnectionId) {
        if let Some(replies) = self.connections.get(&connection) {
            let _gone = replies.send(Reply::Handled);
        }
    }

    fn acknowledge(&self, to: ConnectionId, key: &Key, upto: Option<(Mark, u64)>) {
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

    /// Gives the newest samples of a stream to watchers, if there are any.
    fn broadcast(&self, key: &Arc<Key>) {
        if self.live.receiver_count() == 0 {
            return;
        }
        let state = self.shared.state.read();
        let Some(stream) = state.stream(key) else { return };
        let newest = stream.slots.iter().filter_map(|s| s.latest.map(|(t, _)| t)).max();
        let usage: Vec<_> = stream
            .slots
            .iter()
            .filter(|slot| slot.latest.map(|(time, _)| time) == newest)
            .filter_map(|slot| crate::api::convert::live(key, slot))
            .collect();
        drop(state);
        let _nobody = self.live.send(Tick { key: Arc::clone(key), usage: Arc::new(usage) });
    }

    /// Ends a batch: flushes, and wakes whom it concerns.
    fn settle(&mut self) {
        self.persist("write to the log", Store::flush);
        // A full channel means the thread is about to look anyway.
        let _awake = self.wake_sync.try_send(());
        let (bytes, behind) = self.store.bytes();
        self.shared.health.log_bytes.store(bytes, Ordering::Relaxed);
        self.tell_clock();
        if behind >= self.shared.config.log.checkpoint_bytes.get() {
            self.want_checkpoint();
        }
        self.attend();
    }

    /// Tells the others what nodes say of the clock, and people when that changes.
    fn tell_clock(&self) {
        let (doubt, correction) = {
            let state = self.shared.state.read();
            (state.clock.doubt(), state.clock.correction_usec())
        };
        let before = self.shared.health.clock_trouble();
        self.shared.health.set_clock(doubt, correction);
        match (before, self.shared.health.clock_trouble()) {
            (None, Some(trouble)) => warn!(trouble, "the clock of this machine is in doubt"),
            (Some(_), None) => info!("nodes agree with the clock of this machine again"),
            _ => {}
        }
    }

    fn want_checkpoint(&mut self) {
        if !self.shared.checkpoint_due.swap(true, Ordering::SeqCst) {
            self.store.checkpoint_begun();
        }
        let _awake = self.wake_checkpoint.try_send(());
    }

    /// Does what the other threads asked for.
    fn attend(&mut self) {
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
                    let upto = self.shared.trim_to.swap(0, Ordering::SeqCst);
                    if upto > 0 && self.store.trim(upto).is_ok() {
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
