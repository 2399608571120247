//! Real cgroups with a sleeping process, for tests and examples that need this machine's kernel.
#![allow(dead_code, unreachable_pub)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::hierarchy::{CgroupMode, Hierarchy};
use evenkeel_host::roots::Roots;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A container-like cgroup in every hierarchy, removed with its processes when dropped.
pub struct RealCgroup {
    pub roots: Roots,
    pub tree: Arc<CgroupTree>,
    pub path: String,
    dirs: Vec<PathBuf>,
    children: Vec<Child>,
}

impl RealCgroup {
    /// `None`, said on standard error, where this machine does not let us make cgroups. A machine that should
    /// (root, cgroup file systems mounted writable) fails the test under `CI=true` instead.
    pub fn new(what: &str) -> Option<Self> {
        Self::try_new().map_err(|why| skip(what, &why)).ok()
    }

    fn try_new() -> Result<Self, String> {
        let roots = Roots::default();
        // Opened once: a thousand of these must not use up the descriptors that are to be measured.
        static TREE: OnceLock<Result<Arc<CgroupTree>, String>> = OnceLock::new();
        let open = || CgroupTree::open(&Roots::default()).map(Arc::new).map_err(|e| e.to_string());
        let tree = TREE.get_or_init(open).clone()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = format!("ek-host-{}-{number}", std::process::id());
        let mut new =
            Self { roots, tree, path: format!("/{base}/c"), dirs: Vec::new(), children: Vec::new() };
        for mount in new.tree.layout().mounts().to_vec() {
            for dir in [mount.path.join(&base), mount.path.join(&base).join("c")] {
                std::fs::create_dir(&dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
                fill_cpuset(&dir);
                new.dirs.push(dir);
            }
            if mount.hierarchy == Hierarchy::V2 {
                give_on(&mount.path.join(&base));
            }
        }
        Ok(new)
    }

    /// Starts a program and puts it into the cgroup in every hierarchy.
    pub fn spawn(&mut self, program: &str, args: &[&str]) -> u32 {
        let child =
            Command::new(program).args(args).stdin(Stdio::null()).spawn().expect("the program starts");
        let pid = child.id();
        self.children.push(child);
        self.adopt(pid);
        pid
    }

    pub fn adopt(&self, pid: u32) {
        for dir in self.dirs.iter().filter(|d| d.ends_with("c")) {
            std::fs::write(dir.join("cgroup.procs"), pid.to_string()).expect("a process can be put in");
        }
    }

    pub fn mode(&self) -> CgroupMode {
        self.tree.layout().mode()
    }

    /// Ends the processes and removes the directories.
    pub fn remove(&mut self) {
        for child in &mut self.children {
            let _gone_already = child.kill();
            let _reaped = child.wait();
        }
        self.children.clear();
        // Innermost first. A cgroup stays busy for a moment after its last process was reaped.
        for dir in self.dirs.drain(..).rev() {
            let removed = wait_for(|| std::fs::remove_dir(&dir).is_ok() || !dir.exists());
            assert!(removed || std::thread::panicking(), "cannot remove {}", dir.display());
        }
    }
}

impl Drop for RealCgroup {
    fn drop(&mut self) {
        self.remove();
    }
}

/// A v1 cpuset takes no process before it has processors and memory nodes; here those of its parent.
fn fill_cpuset(dir: &std::path::Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let of_parent = dir.parent().and_then(|p| std::fs::read_to_string(p.join(file)).ok());
        if let Some(text) = of_parent.filter(|t| !t.trim().is_empty()) {
            let _v2_inherits_anyway = std::fs::write(dir.join(file), text);
        }
    }
}

/// Gives every controller a v2 cgroup has on to its children. Where one cannot be given on, tests find it missing.
fn give_on(dir: &std::path::Path) {
    let given = std::fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    for controller in given.split_whitespace() {
        let _ignored = std::fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// Waits for a state, for at most ten seconds.
pub fn wait_for(mut state: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(10) {
        if state() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Says that a test did not run. Under `CI=true`, root on a machine with cgroups has no excuse.
pub fn skip(what: &str, why: &str) {
    eprintln!("SKIPPED {what}: {why}");
    let root = std::fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(
        !(ci && root && !why.contains("Read-only")),
        "{what} was skipped under CI although we are root: {why}"
    );
}
