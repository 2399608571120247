//! What a part can do: it is confined as it always is, then tries what an intruder would, and prints what the kernel answered.
//!
//! Owned here: the attempts. None of them changes anything where it succeeds, but for this process itself.

use std::io::{IoSliceMut, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::kill;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::sys::stat::Mode;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::{Pid, Uid, chroot, setuid};

/// On whom it is tried.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Victims {
    /// A process of another user.
    #[arg(long, value_name = "PID")]
    pub pid: Option<i32>,
    /// Files to open for reading.
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Files to open for writing.
    #[arg(long, value_name = "PATH")]
    pub write: Vec<PathBuf>,
    /// Unix sockets to connect to.
    #[arg(long, value_name = "PATH")]
    pub connect: Vec<PathBuf>,
}

/// Calls that are tried with arguments that are nothing a kernel could act on.
const CALLS: [(&str, i64, &[i64]); 9] = [
    ("bpf", libc::SYS_bpf, &[-1]),
    ("io_uring_setup", libc::SYS_io_uring_setup, &[-1]),
    ("keyctl", libc::SYS_keyctl, &[-1]),
    ("perf_event_open", libc::SYS_perf_event_open, &[0]),
    ("pidfd_getfd", libc::SYS_pidfd_getfd, &[-1]),
    ("ptrace", libc::SYS_ptrace, &[-1]),
    ("setns", libc::SYS_setns, &[-1]),
    // Memory that becomes code.
    ("code", libc::SYS_mmap, &[0, 4096, CODE, ANONYMOUS, -1]),
    // One that no kernel has yet.
    ("unheard-of", 999, &[-1]),
];
/// PROT_READ and PROT_EXEC, and MAP_PRIVATE and MAP_ANONYMOUS, of mmap(2).
const CODE: i64 = 0x5;
const ANONYMOUS: i64 = 0x22;

/// What the kernel answers a call by its number; the arguments that are not given are 0.
#[allow(unsafe_code)]
pub(super) fn attempt(number: i64, arguments: &[i64]) -> Result<(), Errno> {
    let given = |at: usize| arguments.get(at).copied().unwrap_or_default();
    // SAFETY: the arguments are numbers: none is the address of anything in this process, so that the kernel neither reads nor writes its
    // memory, and a mapping that is made is a new one.
    let answer = unsafe { libc::syscall(number, given(0), given(1), given(2), given(3), given(4), given(5)) };
    if answer == -1 { Err(Errno::last()) } else { Ok(()) }
}

/// Tries all of it and prints a line an attempt: what, and `ok` or the error's name.
///
/// # Errors
/// When nothing can be printed.
pub(crate) fn run(victims: &Victims) -> anyhow::Result<()> {
    let mut out = std::io::stderr().lock();
    let mut tell = |what: &str, how: Result<(), Errno>| {
        let how = how.err().map_or_else(|| "ok".to_owned(), |errno| format!("{errno:?}"));
        writeln!(out, "probe {what} {how}")
    };
    for (name, family) in [
        ("inet", AddressFamily::Inet),
        ("inet6", AddressFamily::Inet6),
        ("unix", AddressFamily::Unix),
        ("netlink", AddressFamily::Netlink),
        ("packet", AddressFamily::Packet),
        ("vsock", AddressFamily::Vsock),
    ] {
        let kind = if family == AddressFamily::Netlink { SockType::Raw } else { SockType::Datagram };
        tell(&format!("socket:{name}"), socket(family, kind, SockFlag::SOCK_CLOEXEC, None).map(drop))?;
    }
    tell("bind:loopback", UdpSocket::bind("127.0.0.1:0").map(drop).map_err(errno))?;
    let opened = |path: &Path, how| open(path, how | OFlag::O_CLOEXEC, Mode::empty()).map(drop);
    for path in &victims.read {
        tell(&format!("read:{}", path.display()), opened(path, OFlag::O_RDONLY))?;
    }
    for path in &victims.write {
        tell(&format!("write:{}", path.display()), opened(path, OFlag::O_WRONLY))?;
    }
    for path in &victims.connect {
        tell(&format!("connect:{}", path.display()), UnixStream::connect(path).map(drop).map_err(errno))?;
    }
    if let Some(number) = victims.pid {
        let (pid, proc) = (Pid::from_raw(number), format!("/proc/{number}"));
        tell("kill", kill(pid, None))?;
        let mut byte = [0];
        let remote = [RemoteIoVec { base: 0x1000, len: 1 }];
        let seen = process_vm_readv(pid, &mut [IoSliceMut::new(&mut byte)], &remote);
        tell("process_vm_readv", seen.map(drop))?;
        for (file, how) in
            [("environ", OFlag::O_RDONLY), ("mem", OFlag::O_RDONLY), ("oom_score_adj", OFlag::O_WRONLY)]
        {
            tell(file, opened(Path::new(&format!("{proc}/{file}")), how))?;
        }
    }
    tell("unshare:user", unshare(CloneFlags::CLONE_NEWUSER))?;
    tell("unshare:mount", unshare(CloneFlags::CLONE_NEWNS))?;
    let none: Option<&str> = None;
    tell("mount", mount(Some("none"), "/nonexistent", Some("tmpfs"), MsFlags::empty(), none))?;
    tell("chroot", chroot("/"))?;
    tell("setuid:0", setuid(Uid::from_raw(0)))?;
    for (name, number, arguments) in CALLS {
        tell(name, attempt(number, arguments))?;
    }
    tell("execve", std::process::Command::new("/bin/true").status().map(drop).map_err(errno))?;
    Ok(())
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}
