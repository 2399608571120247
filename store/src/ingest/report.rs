//! Owns what people are told of a store that was opened: what was read back, and what could not be.

use tracing::{info, warn};

use super::store::OpenReport;
use crate::checkpoint::TooLarge;

/// Tells the log what a store found when it was opened.
pub fn tell_report(report: &OpenReport) {
    for damage in &report.log_damage {
        warn!(damage, "a part of the ingest log was not recovered");
    }
    if let Some(damage) = &report.checkpoint_damage {
        warn!(damage, "starting without the checkpoint: history from before the log is lost");
    }
    if let Some(error) = &report.no_room {
        warn!(
            error,
            "no room can be kept on the disk for a checkpoint: when the log has filled it, it cannot be trimmed"
        );
    }
    let TooLarge { labels, decisions, containers, series, subjects } = report.too_large;
    if labels + decisions + containers + series + subjects > 0 {
        warn!(
            containers_without_labels = labels,
            cut_decisions = decisions,
            dropped_containers = containers,
            dropped_series = series,
            dropped_subjects = subjects,
            "the store held more than is kept: labels over 16 KiB were dropped, decisions over 4 KiB \
             cut, containers with names over 4 KiB dropped, and names of workloads, commands and images over 512 bytes for \
             each of history.max_series together; raise history.max_series to keep more of these"
        );
    }
    for damage in &report.history_damage {
        warn!(damage, "a part of the history was not recovered; it is a gap");
    }
    let day = |days: u32| {
        let at = jiff::Timestamp::from_second(i64::from(days) * 86_400);
        at.map(|at| at.strftime("%Y-%m-%d").to_string()).unwrap_or_default()
    };
    let coverage = &report.coverage;
    info!(
        bytes = report.history_bytes,
        subjects = coverage.subjects,
        hours_from = coverage.hours.map(|(first, _)| day(first / 24)),
        hours_to = coverage.hours.map(|(_, last)| day(last / 24)),
        missing_hours = coverage.missing_hours,
        days_from = coverage.days.map(|(first, _)| day(first)),
        days_to = coverage.days.map(|(_, last)| day(last)),
        missing_days = coverage.missing_days,
        "history read back; what is missing stays a gap"
    );
    if report.missing_records > 0 {
        warn!(records = report.missing_records, "records between the checkpoint and the log are missing");
    }
    info!(
        checkpoint_bytes = report.checkpoint_bytes,
        records = report.records,
        frames = report.frames,
        samples = report.samples,
        unreadable = report.unreadable,
        millis = report.millis,
        "read back what was acknowledged"
    );
}
