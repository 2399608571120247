//! Owns what is durable: the ingest log, the state made of it, and the checkpoint that lets the log be trimmed.
//!
//! One thread owns the store and everything passes through it in one order: judge, append, count. The state changes only
//! after the record was taken by the log, so a failed append leaves nothing behind and is simply tried again. Where another
//! thread counts (`backlog.rs`), the state may be behind the log; what is judged is judged by the log (`heads.rs`).
//!
//! Durability is told in *marks*, numbers that grow with every record of this process and are never reused; the log's own
//! numbers are assigned again after a failed sync. A client hears of a record when its mark is durable.
//!
//! What is sealed goes to the history's files before the checkpoint that does not hold it any more: see `save.rs`.
//!
//! A checkpoint may be ahead of the log: it is durable by itself. Whenever the log ends before the checkpoint's number
//! (its tail was lost in a crash, set aside as damaged, or cut off after a failed sync), a new checkpoint with the log's
//! own last number is written before anything is appended, so that no number is ever passed over in a replay.

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_log::private::{self, NotPrivate};
use evenkeel_log::{Log, LogError, Options, Overflow, Recovery, Seq, SyncHandle};
use evenkeel_model::panic::Panic;
use evenkeel_proto::v1;

use super::backlog::{Backlog, Logged};
use super::heads::{Heads, StreamHead};
pub use super::outcome::{FrameOutcome, Greeting, Mark, OpenReport, StoreError};
use super::placing::{self, Places, Placing};
use super::record::{self, IngestEntry, Judged, LogRecord, LostFrames, Owned, RecordError, Taken};
use super::room::Room;
use super::save::{load_state, save_in_room};
pub use super::shared::{PanicWish, SharedState};
use super::stream_state::{FrameVerdict, Range};
use crate::backup::is_half_restored;
use crate::config::Settings;
use crate::history::exchange::Batch;
use crate::key::{NodeKey, StreamKey};
use crate::state::kills::Killed;
use crate::state::{PanicSwitch, RecordOutcome};

/// The owner of an epoch that was opened by a credential of its node alone.
pub const OWN: &str = "node";

/// Room a record needs besides its frame: names and lengths, and what is said of containers.
const RECORD_SLACK: u64 = 256 << 10;
/// Kills in one record, each with names of at most 1.2 KiB.
const KILLS_AT_ONCE: usize = 100;

/// The ingest log and the state made of it.
#[derive(Debug)]
pub struct Store {
    /// Absent only after a failed sync, until the log could be opened anew.
    log: Option<Log>,
    state: SharedState,
    options: Options,
    config: Settings,
    /// Marks are the log's numbers plus this.
    base: u64,
    /// Mark of the newest record.
    newest: Mark,
    buffer: Vec<u8>,
    /// Bytes logged since the last checkpoint was taken.
    behind_bytes: u64,
    /// Room kept on the disk for a checkpoint.
    room: Room,
    /// Where streams stand in the log.
    heads: Heads,
    /// Where records wait for another thread to count them; without it they are counted at once.
    backlog: Option<Arc<Backlog>>,
    /// The API of a cluster, which says whose history a node may tell.
    places: Option<Arc<dyn Places>>,
    placing: Placing,
}

impl Store {
    /// Opens what is in the configured directory, creating it where there is nothing, and replays the log behind the
    /// checkpoint.
    ///
    /// # Errors
    /// When a file cannot be read or written, is in use, or was written by a newer release. Damage is no error: what can
    /// be kept is kept, and the report says the rest.
    pub fn open(config: &Settings) -> Result<(Self, OpenReport), StoreError> {
        let started = Instant::now();
        private::directory(&config.state_dir)?;
        let unusable = |source| NotPrivate::Unusable { path: config.state_dir.clone(), source };
        if is_half_restored(&config.state_dir).map_err(unusable)? {
            return Err(StoreError::HalfRestored(config.state_dir.clone()));
        }
        let options = log_options(config);
        let (log, recovery) = Log::open(config.log_dir(), options.clone())?;
        let mut report = OpenReport {
            log_damage: recovery.damage.iter().map(ToString::to_string).collect(),
            ..OpenReport::default()
        };
        let untouched = recovery.first.is_none_or(|first| first == Seq::FIRST);
        let (state, files) = load_state(config, untouched, &mut report)?;
        let mut store = Self {
            newest: Mark(log.last().map_or(0, Seq::get)),
            log: Some(log),
            state: SharedState::new(state, files),
            options,
            config: config.clone(),
            base: 0,
            buffer: Vec::new(),
            behind_bytes: recovery.bytes,
            room: Room::new(&config.state_dir),
            heads: Heads::default(),
            backlog: None,
            places: None,
            placing: Placing::default(),
        };
        if let Err(error) = store.room.keep(report.checkpoint_bytes.unwrap_or(0)) {
            report.no_room = Some(error.to_string());
        }
        store.replay(&recovery, &mut report)?;
        let state = store.state.read();
        store.state.tell_panic(state.panic.clone(), PanicWish::default());
        report.coverage = state.past.coverage();
        drop(state);
        report.millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok((store, report))
    }

    /// Applies what the log has behind the state, and makes the two agree where the log has less.
    fn replay(&mut self, recovery: &Recovery, report: &mut OpenReport) -> Result<(), StoreError> {
        let applied = self.state.read().applied;
        let last = recovery.next.get() - 1;
        if applied > last {
            // The checkpoint is ahead of the log.
            return self.checkpoint();
        }
        let from = Seq::new(applied + 1).unwrap_or(Seq::FIRST);
        if let Some(first) = recovery.first
            && first > from
        {
            report.missing_records = first.get() - from.get();
        }
        let before = self.state.read().counters;
        let mut reader = self.opened()?.iter_from(from);
        let mut payload = Vec::new();
        while let Some(seq) = reader.read_into(&mut payload)? {
            let mut state = self.state.write();
            match LogRecord::read(&payload) {
                Ok((received, entry)) => {
                    state.apply(received, entry);
                }
                Err(source @ RecordError::Version(_)) => {
                    return Err(StoreError::Record { seq: seq.get(), source });
                }
                Err(_) => report.unreadable += 1,
            }
            state.applied = seq.get();
            report.records += 1;
        }
        let mut state = self.state.write();
        state.applied = last;
        report.frames = state.counters.frames - before.frames;
        report.samples = state.counters.samples - before.samples;
        Ok(())
    }

    /// The state, for looking at from anywhere.
    pub fn state(&self) -> SharedState {
        self.state.clone()
    }

    /// From now on this says which pods are on which nodes of its cluster.
    pub fn placed_by(&mut self, places: Arc<dyn Places>) {
        self.places = Some(places);
    }

    /// A frame with what is said of the containers that it announces, where somebody is asked.
    fn judged(&self, key: &StreamKey, frame: v1::Frame) -> Taken {
        let places = self.places.as_deref().filter(|places| places.is_of(&key.cluster));
        let words = places.map_or_else(Vec::new, |places| placing::words(places, key, &frame));
        Taken { key: key.clone(), frame, words, is_judged: places.is_some() }
    }

    /// Asks again which pods are where, once everything that was logged is counted; how many containers became something else by it.
    ///
    /// # Errors
    /// When the log cannot take a record; the rest is asked about again.
    pub fn place_again(&mut self, now_usec: u64) -> Result<usize, StoreError> {
        let mut judged = 0;
        for _ in 0..Placing::looks() {
            let newest = self.newest;
            if !self.backlog.as_ref().is_none_or(|b| b.is_counted(newest, Duration::ZERO)) {
                break;
            }
            let news = self.placing.look(&self.state.read(), self.places.as_deref(), now_usec);
            for (key, words) in news {
                judged += words.len();
                for words in placing::parts(words) {
                    self.log(now_usec, IngestEntry::Judged(Judged { key: key.clone(), words }))?;
                }
            }
            if self.placing.is_through() {
                break;
            }
        }
        Ok(judged)
    }

    /// Counts OOM kills of which kubelets told, and no agent; how many. What is not counted yet is asked about again.
    ///
    /// # Errors
    /// When the log cannot take a record; the rest is asked about again.
    pub fn count_kills(&mut self, now_usec: u64) -> Result<usize, StoreError> {
        let newest = self.newest;
        let Some(places) = self.places.as_deref() else { return Ok(0) };
        if !self.backlog.as_ref().is_none_or(|b| b.is_counted(newest, Duration::ZERO)) {
            return Ok(0);
        }
        let Killed { cluster, kills } = self.state.read().uncounted(places.kills(), now_usec);
        for part in kills.chunks(KILLS_AT_ONCE) {
            let entry = Killed { cluster: cluster.clone(), kills: part.to_vec() };
            self.log(now_usec, IngestEntry::Killed(entry))?;
        }
        Ok(kills.len())
    }

    /// From now on another thread counts what is logged.
    pub(crate) fn counted_by(&mut self, backlog: Arc<Backlog>) {
        self.backlog = Some(backlog);
    }

    /// Waits until everything that is logged is counted.
    ///
    /// # Errors
    /// When the thread that counts has ended.
    pub fn drain(&self) -> Result<(), StoreError> {
        match &self.backlog {
            Some(backlog) if !backlog.drain() => Err(StoreError::Uncounted),
            _ => Ok(()),
        }
    }

    /// A stream that the state has forgotten begins anew: nobody owns it, and nothing of it was taken.
    fn forget_as_the_state_did(&mut self, key: &StreamKey) {
        let newest = self.newest;
        let is_counted = self.backlog.as_ref().is_none_or(|b| b.is_counted(newest, Duration::ZERO));
        if is_counted && self.state.read().stream(key).is_none() {
            self.heads.forget(key);
        }
    }

    /// Where a stream stands in the log; at the beginning where nothing is known of it.
    fn head(&mut self, key: &StreamKey) -> Result<StreamHead, StoreError> {
        if let Some(head) = self.heads.get(key) {
            return Ok(head.clone());
        }
        // Twice as many as the state knows, so that it is seldom looked through.
        if self.heads.len() >= 2 * self.config.ingest.max_epochs {
            self.drain()?;
            let state = self.state.read();
            self.heads.retain(|key| state.stream(key).is_some());
        }
        let head = self.state.read().stream(key).map(StreamHead::of).unwrap_or_default();
        self.heads.know(key, head.clone());
        Ok(head)
    }

    /// Whether a stream is `owner`'s, and makes it so where it is nobody's yet, or `owner` is the node itself.
    ///
    /// # Errors
    /// When the log cannot take the record; nothing was changed and the call may be repeated.
    pub fn claim(&mut self, now_usec: u64, key: &StreamKey, owner: &str) -> Result<bool, StoreError> {
        self.forget_as_the_state_did(key);
        let before = self.head(key)?.owner;
        let may = may_go_on(&before, owner);
        if may && before != owner {
            self.log(now_usec, IngestEntry::Owned(Owned { key: key.clone(), owner: owner.to_owned() }))?;
        }
        Ok(may)
    }

    /// Greets a client: opens its stream, or finds it again.
    ///
    /// # Errors
    /// When the log cannot take the record; nothing was changed and the call may be repeated.
    pub fn hello(&mut self, now_usec: u64, hello: &v1::Hello) -> Result<Greeting, StoreError> {
        let key = StreamKey::of(hello);
        self.forget_as_the_state_did(&key);
        let last = self.head(&key)?.position.last;
        let news = {
            let state = self.state.read();
            let node = state.nodes.get(&NodeKey::of(&key));
            let same = |n: &crate::state::stream::NodeState| {
                n.version == hello.version && (hello.facts.is_none() || n.facts == hello.facts)
            };
            state.stream(&key).is_none() || !node.is_some_and(same)
        };
        if news {
            self.log(now_usec, IngestEntry::Opened(hello.clone()))?;
        }
        let state = self.state.read();
        let stream = state.stream(&key);
        Ok(Greeting { last, mark: self.mark(), knows_slots: stream.is_some_and(|s| s.knows_slots()) })
    }

    /// Judges a frame, logs it and counts it. `resumed` tells whether it is the first one after [`hello`](Self::hello).
    ///
    /// # Errors
    /// When the log cannot take the record; nothing was changed and the call may be repeated.
    pub fn take(
        &mut self,
        now_usec: u64,
        key: &StreamKey,
        frame: &v1::Frame,
        resumed: bool,
    ) -> Result<FrameOutcome, StoreError> {
        let sequence = frame.sequence;
        if sequence == 0 {
            return self.announce_again(now_usec, key, frame);
        }
        let Some(range) = Range::new(sequence, frame.replaces_first) else {
            let why =
                format!("frame {sequence} replaces from {}: the range is impossible", frame.replaces_first);
            return Ok(FrameOutcome::Close { why, is_over: false });
        };
        let StreamHead { position, seen_usec, .. } = self.head(key)?;
        let silent = now_usec.saturating_sub(seen_usec) / 1_000_000;
        let whole = crc32c::crc32c(&frame.samples) == frame.samples_crc32c;
        match position.judge(range, whole, resumed, silent) {
            FrameVerdict::Duplicate => {
                Ok(FrameOutcome::Acknowledge { last: position.last, mark: self.mark() })
            }
            FrameVerdict::Close { why, remedy, is_over } => {
                Ok(FrameOutcome::Close { why: format!("{why}; {remedy}"), is_over })
            }
            FrameVerdict::Refuse { why, remedy } => {
                let lost = LostFrames { key: key.clone(), first: range.first, last: range.sequence };
                self.log(now_usec, IngestEntry::Lost(lost))?;
                Ok(FrameOutcome::Refused { mark: self.mark(), why, remedy: remedy.to_owned() })
            }
            FrameVerdict::Take { lost: _ } => {
                let taken = self.judged(key, frame.clone());
                let applied = match self.log(now_usec, IngestEntry::Taken(taken)) {
                    Err(StoreError::Log(error @ LogError::TooLarge { .. })) => {
                        return Ok(FrameOutcome::Close { why: error.to_string(), is_over: false });
                    }
                    applied => applied?,
                };
                let mark = self.mark();
                Ok(match applied {
                    RecordOutcome::Done => FrameOutcome::Acknowledge { last: range.sequence, mark },
                    RecordOutcome::Unreadable(why) => unreadable(mark, &why),
                })
            }
        }
    }

    /// Takes slots announced outside the numbered frames. It may be repeated and changes no second.
    fn announce_again(
        &mut self,
        now_usec: u64,
        key: &StreamKey,
        frame: &v1::Frame,
    ) -> Result<FrameOutcome, StoreError> {
        let numbered = frame.replaces_first > 0 || !frame.samples.is_empty() || !frame.gone.is_empty();
        if numbered || !frame.decisions.is_empty() {
            let why = "a frame without a number has more than announcements; number it from 1".to_owned();
            return Ok(FrameOutcome::Close { why, is_over: false });
        }
        let frame = v1::Frame { announced: frame.announced.clone(), ..v1::Frame::default() };
        let taken = self.judged(key, frame);
        self.log(now_usec, IngestEntry::Announced(taken))?;
        Ok(FrameOutcome::Nothing)
    }

    /// Sets the panic switch, and whether running containers get back what was asked for; durable with the returned mark.
    ///
    /// # Errors
    /// When the log cannot take the record; nothing was changed and the call may be repeated.
    pub fn set_panic(
        &mut self,
        now_usec: u64,
        switch: Panic,
        reason: String,
        wish: PanicWish,
    ) -> Result<Mark, StoreError> {
        let set = PanicSwitch::set(switch, reason.clone(), now_usec);
        let entry = record::Panic { on: set.on, revert: set.revert, reason };
        self.log(now_usec, IngestEntry::Panic(entry))?;
        // Whoever acts hears it before it is counted.
        self.state.tell_panic(set, wish);
        Ok(self.mark())
    }

    /// Drops containers and codec memory of streams that have been silent for the configured time. Nothing at all was heard
    /// for `quiet`: the time that is believed stands still then.
    ///
    /// # Errors
    /// When the log cannot take the record; the rest is dropped next time.
    pub fn retire_idle(&mut self, now_usec: u64, quiet: Duration) -> Result<usize, StoreError> {
        let forget = u32::try_from(self.config.ingest.forget_after.minutes()).unwrap_or(u32::MAX);
        let quiet = u32::try_from(quiet.as_secs() / 60).unwrap_or(u32::MAX);
        let idle: Vec<StreamKey> = {
            let state = self.state.read();
            let now = state.clock.listened.saturating_add(quiet);
            let idle = state.streams().filter(|s| now.saturating_sub(s.heard) > forget && s.held() > 0);
            idle.map(|s| s.key.clone()).collect()
        };
        for key in &idle {
            self.log(now_usec, IngestEntry::Retired(key.clone()))?;
        }
        Ok(idle.len())
    }

    /// Appends a record and counts it, or hands it to whoever does: what becomes of it is told by the backlog then.
    fn log(&mut self, now_usec: u64, entry: IngestEntry) -> Result<RecordOutcome, StoreError> {
        let record = LogRecord::new(now_usec, entry);
        record.write(&mut self.buffer);
        self.may_write()?;
        let Some(log) = &mut self.log else { return Err(StoreError::Closed) };
        let seq = log.append(&self.buffer)?.get();
        self.newest = Mark(self.base + seq);
        self.behind_bytes += self.buffer.len() as u64;
        let Some(entry) = record.entry else { return Ok(RecordOutcome::Done) };
        self.heads.note(now_usec, &entry);
        let (mark, bytes) = (self.newest, self.buffer.len() + entry.unfolded());
        let logged = Logged { seq, mark, received_usec: now_usec, entry, bytes };
        match &self.backlog {
            Some(backlog) => {
                backlog.push(logged);
                Ok(RecordOutcome::Done)
            }
            None => Ok(self.state.count(logged)),
        }
    }

    /// Takes values in that another engine had, where there is nothing of their time; how many. The next checkpoint makes
    /// them durable.
    pub fn fill(&mut self, batch: &Batch) -> u64 {
        self.state.fill(0, batch)
    }

    /// Hands what was appended to the kernel, for the sync to find.
    ///
    /// # Errors
    /// When the write fails; what was appended stays in memory and the next call tries again.
    pub fn flush(&mut self) -> Result<(), StoreError> {
        self.may_write()?;
        self.opened()?.flush()?;
        Ok(())
    }

    /// Flushes and syncs; the mark that is durable then.
    ///
    /// # Errors
    /// When either fails. After a failed sync nothing more becomes durable until [`reopen`](Self::reopen).
    pub fn sync(&mut self) -> Result<Mark, StoreError> {
        let durable = self.opened()?.sync()?;
        Ok(Mark(self.base + durable.map_or(0, Seq::get)))
    }

    /// What syncs on another thread, and the number to add to what it returns to have a mark.
    ///
    /// # Errors
    /// While the log is not open.
    pub fn syncer(&mut self) -> Result<(SyncHandle, u64), StoreError> {
        let base = self.base;
        Ok((self.opened()?.sync_handle(), base))
    }

    /// Fails while a checkpoint needs the room that there is.
    fn may_write(&self) -> Result<(), StoreError> {
        if self.room.is_released() { Err(StoreError::MakingRoom) } else { Ok(()) }
    }

    /// The room kept on the disk for a checkpoint.
    pub(crate) fn room(&self) -> Room {
        self.room.clone()
    }

    fn opened(&mut self) -> Result<&mut Log, StoreError> {
        self.log.as_mut().ok_or(StoreError::Closed)
    }

    /// The mark of the newest record.
    pub fn mark(&self) -> Mark {
        self.newest
    }

    /// Bytes of the log, and those logged since the last checkpoint.
    pub fn bytes(&self) -> (u64, u64) {
        (self.log.as_ref().map_or(0, Log::bytes), self.behind_bytes)
    }

    /// Notes that a checkpoint has been taken that covers everything so far.
    pub fn checkpoint_begun(&mut self) {
        self.behind_bytes = 0;
    }

    /// Deletes the part of the log that a written checkpoint covers.
    ///
    /// # Errors
    /// When a system call fails; a later trim deletes it.
    pub fn trim(&mut self, applied: u64) -> Result<(), StoreError> {
        let is_short = self.room.is_released();
        let log = self.opened()?;
        if let (Some(seq), Some(last)) = (Seq::new(applied), log.last()) {
            // On a full disk the present segment goes too, however little of it is used.
            if is_short {
                log.trim_closing(seq.min(last))?
            } else {
                log.trim_to(seq.min(last))?
            };
        }
        Ok(())
    }

    /// Writes a checkpoint of the present state, numbered with the log's last record, and trims the log.
    ///
    /// # Errors
    /// When a system call fails; the checkpoint before stays.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.drain()?;
        let state = self.state.clone();
        let mut files = state.files();
        let last = self.opened()?.last().map_or(0, Seq::get);
        self.state.write().applied = last;
        let (_, bytes) = save_in_room(&state, &mut files, &self.config, &self.room)?;
        self.behind_bytes = 0;
        self.trim(last)?;
        if self.room.is_released()
            && let Err(error) = self.room.keep(bytes)
        {
            tracing::warn!(%error, "no room can be kept on the disk for a checkpoint; free space");
        }
        Ok(())
    }

    /// Opens the log anew after a failed sync and writes a checkpoint: the state has everything the log lost, so with it
    /// everything is durable again. Nothing may be appended before this has succeeded.
    ///
    /// # Errors
    /// When the disk still fails; the call is to be repeated.
    pub fn reopen(&mut self) -> Result<Mark, StoreError> {
        let before = self.newest;
        // Their numbers are those of the log as it was.
        self.drain()?;
        // The log holds its lock until it is dropped.
        drop(self.log.take());
        let (log, _) = Log::open(self.config.log_dir(), self.options.clone())?;
        self.base = before.0.saturating_sub(log.last().map_or(0, Seq::get));
        self.log = Some(log);
        if let Err(error) = self.checkpoint() {
            // Nothing is appended before it is written.
            self.log = None;
            return Err(error);
        }
        Ok(before)
    }
}

/// The answer to a frame whose samples cannot be read, which is known once it is counted.
pub(crate) fn unreadable(mark: Mark, why: &str) -> FrameOutcome {
    FrameOutcome::Refused {
        mark,
        why: format!("its samples cannot be read: {why}"),
        remedy: "announce all slots again and go on with a key frame".to_owned(),
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(backlog) = &self.backlog {
            backlog.close();
        }
    }
}

/// Whether an epoch that belongs to `before` may be gone on with by `now`: by the same identity, or by a credential of the
/// node alone, which nothing is above.
fn may_go_on(before: &str, now: &str) -> bool {
    before.is_empty() || before == now || now == OWN
}

fn log_options(config: &Settings) -> Options {
    let record = config.ingest.max_message.get() + RECORD_SLACK;
    Options {
        segment_bytes: config.log.segment_bytes.get(),
        max_bytes: config.log.max_bytes.get(),
        max_record_bytes: u32::try_from(record).unwrap_or(u32::MAX),
        overflow: Overflow::Reject,
        ..Options::default()
    }
}
