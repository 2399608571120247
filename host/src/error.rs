//! What can go wrong at the kernel's edge, sorted by what the caller should do about it.
//!
//! Owns the mapping from errno to [`Category`]. Does not log, count or retry: the handler picks by category.

use std::fmt;
use std::path::Path;

use nix::errno::Errno;

/// What an error means for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Category {
    /// The cgroup or process is no more. Read: drop it for the tick. Write: done.
    Gone,
    /// The kernel or this cgroup lacks the file. Field absent, knob off; say it once.
    Unsupported,
    /// Not allowed. Counted, shown and said once with the remedy.
    Denied,
    /// The file's text was not understood. Field absent, counted.
    Malformed,
    /// The kernel (or the writer itself) refused the value. Keep the old one and back off.
    Rejected,
    /// Done in part (`memory.reclaim`). Not an error.
    Partial,
    /// Anything else. Try again next tick.
    Io,
}

impl Category {
    /// Lower-case name for logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Unsupported => "unsupported",
            Self::Denied => "denied",
            Self::Malformed => "malformed",
            Self::Rejected => "rejected",
            Self::Partial => "partial",
            Self::Io => "io",
        }
    }

    /// Category of a raw errno. `standing` tells whether the directory that should hold the file still
    /// exists; it decides between `Gone` and `Unsupported` on ENOENT.
    ///
    /// Raw numbers are compared because `std::io::ErrorKind` has no name for ENODEV.
    pub fn of(action: HostOperation, errno: i32, standing: bool) -> Self {
        match Errno::from_raw(errno) {
            Errno::ENODEV | Errno::ESRCH => Self::Gone,
            Errno::ENOENT if standing => Self::Unsupported,
            Errno::ENOENT => Self::Gone,
            Errno::EOPNOTSUPP => Self::Unsupported,
            Errno::EACCES | Errno::EPERM | Errno::EROFS => Self::Denied,
            Errno::EINVAL | Errno::EBUSY | Errno::ERANGE if action == HostOperation::Write => Self::Rejected,
            Errno::EAGAIN if action == HostOperation::Write => Self::Partial,
            _ => Self::Io,
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HostOperation {
    /// Open a file or directory.
    Open,
    /// Read a file.
    Read,
    /// List a directory.
    List,
    /// Write a file.
    Write,
    /// Watch a file or directory for changes.
    Watch,
    /// Subscribe to events of the kernel.
    Subscribe,
    /// Change a limit or capability of our own process.
    Adjust,
    /// Reclaim memory of a cgroup.
    Reclaim,
    /// End the processes of a cgroup.
    Kill,
}

impl HostOperation {
    const fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::List => "list",
            Self::Write => "write",
            Self::Watch => "watch",
            Self::Subscribe => "subscribe to",
            Self::Adjust => "adjust",
            Self::Reclaim => "reclaim memory of",
            Self::Kill => "end",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum ErrorCause {
    Errno(i32),
    Text(String),
}

impl fmt::Display for ErrorCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Errno(raw) => {
                let errno = Errno::from_raw(*raw);
                write!(f, "{} ({errno:?})", errno.desc().to_lowercase())
            }
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// An error at the kernel's edge: what was tried, on what, why it failed and what helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {} {subject}: {cause}", .action.verb())]
pub struct HostError {
    category: Category,
    action: HostOperation,
    subject: String,
    cause: ErrorCause,
    remedy: Option<&'static str>,
}

impl HostError {
    /// What the caller should do about it.
    pub const fn category(&self) -> Category {
        self.category
    }

    /// What was tried.
    pub const fn action(&self) -> HostOperation {
        self.action
    }

    /// The file, directory or process it was tried on.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// The kernel's error number, when the kernel gave one.
    pub const fn errno(&self) -> Option<i32> {
        match self.cause {
            ErrorCause::Errno(raw) => Some(raw),
            ErrorCause::Text(_) => None,
        }
    }

    /// What an operator can do about it, where something can be done.
    pub const fn remedy(&self) -> Option<&'static str> {
        self.remedy
    }

    /// True when the cgroup or process is no more.
    pub fn is_gone(&self) -> bool {
        self.category == Category::Gone
    }

    /// From a raw errno; `standing` as in [`Category::of`].
    pub(crate) fn from_errno(
        action: HostOperation,
        subject: impl Into<String>,
        errno: Errno,
        standing: bool,
    ) -> Self {
        let subject = subject.into();
        let category = Category::of(action, errno as i32, standing);
        let remedy = remedy(category, errno, &subject);
        Self { category, action, subject, cause: ErrorCause::Errno(errno as i32), remedy }
    }

    /// From an error of the standard library on a path that is expected to be there.
    pub(crate) fn from_io(action: HostOperation, path: &Path, error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(raw) => Self::from_errno(action, path.display().to_string(), Errno::from_raw(raw), false),
            None => Self::of_text(Category::Io, action, path.display().to_string(), error.to_string()),
        }
    }

    /// The text of a file was not understood.
    pub(crate) fn malformed(path: &Path, why: impl Into<String>) -> Self {
        Self::of_text(Category::Malformed, HostOperation::Read, path.display().to_string(), why)
    }

    /// With a cause in words.
    pub fn of_text(
        category: Category,
        action: HostOperation,
        subject: impl Into<String>,
        why: impl Into<String>,
    ) -> Self {
        Self { category, action, subject: subject.into(), cause: ErrorCause::Text(why.into()), remedy: None }
    }

    /// Adds what helps.
    #[must_use]
    pub fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = Some(remedy);
        self
    }
}

/// What to do where too many files are open; nothing for another error.
pub const fn descriptors(errno: Errno) -> Option<&'static str> {
    match errno {
        Errno::EMFILE => Some("raise LimitNOFILE= of the unit (RLIMIT_NOFILE)"),
        Errno::ENFILE => Some("raise the sysctl fs.file-max"),
        _ => None,
    }
}

fn remedy(category: Category, errno: Errno, subject: &str) -> Option<&'static str> {
    match (category, errno) {
        (Category::Denied, Errno::EROFS) => Some(
            "mount the cgroup file system read-write (no readOnly volume mount, no ProtectControlGroups=yes)",
        ),
        (Category::Denied, _) if subject.ends_with("oom_score_adj") => Some(
            "grant CAP_SYS_RESOURCE for scores below a process's floor and CAP_DAC_OVERRIDE for other users' processes",
        ),
        (Category::Denied, _) => Some("run as root or grant CAP_DAC_OVERRIDE"),
        (Category::Unsupported, _) if subject.contains("pressure") => {
            Some("boot with psi=1, or use a kernel with CONFIG_PSI")
        }
        (Category::Unsupported, _) => {
            Some("enable the controller in cgroup.subtree_control of the parent, or use a kernel that has it")
        }
        (Category::Io, Errno::ENOSPC) => Some("raise the sysctl fs.inotify.max_user_watches"),
        (Category::Io, errno) => descriptors(errno),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories_follow_the_table() {
        use HostOperation::{Read, Write};
        let table = [
            (Read, Errno::ENODEV, true, Category::Gone),
            (Read, Errno::ENOENT, false, Category::Gone),
            (Read, Errno::ENOENT, true, Category::Unsupported),
            (Read, Errno::ESRCH, true, Category::Gone),
            (Read, Errno::EOPNOTSUPP, true, Category::Unsupported),
            (Read, Errno::EACCES, true, Category::Denied),
            (Write, Errno::EPERM, true, Category::Denied),
            (Write, Errno::EROFS, true, Category::Denied),
            (Write, Errno::EINVAL, true, Category::Rejected),
            (Write, Errno::EBUSY, true, Category::Rejected),
            (Write, Errno::ERANGE, true, Category::Rejected),
            (Read, Errno::EINVAL, true, Category::Io),
            (Write, Errno::EAGAIN, true, Category::Partial),
            (Read, Errno::EMFILE, true, Category::Io),
        ];
        for (action, errno, standing, want) in table {
            assert_eq!(Category::of(action, errno as i32, standing), want, "{action:?} {errno:?} {standing}");
        }
    }

    #[test]
    fn an_error_names_action_subject_cause_and_remedy() {
        let e = HostError::from_errno(HostOperation::Write, "/proc/7/oom_score_adj", Errno::EACCES, true);
        assert_eq!(e.to_string(), "cannot write /proc/7/oom_score_adj: permission denied (EACCES)");
        assert!(e.remedy().is_some_and(|r| r.contains("CAP_SYS_RESOURCE")));
        assert_eq!(e.errno(), Some(Errno::EACCES as i32));
    }
}
