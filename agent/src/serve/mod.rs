//! What the agent serves: `AgentService` on a Unix socket (and TCP where configured), `/metrics`, pages about its node where configured.
//!
//! Owned here: sockets, the service, the conversion of views to the wire. Not owned: any state; everything is read
//! from the board, the decision log, the counters and the live bus.

mod door;
mod grpc;
pub(crate) mod metrics;
pub(crate) mod pages;
mod pressure;
mod watch;
mod wire;

pub(crate) use grpc::{Agent, serve_tcp, serve_unix};
