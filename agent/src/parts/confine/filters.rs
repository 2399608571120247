//! The filters of system calls of each part (seccomp).
//!
//! A part without rights makes the calls that are named ([`calls`]) and no others. What libraries may have newer than the list is answered
//! as by a kernel that does not have it (ENOSYS), which they know how to live with; what an intruder would try is refused by name (EPERM).
//! Enforcing and the starter, which no stranger's bytes reach, have the second alone: what none of them needs.

use std::collections::BTreeMap;

use anyhow::Context as _;
use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use super::super::Part;
use super::calls::{CHANGES, CONNECTORS, EVERY, NETWORKS, NEVER, NOT_OF_OTHERS, OLDER, READERS};

/// Calls with when they match: always, where no rule says otherwise.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// Address families that a part may make sockets of. The network's part is told of addresses by netlink when it resolves names
/// (getaddrinfo(3)); it makes no Unix socket, and so reaches none. The runtime's part is handed what it speaks on. What the starter
/// starts may no more than itself.
const fn families(part: Part) -> &'static [i32] {
    match part {
        Part::Enforcing => &[libc::AF_UNIX, libc::AF_NETLINK],
        Part::Starter => &[libc::AF_UNIX, libc::AF_NETLINK, libc::AF_INET, libc::AF_INET6],
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
/// What a part without rights may ask of prctl(2): its threads' names, those of its memory, another filter, and whether it may be dumped.
const PRCTL: [i32; 5] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_SET_VMA,
    libc::PR_SET_NO_NEW_PRIVS,
    libc::PR_GET_DUMPABLE,
];
/// And of ioctl(2): whether a descriptor waits, is closed by another program, is a terminal, and how much is in it.
const IOCTL: [u64; 4] = [0x5421, 0x5451, 0x5401, 0x541b];

/// Sets the filters of a part for this process; must be called before any thread starts.
///
/// # Errors
/// Where the kernel takes none.
pub(super) fn set(part: Part) -> anyhow::Result<()> {
    filters(part)?.iter().try_for_each(|filter| seccompiler::apply_filter(filter).context("seccomp filter"))
}

/// In the order in which they are set: where two refuse a call, the later one says with which error (seccomp(2)).
fn filters(part: Part) -> anyhow::Result<Vec<BpfProgram>> {
    let mut filters = Vec::new();
    if part.is_without_rights() {
        let allowed = allowed(part).into_iter().map(|call| (call, Vec::new())).collect();
        filters.push(compiled(allowed, SeccompAction::Allow, error(libc::ENOSYS))?);
    }
    // What it is given is in memory, where a filter cannot look: libraries take the older call then.
    let newer = others_too(BTreeMap::from([(libc::SYS_clone3, Vec::new())]));
    filters.push(compiled(newer, error(libc::ENOSYS), SeccompAction::Allow)?);
    filters.push(compiled(others_too(refused(part)?), error(libc::EPERM), SeccompAction::Allow)?);
    Ok(filters)
}

/// Calls that a part without rights may make, unless [`refused`] has them.
fn allowed(part: Part) -> Vec<i64> {
    let own: &[i64] = match part {
        Part::Network => &NETWORKS,
        Part::Reader => &READERS,
        Part::Connector => &CONNECTORS,
        Part::Runtime | Part::Enforcing | Part::Starter => &[],
    };
    EVERY.iter().chain(&OLDER).chain(own).copied().collect()
}

/// Calls that a part is refused by name.
fn refused(part: Part) -> anyhow::Result<Calls> {
    let mut refused: Calls = NEVER.into_iter().map(|call| (call, Vec::new())).collect();
    let families: Vec<u64> = families(part).iter().map(|family| u64::from(family.unsigned_abs())).collect();
    refused.insert(libc::SYS_socket, other_than(0, &families)?);
    let namespaces =
        NAMESPACES.map(|flag| has(0, u64::from(flag.cast_unsigned())).and_then(|has| rule(vec![has])));
    refused.insert(libc::SYS_clone, namespaces.into_iter().collect::<Result<_, _>>()?);
    if part == Part::Starter {
        refused.extend(CHANGES.map(|call| (call, Vec::new())));
        // No group at all is what everybody it starts is given.
        refused.insert(libc::SYS_setgroups, other_than(0, &[0])?);
        refused.extend([(libc::SYS_setuid, roots()?), (libc::SYS_setgid, roots()?)]);
    }
    if part.is_without_rights() {
        refused.extend(NOT_OF_OTHERS.map(|call| (call, Vec::new())));
        refused.extend(of_others(part)?);
    }
    if matches!(part, Part::Runtime | Part::Reader) {
        refused.extend([libc::SYS_connect, libc::SYS_bind].map(|call| (call, Vec::new())));
    }
    Ok(refused)
}

/// Root, as a user or group to become.
fn roots() -> anyhow::Result<Vec<SeccompRule>> {
    Ok(vec![rule(vec![condition(0, SeccompCmpOp::Eq, 0)?])?])
}

/// What a part without rights is refused of calls that it makes otherwise: signals to others, their limits, files to write, and memory that
/// becomes code. The network's part loads libraries when it resolves names, which are files and never written.
fn of_others(part: Part) -> anyhow::Result<Calls> {
    let executable = has(2, u64::from(libc::PROT_EXEC.cast_unsigned()))?;
    let mapped = match part {
        Part::Network => vec![
            rule(vec![executable.clone(), has(2, u64::from(libc::PROT_WRITE.cast_unsigned()))?])?,
            rule(vec![executable.clone(), has(3, u64::from(libc::MAP_ANONYMOUS.cast_unsigned()))?])?,
        ],
        _ => vec![rule(vec![executable.clone()])?],
    };
    let prctl = PRCTL.map(|option| u64::from(option.unsigned_abs()));
    let mut calls = BTreeMap::from([
        (libc::SYS_mmap, mapped),
        (libc::SYS_mprotect, vec![rule(vec![executable])?]),
        (libc::SYS_tgkill, other_than(0, &[std::process::id().into()])?),
        (libc::SYS_prlimit64, other_than(0, &[0])?),
        (libc::SYS_prctl, other_than(0, &prctl)?),
        (libc::SYS_ioctl, other_than(1, &IOCTL)?),
        (libc::SYS_openat, written(2)?),
    ]);
    #[cfg(target_arch = "x86_64")]
    calls.insert(libc::SYS_open, written(1)?);
    Ok(calls)
}

/// A file opened to be written or made; the argument has the flags of open(2).
fn written(argument: u8) -> anyhow::Result<Vec<SeccompRule>> {
    let flags = [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC];
    flags.map(|flag| rule(vec![has(argument, u64::from(flag.cast_unsigned()))?])).into_iter().collect()
}

/// An argument that is none of these; any, where there are none.
fn other_than(argument: u8, values: &[u64]) -> anyhow::Result<Vec<SeccompRule>> {
    let others = values.iter().map(|value| condition(argument, SeccompCmpOp::Ne, *value));
    let others = others.collect::<Result<Vec<_>, _>>()?;
    if others.is_empty() { Ok(Vec::new()) } else { Ok(vec![rule(others)?]) }
}

/// An argument that has a flag.
fn has(argument: u8, flag: u64) -> anyhow::Result<SeccompCondition> {
    condition(argument, SeccompCmpOp::MaskedEq(flag), flag)
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> anyhow::Result<SeccompCondition> {
    Ok(SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value)?)
}

/// All of these at once.
fn rule(conditions: Vec<SeccompCondition>) -> anyhow::Result<SeccompRule> {
    Ok(SeccompRule::new(conditions)?)
}

fn error(errno: i32) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

/// The same calls under their other numbers besides (x32 of syscall(2)), where a kernel has them.
fn others_too(mut calls: Calls) -> Calls {
    if cfg!(target_arch = "x86_64") {
        let others: Vec<_> = calls.iter().map(|(call, rules)| (call | 0x4000_0000, rules.clone())).collect();
        calls.extend(others);
    }
    calls
}

/// What becomes of calls that match, and of all others.
fn compiled(calls: Calls, matching: SeccompAction, other: SeccompAction) -> anyhow::Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into().context("seccomp knows no such processor")?;
    Ok(SeccompFilter::new(calls, other, matching, architecture)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::errno::Errno;

    use super::super::super::probe::attempt;
    use super::*;

    /// Numbers of calls: beyond what any kernel has, and its other numbers.
    const NUMBERS: std::ops::Range<i64> = 0..600;
    /// uretprobe(2) and uprobe, which newer kernels of x86-64 hand past every filter (kernel/seccomp.c, `seccomp_uprobe_exception`): they end
    /// whoever makes them outside of the kernel's own trampolines.
    const PAST_FILTERS: [i64; 2] = [335, 336];

    /// The error of a call with this first argument; the others are 0.
    fn error_of(number: i64, first: i64) -> Errno {
        attempt(number, &[first]).err().unwrap_or(Errno::from_raw(0))
    }

    /// Runs something in a thread of its own, which alone is confined.
    fn confined(part: Part, then: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            set(part).unwrap();
            then();
        });
        thread.join().unwrap();
    }

    #[test]
    fn each_part_is_refused_what_it_does_not_need() {
        for part in [Part::Enforcing, Part::Starter, Part::Connector].into_iter().chain(Part::STARTED) {
            confined(part, move || {
                for number in NEVER {
                    assert_eq!(error_of(number, -1), Errno::EPERM, "{part:?} {number}");
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
                    let refused = error_of(libc::SYS_socket, family.into()) == Errno::EPERM;
                    assert_eq!(refused, !families(part).contains(&family), "{part:?} family {family}");
                }
                assert_eq!(error_of(libc::SYS_clone3, 0), Errno::ENOSYS);
                assert_eq!(error_of(libc::SYS_clone, libc::CLONE_NEWUSER.into()), Errno::EPERM);
                let program = error_of(libc::SYS_execve, 0) == Errno::EPERM;
                assert_eq!(program, part.is_without_rights());
                std::thread::spawn(|| ()).join().unwrap();
            });
        }
    }

    #[test]
    fn the_starter_does_not_become_root_again() {
        confined(Part::Starter, || {
            for number in [libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setresuid, libc::SYS_setresgid] {
                assert_eq!(error_of(number, 0), Errno::EPERM, "{number}");
            }
            assert_eq!(error_of(libc::SYS_setgroups, 1), Errno::EPERM);
            // This user's own: what it starts is somebody else, who may be anybody but root.
            let uid = nix::unistd::Uid::effective();
            assert_eq!(error_of(libc::SYS_setuid, uid.as_raw().into()) == Errno::EPERM, uid.is_root());
        });
    }

    #[test]
    fn a_part_without_rights_makes_no_call_that_is_not_named() {
        for part in Part::STARTED.into_iter().chain([Part::Connector]) {
            confined(part, move || {
                let (allowed, refused) = (allowed(part), refused(part).unwrap());
                let past = |number: &i64| cfg!(target_arch = "x86_64") && PAST_FILTERS.contains(number);
                for number in NUMBERS.filter(|number| !allowed.contains(number) && !past(number)) {
                    let want = if refused.contains_key(&number) { Errno::EPERM } else { Errno::ENOSYS };
                    assert_eq!(error_of(number, -1), want, "{part:?} {number}");
                    if cfg!(target_arch = "x86_64") {
                        assert_eq!(error_of(number | 0x4000_0000, -1), want, "{part:?} {number} of x32");
                    }
                }
            });
        }
    }

    #[test]
    fn a_part_without_rights_writes_no_file_signals_nobody_and_makes_no_code() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for part in Part::STARTED.into_iter().chain([Part::Connector]) {
            let path = file.path().to_owned();
            confined(part, move || {
                assert!(File::open(&path).is_ok(), "Landlock is not what is tried here");
                for opened in [File::create(&path), File::options().append(true).open(&path)] {
                    assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EPERM), "{part:?}");
                }
                let parent = i64::from(std::os::unix::process::parent_id());
                assert_eq!(error_of(libc::SYS_tgkill, parent), Errno::EPERM, "{part:?}");
                assert_eq!(error_of(libc::SYS_prlimit64, parent), Errno::EPERM, "{part:?}");
                let code =
                    [0, 4096, libc::PROT_EXEC.into(), (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).into(), -1];
                assert_eq!(attempt(libc::SYS_mmap, &code), Err(Errno::EPERM), "{part:?}");
                // What a thread needs is not refused.
                assert_eq!(
                    std::thread::spawn(|| String::from("x").repeat(1 << 20).len()).join().unwrap(),
                    1 << 20
                );
            });
        }
    }
}
