//! Owns the way of the seconds: from a frame through judgement, log and state to the acknowledgement.
//!
//! | file | part |
//! | --- | --- |
//! | `stream_state.rs` | what to do with the next frame; pure |
//! | `contest.rs` | when two agents of one name are an alarm |
//! | `record.rs` | what is written to the log |
//! | `store.rs` | log, state and checkpoint as one; no thread, no network |
//! | `heads.rs` | where streams stand in the log |
//! | `backlog.rs` | what is logged and not counted yet |
//! | `placing.rs` | when the API of a cluster is asked which pods are where |
//! | `outcome.rs` | what the store tells of its work |
//! | `shared.rs` | the state's locks |
//! | `engine/` | the threads: one judges and appends, one counts, one syncs, one writes checkpoints |
//! | `save.rs` | checkpoints and the history's files: written in order, read back |
//! | `room.rs` | room kept on the disk for one checkpoint |
//! | `outside.rs` | engines outside that keep the history too |
//! | `health.rs` | what can be said about them from outside |
//! | `report.rs` | what the log says of a store that was opened |

mod backlog;
mod contest;
pub mod engine;
mod heads;
pub mod health;
#[cfg(test)]
mod kills_tests;
pub mod outcome;
pub mod outside;
pub mod placing;
#[cfg(test)]
mod placing_tests;
pub mod record;
pub mod report;
#[cfg(test)]
mod retention_tests;
mod room;
pub(crate) mod save;
mod shared;
pub mod store;
pub mod stream_state;

pub use store::{Mark, SharedState};
