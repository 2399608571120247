//! Test cgroups on the running kernel: builds trees as a kubelet would and removes all of them again.
//!
//! Owns everything below `/ek-<pid>-<n>` in every mounted hierarchy and touches nothing else. cgroups-rs makes the
//! groups and moves the processes, as it stands for the libraries other programs use; the code under test never does.

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cgroups_rs::{Cgroup, CgroupPid, hierarchies};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait;

/// Controllers the trees are built in.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuacct", "memory", "pids", "freezer"];
const PREFIX: &str = "ek-";

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// Kubernetes' class of a pod, which decides where its cgroup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Directly below `kubepods`.
    Guaranteed,
    /// Below `kubepods/burstable`.
    Burstable,
    /// Below `kubepods/besteffort`.
    BestEffort,
}

impl Tier {
    /// All tiers.
    pub const ALL: [Tier; 3] = [Tier::Guaranteed, Tier::Burstable, Tier::BestEffort];

    /// Path of a pod's cgroup below the tree, as the kubelet's cgroupfs driver names it.
    pub fn pod_path(self, uid: &str) -> String {
        match self {
            Tier::Guaranteed => format!("kubepods/pod{uid}"),
            Tier::Burstable => format!("kubepods/burstable/pod{uid}"),
            Tier::BestEffort => format!("kubepods/besteffort/pod{uid}"),
        }
    }
}

/// A tree of test cgroups, removed with every process in it when dropped.
#[derive(Debug)]
pub struct CgroupTree {
    name: String,
    mounts: Vec<Mount>,
    children: Vec<Child>,
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    /// Controllers and names of a v1 hierarchy; none for v2.
    options: Vec<String>,
}

impl CgroupTree {
    /// Reserves a tree of its own; cgroups appear with [`CgroupTree::container`] and [`CgroupTree::group`].
    ///
    /// # Errors
    ///
    /// Fails without cgroup mounts or the right to make a cgroup there.
    pub fn new() -> Result<CgroupTree> {
        let mounts = mounts()?;
        if mounts.is_empty() {
            bail!("no cgroup hierarchy is mounted");
        }
        sweep(&mounts);
        let serial = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{serial}", std::process::id());
        let tree = CgroupTree { name, mounts, children: Vec::new() };
        tree.group("")?;
        Ok(tree)
    }

    /// Path of the tree in each hierarchy, such as `/ek-4711-0`.
    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }

    /// Makes the cgroup of a container where a kubelet would have it.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses the directory.
    pub fn container(&self, tier: Tier, uid: &str, container: &str) -> Result<TestCgroup> {
        self.group(&format!("{}/{container}", tier.pod_path(uid)))
    }

    /// Makes the cgroup at a path below the tree, in each hierarchy that has one of the controllers and in v2.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses the directory.
    pub fn group(&self, below: &str) -> Result<TestCgroup> {
        let path = format!("{}/{below}", self.name).trim_end_matches('/').to_string();
        if path.split('/').any(|part| part == "..") {
            bail!("a test cgroup stays in its tree: {path}");
        }
        let v2 = hierarchies::is_cgroup2_unified_mode();
        let cgroup = if v2 {
            Cgroup::new(hierarchies::auto(), &path)
        } else {
            let wanted = CONTROLLERS.map(str::to_string).to_vec();
            Cgroup::new_with_specified_controllers(hierarchies::auto(), &path, Some(wanted))
        }
        .with_context(|| format!("cannot make the cgroup /{path}"))?;
        // On a hybrid machine the v2 hierarchy stands beside the v1 ones, unknown to cgroups-rs.
        let beside = self.mounts.iter().find(|mount| mount.options.is_empty() && !v2);
        if let Some(mount) = beside {
            let directory = mount.point.join(&path);
            std::fs::create_dir_all(&directory)
                .with_context(|| format!("cannot make the cgroup {}", directory.display()))?;
        }
        let beside = beside.map(|mount| mount.point.join(&path));
        Ok(TestCgroup { path, cgroup, beside, mounts: self.mounts.clone() })
    }

    /// Starts a command as a member of a cgroup from its first instruction; the tree kills and reaps it.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started.
    pub fn spawn(&mut self, cgroup: &TestCgroup, command: &Command) -> Result<Pid> {
        // A shell moves itself before it becomes the program: no instruction of it runs elsewhere.
        let joins: Vec<String> = cgroup
            .directories()
            .iter()
            .map(|dir| format!("echo $$ > '{}/cgroup.procs'", dir.display()))
            .collect();
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("{} && exec \"$0\" \"$@\"", joins.join(" && ")));
        shell.arg(command.get_program()).args(command.get_args());
        // What it says is nobody's: standard output may be carrying somebody's JSON.
        shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let mut child = shell.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id out of range")?);
        let entered = wait::until(&format!("{pid} to enter {}", cgroup.path()), wait::PATIENCE, || {
            if cgroup.processes().is_ok_and(|members| members.contains(&pid)) {
                return Ok(Some(()));
            }
            let ended = child.try_wait().context("cannot see to a child")?;
            match ended.map(|status| (status, status.signal())) {
                // Killed, as a hog is, before anybody saw it there.
                Some((_, Some(_))) => Ok(Some(())),
                Some((status, None)) => bail!("{command:?} ended with {status}"),
                None => Ok(None),
            }
        });
        self.children.push(child);
        entered.map(|()| pid)
    }

    /// Ends one of the processes started here with SIGTERM and reaps it.
    ///
    /// # Errors
    ///
    /// Fails when it was not started here.
    pub fn end(&mut self, pid: Pid) -> Result<()> {
        let started = self.children.iter().position(|child| i32::try_from(child.id()) == Ok(pid.as_raw()));
        let index = started.with_context(|| format!("{pid} is not ours"))?;
        kill(pid, Signal::SIGTERM).with_context(|| format!("cannot end {pid}"))?;
        let mut child = self.children.swap_remove(index);
        child.wait().map(|_| ()).context("cannot reap a child")
    }

    /// Kills every process in the tree and removes it.
    ///
    /// # Errors
    ///
    /// Fails when processes or cgroups resist.
    pub fn remove(&mut self) -> Result<()> {
        let name = self.name.clone();
        let children = &mut self.children;
        wait::until(&format!("the test cgroups /{name} to go"), wait::PATIENCE, || {
            let mut left = 0;
            for mount in &self.mounts {
                left += usize::from(!try_remove(&mount.point.join(&name))?);
            }
            for child in children.iter_mut() {
                // An exited child keeps its cgroup busy on some kernels until it is reaped.
                child.try_wait().context("cannot reap a child")?;
            }
            Ok((left == 0).then_some(()))
        })?;
        for mut child in self.children.drain(..) {
            child.wait().context("cannot reap a child")?;
        }
        Ok(())
    }
}

impl Drop for CgroupTree {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("test cgroups are left behind: {error:#}");
        }
    }
}

/// One test cgroup, the same path in all hierarchies.
#[derive(Debug)]
pub struct TestCgroup {
    path: String,
    cgroup: Cgroup,
    beside: Option<PathBuf>,
    mounts: Vec<Mount>,
}

impl TestCgroup {
    /// Path in each hierarchy, such as `/ek-4711-0/kubepods/burstable/pod1/c1`.
    pub fn path(&self) -> String {
        format!("/{}", self.path)
    }

    /// Whether the machine has v2 alone.
    pub fn is_v2(&self) -> bool {
        self.cgroup.v2()
    }

    /// Moves a process here in every hierarchy.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses, for example because the process is gone.
    pub fn attach(&self, pid: Pid) -> Result<()> {
        let member = CgroupPid::from(u64::try_from(pid.as_raw()).context("a process id is positive")?);
        self.cgroup
            .add_task_by_tgid(member)
            .with_context(|| format!("cannot move {pid} to {}", self.path()))?;
        if let Some(beside) = &self.beside {
            write(&beside.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Moves a process to a cgroup of a name inside this one, made without controllers of its own, as a program in a
    /// container does that manages cgroups itself.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses.
    pub fn nest(&self, name: &str, pid: Pid) -> Result<()> {
        for directory in self.directories() {
            let inner = directory.join(name);
            std::fs::create_dir_all(&inner)
                .with_context(|| format!("cannot make the cgroup {}", inner.display()))?;
            write(&inner.join("cgroup.procs"), &pid.to_string())?;
        }
        Ok(())
    }

    /// Directory of this cgroup under a controller; on v2 the one directory.
    ///
    /// # Errors
    ///
    /// Fails when the controller is not mounted.
    pub fn directory(&self, controller: &str) -> Result<PathBuf> {
        let mount = self
            .mounts
            .iter()
            .find(|mount| if self.is_v2() { mount.options.is_empty() } else { mount.has(controller) })
            .with_context(|| format!("no hierarchy has the controller {controller}"))?;
        Ok(mount.point.join(&self.path))
    }

    /// Writes a knob.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses the value.
    pub fn set(&self, controller: &str, file: &str, value: &str) -> Result<()> {
        write(&self.directory(controller)?.join(file), value)
    }

    /// Reads a file, without the space at its ends.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be read.
    pub fn read(&self, controller: &str, file: &str) -> Result<String> {
        let path = self.directory(controller)?.join(file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(text.trim().to_string())
    }

    /// A number from a file of names and numbers, such as `anon` in memory.stat.
    ///
    /// # Errors
    ///
    /// Fails when it is not there.
    pub fn stat(&self, controller: &str, file: &str, name: &str) -> Result<u64> {
        let text = self.read(controller, file)?;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let number = found.with_context(|| format!("no {name} in {file} of {}", self.path()))?;
        number.parse().with_context(|| format!("{name} is not a number: {number}"))
    }

    /// CPU time used so far here and below, in microseconds.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be read.
    pub fn cpu_usec(&self) -> Result<u64> {
        if self.is_v2() {
            return self.stat("cpu", "cpu.stat", "usage_usec");
        }
        let nsec: u64 = self.read("cpuacct", "cpuacct.usage")?.parse().context("cpuacct.usage")?;
        Ok(nsec / 1000)
    }

    /// Processes killed for want of memory here and below; on v1, which counts them since Linux 4.13, here alone.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be read.
    pub fn oom_kills(&self) -> Result<u64> {
        let file = if self.is_v2() { "memory.events" } else { "memory.oom_control" };
        self.stat("memory", file, "oom_kill")
    }

    /// Whether its processes are stopped by the freezer.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be read.
    pub fn is_frozen(&self) -> Result<bool> {
        if self.is_v2() {
            return Ok(self.stat("freezer", "cgroup.events", "frozen")? == 1);
        }
        Ok(self.read("freezer", "freezer.state")? != "THAWED")
    }

    /// Kills whatever is left in this cgroup and removes it everywhere.
    ///
    /// # Errors
    ///
    /// Fails when it resists.
    pub fn remove(&self) -> Result<()> {
        self.remove_within(wait::PATIENCE)
    }

    /// The same for one with so many processes that ending them takes its time.
    ///
    /// # Errors
    ///
    /// As [`TestCgroup::remove`].
    pub fn remove_within(&self, patience: Duration) -> Result<()> {
        wait::until(&format!("{} to go", self.path()), patience, || {
            let mut left = 0;
            for directory in self.directories() {
                left += usize::from(!try_remove(&directory)?);
            }
            Ok((left == 0).then_some(()))
        })
    }

    /// Processes directly in this cgroup.
    ///
    /// # Errors
    ///
    /// Fails when the list cannot be read.
    pub fn processes(&self) -> Result<Vec<Pid>> {
        members(&self.directory("memory")?)
    }

    /// Its directories, one in each hierarchy that has it.
    pub fn directories(&self) -> Vec<PathBuf> {
        let all = self.mounts.iter().map(|mount| mount.point.join(&self.path));
        all.filter(|directory| directory.is_dir()).collect()
    }
}

impl Mount {
    fn has(&self, controller: &str) -> bool {
        self.options.iter().any(|option| option == controller)
    }
}

fn write(path: &Path, value: &str) -> Result<()> {
    std::fs::write(path, value).with_context(|| format!("cannot write {value:?} to {}", path.display()))
}

fn members(directory: &Path) -> Result<Vec<Pid>> {
    let path = directory.join("cgroup.procs");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).map(Pid::from_raw).collect())
}

fn mounts() -> Result<Vec<Mount>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").context("cannot read /proc/self/mountinfo")?;
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    for mount in text.lines().filter_map(parse_mount) {
        // The same hierarchy may be mounted twice; its first place is enough.
        if seen.insert(mount.options.clone()) {
            found.push(mount);
        }
    }
    Ok(found)
}

/// A line of mountinfo, proc_pid_mountinfo(5), when it is a cgroup hierarchy.
fn parse_mount(line: &str) -> Option<Mount> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let point = mount.split(' ').nth(4)?;
    let mut words = filesystem.split(' ');
    let options = match words.next()? {
        "cgroup" => words.nth(1)?.split(',').filter(|word| *word != "rw").map(str::to_string).collect(),
        "cgroup2" => Vec::new(),
        _ => return None,
    };
    Some(Mount { point: PathBuf::from(point), options })
}

/// Removes the trees of test runs that are no more, as a killed run cannot do it itself.
fn sweep(mounts: &[Mount]) {
    for mount in mounts {
        let Ok(entries) = std::fs::read_dir(&mount.point) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(owner) = owner(&name)
                && kill(Pid::from_raw(owner), None) == Err(Errno::ESRCH)
                && let Err(error) = try_remove(&entry.path())
            {
                eprintln!("ignoring an old test cgroup: {error:#}");
            }
        }
    }
}

/// The process id in the name of a tree, `ek-<pid>-<n>`.
fn owner(name: &str) -> Option<i32> {
    let (pid, serial) = name.strip_prefix(PREFIX)?.split_once('-')?;
    serial.parse::<u32>().ok()?;
    pid.parse().ok().filter(|pid| *pid > 1)
}

/// Kills the members of a subtree and removes what is empty; true when all of it is gone.
fn try_remove(directory: &Path) -> Result<bool> {
    if !directory.is_dir() {
        return Ok(true);
    }
    let mut gone = true;
    for entry in
        std::fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?
    {
        let entry = entry.with_context(|| format!("cannot list {}", directory.display()))?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            gone &= try_remove(&entry.path())?;
        }
    }
    // A frozen process does not die (cgroup-v1/freezer-subsystem.rst); thaw first, where there is such a file.
    for (file, value) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
        let path = directory.join(file);
        if path.is_file() && std::fs::write(&path, value).is_err() {
            gone = false;
        }
    }
    // All at once where the kernel can (cgroup-v2.rst, "cgroup.kill", since 5.14): a fork bomb is not outrun.
    let at_once = directory.join("cgroup.kill");
    if at_once.is_file()
        && let Err(error) = std::fs::write(&at_once, "1")
    {
        eprintln!("ignoring that {} cannot be written: {error}", at_once.display());
    }
    for pid in members(directory).unwrap_or_default() {
        gone = false;
        match kill(pid, Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => bail!("cannot kill {pid} in {}: {errno}", directory.display()),
        }
    }
    if gone && let Err(error) = std::fs::remove_dir(directory) {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ENOENT) => {}
            Some(Errno::EBUSY | Errno::ENOTEMPTY) => gone = false,
            _ => return Err(error).with_context(|| format!("cannot remove {}", directory.display())),
        }
    }
    Ok(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_read() {
        let v1 = "37 30 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct";
        let found = parse_mount(v1).unwrap();
        assert_eq!(found.point, Path::new("/sys/fs/cgroup/cpu"));
        assert!(found.has("cpuacct") && !found.has("rw"));
        let v2 = "38 30 0:34 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(parse_mount(v2).unwrap().options, Vec::<String>::new());
        assert_eq!(parse_mount("22 1 8:1 / / rw - ext4 /dev/vda rw"), None);
    }

    #[test]
    fn only_our_own_names_have_an_owner() {
        assert_eq!(owner("ek-4711-0"), Some(4711));
        for other in ["ek-", "ek-1-0", "ek-4711", "ek-4711-x", "ek-self-0", "kubepods"] {
            assert_eq!(owner(other), None, "{other}");
        }
    }

    #[test]
    fn pods_lie_where_the_kubelet_puts_them() {
        let paths = Tier::ALL.map(|tier| tier.pod_path("7"));
        assert_eq!(paths, ["kubepods/pod7", "kubepods/burstable/pod7", "kubepods/besteffort/pod7"]);
    }
}
