//! [`CgroupDir`]: opening below a root, identity, children, single files.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstat, fstatat};
use nix::unistd::{read, write};

use crate::error::{HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::write::CgroupRef;

const DIRECTORY: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

/// Files longer than this are cut; the longest of cgroupfs (`memory.numa_stat`) stays well below it.
const LONGEST_FILE: usize = 64 * 1024;

/// A cgroup directory held open: it goes on meaning the same cgroup when its path is reused.
#[derive(Debug)]
pub struct CgroupDir {
    fd: OwnedFd,
    at: CgroupRef,
}

impl CgroupDir {
    /// Opens `path` below `root` without following links or leaving the tree.
    pub(crate) fn open_below(
        root: BorrowedFd<'_>,
        hierarchy: Hierarchy,
        path: &str,
    ) -> Result<Self, HostError> {
        let fd = open_beneath(root, path).map_err(|e| {
            HostError::from_errno(HostOperation::Open, format!("{hierarchy}:{path}"), e, false)
        })?;
        Self::from_fd(fd, hierarchy, normal(path))
    }

    fn from_fd(fd: OwnedFd, hierarchy: Hierarchy, path: String) -> Result<Self, HostError> {
        let inode = fstat(&fd)
            .map_err(|e| HostError::from_errno(HostOperation::Open, format!("{hierarchy}:{path}"), e, false))?
            .st_ino;
        Ok(Self { fd, at: CgroupRef { hierarchy, inode, path: path.into() } })
    }

    /// Hierarchy, inode and path.
    pub const fn at(&self) -> &CgroupRef {
        &self.at
    }

    /// Path below the hierarchy's root.
    pub fn path(&self) -> &str {
        &self.at.path
    }

    /// False once the cgroup was removed, even while the directory is held open.
    pub fn is_standing(&self) -> bool {
        fstatat(&self.fd, "cgroup.procs", AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether systemd has given it to somebody else; see [`is_delegated`].
    pub fn is_delegated(&self) -> bool {
        is_delegated(&self.fd)
    }

    /// Opens a child cgroup by name.
    ///
    /// # Errors
    /// `Gone` when there is none; `Rejected` never: a name with a slash is looked up beneath this directory.
    pub fn child(&self, name: &str) -> Result<Self, HostError> {
        let path =
            if &*self.at.path == "/" { format!("/{name}") } else { format!("{}/{name}", self.at.path) };
        let fd = open_beneath(self.fd.as_fd(), name).map_err(|e| {
            HostError::from_errno(HostOperation::Open, format!("{}:{path}", self.at.hierarchy), e, false)
        })?;
        Self::from_fd(fd, self.at.hierarchy, path)
    }

    /// True when it surely has no child cgroups, by one system call instead of listing some fifty files. A directory
    /// has a link for itself, one in its parent, and one in each child (kernfs keeps the count, fs/kernfs/inode.c);
    /// file systems that do not count say 1.
    pub fn is_leaf(&self) -> bool {
        fstat(&self.fd).is_ok_and(|s| s.st_nlink == 2)
    }

    /// Names of the child cgroups, in no particular order.
    ///
    /// # Errors
    /// `Gone` when the cgroup was removed.
    pub fn children(&self) -> Result<Vec<String>, HostError> {
        let fail = |e| self.error(HostOperation::List, "", e);
        let fd = openat(&self.fd, ".", DIRECTORY, Mode::empty()).map_err(fail)?;
        let mut dir = Dir::from_fd(fd).map_err(fail)?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.map_err(fail)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let is_dir = match entry.file_type() {
                Some(kind) => kind == Type::Directory,
                None => self.is_directory(name),
            };
            if is_dir && name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn is_directory(&self, name: &str) -> bool {
        fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .is_ok_and(|s| s.st_mode & nix::libc::S_IFMT == nix::libc::S_IFDIR)
    }

    /// Opens one of its files for reading.
    pub(crate) fn open_file(&self, file: &str) -> Result<OwnedFd, Errno> {
        openat(&self.fd, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW, Mode::empty())
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// `Gone` when the cgroup was removed; `Unsupported` when it has no such file; `Denied`; `Io`.
    pub fn read(&self, file: &str) -> Result<Vec<u8>, HostError> {
        let fail = |e| self.error(HostOperation::Read, file, e);
        let fd = self.open_file(file).map_err(fail)?;
        let mut text = vec![0; 4096];
        let mut len = 0;
        loop {
            if len == text.len() {
                if len >= LONGEST_FILE {
                    break;
                }
                text.resize(len * 2, 0);
            }
            match read(&fd, &mut text[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(Errno::EINTR) => {}
                Err(e) => return Err(fail(e)),
            }
        }
        text.truncate(len);
        Ok(text)
    }

    /// Reads a file that fits into `buffer` by one system call, as all files of one line do.
    pub(crate) fn read_line<'b>(&self, file: &str, buffer: &'b mut [u8]) -> Result<&'b [u8], HostError> {
        let fail = |e| self.error(HostOperation::Read, file, e);
        let fd = self.open_file(file).map_err(fail)?;
        loop {
            match read(&fd, buffer) {
                Ok(n) => return Ok(&buffer[..n]),
                Err(Errno::EINTR) => {}
                Err(e) => return Err(fail(e)),
            }
        }
    }

    /// Writes `text` and a newline to a file in one write, as the kernel wants it.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<(), HostError> {
        let fail = |e| self.error(HostOperation::Write, file, e);
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let fd = openat(&self.fd, file, flags, Mode::empty()).map_err(fail)?;
        let line = format!("{text}\n");
        write(&fd, line.as_bytes()).map(|_| ()).map_err(fail)
    }

    /// An error on one of its files, or on the directory itself when `file` is empty.
    pub(crate) fn error(&self, action: HostOperation, file: &str, errno: Errno) -> HostError {
        let slash = if file.is_empty() || self.at.path.ends_with('/') { "" } else { "/" };
        let subject = format!("{}:{}{slash}{file}", self.at.hierarchy, self.at.path);
        let standing = errno != Errno::ENOENT || self.is_standing();
        HostError::from_errno(action, subject, errno, standing)
    }
}

impl AsFd for CgroupDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The path with one leading slash and none at the end.
pub(crate) fn normal(path: &str) -> String {
    let mut out = String::with_capacity(path.len() + 1);
    for part in components(path) {
        out.push('/');
        out.push_str(part);
    }
    if out.is_empty() {
        out.push('/');
    }
    out
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|p| !p.is_empty() && *p != ".")
}

/// Whether systemd has given a cgroup's directory to somebody else (`Delegate=`): it says so in an extended attribute,
/// `user.delegate` since version 251, `trusted.delegate` before, which only the privileged can read.
pub fn is_delegated(dir: &impl AsFd) -> bool {
    let fd = dir.as_fd().as_raw_fd();
    [c"user.delegate", c"trusted.delegate"].into_iter().any(|name| {
        let mut value = [0u8; 8];
        // SAFETY: the descriptor is borrowed and so open, the name ends in a zero, and at most `value.len()` bytes are
        // written to `value`, which lives until the call returns.
        #[allow(unsafe_code)]
        let length =
            unsafe { nix::libc::fgetxattr(fd, name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        length == 1 && value.first() == Some(&b'1')
    })
}

/// Opens a directory that must lie beneath `root`, following no link.
fn open_beneath(root: BorrowedFd<'_>, path: &str) -> Result<OwnedFd, Errno> {
    if components(path).any(|p| p == "..") {
        return Err(Errno::EXDEV);
    }
    let relative = components(path).collect::<Vec<_>>().join("/");
    let relative = if relative.is_empty() { "." } else { &relative };
    let how = OpenHow::new().flags(DIRECTORY).resolve(
        ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS,
    );
    match openat2(root, relative, how) {
        // openat2 is Linux 5.6; a seccomp filter that does not know it answers EPERM.
        Err(Errno::ENOSYS | Errno::EPERM) => open_step_by_step(root, relative),
        other => other,
    }
}

fn open_step_by_step(root: BorrowedFd<'_>, relative: &str) -> Result<OwnedFd, Errno> {
    let flags = DIRECTORY | OFlag::O_NOFOLLOW;
    let mut at = openat(root, ".", flags, Mode::empty())?;
    for part in components(relative) {
        at = openat(&at, part, flags, Mode::empty())?;
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_the_root_is_opened_either_way() {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tmp.path().join("in/a")).unwrap();
        std::os::unix::fs::symlink("/", tmp.path().join("in/link")).unwrap();
        let root = std::fs::File::open(tmp.path().join("in")).unwrap();
        for open in [open_beneath, open_step_by_step] {
            assert!(open(root.as_fd(), "a").is_ok());
            assert_eq!(open(root.as_fd(), "b").unwrap_err(), Errno::ENOENT);
            assert!(open(root.as_fd(), "link").is_err());
            assert!(open(root.as_fd(), "link/etc").is_err());
        }
        assert!(open_beneath(root.as_fd(), "../in").is_err());
        assert!(open_beneath(root.as_fd(), "/a/../../in").is_err());
    }

    #[test]
    fn paths_are_made_normal() {
        for (given, want) in [("", "/"), ("/", "/"), ("a/b/", "/a/b"), ("//a//./b", "/a/b")] {
            assert_eq!(normal(given), want);
        }
    }
}
