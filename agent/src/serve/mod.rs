//! What the agent serves: `AgentService` on a Unix socket (and TCP where configured), `/metrics`, pages about its node where configured.
//!
//! Owned here: sockets, the service, the conversion of views to the wire. Not owned: any state; everything is read
//! from the board, the decision log, the counters and the live bus.

pub(crate) mod answers;
pub(crate) mod door;
mod grpc;
mod local;
pub(crate) mod metrics;
pub(crate) mod pages;
mod pressure;
mod watch;
mod wire;

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_net::tls::Tls;

pub(crate) use answers::Answers;
pub(crate) use door::Door;
pub(crate) use grpc::{Agent, serve_tcp, serve_unix};
pub(crate) use local::Local;

/// An address, who may ask there, and what it is served with.
#[derive(Clone)]
pub(crate) struct Listening {
    /// Where.
    pub address: SocketAddr,
    /// Who may ask.
    pub door: Door,
    /// In the clear without.
    pub tls: Option<Arc<Tls>>,
}
