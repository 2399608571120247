//! Checks of the machine: kernel, cgroups, pressure, swap, overcommit, visibility of processes.

use evenkeel_host::hierarchy::{Controller, Layout};
use evenkeel_host::node::node_facts;
use evenkeel_host::roots::Roots;
use evenkeel_qos::checks;
use sysinfo::{MemoryRefreshKind, RefreshKind, System};

use super::{CheckStatus, Finding};
use crate::units;

/// Since this kernel a score below zero orders guaranteed processes among themselves (badness may be negative),
/// and `memory.high` cannot live-lock.
const GOOD_KERNEL: (u32, u32) = (5, 9);

pub(super) fn findings(roots: &Roots) -> Vec<Finding> {
    let mut findings = vec![system(), kernel(roots)];
    findings.extend(cgroups(roots));
    findings.extend([
        pressure(roots),
        machine(roots),
        overcommit(roots),
        panic_on_oom(roots),
        hidepid(roots),
    ]);
    findings
}

/// The system this program runs on, as people name it, and how busy it is.
fn system() -> Finding {
    let name = System::long_os_version().unwrap_or_else(|_| "an unnamed system".into());
    let memory = RefreshKind::nothing().with_memory(MemoryRefreshKind::nothing().with_ram());
    match (System::new_with_specifics(memory), System::load_average()) {
        (Ok(system), Ok(load)) => {
            let available = units::bytes(system.available_memory());
            let total = units::bytes(system.total_memory());
            let found = format!("{name}; {available} of {total} memory available, load {:.2}", load.one);
            Finding::ok("system", found)
        }
        (Err(error), _) | (_, Err(error)) => Finding::warn(
            "system",
            format!("{name}; its load cannot be read: {error}"),
            "mount procfs at /proc",
        ),
    }
}

fn kernel(roots: &Roots) -> Finding {
    let Some(release) = value(roots, "sys/kernel/osrelease") else {
        return Finding::fail("kernel", "its release cannot be read", "mount procfs and name it with --proc");
    };
    match version(&release) {
        Some(v) if v >= GOOD_KERNEL => Finding::ok("kernel", format!("Linux {release}")),
        _ => Finding::warn(
            "kernel",
            format!("Linux {release}: before 5.9 all guaranteed processes tie when memory runs out"),
            "use Linux 5.9 or later",
        ),
    }
}

/// First two numbers of a release such as `6.1.0-18-cloud-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn cgroups(roots: &Roots) -> Vec<Finding> {
    let layout = match Layout::detect(roots) {
        Ok(layout) => layout,
        Err(e) => {
            return vec![Finding::error("cgroups", CheckStatus::Fail, &e, "mount the cgroup file system")];
        }
    };
    let mut findings = vec![Finding::ok("cgroups", format!("cgroup {}", layout.mode().name()))];
    findings.extend(Controller::ALL.into_iter().map(|c| controller(&layout, c)));
    findings
}

fn controller(layout: &Layout, controller: Controller) -> Finding {
    let check = format!("controller {}", controller.name());
    match layout.home(controller) {
        None => Finding::warn(check, "no hierarchy has it", without(controller)),
        Some(home) if layout.is_delegated(controller) => {
            Finding::ok(check, format!("in the {home} hierarchy"))
        }
        Some(home) => Finding::warn(
            check,
            format!("in the {home} hierarchy, not given on to children of the root"),
            format!("write +{} to cgroup.subtree_control of the root", controller.name()),
        ),
    }
}

const fn without(controller: Controller) -> &'static str {
    match controller {
        Controller::Cpu => "without it no CPU shares: enable CONFIG_CGROUP_SCHED, or mount it",
        Controller::Cpuacct => "without it no CPU use: enable CONFIG_CGROUP_CPUACCT, or mount it",
        Controller::Memory => "without it no memory use or protection: boot without cgroup_disable=memory",
        Controller::Pids => "without it no count of processes: enable CONFIG_CGROUP_PIDS, or mount it",
        Controller::Freezer => "without it converging against a fork storm may take longer: mount it",
        Controller::Cpuset => "without it no exclusive cores: enable CONFIG_CPUSETS, or mount it",
        Controller::Io => "without it no block I/O of containers: enable CONFIG_BLK_CGROUP, or mount it",
    }
}

fn pressure(roots: &Roots) -> Finding {
    match value(roots, "pressure/memory") {
        Some(_) => Finding::ok("pressure", "the kernel tells pressure (PSI)"),
        None => Finding::warn(
            "pressure",
            "the kernel does not tell pressure (PSI)",
            "boot with psi=1 on a kernel with CONFIG_PSI; memory is polled until then",
        ),
    }
}

fn machine(roots: &Roots) -> Finding {
    match node_facts(roots) {
        Err(e) => Finding::error("swap", CheckStatus::Fail, &e, "mount procfs and name it with --proc"),
        Ok(facts) if facts.swap_total_bytes.is_zero() => {
            let size = units::bytes(facts.memory_bytes.get());
            Finding::ok("swap", format!("off; {size} memory, {} CPU", units::cpu(facts.cpu_milli.get())))
        }
        Ok(facts) => match checks::swap(facts.swap_total_bytes, false) {
            None => Finding::ok("swap", "off"),
            Some(found) => judged("swap", found),
        },
    }
}

/// A setting that breaks a promise.
fn judged(check: &str, finding: checks::Finding) -> Finding {
    Finding::warn(check, format!("{}: {}", finding.what, finding.why), finding.remedy)
}

fn overcommit(roots: &Roots) -> Finding {
    setting(roots, "overcommit", "vm.overcommit_memory", "sys/vm/overcommit_memory", checks::overcommit)
}

fn panic_on_oom(roots: &Roots) -> Finding {
    setting(roots, "panic on OOM", "vm.panic_on_oom", "sys/vm/panic_on_oom", checks::panic_on_oom)
}

fn setting(
    roots: &Roots,
    check: &str,
    name: &str,
    file: &str,
    judge: impl Fn(u8) -> Option<checks::Finding>,
) -> Finding {
    let Some(found) = value(roots, file).and_then(|text| text.parse().ok()) else {
        return Finding::warn(check, format!("{name} cannot be read"), "mount the node's procfs");
    };
    match judge(found) {
        None => Finding::ok(check, format!("{name} is {found}")),
        Some(finding) => judged(check, finding),
    }
}

fn hidepid(roots: &Roots) -> Finding {
    let check = "processes visible";
    let Some(mounts) = value(roots, "self/mountinfo") else {
        return Finding::warn(check, "the mount table cannot be read", "mount the node's procfs");
    };
    match mounts.lines().find_map(hidepid_of) {
        Some(option) => Finding::warn(
            check,
            format!(
                "procfs is mounted with {option}: processes of other users are hidden without CAP_SYS_PTRACE"
            ),
            "remount procfs with hidepid=0, or give its gid= to the agent",
        ),
        None => Finding::ok(check, "procfs hides no processes"),
    }
}

/// The option that hides processes, of one line of mountinfo (proc(5)).
fn hidepid_of(line: &str) -> Option<String> {
    let (_, right) = line.split_once(" - ")?;
    let mut right = right.split(' ');
    if right.next()? != "proc" {
        return None;
    }
    let options = right.nth(1)?;
    let hides = |o: &&str| o.strip_prefix("hidepid=").is_some_and(|v| v != "0" && v != "off");
    options.split(',').find(hides).map(str::to_owned)
}

/// Text of a file of procfs, without blanks at its ends.
fn value(roots: &Roots, name: &str) -> Option<String> {
    std::fs::read_to_string(roots.proc().join(name)).ok().map(|t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.1.0-18-cloud-amd64"), Some((6, 1)));
        assert_eq!(version("5.10.3"), Some((5, 10)));
        assert!(version("5.10").unwrap() > GOOD_KERNEL);
        assert!(version("4.19.0").unwrap() < GOOD_KERNEL);
        assert_eq!(version("x"), None);
    }

    #[test]
    fn a_proc_that_hides_is_seen() {
        let line = |options: &str| format!("22 1 0:20 / /p rw shared:2 - proc proc {options}");
        assert_eq!(hidepid_of(&line("rw,hidepid=2")).as_deref(), Some("hidepid=2"));
        assert_eq!(hidepid_of(&line("rw,gid=4,hidepid=invisible")).as_deref(), Some("hidepid=invisible"));
        assert_eq!(hidepid_of(&line("rw,hidepid=0")), None);
        assert_eq!(hidepid_of(&line("rw")), None);
        assert_eq!(hidepid_of("22 1 0:20 / /p rw - tmpfs tmpfs rw,hidepid=2"), None);
        assert_eq!(hidepid_of("nonsense"), None);
    }

    #[test]
    fn a_tree_of_files_is_judged() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/kernel/osrelease", "4.19.0-1\n");
        write("sys/vm/overcommit_memory", "0\n");
        let roots = Roots::new(dir.path(), dir.path());
        assert_eq!(kernel(&roots).state, CheckStatus::Warn);
        assert_eq!(overcommit(&roots).state, CheckStatus::Warn);
        assert_eq!(pressure(&roots).state, CheckStatus::Warn);
        assert_eq!(cgroups(&roots)[0].state, CheckStatus::Fail);
        assert_eq!(panic_on_oom(&roots).state, CheckStatus::Warn);
        write("sys/vm/panic_on_oom", "0\n");
        assert_eq!(panic_on_oom(&roots).state, CheckStatus::Ok);
        write("sys/vm/overcommit_memory", "1\n");
        write("pressure/memory", "some avg10=0.00\n");
        assert_eq!(overcommit(&roots).state, CheckStatus::Ok);
        assert_eq!(pressure(&roots).state, CheckStatus::Ok);
    }
}
