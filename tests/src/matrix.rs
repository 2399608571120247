//! Part x action: what each process of the agent may do, as the kernel answers one that is confined like it (`part PART --probe`).
//!
//! Owned here: on what it is tried, and the table, which is one for parts that the agent starts and for units of a service manager. Not
//! owned: how a part is started to try it.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Pid;
use procfs::process::FDTarget;

use crate::processes::field;

/// Parts in the order of the table's columns.
pub const PARTS: [&str; 5] = ["enforcing", "network", "runtime", "reader", "starter"];
/// The starter comes last, and is none where a service manager starts each part.
pub const UNITS: usize = 4;

/// On what is tried what an intruder would.
#[derive(Debug)]
pub struct Victims {
    open: PathBuf,
    secret: PathBuf,
    runtime: PathBuf,
    knob: PathBuf,
    pid: Pid,
    _listener: UnixListener,
}

/// What keeps files and processes from a part besides its filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// Its user, and Landlock where the kernel has it, which this machine does not tell.
    Unknown,
    /// Its user alone.
    User,
    /// Landlock too.
    Landlock,
    /// The sandbox of a unit, in which others' processes cannot be seen.
    Unit,
}

/// What the kernel answered, by attempt.
pub type Answers = BTreeMap<String, String>;

impl Victims {
    /// A runtime's socket that is as open as a careless one, a secret, and a file that all may read, in a directory that all may walk; a
    /// knob of a cgroup, and another's process.
    ///
    /// # Errors
    ///
    /// Fails when they cannot be made.
    pub fn new(place: &Path, knob: PathBuf, pid: Pid) -> Result<Self> {
        let at = |name: &str, mode: u32| -> Result<PathBuf> {
            let path = place.join(name);
            fs::write(&path, name).with_context(|| format!("cannot write {}", path.display()))?;
            fs::set_permissions(&path, Permissions::from_mode(mode))?;
            Ok(path)
        };
        let (open, secret) = (at("open-to-all", 0o644)?, at("secret", 0o600)?);
        let runtime = place.join("a-runtime.sock");
        let listener = UnixListener::bind(&runtime).context("no socket")?;
        fs::set_permissions(&runtime, Permissions::from_mode(0o777))?;
        Ok(Self { open, secret, runtime, knob, pid, _listener: listener })
    }

    /// As the part is told them.
    pub fn flags(&self) -> Vec<String> {
        let shown = |path: &Path| path.display().to_string();
        [
            ("--pid", self.pid.to_string()),
            ("--read", shown(&self.open)),
            ("--read", shown(&self.secret)),
            ("--write", shown(&self.knob)),
            ("--connect", shown(&self.runtime)),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
    }

    /// What is otherwise than it should be, of answers in the order of [`PARTS`].
    pub fn wrong(&self, around: Around, answers: &[Answers]) -> Vec<String> {
        let of = |what: &str, path: &Path| format!("{what}:{}", path.display());
        let (connect, write) = (of("connect", &self.runtime), of("write", &self.knob));
        let (open, secret) = (of("read", &self.open), of("read", &self.secret));
        let is_unit = around == Around::Unit;
        let others = if is_unit { "ENOENT" } else { "EACCES" };
        let readable = if around == Around::User { "ok" } else { "EACCES" };
        // Of the enforcing unit systemd filters addresses as well, and all calls that it does not name.
        let (netlink, unheard_of) = if is_unit { ("EAFNOSUPPORT", "EPERM") } else { ("ok", "ENOSYS") };
        // What is tried, and what the enforcing part, the network's, the runtime's and the reader, and the starter get.
        let table: [(&str, [&str; 4]); 31] = [
            ("socket:inet", ["EPERM", "ok", "EPERM", "ok"]),
            ("socket:inet6", ["EPERM", "ok", "EPERM", "ok"]),
            ("bind:loopback", ["EPERM", "ok", "EPERM", "ok"]),
            ("socket:unix", ["ok", "EPERM", "EPERM", "ok"]),
            ("socket:netlink", [netlink, "ok", "EPERM", "ok"]),
            ("socket:packet", ["EPERM"; 4]),
            ("socket:vsock", ["EPERM"; 4]),
            (&connect, ["ok", "EPERM", "EPERM", "ok"]),
            (&write, ["ok", "EPERM", "EPERM", "EACCES"]),
            (&open, ["ok", readable, readable, "ok"]),
            (&secret, ["ok", "EACCES", "EACCES", "EACCES"]),
            ("oom_score_adj", ["ok", "EPERM", "EPERM", "EACCES"]),
            ("environ", ["EACCES", others, others, "EACCES"]),
            ("mem", ["EACCES", others, others, "EACCES"]),
            ("kill", ["ok", "EPERM", "EPERM", "ok"]),
            ("process_vm_readv", ["EPERM"; 4]),
            ("unshare:user", ["EPERM"; 4]),
            ("unshare:mount", ["EPERM"; 4]),
            ("mount", ["EPERM"; 4]),
            ("chroot", ["EPERM"; 4]),
            ("setuid:0", ["ok", "EPERM", "EPERM", "EPERM"]),
            ("bpf", ["EPERM"; 4]),
            ("io_uring_setup", ["EPERM"; 4]),
            ("keyctl", ["EPERM"; 4]),
            ("perf_event_open", ["EPERM"; 4]),
            ("pidfd_getfd", ["EPERM"; 4]),
            ("ptrace", ["EPERM"; 4]),
            ("setns", ["EPERM"; 4]),
            ("code", ["ok", "EPERM", "EPERM", "ok"]),
            ("unheard-of", [unheard_of, "ENOSYS", "ENOSYS", "ENOSYS"]),
            ("execve", ["ok", "EPERM", "EPERM", "ok"]),
        ];
        let mut wrong = Vec::new();
        for (what, [enforcing, network, others, starter]) in table {
            let wanted = [enforcing, network, others, others, starter];
            if around == Around::Unknown && what == open {
                continue;
            }
            for ((answers, want), part) in answers.iter().zip(wanted).zip(PARTS) {
                let got = answers.get(what).map_or("nothing", String::as_str);
                if got != want {
                    wrong.push(format!("{part}: {what} is {got}, not {want}"));
                }
            }
        }
        wrong
    }
}

/// What a part printed of what it tried.
pub fn answers(said: &str) -> Answers {
    let lines = said.lines().filter_map(|line| line.strip_prefix("probe ")?.rsplit_once(' '));
    lines.map(|(what, how)| (what.to_owned(), how.to_owned())).collect()
}

/// The process that starts the parts has three capabilities, is not root, is confined, and keeps its socket, no output and the log.
///
/// # Errors
///
/// Fails where it is otherwise, or there is none.
pub fn the_starter_keeps_nothing_but_starting(enforcing: Pid) -> Result<()> {
    let all = procfs::process::all_processes().context("cannot list processes")?.flatten();
    let mut children = all.filter(|one| one.stat().is_ok_and(|stat| stat.ppid == enforcing.as_raw()));
    let is_starter = |words: Vec<String>| words.iter().any(|word| word == "starter");
    let starter = children.find(|child| child.cmdline().is_ok_and(is_starter)).context("no starter")?;
    let pid = Pid::from_raw(starter.pid());
    for (name, want) in [
        ("Uid", "65533\t65533\t65533\t65533"),
        ("Gid", "65533\t65533\t65533\t65533"),
        ("Groups", ""),
        // KILL, SETGID and SETUID: 5, 6 and 7 of capabilities(7).
        ("CapEff", "00000000000000e0"),
        ("CapPrm", "00000000000000e0"),
        ("CapInh", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Seccomp", "2"),
    ] {
        let got = field(pid, name)?;
        ensure!(got == want, "the starter's {name} is {got:?}, not {want:?}");
    }
    let held = starter.fd().context("its descriptors cannot be read")?.flatten();
    let mut held: Vec<_> = held.map(|one| (one.fd, one.target)).collect();
    held.sort_by_key(|(number, _)| *number);
    let numbers: Vec<i32> = held.iter().map(|(number, _)| *number).collect();
    ensure!(numbers == [0, 1, 2], "the starter holds {held:?}");
    ensure!(matches!(held[0].1, FDTarget::Socket(_)), "the starter's socket is {:?}", held[0].1);
    let is_null = matches!(&held[1].1, FDTarget::Path(path) if path == Path::new("/dev/null"));
    ensure!(is_null, "the starter's output is {:?}", held[1].1);
    Ok(())
}
