//! Owns the file of a bundle: a tar archive (POSIX ustar) in gzip, which its owner alone may read.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use crate::failure::Failure;

/// Tar's unit, in bytes (pax(1), "ustar Interchange Format").
const BLOCK: usize = 512;
/// Directory that everything lies in.
const TOP: &str = "evenkeel-support";

/// An archive that is being written.
pub(super) struct Archive {
    path: PathBuf,
    out: GzEncoder<File>,
    seconds: u64,
}

pub(super) fn failed(path: &Path, why: &str) -> Failure {
    let remedy = "name a file that is not there yet, in a directory that you may write, with --to";
    Failure::new("cannot write the bundle", path.display().to_string(), why, remedy)
}

impl Archive {
    /// Begins a file, which must not be there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(super) fn create(path: &Path, now: Timestamp) -> Result<Self, Failure> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|why| failed(path, &why.to_string()))?;
        let seconds = u64::try_from(now.as_second()).unwrap_or(0);
        Ok(Self { path: path.to_owned(), out: GzEncoder::new(file, Compression::default()), seconds })
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let written = self.write(name, bytes);
        written.map_err(|why| failed(&self.path, &why.to_string()))
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(&header(&format!("{TOP}/{name}"), bytes.len() as u64, self.seconds))?;
        self.out.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(BLOCK) - bytes.len();
        self.out.write_all(&[0; BLOCK][..padding])
    }

    /// Ends the file durably.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn finish(mut self) -> Result<(), Failure> {
        let path = self.path;
        let ended = self.out.write_all(&[0; 2 * BLOCK]).and_then(|()| self.out.finish()?.sync_all());
        ended.map_err(|why| failed(&path, &why.to_string()))
    }
}

fn header(name: &str, bytes: u64, seconds: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &str| {
        let room = block.get_mut(at..).unwrap_or_default();
        room.iter_mut().zip(text.bytes()).for_each(|(to, from)| *to = from);
    };
    put(0, name);
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{bytes:011o}\0"));
    put(136, &format!("{seconds:011o}\0"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\0");
    put(263, "00");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    let room = block.get_mut(148..156).unwrap_or_default();
    room.iter_mut().zip(sum.bytes()).for_each(|(to, from)| *to = from);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_it_and_nobody_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.tar.gz");
        let mut archive = Archive::create(&path, Timestamp::from_second(1_700_000_000).unwrap()).unwrap();
        archive.add("a.txt", b"hello\n").unwrap();
        archive.add("kernel/b.txt", &[b'x'; 1024]).unwrap();
        archive.finish().unwrap();
        let listed = std::process::Command::new("tar").arg("tzvf").arg(&path).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.status.success() && text.contains("evenkeel-support/kernel/b.txt"), "{text}");
        use std::os::unix::fs::MetadataExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(Archive::create(&path, Timestamp::now()).is_err(), "it is not replaced");
    }
}
