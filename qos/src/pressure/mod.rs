//! What is done about memory that runs short: graded, reversible steps on those who asked for least.
//!
//! Owned here: how bad it is (`grade`), who has only itself to blame (`thrash`), what is done to one container (`step`), when it is undone (`release`),
//! and the state machine that orders all of this in time (`machine`). Everything is a function of its input and of
//! the machine's own bounded state; the clock is part of the input. Not owned: reading the kernel, writing it.
//!
//! Words: *some* and *full* are the two kinds of stalled time of Documentation/accounting/psi.rst; a *rung* is a
//! step of the ladder reclaim, `memory.high`, freeze, kill; to *hold* is to have set something for a while.

mod grade;
mod machine;
mod release;
mod step;
#[cfg(test)]
mod tests;
mod thrash;
mod trend;
mod why;

pub use grade::{Band, Bands, Grade, Grader, Pair, PressureCause, Signals};
pub use machine::{
    ContainerMemory, Machine, NodePressure, Observation, OwnLimits, PressureAction, PressureChange,
    PressureConfig, PressureResult, Switches,
};
pub use release::{Giving, Letting, Restriction, let_go};
pub use step::{PressureCase, PressureStep, Rung, decide};
pub use thrash::{LimitFacts, Thrash, ThrashRules, ThrashWatch, Thrashing, Waited};
pub use why::{PressureReadings, Released, Restricted};

/// Older facts never justify a new restriction, microseconds: a container may have given everything back since.
pub const OLDEST_FACTS_USEC: u64 = 3_000_000;
