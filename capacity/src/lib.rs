//! How many more pods fit: cluster snapshot and pod in; count, places and reasons out. Pure.
//!
//! [`object`] are Kubernetes objects as written, [`cluster`] the same as numbers, [`state`] what is where while pods are
//! placed, [`plugin`] the scheduler's rules, [`profile`] which of them are on, [`engine`] the two ways to an answer,
//! [`question`] what is asked and answered in the forms that programs use.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod admission;
pub mod answer;
pub mod cluster;
pub mod config;
pub mod engine;
pub mod extender;
pub mod load;
pub mod object;
pub mod plugin;
pub mod profile;
pub mod question;
pub mod scenario;
pub mod state;
