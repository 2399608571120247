//! The logs entries are kept in: one of changes, one of attempts, one of renewals by nodes, so that no number of these drops a
//! change. Each is bounded and drops its oldest segments.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use std::{fmt, io};

use evenkeel_log::private::{self, NotPrivate};
use evenkeel_log::{Log, LogError, LogReader, Options, Overflow, Seq};
use evenkeel_model::causes::chain;
use evenkeel_store::clock::WallClock;

use super::entry::{AuditEntry, AuditOutcome, AuditRecord, End};
use super::flood::Flood;

/// Largest record: two texts and the rest, each character of them escaped twice.
const MAX_RECORD: u32 = 512 << 10;
/// Newest records looked at for the number that comes next: more than changes go on at once.
const TAIL: u64 = 1000;

/// Why something was not recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuditError {
    /// Its log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Its directory.
    #[error(transparent)]
    Directory(#[from] NotPrivate),
    /// What a command left, or where it leaves it.
    #[error("cannot read {}", path.display())]
    Inbox {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Whoever asked has been answered already.
    #[error("whoever asked has been answered already, since its time was over; ask again")]
    Late,
    /// The request came by no layer that makes tickets.
    #[error("nobody is told to have asked for it, which is a fault in the program; report it")]
    NoTicket,
}

impl AuditError {
    /// As callers are told.
    pub(crate) fn told(&self) -> String {
        format!("the change cannot be recorded, and is not made without that: {}", chain(self))
    }
}

/// Entries by outcome, since the start.
#[derive(Debug, Default)]
pub(crate) struct AuditCounts {
    done: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    left_out: AtomicU64,
    lost: AtomicU64,
}

impl AuditCounts {
    /// By word. `left_out`: attempts counted and not kept; `lost`: changes made without an entry.
    pub(crate) fn words(&self) -> [(&'static str, u64); 5] {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("done", read(&self.done)),
            ("refused", read(&self.refused)),
            ("failed", read(&self.failed)),
            ("left_out", read(&self.left_out)),
            ("lost", read(&self.lost)),
        ]
    }

    fn add(&self, outcome: AuditOutcome) {
        let count = match outcome {
            AuditOutcome::Done => &self.done,
            AuditOutcome::Refused => &self.refused,
            AuditOutcome::Failed | AuditOutcome::Unknown => &self.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Which log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AuditLogKind {
    Changes,
    Attempts,
    /// What every node does by itself each day.
    Renewals,
}

impl AuditLogKind {
    pub(super) const ALL: [Self; 3] = [Self::Changes, Self::Attempts, Self::Renewals];

    const fn folder(self) -> &'static str {
        match self {
            Self::Changes => "changes",
            Self::Attempts => "attempts",
            Self::Renewals => "renewals",
        }
    }
}

/// The record.
pub(crate) struct Audit {
    pub(super) dir: PathBuf,
    max_bytes: u64,
    clock: WallClock,
    kept: Mutex<AuditLogs>,
    flood: Mutex<Flood>,
    counts: AuditCounts,
    troubles: Mutex<Troubles>,
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// The logs, where they could be opened.
#[derive(Default)]
pub(super) struct AuditLogs {
    logs: [Option<Log>; 3],
    /// The number of the next entry.
    next: u64,
    /// Entries of commands that are in the log, as far as the inbox could hold them still.
    pub(super) taken: Option<Vec<String>>,
}

#[derive(Default)]
struct Troubles {
    of_logs: [Option<String>; 3],
    inbox: Option<String>,
    /// What was found at the start; it stays until the next.
    damage: Option<String>,
}

impl Audit {
    /// The record in a directory, of at most so many bytes. One that cannot be opened is tried again at each change.
    pub(crate) fn open(dir: &Path, max_bytes: u64, clock: WallClock) -> Arc<Self> {
        let (kept, flood, counts, troubles) = Default::default();
        let audit = Self { dir: dir.to_owned(), max_bytes, clock, kept, flood, counts, troubles };
        audit.look();
        Arc::new(audit)
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, AuditLogs> {
        // A log keeps itself whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries by outcome.
    pub(crate) fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// What keeps changes from being recorded.
    pub(crate) fn failing(&self) -> Option<String> {
        self.troubles().of_logs.iter().flatten().next().cloned()
    }

    /// What is wrong with it.
    pub(crate) fn trouble(&self) -> Option<String> {
        let troubles = self.troubles();
        let failing = troubles.of_logs.iter().flatten().next();
        failing.or(troubles.inbox.as_ref()).or(troubles.damage.as_ref()).cloned()
    }

    /// Microseconds since 1970.
    pub(super) fn now_usec(&self) -> u64 {
        self.clock.now_usec()
    }

    /// Tries again what failed, and takes what commands have left.
    pub(crate) fn look(&self) {
        let mut kept = self.kept();
        for of in AuditLogKind::ALL {
            if kept.logs[of as usize].is_none() || self.troubles().of_logs[of as usize].is_some() {
                let done = self.with(&mut kept, of, |log| log.sync().map(|_| ()));
                self.heed(of, done.as_ref().err());
            }
        }
        let taken = self.take_inbox(&mut kept);
        let trouble = taken.err().map(|error| format!("what commands left is not taken: {}", chain(&error)));
        let mut troubles = self.troubles();
        if trouble.is_some() && troubles.inbox != trouble {
            tracing::warn!(trouble, "the audit record's inbox");
        }
        troubles.inbox = trouble;
    }

    /// Begins a change: the entry is durable, with the end still unknown, when this returns; its number.
    ///
    /// # Errors
    /// When it cannot be kept: the change may not be made then.
    pub(super) fn begin(&self, mut entry: AuditEntry) -> Result<u64, AuditError> {
        let mut kept = self.kept();
        let number = self.number(&mut kept, &mut entry)?;
        let record = AuditRecord::Entry(Box::new(entry)).bytes();
        let mut appended = false;
        let done = self.with(&mut kept, AuditLogKind::Changes, |log| {
            log.append(&record)?;
            appended = true;
            log.sync().map(|_| ())
        });
        if let Err(error) = &done
            && appended
        {
            // It may stay in the log's memory and be written later: not without saying what came of it.
            let end = AuditRecord::End(End::new(number, AuditOutcome::Failed, &error.told(), None)).bytes();
            let _told_anyway =
                self.with(&mut kept, AuditLogKind::Changes, |log| log.append(&end).map(|_| ()));
        }
        self.heed(AuditLogKind::Changes, done.as_ref().err());
        if done.is_err() {
            self.counts.add(AuditOutcome::Failed);
        }
        done.map(|()| number)
    }

    /// Ends a change that was begun. Where that cannot be written it is tried again, and told as unknown after a restart.
    pub(super) fn end(&self, end: End) {
        self.counts.add(end.outcome);
        let record = AuditRecord::End(end).bytes();
        // The record says itself that it cannot be written.
        let _told = self.put(&mut self.kept(), AuditLogKind::Changes, &record);
    }

    /// Keeps an entry that is whole.
    pub(super) fn whole(&self, of: AuditLogKind, entry: AuditEntry) -> Result<(), AuditError> {
        self.whole_in(&mut self.kept(), of, entry)
    }

    pub(super) fn whole_in(
        &self,
        kept: &mut AuditLogs,
        of: AuditLogKind,
        mut entry: AuditEntry,
    ) -> Result<(), AuditError> {
        self.number(kept, &mut entry)?;
        let outcome = entry.outcome;
        let record = AuditRecord::Entry(Box::new(entry)).bytes();
        let done = self.put(kept, of, &record);
        self.counts.add(outcome);
        done
    }

    /// Whether an attempt of a caller is kept, and how many were not since the one before.
    pub(super) fn admits(&self, caller: &str) -> Option<u64> {
        let admitted = self.flood.lock().unwrap_or_else(PoisonError::into_inner).take(caller, Instant::now());
        if admitted.is_none() {
            self.counts.left_out.fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// A change is made without an entry.
    pub(super) fn lost(&self) {
        self.counts.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Readers of all logs, from the oldest entry on.
    pub(super) fn readers(&self) -> Result<Vec<LogReader>, AuditError> {
        let mut kept = self.kept();
        for of in AuditLogKind::ALL {
            let opened = self.with(&mut kept, of, |_| Ok(()));
            if opened.is_err() {
                self.heed(of, opened.as_ref().err());
            }
            opened?;
        }
        Ok(kept.logs.iter().flatten().filter_map(|log| Some(log.iter_from(log.first()?))).collect())
    }

    /// Numbers and dates an entry; one that a command left has its own time.
    fn number(&self, kept: &mut AuditLogs, entry: &mut AuditEntry) -> Result<u64, AuditError> {
        // All know numbers that are given.
        for of in AuditLogKind::ALL {
            let opened = self.with(kept, of, |_| Ok(()));
            if opened.is_err() && of == AuditLogKind::Changes {
                self.heed(of, opened.as_ref().err());
                opened?;
            }
        }
        kept.next += 1;
        entry.number = kept.next;
        if entry.id.is_empty() {
            entry.time_usec = self.now_usec();
        }
        Ok(entry.number)
    }

    fn put(&self, kept: &mut AuditLogs, of: AuditLogKind, record: &[u8]) -> Result<(), AuditError> {
        let done = self.with(kept, of, |log| log.append(record).and_then(|_| log.sync()).map(|_| ()));
        self.heed(of, done.as_ref().err());
        done
    }

    /// Does something with a log, which is opened where it is not.
    pub(super) fn with<T>(
        &self,
        kept: &mut AuditLogs,
        of: AuditLogKind,
        work: impl FnOnce(&mut Log) -> Result<T, LogError>,
    ) -> Result<T, AuditError> {
        let log = match kept.logs[of as usize].take() {
            Some(log) => log,
            None => self.opened(kept, of)?,
        };
        let log = kept.logs[of as usize].insert(log);
        let done = work(log);
        // What was dropped to make room is what the bound is for.
        let _old = log.take_dropped();
        if matches!(done, Err(LogError::Poisoned { .. } | LogError::Deleted { .. })) {
            kept.logs[of as usize] = None;
        }
        Ok(done?)
    }

    fn opened(&self, kept: &mut AuditLogs, of: AuditLogKind) -> Result<Log, AuditError> {
        private::subdirectory(&self.dir)?;
        let part = match of {
            AuditLogKind::Changes => self.max_bytes / 2,
            AuditLogKind::Attempts | AuditLogKind::Renewals => self.max_bytes / 4,
        };
        let options = Options {
            max_bytes: part,
            segment_bytes: (part / 8).clamp(256 << 10, 8 << 20),
            max_record_bytes: MAX_RECORD,
            overflow: Overflow::DropOldest,
            quarantine_bytes: part,
            ..Options::default()
        };
        let (log, recovery) = Log::open(self.dir.join(of.folder()), options)?;
        for damage in &recovery.damage {
            tracing::warn!(%damage, "a part of the audit record was not recovered");
            self.troubles().damage = Some(format!("a part of it was not recovered at the start: {damage}"));
        }
        let tail = log.last().map_or(1, |last| last.get().saturating_sub(TAIL).max(1));
        for record in records(&log, Seq::new(tail).unwrap_or(Seq::FIRST)) {
            kept.next = kept.next.max(record?.number());
        }
        Ok(log)
    }

    /// Notes whether a log can be written, and tells a change of that.
    fn heed(&self, of: AuditLogKind, error: Option<&AuditError>) {
        let told = error.map(|error| format!("{} cannot be recorded: {}", of.folder(), chain(error)));
        let mut troubles = self.troubles();
        let before = std::mem::replace(&mut troubles.of_logs[of as usize], told.clone());
        match (before, told) {
            (before, Some(told)) if before.as_ref() != Some(&told) => {
                tracing::error!(trouble = told, "the audit record cannot be written; changes are refused");
            }
            (Some(_), None) => tracing::info!("the audit record can be written again"),
            _ => {}
        }
    }
}

/// What can be read of a log from a place on, without what is damaged.
///
/// # Errors
/// The system's: there may be more.
pub(super) fn records(log: &Log, from: Seq) -> impl Iterator<Item = Result<AuditRecord, LogError>> {
    log.iter_from(from).filter_map(|record| match record {
        Ok(record) => AuditRecord::read(&record.payload).map(Ok),
        Err(error) => error.errno().map(|_| Err(error)),
    })
}
