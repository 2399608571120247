//! What the kernel can wake us for: cgroups that come, go, change and run out of memory, and processes that fork,
//! exec and exit.
//!
//! Owns file descriptors that a caller may poll, and the parsing of what they say. Each source says when it lost
//! something, and then the answer is a rescan. Does not own the loop that waits.

mod cgroup_watch;
mod oom_watch;
mod proc_connector;
mod proc_filter;
mod proc_message;
mod v1_eventfd;
mod v1_pressure;

pub use cgroup_watch::{CgroupEvent, CgroupWatch};
pub use oom_watch::{OomEvent, OomWatch};
pub use proc_connector::ProcConnector;
pub use proc_message::ProcessEvent;
pub use v1_pressure::{PressureLevel, V1Pressure};
