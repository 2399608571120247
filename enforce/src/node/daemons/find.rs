//! Finding daemons: by unit, by cgroup, by program.
//!
//! A unit's or cgroup's daemon is its first process and the others directly in it that run the same program: shims,
//! proxies and other helpers beside it are not, and cgroups below it hold containers. By program, every process is
//! looked at that has the name, and what counts as one of the node's own is decided by [`verdict`], because a
//! container may call itself what it likes. Owned here: who is a daemon. Not owned: what becomes of it.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::programs::{COMM_LENGTH, Running, comm_of, pids, running};
use evenkeel_host::roots::Roots;
use evenkeel_host::write::ProcessId;
use evenkeel_model::workload::CgroupBinding;

use crate::converge::roster::RosterEntry;
use crate::node::rules::{DaemonRules, Program};
use crate::reconcile::bind::Binder;

/// Audits after which every process is looked at again, not only those that are new: a pid may have been reused, and
/// a shell may have become a daemon since.
const LOOK_AGAIN: u32 = 6;

/// A process that is a daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DaemonProcess {
    /// Who.
    pub(super) id: ProcessId,
    /// Name of its program's file.
    pub(super) name: String,
    /// How it was found: `unit kubelet.service`, `cgroup /x`, `program kubelet`.
    pub(super) by: String,
    /// Path of its cgroup as far as it is known.
    pub(super) cgroup: Option<String>,
}

/// Looks for daemons; remembers who was looked at.
pub(super) struct Finder {
    rules: DaemonRules,
    reader: KernelReader,
    /// Processes whose name is none of a daemon's.
    strangers: HashSet<u32>,
    /// Processes found by program at the last look.
    known: Vec<u32>,
    looks: u32,
    /// Something could not be opened at this look, for want of descriptors.
    is_blind: bool,
}

/// What a look found.
#[derive(Debug)]
pub(super) struct FoundDaemons {
    /// Each process once.
    pub(super) processes: Vec<DaemonProcess>,
    /// Whoever is not among them is none any more.
    pub(super) is_whole: bool,
}

impl Finder {
    pub(super) fn new(rules: DaemonRules, reader: KernelReader) -> Self {
        Self { rules, reader, strangers: HashSet::new(), known: Vec::new(), looks: 0, is_blind: false }
    }

    /// Every daemon there is now. `excluded` are namespaces whose containers count.
    pub(super) fn look(&mut self, roster: &[RosterEntry], excluded: &[String]) -> FoundDaemons {
        let mut found: BTreeMap<u32, DaemonProcess> = BTreeMap::new();
        let (rules, mut binder) = (self.rules.clone(), Binder::default());
        self.is_blind = false;
        for unit in &rules.units {
            let path = binder.resolve(&self.reader, &CgroupBinding::Unit(unit.clone()));
            for one in path.iter().flat_map(|path| self.in_cgroup(path, &format!("unit {unit}"))) {
                found.entry(one.id.pid).or_insert(one);
            }
        }
        self.is_blind |= binder.is_blind();
        for path in &rules.cgroups {
            for one in self.in_cgroup(path, &format!("cgroup {path}")) {
                found.entry(one.id.pid).or_insert(one);
            }
        }
        for one in self.by_program(roster, excluded) {
            found.entry(one.id.pid).or_insert(one);
        }
        FoundDaemons { processes: found.into_values().collect(), is_whole: !self.is_blind }
    }

    /// What could be looked at.
    fn seen<T>(&mut self, looked: Result<T, HostError>) -> Option<T> {
        looked.inspect_err(|error| self.is_blind |= error.category() == Category::Io).ok()
    }

    /// The processes directly in a cgroup, by the first hierarchy in which it has any.
    fn direct(&mut self, path: &str) -> Vec<u32> {
        for dir in self.seen(self.reader.tree().dirs(path)).unwrap_or_default() {
            let pids = self.seen(dir.procs()).map(|procs| procs.pids).unwrap_or_default();
            if !pids.is_empty() {
                return pids;
            }
        }
        Vec::new()
    }

    /// The first process directly in a cgroup and those that run the same program.
    fn in_cgroup(&mut self, path: &str, by: &str) -> Vec<DaemonProcess> {
        let roots = self.reader.roots().clone();
        let pids = self.direct(path);
        let all = pids.into_iter().filter_map(|pid| self.seen(running(&roots, pid)));
        let all: Vec<Running> = all.filter(|process| !process.is_no_program).collect();
        let Some(first) = all.iter().min_by_key(|process| (process.id.start_time, process.id.pid)) else {
            return Vec::new();
        };
        let program = first.best_path();
        let same = all.iter().filter(|process| process.best_path() == program && process.comm == first.comm);
        same.map(|process| found(process, &program, by, Some(path.to_owned()))).collect()
    }

    fn by_program(&mut self, roster: &[RosterEntry], excluded: &[String]) -> Vec<DaemonProcess> {
        let rules = self.rules.clone();
        let roots = self.reader.roots().clone();
        let mut daemons = Vec::new();
        let candidates = self.candidates(&rules, &roots);
        self.known.clear();
        for pid in candidates {
            let Some(process) = self.seen(running(&roots, pid)) else { continue };
            let Some(program) = rules.programs.iter().find(|program| runs(&process, program)) else {
                continue;
            };
            let home = self.home(&process);
            let place = home.as_deref().map_or(ProcessPlace::Unknown, |path| place(path, roster, excluded));
            if verdict(&process, program, place) {
                self.known.push(pid);
                daemons.push(found(&process, &process.best_path(), &by(program), home));
            }
        }
        daemons
    }

    /// Processes with the name of a daemon. Only those that are new since the last look are asked for theirs.
    fn candidates(&mut self, rules: &DaemonRules, roots: &Roots) -> Vec<u32> {
        let names: Vec<String> = rules.programs.iter().filter_map(comm).collect();
        if names.is_empty() {
            return Vec::new();
        }
        if self.looks.is_multiple_of(LOOK_AGAIN) {
            self.strangers.clear();
        }
        self.looks = self.looks.wrapping_add(1);
        let all = match pids(roots) {
            Ok(all) => all,
            Err(error) => {
                tracing::debug!(%error, "ignoring: processes cannot be listed; known daemons only");
                self.is_blind = true;
                return self.known.clone();
            }
        };
        let mut strangers = HashSet::with_capacity(all.len());
        let mut candidates = Vec::new();
        for pid in all {
            let stranger =
                self.strangers.contains(&pid) || comm_of(roots, pid).is_ok_and(|comm| !names.contains(&comm));
            if stranger {
                strangers.insert(pid);
            } else {
                candidates.push(pid);
            }
        }
        self.strangers = strangers;
        candidates
    }

    /// Path of the cgroup in which its processes are looked for; `None` where paths are shown relative to another
    /// cgroup namespace than the machine's.
    fn home(&self, process: &Running) -> Option<String> {
        let order = self.reader.tree().layout().process_order();
        let paths =
            order.filter_map(|h| process.cgroups.iter().find(|(of, _)| *of == h).map(|(_, path)| path));
        // A runtime may leave a container out of a hierarchy, where it is in the root then.
        let mut paths = paths.filter(|path| !path.starts_with("/.."));
        let first = paths.next()?;
        Some(if first == "/" { paths.find(|path| *path != "/").unwrap_or(first) } else { first }.clone())
    }
}

fn found(process: &Running, program: &Path, by: &str, cgroup: Option<String>) -> DaemonProcess {
    let name = program.file_name().map_or_else(|| process.comm.clone(), |n| n.to_string_lossy().into_owned());
    DaemonProcess { id: process.id, name, by: by.to_owned(), cgroup }
}

fn by(program: &Program) -> String {
    match program {
        Program::Path(path) => format!("program {}", path.display()),
        Program::Name(name) => format!("program {name}"),
    }
}

/// The name a process of this program has, unless it took another.
fn comm(program: &Program) -> Option<String> {
    let name = match program {
        Program::Path(path) => path.file_name()?.to_string_lossy().into_owned(),
        Program::Name(name) => name.clone(),
    };
    let end =
        name.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= COMM_LENGTH).last();
    Some(name[..end.unwrap_or(0)].to_owned())
}

/// Whether a process runs a program: by the kernel's word, or by its own where we may not ask the kernel.
fn runs(process: &Running, program: &Program) -> bool {
    let path = process.best_path();
    match program {
        Program::Path(wanted) => path == *wanted,
        Program::Name(name) => path.file_name().is_some_and(|file| file == name.as_str()),
    }
}

/// Where a process is, as far as containers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProcessPlace {
    /// In no container the agent knows.
    Outside,
    /// In a container of an excluded namespace: the node's own.
    Excluded,
    /// In any other container.
    Container,
    /// Its cgroup is not known.
    Unknown,
}

fn place(path: &str, roster: &[RosterEntry], excluded: &[String]) -> ProcessPlace {
    let around = roster.iter().filter(|entry| is_at_or_below(path, &entry.tracked.cgroup));
    match around.max_by_key(|entry| entry.tracked.cgroup.len()) {
        None => ProcessPlace::Outside,
        Some(entry) if excluded.contains(&entry.tracked.workload.pod.namespace) => ProcessPlace::Excluded,
        Some(_) => ProcessPlace::Container,
    }
}

fn is_at_or_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a process that runs a daemon's program is that daemon and no container's imitation of it.
///
/// A process outside of containers has its number in the machine's process namespace and the machine's root
/// directory; a program named without its path is also expected to be root's.
fn verdict(process: &Running, program: &Program, place: ProcessPlace) -> bool {
    if process.is_no_program {
        return false;
    }
    let trusted = process.uid == 0 || matches!(program, Program::Path(_));
    match place {
        ProcessPlace::Excluded => true,
        ProcessPlace::Container => false,
        ProcessPlace::Outside | ProcessPlace::Unknown => {
            trusted && !process.in_inner_namespace && process.shares_root != Some(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tracked;
    use std::path::PathBuf;
    use std::sync::Arc;

    fn kubelet() -> Running {
        Running {
            id: ProcessId { pid: 10, start_time: 1 },
            comm: "kubelet".into(),
            program: Some("/usr/bin/kubelet".into()),
            first_word: Some("/usr/bin/kubelet".into()),
            uid: 0,
            in_inner_namespace: false,
            shares_root: Some(true),
            cgroups: Vec::new(),
            is_no_program: false,
        }
    }

    #[test]
    fn a_containers_imitation_is_no_daemon() {
        let name = Program::Name("kubelet".into());
        let path = Program::Path("/usr/bin/kubelet".into());
        let table = [
            ("the node's own", kubelet(), &name, ProcessPlace::Outside, true),
            (
                "where we may not look",
                Running { shares_root: None, ..kubelet() },
                &name,
                ProcessPlace::Outside,
                true,
            ),
            ("a user's", Running { uid: 1000, ..kubelet() }, &name, ProcessPlace::Outside, false),
            ("a user's, by path", Running { uid: 1000, ..kubelet() }, &path, ProcessPlace::Outside, true),
            ("in a container", kubelet(), &name, ProcessPlace::Container, false),
            ("in a container, by path", kubelet(), &path, ProcessPlace::Container, false),
            (
                "in an unknown container",
                Running { in_inner_namespace: true, ..kubelet() },
                &name,
                ProcessPlace::Outside,
                false,
            ),
            (
                "in one with the host's pids",
                Running { shares_root: Some(false), ..kubelet() },
                &name,
                ProcessPlace::Outside,
                false,
            ),
            (
                "in kube-system",
                Running { in_inner_namespace: true, shares_root: Some(false), ..kubelet() },
                &name,
                ProcessPlace::Excluded,
                true,
            ),
            ("a zombie", Running { is_no_program: true, ..kubelet() }, &name, ProcessPlace::Excluded, false),
        ];
        for (case, process, program, place, want) in table {
            assert_eq!(verdict(&process, program, place), want, "{case}");
        }
    }

    #[test]
    fn a_program_is_told_by_path_or_name() {
        let shim = Running { program: Some("/usr/bin/kubelet-shim".into()), ..kubelet() };
        let said = Running { program: None, ..kubelet() };
        let lie = Running { program: Some("/bin/sleep".into()), ..kubelet() };
        let name = Program::Name("kubelet".into());
        assert!(runs(&kubelet(), &name) && runs(&said, &name) && !runs(&shim, &name) && !runs(&lie, &name));
        let path = Program::Path(PathBuf::from("/usr/bin/kubelet"));
        assert!(runs(&kubelet(), &path) && !runs(&lie, &path));
        let long = Program::Name("a-very-long-daemon-name".into());
        assert_eq!(comm(&long).as_deref(), Some("a-very-long-dae"));
        assert_eq!(comm(&Program::Name("ääääääää".into())).as_deref(), Some("äääääää"));
    }

    #[test]
    fn the_innermost_container_counts() {
        let entry = |path: &str, namespace: &str| {
            let mut tracked = tracked("a");
            tracked.cgroup = path.into();
            let mut workload = (*tracked.workload).clone();
            workload.pod.namespace = namespace.into();
            tracked.workload = Arc::new(workload);
            RosterEntry { tracked: Arc::new(tracked), managed: false, memory: None, cpu: None, freezer: None }
        };
        let roster = [entry("/pods/a", "default"), entry("/pods/a/in", "kube-system")];
        let excluded = ["kube-system".to_owned()];
        for (path, want) in [
            ("/system.slice", ProcessPlace::Outside),
            ("/pods/ab", ProcessPlace::Outside),
            ("/pods/a/x", ProcessPlace::Container),
            ("/pods/a/in/x", ProcessPlace::Excluded),
        ] {
            assert_eq!(place(path, &roster, &excluded), want, "{path}");
        }
    }
}
