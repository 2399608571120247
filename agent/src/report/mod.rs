//! The report thread and the stream client: ticks become frames, frames go to the spool, the spool to the
//! recommender.
//!
//! Owned here: the order of frames within the epoch, live use, what is told about frames folded or lost. Not owned:
//! the codec and the wire (`evenkeel_proto`), files (`evenkeel_log`), sampling.

mod backoff;
mod canonical;
mod earlier;
mod frames;
pub(crate) mod kept;
mod leaders;
mod live;
mod outbox;
pub(crate) mod quality;
mod recent;
mod ring;
mod spool;
mod stream;
#[cfg(test)]
pub(crate) mod test_support;
mod throttled;

use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_enforce::damage::StateFile;
use evenkeel_enforce::decisions::{Draft, now_usec};
use evenkeel_enforce::oom::HintSender;
use evenkeel_enforce::shared::{Heartbeat, lock};
use evenkeel_log::LogError;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_proto::frame::FrameError;
use evenkeel_proto::v1;

use crate::decisions::Decisions;
use crate::sample::Ticks;
use crate::shared::{Context, LiveBus, Tick};

use canonical::Canonical;
use frames::Framer;
use leaders::Leaders;
pub(crate) use live::Latest;
use outbox::Outbox;
pub(crate) use ring::{NotKept, PastSecond, Ring};
use spool::{Spool, SpoolError};
pub(crate) use throttled::Throttling;

/// The latest samples, written by the report thread once a tick and read by whoever answers questions.
pub(crate) type LatestUse = Arc<Mutex<Latest>>;

/// Directory of the spool below the state directory.
const SPOOL_DIR: &str = "spool";

/// Decisions attached to one frame at most; the rest goes with the next ones.
const DECISIONS_PER_FRAME: usize = 256;

/// Decisions that must arrive, attached to one frame at most.
const KEPT_PER_FRAME: usize = 64;

/// The thread shows that it lives at least this often, also when no tick comes.
const BEAT: Duration = Duration::from_secs(2);

/// Where a second of samples goes on this node.
pub(crate) struct Outlets {
    /// Who watches.
    pub(crate) live: LiveBus,
    /// The latest use, which decisions look at.
    pub(crate) usage: LatestUse,
    /// The watch of OOM kills.
    pub(crate) hints: HintSender,
    /// The last hours, where they are kept.
    pub(crate) ring: Option<Arc<Ring>>,
}

/// Starts the report thread and, on `runtime`, a stream client for each recommender that is configured. A spool that
/// cannot be opened is reported; watching and metrics work without it.
///
/// # Errors
/// When the thread cannot be made.
pub(crate) fn start(
    context: &Arc<Context>,
    ticks: Ticks,
    decisions: &Arc<Decisions>,
    outlets: Outlets,
    heartbeat: Arc<Heartbeat>,
    runtime: &tokio::runtime::Handle,
) -> anyhow::Result<JoinHandle<()>> {
    let outbox = open_outbox(context);
    let streams = if outbox.is_some() { context.config.stream.recommenders.len() } else { 0 };
    let leaders = Arc::new(Leaders::of(streams));
    for at in 0..streams {
        let Some(outbox) = outbox.clone() else { continue };
        let (context, decisions) = (Arc::clone(context), Arc::clone(decisions));
        let leaders = Arc::clone(&leaders);
        runtime.spawn(crate::panics::restarted("stream", move || {
            let (context, outbox) = (Arc::clone(&context), Arc::clone(&outbox));
            stream::Client::new(context, outbox, Arc::clone(&decisions), at, Arc::clone(&leaders)).run()
        }));
    }
    let mut reporter = Reporter {
        context: Arc::clone(context),
        decisions: Arc::clone(decisions),
        outbox,
        ring: outlets.ring,
        canonical: Canonical::new(context.config.cpu_factor),
        framer: Framer::default(),
        latest: outlets.usage,
        live: outlets.live,
        hints: outlets.hints,
    };
    let work = move || {
        loop {
            match ticks.full.recv_timeout(BEAT) {
                Ok(tick) => {
                    reporter.take(&tick);
                    // The sampler ends before this thread does; then nobody needs the buffer.
                    let _ignored = ticks.empty.try_send(tick);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            heartbeat.beat();
        }
        if let Some(ring) = &reporter.ring {
            ring.end(&reporter.context.stats);
        }
    };
    thread::Builder::new().name("report".to_owned()).spawn(work).context("cannot start the report thread")
}

/// Reads, on a thread that ends with it, what containers used in the minute before, which the run of the agent before this one
/// left in the ring. To be called before anything is sampled.
pub(crate) fn look_back(ring: &Arc<Ring>, usage: &LatestUse) {
    let until = now_usec();
    let (ring, usage) = (Arc::clone(ring), Arc::clone(usage));
    let work = move || match ring.earlier(until.saturating_sub(earlier::ASKED), until) {
        Ok(earlier) => lock(&usage).remember(earlier),
        Err(error) => tracing::warn!(
            error = format!("{error:#}"),
            "kills of the first minute are told without the seconds before the agent was started"
        ),
    };
    if let Err(error) = thread::Builder::new().name("look-back".to_owned()).spawn(work) {
        tracing::warn!(%error, "cannot start a thread that looks back; kills of the first minute are told without");
    }
}

/// A number for a new epoch: two of all nodes are never the same.
///
/// # Errors
/// When the kernel gives no random bytes.
pub(crate) fn new_epoch() -> anyhow::Result<u64> {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    let mut file = std::fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    file.read_exact(&mut bytes).context("cannot read /dev/urandom")?;
    Ok(u64::from_ne_bytes(bytes))
}

fn open_outbox(context: &Context) -> Option<Arc<Outbox>> {
    let stream = &context.config.stream;
    if stream.recommenders.is_empty() {
        return None;
    }
    let dir = context.config.enforce.state_dir.join(SPOOL_DIR);
    match Spool::open(&dir, context.epoch, stream.spool_bytes, &stream.recommenders) {
        Ok(spool) => {
            context.stats.spool_bytes.set(spool.bytes());
            context.stats.enforce.damages.take(StateFile::Slots, &dir, spool.damaged());
            Some(Arc::new(Outbox::new(spool, stream.recommenders.len())))
        }
        Err(error) => {
            let error =
                format!("nothing is streamed: the spool in {} cannot be opened: {error}", dir.display());
            tracing::error!(%error);
            for at in 0..stream.recommenders.len() {
                context.stats.streams.with(at, |state| state.last_error = Some(error.clone()));
            }
            None
        }
    }
}

/// What the report thread owns.
struct Reporter {
    context: Arc<Context>,
    decisions: Arc<Decisions>,
    outbox: Option<Arc<Outbox>>,
    ring: Option<Arc<Ring>>,
    /// Where a core of this node is not a canonical one.
    canonical: Option<Canonical>,
    framer: Framer,
    latest: LatestUse,
    live: LiveBus,
    hints: HintSender,
}

impl Reporter {
    fn take(&mut self, tick: &Tick) {
        let mut latest = lock(&self.latest);
        latest.follow(self.context.enforce.overlays.in_force());
        latest.take(tick, &mut |hint| self.hints.send(hint));
        if self.live.receiver_count() > 0 {
            // The last watcher may leave in between.
            let _ignored = self.live.send(Arc::new(latest.live(tick)));
        }
        drop(latest);
        if self.outbox.is_none() && self.ring.is_none() {
            return;
        }
        let outbox = self.outbox.clone();
        let Some(frame) = self.frame(tick, outbox.as_deref()) else { return };
        if let Some(ring) = &self.ring {
            let all = || lock(&self.latest).tracked().map(frames::announcement).collect();
            ring.take(&frame, tick.time_usec, all, &self.context.stats);
        }
        let Some(outbox) = outbox else { return };
        let told = match &mut self.canonical {
            Some(canonical) => canonical.frame(tick, frame),
            None => Ok(frame),
        };
        if let Some(frame) = self.or_lost(told) {
            self.spool(&outbox, frame);
        }
    }

    /// The tick as a frame, made once for the ring and the stream; decisions travel with the latter.
    fn frame(&mut self, tick: &Tick, outbox: Option<&Outbox>) -> Option<v1::Frame> {
        if outbox.is_some_and(Outbox::take_key_wish) {
            self.framer.start_anew();
        }
        let (decisions, kept) = match outbox {
            Some(_) => {
                let kept = self.decisions.kept().map(|kept| kept.take(KEPT_PER_FRAME));
                (self.decisions.take_for_stream(DECISIONS_PER_FRAME), kept.unwrap_or_default())
            }
            None => Default::default(),
        };
        let framed = self.framer.frame(tick, &decisions, kept);
        self.or_lost(framed)
    }

    /// The frame; says that its tick is lost where there is none.
    fn or_lost(&mut self, framed: Result<v1::Frame, FrameError>) -> Option<v1::Frame> {
        match framed {
            Ok(frame) => Some(frame),
            Err(error) => {
                self.framer.start_anew();
                self.carried(None);
                self.context.stats.frames_dropped.add(1);
                tracing::error!(%error, "a tick could not be encoded and is lost");
                None
            }
        }
    }

    fn spool(&mut self, outbox: &Outbox, frame: v1::Frame) {
        let stats = &self.context.stats;
        let (result, epoch, news, bytes) = outbox.with(|spool| {
            // Of one epoch: both may be renewed in between.
            let (result, epoch) = (spool.append(frame), spool.current());
            self.carried(result.as_ref().ok().map(|sequence| (epoch, *sequence)));
            if let Err(SpoolError::Log(LogError::Deleted { .. })) = &result {
                self.start_over(spool);
            }
            (result, epoch, spool.take_news(), spool.bytes())
        });
        *lock(&stats.epoch) = Some(epoch);
        match result {
            Ok(_) => stats.frames_written.add(1),
            Err(error) => {
                self.framer.start_anew();
                tracing::warn!(%error, "a frame could not be spooled and is lost");
            }
        }
        Outbox::tell(news, bytes, &self.decisions, stats);
        outbox.ring();
    }

    /// Somebody deleted the spool: a new epoch begins in a new directory.
    fn start_over(&self, spool: &mut Spool) {
        let said = match new_epoch().and_then(|new| Ok(spool.start_over(new)?)) {
            Ok(()) => {
                "the spool was deleted while the agent ran; a new one was begun, frames that waited in it are lost"
            }
            Err(error) => {
                tracing::error!(
                    error = format!("{error:#}"),
                    "the spool was deleted, and a new one cannot be begun"
                );
                return;
            }
        };
        tracing::error!("{said}");
        let draft = Draft::node(DecisionKind::Agent, said).result(DecisionResult::Failed);
        self.decisions.record(draft, &self.context.stats.enforce);
    }

    /// What was kept is in the frame of this epoch and number, or in none.
    fn carried(&self, by: Option<(u64, u64)>) {
        if let Some(kept) = self.decisions.kept() {
            kept.carried(by);
        }
    }
}
