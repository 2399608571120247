//! [`FakeTree`]: ordinary files in a temporary directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cgroup::CgroupTree;
use crate::error::HostError;
use crate::hierarchy::{CgroupMode, Controller, Hierarchy, Layout, Mount};
use crate::roots::Roots;

static NEXT: AtomicU64 = AtomicU64::new(0);

const V1: [Controller; 7] = Controller::ALL;
const V2: [Controller; 5] =
    [Controller::Cpu, Controller::Memory, Controller::Pids, Controller::Cpuset, Controller::Io];

const PRESSURE: &str =
    "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";

/// Files of a new v2 cgroup with what the kernel puts into them.
const V2_FILES: [(&str, &str); 27] = [
    ("cgroup.procs", ""),
    ("cgroup.controllers", "cpuset cpu memory pids\n"),
    ("cgroup.subtree_control", ""),
    ("cgroup.events", "populated 0\nfrozen 0\n"),
    ("cgroup.freeze", "0\n"),
    (
        "cpu.stat",
        "usage_usec 0\nuser_usec 0\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n",
    ),
    ("cpu.weight", "100\n"),
    ("cpu.max", "max 100000\n"),
    ("cpu.pressure", PRESSURE),
    ("memory.pressure", PRESSURE),
    ("io.pressure", PRESSURE),
    ("io.stat", ""),
    ("memory.current", "0\n"),
    ("memory.swap.current", "0\n"),
    ("memory.stat", "anon 0\nfile 0\ninactive_file 0\n"),
    ("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"),
    ("memory.min", "0\n"),
    ("memory.low", "0\n"),
    ("memory.high", "max\n"),
    ("memory.max", "max\n"),
    ("memory.oom.group", "0\n"),
    ("memory.swap.max", "max\n"),
    ("memory.reclaim", ""),
    ("cgroup.kill", ""),
    ("cpu.idle", "0\n"),
    ("cpu.max.burst", "0\n"),
    ("cpuset.cpus", "\n"),
];

/// Files of the v2 tree of a hybrid: no controllers.
const CORE_FILES: [&str; 9] = [
    "cgroup.procs",
    "cgroup.controllers",
    "cgroup.subtree_control",
    "cgroup.events",
    "cgroup.freeze",
    "cpu.stat",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
];

fn v1_files(controller: Controller) -> &'static [(&'static str, &'static str)] {
    match controller {
        Controller::Cpu => &[
            ("cpu.shares", "1024\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.cfs_burst_us", "0\n"),
            ("cpu.idle", "0\n"),
            ("cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
        ],
        Controller::Cpuacct => &[("cpuacct.usage", "0\n")],
        Controller::Memory => &[
            ("memory.usage_in_bytes", "0\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("memory.memsw.limit_in_bytes", "9223372036854771712\n"),
            (
                "memory.stat",
                "cache 0\nrss 0\ninactive_file 0\ntotal_rss 0\ntotal_swap 0\ntotal_inactive_file 0\n",
            ),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"),
        ],
        Controller::Pids => &[("pids.current", "0\n")],
        Controller::Freezer => &[("freezer.state", "THAWED\n")],
        Controller::Cpuset => &[("cpuset.cpus", "\n"), ("cpuset.mems", "\n")],
        Controller::Io => &[
            ("blkio.throttle.io_service_bytes_recursive", "Total 0\n"),
            ("blkio.throttle.io_serviced_recursive", "Total 0\n"),
        ],
    }
}

/// A tree of ordinary files, removed when dropped.
#[derive(Debug)]
pub struct FakeTree {
    dir: PathBuf,
    layout: Layout,
}

impl FakeTree {
    /// An empty machine: roots only, and a procfs in which `self` is the calling process.
    ///
    /// # Errors
    /// When the temporary directory cannot be written, as the file system says.
    pub fn new(mode: CgroupMode) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("evenkeel-fake-{}-{number}", std::process::id()));
        fs::create_dir_all(dir.join("proc"))?;
        std::os::unix::fs::symlink(std::process::id().to_string(), dir.join("proc/self"))?;
        let mounts = mounts(mode, &dir.join("cgroup"));
        for mount in &mounts {
            fs::create_dir_all(&mount.path)?;
        }
        let layout = Layout::declare(mounts).map_err(io::Error::other)?;
        Ok(Self { dir, layout })
    }

    /// Its roots.
    pub fn roots(&self) -> Roots {
        Roots::new(self.dir.join("proc"), self.dir.join("cgroup"))
    }

    /// Its layout, as declared: no file system magic is found here.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its tree, opened.
    ///
    /// # Errors
    /// As [`CgroupTree::of_layout`].
    pub fn open(&self) -> Result<Arc<CgroupTree>, HostError> {
        CgroupTree::of_layout(self.layout.clone()).map(Arc::new)
    }

    /// Makes a cgroup, and those above it, in every hierarchy, with the files and values of a new cgroup.
    ///
    /// # Errors
    /// As the file system says.
    pub fn add_cgroup(&self, path: &str) -> io::Result<()> {
        for mount in self.layout.mounts() {
            let mut dir = mount.path.clone();
            for part in path.split('/').filter(|p| !p.is_empty()) {
                dir.push(part);
                if !dir.is_dir() {
                    fs::create_dir(&dir)?;
                    fill(&dir, mount)?;
                }
            }
        }
        Ok(())
    }

    /// Removes a cgroup with all files and children, in every hierarchy.
    ///
    /// # Errors
    /// As the file system says.
    pub fn remove_cgroup(&self, path: &str) -> io::Result<()> {
        self.layout.mounts().iter().try_for_each(|m| fs::remove_dir_all(m.path.join(relative(path))))
    }

    /// Path of a file of a cgroup.
    pub fn file(&self, hierarchy: Hierarchy, path: &str, file: &str) -> PathBuf {
        let root = self.layout.mount(hierarchy).map_or(self.dir.as_path(), |m| m.path.as_path());
        root.join(relative(path)).join(file)
    }

    /// Writes a file of a cgroup as the kernel would show it.
    ///
    /// # Errors
    /// As the file system says.
    pub fn set(&self, hierarchy: Hierarchy, path: &str, file: &str, text: &str) -> io::Result<()> {
        fs::write(self.file(hierarchy, path, file), text)
    }

    /// Puts processes into a cgroup in every hierarchy, in place of those there.
    ///
    /// # Errors
    /// As the file system says.
    pub fn set_procs(&self, path: &str, pids: &[u32]) -> io::Result<()> {
        let text: String = pids.iter().map(|p| format!("{p}\n")).collect();
        self.layout.mounts().iter().try_for_each(|m| self.set(m.hierarchy, path, "cgroup.procs", &text))
    }

    /// Makes a process: its directory in procfs with `stat`, `oom_score_adj` and `cgroup`.
    ///
    /// # Errors
    /// As the file system says.
    pub fn add_process(&self, pid: u32, start_time: u64, score: i16, cgroup: &str) -> io::Result<()> {
        let dir = self.dir.join("proc").join(pid.to_string());
        fs::create_dir_all(&dir)?;
        let zeros = "0 ".repeat(12);
        fs::write(
            dir.join("stat"),
            format!("{pid} (fake) S 2 {pid} {pid} 0 -1 0 {zeros}{start_time} 0 0\n"),
        )?;
        fs::write(dir.join("oom_score_adj"), format!("{score}\n"))?;
        fs::write(dir.join("cgroup"), format!("0::/{}\n", relative(cgroup)))
    }
}

impl Drop for FakeTree {
    fn drop(&mut self) {
        // Left behind in the temporary directory if it cannot be removed; nothing depends on it.
        let _ignored = fs::remove_dir_all(&self.dir);
    }
}

fn relative(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn mounts(mode: CgroupMode, root: &Path) -> Vec<Mount> {
    let v1 = V1.iter().map(|&c| Mount {
        hierarchy: Hierarchy::V1(c),
        path: root.join(c.name()),
        controllers: vec![c],
        delegated: vec![c],
    });
    let v2 = |path: PathBuf, controllers: &[Controller]| Mount {
        hierarchy: Hierarchy::V2,
        path,
        controllers: controllers.to_vec(),
        delegated: controllers.to_vec(),
    };
    match mode {
        CgroupMode::V1 => v1.collect(),
        CgroupMode::V2 => vec![v2(root.to_owned(), &V2)],
        CgroupMode::Hybrid => v1.chain([v2(root.join("unified"), &[])]).collect(),
    }
}

fn fill(dir: &Path, mount: &Mount) -> io::Result<()> {
    let write = |(file, text): &(&str, &str)| fs::write(dir.join(file), text);
    match mount.hierarchy {
        Hierarchy::V1(_) => {
            write(&("cgroup.procs", ""))?;
            mount.controllers.iter().flat_map(|&c| v1_files(c)).try_for_each(write)
        }
        Hierarchy::V2 if mount.controllers.is_empty() => {
            V2_FILES.iter().filter(|(f, _)| CORE_FILES.contains(f)).try_for_each(write)
        }
        Hierarchy::V2 => {
            V2_FILES.iter().try_for_each(write)?;
            write(&("pids.current", "0\n"))
        }
    }
}
