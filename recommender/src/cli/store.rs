//! `store check|backup|restore`: the state directory without a running recommender, or beside one.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use evenkeel_store::backup::{BackupReport, Finding, Level, back_up, check, restore};
use evenkeel_store::clock::WallClock;
use serde_json::json;

use crate::audit::{Object, offline};
use crate::config::{Sources, load};

/// What about the state directory.
#[derive(Debug, Clone, Subcommand)]
pub enum StoreAction {
    /// Say what is damaged, where, and what is lost by it; a recommender may be running
    #[command(after_help = "Examples:
  evenkeel-recommender store check
  evenkeel-recommender store check /backup/2026-01-31 -o json

Exit status: 0 nothing is lost, 1 something is, or it cannot be read.")]
    Check {
        /// Another directory than the configuration's: a state directory or a backup
        directory: Option<PathBuf>,
        /// How to print what was found
        #[arg(short, long, value_enum, default_value_t = StoreFormat::Table, value_name = "FORM")]
        output: StoreFormat,
    },
    /// Copy the state directory to an empty or new one, and check the copy; a recommender may be running
    #[command(after_help = "Examples:
  evenkeel-recommender store backup /backup/$(date +%F)

It holds what the state directory holds: with tls.authority also the authority's key. Configuration and tokens are in
/etc/evenkeel. Exit status: 0 done, 1 it failed, or something in the store is damaged already.")]
    Backup {
        /// Where to: a directory that is empty or not there, outside of the state directory
        directory: PathBuf,
        /// How to print what was copied
        #[arg(short, long, value_enum, default_value_t = StoreFormat::Table, value_name = "FORM")]
        output: StoreFormat,
    },
    /// Copy a backup to the state directory, which must be empty or not there; the recommender must not be running
    #[command(after_help = "Examples:
  evenkeel-recommender store restore /backup/2026-01-31
  evenkeel-recommender store restore /backup/2026-01-31 --state-dir /var/lib/private/evenkeel/recommender

Stop the recommender and its socket before, and move what is there aside. Seconds between the backup and now are a gap: agents keep only what was not acknowledged.")]
    Restore {
        /// The backup
        directory: PathBuf,
        /// Also files that are not as they were written; what is whole of them counts
        #[arg(long)]
        damaged: bool,
        /// How to print what was restored
        #[arg(short, long, value_enum, default_value_t = StoreFormat::Table, value_name = "FORM")]
        output: StoreFormat,
    },
}

/// How to print it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum StoreFormat {
    /// Lines for people
    Table,
    /// JSON, whose names are kept stable
    Json,
}

/// Does what `store` was asked for; what it prints, and whether nothing is lost.
///
/// # Errors
/// When a directory cannot be read or written, or is not what it should be.
pub fn store(action: &StoreAction, sources: &Sources) -> anyhow::Result<(String, bool)> {
    let (report, output, done) = match action {
        StoreAction::Check { directory: Some(directory), output } => (check(directory)?, *output, "checked"),
        StoreAction::Check { directory: None, output } => {
            (check(&load(sources)?.state_dir)?, *output, "checked")
        }
        StoreAction::Backup { directory, output } => {
            let now = WallClock::system().now_usec();
            (back_up(&load(sources)?.state_dir, directory, now)?, *output, "backed up and checked")
        }
        StoreAction::Restore { directory, damaged, output } => {
            let state_dir = load(sources)?.state_dir;
            (restored(directory, &state_dir, *damaged)?, *output, "restored and checked")
        }
    };
    let text = match output {
        StoreFormat::Table => text(&report, done),
        StoreFormat::Json => evenkeel_model::shown::json(serde_json::to_string_pretty(&report)?),
    };
    Ok((text, report.is_whole()))
}

/// Restores, and leaves an entry in the audit record that came with the backup.
fn restored(from: &Path, state_dir: &Path, damaged: bool) -> anyhow::Result<BackupReport> {
    let report = restore(from, state_dir, damaged)?;
    let object = Object::of_all("Store", &from.display().to_string());
    let after = json!({ "lastRecord": report.last_record, "files": report.files, "damaged": damaged });
    let done = || Ok(());
    offline(state_dir, "evenkeel-recommender store restore", object, None, done, |()| Some(after))?;
    Ok(report)
}

fn text(report: &BackupReport, done: &str) -> String {
    let records = match report.last_record {
        Some(last) if report.checkpoint_record > 0 => {
            format!(
                "the log ends with record {last}, the checkpoint covers record {}",
                report.checkpoint_record
            )
        }
        Some(last) => format!("the log ends with record {last}"),
        None => "the log has no record".to_owned(),
    };
    let mut lines = vec![format!(
        "{}: {} files of {} bytes {done}; {records}",
        report.path.display(),
        report.files,
        report.bytes
    )];
    lines.extend(report.findings.iter().map(line));
    if report.truncated {
        lines.push(format!("and more: the first {} findings are shown", report.findings.len()));
    }
    let damaged = report.findings.iter().filter(|finding| finding.level == Level::Damage).count();
    lines.push(match damaged {
        0 => "nothing is lost".to_owned(),
        count => format!(
            "{count} damaged: the recommender goes on without what is lost, and sets it aside at its next start"
        ),
    });
    lines.join("\n")
}

fn line(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Note => "note",
        Level::Damage => "damage",
    };
    let at = match (finding.offset, finding.bytes) {
        (Some(offset), Some(bytes)) => format!(", {bytes} bytes from byte {offset} on"),
        (Some(offset), None) => format!(", from byte {offset} on"),
        (None, _) => String::new(),
    };
    format!("{level}: {}{at}: {}\n  lost: {}", finding.path.display(), finding.what, finding.loses)
}
