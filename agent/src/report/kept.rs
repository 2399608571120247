//! Decisions that must arrive: kept on disk, apart from frames, until the recommender has acknowledged the frame that
//! carries them.
//!
//! A frame may be folded, dropped for want of room, refused, or lost with a disk; a decision it carries must not be,
//! when it tells of a kill or of an offer. So each is written here first, attached to the next frame, and attached
//! again whenever that frame is lost or another run begins. The recommender may so be told twice; it knows a decision
//! by node, epoch and number, and counts it once. Owned here: which kinds, the bound, the file. Not owned: frames.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;

use evenkeel_enforce::decisions::KeepsDecisions;
use evenkeel_enforce::shared::lock;
use evenkeel_log::{Log, LogError, Options, Overflow, Seq, SyncHandle};
use evenkeel_model::decision::Decision;
use evenkeel_proto::v1;
use prost::Message as _;

/// Decisions kept at most. The rule when there are more: the oldest goes first, counted and told; it is still in the
/// decision log. The recommender remembers as many numbers of a node, so that none it is told again counts twice.
const KEPT: usize = 1024;
/// Bytes on disk: all that may be kept, and as much again before the oldest segment goes.
const DISK_BYTES: u64 = 8 << 20;
/// Largest decision kept.
const RECORD_BYTES: u32 = 64 << 10;

/// What is written: a decision, or that one is delivered.
#[derive(Clone, PartialEq, prost::Message)]
struct JournalRecord {
    #[prost(message, optional, tag = "1")]
    decision: Option<v1::Decision>,
    /// The decision of this epoch and number is delivered.
    #[prost(fixed64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    seq: u64,
}

/// Where a decision is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// To be attached to the next frame.
    Waiting,
    /// Given out for a frame that is being made.
    Taken,
    /// In a frame.
    Carried { epoch: u64, sequence: u64 },
}

struct JournalEntry {
    decision: v1::Decision,
    record: Option<Seq>,
    way: Way,
}

/// Everything that must arrive.
pub(crate) struct Kept {
    epoch: u64,
    inner: Mutex<JournalState>,
}

struct JournalState {
    disk: Option<Log>,
    entries: VecDeque<JournalEntry>,
    /// Dropped for want of room since this was last asked.
    dropped: u64,
    unsynced: bool,
}

impl Kept {
    /// What earlier runs did not get rid of, in `dir`; it goes with the frames of this run, `epoch`.
    ///
    /// # Errors
    /// When the directory cannot be used.
    pub(crate) fn open(dir: &Path, epoch: u64) -> Result<Self, LogError> {
        let options = Options {
            segment_bytes: DISK_BYTES / 16,
            max_bytes: DISK_BYTES,
            max_record_bytes: RECORD_BYTES,
            buffer_bytes: 64 << 10,
            overflow: Overflow::DropOldest,
            ..Options::default()
        };
        let (log, recovery) = Log::open(dir, options)?;
        for damage in &recovery.damage {
            tracing::warn!(%damage, "kept events were damaged; those before the damage are kept");
        }
        let mut entries: VecDeque<JournalEntry> = VecDeque::new();
        if let Some(first) = log.first() {
            for record in log.iter_from(first).flatten() {
                let Ok(JournalRecord { decision, epoch, seq }) =
                    JournalRecord::decode(record.payload.as_slice())
                else {
                    continue;
                };
                match decision {
                    Some(decision) => {
                        entries.push_back(JournalEntry {
                            decision,
                            record: Some(record.seq),
                            way: Way::Waiting,
                        });
                    }
                    None => entries.retain(|e| (e.decision.epoch, e.decision.seq) != (epoch, seq)),
                }
            }
        }
        let excess = entries.len().saturating_sub(KEPT);
        entries.drain(..excess);
        let inner = JournalState { disk: Some(log), entries, dropped: excess as u64, unsynced: false };
        Ok(Self { epoch, inner: Mutex::new(inner) })
    }

    /// Kept in memory alone, where the disk cannot be used.
    pub(crate) fn in_memory(epoch: u64) -> Self {
        let inner = JournalState { disk: None, entries: VecDeque::new(), dropped: 0, unsynced: false };
        Self { epoch, inner: Mutex::new(inner) }
    }

    /// Up to `max` decisions for a frame that is being made, oldest first; [`carried`](Self::carried) says what became
    /// of it.
    pub(crate) fn take(&self, max: usize) -> Vec<v1::Decision> {
        let mut inner = lock(&self.inner);
        let waiting = inner.entries.iter_mut().filter(|e| e.way == Way::Waiting).take(max);
        waiting
            .map(|entry| {
                entry.way = Way::Taken;
                entry.decision.clone()
            })
            .collect()
    }

    /// What was taken is in the frame of this epoch and sequence number, or in none.
    pub(crate) fn carried(&self, by: Option<(u64, u64)>) {
        let way = by.map_or(Way::Waiting, |(epoch, sequence)| Way::Carried { epoch, sequence });
        for entry in lock(&self.inner).entries.iter_mut().filter(|e| e.way == Way::Taken) {
            entry.way = way;
        }
    }

    /// Frames up to `last` of an epoch are durable at the recommender.
    pub(crate) fn acknowledged(&self, epoch: u64, last: u64) {
        let mut inner = lock(&self.inner);
        let is_done = |e: &JournalEntry| matches!(e.way, Way::Carried { epoch: of, sequence } if of == epoch && sequence <= last);
        if !inner.entries.iter().any(is_done) {
            return;
        }
        let (done, left) = std::mem::take(&mut inner.entries).into_iter().partition::<Vec<_>, _>(is_done);
        inner.entries = left.into();
        for entry in done {
            let record =
                JournalRecord { decision: None, epoch: entry.decision.epoch, seq: entry.decision.seq };
            if let Err(error) = inner.write(&record) {
                // Then it is told once more after a restart, and known there.
                tracing::debug!(%error, "ignoring: a delivered event was not crossed out");
            }
        }
        inner.trim();
    }

    /// Frames of an epoch moved to another, where their numbers are lower by `shift`.
    pub(crate) fn moved(&self, from: u64, to: u64, shift: u64) {
        for entry in &mut lock(&self.inner).entries {
            if let Way::Carried { epoch, sequence } = &mut entry.way
                && *epoch == from
            {
                (*epoch, *sequence) = (to, sequence.saturating_sub(shift));
            }
        }
    }

    /// Frames of an epoch are lost: what they carried goes with the next ones.
    pub(crate) fn lost(&self, epoch: u64, first: u64, last: u64) {
        for entry in &mut lock(&self.inner).entries {
            if let Way::Carried { epoch: of, sequence } = entry.way
                && of == epoch
                && (first..=last).contains(&sequence)
            {
                entry.way = Way::Waiting;
            }
        }
    }

    /// Decisions left out of a frame by epoch and number: they go with the next ones.
    pub(crate) fn left_out(&self, ids: &[(u64, u64)]) {
        for entry in &mut lock(&self.inner).entries {
            if ids.contains(&(entry.decision.epoch, entry.decision.seq)) {
                entry.way = Way::Waiting;
            }
        }
    }

    /// Decisions not acknowledged yet.
    pub(crate) fn len(&self) -> usize {
        lock(&self.inner).entries.len()
    }

    /// How many were dropped for want of room since this was last asked.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut lock(&self.inner).dropped)
    }
}

impl KeepsDecisions for Kept {
    fn add(&self, decision: &Decision) -> Result<(), LogError> {
        let decision = v1::Decision { epoch: self.epoch, ..decision.clone().into() };
        let mut inner = lock(&self.inner);
        if inner.entries.len() >= KEPT {
            inner.entries.pop_front();
            inner.dropped += 1;
        }
        let record = JournalRecord { decision: Some(decision), epoch: 0, seq: 0 };
        let written = inner.write(&record);
        let Some(decision) = record.decision else { return written.map(|_| ()) };
        let (record, result) = match written {
            Ok(seq) => (seq, Ok(())),
            Err(error) => (None, Err(error)),
        };
        inner.entries.push_back(JournalEntry { decision, record, way: Way::Waiting });
        inner.unsynced = true;
        result
    }

    fn unsynced(&self) -> Option<SyncHandle> {
        let mut inner = lock(&self.inner);
        let unsynced = std::mem::take(&mut inner.unsynced);
        inner.disk.as_ref().filter(|_| unsynced).map(Log::sync_handle)
    }
}

impl JournalState {
    /// Writes a record to the kernel.
    fn write(&mut self, record: &JournalRecord) -> Result<Option<Seq>, LogError> {
        let Some(disk) = self.disk.as_mut() else { return Ok(None) };
        let seq = disk.append(&record.encode_to_vec())?;
        disk.flush()?;
        // Only crossed-out ones are that old: the bound on entries is the smaller one.
        let _old = disk.take_dropped();
        Ok(Some(seq))
    }

    /// Frees what is before the oldest entry.
    fn trim(&mut self) {
        let oldest = self.entries.iter().find_map(|entry| entry.record);
        let Some(disk) = self.disk.as_mut() else { return };
        let upto = match oldest {
            Some(oldest) => oldest.prev(),
            None => disk.last(),
        };
        if let Some(upto) = upto
            && let Err(error) = disk.trim_to(upto)
        {
            tracing::debug!(%error, "ignoring: kept events that were delivered stay on disk for now");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use evenkeel_enforce::decisions::{Draft, must_arrive};
    use evenkeel_model::decision::DecisionKind;

    fn kill(seq: u64) -> Decision {
        Draft::node(DecisionKind::OomKill, "a kill").finish(seq, seq)
    }

    fn ids(taken: &[v1::Decision]) -> Vec<(u64, u64)> {
        taken.iter().map(|d| (d.epoch, d.seq)).collect()
    }

    #[test]
    fn kept_until_the_frame_that_carries_it_is_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::open(dir.path(), 7).unwrap();
        (1..=3).for_each(|seq| kept.add(&kill(seq)).unwrap());
        assert_eq!(ids(&kept.take(2)), [(7, 1), (7, 2)]);
        kept.carried(Some((7, 10)));
        assert_eq!(ids(&kept.take(9)), [(7, 3)]);
        // No frame could be made of it.
        kept.carried(None);
        assert_eq!(ids(&kept.take(9)), [(7, 3)]);
        kept.carried(Some((7, 11)));
        kept.acknowledged(7, 9);
        kept.acknowledged(8, 99);
        assert_eq!((kept.len(), kept.take(9).len()), (3, 0));
        kept.acknowledged(7, 10);
        kept.lost(7, 11, 12);
        assert_eq!(ids(&kept.take(9)), [(7, 3)]);
        kept.carried(Some((7, 13)));
        drop(kept);
        // Another run does not know what became of frame 13.
        let kept = Kept::open(dir.path(), 8).unwrap();
        kept.add(&kill(4)).unwrap();
        assert_eq!(ids(&kept.take(9)), [(7, 3), (8, 4)]);
        kept.carried(Some((8, 1)));
        kept.left_out(&[(7, 3)]);
        assert_eq!(ids(&kept.take(9)), [(7, 3)]);
        kept.carried(Some((8, 2)));
        kept.acknowledged(8, 2);
        drop(kept);
        assert_eq!(Kept::open(dir.path(), 9).unwrap().len(), 0);
    }

    #[test]
    fn the_oldest_goes_first_and_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::open(dir.path(), 1).unwrap();
        (0..KEPT as u64 + 10).for_each(|seq| kept.add(&kill(seq)).unwrap());
        assert_eq!((kept.len(), kept.take_dropped(), kept.take_dropped()), (KEPT, 10, 0));
        assert_eq!(ids(&kept.take(1)), [(1, 10)]);
        drop(kept);
        let kept = Kept::open(dir.path(), 2).unwrap();
        assert_eq!((kept.len(), ids(&kept.take(1))), (KEPT, vec![(1, 10)]));
    }

    #[test]
    fn kinds_that_must_arrive() {
        use DecisionKind::{Evict, Found, Kill, OomKill, Relieve, Restart, Set};
        for (kind, must) in [
            (OomKill, true),
            (Kill, true),
            (Evict, true),
            (Restart, true),
            (Set, false),
            (Found, false),
            (Relieve, false),
        ] {
            assert_eq!(must_arrive(kind), must, "{kind:?}");
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Decide,
        Frame,
        FrameFails,
        Acknowledge,
        Lose,
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Decide), 3 => Just(Step::Frame), 1 => Just(Step::FrameFails),
            2 => Just(Step::Acknowledge), 1 => Just(Step::Lose), 1 => Just(Step::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn nothing_is_forgotten_before_it_was_acknowledged(steps in prop::collection::vec(step(), 1..40)) {
            let dir = tempfile::tempdir().unwrap();
            let (mut epoch, mut seq, mut sequence) = (1, 0, 0);
            let mut kept = Kept::open(dir.path(), epoch).unwrap();
            let mut arrived = std::collections::BTreeSet::new();
            let mut frames: Vec<Vec<u64>> = Vec::new();
            for step in steps.into_iter().chain([Step::Frame, Step::Acknowledge]) {
                match step {
                    Step::Decide => {
                        seq += 1;
                        kept.add(&kill(seq)).unwrap();
                    }
                    Step::Frame => {
                        sequence += 1;
                        frames.push(kept.take(usize::MAX).iter().map(|d| d.seq).collect());
                        kept.carried(Some((epoch, sequence)));
                    }
                    Step::FrameFails => {
                        kept.take(usize::MAX);
                        kept.carried(None);
                    }
                    Step::Acknowledge => {
                        arrived.extend(frames.drain(..).flatten());
                        kept.acknowledged(epoch, sequence);
                    }
                    Step::Lose => {
                        frames.clear();
                        kept.lost(epoch, 1, sequence);
                    }
                    Step::Restart => {
                        // Its frames may have been lost with it.
                        frames.clear();
                        drop(kept);
                        (epoch, sequence) = (epoch + 1, 0);
                        kept = Kept::open(dir.path(), epoch).unwrap();
                    }
                }
            }
            prop_assert_eq!(arrived.len() as u64, seq);
            prop_assert_eq!(kept.len(), 0);
        }
    }
}
