//! Files that crossed the border as their bytes: kept in memory, and given to those who read files by a path.

use std::fs::File as Opened;
use std::io::{Seek as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context as _;
use evenkeel_enforce::shared::lock;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fchmod};

/// A file in memory (memfd_create(2)) that this process alone can open.
pub(super) struct MemoryFile {
    file: Mutex<Opened>,
    path: PathBuf,
}

impl MemoryFile {
    /// With these bytes.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(bytes: &[u8]) -> anyhow::Result<Self> {
        let descriptor = memfd_create(c"evenkeel", MFdFlags::MFD_CLOEXEC).context("no file in memory")?;
        fchmod(&descriptor, Mode::S_IRUSR | Mode::S_IWUSR).context("no file in memory")?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        let held = Self { file: Mutex::new(descriptor.into()), path };
        held.set(bytes).context("no file in memory")?;
        Ok(held)
    }

    /// It holds these bytes from now on. Who reads it in between sees a part, and reads it again when it sees that it changed.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn set(&self, bytes: &[u8]) -> std::io::Result<()> {
        let mut file = lock(&self.file);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(bytes)
    }

    /// Where it is read.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_holds_is_read_by_its_path() {
        let held = MemoryFile::new(b"one and more").unwrap();
        assert_eq!(std::fs::read(held.path()).unwrap(), b"one and more");
        held.set(b"two").unwrap();
        assert_eq!(std::fs::read(held.path()).unwrap(), b"two");
    }
}
