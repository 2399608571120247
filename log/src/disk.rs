//! The system calls whose failure decides what may be promised, behind one narrow trait, so that a failing disk can be
//! put in their place.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Writing, cutting and syncing. Reading, creating and deleting are not here: their failures are simple.
pub(crate) trait Disk: Send + Sync + Debug {
    /// Writes some bytes at an offset; may write fewer than asked.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Sets the file's length.
    fn set_len(&self, file: &File, len: u64) -> io::Result<()>;
    /// `fdatasync`: content and size of the file are on the disk afterwards.
    fn sync_data(&self, file: &File) -> io::Result<()>;
    /// Names the file has; 0 once it was deleted.
    fn links(&self, file: &File) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt;
        file.metadata().map(|metadata| metadata.nlink())
    }
    /// `fsync` of a directory: its names are on the disk afterwards.
    fn sync_dir(&self, dir: &File) -> io::Result<()>;
}

/// The kernel.
#[derive(Debug)]
pub(crate) struct Kernel;

impl Disk for Kernel {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(bytes, offset)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        file.set_len(len)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        dir.sync_all()
    }
}

/// Writes all of `bytes` at `offset`, going on after short and interrupted writes.
pub(crate) fn write_all_at(disk: &dyn Disk, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match disk.write_at(file, &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Repeats a sync that a signal interrupted; any other failure is final.
pub(crate) fn uninterrupted(mut sync: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    loop {
        match sync() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
