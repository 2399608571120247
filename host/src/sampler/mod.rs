//! The hot path: one [`Sample`](evenkeel_model::sample::Sample) per container and tick.
//!
//! Owns descriptors kept open, one read buffer shared by all containers, and the plan which file is read when.
//! Does not own the clock, the list of containers or the tick, and never writes.
//!
//! # Which file is read when
//!
//! CPU time is read on every tick, and memory charged with it when it moved: without CPU time a container can only be charged
//! less, because the kernel reclaimed, which is seen at half of [`Plan::refresh_every`] ticks. The others are read when
//! what they depend on moved since they were last read, and in any case on every [`Plan::refresh_every`]-th tick,
//! at a different tick for each container. In between their last values are carried over. So an idle container
//! costs little more than one read. A carried counter is late by at most `refresh_every` ticks and loses nothing, because counters
//! are cumulative; block I/O and network are read on every third of those ticks alone ([`TrafficReader`]); a container that is stalled without using CPU or memory shows its stall time that late.

mod descriptors;
mod open;
mod reader;
mod sources;
mod traffic;

pub use descriptors::{Descriptors, Nofile, descriptors_needed, raise_nofile};
pub use open::Opened;
pub use reader::{ContainerReader, Flaws, Keeping, SampleContext};
pub use sources::Plan;
pub use traffic::TrafficReader;
