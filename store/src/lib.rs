//! The store: frames in, state and history out. Everything the recommender keeps of what agents measure.
//!
//! Owned here: the names things are kept by ([`key`]), ingest and what makes it durable ([`ingest`]), the state ([`state`]) and its
//! past as rules see it ([`history`], behind `evenkeel_rightsizing::history::History`), checkpoints ([`checkpoint`]), checks and copies of all that
//! ([`backup`]), engines
//! outside that keep the history as well ([`engines`]), the wall clock ([`clock`]), the pace of work in the background ([`pace`]),
//! and the sections of the configuration that bound all this ([`config`]). Not owned: the network and who is at its other end,
//! what follows from the history (`evenkeel_recommender`), the rules (`evenkeel_rightsizing`), the wire format and its codec
//! (`evenkeel_proto`), the log's files (`evenkeel_log`).

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod backup;
pub mod checkpoint;
pub mod clock;
pub mod config;
pub mod engines;
pub mod history;
pub mod ingest;
pub mod key;
pub mod pace;
pub mod state;
