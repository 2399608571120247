//! Owns the two threads that write beside ingest: group sync, and checkpoints.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_log::LogError;
use evenkeel_model::causes::chain;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{IngestShared, RETRY, raise};
use crate::ingest::health::count;
use crate::ingest::save::save_in_room;
use crate::ingest::store::Mark;

/// How often minutes that ended are offered to engines outside.
const OFFER_EVERY: Duration = Duration::from_secs(30);

/// Makes what was flushed durable, and publishes the mark.
pub(super) fn sync_loop(shared: &IngestShared, woken: &Receiver<()>, publish: &watch::Sender<Mark>) {
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
                // Whoever reads what it has sent finds it, but where others have very much to be counted.
                let _is_counted = shared.backlog.is_counted(mark, shared.config.ingest.count_within.get());
                publish.send_if_modified(|durable| raise(durable, mark));
            }
            // The next append fails and says so; opening the log anew would hide that its past is gone.
            Err(LogError::Deleted { .. }) => {}
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

/// Writes checkpoints when one is due or the last is old, then asks for the log to be trimmed.
pub(super) fn checkpoint_loop(shared: &IngestShared, woken: &Receiver<()>) {
    let interval = shared.config.log.checkpoint_interval.get();
    let mut last = Instant::now();
    let mut written = shared.state.read().applied;
    // The room kept may be too small for the next checkpoint, or there was none when the store was opened.
    let mut grown = !shared.room.is_kept();
    // Engines outside have minutes within two, however seldom checkpoints are.
    let (mut offered, mut turned) = (Instant::now(), shared.state.read().clock.now());
    while !shared.stop.load(Ordering::SeqCst) {
        match woken.recv_timeout(Duration::from_millis(250)) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if offered.elapsed() >= OFFER_EVERY {
            offered = Instant::now();
            shared.state.offer_fresh(&mut turned);
        }
        let trimmed = shared.trim_to.load(Ordering::SeqCst) == 0;
        if trimmed && (shared.room.is_released() || grown) {
            grown = !keep_room(shared);
        }
        let due = shared.checkpoint_due.load(Ordering::SeqCst);
        let aged = last.elapsed() >= interval && shared.state.read().applied != written;
        if !due && !aged {
            continue;
        }
        last = Instant::now();
        // Until the trim is asked for: the numbers of the log change when it is opened anew.
        let mut files = shared.state.files();
        match save_in_room(&shared.state, &mut files, &shared.config, &shared.room) {
            Ok((applied, bytes)) => {
                written = applied;
                let took = u64::try_from(last.elapsed().as_micros()).unwrap_or(u64::MAX);
                count(&shared.health.checkpoints, 1);
                shared.health.checkpoint_bytes.store(bytes, Ordering::Relaxed);
                shared.health.checkpoint_usec.store(took, Ordering::Relaxed);
                if shared.health.set_checkpoint_trouble(None) {
                    info!("checkpoints are written again");
                }
                shared.trim_to.fetch_max(applied, Ordering::SeqCst);
                grown = true;
            }
            Err(error) => {
                if shared.health.set_checkpoint_trouble(Some(chain(&error))) {
                    warn!(error = chain(&error), "no checkpoint; the log grows until one can be written");
                }
                drop(files);
                thread::sleep(RETRY);
            }
        }
        shared.checkpoint_due.store(false, Ordering::SeqCst);
    }
}

/// Keeps room for the next checkpoint, once the log has been trimmed; whether there is enough.
fn keep_room(shared: &IngestShared) -> bool {
    let was_released = shared.room.is_released();
    match shared.room.keep(shared.health.checkpoint_bytes.load(Ordering::Relaxed)) {
        Ok(()) => {
            if shared.health.set_room_trouble(None) || was_released {
                info!("there is room on the disk for a checkpoint again");
            }
            true
        }
        Err(error) => {
            let why = format!("no room can be kept on the disk for a checkpoint: {error}; free space");
            if shared.health.set_room_trouble(Some(why)) {
                warn!(%error, "no room can be kept on the disk for a checkpoint; free space");
            }
            false
        }
    }
}
