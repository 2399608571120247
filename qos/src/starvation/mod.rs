//! Containers that do not get the CPU they requested, and what is done to those who have more than they asked for.
//!
//! Owned here: who starves ([`starves`]), what is done to one offender ([`squeeze`]), and the state machine that
//! orders both in time ([`Machine`]). Not owned: reading use and pressure, writing anything, the eviction itself.
//!
//! A container starves when it uses less than its request although it waits for CPU. One that its own quota stops
//! does not: it has what it asked for.

mod machine;
mod rule;
#[cfg(test)]
mod tests;
mod why;

pub use machine::{Machine, StarvationAction, StarvationChange, StarvationResult};
pub use rule::{ContainerCpu, Evict, Squeeze, StarvationCase, StarvationConfig, Starving, squeeze, starves};
pub use why::{Squeezed, Starved, Unsqueezed};
