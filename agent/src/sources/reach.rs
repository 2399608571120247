//! How the sockets of runtimes and engines are reached: by their paths, or through the part that may.

use std::io;
use std::path::Path;
use std::sync::Arc;

use evenkeel_border::ask::Connect;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Ended, Link};
use evenkeel_enforce::systemd::bus::SOCKET;
use tokio::net::UnixStream;

use crate::parts::connector::{Helper, NOBODY};

/// How a socket is reached.
#[derive(Clone, Default)]
pub(crate) enum Reach {
    /// By its path.
    #[default]
    Here,
    /// The other side of the border connects, and hands the connection over.
    There(Link),
    /// A process of the same user connects to the system bus, which is all it can connect to.
    Helped(Arc<Helper>),
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here => "Here",
            Self::There(_) => "There",
            Self::Helped(_) => "Helped",
        })
    }
}

impl Reach {
    /// A connection.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn connect(&self, socket: &Path) -> io::Result<UnixStream> {
        let connected = match self {
            Self::Here => return UnixStream::connect(socket).await,
            Self::Helped(_) if socket != Path::new(SOCKET) => {
                return Err(io::Error::other("only the system bus is connected to"));
            }
            Self::Helped(helper) => Arc::clone(helper).connect().await?,
            Self::There(link) => {
                let failed = |ended: Ended| io::Error::other(ended.to_string());
                let channel = link.open().await.map_err(failed)?;
                channel.send(&Connect(socket.display().to_string()).message()).await.map_err(failed)?;
                let (_, connected) = channel.receive_with().await.map_err(failed)?;
                connected.ok_or_else(|| io::Error::other("no connection was handed over"))?
            }
        };
        let stream = std::os::unix::net::UnixStream::from(connected);
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }

    /// The user that connects, as the other end of a connection sees it.
    pub(crate) fn user(&self) -> u32 {
        match self {
            Self::Here | Self::Helped(_) => nix::unistd::Uid::effective().as_raw(),
            Self::There(_) => NOBODY,
        }
    }

    /// Whether this process sees the sockets itself.
    pub(crate) const fn is_here(&self) -> bool {
        matches!(self, Self::Here)
    }
}
