//! The file of a Unix socket: its directory, its mode, and whether somebody else answers on it.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Mode of the directory of sockets: who may speak is decided at each socket.
const DIRECTORY: u32 = 0o755;

/// A bound socket; its file is removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// The listener, once.
    pub fn take_listener(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "ignoring: the socket's file stays behind");
        }
    }
}

/// Binds `path` with a mode, in a directory that is made if it is not there. The file of a program that ended without
/// removing it is replaced. `key` names the path's key in the configuration, for what is wrong.
///
/// # Errors
/// When another program answers on it, when something that is no socket is there, when it cannot be bound; the text says
/// so and what to do.
pub fn bind(path: &Path, mode: u32, key: &str) -> io::Result<Socket> {
    let shown = path.display();
    let told = |error: io::Error, what: String| io::Error::new(error.kind(), format!("{what}: {error}"));
    if let Some(dir) = path.parent() {
        make_dir(dir)
            .map_err(|e| told(e, format!("cannot make {}; make it, or set {key}", dir.display())))?;
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            let what = format!("another program answers on {shown}; stop it, or give this one another {key}");
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && is_socket(path) => {
            std::fs::remove_file(path)
                .map_err(|e| told(e, format!("cannot remove the stale socket {shown}")))?;
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(told(error, format!("{shown} is no name for a socket; set {key}")));
        }
        Err(error) => return Err(told(error, format!("{shown} is in the way; remove it, or set {key}"))),
    }
    let listener = UnixListener::bind(path).map_err(|e| {
        told(e, format!("cannot bind {shown}; check its directory's permissions, or set {key}"))
    })?;
    let socket = Socket { path: path.to_owned(), listener: Some(listener) };
    std::fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|e| told(e, format!("cannot set the mode of {shown}")))?;
    Ok(socket)
}

/// Makes a directory of sockets, which everybody may enter, whatever the umask; one that is there is left as it is.
///
/// # Errors
/// The system's.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.as_os_str().is_empty() || dir.exists() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir)?;
    std::fs::set_permissions(dir, Permissions::from_mode(DIRECTORY))
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_program_is_left_alone_and_a_dead_ones_socket_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/agent.sock");
        let mut first = bind(&path, 0o660, "serve.socket").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o755);
        let other = bind(&path, 0o660, "serve.socket").unwrap_err().to_string();
        assert!(other.contains("another program answers"), "{other}");
        // Closed without removing the file, as after SIGKILL.
        drop(first.take_listener());
        let second = bind(&path, 0o660, "serve.socket").unwrap();
        std::mem::forget(first);
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(bind(&path, 0o660, "serve.socket").unwrap_err().to_string().contains("in the way"));
        let long = bind(&dir.path().join("s".repeat(120)), 0o660, "serve.socket").unwrap_err().to_string();
        assert!(long.contains("is no name for a socket; set serve.socket: "), "{long}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
