//! How the sockets of runtimes and engines are reached: by their paths, or through the part that may.

use std::io;
use std::path::Path;

use evenkeel_border::ask::Connect;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::link::{Ended, Link};
use tokio::net::UnixStream;

/// How a socket is reached.
#[derive(Clone, Default)]
pub(crate) enum Reach {
    /// By its path.
    #[default]
    Here,
    /// The other side of the border connects, and hands the connection over.
    There(Link),
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Here => "Here",
            Self::There(_) => "There",
        })
    }
}

impl Reach {
    /// A connection.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn connect(&self, socket: &Path) -> io::Result<UnixStream> {
        let link = match self {
            Self::Here => return UnixStream::connect(socket).await,
            Self::There(link) => link,
        };
        let failed = |ended: Ended| io::Error::other(ended.to_string());
        let channel = link.open().await.map_err(failed)?;
        channel.send(&Connect(socket.display().to_string()).message()).await.map_err(failed)?;
        let (_, connected) = channel.receive_with().await.map_err(failed)?;
        let connected = connected.ok_or_else(|| io::Error::other("no connection was handed over"))?;
        let stream = std::os::unix::net::UnixStream::from(connected);
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    }

    /// Whether this process sees the sockets itself.
    pub(crate) const fn is_here(&self) -> bool {
        matches!(self, Self::Here)
    }
}
