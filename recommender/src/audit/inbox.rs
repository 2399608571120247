//! What commands that need no running recommender leave of their changes: one file each, in the directory `inbox` beside the logs, which
//! the recommender alone may open. It is written before the change (`ID.new`) and takes its place (`ID.json`) after it; the
//! recommender takes it into the log, where an ID counts once, and deletes it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use evenkeel_log::{Seq, private};
use evenkeel_store::clock::WallClock;
use nix::unistd::{Gid, Uid, getegid, geteuid, getuid, setegid, seteuid};
use serde_json::Value;

use super::entry::{AuditEntry, AuditOutcome, AuditRecord, Object};
use super::record::{Audit, AuditError, AuditLogKind, AuditLogs, records};
use super::ticket::user;

const FOLDER: &str = "inbox";
/// Files taken at once, and that may wait.
const AT_ONCE: usize = 1000;
/// Largest file that is read.
const MAX_FILE: u64 = 1 << 20;
/// A change of a command that has not ended after so long never told its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Does a change as a command of this machine, and leaves an entry of it. Where there is no state directory no recommender has
/// ever run: nothing is left then, and a line of standard error says so.
///
/// # Errors
/// When the entry cannot be left, and nothing was changed then; or the change's own.
pub(crate) fn offline<T>(
    state_dir: &Path,
    command: &str,
    object: Object,
    before: Option<&Value>,
    change: impl FnOnce() -> anyhow::Result<T>,
    after: impl FnOnce(&T) -> Option<Value>,
) -> anyhow::Result<T> {
    let Ok(meta) = fs::metadata(state_dir) else {
        let state_dir = state_dir.display();
        // Nobody is left to tell when standard error is closed.
        let _told =
            writeln!(io::stderr(), "{command}: not in the audit record, since there is no {state_dir} yet");
        return change();
    };
    let owner = Owner::of(&meta);
    let inbox = state_dir.join(super::FOLDER).join(FOLDER);
    let remedy = || {
        format!(
            "cannot leave an entry for the audit record in {}; nothing was changed. Run it as root or as the recommender's user",
            inbox.display()
        )
    };
    let mut entry =
        AuditEntry::new(&who(), &format!("command line, pid {}", std::process::id()), command, object);
    let now = WallClock::system().now_usec();
    (entry.time_usec, entry.id) = (now, format!("{now}-{}", std::process::id()));
    let entry = entry.with(before, None);
    owner.act(|| prepare(&inbox).and_then(|()| write(&inbox, "new", &entry))).with_context(remedy)?;
    let done = change();
    let ended = match &done {
        Ok(done) => entry.with_after(after(done).as_ref()).ended(AuditOutcome::Done, ""),
        Err(error) => entry.ended(AuditOutcome::Failed, &format!("{error:#}")),
    };
    if let Err(error) = owner.act(|| write(&inbox, "json", &ended)) {
        let _told =
            writeln!(io::stderr(), "{command}: the audit record will not tell what came of it: {error:#}");
    }
    done
}

/// Whose the state directory is: root acts as its owner there, so that no link of the owner's leads root elsewhere.
#[derive(Debug, Clone, Copy)]
struct Owner(Option<(Uid, Gid)>);

impl Owner {
    fn of(meta: &fs::Metadata) -> Self {
        let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
        Self((geteuid().is_root() && !uid.is_root()).then_some((uid, gid)))
    }

    fn act<T>(self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let Some((uid, gid)) = self.0 else { return work() };
        let us = (geteuid(), getegid());
        setegid(gid).and_then(|()| seteuid(uid)).context("cannot act as the recommender's user")?;
        let done = work();
        seteuid(us.0).and_then(|()| setegid(us.1)).context("cannot act as root again")?;
        done
    }
}

/// Who runs the command: the user, and who that was when logging in (proc(5), loginuid).
fn who() -> String {
    let uid = getuid().as_raw();
    let login = fs::read_to_string("/proc/self/loginuid").ok();
    match login.and_then(|login| login.trim().parse::<u32>().ok()).filter(|l| *l != u32::MAX && *l != uid) {
        Some(login) => format!("{}, logged in as {}", user(uid), user(login)),
        None => user(uid),
    }
}

fn prepare(inbox: &Path) -> anyhow::Result<()> {
    inbox.parent().map_or(Ok(()), private::subdirectory)?;
    private::subdirectory(inbox)?;
    let waiting = fs::read_dir(inbox)?.count();
    anyhow::ensure!(
        waiting < AT_ONCE,
        "{waiting} entries wait there; start the recommender, which takes them"
    );
    Ok(())
}

/// Writes an entry under an ending, durably; one that ended takes the place of one that began.
fn write(inbox: &Path, ending: &str, entry: &AuditEntry) -> anyhow::Result<()> {
    let (at, text) =
        (|ending: &str| inbox.join(format!("{}.{ending}", entry.id)), serde_json::to_vec(entry)?);
    if ending == "new" {
        let mut file = private::create(&at("new"))?;
        file.write_all(&text)?;
        file.sync_all()?;
        return Ok(fs::File::open(inbox)?.sync_all()?);
    }
    // Written beside it, so that no reader sees half of it.
    let beside = at("part");
    let mut file = private::create(&beside)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&beside, at(ending))?;
    match fs::remove_file(at("new")) {
        // It may be gone: the recommender gave up waiting for the end.
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(fs::File::open(inbox)?.sync_all()?)
}

impl Audit {
    /// Takes what commands have left. What the system does not let be read now stays, and keeps nothing behind it.
    pub(super) fn take_inbox(&self, kept: &mut AuditLogs) -> Result<(), AuditError> {
        private::subdirectory(&self.dir)?;
        let inbox = self.dir.join(FOLDER);
        private::subdirectory(&inbox)?;
        let names = fs::read_dir(&inbox).and_then(|files| files.map(|file| Ok(file?.path())).collect());
        let mut files: Vec<PathBuf> =
            names.map_err(|source| AuditError::Inbox { path: inbox.clone(), source })?;
        files.sort();
        let mut unread = None;
        for path in files.into_iter().take(AT_ONCE) {
            let ending = path.extension().and_then(|ending| ending.to_str());
            if ending == Some("json") || (ending == Some("new") && has_waited(&path)) {
                match read(&path) {
                    Ok(left) => self.take(kept, &path, left)?,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(source) => drop(unread.get_or_insert(AuditError::Inbox { path, source })),
                }
            }
        }
        unread.map_or(Ok(()), Err)
    }

    fn take(&self, kept: &mut AuditLogs, file: &Path, left: Option<AuditEntry>) -> Result<(), AuditError> {
        let Some(entry) = left else {
            tracing::warn!(file = %file.display(), "an entry that a command left cannot be read, and is put aside");
            // One that cannot be put aside is met again.
            let _again = fs::rename(file, file.with_extension("unreadable"));
            return Ok(());
        };
        let id = entry.id.clone();
        if kept.taken.is_none() {
            kept.taken = Some(self.ids(kept)?);
        }
        if !kept.taken.iter().flatten().any(|taken| *taken == id) {
            self.whole_in(kept, AuditLogKind::Changes, entry)?;
            kept.taken.get_or_insert_default().push(id);
        }
        if fs::remove_file(file).is_ok()
            && let Some(taken) = &mut kept.taken
        {
            // A change that has not told its end in time may do so still.
            taken.drain(..taken.len().saturating_sub(AT_ONCE));
        }
        Ok(())
    }

    /// Which entries of commands are in the log.
    fn ids(&self, kept: &mut AuditLogs) -> Result<Vec<String>, AuditError> {
        self.with(kept, AuditLogKind::Changes, |log| {
            let all = records(log, log.first().unwrap_or(Seq::FIRST));
            all.filter_map(|record| match record {
                Ok(AuditRecord::Entry(entry)) => (!entry.id.is_empty()).then_some(Ok(entry.id)),
                Ok(AuditRecord::End(_)) => None,
                Err(error) => Some(Err(error)),
            })
            .collect()
        })
    }
}

/// The entry that a command left in a file; `None` where there is none in it, or it is a symbolic link.
///
/// # Errors
/// The system's: the entry may be read another time.
fn read(file: &Path) -> io::Result<Option<AuditEntry>> {
    if fs::symlink_metadata(file)?.len() > MAX_FILE {
        return Ok(None);
    }
    let bytes = match private::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.raw_os_error().is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    let entry = serde_json::from_slice::<AuditEntry>(&bytes).ok();
    Ok(entry.filter(|entry| !entry.id.is_empty()).map(AuditEntry::bounded))
}

fn has_waited(file: &Path) -> bool {
    let written = fs::symlink_metadata(file).and_then(|meta| meta.modified());
    written.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > PATIENCE))
}
