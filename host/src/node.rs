//! Facts of the machine, from procfs.

use std::path::Path;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::units::{Bytes, MilliCpu};
use nix::unistd::{SysconfVar, sysconf};

use crate::error::{Action, HostError};
use crate::parse;
use crate::roots::Roots;

/// Memory, processors, swap and page size.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when `meminfo` or `stat` cannot be read; `Malformed` when they are not understood.
pub fn node_facts(roots: &Roots) -> Result<NodeFacts, HostError> {
    let path = roots.proc().join("meminfo");
    let text = read(&path)?;
    let of =
        |key: &[u8]| parse::key_values(text.as_bytes()).find(|(k, _)| *k == key).and_then(|(_, v)| kib(v));
    let total = of(b"MemTotal:").ok_or_else(|| HostError::malformed(&path, "it has no valid MemTotal"))?;
    Ok(NodeFacts {
        memory_bytes: total,
        cpu_milli: MilliCpu::new(online_cpus(roots)? * 1000),
        // Kernels without swap have no such line.
        swap_total_bytes: of(b"SwapTotal:").unwrap_or(Bytes::ZERO),
        page_bytes: page_size(),
    })
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
        .map_err(|e| HostError::from_errno(Action::Read, "host name", e, true))?
        .into_string()
        .map_err(|_| HostError::malformed(subject, "it is not valid UTF-8"))
}

fn read(path: &Path) -> Result<String, HostError> {
    std::fs::read_to_string(path).map_err(|e| HostError::from_io(Action::Read, path, &e))
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
    }
}
