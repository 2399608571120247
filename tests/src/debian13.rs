//! Programs as Debian 13 ships them, unpacked into the fixtures' cache where Debian 12's are too old: its kubectl is older than the
//! kustomize that reads the base, its containerd has no container events. Nothing is installed on the machine.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};

use crate::archive::Archive;
use crate::{machine, places};

/// The cached directory of a package's programs, of that release whatever is installed; downloaded first if there is none.
///
/// # Errors
///
/// Fails when this machine takes no packages from a mirror of Debian, or the mirror does not answer.
pub fn programs_of(package: &str) -> Result<PathBuf> {
    let cache = places::cache(package)?;
    // Tests run side by side; the second finds what the first has downloaded.
    let lock = cache.join("lock");
    let file = File::create(&lock).with_context(|| format!("cannot create {}", lock.display()))?;
    let _lock = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("cannot lock {}", lock.display()))?;
    let tree = cache.join("tree");
    if !tree.is_dir() {
        let archive = Archive::of("trixie", &cache.join("apt"))?;
        archive.update()?;
        let scratch = tempfile::TempDir::new_in(&cache).context("cannot make a scratch directory")?;
        machine::run(archive.command("apt-get").current_dir(scratch.path()).args([
            "-qq",
            "download",
            &format!("{package}/trixie"),
        ]))?;
        let file = std::fs::read_dir(scratch.path()).context("cannot list the download")?.flatten().next();
        let file = file.context("apt-get downloaded nothing")?.path();
        let unpacked = scratch.path().join("tree");
        machine::run(Command::new("dpkg").arg("-x").arg(&file).arg(&unpacked))?;
        std::fs::rename(&unpacked, &tree).context("cannot move what was unpacked")?;
    }
    Ok(tree.join("usr/bin"))
}
