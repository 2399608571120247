//! What each part may ask of the kernel: a seccomp filter, Landlock as far as the kernel has it, no new rights by programs, no dump.
//!
//! Owned here: the rules of each part, and setting them. They are set before any thread starts, and hold for all that come later. Not
//! owned: capabilities and users, which a part is started with ([`super::starter`]).
//!
//! The filters name what is refused (EPERM), not what is allowed: the parts are large programs whose calls change with their libraries. What
//! is refused is what none of them needs and an intruder would: other address families, other processes' memory, namespaces and mounts,
//! programs loaded into the kernel, and asynchronous calls that go past the filter (`io_uring`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, LandlockStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope, path_beneath_rules,
};
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::{Given, Part};

/// What the network's part may read: what names are resolved with, and the libraries that do so.
const NETWORK_READS: [&str; 12] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// Where units' files are, which the reader reads as its user may.
const UNIT_FILES: [&str; 5] =
    ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"];

/// Calls that no part makes.
const NEVER: [i64; 42] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Calls that the parts without a capability do not make beside these: they run no program, and signal nobody but themselves, which
/// `tgkill` does.
const NOT_OF_OTHERS: [i64; 8] = [
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_kill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setpriority,
    libc::SYS_sched_setaffinity,
    libc::SYS_tkill,
];

/// Address families that a part may make sockets of. The network's part is told of addresses by netlink when it resolves names
/// (getaddrinfo(3)); it makes no Unix socket, and so reaches none. The runtime's part is handed what it speaks on.
const fn families(part: Part) -> &'static [i32] {
    match part {
        Part::Enforcing | Part::Starter => &[libc::AF_UNIX, libc::AF_NETLINK],
        Part::Connector => &[libc::AF_UNIX],
        Part::Network => &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
        Part::Runtime | Part::Reader => &[],
    }
}

/// Flags of clone(2) that make namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Confines this process for good; must be called before any thread starts.
///
/// # Errors
/// Where the kernel filters no calls, unless that is allowed. Files are kept from a part by its user too, so that a kernel without Landlock
/// is told of and lived with.
pub(crate) fn confine(part: Part, given: &Given) -> anyhow::Result<()> {
    no_dump();
    let reads = match part {
        Part::Network => Some(NETWORK_READS.iter().map(PathBuf::from).collect()),
        Part::Runtime => Some(given.readable.clone()),
        Part::Reader => {
            Some(UNIT_FILES.iter().map(PathBuf::from).chain(given.readable.iter().cloned()).collect())
        }
        Part::Connector => Some(Vec::new()),
        // Both reach files of others, and Landlock would deny the looks at other processes that the first one needs.
        Part::Enforcing | Part::Starter => None,
    };
    if let Some(Err(error)) = reads.map(landlock) {
        let lack = format!("{error:#}");
        tracing::warn!(part = part.name(), lack, "a confinement is not to be had");
    }
    let filtered = filters(part).and_then(|filters| {
        filters.iter().try_for_each(|filter| seccompiler::apply_filter(filter).context("seccomp filter"))
    });
    unless_allowed(part, filtered, given.allow_unconfined)
}

/// What becomes of a part whose filter could not be had.
fn unless_allowed(part: Part, filtered: anyhow::Result<()>, is_allowed: bool) -> anyhow::Result<()> {
    match filtered {
        Err(error) if is_allowed => {
            let lack = format!("{error:#}");
            tracing::warn!(part = part.name(), lack, "the part runs without a filter (parts.allow_unconfined)");
            Ok(())
        }
        filtered => filtered.with_context(|| {
            format!(
                "the {} part cannot be confined: give the agent a kernel and a sandbox that take filters (CONFIG_SECCOMP_FILTER), set \
                 parts.mode = \"one-process\", or parts.allow_unconfined = true to run without",
                part.name()
            )
        }),
    }
}

/// Why files and other processes are not kept from the parts by Landlock; `None` where they are. Tried in a thread, which alone is confined.
pub(crate) fn landlock_lacks() -> Option<String> {
    let tried = std::thread::Builder::new().name("landlock".to_owned()).spawn(|| landlock(Vec::new()));
    let tried = tried
        .map_err(anyhow::Error::from)
        .and_then(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("it was tried in vain"))));
    tried.err().map(|error| format!("{error:#}"))
}

/// No other process of this user may look into this one, and it leaves no memory behind on disk (PR_SET_DUMPABLE).
pub(crate) fn no_dump() {
    if let Err(errno) = nix::sys::prctl::set_dumpable(false) {
        tracing::debug!(%errno, "ignoring: the process stays dumpable");
    }
}

/// Files that are not named cannot be opened, nor other sockets and processes be reached past the network.
fn landlock(reads: Vec<PathBuf>) -> anyhow::Result<()> {
    let all = ABI::V6;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(all))
        .and_then(|rules| rules.scope(Scope::from_all(all)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(reads, AccessFs::from_read(all))))
        .and_then(landlock::RulesetCreated::restrict_self)
        .context("Landlock")?;
    match status.landlock {
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => {
            anyhow::bail!(
                "Landlock: this kernel has none, so that files are kept from the part by its user alone"
            )
        }
        _ => Ok(()),
    }
}

/// The filters of a part.
fn filters(part: Part) -> anyhow::Result<Vec<BpfProgram>> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        NEVER.into_iter().map(|call| (call, Vec::new())).collect();
    if part.is_without_rights() {
        refused.extend(NOT_OF_OTHERS.map(|call| (call, Vec::new())));
    }
    let others: Result<Vec<_>, _> = families(part)
        .iter()
        .map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())))
        .collect();
    // Without a family that it may, a part may none.
    let others = others?;
    refused.insert(
        libc::SYS_socket,
        if others.is_empty() { Vec::new() } else { vec![SeccompRule::new(others)?] },
    );
    if matches!(part, Part::Runtime | Part::Reader) {
        refused.insert(libc::SYS_connect, Vec::new());
        refused.insert(libc::SYS_bind, Vec::new());
    }
    let mut namespaces = Vec::new();
    for flag in NAMESPACES {
        let flag = u64::from(flag.cast_unsigned());
        namespaces.push(SeccompRule::new(vec![condition(0, SeccompCmpOp::MaskedEq(flag), flag)?])?);
    }
    refused.insert(libc::SYS_clone, namespaces);
    // What it is given is in memory, where a filter cannot look: libraries take the older call then.
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok(vec![compiled(newer, libc::ENOSYS)?, compiled(refused, libc::EPERM)?])
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> anyhow::Result<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?)
}

/// Of calls that get an error where their rules match, or always where there are none.
fn compiled(mut refused: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> anyhow::Result<BpfProgram> {
    if cfg!(target_arch = "x86_64") {
        // The same calls under their other numbers (x32 of syscall(2)), where a kernel has them.
        let others: Vec<_> =
            refused.iter().map(|(call, rules)| (call | 0x4000_0000, rules.clone())).collect();
        refused.extend(others);
    }
    let architecture = std::env::consts::ARCH.try_into().context("seccomp knows no such processor")?;
    let action = SeccompAction::Errno(errno.unsigned_abs());
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, action, architecture)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;

    /// What a call answers; its arguments are nothing a kernel could act on.
    #[allow(unsafe_code)]
    fn call(number: i64, first: i64) -> Errno {
        // SAFETY: the other arguments are null, so that every call that is not refused fails for want of them.
        let answer = unsafe { libc::syscall(number, first, 0_i64, 0_i64, 0_i64, 0_i64) };
        if answer == -1 { Errno::last() } else { Errno::from_raw(0) }
    }

    #[test]
    fn a_part_without_a_filter_does_not_run_unless_that_is_allowed() {
        let none = || Err(anyhow::anyhow!("Invalid argument (os error 22)"));
        let said = format!("{:#}", unless_allowed(Part::Network, none(), false).unwrap_err());
        assert!(said.contains("parts.allow_unconfined") && said.contains("os error 22"), "{said}");
        assert!(unless_allowed(Part::Network, none(), true).is_ok());
        assert!(unless_allowed(Part::Network, Ok(()), false).is_ok());
    }

    #[test]
    fn each_part_is_refused_what_it_does_not_need() {
        for part in [Part::Enforcing, Part::Starter, Part::Connector].into_iter().chain(Part::STARTED) {
            // In a thread of its own, which alone is confined.
            std::thread::spawn(move || {
                nix::sys::prctl::set_no_new_privs().unwrap();
                for filter in filters(part).unwrap() {
                    seccompiler::apply_filter(&filter).unwrap();
                }
                for number in NEVER {
                    assert_eq!(call(number, -1), Errno::EPERM, "{part:?} {number}");
                }
                for family in [
                    libc::AF_UNIX,
                    libc::AF_INET,
                    libc::AF_INET6,
                    libc::AF_NETLINK,
                    libc::AF_PACKET,
                    libc::AF_VSOCK,
                ] {
                    // A kind of socket that there is not: what is allowed fails otherwise.
                    let refused = call(libc::SYS_socket, family.into()) == Errno::EPERM;
                    assert_eq!(refused, !families(part).contains(&family), "{part:?} family {family}");
                }
                assert_eq!(call(libc::SYS_clone3, 0), Errno::ENOSYS);
                assert_eq!(call(libc::SYS_clone, libc::CLONE_NEWUSER.into()), Errno::EPERM);
                let program = call(libc::SYS_execve, 0) == Errno::EPERM;
                assert_eq!(program, part.is_without_rights());
                std::thread::spawn(|| ()).join().unwrap();
            })
            .join()
            .unwrap();
        }
    }
}
