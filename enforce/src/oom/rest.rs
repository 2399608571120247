//! The rest of a container that lost a process to the OOM killer.
//!
//! On v2 the kernel itself takes all of a cgroup whose `memory.oom.group` is 1, which the converger writes; where it is
//! not 1, and on v1, the rest is ended here. Owned here: whether, and what is told of it.

use std::time::{Duration, Instant};

use evenkeel_host::action::HostActor;
use evenkeel_host::cgroup::{CgroupDir, CgroupTree};
use evenkeel_host::error::{Category, HostError};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::CgroupRef;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::workload::{OomKill, Workload};

use crate::decisions::{Draft, result_of_error};

/// What became of the rest.
#[derive(Debug)]
pub(super) struct Rest {
    /// Who wished it: the pod or the configuration.
    by: &'static str,
    done: Result<u32, HostError>,
    rehearsal: bool,
}

/// How long victims may take to leave a cgroup in which nobody else seems to be.
const LEAVING: Duration = Duration::from_millis(50);
const POLL: Duration = Duration::from_millis(2);

/// Ends the rest of a container of which `killed` processes were taken, where that is wished and somebody is left.
/// `default` is `memory.oom_kill`.
pub(super) fn end(
    tree: &CgroupTree,
    actor: &mut dyn HostActor,
    at: &CgroupRef,
    workload: &Workload,
    default: Option<OomKill>,
    killed: u64,
) -> Option<Rest> {
    let by = match (workload.oom_kill, default) {
        (Some(OomKill::Container), _) => "annotation evenkeel.dev/oom-kill",
        (None, Some(OomKill::Container)) => "memory.oom_kill",
        _ => return None,
    };
    let dir = tree.dir_of(at).ok()?;
    // The kernel takes them all; those still there are dying.
    let by_kernel = matches!(dir.setting(Knob::MemoryOomGroup), Ok(Setting::MemoryOomGroup(true)));
    if by_kernel || is_left_by_all(&dir, killed) {
        return None;
    }
    let done = match actor.kill_cgroup(at) {
        // Gone meanwhile.
        Ok(0) => return None,
        Err(error) if error.is_gone() => return None,
        done => done,
    };
    Some(Rest { by, done, rehearsal: actor.is_rehearsal() })
}

/// Whether nobody is in it but, for a moment, the dying victims.
fn is_left_by_all(dir: &CgroupDir, killed: u64) -> bool {
    let begun = Instant::now();
    loop {
        match dir.subtree_procs() {
            Ok(found) if found.pids.is_empty() => return true,
            Ok(found) if found.pids.len() as u64 > killed => return false,
            Err(error) if error.is_gone() => return true,
            _ if begun.elapsed() >= LEAVING => return false,
            _ => std::thread::sleep(POLL),
        }
    }
}

impl Rest {
    /// The decision, of a container whose kill was told under number `because_of`.
    pub(super) fn draft(&self, workload: &Workload, at: &CgroupRef, because_of: u64) -> Draft {
        let (result, reason) = match &self.done {
            Ok(n) if self.rehearsal => (
                DecisionResult::WouldDo,
                format!("the rest of a container that was OOM-killed would be ended: {n} processes"),
            ),
            Ok(n) => (
                DecisionResult::Done,
                format!("the rest of a container that was OOM-killed was ended: {n} processes"),
            ),
            Err(error) => (result_of_error(error), refused(error)),
        };
        let draft = Draft::of(workload, DecisionKind::Kill, reason)
            .input("wished_by", self.by)
            .input("cgroup", &at.path)
            .input("because_of", because_of)
            .result(result);
        match self.done {
            Ok(n) => draft.input("processes", n),
            Err(_) => draft,
        }
    }

    /// The failure, where it was one.
    pub(super) fn failure(&self) -> Option<&HostError> {
        self.done.as_ref().err()
    }
}

fn refused(error: &HostError) -> String {
    let mut text = format!("the rest of a container that was OOM-killed could not be ended: {error}");
    if error.category() == Category::Denied {
        text += "; grant CAP_KILL and set features.v1_kill = true";
    } else if let Some(remedy) = error.remedy() {
        text += &format!("; {remedy}");
    }
    text
}
