//! Owns the thread that counts what is logged: it alone changes the state while the program runs, but for values read back
//! from engines outside.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::broadcast;
use tracing::{info, warn};

use super::{IngestShared, Tick};
use crate::ingest::backlog::{Backlog, Logged, Unreadable};
use crate::ingest::record::IngestEntry;
use crate::key::StreamKey;
use crate::state::RecordOutcome;

/// Counts records until no more come.
pub(super) fn count_loop(shared: &IngestShared, backlog: &Backlog, live: &broadcast::Sender<Tick>) {
    let counting = backlog.counting();
    while let Some(records) = counting.next() {
        for record in records {
            let (mark, bytes) = (record.mark, record.bytes);
            counting.counted(mark, bytes, count(shared, live, record));
        }
        shared.health.uncounted_bytes.store(backlog.bytes() as u64, Ordering::Relaxed);
        tell_clock(shared);
    }
}

/// Counts one record, shows it to watchers, and returns it where it cannot be read.
fn count(shared: &IngestShared, live: &broadcast::Sender<Tick>, record: Logged) -> Option<Unreadable> {
    let mark = record.mark;
    let of = match &record.entry {
        IngestEntry::Taken(taken) => Some((taken.key.clone(), taken.frame.sequence)),
        _ => None,
    };
    let applied = shared.state.count(record);
    let (key, sequence) = of?;
    match applied {
        RecordOutcome::Done => {
            show(shared, live, key);
            None
        }
        RecordOutcome::Unreadable(why) => Some(Unreadable { key, sequence, mark, why }),
    }
}

/// Gives the newest samples of a stream to watchers, if there are any.
fn show(shared: &IngestShared, live: &broadcast::Sender<Tick>, key: StreamKey) {
    if live.receiver_count() == 0 {
        return;
    }
    let state = shared.state.read();
    let Some(stream) = state.stream(&key) else { return };
    let newest = stream.slots.iter().filter_map(|s| s.latest.map(|(t, _)| t)).max();
    let usage: Vec<_> = stream
        .slots
        .iter()
        .filter(|slot| slot.latest.map(|(time, _)| time) == newest)
        .filter_map(|slot| slot.usage(&key))
        .collect();
    drop(state);
    let _nobody = live.send(Tick { key: Arc::new(key), usage: Arc::new(usage) });
}

/// Tells the others what nodes say of the clock, and people when that changes.
fn tell_clock(shared: &IngestShared) {
    let (doubt, correction) = {
        let state = shared.state.read();
        (state.clock.doubt(), state.clock.correction_usec())
    };
    let before = shared.health.clock_trouble();
    shared.health.set_clock(doubt, correction);
    match (before, shared.health.clock_trouble()) {
        (None, Some(trouble)) => warn!(trouble, "the clock of this machine is in doubt"),
        (Some(_), None) => info!("nodes agree with the clock of this machine again"),
        _ => {}
    }
}
