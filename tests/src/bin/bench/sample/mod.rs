//! What sampling costs: the reader of cgroup files by itself, and the whole agent.

pub(crate) mod agent;
pub(crate) mod counting;
pub(crate) mod parts;
pub(crate) mod sampler;
