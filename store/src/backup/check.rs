//! Owns the check: what is damaged, where, and what is lost by it.

use std::path::Path;

use evenkeel_log::{DamageReason, Survey};

use super::look::{CHECKPOINT, HISTORY, LOG, StoreSnapshot};
use super::manifest::{Manifest, logs_and_files};
use super::{BackupError, BackupReport, Finding, Level, failed};
use crate::history::files::FileKind;
use crate::history::verify::verify;

/// Looks through a state directory or a backup. It changes nothing, and a recommender may be writing.
///
/// # Errors
/// When a file cannot be read, or there is no store. Damage is no error.
pub fn check(dir: &Path) -> Result<BackupReport, BackupError> {
    let look = StoreSnapshot::take(dir)?;
    let mut report = BackupReport { path: dir.to_owned(), ..BackupReport::default() };
    of_checkpoint(dir, &look, &mut report);
    of_history(dir, &look, &mut report)?;
    of_log(
        &dir.join(LOG),
        &look.log,
        "frames in it were acknowledged: the seconds they hold are a gap",
        &mut report,
    );
    report.last_record = look.log.last().map(evenkeel_log::Seq::get);
    if let Some((first, count)) = look.missing {
        report.tell(Finding {
            level: Level::Damage,
            path: dir.join(LOG),
            offset: None,
            bytes: None,
            what: format!(
                "records {first} to {} are neither in the checkpoint nor in the log",
                first + count - 1
            ),
            loses: "what was open of minutes, hours and days then; what is sealed is kept".to_owned(),
        });
    }
    let (logs, files) = logs_and_files(dir)?;
    for log in logs {
        let survey = Survey::open(&dir.join(&log))?;
        of_log(&dir.join(&log), &survey, "entries in it", &mut report);
    }
    report.files += files.len() as u64;
    for file in &files {
        report.bytes += std::fs::symlink_metadata(dir.join(file)).map_or(0, |meta| meta.len());
    }
    if let Some(manifest) = Manifest::of(dir)? {
        manifest.verify(dir, &mut report)?;
    }
    Ok(report)
}

fn of_checkpoint(dir: &Path, look: &StoreSnapshot, report: &mut BackupReport) {
    let path = dir.join(CHECKPOINT);
    match (&look.checkpoint, &look.damage) {
        (Some((_, summary)), _) => {
            report.files += 1;
            report.bytes += summary.bytes;
            report.checkpoint_record = summary.applied;
        }
        (None, Some(what)) => report.tell(Finding {
            level: Level::Damage,
            path,
            offset: None,
            bytes: None,
            what: what.clone(),
            loses: "what was open of minutes, hours and days, positions of streams, the panic switch; what is sealed and the log are kept".to_owned(),
        }),
        (None, None) => report.tell(Finding {
            level: Level::Note,
            path,
            offset: None,
            bytes: None,
            what: "there is no checkpoint yet".to_owned(),
            loses: "nothing: everything is in the log".to_owned(),
        }),
    }
}

fn of_history(dir: &Path, look: &StoreSnapshot, report: &mut BackupReport) -> Result<(), BackupError> {
    for ((day, kind), sealed) in &look.history {
        let damage = |path: &Path, offset, bytes, what| Finding {
            level: Level::Damage,
            path: path.to_owned(),
            offset: Some(offset),
            bytes: Some(bytes),
            what,
            loses: format!("{} of {}", what_of(*kind), date(*day)),
        };
        let Some(file) = &sealed.file else {
            report.tell(damage(&sealed.path, 0, sealed.length, "the file is missing".to_owned()));
            continue;
        };
        report.files += 1;
        report.bytes += sealed.length;
        let minutes = look.history.get(&(*day, FileKind::Minutes));
        let minutes_path = minutes.map_or_else(|| dir.join(HISTORY), |minutes| minutes.path.clone());
        let of_minutes = minutes.and_then(|minutes| Some((minutes.file.as_ref()?, minutes.length)));
        verify(*day, *kind, file, sealed.length, of_minutes, |flaw| {
            let path = if flaw.in_minutes { &minutes_path } else { &sealed.path };
            report.tell(damage(path, flaw.offset, flaw.bytes, flaw.what));
        })
        .map_err(failed("read", &sealed.path))?;
    }
    Ok(())
}

const fn what_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Minutes => "minutes of containers",
        FileKind::Hours => "hours of workloads, and where their minutes are,",
        FileKind::Days => "days of workloads and images, and kills,",
    }
}

fn date(day: u32) -> String {
    let at = jiff::Timestamp::from_second(i64::from(day) * 86_400);
    at.map_or_else(|_| format!("day {day}"), |at| at.strftime("%Y-%m-%d").to_string())
}

/// A log, whichever it is.
fn of_log(dir: &Path, log: &Survey, lost: &str, report: &mut BackupReport) {
    if log.is_pointer_damaged {
        report.tell(Finding {
            level: Level::Note,
            path: dir.join("head"),
            offset: None,
            bytes: None,
            what: "the trim pointer cannot be read".to_owned(),
            loses: "nothing: the log begins with its oldest segment".to_owned(),
        });
    }
    let whole = log.whole();
    for (at, piece) in log.pieces.iter().enumerate() {
        report.files += 1;
        report.bytes += piece.valid;
        let Some(reason) = piece.damage else {
            if at >= whole {
                report.tell(torn(piece, DamageReason::AfterDamage, lost, Level::Damage));
            }
            continue;
        };
        if log.is_torn_end(at) {
            let what = "nothing that was acknowledged: a record is being written, or was when its program was killed";
            report.tell(torn(piece, reason, what, Level::Note));
        } else {
            report.tell(torn(piece, reason, lost, Level::Damage));
        }
    }
}

fn torn(piece: &evenkeel_log::Piece, reason: DamageReason, loses: &str, level: Level) -> Finding {
    let is_whole =
        matches!(reason, DamageReason::AfterDamage | DamageReason::Gap { .. } | DamageReason::Overlap { .. });
    let offset = if is_whole { 0 } else { piece.valid };
    Finding {
        level,
        path: piece.path.clone(),
        offset: Some(offset),
        bytes: Some(piece.bytes.saturating_sub(offset)),
        what: reason.to_string(),
        loses: loses.to_owned(),
    }
}
