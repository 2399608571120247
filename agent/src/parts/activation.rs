//! Parts that a service manager starts, a unit each: what it hands over, and who may be which part.
//!
//! Owned here: the enforcing part's listeners, which the manager holds so that a part can come before and after it; the border of a part
//! that connects to one; and telling the manager that a part is ready and lives. Not owned: units, which have users, sandboxes and when a part is
//! started again (`systemd/`).
//!
//! A socket's owner is the part that may connect to it, and the kernel says who did (SO_PEERCRED): nobody else is taken. Nothing of a unit
//! is known by what a part says of itself.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::socket::{self, Listener, Peer};
use listenfd::ListenFd;
use nix::libc;
use nix::sys::socket::{UnixAddr, getsockname};

use super::{Given, Part};

/// What the service manager handed to the enforcing part (sd_listen_fds(3)).
#[derive(Debug, Default)]
pub(crate) struct Handed {
    /// Where parts connect.
    pub borders: BTreeMap<Part, Border>,
    /// A socket for process events, opened in the host's network namespace.
    pub events: Option<OwnedFd>,
}

/// Where one part connects.
#[derive(Debug)]
pub(crate) struct Border {
    listener: OwnedFd,
    /// Its user.
    uid: u32,
}

impl Handed {
    /// Takes what there is; nothing without a service manager.
    ///
    /// # Errors
    /// When something is handed over that is for no part, or that anybody could connect to.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let (mut passed, mut handed) = (ListenFd::from_env(), Self::default());
        for at in 0..passed.len() {
            let events =
                passed.take_custom::<OwnedFd>(at, libc::AF_NETLINK, libc::SOCK_RAW, "netlink socket");
            if let Ok(Some(events)) = events {
                handed.events = Some(events);
                continue;
            }
            let what = "the service manager handed over what is no border";
            let taken =
                passed.take_custom::<OwnedFd>(at, libc::AF_UNIX, libc::SOCK_SEQPACKET, "SOCK_SEQPACKET");
            let listener = taken.context(what)?.context(what)?;
            let (part, border) = Border::of(listener).context(what)?;
            handed.borders.insert(part, border);
        }
        Ok(handed)
    }
}

impl Border {
    /// By the socket's file: named by the part (`network.sock`), and the part's own.
    fn of(listener: OwnedFd) -> anyhow::Result<(Part, Self)> {
        let address: UnixAddr = getsockname(listener.as_raw_fd()).context("a socket without an address")?;
        let path = address.path().context("a socket without a path")?;
        let shown = path.display();
        let part = Part::STARTED.into_iter().find(|part| path.file_stem() == Some(part.name().as_ref()));
        let part = part.with_context(|| format!("{shown} is named by no part"))?;
        let uid = std::fs::symlink_metadata(path).with_context(|| format!("{shown} is gone"))?.uid();
        anyhow::ensure!(
            uid != 0,
            "{shown} is root's, so that no part can be told from root; make it a user's own (SocketUser=)"
        );
        Ok((part, Self { listener, uid }))
    }
}

/// A border's listener on an asynchronous runtime.
pub(super) struct Entrance {
    listener: Listener,
    uid: u32,
}

impl Entrance {
    /// Must be called on an asynchronous runtime.
    ///
    /// # Errors
    /// When descriptors run out.
    pub(super) fn open(border: Border) -> io::Result<Self> {
        Ok(Self { listener: Listener::new(border.listener)?, uid: border.uid })
    }

    /// Waits for the part; whoever else comes is turned away.
    ///
    /// # Errors
    /// When the listener cannot be used any more.
    pub(super) async fn part(&self) -> io::Result<Peer> {
        loop {
            let peer = self.listener.accept().await?;
            if peer.uid == self.uid {
                return Ok(peer);
            }
            let (pid, uid, wanted) = (peer.pid, peer.uid, self.uid);
            tracing::warn!(pid, uid, wanted, "who connected is not the part: turned away");
        }
    }
}

/// A part's end of its border: from where it is told to connect to, or else what it was started with.
///
/// # Errors
/// When there is none.
pub(super) fn border(given: &Given) -> anyhow::Result<OwnedFd> {
    match &given.border {
        Some(path) => {
            socket::connected(path).with_context(|| format!("cannot connect to {}", path.display()))
        }
        None => io::stdin().as_fd().try_clone_to_owned().context("no border on standard input"),
    }
}

/// The service manager, where one is told how a part fares (sd_notify(3)). Connected before a part gives up making such sockets.
pub(super) struct Manager {
    socket: UnixDatagram,
    /// It is told so often that the part lives.
    every: Option<Duration>,
}

impl Manager {
    /// The one that started this process; none where nobody did.
    pub(super) fn find() -> Option<Self> {
        let path = std::env::var_os("NOTIFY_SOCKET")?;
        let found = Self::at(Path::new(&path));
        let found =
            found.inspect_err(|error| tracing::warn!(%error, "the service manager cannot be told anything"));
        Some(Self { socket: found.ok()?, every: sd_notify::watchdog_enabled().map(|patience| patience / 2) })
    }

    fn at(path: &Path) -> io::Result<UnixDatagram> {
        let socket = UnixDatagram::unbound()?;
        match path.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
            None => socket.connect(path)?,
        }
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Says that the part is ready, and from then on that it lives, as long as this runtime runs.
    pub(super) async fn told(self) {
        self.say(b"READY=1");
        let Some(every) = self.every.filter(|every| !every.is_zero()) else { return };
        let mut beat = tokio::time::interval(every);
        loop {
            beat.tick().await;
            self.say(b"WATCHDOG=1");
        }
    }

    fn say(&self, word: &[u8]) {
        if let Err(error) = self.socket.send(word) {
            tracing::debug!(%error, "ignoring: the service manager is told later");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Listens at a name below a directory.
    fn listening(at: &Path, name: &str) -> (OwnedFd, PathBuf) {
        use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, bind, listen, socket};

        let path = at.join(name);
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(socket.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&socket, Backlog::new(4).unwrap()).unwrap();
        (socket, path)
    }

    #[test]
    fn a_border_is_of_the_part_that_it_is_named_by_and_never_roots() {
        if !nix::unistd::Uid::effective().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        for (name, owner, want) in [
            ("network.sock", 4321, Ok(Part::Network)),
            ("runtime.sock", 4321, Ok(Part::Runtime)),
            ("reader.sock", 4321, Ok(Part::Reader)),
            ("enforcing.sock", 4321, Err("named by no part")),
            ("starter.sock", 4321, Err("named by no part")),
            ("other", 4321, Err("named by no part")),
            ("network.sock.0", 0, Err("named by no part")),
        ] {
            let (socket, path) = listening(dir.path(), name);
            std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
            match (Border::of(socket), want) {
                (Ok((part, border)), Ok(want)) => assert_eq!((part, border.uid), (want, 4321)),
                (Err(error), Err(want)) => assert!(format!("{error:#}").contains(want), "{name}: {error:#}"),
                (got, want) => panic!("{name}: {got:?}, not {want:?}"),
            }
        }
        let of_root = tempfile::tempdir().unwrap();
        let (socket, _) = listening(of_root.path(), "network.sock");
        let error = format!("{:#}", Border::of(socket).unwrap_err());
        assert!(error.contains("SocketUser="), "{error}");
    }

    #[tokio::test]
    async fn who_is_not_the_parts_user_is_turned_away_and_the_next_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, path) = listening(dir.path(), "network.sock");
        let own = nix::unistd::Uid::effective().as_raw();
        let stranger =
            Entrance::open(Border { listener: socket.try_clone().unwrap(), uid: own + 1 }).unwrap();
        let refused = socket::connected(&path).unwrap();
        let waited = tokio::time::timeout(Duration::from_millis(200), stranger.part()).await;
        assert!(waited.is_err(), "{waited:?}");
        // The other end is closed.
        let mut buffer = [0; 8];
        assert_eq!(socket::receive(&refused, &mut buffer).unwrap().length, 0);
        drop(stranger);
        let entrance = Entrance::open(Border { listener: socket, uid: own }).unwrap();
        // One that has gone again is passed over.
        drop(socket::connected(&path).unwrap());
        let _border = socket::connected(&path).unwrap();
        let peer = entrance.part().await.unwrap();
        assert_eq!((peer.uid, peer.pid), (own, std::process::id()));
    }
}
