//! Channels over one socket: each a conversation of messages both ways, none of which can hold up or fill what another needs.
//!
//! Owned here: who may send how much, and what waits. Not owned: what messages mean.
//!
//! A side may send [`WINDOW`] messages in a channel before the other has taken the first. All that waits on this side together stays
//! within [`Bounds`]; a packet that goes beyond, or that the other side cannot have meant, ends the link and is told by [`Link::gone`].

mod pace;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::net::Shutdown;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{Notify, mpsc};

use crate::ask::Failure;
use crate::coded::Coded as _;
use crate::packet::{HEAD, MOST_BYTES, Packet, PacketKind, read};
use crate::socket;
pub use pace::Pace;
use table::ChannelTable;

/// Messages of a channel that may be on the way, each direction.
pub const WINDOW: u32 = 4;

/// What a side takes of the other, and keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Channels that the other side may have open.
    pub theirs: usize,
    /// Channels that this side opens; more are refused to whoever wants them here.
    pub ours: usize,
    /// Bytes of a message.
    pub message: usize,
    /// Bytes of all messages that wait here.
    pub waiting: usize,
    /// Packets a second; more wait in the other side's buffer. 0 takes all.
    pub packets: u32,
    /// Whether descriptors are taken.
    pub descriptors: bool,
}

/// Which side this is: channels that the first one opens have odd numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The enforcing part.
    First,
    /// The part that serves it.
    Second,
}

/// Why nothing more comes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// The other side said all.
    #[error("the answer is complete")]
    Done,
    /// The other side says why it does not go on.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// There is no other side any more.
    #[error("{0}")]
    Gone(String),
    /// This side has as many channels open as it may.
    #[error("too much is asked at the same time; ask again later")]
    Busy,
}

/// The socket, and all channels over it.
#[derive(Clone)]
pub struct Link(Arc<LinkState>);

struct LinkState {
    /// Of the type for datagrams because that is what tokio has for sockets that keep messages apart; it is sent on and received from here
    /// alone.
    socket: UnixDatagram,
    bounds: Bounds,
    table: ChannelTable,
    /// Credits and ends wait to be sent.
    control: Notify,
}

/// A conversation. Dropped before it has ended, it ends: the other side is told.
pub struct Channel {
    link: Arc<LinkState>,
    id: u32,
}

impl Link {
    /// Begins on this end of a border; must be called on an asynchronous runtime. What the other side opens comes out of the receiver.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub fn start(end: OwnedFd, side: Side, bounds: Bounds) -> io::Result<(Self, mpsc::Receiver<Channel>)> {
        rustix::io::ioctl_fionbio(&end, true)?;
        let inner = Arc::new(LinkState {
            socket: UnixDatagram::from_std(end.into())?,
            bounds,
            table: ChannelTable::new(side, bounds),
            control: Notify::new(),
        });
        // As many as may be open.
        let (opened, incoming) = mpsc::channel(bounds.theirs.max(1));
        let (reading, flushing) = (Arc::clone(&inner), Arc::clone(&inner));
        tokio::spawn(async move {
            let why = tokio::select! {
                why = reading.read(opened) => why,
                why = flushing.flush() => why,
            };
            reading.table.end(&why);
            // The other side finds out at once, also while somebody here still holds a channel.
            let _ignored = reading.socket.shutdown(Shutdown::Both);
        });
        Ok((Self(inner), incoming))
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// When the link has ended, or too many channels are open.
    pub async fn open(&self) -> Result<Channel, Ended> {
        let id = self.0.table.open()?;
        let channel = Channel { link: Arc::clone(&self.0), id };
        self.0.send(Packet { channel: id, kind: PacketKind::Open, body: &[] }, None).await?;
        Ok(channel)
    }

    /// Waits for the end of the link, and says why.
    pub async fn gone(&self) -> String {
        self.0.table.gone().await
    }

    /// Ends the link.
    pub fn close(&self, why: &str) {
        self.0.table.end(why);
    }
}

impl LinkState {
    async fn send(&self, packet: Packet<'_>, descriptor: Option<BorrowedFd<'_>>) -> Result<(), Ended> {
        let bytes = packet.bytes();
        let sent = async {
            self.socket
                .async_io(Interest::WRITABLE, || match socket::send(&self.socket, &bytes, descriptor) {
                    // Written in whole or not at all.
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    other => other,
                })
                .await
        };
        let sent = tokio::select! {
            sent = sent => sent,
            why = self.table.gone() => return Err(Ended::Gone(why)),
        };
        sent.map_err(|error| {
            let why = format!("the other side cannot be written to: {error}");
            self.table.end(&why);
            Ended::Gone(why)
        })
    }

    /// Takes packets until the link ends; says why it does.
    async fn read(self: &Arc<Self>, opened: mpsc::Sender<Channel>) -> String {
        let mut buffer = vec![0; MOST_BYTES];
        let mut pace = Pace::new(self.bounds.packets);
        loop {
            pace.wait().await;
            let received = tokio::select! {
                received = self.socket.async_io(Interest::READABLE, || socket::receive(&self.socket, &mut buffer)) => received,
                why = self.table.gone() => return why,
            };
            let received = match received {
                Ok(received) if received.length == 0 => return "the other side has ended".to_owned(),
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return format!("the other side cannot be read: {error}"),
            };
            if received.descriptor.is_some() && !self.bounds.descriptors {
                return "the other side passed a descriptor, which it may not".to_owned();
            }
            let packet = match read(&buffer[..received.length]) {
                Ok(packet) => packet,
                Err(error) => return format!("the other side sent what is no packet: {error}"),
            };
            match self.table.take(packet, received.descriptor) {
                Ok(None) => {}
                Ok(Some(id)) => {
                    let channel = Channel { link: Arc::clone(self), id };
                    // Nobody takes what is opened any more: dropped, and so ended.
                    let _ignored = opened.try_send(channel);
                }
                Err(why) => return format!("the other side {why}"),
            }
        }
    }

    /// Sends credits and ends.
    async fn flush(&self) -> String {
        loop {
            while let Some((id, credits)) = self.table.next_control() {
                let body = credits.message();
                let packet = match credits {
                    0 => Packet { channel: id, kind: PacketKind::End, body: &[] },
                    _ => Packet { channel: id, kind: PacketKind::Credit, body: &body },
                };
                if let Err(ended) = self.send(packet, None).await {
                    return ended.to_string();
                }
                if packet.kind == PacketKind::End {
                    self.table.told_end(id);
                }
            }
            self.control.notified().await;
        }
    }
}

impl Channel {
    /// Sends a message; waits while the other side has not taken those before.
    ///
    /// # Errors
    /// When the channel or the link has ended.
    pub async fn send(&self, message: &[u8]) -> Result<(), Ended> {
        self.send_with(message, None).await
    }

    /// Sends a message and a descriptor with it.
    ///
    /// # Errors
    /// When the channel or the link has ended.
    pub async fn send_with(&self, message: &[u8], descriptor: Option<BorrowedFd<'_>>) -> Result<(), Ended> {
        self.link.table.credit(self.id).await?;
        let (mut rest, most) = (message, MOST_BYTES - HEAD);
        while let Some((body, more)) = rest.split_at_checked(most).filter(|(_, more)| !more.is_empty()) {
            self.link.send(Packet { channel: self.id, kind: PacketKind::Part, body }, None).await?;
            rest = more;
        }
        self.link.send(Packet { channel: self.id, kind: PacketKind::Last, body: rest }, descriptor).await
    }

    /// The next message. Given up before it is there, it is not lost.
    ///
    /// # Errors
    /// When none follows.
    pub async fn receive(&self) -> Result<Vec<u8>, Ended> {
        Ok(self.receive_with().await?.0)
    }

    /// The next message, and the descriptor that came with it.
    ///
    /// # Errors
    /// When none follows.
    pub async fn receive_with(&self) -> Result<(Vec<u8>, Option<OwnedFd>), Ended> {
        let message = self.link.table.receive(self.id).await?;
        self.link.control.notify_one();
        Ok(message)
    }

    /// Ends it after all that was sent.
    pub async fn end(self, how: Result<(), Failure>) {
        let body = how.err().map(|failure| failure.message()).unwrap_or_default();
        let body = body.get(..MOST_BYTES - HEAD).unwrap_or(&body);
        if self.link.table.finish(self.id) {
            let packet = Packet { channel: self.id, kind: PacketKind::End, body };
            if self.link.send(packet, None).await.is_ok() {
                self.link.table.told_end(self.id);
            }
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.link.table.forget(self.id) {
            self.link.control.notify_one();
        }
    }
}
