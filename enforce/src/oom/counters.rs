//! The counts that were told, on disk: kills that happen while no agent runs are news to the next one.
//!
//! One small file, replaced whole and sealed with a checksum: a line with version and boot, then inode, count and path of each cgroup. Counters
//! begin at zero with each boot, so a file of another boot says nothing.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use evenkeel_log::{private, sealed};

/// File name below the state directory.
const FILE: &str = "oom-counters";
const HEAD: &str = "evenkeel-oom-counters 1";
/// Larger files are not ours.
const MOST_BYTES: u64 = 8 << 20;

/// What an earlier run of the same boot told.
#[derive(Debug, Default)]
pub(super) struct OomCounters {
    known: HashMap<u64, (u64, String)>,
    /// Whether the file is not as it was written.
    damaged: bool,
}

/// The file of a state directory.
pub(super) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

impl OomCounters {
    /// Reads the file; nothing is known without one, or from another boot.
    pub(super) fn read(file: &Path, boot_id: &str) -> Self {
        let bytes = private::open(file).and_then(|open| {
            if open.metadata()?.len() > MOST_BYTES {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(open, MOST_BYTES), &mut bytes)?;
            Ok(bytes)
        });
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "OOM kills of the time without an agent are not known");
                return Self::default();
            }
        };
        let damaged = || Self { known: HashMap::new(), damaged: true };
        match sealed::body(&bytes) {
            sealed::Body::Whole(body) | sealed::Body::Unsealed(body) => std::str::from_utf8(body)
                .ok()
                .and_then(|text| Self::parse(text, boot_id))
                .unwrap_or_else(damaged),
            sealed::Body::Damaged => damaged(),
        }
    }

    /// Whether the file is there and not as it was written.
    pub(super) const fn damaged(&self) -> bool {
        self.damaged
    }

    /// What a text says; nothing where it is not of this file.
    fn parse(text: &str, boot_id: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()?.strip_prefix(HEAD)?.strip_prefix(' ')? != boot_id {
            return Some(Self::default());
        }
        let line = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let (inode, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some((inode, (count, words.next()?.to_owned())))
        };
        Some(Self { known: lines.map(line).collect::<Option<_>>()?, damaged: false })
    }

    /// The count told of a cgroup, where an earlier run watched it.
    pub(super) fn of(&self, inode: u64, path: &str) -> Option<u64> {
        self.known.get(&inode).filter(|(_, known)| known == path).map(|(count, _)| *count)
    }
}

/// Replaces the file. It need not survive a power failure: then counters begin anew.
///
/// # Errors
/// When it cannot be written; the old one stays.
pub(super) fn write<'a>(
    file: &Path,
    boot_id: &str,
    counts: impl Iterator<Item = (u64, u64, &'a str)>,
) -> io::Result<()> {
    use std::fmt::Write as _;
    let mut text = format!("{HEAD} {boot_id}\n");
    for (inode, count, path) in counts {
        // A line break in a cgroup's name would end the line; such a cgroup is not remembered.
        if !path.contains('\n') {
            let _infallible = writeln!(text, "{inode} {count} {path}");
        }
    }
    private::replace(file, &sealed::file(text.as_bytes()), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_known_again_in_the_same_boot() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path());
        assert_eq!(OomCounters::read(&file, "b1").of(1, "/a"), None);
        let counts = [(1, 0, "/a"), (2, 7, "/with a blank"), (3, 1, "/odd\n4 9 /b")];
        write(&file, "b1", counts.into_iter()).unwrap();
        let known = OomCounters::read(&file, "b1");
        for (inode, path, count) in [
            (1, "/a", Some(0)),
            (2, "/with a blank", Some(7)),
            (2, "/other", None),
            (3, "/odd", None),
            (4, "/b", None),
        ] {
            assert_eq!(known.of(inode, path), count, "{path}");
        }
        assert_eq!(OomCounters::read(&file, "b2").of(2, "/with a blank"), None);
        assert!(!OomCounters::read(&file, "b2").damaged());
        std::fs::write(&file, b"\xff\xfe").unwrap();
        let odd = OomCounters::read(&file, "b1");
        assert_eq!((odd.of(1, "/a"), odd.damaged()), (None, true));
    }

    #[test]
    fn damage_is_noticed_and_a_file_without_checksum_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path());
        write(&file, "b1", [(2, 7, "/a"), (3, 1, "/b")].into_iter()).unwrap();
        let whole = std::fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            for bytes in [&flipped[..], &whole[..at]] {
                std::fs::write(&file, bytes).unwrap();
                assert!(OomCounters::read(&file, "b1").damaged(), "at {at}");
            }
        }
        std::fs::write(&file, format!("{HEAD} b1\n2 7 /a\n")).unwrap();
        let old = OomCounters::read(&file, "b1");
        assert_eq!((old.of(2, "/a"), old.damaged()), (Some(7), false));
    }
}
