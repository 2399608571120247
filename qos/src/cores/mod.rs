//! Exclusive cores: Guaranteed containers that request whole cores get cores of their own.
//!
//! The proposal's "CPU limits": quotas stall, cores of one's own do not. Owned here: who asks, which logical CPUs
//! each gets, what is left for all others, and the wishes that follow (`cpuset.cpus`, no quota). Not owned: whether
//! somebody else allocates cores on this node (the kubelet's static CPU manager does), writing.
//!
//! An allocation is stable: who has CPUs keeps them. CPUs of a container are packed into whole physical cores of
//! one NUMA node where that can be had, from the highest numbers down, because interrupts and daemons live on
//! the lowest.

mod allocate;
mod given;
mod list;
mod pick;

pub use allocate::{Allocation, Assignment, CoresRequest, How, allocate};
pub(crate) use given::Cpus;
pub use given::wanted;
pub use list::{CpuList, NotACpuList};
pub use pick::{Cpu, pick, read_topology, topology_text};
