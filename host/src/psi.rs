//! Pressure stall information: what is lost by waiting for CPU, memory or disks, and being woken by it.
//!
//! The kernel's interface is Documentation/accounting/psi.rst: files of the machine and of each v2 cgroup, and
//! triggers on them. Owns reading the files and holding triggers. Does not decide what is much.

mod trigger;

use std::fs::OpenOptions;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::libc;
use nix::sys::stat::Mode;

use crate::cgroup::CgroupDir;
use crate::error::{Category, HostError, HostOperation};
use crate::parse;
use crate::roots::Roots;
pub use trigger::{Threshold, Trigger};

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A processor.
    Cpu,
    /// Memory: reclaim, refaults, swap.
    Memory,
    /// Disks.
    Io,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Io];

    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Io => "io",
        }
    }
}

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stall {
    /// At least one process waits.
    Some,
    /// Everybody who is not idle waits.
    Full,
}

impl Stall {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Some => "some",
            Self::Full => "full",
        }
    }
}

/// One line of a pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stalls {
    /// Part of the last 10 seconds, in percent.
    pub avg10: f64,
    /// Part of the last minute, in percent.
    pub avg60: f64,
    /// Part of the last five minutes, in percent.
    pub avg300: f64,
    /// Since the beginning, microseconds.
    pub total_usec: u64,
}

/// A pressure file.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pressure {
    /// Time in which some waited.
    pub some: Stalls,
    /// Time in which all waited; `None` for `cpu` on kernels before 5.13.
    pub full: Option<Stalls>,
}

impl Pressure {
    /// Reads the text of a pressure file; `None` when it is not understood.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let line = |which: &[u8]| parse::key_values(text).find(|(key, _)| *key == which).map(|(_, v)| v);
        let full = match line(b"full") {
            Some(averages) => Some(stalls(averages)?),
            None => None,
        };
        Some(Self { some: stalls(line(b"some")?)?, full })
    }

    /// One of the two lines.
    pub const fn of(&self, stall: Stall) -> Option<Stalls> {
        match stall {
            Stall::Some => Some(self.some),
            Stall::Full => self.full,
        }
    }
}

fn stalls(averages: &[u8]) -> Option<Stalls> {
    let value = |key: &[u8]| parse::words(averages).find_map(|w| w.strip_prefix(key));
    Some(Stalls {
        avg10: percent(value(b"avg10=")?)?,
        avg60: percent(value(b"avg60=")?)?,
        avg300: percent(value(b"avg300=")?)?,
        total_usec: parse::uint(value(b"total=")?)?,
    })
}

/// `12.34`, as the kernel prints averages.
fn percent(text: &[u8]) -> Option<f64> {
    let point = text.iter().position(|&b| b == b'.')?;
    let (whole, part) = (&text[..point], &text[point + 1..]);
    if whole.len() > 3 || part.len() != 2 {
        return None;
    }
    // At most 99,999: exact in every floating point number.
    let hundredths = u32::try_from(parse::uint(whole)? * 100 + parse::uint(part)?).ok()?;
    Some(f64::from(hundredths) / 100.0)
}

/// Whose pressure.
#[derive(Debug, Clone, Copy)]
pub enum PsiScope<'a> {
    /// The machine's: `pressure/` of procfs.
    Node(&'a Roots),
    /// A v2 cgroup's.
    Cgroup(&'a CgroupDir),
}

impl PsiScope<'_> {
    fn subject(&self, resource: Resource) -> String {
        match self {
            Self::Node(roots) => node_file(roots, resource).display().to_string(),
            Self::Cgroup(dir) => format!("{}:{}/{}", dir.at().hierarchy, dir.path(), file_name(resource)),
        }
    }

    fn error(&self, action: HostOperation, resource: Resource, errno: Errno) -> HostError {
        // PSI that was not booted answers EOPNOTSUPP or has no file; both mean that there is none.
        let standing = match self {
            Self::Node(roots) => roots.proc().join("stat").exists(),
            Self::Cgroup(dir) => dir.is_standing(),
        };
        HostError::from_errno(action, self.subject(resource), errno, standing)
    }

    fn open_for_trigger(&self, resource: Resource) -> Result<OwnedFd, Errno> {
        match self {
            Self::Node(roots) => OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(node_file(roots, resource))
                .map(OwnedFd::from)
                .map_err(|e| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))),
            Self::Cgroup(dir) => {
                let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
                openat(dir.as_fd(), file_name(resource), flags, Mode::empty())
            }
        }
    }
}

fn node_file(roots: &Roots, resource: Resource) -> std::path::PathBuf {
    roots.proc().join("pressure").join(resource.name())
}

const fn file_name(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "cpu.pressure",
        Resource::Memory => "memory.pressure",
        Resource::Io => "io.pressure",
    }
}

/// Reads a pressure file.
///
/// # Errors
/// `Unsupported` without PSI (remedy: `psi=1`) and on v1; `Gone` when the cgroup is no more; `Malformed`.
pub fn read(place: PsiScope<'_>, resource: Resource) -> Result<Pressure, HostError> {
    let text = match place {
        PsiScope::Node(roots) => {
            let path = node_file(roots, resource);
            std::fs::read(&path).map_err(|e| match e.raw_os_error() {
                Some(raw) => place.error(HostOperation::Read, resource, Errno::from_raw(raw)),
                None => HostError::from_io(HostOperation::Read, &path, &e),
            })?
        }
        PsiScope::Cgroup(dir) => dir.read(file_name(resource))?,
    };
    Pressure::parse(&text).ok_or_else(|| {
        let why = "the text is not understood";
        HostError::of_text(Category::Malformed, HostOperation::Read, place.subject(resource), why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read() {
        let text = b"some avg10=1.25 avg60=0.30 avg300=100.00 total=5006844729\nfull avg10=0.00 avg60=0.01 avg300=0.00 total=7\n";
        let p = Pressure::parse(text).unwrap();
        assert_eq!(p.some, Stalls { avg10: 1.25, avg60: 0.3, avg300: 100.0, total_usec: 5_006_844_729 });
        assert_eq!(p.full.unwrap().avg60, 0.01);
        assert_eq!(p.of(Stall::Full), p.full);
        let old = Pressure::parse(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n").unwrap();
        assert_eq!(old.full, None);
    }

    #[test]
    fn what_is_no_pressure_file_is_refused() {
        for text in [
            "",
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00\n",
            "some avg10=0 avg60=0.00 avg300=0.00 total=0\n",
            "some avg10=nan avg60=0.00 avg300=0.00 total=0\n",
            "some avg10=-1.00 avg60=0.00 avg300=0.00 total=0\n",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull x\n",
        ] {
            assert_eq!(Pressure::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn windows_are_lengthened_with_their_threshold() {
        for ((stall_usec, window_usec), want) in [
            ((100_000, 1_000_000), (200_000, 2_000_000)),
            ((150_000, 2_000_000), (150_000, 2_000_000)),
            ((100_000, 3_000_000), (133_333, 4_000_000)),
            ((1, 500_000), (4, 2_000_000)),
            ((500_000, 60_000_000), (83_333, 10_000_000)),
            ((0, 0), (1, 2_000_000)),
            ((u64::MAX, 1), (2_000_000, 2_000_000)),
        ] {
            let t = Threshold { stall_usec, window_usec }.unprivileged();
            assert_eq!((t.stall_usec, t.window_usec), want, "{stall_usec} {window_usec}");
        }
    }
}
