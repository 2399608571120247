//! One cgroup directory in one hierarchy, held open.
//!
//! Owns safe opening (never out of the tree, never through a link), identity, listing, reading and writing of
//! single files. Does not know what a container is, and is not the sampler's hot path.

mod dir;
mod files;
mod procs;
mod recent;
mod tree;

pub(crate) use dir::normal;
pub use dir::{CgroupDir, is_delegated};
pub use files::{CpuStat, MemoryEvents, MemoryStat};
pub use procs::Procs;
pub(crate) use recent::Recent;
pub use tree::CgroupTree;
