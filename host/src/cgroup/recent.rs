//! [`Recent`]: directories opened a moment ago.
//!
//! An audit asks a container for its processes and for one knob after another; opening its directory by path each
//! time costs more than reading the file. One directory of each hierarchy is kept, so the number of descriptors
//! is that of hierarchies whatever comes and goes. A kept directory goes on meaning the same cgroup when its path
//! is reused, and answers "gone" once it is removed.

use std::sync::{Arc, Mutex, PoisonError};

use super::dir::CgroupDir;
use super::tree::CgroupTree;
use crate::error::HostError;
use crate::write::CgroupRef;

#[derive(Debug, Default)]
pub(crate) struct Recent {
    kept: Mutex<Vec<Arc<CgroupDir>>>,
}

impl Recent {
    /// Does something with the directory of a cgroup, opened by identity unless it is still open.
    ///
    /// # Errors
    /// As [`CgroupTree::dir_of`], and those of `act`.
    pub(crate) fn with<R>(
        &self,
        tree: &CgroupTree,
        at: &CgroupRef,
        act: impl FnOnce(&CgroupDir) -> Result<R, HostError>,
    ) -> Result<R, HostError> {
        let dir = match self.find(at) {
            Some(dir) => dir,
            None => self.keep(tree.dir_of(at)?),
        };
        let done = act(&dir);
        if done.as_ref().is_err_and(HostError::is_gone) {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).retain(|d| d.at() != at);
        }
        done
    }

    fn find(&self, at: &CgroupRef) -> Option<Arc<CgroupDir>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().find(|d| d.at() == at).map(Arc::clone)
    }

    /// In place of the one of its hierarchy.
    fn keep(&self, dir: CgroupDir) -> Arc<CgroupDir> {
        let dir = Arc::new(dir);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.iter_mut().find(|d| d.at().hierarchy == dir.at().hierarchy) {
            Some(place) => *place = Arc::clone(&dir),
            None => kept.push(Arc::clone(&dir)),
        }
        dir
    }
}

/// Nothing is taken along: a copy begins with nothing open.
impl Clone for Recent {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;
    use crate::hierarchy::{Hierarchy, Mode};

    #[test]
    fn one_directory_of_a_hierarchy_is_kept_and_a_replaced_one_is_not_taken_for_it() {
        let fake = FakeTree::new(Mode::V2).unwrap();
        fake.add_cgroup("/a").unwrap();
        fake.add_cgroup("/b").unwrap();
        let tree = fake.open().unwrap();
        let at = |path: &str| tree.dir(Hierarchy::V2, path).unwrap().at().clone();
        let (a, b) = (at("/a"), at("/b"));
        let recent = Recent::default();
        let read = |at: &CgroupRef| recent.with(&tree, at, |dir| dir.read("cpu.weight"));
        for place in [&a, &a, &b, &a] {
            assert!(read(place).is_ok());
        }
        assert_eq!(recent.kept.lock().unwrap().len(), 1);
        fake.remove_cgroup("/a").unwrap();
        assert!(read(&a).unwrap_err().is_gone());
        assert!(recent.kept.lock().unwrap().is_empty());
        fake.add_cgroup("/a").unwrap();
        let other = CgroupRef { inode: a.inode.wrapping_add(1_000_000), ..a };
        assert!(read(&other).unwrap_err().is_gone());
    }
}
