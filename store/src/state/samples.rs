//! Takes in what a frame says that containers used: seconds, and minutes that an agent folded.
//!
//! Owned here: which of them count, and what they are added to. Not owned: reading a frame, what a node can have used ([`super::belief`]), what
//! a container makes of a sample ([`super::slots`]).

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::{Field, Sample};

use super::belief::{Dropped, Means, Reason};
use super::history::{History as _, Minutes};
use super::minute::MINUTE_USEC;
use super::slots::StreamContainer;
use super::{RecordOutcome, StateCounters, StoreState, absorb_hour};
use crate::history::past::Past;
use crate::history::replica::Fold;
use crate::key::{NodeKey, StreamKey};

/// Samples dated further ahead of their reception are not counted: they would push the whole history out.
const MAX_AHEAD_MINUTES: u64 = 24 * 60;

impl StoreState {
    /// Takes in the samples of a frame, all or none.
    pub(super) fn samples(
        &mut self,
        id: u64,
        key: &StreamKey,
        received_usec: u64,
        bytes: &[u8],
    ) -> RecordOutcome {
        if bytes.is_empty() {
            return RecordOutcome::Done;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return RecordOutcome::Done };
        self.staging.clear();
        let header = match stream.decoder.decode(bytes, &mut self.staging) {
            Ok(header) => header,
            Err(error) => return RecordOutcome::Unreadable(error.to_string()),
        };
        if self.staging.minutes.iter().any(|(_, _, rollup)| implausible(rollup)) {
            return RecordOutcome::Unreadable("a minute has more samples than a minute can have".to_owned());
        }
        self.delivered(id, key, received_usec, header.time_usec);
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        let means = Means::of(node.facts.as_ref());
        let together = self.staging.seconds.iter().map(|(.., sample, previous)| (sample, previous.as_ref()));
        if let Some(reason) = means.doubt_all(together) {
            node.dropped.add(reason, self.staging.seconds.len() as u64);
            self.staging.seconds.clear();
        }
        let Some(stream) = self.streams.get_mut(&id) else { return RecordOutcome::Done };
        let clock = self.clock.now();
        let mut intake = Intake {
            history: &mut self.history,
            past: &mut self.past,
            counters: &mut self.counters,
            dropped: &mut node.dropped,
            means,
            stream: id,
            node: key.node_number(),
            clock,
            oldest: self.clock.horizon().saturating_sub(self.limits.history.retention_minutes),
            latest: (received_usec / MINUTE_USEC).max(u64::from(clock)) + MAX_AHEAD_MINUTES,
            start_usec: self.limits.start_usec,
            newest_usec: 0,
            counted: 0,
        };
        stream.slots.rewind();
        for (number, time_usec, sample, previous) in &self.staging.seconds {
            match stream.slots.get_mut(*number) {
                Some(slot) => intake.second(slot, *number, *time_usec, sample, previous.as_ref()),
                None => intake.counters.left_out(stream.aside.get(number), 1, intake.dropped),
            }
        }
        stream.slots.rewind();
        for (number, minute, rollup) in &self.staging.minutes {
            match stream.slots.get_mut(*number) {
                Some(slot) => intake.minute(slot, *number, *minute, rollup),
                None => intake.counters.left_out(stream.aside.get(number), rollup.samples, intake.dropped),
            }
        }
        let (newest_usec, counted) = (intake.newest_usec, intake.counted);
        self.count(key, newest_usec, counted);
        RecordOutcome::Done
    }

    fn count(&mut self, key: &StreamKey, newest_usec: u64, samples: u64) {
        self.counters.samples += samples;
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        node.frames += 1;
        node.samples += samples;
        // The newest of the last frame: a node whose clock was ahead is believed when it is right again.
        if newest_usec > 0 && node.epoch == key.epoch {
            node.newest_usec = newest_usec;
        }
    }
}

/// The samples of one frame on their way in.
struct Intake<'a> {
    history: &'a mut Minutes,
    past: &'a mut Past,
    counters: &'a mut StateCounters,
    dropped: &'a mut Dropped,
    means: Means,
    /// Numbers of the stream and of its node.
    stream: u64,
    node: u32,
    /// What time it is, and the first and last minute that count: minutes since 1970.
    clock: u32,
    oldest: u32,
    latest: u64,
    /// How long a container starts, microseconds.
    start_usec: u64,
    /// Time of the newest that counts, microseconds since 1970.
    newest_usec: u64,
    /// Container seconds that count.
    counted: u64,
}

impl Intake<'_> {
    /// A second of a container.
    fn second(
        &mut self,
        slot: &mut StreamContainer,
        number: u32,
        time_usec: u64,
        sample: &Sample,
        previous: Option<&Sample>,
    ) {
        let Some(minute) = self.dated(time_usec / MINUTE_USEC, 1) else { return };
        if let Some(reason) = self.means.doubt_sample(sample, previous) {
            return self.dropped.add(reason, 1);
        }
        self.takes(time_usec, 1);
        let before = slot.latest.as_ref().map(|(time, _)| *time);
        self.counters.late += u64::from(before.is_some_and(|before| time_usec < before));
        self.counters.resets += u64::from(previous.is_some_and(|previous| went_back(previous, sample)));
        if slot.caps.is_none() {
            slot.show(time_usec, sample, previous);
            return self.dropped.add(Reason::Share, 1);
        }
        self.turn(slot, minute, time_usec);
        let ended = slot.take(minute, time_usec, sample, previous);
        self.ended(slot, number, ended);
        if slot.seconds.is_full(number)
            && let Some(fold) = slot.fold()
        {
            self.absorb(slot, &fold);
        }
    }

    /// A folded minute of a container.
    fn minute(&mut self, slot: &mut StreamContainer, number: u32, minute: u64, rollup: &Rollup) {
        let Some(minute) = self.dated(minute, rollup.samples) else { return };
        if let Some(reason) = self.means.doubt_minute(rollup) {
            return self.dropped.add(reason, rollup.samples);
        }
        let time_usec = u64::from(minute) * MINUTE_USEC;
        self.takes(time_usec, rollup.samples);
        if slot.caps.is_none() {
            return self.dropped.add(Reason::Share, rollup.samples);
        }
        let rollup = &slot.capped_minute(rollup);
        self.turn(slot, minute, time_usec);
        let ended = slot.take_rollup(minute, rollup);
        self.ended(slot, number, ended);
        if let Some(fold) = slot.fold_rollup(rollup) {
            self.absorb(slot, &fold);
        }
    }

    /// A minute in which samples may be, which are dropped otherwise.
    fn dated(&mut self, minute: u64, samples: u64) -> Option<u32> {
        let Some(minute) = u32::try_from(minute).ok().filter(|minute| u64::from(*minute) <= self.latest)
        else {
            self.counters.misdated += samples;
            self.dropped.add(Reason::Ahead, samples);
            return None;
        };
        if minute < self.oldest {
            self.counters.ancient += samples;
            self.dropped.add(Reason::Ancient, samples);
            return None;
        }
        Some(minute)
    }

    fn takes(&mut self, time_usec: u64, samples: u64) {
        self.newest_usec = self.newest_usec.max(time_usec);
        self.counted += samples;
    }

    /// Ends a container's start and its hour where they are over.
    fn turn(&mut self, slot: &mut StreamContainer, minute: u32, time_usec: u64) {
        if let Some(fold) = slot.turn_start(time_usec, self.start_usec) {
            self.absorb(slot, &fold);
        }
        let ended = slot.turn_hour(minute / 60);
        absorb_hour(self.past, self.clock, &slot.subjects, ended);
    }

    /// A minute that has ended goes into the history.
    fn ended(&mut self, slot: &StreamContainer, number: u32, ended: Option<(u32, Rollup)>) {
        let Some((minute, rollup)) = ended else { return };
        self.history.record(slot.series, (self.stream, number), &slot.identity.pod, minute, &rollup);
        let is_start = slot.start.has_minute(minute, self.start_usec);
        self.past.minute(self.clock, &slot.subjects, minute, &rollup, is_start);
    }

    /// Adds what a container used to its subjects; what it may count with from now on depends on it.
    fn absorb(&mut self, slot: &mut StreamContainer, fold: &Fold) {
        self.past.absorb(self.clock, &slot.subjects, fold);
        slot.caps = Some(self.past.compare(slot.subjects[0], self.node, fold));
    }
}

/// Whether a rollup has more samples than a hundred a second.
fn implausible(rollup: &Rollup) -> bool {
    const MOST: u64 = 6000;
    let counts = [rollup.samples, rollup.cpu_micro.count, rollup.memory_bytes.count];
    counts.into_iter().any(|count| count > MOST)
}

/// Whether the CPU counter is behind where it was.
fn went_back(before: &Sample, sample: &Sample) -> bool {
    let counter = |sample: &Sample| sample.get(Field::CpuUsageUsec);
    counter(before).zip(counter(sample)).is_some_and(|(before, now)| now < before)
}
