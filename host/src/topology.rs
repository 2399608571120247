//! Logical processors and where they sit, from sysfs (cputopology.rst; sysfs-devices-system-cpu).
//!
//! Owns the reading. Not owned: who gets which.

use std::path::Path;

use crate::error::{HostError, HostOperation};
use crate::knob::CpuSet;

/// One online logical processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogicalCpu {
    /// Its number.
    pub id: u32,
    /// Its NUMA node; 0 on a machine that has none.
    pub numa: u32,
    /// Its package.
    pub socket: u32,
    /// Its physical core, by a number unique within the package; its own number where the kernel does not tell.
    pub core: u32,
}

/// Every online processor, by number. `devices` is sysfs's `devices/system`.
///
/// # Errors
/// `Gone`, `Denied` or `Io` when `cpu/online` cannot be read; `Malformed` when it is no list or names nobody.
pub fn online_cpus(devices: &Path) -> Result<Vec<LogicalCpu>, HostError> {
    let path = devices.join("cpu/online");
    let text = std::fs::read(&path).map_err(|e| HostError::from_io(HostOperation::Read, &path, &e))?;
    let online = CpuSet::parse(&text).filter(|online| !online.is_empty());
    let online = online.ok_or_else(|| HostError::malformed(&path, "it is no list of processors"))?;
    Ok(online.iter().filter_map(|id| u32::try_from(id).ok()).map(|id| place(devices, id)).collect())
}

fn place(devices: &Path, id: u32) -> LogicalCpu {
    let dir = devices.join(format!("cpu/cpu{id}"));
    let number = |file: &str| {
        let text = std::fs::read_to_string(dir.join("topology").join(file)).ok()?;
        // Machines without such a thing say -1.
        text.trim().parse::<u32>().ok()
    };
    LogicalCpu {
        id,
        numa: numa(&dir).unwrap_or(0),
        socket: number("physical_package_id").unwrap_or(0),
        core: number("core_id").unwrap_or(id),
    }
}

/// The link `nodeN` in a processor's directory.
fn numa(dir: &Path) -> Option<u32> {
    let names =
        std::fs::read_dir(dir).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("node")?.parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_found_with_their_places() {
        let tmp = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = tmp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpu/online", "0,2-3\n");
        for (id, core) in [(0, "0\n"), (2, "1\n")] {
            write(&format!("cpu/cpu{id}/topology/physical_package_id"), "1\n");
            write(&format!("cpu/cpu{id}/topology/core_id"), core);
            write(&format!("cpu/cpu{id}/node1/x"), "");
        }
        write("cpu/cpu3/topology/physical_package_id", "-1\n");
        let found = online_cpus(tmp.path()).unwrap();
        let want = [(0, 1, 1, 0), (2, 1, 1, 1), (3, 0, 0, 3)];
        assert_eq!(found.iter().map(|c| (c.id, c.numa, c.socket, c.core)).collect::<Vec<_>>(), want);
        write("cpu/online", "\n");
        assert!(online_cpus(tmp.path()).unwrap_err().to_string().contains("no list of processors"));
    }

    #[test]
    fn this_machine_has_processors() {
        let roots = crate::roots::Roots::default();
        assert!(!online_cpus(roots.devices()).unwrap().is_empty());
    }
}
