//! The node daemon: finds containers, hands them to enforcement, samples them every second, streams what it saw, and
//! answers on a socket.
//!
//! Owned here: whatever talks to others: sources of containers, systemd's bus, the stream, what is served; the sampler; files of
//! configuration; the life of all threads. Not owned: the desired state, decisions and every write (`evenkeel-enforce`),
//! durable logs (`evenkeel-log`), the wire (`evenkeel-proto`).
//!
//! ```text
//! sources (async) -> SourceUpdate -> evenkeel-enforce: converge thread and its neighbours
//!                                        | TrackChange
//!                                        v
//!                    sample thread -> Tick -> report thread -> spool -> stream client (async)
//!                                                    | LiveTick
//!                                                    v
//!                                                serve (async): gRPC, /metrics
//! ```

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod allocator;
mod changes;
mod cli;
mod config;
mod decisions;
mod evict;
mod machine;
mod once;
mod outward;
mod overlay;
mod panics;
mod parts;
mod pods;
mod program;
mod report;
mod restore;
mod run;
mod sample;
mod serve;
mod shared;
mod sources;
mod systemd;
mod tasks;
mod trust;

pub use program::main;
