//! The counts that were told, on disk: kills that happen while no agent runs are news to the next one.
//!
//! One small file, replaced whole: a line with version and boot, then inode, count and path of each cgroup. Counters
//! begin at zero with each boot, so a file of another boot says nothing.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// File name below the state directory.
const FILE: &str = "oom-counters";
const HEAD: &str = "evenkeel-oom-counters 1";
/// Larger files are not ours.
const MOST_BYTES: u64 = 8 << 20;

/// What an earlier run of the same boot told.
#[derive(Debug, Default)]
pub(super) struct Counters {
    known: HashMap<u64, (u64, String)>,
}

/// The file of a state directory.
pub(super) fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

impl Counters {
    /// Reads the file; nothing is known without one, or from another boot.
    pub(super) fn read(file: &Path, boot_id: &str) -> Self {
        let text = match fs::metadata(file).and_then(|m| {
            if m.len() > MOST_BYTES {
                Err(io::ErrorKind::FileTooLarge.into())
            } else {
                fs::read_to_string(file)
            }
        }) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                tracing::warn!(file = %file.display(), %error, "OOM kills of the time without an agent are not known");
                return Self::default();
            }
        };
        Self::parse(&text, boot_id)
    }

    fn parse(text: &str, boot_id: &str) -> Self {
        let mut lines = text.lines();
        if lines.next() != Some(&format!("{HEAD} {boot_id}")) {
            return Self::default();
        }
        let known = lines.filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let (inode, count) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some((inode, (count, words.next()?.to_owned())))
        });
        Self { known: known.collect() }
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
    let aside = file.with_extension("new");
    fs::write(&aside, text)?;
    fs::rename(&aside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_known_again_in_the_same_boot() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path());
        assert_eq!(Counters::read(&file, "b1").of(1, "/a"), None);
        let counts = [(1, 0, "/a"), (2, 7, "/with a blank"), (3, 1, "/odd\n4 9 /b")];
        write(&file, "b1", counts.into_iter()).unwrap();
        let known = Counters::read(&file, "b1");
        for (inode, path, count) in [
            (1, "/a", Some(0)),
            (2, "/with a blank", Some(7)),
            (2, "/other", None),
            (3, "/odd", None),
            (4, "/b", None),
        ] {
            assert_eq!(known.of(inode, path), count, "{path}");
        }
        assert_eq!(Counters::read(&file, "b2").of(2, "/with a blank"), None);
        fs::write(&file, b"\xff\xfe").unwrap();
        assert_eq!(Counters::read(&file, "b1").of(1, "/a"), None);
    }
}
