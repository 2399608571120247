//! What the report thread and the stream client share: the spool, the bell for new frames, the wish for a key frame.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use evenkeel_enforce::decisions::Draft;
use evenkeel_enforce::shared::lock;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use tokio::sync::Notify;

use super::spool::{News, Spool, SpoolError};
use crate::decisions::Decisions;
use crate::shared::Stats;

/// The spool between the thread that fills it and the task that empties it.
pub(super) struct Outbox {
    spool: Mutex<Spool>,
    /// Rung after each frame, one for each recommender.
    appended: Vec<Notify>,
    /// The recommender cannot decode what it is sent; cleared by the key frame that helps.
    key_wanted: AtomicBool,
}

impl Outbox {
    /// Between a spool and so many recommenders.
    pub(super) fn new(spool: Spool, readers: usize) -> Self {
        let appended = (0..readers).map(|_| Notify::new()).collect();
        Self { spool: Mutex::new(spool), appended, key_wanted: AtomicBool::new(false) }
    }

    /// A frame was appended.
    pub(super) fn ring(&self) {
        self.appended.iter().for_each(Notify::notify_one);
    }

    /// Waits for a frame after the last one that this recommender's client waited for.
    pub(super) async fn appended(&self, reader: usize) {
        match self.appended.get(reader) {
            Some(bell) => bell.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Works on the spool; called from plain threads.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Spool) -> T) -> T {
        work(&mut lock(&self.spool))
    }

    /// Works on the spool from a task: file operations, and waiting for a fold, happen on a blocking thread.
    pub(super) async fn with_later<T, F>(self: &Arc<Self>, work: F) -> Result<T, SpoolError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Spool) -> Result<T, SpoolError> + Send + 'static,
    {
        let this = Arc::clone(self);
        // A panic there is a bug that has been printed; the connection ends and is made again.
        tokio::task::spawn_blocking(move || this.with(work)).await.unwrap_or(Err(SpoolError::Vanished))
    }

    /// Asks for a key frame.
    pub(super) fn want_key(&self) {
        self.key_wanted.store(true, Ordering::Release);
    }

    /// Whether a key frame is wanted; asked once per frame.
    pub(super) fn take_key_wish(&self) -> bool {
        self.key_wanted.swap(false, Ordering::AcqRel)
    }

    /// Tells what was folded and lost, as counters and decisions.
    pub(super) fn tell(news: News, bytes: u64, decisions: &Decisions, stats: &Stats) {
        stats.spool_bytes.set(bytes);
        Self::tell_kept(&news, decisions, stats);
        if news.folded > 0 {
            stats.frames_folded.add(news.folded);
            tracing::info!(frames = news.folded, "spooled seconds were folded into minutes to make room");
        }
        let frames: u64 = news.lost.iter().map(|lost| lost.last - lost.first + 1).sum();
        let Some(first) = news.lost.first() else { return };
        stats.frames_dropped.add(frames);
        tracing::warn!(frames, epoch = first.epoch, first = first.first, "frames were lost");
        let reason = match news.lost.iter().all(|lost| lost.elsewhere) {
            true => {
                "frames were lost for a recommender that is away, and are with another: the spool is full; reconnect it, \
                 take it out of stream.recommender, or raise stream.spool_bytes"
            }
            false => {
                "frames never acknowledged were lost: the spool is full or cannot be written; \
                 reconnect the recommender, free space, or raise stream.spool_bytes"
            }
        };
        let draft = Draft::node(DecisionKind::Agent, reason)
            .result(DecisionResult::Failed)
            .input("frames", frames)
            .input("epoch", format!("{:016x}", first.epoch))
            .input("first", first.first)
            .input("spool_bytes", bytes);
        decisions.record(draft, &stats.enforce);
    }
    /// What lost frames carried of what must arrive goes with the next ones.
    fn tell_kept(news: &News, decisions: &Decisions, stats: &Stats) {
        let Some(kept) = decisions.kept() else { return };
        news.lost.iter().for_each(|lost| kept.lost(lost.epoch, lost.first, lost.last));
        kept.left_out(&news.left_out);
        stats.events_waiting.set(kept.len() as u64);
        let dropped = kept.take_dropped();
        if dropped == 0 {
            return;
        }
        stats.events_dropped.add(dropped);
        let reason = "events that the recommender never acknowledged made room for newer ones, the oldest first; \
                      they are in the decision log of this node only: reconnect the recommender";
        tracing::warn!(dropped, "{reason}");
        let draft = Draft::node(DecisionKind::Agent, reason).result(DecisionResult::Failed);
        decisions.record(draft.input("events", dropped), &stats.enforce);
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1;

    use super::super::frames::Framer;
    use super::super::test_support::{first_tick, tick};
    use super::*;
    use crate::report::kept::Kept;

    const EPOCH: u64 = 7;
    /// Containers of each frame, so that a small spool is full soon.
    const SLOTS: std::ops::Range<u32> = 1..301;

    /// What the report thread does with one tick.
    fn second(spool: &mut Spool, framer: &mut Framer, log: &Decisions, stats: &Stats, second: u64) {
        let kept = log.kept().unwrap();
        let tick = if second == 1 { first_tick(1, SLOTS) } else { tick(second, SLOTS) };
        let frame = framer.frame(&tick, &[], kept.take(64)).unwrap();
        kept.carried(spool.append(frame).ok().map(|sequence| (EPOCH, sequence)));
        Outbox::tell(spool.take_news(), spool.bytes(), log, stats);
    }

    fn carried(spool: &mut Spool) -> Vec<v1::Decision> {
        let frames = spool.read(0, EPOCH, 0, usize::MAX, usize::MAX);
        frames.into_iter().flat_map(|frame| frame.decisions).filter(|d| d.epoch != 0).collect()
    }

    fn fill(is_read: bool, until: impl Fn(&Stats) -> bool) -> Vec<v1::Decision> {
        let (dir, stats) = (tempfile::tempdir().unwrap(), Stats::default());
        let log = Decisions::in_memory(Some(Kept::in_memory(EPOCH)));
        let (mut spool, mut framer) =
            (Spool::open(dir.path(), EPOCH, 1 << 20, &["a".to_owned()]).unwrap(), Framer::default());
        log.record(Draft::node(DecisionKind::OomKill, "a kill"), &stats.enforce);
        for time in 1..20_000 {
            second(&mut spool, &mut framer, &log, &stats, time);
            if is_read {
                // Sent and never acknowledged: it may not be folded, only dropped.
                spool.read(0, EPOCH, time - 1, usize::MAX, usize::MAX);
            }
            if until(&stats) {
                second(&mut spool, &mut framer, &log, &stats, time + 1);
                assert_eq!(stats.events_waiting.get(), 1);
                return carried(&mut spool);
            }
        }
        panic!("the spool never became full");
    }

    #[test]
    fn what_must_arrive_outlives_the_frame_that_was_dropped_for_want_of_room() {
        let carried = fill(true, |stats| stats.frames_dropped.get() > 0);
        assert_eq!(carried.iter().map(|d| (d.epoch, d.seq)).collect::<Vec<_>>(), [(EPOCH, 1)]);
    }

    #[test]
    fn what_must_arrive_is_in_the_minutes_that_seconds_became() {
        let carried = fill(false, |stats| stats.frames_folded.get() > 0);
        assert_eq!(carried.iter().map(|d| (d.epoch, d.seq)).collect::<Vec<_>>(), [(EPOCH, 1)]);
    }
}
