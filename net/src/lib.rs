//! Listeners that no client can use up: how many connections there may be, of one peer too, and how long one may be open
//! without asking anything.
//!
//! Owned here: [`Listener`]s and the Unix [`socket`]'s file, the [`Gate`] that counts connections, who a connection's
//! [`Peer`] is, the connections of one kind ([`incoming`], [`at_address`]) and of both kinds at one socket ([`both`]), [`tls`], finding an
//! authority by its fingerprint ([`pin`]), one bounded question ([`mod@get`]), which addresses need TLS ([`in_the_clear`]), the [`http`] server, and the file descriptors kept back for the program's own files. Not owned: who may ask what, and what is answered.
//!
//! When a gate is full, the connection that has waited longest for a request makes room, of the same peer where the peer
//! has too many: whoever asks at once is served, also while others hold connections open and say nothing.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod authority;
mod certificate;
mod connection;
mod descriptors;
mod gate;
pub mod get;
pub mod http;
mod huffman;
mod listener;
mod name;
mod peer;
pub mod pin;
mod reach;
pub mod socket;
pub mod tls;

use std::time::Duration;

pub use certificate::{fingerprint, pem};
pub use connection::{Guarded, Speech};
pub use descriptors::keep_back;
pub use gate::{ConnectionCounters, Gate, Limits};
pub use listener::{Connections, Listener, at_address, both, incoming};
pub use name::{called, is_own_name};
pub use peer::Peer;
pub use reach::{Reminder, in_the_clear};

/// How long a client may take to say what it wants: the head of an HTTP request, the greeting of HTTP/2. etcd and
/// Kubernetes' API server wait as long for handshakes.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The greeting of HTTP/2 (RFC 9113, section 3.4), bytes.
const GREETING: usize = 24;
