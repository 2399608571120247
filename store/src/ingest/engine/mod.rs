//! Owns the threads of ingest and what joins them.
//!
//! - *ingest* owns the [`Store`]: it takes commands from a bounded queue, judges and logs them, and flushes once per
//!   batch. When the log cannot take a record (disk full) it keeps the record, tries again every second and takes nothing
//!   new; the queue fills, clients wait, nothing is acknowledged. Questions are still answered.
//! - *count* counts what was logged.
//! - *sync* makes what was flushed durable, at most every `log.sync_interval`, and publishes the mark: as a rule once it is
//!   counted as well, and after `ingest.count_within` in any case.
//! - *checkpoint* writes the state beside while ingest goes on, then asks for the log to be trimmed.

mod count;
mod disk;
mod rivals;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use evenkeel_log::SyncHandle;
use evenkeel_model::panic::Panic;
use evenkeel_proto::v1;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tracing::error;

use super::backlog::Backlog;
use super::health::Health;
use super::room::Room;
use super::store::{Mark, PanicWish, SharedState, Store};
use crate::clock::WallClock;
use crate::config::Settings;
use crate::key::StreamKey;
use crate::state::PanicSwitch;
use count::count_loop;
use disk::{checkpoint_loop, sync_loop};
use rivals::Rivals;
use worker::Ingest;

/// Messages waiting for the ingest thread. Each is at most `ingest.max_message`, so this bounds memory.
const QUEUE: usize = 32;
/// Ticks a slow watcher may be behind before it loses some.
const LIVE_TICKS: usize = 256;
/// How long to wait before the log is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Number of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// What the ingest thread is told.
#[derive(Debug)]
pub enum IngestCommand {
    /// A connection greets, or greets again.
    Hello {
        /// The connection.
        from: ConnectionId,
        /// What it says of itself.
        hello: v1::Hello,
        /// Who sends, as [`OWN`](super::store::OWN) or another identity.
        owner: String,
        /// Where it is answered.
        replies: mpsc::UnboundedSender<Reply>,
    },
    /// A connection has answered a ping.
    Alive {
        /// The connection.
        from: ConnectionId,
    },
    /// Frames of a stream.
    Frames {
        /// The connection.
        from: ConnectionId,
        /// The stream.
        key: Arc<StreamKey>,
        /// The frames, in order.
        frames: Vec<v1::Frame>,
    },
    /// A connection has ended.
    Closed {
        /// The connection.
        from: ConnectionId,
    },
    /// The panic switch is to be set.
    SetPanic {
        /// What to.
        switch: Panic,
        /// Why.
        reason: String,
        /// Which wish it is.
        wish: PanicWish,
        /// Told the mark with which it is durable.
        done: oneshot::Sender<Mark>,
    },
}

/// What a connection is told.
#[derive(Debug)]
pub enum Reply {
    /// Say it once the mark is durable.
    Say {
        /// What has to be durable before.
        mark: Mark,
        /// The message.
        response: v1::StreamResponse,
    },
    /// One message of the connection has been dealt with; everything to be said about it has been.
    Handled,
    /// Ask the client whether it lives.
    Ping,
    /// End the connection.
    Close {
        /// Why, for people.
        why: String,
        /// Why, for programs.
        because: Because,
    },
}

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    /// Another agent of the same name lives, or has taken its place.
    Rival,
    /// A newer connection has taken its place.
    Superseded,
    /// Another identity opened the epoch.
    Owned,
    /// The sequence is over: the agent goes on as a new epoch.
    Over,
    /// A frame was out of order: the next connection is told where to go on.
    OutOfOrder,
}

/// The latest samples of one frame, for watchers.
#[derive(Debug, Clone)]
pub struct Tick {
    /// The stream they came from.
    pub key: Arc<StreamKey>,
    /// One per container.
    pub usage: Arc<Vec<v1::ContainerUsage>>,
}

/// The handle to the threads.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) commands: mpsc::Sender<IngestCommand>,
    pub(crate) durable: watch::Receiver<Mark>,
    state: SharedState,
    health: Arc<Health>,
    #[cfg(test)]
    backlog: Arc<Backlog>,
    live: broadcast::Sender<Tick>,
    next_connection: Arc<AtomicU64>,
    clock: WallClock,
}

/// Joins the threads.
#[derive(Debug)]
pub struct Threads {
    stop: Arc<AtomicBool>,
    ingest: JoinHandle<()>,
    count: JoinHandle<()>,
    sync: JoinHandle<()>,
    checkpoint: JoinHandle<()>,
}

/// What the threads share.
#[derive(Debug)]
struct IngestShared {
    config: Settings,
    state: SharedState,
    health: Arc<Health>,
    /// What is logged and not counted yet.
    backlog: Arc<Backlog>,
    /// Present handle to the log and the number that makes marks of what it returns.
    syncer: Mutex<(SyncHandle, u64)>,
    /// The last sync failed: the log has to be opened anew.
    poisoned: AtomicBool,
    /// Number of the last checkpoint written, to be trimmed to; 0 = nothing to trim.
    trim_to: AtomicU64,
    /// Room kept on the disk for a checkpoint.
    room: Room,
    /// A checkpoint is wanted now.
    checkpoint_due: AtomicBool,
    stop: Arc<AtomicBool>,
}

impl Engine {
    /// Starts the threads over an opened store; `clock` is the machine's.
    ///
    /// # Errors
    /// When the log is not open or a thread cannot be started.
    pub fn start(mut store: Store, config: &Settings, clock: WallClock) -> anyhow::Result<(Self, Threads)> {
        let syncer = store.syncer()?;
        let durable = Mark(syncer.1 + syncer.0.durable().map_or(0, evenkeel_log::Seq::get));
        let stop = Arc::new(AtomicBool::new(false));
        let backlog = Arc::new(Backlog::default());
        store.counted_by(Arc::clone(&backlog));
        let shared = Arc::new(IngestShared {
            config: config.clone(),
            state: store.state(),
            health: Arc::default(),
            backlog,
            syncer: Mutex::new(syncer),
            poisoned: AtomicBool::new(false),
            trim_to: AtomicU64::new(0),
            room: store.room(),
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
            #[cfg(test)]
            backlog: Arc::clone(&shared.backlog),
            live: live.clone(),
            next_connection: Arc::default(),
            clock: clock.clone(),
        };
        let ingest = Ingest {
            store,
            shared: Arc::clone(&shared),
            publish: Arc::clone(&publish),
            wake_sync,
            wake_checkpoint,
            owners: HashMap::new(),
            connections: HashMap::new(),
            rivals: Rivals::default(),
            clock,
            taken: Instant::now(),
        };
        let named = |name: &str| thread::Builder::new().name(name.to_owned());
        // The thread waits for its queue with a timeout, for which the queue's library needs a timer of its own.
        let timer = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let ingest = named("ingest").spawn(move || ingest.run(&timer, queue))?;
        let (for_count, for_sync, for_checkpoint) = (Arc::clone(&shared), Arc::clone(&shared), shared);
        let count = named("count").spawn(move || count_loop(&for_count, &for_count.backlog, &live))?;
        let sync = named("sync").spawn(move || sync_loop(&for_sync, &sync_woken, &publish))?;
        let checkpoint =
            named("checkpoint").spawn(move || checkpoint_loop(&for_checkpoint, &checkpoint_woken))?;
        Ok((engine, Threads { stop, ingest, count, sync, checkpoint }))
    }

    /// What time it is, microseconds since 1970: the machine's clock, corrected where several nodes of one mind contradict it.
    pub fn now_usec(&self) -> u64 {
        self.clock.now_usec().saturating_add_signed(self.health.clock_correction())
    }

    /// Where the ingest thread takes what connections tell it; a full queue makes them wait.
    pub const fn commands(&self) -> &mpsc::Sender<IngestCommand> {
        &self.commands
    }

    /// The newest mark that is durable, and all that follow.
    pub fn durable(&self) -> watch::Receiver<Mark> {
        self.durable.clone()
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

    /// Sets the panic switch; returns once that is durable. Switched on it is in force from this call on, before anything is
    /// awaited: a log that cannot be written keeps nobody from stopping changes.
    ///
    /// # Errors
    /// When ingest has stopped.
    pub fn set_panic(
        &self,
        switch: Panic,
        reason: String,
    ) -> impl Future<Output = anyhow::Result<()>> + Send + 'static {
        let wish = self.state.wish_panic(PanicSwitch::set(switch, reason.clone(), self.clock.now_usec()));
        let (commands, mut durable) = (self.commands.clone(), self.durable.clone());
        async move {
            let (done, marked) = oneshot::channel();
            commands.send(IngestCommand::SetPanic { switch, reason, wish, done }).await?;
            let mark = marked.await?;
            durable.wait_for(|durable| *durable >= mark).await?;
            Ok(())
        }
    }

    /// A number for a connection that begins.
    pub fn connection(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }
}

impl Threads {
    /// Asks the threads to end and waits for them; everything received is durable then, unless the disk fails.
    pub fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        let Self { ingest, count, sync, checkpoint, .. } = self;
        for (name, thread) in
            [("ingest", ingest), ("count", count), ("sync", sync), ("checkpoint", checkpoint)]
        {
            if thread.join().is_err() {
                error!(thread = name, "a thread ended by a fault");
            }
        }
    }
}

fn raise(durable: &mut Mark, to: Mark) -> bool {
    let more = to > *durable;
    *durable = to.max(*durable);
    more
}
