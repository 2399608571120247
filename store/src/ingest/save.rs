//! Owns the order in which the state becomes durable beside the log, and how it comes back: sealed history to its files,
//! then the checkpoint, then what has expired is deleted.

use std::fs;

use tracing::{info, warn};

use super::room::{Room, is_full_disk};
use super::store::{OpenReport, SharedState, StoreError};
use crate::checkpoint::{self, CheckpointError};
use crate::config::Settings;
use crate::history::batch::Names;
use crate::history::files::{Expired, FileKind, HistoryFiles, Outgoing};
use crate::history::item::Item;
use crate::history::minute_files::Extent;
use crate::history::sealed::SealedKind;
use crate::state::history::{History, HistoryBounds};
use crate::state::{Limits, StoreState};

fn limits(config: &Settings) -> Limits {
    let history = &config.history;
    Limits {
        history: HistoryBounds {
            retention_minutes: u32::try_from(config.retention.days.minutes()).unwrap_or(u32::MAX),
            series: history.max_series,
            of_node: config.ingest.max_containers_per_node,
        },
        epochs: config.ingest.max_epochs,
        containers: config.ingest.max_containers,
        per_node: config.ingest.max_containers_per_node,
        names_per_minute: config.ingest.max_names_per_minute,
        kills_per_hour: config.ingest.max_kills_per_hour,
        gone_minutes: u32::try_from(config.ingest.gone_after.minutes()).unwrap_or(u32::MAX),
        events: history.max_events,
        // Each series has at most five, most of them shared.
        subjects: history.max_series.saturating_mul(5),
        start_usec: u64::try_from(history.start.get().as_micros()).unwrap_or(u64::MAX),
    }
}

/// The state of the checkpoint and the history's files; an empty one where there is none or it is damaged. `untouched`
/// tells that the log still has its first record, so that all of it can be had again.
pub(super) fn load_state(
    config: &Settings,
    untouched: bool,
    report: &mut OpenReport,
) -> Result<(StoreState, HistoryFiles), StoreError> {
    let path = config.checkpoint_file();
    let mut state = StoreState::new(limits(config));
    let mut listed = untouched.then(Vec::new);
    // What the writer of the checkpoint had dropped.
    let mut dropped = 0;
    match checkpoint::read(&path, &mut state) {
        Ok(Some(read)) => {
            report.checkpoint_bytes = Some(read.bytes);
            listed = Some(read.files);
            report.too_large = read.too_large;
            dropped = state.history.dropped() - read.too_large.series;
        }
        Ok(None) => {}
        Err(error @ CheckpointError::Damaged { .. }) => {
            let aside = path.with_extension("damaged");
            let kept = match fs::rename(&path, &aside) {
                Ok(()) => format!("kept as {}", aside.display()),
                Err(e) => format!("it could not be moved aside: {e}"),
            };
            report.checkpoint_damage = Some(format!("{error}; {kept}"));
            state = StoreState::new(limits(config));
        }
        Err(error) => return Err(error.into()),
    }
    let lengths = listed.as_deref();
    let (files, found) = HistoryFiles::open(&config.history_dir(), lengths, |day, names, item| {
        load_item(&mut state, day, names, item);
    })?;
    if listed.is_none() {
        // What was open is lost; what is sealed must not be counted again by replaying what it was made of.
        state.applied = found.applied;
    }
    report.too_large.series = state.history.dropped() - dropped;
    report.too_large.subjects = state.past.counts.refused_subjects;
    state.past.shrink();
    state.past.counts.file_bytes = found.bytes;
    state.history.set_files(files.minutes());
    (report.history_bytes, report.history_damage) = (found.bytes, found.damage);
    Ok((state, files))
}

/// Takes an item of a history file in.
fn load_item(state: &mut StoreState, day: u32, names: &mut Names, item: Item<'_>) {
    fn put<T>(list: &mut Vec<Option<T>>, number: u32, id: Option<T>) {
        let at = number as usize;
        // Numbers are given in order; one far beyond is damage.
        if at == list.len() {
            list.push(id);
        } else if let Some(place) = list.get_mut(at) {
            *place = id;
        }
    }
    let hour_of = |hour: u8| day.saturating_mul(24).saturating_add(u32::from(hour));
    let subject = |names: &Names, number: u32| names.subjects.get(number as usize).copied().flatten();
    match item {
        Item::Subject { number, key } => {
            let minute = day.saturating_mul(24 * 60);
            put(&mut names.subjects, number, state.past.subject(key, None, minute));
        }
        Item::Series { number, key } => {
            let id = state.history.series(&key);
            put(&mut names.series, number, Some(id));
        }
        Item::Minutes { series, hour, offset, length } => {
            if let Some(id) = names.series.get(series as usize).copied().flatten() {
                state.history.restore_extent(id, Extent { day, hour: hour_of(hour), offset, length });
            }
        }
        Item::Hour { subject: number, resource, hour, bytes } => {
            if let Some(id) = subject(names, number) {
                state.past.load(id, SealedKind::Hour(resource), hour_of(hour), bytes);
            }
        }
        Item::Day { subject: number, resource, bytes } => {
            if let Some(id) = subject(names, number) {
                state.past.load(id, SealedKind::Day(resource), day, bytes);
            }
        }
        Item::Event { subject: number, bytes } => {
            if let Some(id) = subject(names, number) {
                state.past.load(id, SealedKind::Event, day, bytes);
            }
        }
    }
}

/// Writes what is sealed to the history's files, then the checkpoint, then deletes what has expired.
///
/// What is in the files counts from then on, also where the checkpoint cannot be written: the next one lists it. Until
/// then a restart cuts it off and seals it again.
///
/// # Errors
/// When a system call fails; nothing is lost and the call may be repeated.
fn save(shared: &SharedState, files: &mut HistoryFiles, config: &Settings) -> Result<(u64, u64), StoreError> {
    let (outgoing, draft, expiry) = {
        let state = shared.study();
        let named = |(id, blocks)| Some((id, state.history.get(id)?.key.clone(), blocks));
        let outgoing = Outgoing {
            applied: state.applied,
            minutes: state.history.pending().into_iter().filter_map(named).collect(),
            sealed: state.past.outgoing(),
        };
        (outgoing, checkpoint::encode(&state), state.clock.expiry())
    };
    let written = files.append(&outgoing)?;
    shared.offer(&outgoing);
    let keep = &config.retention;
    // On a clock that nodes contradict, or none confirms, nothing is too old; only the bound in bytes holds.
    let days_ago = |days: u32| expiry.map_or(0, |minute| (minute / (24 * 60)).saturating_sub(days));
    let (first_recent, first_day) = (days_ago(keep.hours.days()), days_ago(keep.days.days()));
    let expired = files.expire(first_recent, first_day, keep.bytes.get());
    {
        let mut state = shared.write();
        state.history.written(written);
        state.past.written(outgoing.sealed.len());
        state.past.counts.file_bytes = files.bytes();
        if !expired.is_empty() {
            let too_old =
                |e: &Expired| e.day < if e.kind == FileKind::Days { first_day } else { first_recent };
            let crowded = expired.iter().filter(|e| !too_old(e)).count() as u64;
            state.past.counts.expired_files += expired.len() as u64;
            state.past.counts.crowded_files += crowded;
            let next = |kind: FileKind| expired.iter().filter(|e| e.kind == kind).map(|e| e.day + 1).max();
            let (minutes, hours, days) =
                (next(FileKind::Minutes), next(FileKind::Hours), next(FileKind::Days));
            let horizon = state.clock.horizon();
            state.history.expire(minutes.max(hours).unwrap_or(0), horizon);
            state.past.expire(hours.unwrap_or(0).saturating_mul(24), days.unwrap_or(0));
        }
    }
    for gone in &expired {
        let Expired { day, kind, bytes } = *gone;
        let date = jiff::Timestamp::from_second(i64::from(day) * 86_400).map(|t| t.to_string());
        info!(day = date.unwrap_or_default(), kind = kind.as_str(), bytes, "history has expired");
    }
    let bytes = draft.finish(&files.list());
    checkpoint::write(&config.checkpoint_file(), &bytes)?;
    files.delete_expired();
    Ok((outgoing.applied, bytes.len() as u64))
}

/// The same; on a full disk the room kept for a checkpoint is used.
///
/// # Errors
/// As [`save`].
pub(crate) fn save_in_room(
    shared: &SharedState,
    files: &mut HistoryFiles,
    config: &Settings,
    room: &Room,
) -> Result<(u64, u64), StoreError> {
    match save(shared, files, config) {
        Err(error) if is_full_disk(&error) && room.release() => {
            warn!(%error, "the disk is full; the room kept for a checkpoint is used");
            save(shared, files, config)
        }
        saved => saved,
    }
}
