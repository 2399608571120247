//! Packets: what one `send` on the socket carries.
//!
//! A packet belongs to a channel. A message is one or more packets; the last says that it is. The kernel keeps packets apart, so that no
//! length stands in front.

use crate::coded::{Coded as _, Malformed, MessageReader, VERSION};

/// Largest packet: a few fit into a socket's buffer, which holds 200 KiB by default (`net.core.wmem_default`).
pub const MOST_BYTES: usize = 32 << 10;
/// Bytes before the body: version, kind, channel.
pub const HEAD: usize = 6;

/// What a packet is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketKind {
    /// The channel begins. No body.
    Open,
    /// A part of a message; more follow.
    Part,
    /// The last part of a message.
    Last,
    /// So many messages were taken, and as many more may be sent: a `u32`.
    Credit,
    /// The channel ends: nothing, or a [`crate::ask::Failure`].
    End,
}

/// A packet that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Its channel.
    pub channel: u32,
    /// What it is.
    pub kind: PacketKind,
    /// What it carries.
    pub body: &'a [u8],
}

impl Packet<'_> {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.body.len());
        bytes.push(VERSION);
        bytes.push(match self.kind {
            PacketKind::Open => 1,
            PacketKind::Part => 2,
            PacketKind::Last => 3,
            PacketKind::Credit => 4,
            PacketKind::End => 5,
        });
        self.channel.write(&mut bytes);
        bytes.extend_from_slice(self.body);
        bytes
    }
}

/// Reads a packet.
///
/// # Errors
/// When it is none.
pub fn read(bytes: &[u8]) -> Result<Packet<'_>, Malformed> {
    let (head, body) = bytes.split_at_checked(HEAD).ok_or(Malformed::Short)?;
    if bytes.len() > MOST_BYTES {
        return Err(Malformed::Long(bytes.len() - MOST_BYTES));
    }
    let mut reader = MessageReader::new(head);
    let version = u8::read(&mut reader)?;
    if version != VERSION {
        return Err(Malformed::Value(version.into()));
    }
    let kind = match u8::read(&mut reader)? {
        1 => PacketKind::Open,
        2 => PacketKind::Part,
        3 => PacketKind::Last,
        4 => PacketKind::Credit,
        5 => PacketKind::End,
        other => return Err(Malformed::Value(other.into())),
    };
    Ok(Packet { channel: u32::read(&mut reader)?, kind, body })
}
