//! Owns the past of every container: what rules may ask of it, and the seam to stores outside.
//!
//! Seconds are folded into hours and days of their [`Subject`](crate::key::Subject)s in [`Past`]; what is sealed goes to `files.rs`, encoded by
//! `codec.rs`. [`HistoryView`] answers the rules for one container's resource, from what is [`SharedScopes`] where many belong together. [`exchange`] has the values that go to other engines and
//! come back from them. Not owned: how frames become seconds (`state`), what follows from the past (`recommend`).

pub(crate) mod batch;
mod bits;
pub(crate) mod codec;
pub mod exchange;
mod failure;
pub mod files;
pub mod fill;
pub(crate) mod item;
pub mod minute;
pub(crate) mod minute_files;
mod packed;
pub(crate) mod past;
pub(crate) mod peers;
pub(crate) mod replica;
pub(crate) mod sealed;
mod shared;
pub(crate) mod starts;
pub(crate) mod verify;
mod view;

pub use failure::HistoryError;
pub use past::Past;
pub use shared::SharedScopes;
pub use view::{HistoryView, Starts, ViewTarget};
