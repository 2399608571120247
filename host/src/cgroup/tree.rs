//! [`CgroupTree`]: the roots of all hierarchies, held open.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::dir::CgroupDir;
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::{Hierarchy, Layout};
use crate::roots::Roots;
use crate::write::CgroupRef;

/// Every hierarchy of a machine, each root held open.
#[derive(Debug)]
pub struct CgroupTree {
    layout: Layout,
    roots: Vec<(Hierarchy, OwnedFd)>,
}

impl CgroupTree {
    /// Detects the layout and opens it.
    ///
    /// # Errors
    /// As [`Layout::detect`], and when a root cannot be opened.
    pub fn open(roots: &Roots) -> Result<Self, HostError> {
        Self::of_layout(Layout::detect(roots)?)
    }

    /// Opens a layout that is known already.
    ///
    /// # Errors
    /// When a root cannot be opened.
    pub fn of_layout(layout: Layout) -> Result<Self, HostError> {
        let roots = layout
            .mounts()
            .iter()
            .map(|m| open_root(&m.path).map(|fd| (m.hierarchy, fd)))
            .collect::<Result<_, _>>()?;
        Ok(Self { layout, roots })
    }

    /// Which controller is where.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Opens a cgroup by path in one hierarchy.
    ///
    /// # Errors
    /// `Gone` when there is no such cgroup; `Unsupported` when the machine lacks the hierarchy.
    pub fn dir(&self, hierarchy: Hierarchy, path: &str) -> Result<CgroupDir, HostError> {
        let (_, root) = self.roots.iter().find(|(h, _)| *h == hierarchy).ok_or_else(|| {
            HostError::of_text(
                Category::Unsupported,
                HostOperation::Open,
                format!("{hierarchy}:{path}"),
                "this machine has no such hierarchy",
            )
        })?;
        CgroupDir::open_below(root.as_fd(), hierarchy, path)
    }

    /// Opens a cgroup by identity.
    ///
    /// # Errors
    /// `Gone` when there is no such cgroup or its path now leads to another one.
    pub fn dir_of(&self, at: &CgroupRef) -> Result<CgroupDir, HostError> {
        let dir = self.dir(at.hierarchy, &at.path)?;
        if dir.at().inode == at.inode {
            return Ok(dir);
        }
        let why = format!("the path now leads to another cgroup (inode {})", dir.at().inode);
        Err(HostError::of_text(Category::Gone, HostOperation::Open, at.to_string(), why))
    }

    /// Opens a path in every hierarchy in which it exists, the one whose processes are authoritative first.
    ///
    /// # Errors
    /// `Gone` when it exists in none; other errors when a hierarchy cannot be read.
    pub fn dirs(&self, path: &str) -> Result<Vec<CgroupDir>, HostError> {
        let mut found: Vec<CgroupDir> = Vec::new();
        let mut gone = None;
        for hierarchy in self.layout.process_order() {
            if found.iter().any(|d| d.at().hierarchy == hierarchy) {
                continue;
            }
            match self.dir(hierarchy, path) {
                Ok(dir) => found.push(dir),
                Err(e) if e.is_gone() => gone = gone.or(Some(e)),
                Err(e) => return Err(e),
            }
        }
        match gone {
            Some(e) if found.is_empty() => Err(e),
            _ => Ok(found),
        }
    }

    /// Whether a path exists in some hierarchy: one is opened where it does. Where the system does not say, for want of
    /// descriptors or rights, it is not gone.
    pub fn exists(&self, path: &str) -> bool {
        self.layout.process_order().any(|hierarchy| may_be(self.dir(hierarchy, path)))
    }
}

fn may_be<T>(opened: Result<T, HostError>) -> bool {
    !opened.is_err_and(|error| error.is_gone())
}

fn open_root(path: &Path) -> Result<OwnedFd, HostError> {
    open(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| HostError::from_errno(HostOperation::Open, path.display().to_string(), e, false))
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn what_cannot_be_opened_for_want_of_descriptors_or_rights_is_not_gone() {
        let failed =
            |errno| may_be::<()>(Err(HostError::from_errno(HostOperation::Open, "/c", errno, false)));
        assert!(may_be(Ok(())));
        for (errno, stays) in
            [(Errno::ENOENT, false), (Errno::ENODEV, false), (Errno::EACCES, true), (Errno::EMFILE, true)]
        {
            assert_eq!(failed(errno), stays, "{errno}");
        }
    }
}
