//! The Unix socket: its directory, its mode, and whether another agent has it.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// A bound socket; its file is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// The listener, once.
    pub(crate) fn take_listener(&mut self) -> Option<UnixListener> {
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

/// Binds `path` with mode 0660 in a directory of mode 0750 (made if it is not there). The file of an agent that
/// ended without removing it is replaced.
///
/// # Errors
/// When another agent answers on it, when something that is no socket is there, when it cannot be bound.
pub(crate) fn bind(path: &Path) -> anyhow::Result<Socket> {
    let shown = path.display();
    if let Some(dir) = path.parent().filter(|dir| !dir.exists()) {
        crate::machine::make_dir(dir)
            .with_context(|| format!("cannot make {}; make it, or set serve.socket", dir.display()))?;
    }
    match UnixStream::connect(path) {
        Ok(_) => bail!("another agent answers on {shown}; stop it, or give this one another serve.socket"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused && is_socket(path) => {
            std::fs::remove_file(path).with_context(|| format!("cannot remove the stale socket {shown}"))?;
        }
        Err(error) => {
            return Err(error)
                .with_context(|| format!("{shown} is in the way; remove it, or set serve.socket"));
        }
    }
    let listener = UnixListener::bind(path).with_context(|| {
        format!("cannot bind {shown}; check its directory's permissions, or set serve.socket")
    })?;
    let socket = Socket { path: path.to_owned(), listener: Some(listener) };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
        .with_context(|| format!("cannot set the mode of {shown}"))?;
    Ok(socket)
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_agent_is_left_alone_and_a_dead_ones_socket_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/agent.sock");
        let mut first = bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o750);
        assert!(bind(&path).unwrap_err().to_string().contains("another agent answers"));
        // Closed without removing the file, as after SIGKILL.
        drop(first.take_listener());
        let second = bind(&path).unwrap();
        std::mem::forget(first);
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        std::fs::write(&path, "precious").unwrap();
        assert!(bind(&path).unwrap_err().to_string().contains("in the way"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    }
}
