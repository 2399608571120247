//! Who is at the other end of a connection, as far as the connection itself tells.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use tokio::net::UnixStream;

use crate::tls::Certificate;

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, over a Unix socket: the kernel's word for who it was when it connected (SO_PEERCRED,
    /// unix(7)).
    Local {
        /// Its effective user.
        uid: u32,
        /// Its effective group.
        gid: u32,
        /// Itself, where the kernel tells.
        pid: Option<i32>,
    },
    /// An address, which anybody may have.
    Remote {
        /// The address.
        address: SocketAddr,
        /// The certificate it showed, which an authority of the listener's vouched for.
        certificate: Option<Certificate>,
    },
}

/// What counts as one when connections are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// A user of this machine.
    User(u32),
    /// A machine.
    Address(IpAddr),
}

impl Peer {
    /// Of an accepted connection.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) fn of_unix(stream: &UnixStream) -> std::io::Result<Self> {
        let credentials = stream.peer_cred()?;
        Ok(Self::Local { uid: credentials.uid(), gid: credentials.gid(), pid: credentials.pid() })
    }

    pub(crate) fn host(&self) -> Host {
        match self {
            Self::Local { uid, .. } => Host::User(*uid),
            Self::Remote { address, .. } => Host::Address(host_of(address.ip())),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local { uid, pid: Some(pid), .. } => write!(f, "user {uid} (process {pid})"),
            Self::Local { uid, pid: None, .. } => write!(f, "user {uid}"),
            Self::Remote { address, .. } => write!(f, "{address}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "user {uid}"),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// What counts as one machine: of IPv6 a /64, which is what one host has.
fn host_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(six) => match six.to_ipv4_mapped() {
            Some(four) => four.into(),
            None => Ipv6Addr::from(u128::from(six) & !u128::from(u64::MAX)).into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_one_peer_whatever_it_calls_itself() {
        let remote = |text: &str| {
            let address = SocketAddr::new(text.parse().unwrap(), 1);
            Peer::Remote { address, certificate: None }
        };
        for (one, other, same) in [
            ("10.0.0.1", "10.0.0.2", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
            ("2001:db8::1", "2001:db8::ffff:1", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
        ] {
            assert_eq!(remote(one).host() == remote(other).host(), same, "{one} {other}");
        }
        let local = |uid, pid| Peer::Local { uid, gid: 0, pid: Some(pid) };
        assert_eq!(local(1, 2).host(), local(1, 3).host());
        assert_ne!(local(1, 2).host(), local(2, 2).host());
    }
}
