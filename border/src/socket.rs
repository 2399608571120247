//! The socket of a border: packets that the kernel keeps apart, and now and then a descriptor with one.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::cmsg_space;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect, recv,
    recvmsg, sendmsg, socket_with, socketpair,
};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Both ends of a new border, closed on exec.
///
/// # Errors
/// When the kernel makes none.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// The end of a border of who connects to `path`, closed on exec. Nobody need have taken the other end yet.
///
/// # Errors
/// When nobody listens there, or it may not be connected to.
pub fn connected(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Where others connect for a border. Of the type for datagrams because that is what tokio has for sockets that keep messages apart; others
/// are accepted from it alone.
#[derive(Debug)]
pub struct Listener(UnixDatagram);

/// Who connected, as the kernel has it (SO_PEERCRED of unix(7)).
#[derive(Debug)]
pub struct Peer {
    /// This end of the border, closed on exec.
    pub socket: OwnedFd,
    /// The process that connected.
    pub pid: u32,
    /// Its user then.
    pub uid: u32,
}

impl Listener {
    /// Of a socket that listens; must be called on an asynchronous runtime.
    ///
    /// # Errors
    /// When the socket cannot be used.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(UnixDatagram::from_std(socket.into())?))
    }

    /// Waits for the next who connects; who has gone meanwhile is passed over. Given up before there is one, nobody is lost.
    ///
    /// # Errors
    /// When the socket cannot be used any more, or descriptors run out.
    pub async fn accept(&self) -> io::Result<Peer> {
        loop {
            let accepted = || Ok(accept_with(&self.0, SocketFlags::CLOEXEC)?);
            let socket = match self.0.async_io(Interest::READABLE, accepted).await {
                Ok(socket) => socket,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut byte = [0_u8];
            let seen = recv(&socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT);
            if matches!(seen, Ok((_, 0)) | Err(rustix::io::Errno::CONNRESET)) {
                continue;
            }
            let peer = socket_peercred(&socket)?;
            let pid = u32::try_from(peer.pid.as_raw_pid()).unwrap_or_default();
            return Ok(Peer { socket, pid, uid: peer.uid.as_raw() });
        }
    }
}

/// Sends a packet, and a descriptor with it; waits where the socket does.
///
/// # Errors
/// When the other side is gone, or its buffer is full and the socket does not wait.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let passed = descriptor.as_slice();
    if !passed.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(passed));
    }
    let sent = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// What one packet was.
#[derive(Debug)]
pub struct Received {
    /// Its bytes; none at the end.
    pub length: usize,
    /// The descriptor that came with it.
    pub descriptor: Option<OwnedFd>,
}

/// Receives a packet; of more than one descriptor all but the first are closed.
///
/// # Errors
/// When nothing can be received, or the packet is longer than the buffer or brings more than one descriptor.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptor = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            // What is not taken is closed here.
            let mut passed = passed;
            descriptor = descriptor.or(passed.next());
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a packet brought more than it may"));
    }
    Ok(Received { length: received.bytes, descriptor })
}
