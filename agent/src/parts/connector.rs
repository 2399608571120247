//! A process that lives for one connection: it connects to the system bus, hands the connection over, and ends.
//!
//! The bus knows who calls by the user that connected. The reader may make no socket, and one that root connected would give it all that root
//! may ask of systemd; so this process is nobody's, reads nothing, and is gone before the reader has the connection. It has not the
//! reader's user, since a bus turns away users that have no name on the machine (dbus-daemon 1.14), and nobody has one everywhere.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use anyhow::Context as _;
use evenkeel_border::socket;
use evenkeel_enforce::systemd::bus::SOCKET;

use super::confine::confine;
use super::{Given, Part};

/// Nobody's user and group (systemd's uids-gids.md).
pub(crate) const NOBODY: u32 = 65_534;

/// Connects, and sends the connection to whoever has the other end of standard input.
///
/// # Errors
/// When there is no bus, or nobody waits for it.
pub(crate) fn run(given: &Given) -> anyhow::Result<()> {
    confine(Part::Connector, given)?;
    let stream = UnixStream::connect(SOCKET).with_context(|| format!("cannot connect to {SOCKET}"))?;
    socket::send(io::stdin(), b"connected", Some(stream.as_fd())).context("nobody waits for the connection")
}
