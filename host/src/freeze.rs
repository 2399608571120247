//! Freezing a cgroup for a bounded time around a piece of work.
//!
//! A frozen cgroup has no fork in flight, so a listing of it is complete. Owns the order freeze, wait, work,
//! thaw, and that thawing happens whatever the work does. Works through the two traits, so that the same road is
//! tested with a fake. What is written is an ordinary [`Write`]: the writer refuses to freeze ourselves, and a
//! caller that journals transient writes does so before calling.

use std::time::{Duration, Instant};

use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::knob::Setting;
use crate::snapshot::HostReader;
use crate::write::{CgroupRef, HostWriter, Outcome, Refusal, Write};

/// Between two looks at the state: freezing took 7 to 24 ms on an idle machine, so this adds little to it and
/// costs nothing to speak of.
const POLL: Duration = Duration::from_micros(500);

/// Why the work was not done in a frozen cgroup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FreezeError {
    /// The writer refused.
    #[error("cannot freeze {cgroup}: {why}")]
    Refused {
        /// What was to be frozen.
        cgroup: CgroupRef,
        /// Why not.
        why: Refusal,
    },
    /// Not all processes were frozen in time; it was thawed again without the work done.
    #[error("cannot freeze {cgroup}: not frozen after {waited:?}")]
    TooSlow {
        /// What was to be frozen.
        cgroup: CgroupRef,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Dry run.
    #[error("not freezing {cgroup}: dry run")]
    DryRun {
        /// What would have been frozen.
        cgroup: CgroupRef,
    },
    /// It is frozen already by somebody else, whose business it is to thaw it.
    #[error("not freezing {cgroup}: it is frozen already")]
    AlreadyFrozen {
        /// What was to be frozen.
        cgroup: CgroupRef,
    },
    /// The kernel did not do it.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The write that freezes (or thaws) a cgroup, by the version of its hierarchy.
pub fn freeze_write(cgroup: &CgroupRef, frozen: bool) -> Write {
    let setting = match cgroup.hierarchy {
        Hierarchy::V2 => Setting::CgroupFreeze(frozen),
        Hierarchy::V1(_) => Setting::FreezerState(frozen),
    };
    Write::cgroup(cgroup.clone(), setting)
}

/// Freezes `cgroup` (a place in the freezer's hierarchy), waits at most `patience` until every process stands
/// still, does `work`, and thaws in any case. `work` should itself be short.
///
/// # Errors
/// [`FreezeError`]; `work` was then not called. A failure to thaw after the work is the outcome in the second
/// part of the answer; it is `Written` when all went well.
pub fn with_frozen<R>(
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    cgroup: &CgroupRef,
    patience: Duration,
    work: impl FnOnce(&mut dyn HostWriter) -> R,
) -> Result<(R, Outcome), FreezeError> {
    let mut frozen = match writer.apply(&freeze_write(cgroup, true)) {
        Outcome::Written { .. } => Frozen { writer, cgroup, thawed: None },
        Outcome::Unchanged { .. } => return Err(FreezeError::AlreadyFrozen { cgroup: cgroup.clone() }),
        Outcome::WouldWrite { .. } => return Err(FreezeError::DryRun { cgroup: cgroup.clone() }),
        Outcome::Refused(why) => return Err(FreezeError::Refused { cgroup: cgroup.clone(), why }),
        Outcome::Failed { error, .. } => {
            // It may have been written and only the reading back failed.
            drop(Frozen { writer, cgroup, thawed: None });
            return Err(error.into());
        }
    };
    wait_until_frozen(reader, cgroup, patience)?;
    let result = work(frozen.writer);
    let thawed = frozen.thaw();
    Ok((result, thawed))
}

fn wait_until_frozen(
    reader: &dyn HostReader,
    cgroup: &CgroupRef,
    patience: Duration,
) -> Result<(), FreezeError> {
    let begun = Instant::now();
    while !reader.is_frozen(cgroup)? {
        let waited = begun.elapsed();
        if waited >= patience {
            return Err(FreezeError::TooSlow { cgroup: cgroup.clone(), waited });
        }
        std::thread::sleep(POLL.min(patience.saturating_sub(waited)));
    }
    Ok(())
}

/// Thaws when dropped, so also when the work panics.
struct Frozen<'a> {
    writer: &'a mut dyn HostWriter,
    cgroup: &'a CgroupRef,
    thawed: Option<Outcome>,
}

impl Frozen<'_> {
    fn thaw(&mut self) -> Outcome {
        let outcome = self.writer.apply(&freeze_write(self.cgroup, false));
        self.thawed = Some(outcome.clone());
        outcome
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        // A second try after a failed one, unless there is nothing left to thaw.
        if !self.thawed.as_ref().is_some_and(Outcome::is_done) {
            self.thaw();
        }
    }
}

impl FreezeError {
    /// What the caller should do about it, in the words of the error table.
    pub fn category(&self) -> Category {
        match self {
            Self::Refused { .. }
            | Self::TooSlow { .. }
            | Self::AlreadyFrozen { .. }
            | Self::DryRun { .. } => Category::Rejected,
            Self::Host(e) => e.category(),
        }
    }

    /// As a plain host error, for callers that know only those.
    pub fn into_host_error(self) -> HostError {
        match self {
            Self::Host(e) => e,
            other => HostError::of_text(other.category(), HostOperation::Write, "freezer", other.to_string()),
        }
    }
}
