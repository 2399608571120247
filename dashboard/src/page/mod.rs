//! The pages, one file each: facts in, the markup between head and foot out.

pub mod capacity;
pub mod changes;
pub mod decisions;
pub mod nodes;
pub mod overview;
pub mod policies;
pub mod problem;
pub mod report;
pub mod sign_in;
pub mod workload;
pub mod workloads;
