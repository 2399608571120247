//! Facts and knobs of the machine, from procfs.
//!
//! Owns `meminfo`, `stat`, `vmstat` and `sys/vm`. Cold, except [`meminfo`] and [`cpu_times`], which a loop may
//! call every second: one open, one read.

use std::path::Path;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::units::{Bytes, MilliCpu};
use nix::unistd::{SysconfVar, sysconf};

use crate::error::{Category, HostError, HostOperation};
use crate::knob::{Knob, Setting};
use crate::parse;
use crate::roots::Roots;

/// Memory, processors, swap and page size.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when `meminfo` or `stat` cannot be read; `Malformed` when they are not understood.
pub fn node_facts(roots: &Roots) -> Result<NodeFacts, HostError> {
    let memory = meminfo(roots)?;
    Ok(NodeFacts {
        memory_bytes: memory.total,
        cpu_milli: MilliCpu::new(online_cpus(roots)? * 1000),
        // Kernels without swap have no such line.
        swap_total_bytes: memory.swap_total.unwrap_or(Bytes::ZERO),
        page_bytes: page_size(),
    })
}

/// The lines of `meminfo` (proc(5)) that are of use here. A line the kernel does not have is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total: Bytes,
    /// `MemFree`.
    pub free: Option<Bytes>,
    /// `MemAvailable`: what may be allocated without swapping.
    pub available: Option<Bytes>,
    /// `SwapTotal`.
    pub swap_total: Option<Bytes>,
    /// `SwapFree`.
    pub swap_free: Option<Bytes>,
    /// `SwapCached`.
    pub swap_cached: Option<Bytes>,
    /// `CommitLimit`: what may be committed with `vm.overcommit_memory` 2.
    pub commit_limit: Option<Bytes>,
    /// `Committed_AS`: what was promised to all processes.
    pub committed: Option<Bytes>,
}

/// `meminfo`.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when it cannot be read; `Malformed` when it has no `MemTotal`.
pub fn meminfo(roots: &Roots) -> Result<MemInfo, HostError> {
    let path = roots.proc().join("meminfo");
    parse_meminfo(&bytes(&path)?).ok_or_else(|| HostError::malformed(&path, "it has no valid MemTotal"))
}

/// Reads the text of `meminfo`; `None` without a total. A line that is no number of kB is as if missing.
pub fn parse_meminfo(text: &[u8]) -> Option<MemInfo> {
    const KEYS: [&[u8]; 8] = [
        b"MemTotal:",
        b"MemFree:",
        b"MemAvailable:",
        b"SwapTotal:",
        b"SwapFree:",
        b"SwapCached:",
        b"CommitLimit:",
        b"Committed_AS:",
    ];
    let mut found = [None; KEYS.len()];
    for (key, value) in parse::key_values(text) {
        if let Some(i) = KEYS.iter().position(|k| *k == key) {
            found[i] = kib(value);
        }
    }
    let [total, free, available, swap_total, swap_free, swap_cached, commit_limit, committed] = found;
    Some(MemInfo {
        total: total?,
        free,
        available,
        swap_total,
        swap_free,
        swap_cached,
        commit_limit,
        committed,
    })
}

/// Time all processors together have spent since boot, from the `cpu` line of `stat` (proc(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTimes {
    /// At work for somebody, steal time by a hypervisor not counted, microseconds.
    pub busy_usec: u64,
    /// Idle, also while waiting for a disk, microseconds.
    pub idle_usec: u64,
    /// Taken by the hypervisor, microseconds.
    pub steal_usec: u64,
}

/// The `cpu` line of `stat`.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when it cannot be read; `Malformed`.
pub fn cpu_times(roots: &Roots) -> Result<CpuTimes, HostError> {
    let path = roots.proc().join("stat");
    let ticks = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|n| u64::try_from(n).ok());
    parse_cpu_times(&bytes(&path)?, ticks.filter(|n| *n > 0).unwrap_or(100))
        .ok_or_else(|| HostError::malformed(&path, "it has no valid cpu line"))
}

/// Reads the text of `stat`, counted in `ticks_per_second`.
pub fn parse_cpu_times(text: &[u8], ticks_per_second: u64) -> Option<CpuTimes> {
    let (_, line) = parse::key_values(text).find(|(key, _)| *key == b"cpu")?;
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let mut times = [0u64; 8];
    for (i, word) in parse::words(line).take(times.len()).enumerate() {
        times[i] = parse::uint(word)?;
    }
    let [user, nice, system, idle, iowait, irq, softirq, steal] = times;
    let usec = |parts: &[u64]| {
        let sum = parts.iter().fold(0u64, |a, b| a.saturating_add(*b));
        sum.saturating_mul(1_000_000).checked_div(ticks_per_second)
    };
    Some(CpuTimes {
        busy_usec: usec(&[user, nice, system, irq, softirq])?,
        idle_usec: usec(&[idle, iowait])?,
        steal_usec: usec(&[steal])?,
    })
}

/// Processes ended by the OOM killer anywhere on the machine since boot (`oom_kill` of `vmstat`, Linux 4.13).
///
/// # Errors
/// `Gone`, `Denied` or `Io` when it cannot be read; `Unsupported` when the kernel does not tell.
pub fn oom_kills(roots: &Roots) -> Result<u64, HostError> {
    let path = roots.proc().join("vmstat");
    let [kills] = parse::pick(&bytes(&path)?, [b"oom_kill"]);
    kills.value().ok_or_else(|| {
        let why = "it has no line oom_kill";
        HostError::of_text(Category::Unsupported, HostOperation::Read, path.display().to_string(), why)
    })
}

/// `vm.panic_on_oom` (Documentation/admin-guide/sysctl/vm.rst): 0 ends a process when memory runs out, 1 and 2 the
/// machine.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when it cannot be read; `Malformed`.
pub fn panic_on_oom(roots: &Roots) -> Result<u64, HostError> {
    let path = roots.proc().join("sys/vm/panic_on_oom");
    parse::uint(parse::first_line(&bytes(&path)?))
        .ok_or_else(|| HostError::malformed(&path, "it is not a number"))
}

/// Huge pages of the default size: size of one, and how many there are (`Hugepagesize` and `HugePages_Total` of
/// `meminfo`); `None` where the kernel has none.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when it cannot be read.
pub fn hugepages(roots: &Roots) -> Result<Option<(Bytes, u64)>, HostError> {
    let text = bytes(&roots.proc().join("meminfo"))?;
    let of = |wanted: &[u8]| parse::key_values(&text).find(|(key, _)| *key == wanted).map(|(_, value)| value);
    let size = of(b"Hugepagesize:").and_then(kib);
    let count = of(b"HugePages_Total:").and_then(parse::uint);
    Ok(size.zip(count))
}

/// Where a knob of the machine is.
fn knob_path(roots: &Roots, knob: Knob) -> std::path::PathBuf {
    roots.proc().join("sys/vm").join(knob.file())
}

/// The present value of a knob of the machine.
pub(crate) fn node_setting(roots: &Roots, knob: Knob) -> Result<Setting, HostError> {
    let path = knob_path(roots, knob);
    knob.parse(&bytes(&path)?).ok_or_else(|| HostError::malformed(&path, "the text is not understood"))
}

/// Writes a knob of the machine. Crate-private: everybody else goes through a `HostWriter`.
pub(crate) fn set_node(roots: &Roots, setting: &Setting) -> Result<(), HostError> {
    let path = knob_path(roots, setting.knob());
    let opened = std::fs::OpenOptions::new().write(true).open(&path);
    opened
        .and_then(|mut file| std::io::Write::write_all(&mut file, format!("{setting}\n").as_bytes()))
        .map_err(|e| HostError::from_io(HostOperation::Write, &path, &e))
}

/// `1234 kB` as meminfo writes it.
fn kib(value: &[u8]) -> Option<Bytes> {
    let mut words = parse::words(value);
    let n = parse::uint(words.next()?)?.checked_mul(1024)?;
    (words.next() == Some(b"kB")).then(|| Bytes::new(n))
}

/// Online logical processors: the `cpuN` lines of `stat` (proc(5)).
fn online_cpus(roots: &Roots) -> Result<u64, HostError> {
    let path = roots.proc().join("stat");
    let text = read(&path)?;
    let is_cpu = |key: &[u8]| key.strip_prefix(b"cpu").is_some_and(|n| parse::uint(n).is_some());
    match parse::key_values(text.as_bytes()).filter(|(key, _)| is_cpu(key)).count() {
        0 => Err(HostError::malformed(&path, "it names no processor")),
        n => Ok(n as u64),
    }
}

/// Whether cgroup v2 is mounted with `memory_recursiveprot` (cgroup-v2.rst, "Mounting"; Linux 5.7): protection that
/// children do not claim is spread over them. Mounts are those of pid 1, because an option holds for all of them.
pub fn has_recursive_protection(roots: &Roots) -> bool {
    let told = |pid: &str| std::fs::read_to_string(roots.proc().join(pid).join("mounts")).ok();
    let mounts = told("1").or_else(|| told("self")).unwrap_or_default();
    let option = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(2);
        words.next() == Some("cgroup2")
            && words.next().is_some_and(|options| options.split(',').any(|o| o == "memory_recursiveprot"))
    };
    mounts.lines().any(option)
}

/// Size of a page of memory.
pub fn page_size() -> Bytes {
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|n| u64::try_from(n).ok());
    Bytes::new(size.unwrap_or(4096))
}

/// Identity of this boot, random for each (`sys/kernel/random/boot_id`).
///
/// # Errors
/// As for reading any file.
pub fn boot_id(roots: &Roots) -> Result<String, HostError> {
    Ok(read(&roots.proc().join("sys/kernel/random/boot_id"))?.trim().to_owned())
}

/// Name of this machine, or of the pod when called in one with its own UTS namespace.
///
/// # Errors
/// `Malformed` when it is not valid UTF-8; `Io`.
pub fn hostname() -> Result<String, HostError> {
    let subject = Path::new("host name");
    nix::unistd::gethostname()
        .map_err(|e| HostError::from_errno(HostOperation::Read, "host name", e, true))?
        .into_string()
        .map_err(|_| HostError::malformed(subject, "it is not valid UTF-8"))
}

fn bytes(path: &Path) -> Result<Vec<u8>, HostError> {
    std::fs::read(path).map_err(|e| HostError::from_io(HostOperation::Read, path, &e))
}

fn read(path: &Path) -> Result<String, HostError> {
    std::fs::read_to_string(path).map_err(|e| HostError::from_io(HostOperation::Read, path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts_of(meminfo: &str, stat: &str) -> Result<NodeFacts, HostError> {
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("meminfo"), meminfo).unwrap();
        std::fs::write(tmp.path().join("stat"), stat).unwrap();
        node_facts(&Roots::new(tmp.path(), tmp.path()))
    }

    const MEMINFO: &str =
        "MemTotal:           2048 kB\nMemFree:  1 kB\nSwapTotal:   512 kB\nHugePages_Total:  0\n";

    #[test]
    fn memory_swap_and_online_processors_are_read() {
        let facts = facts_of(MEMINFO, "cpu  1 2\ncpu0 1 2\ncpu3 1 2\nintr 5\n").unwrap();
        assert_eq!(facts.memory_bytes, Bytes::new(2048 * 1024));
        assert_eq!(facts.swap_total_bytes, Bytes::new(512 * 1024));
        assert_eq!(facts.cpu_milli, MilliCpu::new(2000));
    }

    #[test]
    fn what_is_available_and_committed_is_read() {
        let text = b"MemTotal: 10 kB\nMemAvailable: 4 kB\nCommitted_AS: 7 kB\nSwapFree: x kB\nMemFree: 3\n";
        let memory = parse_meminfo(text).unwrap();
        assert_eq!(memory.available, Some(Bytes::new(4096)));
        assert_eq!(memory.committed, Some(Bytes::new(7 * 1024)));
        assert_eq!((memory.swap_free, memory.free, memory.commit_limit), (None, None, None));
        assert_eq!(parse_meminfo(b"MemFree: 3 kB\n"), None);
        let tmp = tempfile::tempdir().unwrap();
        std::fs::write(tmp.path().join("meminfo"), "HugePages_Total:      12\nHugepagesize:   2048 kB\n")
            .unwrap();
        let roots = Roots::new(tmp.path(), tmp.path());
        assert_eq!(hugepages(&roots), Ok(Some((Bytes::new(2 << 20), 12))));
    }

    #[test]
    fn processor_time_is_sorted_into_busy_idle_and_stolen() {
        let times = parse_cpu_times(b"cpu  1 2 3 40 50 6 7 8 9 10\ncpu0 1 1 1 1\n", 100).unwrap();
        assert_eq!(times, CpuTimes { busy_usec: 190_000, idle_usec: 900_000, steal_usec: 80_000 });
        assert_eq!(parse_cpu_times(b"cpu 1 x\n", 100), None);
        assert_eq!(parse_cpu_times(b"cpu 1\n", 0), None);
        assert_eq!(parse_cpu_times(b"cpu0 1\n", 100), None);
        let big = parse_cpu_times(b"cpu 18446744073709551615 18446744073709551615\n", 100);
        assert_eq!(big.map(|t| t.idle_usec), Some(0));
    }

    #[test]
    fn files_that_are_not_understood_are_named() {
        let e = facts_of("nonsense", "cpu0 1\n").unwrap_err();
        assert!(e.subject().ends_with("meminfo"), "{e}");
        let e = facts_of(MEMINFO, "intr 5\n").unwrap_err();
        assert!(e.to_string().contains("names no processor"), "{e}");
    }

    #[test]
    fn this_machine_has_memory_and_a_boot_identity() {
        let roots = Roots::default();
        assert!(node_facts(&roots).unwrap().memory_bytes.get() > 0);
        assert!(boot_id(&roots).unwrap().len() >= 32);
        assert!(cpu_times(&roots).unwrap().busy_usec > 0);
        assert!(meminfo(&roots).unwrap().available.is_some());
        assert!(oom_kills(&roots).is_ok());
        assert!(node_setting(&roots, Knob::OvercommitMemory).is_ok());
    }
}
