//! Fair excess CPU: every active container gets its request plus an equal part of what nobody requested.
//!
//! The proposal's "CPU-sharing issues": A requests half of a CPU, B nothing, both busy: 75 % and 25 % instead of
//! 100 % and 0 %. Owned here: targets, the weights and shares they become, and who counts as active. Not owned:
//! measuring use, writing weights.
//!
//! Weights compare siblings under one parent and nothing else. A [`Fair`] is therefore told of every member's
//! parent: laid out flat, members of one parent compete among themselves, and across parents the parents' own
//! weights decide; laid out in two levels, the parents (pods) are given weights too, which only has a meaning
//! where all of them are siblings in a subtree the agent owns. A sibling that is not a member keeps its own
//! weight and competes by it: the scale is that of `cpu.weight` 100 (`cpu.shares` 1024) for one whole CPU, and
//! is only enlarged as far as rounding demands.

mod active;
mod control;
mod scale;
mod target;

pub use active::{ActiveSet, Hysteresis};
pub use control::{Allotment, Fair, FairShares, Layout, Member, MemberGroup};
pub use scale::{SHARES_SCALE, Scale, WEIGHT_SCALE};
pub use target::{Competitor, Level, MicroCpu};
