//! Parsers for the kernel's text files.
//!
//! They work on bytes as read, allocate nothing, never panic on any input and pass over lines they do not know,
//! because kernels add lines. A line that was cut off (no newline at its end) is not trusted in files of several
//! lines. Owns no file name and no policy.

pub use evenkeel_model::kernel_text::{first_line, flag, int, limit, uint, v1_limit, words};
use evenkeel_model::traffic::{BlockIo, NetworkIo};

/// What a file said about one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Picked {
    /// No such line: this kernel does not tell.
    Missing,
    /// The line is there but its value is not a number.
    Malformed,
    /// The value.
    Value(u64),
}

impl Picked {
    /// The value, if there is one.
    pub const fn value(self) -> Option<u64> {
        match self {
            Self::Value(v) => Some(v),
            Self::Missing | Self::Malformed => None,
        }
    }
}

/// Picks the values of `keys` from a file of `key value` lines, in one pass that ends when all are found.
pub fn pick<const N: usize>(text: &[u8], keys: [&[u8]; N]) -> [Picked; N] {
    let mut found = [Picked::Missing; N];
    let mut left = N;
    for (key, value) in key_values(text) {
        if let Some(i) = keys.iter().position(|k| *k == key) {
            if found[i] == Picked::Missing {
                left -= 1;
            }
            found[i] = uint(value).map_or(Picked::Malformed, Picked::Value);
            if left == 0 {
                break;
            }
        }
    }
    found
}

/// Complete `key value` lines of a file; a line without a blank has an empty value.
pub fn key_values(text: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = rest.iter().position(|&b| b == b'\n')?;
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let blank = line.iter().position(|&b| b == b' ').unwrap_or(line.len());
        Some((&line[..blank], line[blank..].trim_ascii()))
    })
}

/// Total stall time in microseconds of the `some` line of a pressure file (accounting/psi.rst). The `full` line
/// follows it and is not needed for it.
pub fn pressure_some_total(text: &[u8]) -> Picked {
    pressure_total(text, b"some")
}

/// Total stall time in microseconds of the line that begins with `which` (`some` or `full`).
pub fn pressure_total(text: &[u8], which: &[u8]) -> Picked {
    let Some((_, averages)) = key_values(text).find(|(key, _)| *key == which) else {
        return Picked::Missing;
    };
    match words(averages).find_map(|w| w.strip_prefix(b"total=")) {
        Some(total) => uint(total).map_or(Picked::Malformed, Picked::Value),
        None => Picked::Malformed,
    }
}

/// Appends the process numbers of a piece of `cgroup.procs`; returns how many bytes at its end belong to an
/// unfinished line. A `0` is a process of a namespace we cannot see and is left out. A line that is no number
/// is counted in `malformed`.
pub fn procs(text: &[u8], into: &mut Vec<u32>, malformed: &mut usize) -> usize {
    let mut rest = text;
    while let Some(end) = rest.iter().position(|&b| b == b'\n') {
        match uint(rest[..end].trim_ascii()).map(u32::try_from) {
            Some(Ok(0)) => {}
            Some(Ok(pid)) => into.push(pid),
            _ if end == 0 => {}
            _ => *malformed += 1,
        }
        rest = &rest[end + 1..];
    }
    rest.len()
}

/// What `/proc/PID/stat` (proc(5)) tells that we need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcStat {
    /// State letter: `Z` is a zombie, `X` is dead.
    pub state: u8,
    /// Parent.
    pub parent: u32,
    /// Kernel flags (`PF_*`).
    pub flags: u64,
    /// Start time in clock ticks since boot; with the pid it names the process.
    pub start_time: u64,
}

/// Reads `/proc/PID/stat`. The command may hold blanks and parentheses, so fields count from the last `)`.
pub fn proc_stat(text: &[u8]) -> Option<ProcStat> {
    let close = text.iter().rposition(|&b| b == b')')?;
    let mut fields = words(&text[close + 1..]);
    let state = *fields.next()?.first()?;
    let parent = u32::try_from(uint(fields.next()?)?).ok()?;
    // After the parent: pgrp, session, tty_nr, tpgid, then flags, which is field 9 of the line.
    let flags = uint(fields.nth(4)?)?;
    // Fields 10 to 21 lie between flags and starttime, field 22.
    let start_time = uint(fields.nth(12)?)?;
    Some(ProcStat { state, parent, flags, start_time })
}

/// Sums of `io.stat` over its devices: lines of a device number and `key=value` words, of which a device without traffic has
/// none (cgroup-v2.rst). `None` where a number is not one.
pub fn io_stat(text: &[u8]) -> Option<BlockIo> {
    let mut sum = BlockIo::default();
    for (_, values) in key_values(text) {
        for word in words(values) {
            let equals = word.iter().position(|&b| b == b'=')?;
            let place = match &word[..equals] {
                b"rbytes" => &mut sum.read_bytes,
                b"wbytes" => &mut sum.written_bytes,
                b"rios" => &mut sum.reads,
                b"wios" => &mut sum.writes,
                _ => continue,
            };
            *place = place.saturating_add(uint(&word[equals + 1..])?);
        }
    }
    Some(sum)
}

/// Sums over devices of what was read and written, of a v1 file of lines `8:0 Read 4096` (blkio-controller.rst). `None` where a
/// number is not one.
pub fn blkio(text: &[u8]) -> Option<(u64, u64)> {
    let (mut read, mut written) = (0_u64, 0_u64);
    for (_, rest) in key_values(text) {
        let (operation, number) = rest.split_at(rest.iter().position(|&b| b == b' ').unwrap_or(rest.len()));
        let place = match operation {
            b"Read" => &mut read,
            b"Write" => &mut written,
            _ => continue,
        };
        *place = place.saturating_add(uint(number.trim_ascii())?);
    }
    Some((read, written))
}

/// Sums over the interfaces of a `net/dev`, loopback left out: two lines of titles, then a name with a colon and sixteen numbers,
/// eight received and eight sent (proc_pid_net(5)). `None` where a number is missing.
pub fn net_dev(text: &[u8]) -> Option<NetworkIo> {
    let mut sum = NetworkIo::default();
    for line in text.split(|&b| b == b'\n').skip(2).filter(|line| !line.trim_ascii().is_empty()) {
        let colon = line.iter().position(|&b| b == b':')?;
        if line[..colon].trim_ascii() == b"lo" {
            continue;
        }
        let mut numbers = words(&line[colon + 1..]).map(uint);
        let mut next = |skip: usize| numbers.nth(skip).flatten();
        let (received_bytes, received_packets) = (next(0)?, next(0)?);
        let (sent_bytes, sent_packets) = (next(6)?, next(0)?);
        sum.received_bytes = sum.received_bytes.saturating_add(received_bytes);
        sum.received_packets = sum.received_packets.saturating_add(received_packets);
        sum.sent_bytes = sum.sent_bytes.saturating_add(sent_bytes);
        sum.sent_packets = sum.sent_packets.saturating_add(sent_packets);
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_picked_and_unknown_or_cut_lines_passed_over() {
        let text = b"anon 5\nfuture thing 7\nfile x\ninactive_file 12\nslab 9";
        assert_eq!(
            pick(text, [b"anon", b"file", b"inactive_file", b"slab"]),
            [Picked::Value(5), Picked::Malformed, Picked::Value(12), Picked::Missing]
        );
    }

    #[test]
    fn pressure_is_the_some_total() {
        let text = b"some avg10=0.00 avg60=1.20 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure_some_total(text), Picked::Value(123));
        assert_eq!(pressure_total(text, b"full"), Picked::Value(7));
        assert_eq!(pressure_some_total(b"some avg10=0.00\n"), Picked::Malformed);
        assert_eq!(pressure_some_total(b"some total=x\n"), Picked::Malformed);
        assert_eq!(pressure_some_total(b""), Picked::Missing);
    }

    #[test]
    fn block_io_is_summed_over_devices() {
        let text = b"8:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=9 dios=9\n8:16\n253:0 rbytes=1 future=x\n8:32 rb";
        let io = io_stat(text).unwrap();
        assert_eq!(io, BlockIo { read_bytes: 4097, written_bytes: 512, reads: 1, writes: 2 });
        assert_eq!((io_stat(b""), io_stat(b"8:0 rbytes=x\n")), (Some(BlockIo::default()), None));
        let text = b"8:0 Read 4096\n8:0 Write 512\n8:0 Sync 1\n8:0 Total 4608\n8:16 Read 4\nTotal 4612\n";
        assert_eq!((blkio(text), blkio(b"Total 0\n")), (Some((4100, 512)), Some((0, 0))));
        assert_eq!(blkio(b"8:0 Read\n"), None);
    }

    #[test]
    fn network_traffic_is_summed_over_interfaces_without_loopback() {
        let text = b"Inter-|   Receive                |  Transmit\n face |bytes    packets errs drop fifo frame compressed multicast|bytes\n    \
            lo: 999 9 0 0 0 0 0 0 999 9 0 0 0 0 0 0\n  eth0:1000 10 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n  eth1: 5 1 0 0 0 0 0 0 7 3 0 0 0 0 0 0\n";
        let io = net_dev(text).unwrap();
        let want = NetworkIo { received_bytes: 1005, sent_bytes: 207, received_packets: 11, sent_packets: 5 };
        assert_eq!(io, want);
        assert_eq!(net_dev(b"a\nb\n  eth0: 1 2 3\n"), None);
    }

    #[test]
    fn process_lists_leave_out_strangers_and_keep_cut_lines_for_later() {
        let (mut pids, mut bad) = (Vec::new(), 0);
        assert_eq!(procs(b"1\n0\n42\nxyz\n99999999999\n\n12", &mut pids, &mut bad), 2);
        assert_eq!((pids, bad), (vec![1, 42], 2));
    }

    #[test]
    fn stat_survives_a_hostile_command_name() {
        let text = b"7 (a) Z 1 (b) S 3 7 7 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 1 0 8558 0 0\n";
        let stat = proc_stat(text).unwrap();
        assert_eq!(stat, ProcStat { state: b'S', parent: 3, flags: 4_194_560, start_time: 8558 });
        assert_eq!(proc_stat(b"7 (a) S 3"), None);
        assert_eq!(proc_stat(b""), None);
        assert_eq!(proc_stat(b")"), None);
    }
}
