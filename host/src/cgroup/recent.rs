//! [`Recent`]: directories opened a while ago.
//!
//! An audit asks a container for its processes and for one knob after another; opening its directory by path each
//! time costs more than reading the file. Directories are kept open, at most a given number of them: the one that
//! was not asked for the longest time is closed for another. A kept directory goes on meaning the same cgroup when
//! its path is reused, and answers "gone" once it is removed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::dir::CgroupDir;
use super::tree::CgroupTree;
use crate::error::HostError;
use crate::hierarchy::Hierarchy;
use crate::write::CgroupRef;

/// Enough for what one look at a container asks for, in every hierarchy there may be.
const FEW: usize = 16;

/// A directory nobody asked for in so long is closed when another is opened: its cgroup may have gone.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Recent {
    most: usize,
    kept: Mutex<RecentDirs>,
}

#[derive(Debug)]
struct RecentDirs {
    dirs: HashMap<(Hierarchy, u64), Used>,
    swept: Instant,
}

#[derive(Debug)]
struct Used {
    dir: Arc<CgroupDir>,
    at: Instant,
}

impl Recent {
    /// Keeps at most so many directories open, and never fewer than a few.
    pub(crate) fn keeping(most: usize) -> Self {
        let kept = RecentDirs { dirs: HashMap::new(), swept: Instant::now() };
        Self { most: most.max(FEW), kept: Mutex::new(kept) }
    }

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
            self.close(at);
        }
        done
    }

    /// Closes the directory of a cgroup nobody will ask for.
    pub(crate) fn close(&self, at: &CgroupRef) {
        self.kept().dirs.remove(&(at.hierarchy, at.inode));
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, RecentDirs> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, at: &CgroupRef) -> Option<Arc<CgroupDir>> {
        let mut kept = self.kept();
        let used = kept.dirs.get_mut(&(at.hierarchy, at.inode)).filter(|used| used.dir.at() == at)?;
        used.at = Instant::now();
        Some(Arc::clone(&used.dir))
    }

    fn keep(&self, dir: CgroupDir) -> Arc<CgroupDir> {
        let (dir, now) = (Arc::new(dir), Instant::now());
        let mut kept = self.kept();
        if now.saturating_duration_since(kept.swept) >= FORGOTTEN {
            kept.swept = now;
            kept.dirs.retain(|_, used| now.saturating_duration_since(used.at) < FORGOTTEN);
        }
        if kept.dirs.len() >= self.most {
            let oldest = kept.dirs.iter().min_by_key(|(_, used)| used.at).map(|(of, _)| *of);
            oldest.map(|of| kept.dirs.remove(&of));
        }
        let of = (dir.at().hierarchy, dir.at().inode);
        kept.dirs.insert(of, Used { dir: Arc::clone(&dir), at: now });
        dir
    }
}

/// Nothing is taken along: a copy begins with nothing open, and keeps a few.
impl Clone for Recent {
    fn clone(&self) -> Self {
        Self::keeping(FEW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;
    use crate::hierarchy::CgroupMode;

    #[test]
    fn as_many_directories_as_may_are_kept_and_a_replaced_one_is_not_taken_for_it() {
        let fake = FakeTree::new(CgroupMode::V2).unwrap();
        let paths: Vec<String> = (0..FEW + 4).map(|n| format!("/c{n}")).collect();
        paths.iter().for_each(|path| fake.add_cgroup(path).unwrap());
        let tree = fake.open().unwrap();
        let at = |path: &str| tree.dir(Hierarchy::V2, path).unwrap().at().clone();
        let all: Vec<CgroupRef> = paths.iter().map(|path| at(path)).collect();
        let recent = Recent::keeping(0);
        let read = |at: &CgroupRef| recent.with(&tree, at, |dir| dir.read("cpu.weight"));
        let is_kept = |at: &CgroupRef| recent.kept().dirs.contains_key(&(at.hierarchy, at.inode));
        for place in &all {
            assert!(read(place).is_ok());
            // Asked for again and again, so that it is never the oldest.
            assert!(read(&all[0]).is_ok());
        }
        assert_eq!(recent.kept().dirs.len(), FEW);
        assert!(is_kept(&all[0]) && !is_kept(&all[1]) && is_kept(all.last().unwrap()));
        recent.close(all.last().unwrap());
        assert!(!is_kept(all.last().unwrap()));
        fake.remove_cgroup(&paths[0]).unwrap();
        assert!(read(&all[0]).unwrap_err().is_gone());
        assert!(!is_kept(&all[0]));
        fake.add_cgroup(&paths[0]).unwrap();
        let other = CgroupRef { inode: all[0].inode.wrapping_add(1_000_000), ..all[0].clone() };
        assert!(read(&other).unwrap_err().is_gone());
    }

    #[test]
    fn a_directory_nobody_asks_for_is_closed_in_time() {
        let fake = FakeTree::new(CgroupMode::V2).unwrap();
        ["/a", "/b"].iter().for_each(|path| fake.add_cgroup(path).unwrap());
        let tree = fake.open().unwrap();
        let recent = Recent::keeping(1000);
        let read = |path: &str| {
            let at = tree.dir(Hierarchy::V2, path).unwrap().at().clone();
            recent.with(&tree, &at, |dir| dir.read("cpu.weight")).unwrap();
        };
        read("/a");
        let earlier = Instant::now().checked_sub(2 * FORGOTTEN).unwrap();
        let mut kept = recent.kept();
        kept.swept = earlier;
        kept.dirs.values_mut().for_each(|used| used.at = earlier);
        drop(kept);
        read("/b");
        assert_eq!(recent.kept().dirs.len(), 1);
    }
}
