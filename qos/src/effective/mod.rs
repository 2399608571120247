//! What a knob really does where it is: protection as far as every ancestor grants it, weights where a sibling
//! competes.
//!
//! Owned here: the kernel's arithmetic of `memory.min` and `memory.low` along a path (`mem_cgroup_calculate_
//! protection`; cgroup-v2.rst, "Memory Interface Files"), where a weight competes, and the sentence that says
//! what to do about it. Not owned: reading the path.

mod protection;
mod weight;
mod why;

pub use protection::{Path, PathCgroup, Protected, ProtectionEffect, ProtectionKnob, Short, effective};
pub use weight::{Competition, WeightLevel, WeightVerdict, competition};
pub use why::{Levels, LostEffect, ProtectionPath, WeightPath};
