//! A disk that is really full: a small file system in memory.

use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};

/// A small tmpfs, unmounted when it is dropped.
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one of so many bytes at a directory; nothing, with a line that says so, where we may not mount.
    ///
    /// # Panics
    /// In CI, where everybody may.
    #[must_use]
    pub fn mount(at: &Path, bytes: usize) -> Option<SmallDisk> {
        let options = format!("size={bytes},mode=0700");
        match mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(options.as_str())) {
            Ok(()) => Some(SmallDisk(at.to_path_buf())),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "cannot mount: {error}");
                eprintln!("skipped: mounting needs root: {error}");
                None
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _left = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
