//! The real [`HostActor`]: `memory.reclaim`, `cgroup.kill`, and the way round where there is no `cgroup.kill`.
//!
//! Owns the order look, freeze, look again, kill, thaw. The refusals are the [`KernelWriter`]'s.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use evenkeel_model::units::Bytes;
use nix::errno::Errno;

use crate::action::{HostActor, refused};
use crate::cgroup::CgroupDir;
use crate::dry_run::DryRunWriter;
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::{Controller, Hierarchy};
use crate::kernel_writer::{KernelWriter, WriteStop};
use crate::knob::Setting;
use crate::node::meminfo;
use crate::parse;
use crate::pidfd::PidFd;
use crate::write::CgroupRef;

/// How long a freeze before a kill may take; killing goes on without it, by looking again.
const PATIENCE: Duration = Duration::from_millis(200);
const POLL: Duration = Duration::from_millis(1);

/// Listings at most, when processes fork while they are killed: each round ends all that were listed.
const ROUNDS: usize = 50;

/// Processes whose memory is taken back at once; the rest give theirs up as they die.
const RELEASED_AT_ONCE: usize = 512;

impl KernelWriter {
    fn reclaim_really(
        &self,
        at: &CgroupRef,
        amount: Bytes,
        file_only: bool,
        real: bool,
    ) -> Result<Bytes, HostError> {
        let dir = self
            .place(at)
            .and_then(|dir| self.refuse_victims(at, &[]).map(|()| dir))
            .map_err(|s| stopped(HostOperation::Reclaim, at, s))?;
        if at.hierarchy != Hierarchy::V2 {
            return Err(unsupported(at, "memory.reclaim is of cgroup v2")
                .with_remedy("use cgroup v2, or lower memory.limit_in_bytes for a while"));
        }
        if !real || amount == Bytes::ZERO {
            return Ok(Bytes::ZERO);
        }
        let before = taken_so_far(&dir);
        match self.ask_to_reclaim(&dir, at, amount, file_only) {
            // Partial: the kernel could not take that much.
            Err(e) if e.category() != Category::Partial => Err(e),
            _ => Ok(before.really_taken(&dir)),
        }
    }

    fn ask_to_reclaim(
        &self,
        dir: &CgroupDir,
        at: &CgroupRef,
        amount: Bytes,
        file_only: bool,
    ) -> Result<(), HostError> {
        let plain = amount.get().to_string();
        if !file_only {
            return dir.write("memory.reclaim", &plain);
        }
        match dir.write("memory.reclaim", &format!("{plain} swappiness=0")) {
            Err(e) if e.errno() == Some(Errno::EINVAL as i32) => {}
            other => return other,
        }
        // Without swap only pages of files can be taken anyway.
        if meminfo(self.roots())?.swap_total.is_some_and(|swap| swap > Bytes::ZERO) {
            return Err(unsupported(
                at,
                "this kernel cannot leave anonymous memory alone while there is swap",
            )
            .with_remedy("use Linux 6.9 or newer, or turn swap off"));
        }
        dir.write("memory.reclaim", &plain)
    }

    fn kill_really(&self, at: &CgroupRef, real: bool) -> Result<u32, HostError> {
        let dir = self.place(at).map_err(|s| stopped(HostOperation::Kill, at, s))?;
        let pids = self.victims(at, &dir)?;
        if !real || pids.is_empty() {
            return Ok(count(pids.len()));
        }
        if at.hierarchy == Hierarchy::V2 {
            // Held before the kill, so that no number is reused meanwhile.
            let held: Vec<PidFd> =
                pids.iter().take(RELEASED_AT_ONCE).filter_map(|p| PidFd::open(*p).ok()).collect();
            match dir.write("cgroup.kill", "1") {
                Ok(()) => {
                    held.iter().for_each(PidFd::release_memory);
                    return Ok(count(pids.len()));
                }
                // A kernel before 5.14, or a threaded cgroup.
                Err(e) if e.category() == Category::Unsupported => {}
                Err(e) => return Err(e),
            }
        }
        self.kill_one_by_one(at, &dir)
    }

    /// Processes at and below the cgroup, none of which may be spared.
    fn victims(&self, at: &CgroupRef, dir: &CgroupDir) -> Result<Vec<u32>, HostError> {
        let found = dir.subtree_procs()?;
        if found.truncated {
            let why = "cgroups are nested deeper than 64 levels below it";
            return Err(HostError::of_text(Category::Io, HostOperation::Kill, at.to_string(), why));
        }
        self.refuse_victims(at, &found.pids).map_err(|s| stopped(HostOperation::Kill, at, s))?;
        Ok(found.pids)
    }

    fn kill_one_by_one(&self, at: &CgroupRef, dir: &CgroupDir) -> Result<u32, HostError> {
        let mut ended: BTreeSet<u32> = BTreeSet::new();
        let mut failed = None;
        for _ in 0..ROUNDS {
            // Nothing forks while it stands still; a signal waits until it is thawed (v1).
            let freeze = Freeze::of(self.freezer_place(at));
            let held: Vec<PidFd> = self.victims(at, dir)?.into_iter().filter_map(held_or_gone).collect();
            // Whoever is in the list again is the process that is held: its number cannot be another's.
            let still: BTreeSet<u32> = self.victims(at, dir)?.into_iter().collect();
            let mut fresh = 0;
            failed = None;
            for process in held.iter().filter(|p| still.contains(&p.pid())) {
                match process.kill() {
                    Ok(()) => fresh += usize::from(ended.insert(process.pid())),
                    Err(Errno::ESRCH) => {}
                    Err(e) => failed = Some((process.pid(), e)),
                }
            }
            drop(freeze);
            held.iter().take(RELEASED_AT_ONCE).for_each(PidFd::release_memory);
            // Those that were signalled are dying; when no new ones appear there is nobody left to fork.
            if fresh == 0 || dir.subtree_procs().is_ok_and(|p| p.pids.is_empty()) {
                break;
            }
        }
        match failed {
            None => Ok(count(ended.len())),
            Some((pid, e)) => {
                let subject = format!("pid {pid} of {at}");
                Err(HostError::from_errno(HostOperation::Kill, subject, e, true)
                    .with_remedy("grant CAP_KILL to end other users' processes"))
            }
        }
    }

    /// The same cgroup where it can be frozen.
    fn freezer_place(&self, at: &CgroupRef) -> Option<CgroupDir> {
        let home = match at.hierarchy {
            Hierarchy::V2 => Hierarchy::V2,
            Hierarchy::V1(_) => self.tree().layout().home(Controller::Freezer)?,
        };
        self.tree().dir(home, &at.path).ok().filter(|d| d.path() != "/")
    }
}

/// Frozen as long as it lives. What somebody else froze is thawed too: the dead must be able to go.
struct Freeze {
    dir: Option<CgroupDir>,
}

impl Freeze {
    fn of(dir: Option<CgroupDir>) -> Self {
        let freeze = Self { dir };
        if let Some(dir) = &freeze.dir
            && dir.set(&freeze_setting(dir, true)).is_ok()
        {
            let begun = Instant::now();
            while begun.elapsed() < PATIENCE && !matches!(dir.is_frozen(), Ok(true) | Err(_)) {
                std::thread::sleep(POLL);
            }
        }
        freeze
    }
}

impl Drop for Freeze {
    fn drop(&mut self) {
        if let Some(dir) = &self.dir {
            // A second try because a v1 freezer may still be on its way; a failure shows as processes left.
            let _first =
                dir.set(&freeze_setting(dir, false)).or_else(|_| dir.set(&freeze_setting(dir, false)));
        }
    }
}

const fn freeze_setting(dir: &CgroupDir, frozen: bool) -> Setting {
    match dir.at().hierarchy {
        Hierarchy::V2 => Setting::CgroupFreeze(frozen),
        Hierarchy::V1(_) => Setting::FreezerState(frozen),
    }
}

/// A process without a handle has ended, or the kernel has no pidfds: then there is nothing safe to do by number.
fn held_or_gone(pid: u32) -> Option<PidFd> {
    PidFd::open(pid).ok()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn unsupported(at: &CgroupRef, why: &str) -> HostError {
    HostError::of_text(Category::Unsupported, HostOperation::Reclaim, at.to_string(), why)
}

fn stopped(action: HostOperation, at: &CgroupRef, stop: WriteStop) -> HostError {
    match stop {
        WriteStop::Refused(why) => refused(action, at, &why),
        WriteStop::Failed(error) => error,
    }
}

/// What was charged and what had been reclaimed, to compare with later.
struct Before {
    current: Option<Bytes>,
    stolen: Option<u64>,
}

fn taken_so_far(dir: &CgroupDir) -> Before {
    Before { current: dir.memory_current().ok(), stolen: stolen_pages(dir) }
}

/// Pages reclaimed of the cgroup so far (`pgsteal` of `memory.stat`, cgroup-v2.rst).
fn stolen_pages(dir: &CgroupDir) -> Option<u64> {
    let [stolen] = parse::pick(&dir.read("memory.stat").ok()?, [b"pgsteal"]);
    stolen.value()
}

impl Before {
    /// The larger of what the kernel says it reclaimed and what is charged less: the first leaves out slab, the
    /// second is blurred by what is allocated meanwhile.
    fn really_taken(&self, dir: &CgroupDir) -> Bytes {
        let less = self.current.zip(dir.memory_current().ok()).map(|(a, b)| a.get().saturating_sub(b.get()));
        let pages = self.stolen.zip(stolen_pages(dir)).map(|(a, b)| b.saturating_sub(a));
        let stolen = pages.map(|p| p.saturating_mul(crate::node::page_size().get()));
        Bytes::new(less.unwrap_or(0).max(stolen.unwrap_or(0)))
    }
}

impl HostActor for KernelWriter {
    fn reclaim(&mut self, cgroup: &CgroupRef, amount: Bytes, file_only: bool) -> Result<Bytes, HostError> {
        self.reclaim_really(cgroup, amount, file_only, true)
    }

    fn kill_cgroup(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError> {
        self.kill_really(cgroup, true)
    }

    fn is_rehearsal(&self) -> bool {
        false
    }
}

impl HostActor for DryRunWriter {
    fn reclaim(&mut self, cgroup: &CgroupRef, amount: Bytes, file_only: bool) -> Result<Bytes, HostError> {
        self.kernel().reclaim_really(cgroup, amount, file_only, false)
    }

    fn kill_cgroup(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError> {
        self.kernel().kill_really(cgroup, false)
    }

    fn is_rehearsal(&self) -> bool {
        true
    }
}
