//! Owns the threads of ingest and what joins them.
//!
//! - *ingest* owns the [`Store`]: it takes commands from a bounded queue, logs and applies them, and flushes once per
//!   batch. When the log cannot take a record (disk full) it keeps the record, tries again every second and takes nothing
//!   new; the queue fills, clients wait, nothing is acknowledged. Questions are still answered.
//! - *sync* makes what was flushed durable, at most every `log.sync_interval`, and publishes the mark.
//! - *checkpoint* writes the state beside while ingest goes on, then asks for the log to be trimmed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};
use std::{collections::HashMap, mem};

use evenkeel_log::{LogError, SyncHandle};
use evenkeel_proto::v1;
use tokio::runtime::Runtime;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::health::{Health, count};
use super::record::Key;
use super::store::{Mark, Outcome, SharedState, Store, StoreError};
use crate::checkpoint;
use crate::config::Config;

/// Messages waiting for the ingest thread. Each is at most `ingest.max_message`, so this bounds memory.
const QUEUE: usize = 16;
/// Messages handled between two flushes.
const BATCH: usize = 64;
/// Ticks a slow watcher may be behind before it loses some.
const LIVE_TICKS: usize = 256;
/// How often the ingest thread looks at what the others ask for while nothing arrives.
const ATTEND_EVERY: Duration = Duration::from_millis(250);
/// How often streams that fell silent are looked for.
const LOOK_FOR_IDLE: Duration = Duration::from_secs(60);
/// How long to wait before the log is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Number of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// What the ingest thread is told.
#[derive(Debug)]
pub(crate) enum Command {
    Hello { from: ConnectionId, hello: v1::Hello, replies: mpsc::UnboundedSender<Reply> },
    Frames { from: ConnectionId, key: Arc<Key>, frames: Vec<v1::Frame> },
    Closed { from: ConnectionId },
    SetPanic { on: bool, reason: String, done: oneshot::Sender<Mark> },
}

/// What a connection is told.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Say it once the mark is durable.
    Say { mark: Mark, response: v1::StreamResponse },
    /// One message of the connection has been dealt with; everything to be said about it has been.
    Handled,
    /// End the connection.
    Close { why: String, superseded: bool },
}

/// The latest samples of one frame, for watchers.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The stream they came from.
    pub key: Arc<Key>,
    /// One per container.
    pub usage: Arc<Vec<v1::ContainerUsage>>,
}

/// The handle to the threads.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) durable: watch::Receiver<Mark>,
    state: SharedState,
    health: Arc<Health>,
    live: broadcast::Sender<Tick>,
    next_connection: Arc<AtomicU64>,
}

/// Joins the threads.
#[derive(Debug)]
pub struct Threads {
    stop: Arc<AtomicBool>,
    ingest: JoinHandle<()>,
    sync: JoinHandle<()>,
    checkpoint: JoinHandle<()>,
}

/// What the three threads share.
#[derive(Debug)]
struct Shared {
    config: Config,
    state: SharedState,
    health: Arc<Health>,
    /// Present handle to the log and the number that makes marks of what it returns.
    syncer: Mutex<(SyncHandle, u64)>,
    /// The last sync failed: the log has to be opened anew.
    poisoned: AtomicBool,
    /// Number of the last checkpoint written, to be trimmed to; 0 = nothing to trim.
    trim_to: AtomicU64,
    /// A checkpoint is wanted now.
    checkpoint_due: AtomicBool,
    stop: Arc<AtomicBool>,
}

/// Microseconds since 1970 by the wall clock.
pub fn now_usec() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Engine {
    /// Starts the threads over an opened store.
    ///
    /// # Errors
    /// When the log is not open or a thread cannot be started.
    pub fn start(mut store: Store, config: &Config) -> anyhow::Result<(Self, Threads)> {
        let syncer = store.syncer()?;
        let durable = Mark(syncer.1 + syncer.0.durable().map_or(0, evenkeel_log::Seq::get));
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Arc::new(Shared {
            config: config.clone(),
            state: store.state(),
            health: Arc::default(),
            syncer: Mutex::new(syncer),
            poisoned: AtomicBool::new(false),
            trim_to: AtomicU64::new(0),
            checkpoint_due: AtomicBool::new(false),
            stop: Arc::clone(&stop),
        });
        let (commands, queue) = mpsc::channel(QUEUE);
        let (publish, durable) = watch::channel(durable);
        let (live, _) = broadcast::channel(LIVE_TICKS);
        let (wake_sync, sync_woken) = sync_channel(1);
        let (wake_checkpoint, checkpoint_woken) = sync_channel(1);
        let publish = Arc::new(publish);
        let engine = Self {
            commands,
            durable,
            state: store.state(),
            health: Arc::clone(&shared.health),
            live: live.clone(),
            next_connection: Arc::default(),
        };
        let ingest = Ingest {
            store,
            shared: Arc::clone(&shared),
            live,
            publish: Arc::clone(&publish),
            wake_sync,
            wake_checkpoint,
            owners: HashMap::new(),
            connections: HashMap::new(),
        };
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        // The thread waits for its queue with a timeout, for which the queue's library needs a timer of its own.
        let timer = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let ingest = named("ingest").spawn(move || ingest.run(&timer, queue))?;
        let (for_sync, for_checkpoint) = (Arc::clone(&shared), shared);
        let sync = named("sync").spawn(move || sync_loop(&for_sync, &sync_woken, &publish))?;
        let checkpoint =
            named("checkpoint").spawn(move || checkpoint_loop(&for_checkpoint, &checkpoint_woken))?;
        Ok((engine, Threads { stop, ingest, sync, checkpoint }))
    }

    /// The state.
    pub fn state(&self) -> &SharedState {
        &self.state
    }

    /// Counters and trouble.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Every second's samples from now on; a slow receiver loses the oldest.
    pub fn watch(&self) -> broadcast::Receiver<Tick> {
        self.live.subscribe()
    }

    /// Sets the panic switch; returns once that is durable.
    ///
    /// # Errors
    /// When ingest has stopped.
    pub async fn set_panic(&self, on: bool, reason: String) -> anyhow::Result<()> {
        let (done, marked) = oneshot::channel();
        self.commands.send(Command::SetPanic { on, reason, done }).await?;
        let mark = marked.await?;
        self.durable.clone().wait_for(|durable| *durable >= mark).await?;
        Ok(())
    }

    pub(crate) fn connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }
}

impl Threads {
    /// Asks the threads to end and waits for them; everything received is durable then, unless the disk fails.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for (name, thread) in [("ingest", self.ingest), ("sync", self.sync), ("checkpoint", self.checkpoint)]
        {
            if thread.join().is_err() {
                error!(thread = name, "a thread ended by a fault");
            }
        }
    }
}

/// The ingest thread.
struct Ingest {
    store: Store,
    shared: Arc<Shared>,
    live: broadcast::Sender<Tick>,
    publish: Arc<watch::Sender<Mark>>,
    wake_sync: SyncSender<()>,
    wake_checkpoint: SyncSender<()>,
    /// Which connection a stream belongs to, and whether its next frame is the first after the greeting.
    owners: HashMap<Key, (ConnectionId, bool)>,
    connections: HashMap<ConnectionId, mpsc::UnboundedSender<Reply>>,
}

impl Ingest {
    fn run(mut self, runtime: &Runtime, mut queue: mpsc::Receiver<Command>) {
        let mut looked = Instant::now();
        while !self.shared.stop.load(Ordering::SeqCst) {
            self.shared.health.beat();
            match runtime.block_on(async { timeout(ATTEND_EVERY, queue.recv()).await }) {
                Ok(Some(command)) => {
                    self.handle(command);
                    for _ in 1..BATCH {
                        let Ok(command) = queue.try_recv() else { break };
                        self.handle(command);
                    }
                    self.settle();
                }
                Ok(None) => break,
                Err(_) => self.attend(),
            }
            if looked.elapsed() > LOOK_FOR_IDLE {
                looked = Instant::now();
                self.persist("drop idle streams", |store| store.retire_idle(now_usec()).map(|_| ()));
            }
        }
        self.end();
    }

    fn handle(&mut self, command: Command) {
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
            Command::SetPanic { on, reason, done } => {
                let mark =
                    self.persist("set the panic switch", |s| s.set_panic(now_usec(), on, reason.clone()));
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
        let Some(greeting) = self.persist("greet", |store| store.hello(now_usec(), &hello)) else { return };
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
            let now = now_usec();
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

fn raise(durable: &mut Mark, to: Mark) -> bool {
    let more = to > *durable;
    *durable = to.max(*durable);
    more
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn sync_loop(shared: &Shared, woken: &Receiver<()>, publish: &watch::Sender<Mark>) {
    let interval = shared.config.log.sync_interval.get();
    let mut last = Instant::now().checked_sub(interval).unwrap_or_else(Instant::now);
    while !shared.stop.load(Ordering::SeqCst) {
        match woken.recv_timeout(Duration::from_millis(250)) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        thread::sleep(interval.saturating_sub(last.elapsed()));
        last = Instant::now();
        let (handle, base) = shared.syncer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match handle.sync() {
            Ok(durable) => {
                let took = u64::try_from(last.elapsed().as_micros()).unwrap_or(u64::MAX);
                count(&shared.health.syncs, 1);
                count(&shared.health.sync_usec, took);
                shared.health.sync_max_usec.fetch_max(took, Ordering::Relaxed);
                let mark = Mark(base + durable.map_or(0, evenkeel_log::Seq::get));
                publish.send_if_modified(|durable| raise(durable, mark));
            }
            Err(error) => {
                if shared.health.set_log_trouble(Some(chain(&error))) {
                    error!(
                        error = chain(&error),
                        "sync failed; nothing is acknowledged until the log is open anew"
                    );
                }
                shared.poisoned.store(true, Ordering::SeqCst);
            }
        }
    }
}

fn checkpoint_loop(shared: &Shared, woken: &Receiver<()>) {
    let interval = shared.config.log.checkpoint_interval.get();
    let mut last = Instant::now();
    let mut written = shared.state.read().applied;
    while !shared.stop.load(Ordering::SeqCst) {
        match woken.recv_timeout(Duration::from_millis(250)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let due = shared.checkpoint_due.load(Ordering::SeqCst);
        let aged = last.elapsed() >= interval && shared.state.read().applied != written;
        if !due && !aged {
            continue;
        }
        last = Instant::now();
        // Until the trim is asked for: the numbers of the log change when it is opened anew.
        let _writing = shared.state.checkpointing();
        let (applied, bytes) = {
            let state = shared.state.read();
            (state.applied, checkpoint::encode(&state))
        };
        match checkpoint::write(&shared.config.checkpoint_file(), &bytes) {
            Ok(()) => {
                written = applied;
                let took = u64::try_from(last.elapsed().as_micros()).unwrap_or(u64::MAX);
                count(&shared.health.checkpoints, 1);
                shared.health.checkpoint_bytes.store(bytes.len() as u64, Ordering::Relaxed);
                shared.health.checkpoint_usec.store(took, Ordering::Relaxed);
                if shared.health.set_checkpoint_trouble(None) {
                    info!("checkpoints are written again");
                }
                shared.trim_to.fetch_max(applied, Ordering::SeqCst);
            }
            Err(error) => {
                if shared.health.set_checkpoint_trouble(Some(chain(&error))) {
                    warn!(error = chain(&error), "no checkpoint; the log grows until one can be written");
                }
                thread::sleep(RETRY);
            }
        }
        shared.checkpoint_due.store(false, Ordering::SeqCst);
    }
}
