//! The node daemon: finds containers, gives them score, CPU and memory by their requests, relieves pressure, samples
//! them every second, streams what it saw, and answers on a socket.
//!
//! Owned here: threads, the desired state, the decision log, everything that touches the node. Not owned: rules
//! (`evenkeel-qos`), kernel files (`evenkeel-host`), durable logs (`evenkeel-log`), the wire (`evenkeel-proto`).
//!
//! ```text
//! sources (async) -> SourceUpdate -> converge thread (reconcile, converge, decisions) -> writes
//!                                        | TrackChange
//!                                        v
//!                    sample thread -> Tick -> report thread -> spool -> stream client (async)
//!                                                    | LiveTick
//!                                                    v
//!                                                serve (async): gRPC, /metrics
//! roster (from converge) -> pressure thread -> worker -> holds; oom thread -> decisions; node thread -> daemons, cap
//! ```

mod allocator;
mod changes;
mod cli;
mod config;
mod decisions;
mod evict;
mod machine;
mod once;
mod overlay;
mod panics;
mod program;
mod report;
mod restore;
mod run;
mod sample;
mod serve;
mod shared;
mod sources;
mod systemd;
mod trust;

pub use program::main;
