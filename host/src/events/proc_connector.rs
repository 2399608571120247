//! [`ProcConnector`]: the kernel's stream of fork, exec and exit.
//!
//! A netlink socket of the connector family (Documentation/driver-api/connector.rst, include/uapi/linux/cn_proc.h).
//! It must be born in the initial network namespace by a process of the initial user and process namespaces that
//! holds CAP_NET_ADMIN; it goes on working after capabilities are dropped.
//!
//! Forks and execs are let through, and everything else (ends, changes of users, sessions and names, threads) is
//! dropped by a filter in the kernel; where a filter cannot be set, ends are told too.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, recvfrom, send, setsockopt, sockopt};

use super::proc_filter;
use super::proc_message::{self, Message, ProcessEvent};
use crate::error::{Category, HostError, HostOperation};

/// Multicast group and index of process events (`CN_IDX_PROC`).
const CN_IDX_PROC: u32 = 1;

/// Room for some thousand events; a burst of 2,000 forks was seen to fit the default of 208 KiB.
const RECEIVE_BUFFER: usize = 4 * 1024 * 1024;

/// Events taken in one call at most, so that a fork bomb cannot keep the caller in `read` for ever.
const BATCH: usize = 4096;

/// The kernel answers within the system call; this is for a machine that stalls.
const PATIENCE: Duration = Duration::from_secs(1);

/// A subscription to process events, non-blocking and pollable.
#[derive(Debug)]
pub struct ProcConnector {
    fd: OwnedFd,
}

impl ProcConnector {
    /// Subscribes and waits for the kernel's consent.
    ///
    /// # Errors
    /// `Denied` without CAP_NET_ADMIN; `Unsupported` outside the initial network, user or process namespace and
    /// on kernels without CONFIG_PROC_EVENTS. Each with its remedy.
    pub fn open() -> Result<Self, HostError> {
        let fd = connector_socket().map_err(failed)?;
        // Before the first can come: what is not wanted never arrives.
        let _wish = proc_filter::wanted_only(&fd);
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, CN_IDX_PROC)).map_err(failed)?;
        Self::over(fd)
    }

    /// The same over a socket of this family that another process opened in the initial network namespace and bound to the group of process
    /// events, where this process is in another namespace.
    ///
    /// # Errors
    /// As [`ProcConnector::open`].
    pub fn over(fd: OwnedFd) -> Result<Self, HostError> {
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed)?;
        // A wish as well: without it there is more to read.
        let _wish = proc_filter::wanted_only(&fd);
        // A larger buffer is a wish: without CAP_NET_ADMIN the default stays, and overruns are reported.
        let _wish = setsockopt(&fd, sockopt::RcvBufForce, &RECEIVE_BUFFER);
        let connector = Self { fd };
        let request = proc_message::listen_request();
        send(connector.fd.as_raw_fd(), &request, MsgFlags::empty()).map_err(failed)?;
        connector.await_consent()?;
        Ok(connector)
    }

    /// Subscribes again where this subscription broke: over the same socket, which may be of a namespace that this process is not in, or else
    /// over a new one.
    ///
    /// # Errors
    /// As [`ProcConnector::open`].
    pub fn renewed(&self) -> Result<Self, HostError> {
        let again = self.fd.try_clone().ok().and_then(|fd| Self::over(fd).ok());
        again.map_or_else(Self::open, Ok)
    }

    /// Outside the initial process or user namespace the kernel passes the request over in silence.
    fn await_consent(&self) -> Result<(), HostError> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(100u8)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(e) => return Err(failed(e)),
            }
            match self.receive() {
                Ok(Some(Message::Consent { errno: 0 })) => return Ok(()),
                Ok(Some(Message::Consent { errno })) => return Err(failed(Errno::from_raw(errno))),
                // Events are flowing already because somebody else listens too: consent will follow.
                Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => {}
                Err(e) => return Err(failed(e)),
            }
        }
        Err(HostError::of_text(
            Category::Unsupported,
            HostOperation::Subscribe,
            "process events",
            "the kernel does not answer",
        )
        .with_remedy(
            "run in the initial process and user namespaces (hostPID: true), with CONFIG_PROC_EVENTS",
        ))
    }

    /// Appends what happened since the last call, at most 4,096 events; returns how many messages were taken, 0
    /// when nothing is left. Never blocks.
    ///
    /// # Errors
    /// `Io` when the socket cannot be read.
    pub fn read(&self, into: &mut Vec<ProcessEvent>) -> Result<usize, HostError> {
        let mut taken = 0;
        while taken < BATCH {
            match self.receive() {
                Ok(Some(Message::Event(event))) => into.push(event),
                Ok(_) => {}
                Err(Errno::ENOBUFS) => into.push(ProcessEvent::Overrun),
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(failed(e)),
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// Lets nothing arrive until [`ProcConnector::resume`], and forgets what has arrived. What happens meanwhile is
    /// lost and costs nobody anything.
    ///
    /// # Errors
    /// `Io` when the kernel takes no filter: then messages go on arriving until the buffer is full.
    pub fn pause(&self) -> Result<(), HostError> {
        proc_filter::nothing(&self.fd).map_err(failed)?;
        // At most what fits into the buffer, of which each message takes some hundred bytes.
        for _ in 0..RECEIVE_BUFFER / 128 {
            // What was lost is forgotten with the rest.
            if matches!(self.receive(), Err(Errno::EAGAIN)) {
                break;
            }
        }
        Ok(())
    }

    /// Lets events arrive again.
    ///
    /// # Errors
    /// As [`ProcConnector::pause`].
    pub fn resume(&self) -> Result<(), HostError> {
        proc_filter::wanted_only(&self.fd).map_err(failed)
    }

    /// One datagram; the kernel puts one event into each. Datagrams not sent by the kernel are passed over.
    fn receive(&self) -> Result<Option<Message>, Errno> {
        let mut buffer = [0u8; 512];
        let (len, from) = recvfrom::<NetlinkAddr>(self.fd.as_raw_fd(), &mut buffer)?;
        let by_kernel = from.is_some_and(|a| a.pid() == 0);
        Ok(if by_kernel { proc_message::parse(&buffer[..len]) } else { None })
    }
}

impl AsFd for ProcConnector {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn failed(errno: Errno) -> HostError {
    let subject = "process events";
    match errno {
        Errno::EPERM | Errno::EACCES => HostError::from_errno(HostOperation::Subscribe, subject, errno, true)
            .with_remedy("grant CAP_NET_ADMIN in the initial user namespace"),
        // The connector lives in the initial network namespace only; elsewhere nobody is at the other end.
        Errno::ECONNREFUSED | Errno::EPROTONOSUPPORT => HostError::of_text(
            Category::Unsupported,
            HostOperation::Subscribe,
            subject,
            errno.desc().to_lowercase(),
        )
        .with_remedy(
            "open the socket in the initial network namespace (hostNetwork: true), with CONFIG_PROC_EVENTS",
        ),
        other => HostError::from_errno(HostOperation::Subscribe, subject, other, true),
    }
}

/// nix has no name for this netlink family among its socket protocols.
#[allow(unsafe_code)]
fn connector_socket() -> Result<OwnedFd, Errno> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: socket(2) takes three integers and touches no memory of ours.
    let raw = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) };
    let raw = Errno::result(raw)?;
    // SAFETY: the call succeeded, so `raw` is an open descriptor, and nobody else has seen it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}
