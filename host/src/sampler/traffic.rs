//! [`TrafficReader`]: block I/O of one container and the network of its pod.
//!
//! Looked at on every third of the ticks on which a container's files are all read ([`Plan`](super::Plan)), at a different tick for each: every
//! thirty seconds by default.
//! Block I/O is `io.stat` (cgroup-v2.rst, "IO Interface Files") or, on v1, what `blkio.throttle.*` counts with the cgroups below it
//! where the kernel sums it up (`_recursive`, since 5.1); both sum over all devices, so that what passes a stacked device counts in each. The
//! network is `/proc/PID/net/dev` of one process. That file is opened anew each time: held open it would keep the namespace
//! alive after its pod. Its inode is the namespace's identity, for which no right to trace is needed.

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use evenkeel_model::traffic::{BlockIo, NetworkIo, Traffic};
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use nix::sys::uio::pread;

use super::descriptors::DescriptorLease;
use super::reader::SampleContext;
use crate::cgroup::CgroupDir;
use crate::hierarchy::{Controller, Hierarchy};
use crate::parse;
use crate::roots::Roots;
use crate::write::CgroupRef;

/// Files of v1: bytes, then operations; those with the cgroups below, then without.
const V1_BYTES: [&str; 2] = ["blkio.throttle.io_service_bytes_recursive", "blkio.throttle.io_service_bytes"];
const V1_OPERATIONS: [&str; 2] = ["blkio.throttle.io_serviced_recursive", "blkio.throttle.io_serviced"];
/// Looks after which a container in the host's network is believed to stay there.
const HOST_SURE: u8 = 2;
/// Descriptors a reader keeps at most.
pub(super) const DESCRIPTORS: u64 = 2;

/// Where block I/O is read.
#[derive(Debug)]
enum Block {
    /// `io.stat`.
    V2(OwnedFd),
    /// Bytes and operations.
    V1(OwnedFd, OwnedFd),
}

/// Whose network is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Network {
    /// Not found yet.
    Unknown,
    /// The host's, seen so many times; not counted. A runtime puts a process into its cgroup before it gives it a network, so it
    /// is looked at again before that is believed.
    Host(u8),
    /// A process, and the inode of the `net/dev` of its namespace.
    Of { pid: u32, inode: u64 },
}

/// Reads one container's traffic.
#[derive(Debug)]
pub struct TrafficReader {
    block: Option<Block>,
    network: Network,
    last: Option<TrafficCounters>,
    _kept: Option<DescriptorLease>,
}

/// What was counted at one moment.
#[derive(Debug, Clone, Copy)]
struct TrafficCounters {
    at: Duration,
    block: Option<BlockIo>,
    network: Option<NetworkIo>,
}

/// procfs, and the network of its first process, to tell pods that use it.
#[derive(Debug)]
pub(super) struct HostNetwork {
    proc: OwnedFd,
    inode: u64,
}

impl HostNetwork {
    /// `None` where processes of cgroups are not those of this procfs, or the first one is not seen.
    pub(super) fn of(roots: &Roots) -> Option<Self> {
        roots.pids_agree().ok().filter(|agree| *agree)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = open(roots.proc(), flags, Mode::empty()).ok()?;
        let (_, inode) = open_devices(&proc, 1)?;
        Some(Self { proc, inode })
    }
}

impl TrafficReader {
    /// A reader for the cgroup at `path`. Without enough descriptors, or where the kernel does not tell, block I/O is not told; the
    /// network needs none.
    pub fn open(context: &SampleContext, path: &str) -> Self {
        let tree = &context.tree;
        let home = tree.layout().home(Controller::Io);
        let dir = home.and_then(|home| tree.dir(home, path).ok());
        let mut kept = dir.as_ref().and_then(|_| context.descriptors.take(DESCRIPTORS));
        let block = dir.filter(|_| kept.is_some()).and_then(|dir| Block::open(&dir));
        if let Some(kept) = &mut kept {
            kept.shrink_to(match block {
                Some(Block::V1(..)) => 2,
                Some(Block::V2(_)) => 1,
                None => 0,
            });
        }
        Self { block, network: Network::Unknown, last: None, _kept: kept }
    }

    /// Identity of its network namespace, once it is known and not the host's.
    const fn network(&self) -> Option<u64> {
        match self.network {
            Network::Of { inode, .. } => Some(inode),
            Network::Unknown | Network::Host(_) => None,
        }
    }

    /// Reads what is counted; the growth since the look before, `None` at the first, and on a tick that is not
    /// its turn. `now` is a monotonic clock of the caller's choice, `processes` the cgroup whose network it is; none for a container whose
    /// pod's network is told with another one.
    pub fn look(
        &mut self,
        context: &mut SampleContext,
        now: Duration,
        tick: u64,
        phase: u64,
        processes: Option<&CgroupRef>,
    ) -> Option<Traffic> {
        if self.last.is_some() && !context.plan.is_traffic(tick, phase) {
            return None;
        }
        let block = self.block.as_ref().and_then(|block| block.read(context.buffer.as_mut_slice()));
        let network = processes.and_then(|processes| self.read_network(context, processes));
        let look = TrafficCounters { at: now, block, network };
        let before = self.last.replace(look)?;
        let span_usec = u64::try_from(now.saturating_sub(before.at).as_micros()).unwrap_or(u64::MAX);
        Some(Traffic {
            span_usec,
            block: block.zip(before.block).and_then(|(now, before)| now.since(&before)),
            network: network.zip(before.network).and_then(|(now, before)| now.since(&before)),
            host_network: matches!(self.network, Network::Host(_)),
        })
    }

    fn read_network(&mut self, context: &mut SampleContext, processes: &CgroupRef) -> Option<NetworkIo> {
        let SampleContext { host_network: Some(host), tree, buffer, .. } = context else { return None };
        let buffer = buffer.as_mut_slice();
        let (before, mut seen) = (self.network(), 0);
        match self.network {
            Network::Host(HOST_SURE..) => return None,
            Network::Host(times) => seen = times,
            Network::Of { pid, inode } => {
                let found = open_devices(&host.proc, pid).filter(|(_, found)| *found == inode);
                if let Some((file, _)) = found {
                    return read_whole(&file, buffer).and_then(parse::net_dev);
                }
            }
            Network::Unknown => {}
        }
        // Its process has ended, or is not known: another one of its cgroup.
        self.network = Network::Unknown;
        let procs = tree.dir_of(processes).ok()?.open_file("cgroup.procs").ok()?;
        let len = pread(&procs, buffer, 0).ok()?;
        let pid = parse::uint(parse::first_line(&buffer[..len])).and_then(|pid| u32::try_from(pid).ok())?;
        let (file, inode) = open_devices(&host.proc, pid)?;
        if host.inode == inode {
            self.network = Network::Host(seen + 1);
            return None;
        }
        self.network = Network::Of { pid, inode };
        // Another namespace counts anew: what is read now is compared with nothing.
        if before != Some(inode)
            && let Some(last) = &mut self.last
        {
            last.network = None;
        }
        read_whole(&file, buffer).and_then(parse::net_dev)
    }
}

impl Block {
    fn open(dir: &CgroupDir) -> Option<Self> {
        if dir.at().hierarchy == Hierarchy::V2 {
            return dir.open_file("io.stat").ok().map(Self::V2);
        }
        let first = |names: [&str; 2]| names.into_iter().find_map(|name| dir.open_file(name).ok());
        Some(Self::V1(first(V1_BYTES)?, first(V1_OPERATIONS)?))
    }

    fn read(&self, buffer: &mut [u8]) -> Option<BlockIo> {
        match self {
            Self::V2(file) => read_whole(file, buffer).and_then(parse::io_stat),
            Self::V1(bytes, operations) => {
                let (read_bytes, written_bytes) = read_whole(bytes, buffer).and_then(parse::blkio)?;
                let (reads, writes) = read_whole(operations, buffer).and_then(parse::blkio)?;
                Some(BlockIo { read_bytes, written_bytes, reads, writes })
            }
        }
    }
}

/// A file that fits the buffer; one that is cut would tell too little.
fn read_whole(file: impl AsFd, buffer: &mut [u8]) -> Option<&[u8]> {
    let len = loop {
        match pread(&file, buffer, 0) {
            Err(Errno::EINTR) => {}
            other => break other.ok()?,
        }
    };
    (len < buffer.len()).then_some(&buffer[..len])
}

/// The `net/dev` of a process and its inode. The path is put together without allocating.
fn open_devices(proc: &OwnedFd, pid: u32) -> Option<(OwnedFd, u64)> {
    let mut path = [0_u8; 24];
    let mut rest = path.as_mut_slice();
    write!(rest, "{pid}/net/dev").ok()?;
    let len = 24 - rest.len();
    let file = openat(proc, &path[..len], OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let inode = fstat(&file).ok()?.st_ino;
    Some((file, inode))
}
