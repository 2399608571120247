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

mod admission;
mod allocator;
mod changes;
mod cli;
mod config;
mod converge;
mod damage;
mod decisions;
mod evict;
mod guardian;
mod holds;
mod journal;
mod kernel;
mod machine;
mod node;
mod once;
mod oom;
mod overlay;
mod panics;
mod pressure;
mod program;
mod reconcile;
mod report;
mod restore;
mod run;
mod sample;
mod serve;
mod shared;
mod sources;
mod systemd;
#[cfg(test)]
mod testing;
mod transients;
mod trust;

pub use program::main;
