//! Sections that have a file of their own: the table as written, the valid value, and the check between them.

pub(crate) mod admission;
pub(crate) mod cpu;
pub(crate) mod daemons;
pub(crate) mod eviction;
pub(crate) mod knobs;
pub(crate) mod memory;
pub(crate) mod node;
pub(crate) mod node_memory;
pub(crate) mod oom;
pub(crate) mod overlay;
pub(crate) mod own;
pub(crate) mod parts;
pub(crate) mod pressure;
pub(crate) mod ring;
pub(crate) mod starvation;
pub(crate) mod systemd;
pub(crate) mod trust;
