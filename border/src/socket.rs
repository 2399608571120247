//! The socket of a border: packets that the kernel keeps apart, and now and then a descriptor with one.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Both ends of a new border, closed on exec.
///
/// # Errors
/// When the kernel makes none.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
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
