//! Private state: a directory that belongs to this program alone, and files in it that are opened as themselves.
//!
//! Owned here: what a state directory must be like, and opening state files without following symbolic links, with
//! mode 0600. Not owned: what is in the files, and who tells what was found.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::Mode;

use crate::error::remedy;

/// Mode of directories made here, and of those that only lacked privacy.
const DIRECTORY: u32 = 0o700;
/// Mode of files made here.
const FILE: u32 = 0o600;
/// What others than the owner may be granted.
const OTHERS: u32 = 0o077;

/// Why a directory is not used for state.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    /// It is not there and cannot be made, or cannot be looked at.
    #[error("cannot use {} as state directory; {}", path.display(), remedy(source).unwrap_or("make it, or name another one"))]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// Its name is a symbolic link that neither root nor this process's user made, or a link below a state directory.
    #[error("{} is a symbolic link of user {owner}; name the directory itself", path.display())]
    Link {
        /// The name.
        path: PathBuf,
        /// Who owns the link.
        owner: u32,
    },
    /// It belongs to another user, who could exchange every file in it.
    #[error(
        "{} belongs to user {owner} and this process runs as user {us}; chown it to {us}, or name another directory",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Others may make and remove files in it.
    #[error(
        "{} has mode {mode:04o}: others may exchange the files in it; look at what is in it, then chmod it to 0700",
        path.display()
    )]
    Writable {
        /// The directory.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
}

/// From now on files and directories that this process makes are its user's alone, whatever mode they are made with
/// (umask 077). Call it at start.
pub fn files_from_now_on() {
    nix::sys::stat::umask(Mode::from_bits_truncate(OTHERS as nix::libc::mode_t));
}

/// Makes a state directory private, or refuses it: it belongs to this process's user and nobody else may write it.
/// One that is not there is made with mode 0700; one that others may only read is closed to them.
///
/// A directory of root that a group of this process may write is taken too: that is how an orchestrator prepares a
/// volume for a process that is not root (`fsGroup`). The name itself may be a symbolic link that root or this user
/// made, such as systemd's for `DynamicUser=`.
///
/// # Errors
/// [`NotPrivate`], with what to do.
pub fn directory(path: &Path) -> Result<(), NotPrivate> {
    let unusable = |source| NotPrivate::Unusable { path: path.to_owned(), source };
    let us = nix::unistd::geteuid().as_raw();
    match fs::symlink_metadata(path) {
        Ok(meta)
            if meta.file_type().is_symlink() && !matches!(meta.uid(), owner if owner == 0 || owner == us) =>
        {
            return Err(NotPrivate::Link { path: path.to_owned(), owner: meta.uid() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(DIRECTORY).create(path).map_err(unusable)?;
        }
        Err(error) => return Err(unusable(error)),
    }
    let mut options = OpenOptions::new();
    let open = options.read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(path).map_err(unusable)?;
    let meta = open.metadata().map_err(unusable)?;
    judge(path, &meta, us)?;
    if meta.uid() == us && meta.mode() & OTHERS != 0 {
        open.set_permissions(Permissions::from_mode(DIRECTORY)).map_err(unusable)?;
    }
    Ok(())
}

/// Makes a directory below a state directory, as [`directory`]; its name is never a symbolic link.
///
/// # Errors
/// [`NotPrivate`], with what to do.
pub fn subdirectory(path: &Path) -> Result<(), NotPrivate> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.file_type().is_symlink() => {
            Err(NotPrivate::Link { path: path.to_owned(), owner: meta.uid() })
        }
        _ => directory(path),
    }
}

fn judge(path: &Path, meta: &fs::Metadata, us: u32) -> Result<(), NotPrivate> {
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    let prepared = owner == 0 && mode & 0o002 == 0 && in_group(meta.gid());
    if owner != us && !prepared {
        return Err(NotPrivate::Foreign { path: path.to_owned(), owner, us });
    }
    if mode & 0o022 != 0 && !(prepared && us != 0) {
        return Err(NotPrivate::Writable { path: path.to_owned(), mode });
    }
    Ok(())
}

fn in_group(group: u32) -> bool {
    let groups = nix::unistd::getgroups().unwrap_or_default();
    nix::unistd::getegid().as_raw() == group || groups.iter().any(|gid| gid.as_raw() == group)
}

/// Options that open a file as itself: a symbolic link of that name is an error, and a new file has mode 0600.
pub fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE).custom_flags(OFlag::O_NOFOLLOW.bits());
    options
}

/// Opens a file for reading.
///
/// # Errors
/// The system's, with words for a symbolic link.
pub fn open(path: &Path) -> io::Result<File> {
    options().read(true).open(path).map_err(explained)
}

/// Reads a whole file.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Makes a file empty, or a new one, for writing.
///
/// # Errors
/// As [`open`].
pub fn create(path: &Path) -> io::Result<File> {
    let file = options().write(true).create(true).truncate(true).open(path).map_err(explained)?;
    close_to_others(&file)?;
    Ok(file)
}

/// Replaces a file whole: written beside it under the ending `new`, then renamed. `sync` makes that survive a power
/// failure.
///
/// # Errors
/// As [`open`]; the former file stands then.
pub fn replace(path: &Path, bytes: &[u8], sync: bool) -> io::Result<()> {
    let beside = path.with_extension("new");
    let written = create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        if sync { file.sync_all() } else { Ok(()) }
    });
    if let Err(error) = written.and_then(|()| fs::rename(&beside, path)) {
        // Its space may be what is missing elsewhere.
        let _ignored = fs::remove_file(&beside);
        return Err(error);
    }
    if sync { sync_directory(path) } else { Ok(()) }
}

/// Waits for the lock of whoever changes what is beside it, and holds it until the file is dropped. Made where it is not
/// there; one that root makes belongs to the directory's owner, who takes it next.
///
/// # Errors
/// As [`open`].
pub fn lock(path: &Path) -> io::Result<File> {
    let lock = options().write(true).create(true).truncate(false).open(path).map_err(explained)?;
    let dir = fs::metadata(parent(path))?;
    if nix::unistd::geteuid().is_root() && lock.metadata()?.uid() != dir.uid() {
        std::os::unix::fs::fchown(&lock, Some(dir.uid()), Some(dir.gid()))?;
    }
    lock.lock()?;
    Ok(lock)
}

/// The directory that a file is in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes what was renamed in a file's directory survive a power failure.
///
/// # Errors
/// The system's.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(parent(path))?.sync_all()
}

/// Takes away what a release before gave others on a file that is used further.
fn close_to_others(file: &File) -> io::Result<()> {
    let meta = file.metadata()?;
    if meta.is_file() && meta.mode() & OTHERS != 0 && meta.uid() == nix::unistd::geteuid().as_raw() {
        file.set_permissions(Permissions::from_mode(FILE))?;
    }
    Ok(())
}

/// The system's words for a symbolic link speak of too many levels.
fn explained(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(Errno::ELOOP as i32) {
        return io::Error::other(
            "it is a symbolic link, and none is followed here; look who made it, then remove it",
        );
    }
    error
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn a_state_directory_is_made_private_or_refused() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("a/state");
        directory(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        // Readable by others, as a release before or an administrator left it: closed.
        fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        directory(&dir).unwrap();
        assert_eq!(mode(&dir), 0o700);
        for open in [0o777, 0o1777, 0o770] {
            fs::set_permissions(&dir, Permissions::from_mode(open)).unwrap();
            let error = directory(&dir).unwrap_err();
            assert!(matches!(error, NotPrivate::Writable { .. }), "{open:o}: {error}");
            assert!(error.to_string().contains("chmod"), "{error}");
        }
        fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "x").unwrap();
        assert!(matches!(directory(&file).unwrap_err(), NotPrivate::Unusable { .. }));
        // The administrator's own link is followed, one below a state directory is not.
        let link = temp.path().join("link");
        symlink(&dir, &link).unwrap();
        directory(&link).unwrap();
        assert!(matches!(subdirectory(&link).unwrap_err(), NotPrivate::Link { .. }));
    }

    #[test]
    fn what_another_user_owns_is_refused() {
        if !nix::unistd::geteuid().is_root() {
            assert!(matches!(directory(Path::new("/usr")).unwrap_err(), NotPrivate::Foreign { .. }));
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("theirs");
        directory(&dir).unwrap();
        chown(&dir, Some(65_534), None).unwrap();
        let error = directory(&dir).unwrap_err();
        assert!(matches!(error, NotPrivate::Foreign { owner: 65_534, us: 0, .. }), "{error}");
        assert!(error.to_string().contains("chown"), "{error}");
        let (ours, link) = (temp.path().join("ours"), temp.path().join("link"));
        directory(&ours).unwrap();
        symlink(&ours, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        assert!(matches!(directory(&link).unwrap_err(), NotPrivate::Link { owner: 65_534, .. }));
    }

    #[test]
    fn a_symbolic_link_is_never_written_through() {
        let temp = tempfile::tempdir().unwrap();
        let (victim, file) = (temp.path().join("victim"), temp.path().join("state"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &file).unwrap();
        symlink(&victim, file.with_extension("new")).unwrap();
        for error in [
            open(&file).map(drop).unwrap_err(),
            create(&file).map(drop).unwrap_err(),
            read(&file).map(drop).unwrap_err(),
            replace(&file, b"x", false).unwrap_err(),
        ] {
            assert!(error.to_string().contains("symbolic link"), "{error}");
        }
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn files_are_the_owners_alone() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("state");
        replace(&file, b"one", true).unwrap();
        assert_eq!((mode(&file), read(&file).unwrap()), (0o600, b"one".to_vec()));
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        create(&file).unwrap();
        assert_eq!(mode(&file), 0o600);
    }
}
