//! [`ContainerReader`]: one container's files kept open and turned into a sample each tick.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::sample::{Field, Sample};
use nix::errno::Errno;
use nix::sys::uio::pread;

use super::descriptors::{DescriptorLease, Descriptors};
use super::sources::{Plan, SampledFile, When, sources_of};
use super::traffic::HostNetwork;
use crate::cgroup::CgroupTree;
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::roots::Roots;
use crate::write::CgroupRef;

/// The longest file read on most ticks is `memory.stat`: about 1.5 KiB on v1, 2.5 KiB on v2. `io.stat` has 80 bytes a device.
const BUFFER: usize = 16 * 1024;

/// What all readers share: the buffer, the plan, and the tree to open from.
#[derive(Debug)]
pub struct SampleContext {
    pub(super) tree: Arc<CgroupTree>,
    pub(super) buffer: Box<[u8; BUFFER]>,
    pub(super) descriptors: Descriptors,
    pub(super) plan: Plan,
    pub(super) host_network: Option<HostNetwork>,
    pub(super) sources: Vec<(SampledFile, Hierarchy)>,
}

impl SampleContext {
    /// A context for readers of one tree.
    pub fn new(tree: Arc<CgroupTree>, descriptors: Descriptors, plan: Plan) -> Self {
        let sources = sources_of(tree.layout());
        Self { tree, buffer: Box::new([0; BUFFER]), descriptors, plan, host_network: None, sources }
    }

    /// The same, which reads the networks of pods through this procfs; without it none are told.
    #[must_use]
    pub fn with_networks(self, roots: &Roots) -> Self {
        Self { host_network: HostNetwork::of(roots), ..self }
    }

    /// Descriptors that may still be kept.
    pub const fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }
}

/// Whether a reader keeps its descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Yes: one pread per file.
    Kept,
    /// No, there were not enough: each file is opened and closed every time it is read.
    Reopening,
}

/// What went wrong with single fields in one tick; a bit per column of [`Field`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flaws {
    /// Text that was not understood.
    pub malformed: u16,
    /// Files that could not be read this time.
    pub unreadable: u16,
}

impl Flaws {
    /// True when there were none.
    pub const fn is_empty(self) -> bool {
        self.malformed == 0 && self.unreadable == 0
    }
}

#[derive(Debug)]
pub(super) struct OpenSource {
    pub(super) source: SampledFile,
    pub(super) place: usize,
    pub(super) handle: Handle,
}

#[derive(Debug)]
pub(super) enum Handle {
    Kept(OwnedFd),
    Reopen,
    /// The kernel said that it will never answer; not asked again.
    Off,
}

/// Reads one container. Allocates nothing after opening, unless it fails or is [`Keeping::Reopening`].
#[derive(Debug)]
pub struct ContainerReader {
    places: Vec<CgroupRef>,
    pub(super) slots: Vec<OpenSource>,
    pub(super) kept: Option<DescriptorLease>,
    phase: u64,
    last: Sample,
    last_at: Option<Duration>,
    inactive_file: Option<u64>,
    /// CPU time and charge at which the dependent files were last read.
    seen: Moved,
}

#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    cpu: Option<u64>,
    memory: Option<u64>,
}

impl ContainerReader {
    /// A reader without files.
    pub(super) fn empty(places: Vec<CgroupRef>, kept: Option<DescriptorLease>) -> Self {
        let phase = places.first().map_or(0, |p| p.inode);
        Self {
            places,
            slots: Vec::new(),
            kept,
            phase,
            last: Sample::default(),
            last_at: None,
            inactive_file: None,
            seen: Moved::default(),
        }
    }

    /// Its cgroup in each hierarchy.
    pub fn places(&self) -> &[CgroupRef] {
        &self.places
    }

    /// The files it reads: cgroup and file name.
    pub fn files(&self) -> impl Iterator<Item = (&CgroupRef, &'static str)> {
        self.slots.iter().map(|s| (&self.places[s.place], s.source.file()))
    }

    /// Whether descriptors are kept between ticks.
    pub const fn keeping(&self) -> Keeping {
        if self.kept.is_some() { Keeping::Kept } else { Keeping::Reopening }
    }

    /// The last sample taken; nothing is known in it before the first.
    pub const fn last(&self) -> &Sample {
        &self.last
    }

    /// Reads what the plan says for this tick.
    ///
    /// `now` is a monotonic clock of the caller's choice; the sample's interval is the time since the reader's
    /// previous sample by that clock. `tick` counts ticks and picks the ones on which everything is read.
    ///
    /// # Errors
    /// `Gone` when the cgroup was removed: drop the reader. Any other failure leaves its field absent and is
    /// shown in [`Flaws`].
    pub fn sample(
        &mut self,
        context: &mut SampleContext,
        now: Duration,
        tick: u64,
    ) -> Result<(Sample, Flaws), HostError> {
        let interval = self.last_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let mut sample = carry(&self.last, interval);
        let mut flaws = Flaws::default();
        let refresh = self.last_at.is_none() || context.plan.is_refresh(tick, self.phase);
        let idle_memory = context.plan.is_idle_memory(tick, self.phase);
        let (mut cpu, mut memory) = (refresh, refresh);
        for i in 0..self.slots.len() {
            // The files of each tick come first, so that the others know whether something moved.
            let due = match self.slots[i].source.when() {
                When::EachTickCpu => true,
                When::EachTickMemory => cpu || self.seen.cpu.is_none() || idle_memory,
                When::CpuMoved => cpu,
                When::MemoryMoved => memory,
                When::EitherMoved => cpu || memory,
            };
            if !due {
                continue;
            }
            self.read_slot(i, context, &mut sample, &mut flaws)?;
            match self.slots[i].source.when() {
                When::EachTickCpu => cpu |= moved(&mut self.seen.cpu, sample.get(Field::CpuUsageUsec)),
                When::EachTickMemory => {
                    memory |= moved(&mut self.seen.memory, sample.get(Field::MemoryCurrentBytes));
                }
                _ => {}
            }
        }
        set_working_set(&mut sample, self.inactive_file);
        self.last = sample;
        self.last_at = Some(now);
        Ok((sample, flaws))
    }

    fn read_slot(
        &mut self,
        index: usize,
        context: &mut SampleContext,
        sample: &mut Sample,
        flaws: &mut Flaws,
    ) -> Result<(), HostError> {
        let slot = &self.slots[index];
        let place = &self.places[slot.place];
        let read = match &slot.handle {
            Handle::Kept(fd) => read_at_start(fd, context.buffer.as_mut_slice()),
            Handle::Off => return Ok(()),
            Handle::Reopen => {
                reopen_and_read(&context.tree, place, slot.source.file(), context.buffer.as_mut_slice())
            }
        };
        let bits = bits(slot.source.fields());
        match read {
            Ok(len) => {
                flaws.malformed |= slot.source.fill(&context.buffer[..len], sample, &mut self.inactive_file);
                Ok(())
            }
            Err(errno) => {
                flaws.unreadable |= bits;
                self.lose(index, errno, sample)
            }
        }
    }

    /// A file could not be read: its fields are not known in this tick.
    fn lose(&mut self, index: usize, errno: Errno, sample: &mut Sample) -> Result<(), HostError> {
        let category = Category::of(HostOperation::Read, errno as i32, false);
        let vital = self.is_vital(index);
        let slot = &mut self.slots[index];
        if category == Category::Gone && vital {
            let subject = format!("{}/{}", self.places[slot.place], slot.source.file());
            return Err(HostError::from_errno(HostOperation::Read, subject, errno, false));
        }
        // A container may be in the v2 tree beside its v1 controllers for pressure only; losing that one is not
        // losing the container.
        if matches!(category, Category::Gone | Category::Unsupported) {
            slot.handle = Handle::Off;
        }
        for field in slot.source.fields() {
            sample.clear(*field);
        }
        if matches!(slot.source, SampledFile::MemoryStatV1 | SampledFile::MemoryStatV2) {
            self.inactive_file = None;
        }
        Ok(())
    }

    /// Whether the end of this file's cgroup is the end of the container: those of each tick, or, where the
    /// machine has none of these, any.
    fn is_vital(&self, index: usize) -> bool {
        let each_tick = |s: &OpenSource| matches!(s.source.when(), When::EachTickCpu | When::EachTickMemory);
        each_tick(&self.slots[index]) || !self.slots.iter().any(each_tick)
    }
}

pub(super) fn bits(fields: &[Field]) -> u16 {
    fields.iter().fold(0, |all, f| all | 1 << f.index())
}

fn carry(last: &Sample, interval: Duration) -> Sample {
    let mut sample = Sample::new(interval);
    for field in Field::ALL {
        if let Some(value) = last.get(field) {
            sample.set(field, value);
        }
    }
    sample
}

fn moved(seen: &mut Option<u64>, now: Option<u64>) -> bool {
    let moved = *seen != now;
    *seen = now;
    moved
}

fn set_working_set(sample: &mut Sample, inactive_file: Option<u64>) {
    match (sample.get(Field::MemoryCurrentBytes), inactive_file) {
        (Some(charged), Some(inactive)) => {
            sample.set(Field::MemoryWorkingSetBytes, charged.saturating_sub(inactive));
        }
        _ => sample.clear(Field::MemoryWorkingSetBytes),
    }
}

fn read_at_start(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match pread(fd, buffer, 0) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// The path may lead to another cgroup by now, so its identity is checked again.
fn reopen_and_read(
    tree: &CgroupTree,
    place: &CgroupRef,
    file: &str,
    buffer: &mut [u8],
) -> Result<usize, Errno> {
    let of = |e: HostError| e.errno().map_or(Errno::ENODEV, Errno::from_raw);
    let dir = tree.dir_of(place).map_err(of)?;
    let fd = dir.open_file(file)?;
    read_at_start(&fd, buffer)
}
