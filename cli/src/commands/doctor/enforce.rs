//! Checks of what enforcement needs beyond scores and shares: knobs of newer kernels, OOM events, the kernel's log,
//! systemd's bus.

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use evenkeel_host::cgroup::{CgroupDir, CgroupTree};
use evenkeel_host::error::Category;
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_log::KernelLog;
use evenkeel_host::roots::Roots;

use super::{CheckStatus, Finding};

/// Cgroups looked at for a file before it counts as missing: one may lack a controller that others have.
const LOOKED_AT: usize = 16;
/// Where D-Bus' system bus listens (D-Bus specification, "Well-known Message Bus Instances").
const SYSTEM_BUS: &str = "run/dbus/system_bus_socket";

/// A file of cgroups and what it is for.
struct CgroupFile {
    check: &'static str,
    controller: Controller,
    v1: Option<&'static str>,
    v2: Option<&'static str>,
    without: &'static str,
    remedy: &'static str,
}

const FILES: [CgroupFile; 7] = [
    CgroupFile {
        check: "cpu.idle",
        controller: Controller::Cpu,
        v1: Some("cpu.idle"),
        v2: Some("cpu.idle"),
        without: "cpu.idle_best_effort has no effect",
        remedy: "use Linux 5.15 or later",
    },
    CgroupFile {
        check: "cpu burst",
        controller: Controller::Cpu,
        v1: Some("cpu.cfs_burst_us"),
        v2: Some("cpu.max.burst"),
        without: "a container cannot save up quota for a burst",
        remedy: "use Linux 5.14 or later with CONFIG_CFS_BANDWIDTH",
    },
    CgroupFile {
        check: "cpuset.cpus",
        controller: Controller::Cpuset,
        v1: Some("cpuset.cpus"),
        v2: Some("cpuset.cpus"),
        without: "cpu.exclusive_cores has no effect",
        remedy: "give the cpuset controller on to children of the root",
    },
    CgroupFile {
        check: "memory protection",
        controller: Controller::Memory,
        v1: Some("memory.soft_limit_in_bytes"),
        v2: Some("memory.min"),
        without: "requested memory is not protected from reclaim",
        remedy: "give the memory controller on to children of the root",
    },
    CgroupFile {
        check: "memory.reclaim",
        controller: Controller::Memory,
        v1: None,
        v2: Some("memory.reclaim"),
        without: "pressure is relieved by limits, freezing and killing, not by reclaim",
        remedy: "use Linux 5.19 or later with cgroup v2",
    },
    CgroupFile {
        check: "OOM events",
        controller: Controller::Memory,
        v1: Some("memory.oom_control"),
        v2: Some("memory.events"),
        without: "OOM kills are seen by their count in samples alone",
        remedy: "give the memory controller on to children of the root",
    },
    CgroupFile {
        check: "cgroup.kill",
        controller: Controller::Freezer,
        v1: None,
        v2: Some("cgroup.kill"),
        without: "a container is ended process by process while it is frozen (CAP_KILL)",
        remedy: "use Linux 5.14 or later with cgroup v2",
    },
];

pub(super) fn findings(roots: &Roots) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Ok(tree) = CgroupTree::open(roots) {
        findings.extend(FILES.iter().map(|file| of_file(&tree, file)));
    }
    findings.extend([kernel_log(roots), bus(roots, Path::new("/"))]);
    findings
}

fn of_file(tree: &CgroupTree, file: &CgroupFile) -> Finding {
    let home = tree.layout().home(file.controller);
    let name = match home {
        None => None,
        Some(Hierarchy::V2) => file.v2,
        Some(Hierarchy::V1(_)) => file.v1,
    };
    let (Some(home), Some(name)) = (home, name) else {
        let found = format!("not on this machine's cgroups: {}", file.without);
        return Finding::warn(file.check, found, file.remedy);
    };
    match has(tree, home, name) {
        Some(true) => Finding::ok(file.check, format!("{name} is there")),
        Some(false) => Finding::warn(
            file.check,
            format!("no {name} in the {home} hierarchy: {}", file.without),
            file.remedy,
        ),
        None => Finding::warn(
            file.check,
            "not known: no cgroup is there to look at",
            "start a container and ask again",
        ),
    }
}

/// Whether cgroups below the root have a file; `None` when there is none to look at. The root lacks most of them.
fn has(tree: &CgroupTree, hierarchy: Hierarchy, file: &str) -> Option<bool> {
    let root = tree.dir(hierarchy, "/").ok()?;
    let children = root.children().ok()?;
    let mut looked = children.iter().take(LOOKED_AT).filter_map(|name| root.child(name).ok()).peekable();
    looked.peek()?;
    Some(looked.any(|cgroup| is_there(&cgroup, file)))
}

/// Some can only be written; what is not there at all is unsupported.
fn is_there(cgroup: &CgroupDir, file: &str) -> bool {
    match cgroup.read(file) {
        Ok(_) => true,
        Err(error) => !matches!(error.category(), Category::Unsupported | Category::Gone),
    }
}

fn kernel_log(roots: &Roots) -> Finding {
    match KernelLog::open(roots) {
        Ok(_) => Finding::ok("kernel log", "can be read: victims of OOM kills are told by process"),
        Err(e) => Finding::error(
            "kernel log",
            CheckStatus::Warn,
            &e,
            "OOM kills are told by container alone; run with CAP_SYSLOG and /dev/kmsg (no ProtectKernelLogs=)",
        ),
    }
}

/// Only where systemd is pid 1 does it matter whether its bus answers.
fn bus(roots: &Roots, root: &Path) -> Finding {
    let check = "systemd bus";
    let init = std::fs::read_to_string(roots.proc().join("1/comm")).unwrap_or_default();
    if init.trim_end() != "systemd" {
        return Finding::ok(check, "systemd is not pid 1: cgroups are written directly");
    }
    let socket = root.join(SYSTEM_BUS);
    if std::fs::metadata(&socket).is_ok_and(|m| m.file_type().is_socket()) {
        return Finding::ok(check, "units' knobs are set through systemd, so that daemon-reload keeps them");
    }
    Finding::warn(
        check,
        "systemd is pid 1, and no system bus is there: it may undo what is written to its units",
        "install and start dbus, or mount its socket at /run/dbus",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bus_matters_under_systemd_only() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::new(dir.path(), dir.path());
        std::fs::create_dir(dir.path().join("1")).unwrap();
        std::fs::write(dir.path().join("1/comm"), "init\n").unwrap();
        assert_eq!(bus(&roots, dir.path()).state, CheckStatus::Ok);
        std::fs::write(dir.path().join("1/comm"), "systemd\n").unwrap();
        assert_eq!(bus(&roots, dir.path()).state, CheckStatus::Warn);
        std::fs::create_dir_all(dir.path().join("run/dbus")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join(SYSTEM_BUS)).unwrap();
        assert_eq!(bus(&roots, dir.path()).state, CheckStatus::Ok);
    }
}
