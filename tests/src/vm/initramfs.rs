//! The guest's root file system: a cpio archive in memory. Owns the format, "newc" of the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst, and what every guest has in it.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};

const DIRECTORY: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;

/// A cpio archive being written.
#[derive(Debug, Default)]
pub(super) struct Initramfs {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
    inode: u32,
}

impl Initramfs {
    /// Adds a directory and those above it; again is no error.
    pub(super) fn directory(&mut self, path: &str) -> Result<()> {
        if path.is_empty() || self.names.contains(path) {
            return Ok(());
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above)?;
        }
        self.entry(path, DIRECTORY, &[])
    }

    /// Adds a file with its permissions.
    pub(super) fn file(&mut self, path: &str, source: &Path) -> Result<()> {
        let content = std::fs::read(source).with_context(|| format!("cannot read {}", source.display()))?;
        let mode =
            source.metadata().with_context(|| format!("cannot read {}", source.display()))?.permissions();
        self.content(path, mode.mode() & 0o777, &content)
    }

    /// Adds a file with the given content, unless one is there already.
    pub(super) fn content(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        if path.split('/').any(|part| part.is_empty() || part == "..") {
            bail!("not a path in a guest: {path:?}");
        }
        if self.names.contains(path) {
            return Ok(());
        }
        if let Some((above, _)) = path.rsplit_once('/') {
            self.directory(above)?;
        }
        self.entry(path, REGULAR | mode, content)
    }

    /// Ends the archive.
    pub(super) fn finish(mut self) -> Result<Vec<u8>> {
        self.entry("TRAILER!!!", 0, &[])?;
        Ok(self.bytes)
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.inode += 1;
        let size = u32::try_from(content.len()).with_context(|| format!("{name} is too large for cpio"))?;
        let name_size = u32::try_from(name.len() + 1).context("a name too long for cpio")?;
        // inode, mode, uid, gid, links, mtime, size, device (2), device of a node (2), length of the name, checksum
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
        self.names.insert(name.to_string());
        Ok(())
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_header_a_name_and_padding() {
        let mut archive = Initramfs::default();
        archive.content("bin/x", 0o755, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let (directory, file) = (text.find("bin\0").unwrap(), text.find("bin/x\0").unwrap());
        assert!(directory < file, "a directory comes before what is in it");
        assert_eq!(&text[..14], "07070100000001");
        assert_eq!(text[file..].find("hello"), Some(6), "110 + 6 bytes are a multiple of 4");
        assert_eq!(bytes.len() % 4, 0);
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn paths_stay_in_the_guest() {
        for path in ["", "/bin/x", "../x", "a//b"] {
            assert!(Initramfs::default().content(path, 0o644, b"").is_err(), "{path:?}");
        }
    }
}
