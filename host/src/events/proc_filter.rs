//! A socket filter for process events, run by the kernel in whoever forks: what it drops costs us nothing.
//!
//! Classic BPF (Documentation/networking/filter.rst) on the bytes of the process connector. Owns two programs:
//! one that lets pass what the reader of events knows and wants, and one that lets nothing pass.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::libc::{self, sock_filter, sock_fprog};

use super::proc_message::{
    CN_IDX_PROC, EVENT, EVENT_DATA, NETLINK_HEADER, PROC_EVENT_EXEC, PROC_EVENT_FORK, PROC_EVENT_NONE,
};

/// Lengths a program may return: a whole message, or nothing of it.
const ACCEPT: sock_filter = statement(libc::BPF_RET | libc::BPF_K, u32::MAX);
const DROP: sock_filter = statement(libc::BPF_RET | libc::BPF_K, 0);

/// Forks of processes (not of threads), execs, and answers to subscriptions.
///
/// A word that lies beyond the end of a message ends the program and drops the message.
const WANTED: [sock_filter; 11] = [
    load(NETLINK_HEADER),
    unless(CN_IDX_PROC, 9),
    load(EVENT),
    when(PROC_EVENT_NONE, 6),
    when(PROC_EVENT_EXEC, 5),
    unless(PROC_EVENT_FORK, 5),
    // child_pid and child_tgid are the same for a process.
    load(EVENT_DATA + 8),
    statement(libc::BPF_MISC | libc::BPF_TAX, 0),
    load(EVENT_DATA + 12),
    // Falls through to ACCEPT when equal.
    jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X, 0, 0, 1),
    ACCEPT,
];

const fn statement(code: u32, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

/// `code` of an instruction has sixteen bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the kernel's codes have sixteen bits: linux/filter.h, sock_filter"
)]
const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// The word at an offset. Packets are read as big-endian, messages are written in the machine's order.
#[expect(clippy::cast_possible_truncation, reason = "offsets within a datagram of some hundred bytes")]
const fn load(at: usize) -> sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32)
}

const fn as_loaded(word: u32) -> u32 {
    u32::from_be_bytes(word.to_ne_bytes())
}

/// Skips so many instructions when the word is this one.
const fn when(word: u32, skip: u8) -> sock_filter {
    jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, as_loaded(word), skip, 0)
}

/// Skips so many instructions when the word is another one.
const fn unless(word: u32, skip: u8) -> sock_filter {
    jump(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, as_loaded(word), 0, skip)
}

/// Lets pass what is wanted.
pub(super) fn wanted_only(socket: &impl AsFd) -> Result<(), Errno> {
    let program: Vec<sock_filter> = WANTED.into_iter().chain([DROP]).collect();
    attach(socket, &program)
}

/// Lets nothing pass.
pub(super) fn nothing(socket: &impl AsFd) -> Result<(), Errno> {
    attach(socket, &[DROP])
}

/// In place of the filter before, if there was one. Needs no capability.
fn attach(socket: &impl AsFd, program: &[sock_filter]) -> Result<(), Errno> {
    let filter = sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?,
        // The kernel copies the program and does not write to it; the type is not const in C.
        filter: program.as_ptr().cast_mut(),
    };
    let size = libc::socklen_t::try_from(size_of::<sock_fprog>()).map_err(|_| Errno::EINVAL)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `filter` and the program it points to outlive the call, `size` and `len` are theirs, and the kernel
    // reads both only.
    #[allow(unsafe_code)]
    let done = unsafe {
        let option = (&raw const filter).cast::<libc::c_void>();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, option, size)
    };
    Errno::result(done).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::proc_message::tests::datagram;

    /// Runs a program as the kernel does, for the few instructions used here.
    fn passes(program: &[sock_filter], packet: &[u8]) -> bool {
        let (mut at, mut a, mut x) = (0, 0u32, 0u32);
        loop {
            let i = program[at];
            at += 1;
            match u32::from(i.code) {
                c if c == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let from = i.k as usize;
                    let Some(word) = packet.get(from..from + 4) else { return false };
                    a = u32::from_be_bytes(word.try_into().unwrap());
                }
                c if c == libc::BPF_MISC | libc::BPF_TAX => x = a,
                c if c == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => {
                    at += usize::from(if a == i.k { i.jt } else { i.jf });
                }
                c if c == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X => {
                    at += usize::from(if a == x { i.jt } else { i.jf });
                }
                c if c == libc::BPF_RET | libc::BPF_K => return i.k != 0,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn forks_of_processes_execs_and_answers_pass() {
        let program: Vec<sock_filter> = WANTED.into_iter().chain([DROP]).collect();
        let table = [
            (PROC_EVENT_NONE, vec![0], true),
            (PROC_EVENT_FORK, vec![5, 4, 9, 9], true),
            (PROC_EVENT_FORK, vec![4, 4, 10, 4], false),
            (PROC_EVENT_EXEC, vec![9, 9], true),
            // uid, gid, sid, ptrace, comm, coredump, exit
            (0x4, vec![9, 9, 0, 0], false),
            (0x40, vec![9, 9, 0, 0], false),
            (0x80, vec![9, 9], false),
            (0x100, vec![9, 9, 0, 0], false),
            (0x200, vec![9, 9, 0, 0], false),
            (0x4000_0000, vec![9, 9, 0, 0], false),
            (0x8000_0000, vec![9, 9, 0, 17], false),
        ];
        for (what, data, want) in table {
            assert_eq!(passes(&program, &datagram(what, &data)), want, "{what:#x} {data:?}");
        }
        let whole = datagram(PROC_EVENT_FORK, &[5, 4, 9, 9]);
        for len in 0..whole.len() {
            assert!(!passes(&program, &whole[..len]), "cut at {len}");
        }
        let mut stranger = whole;
        stranger[NETLINK_HEADER] ^= 0x40;
        assert!(!passes(&program, &stranger));
    }
}
