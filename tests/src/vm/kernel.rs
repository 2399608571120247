//! Debian's cloud kernels, unpacked into the fixtures' cache. Owns their download; nothing is installed on the machine
//! and its package index stays what it is.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};

use crate::archive::Archive;
use crate::{machine, places};

const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Which Debian release a guest's kernel is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Release {
    /// The release this machine runs.
    #[default]
    Own,
    /// Debian 13, from the mirror this machine uses.
    Debian13,
}

impl Release {
    fn cache(self) -> &'static str {
        match self {
            Release::Own => "kernel",
            Release::Debian13 => "kernel-13",
        }
    }

    fn archive(self, cache: &Path) -> Result<Archive> {
        match self {
            Release::Own => Ok(Archive::own()),
            Release::Debian13 => Archive::of("trixie", &cache.join("apt")),
        }
    }
}

/// A kernel to boot.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    /// The boot image.
    pub(super) image: PathBuf,
    /// Its release, as in `uname -r`.
    pub(super) release: String,
    tree: PathBuf,
}

impl Kernel {
    /// The cached kernel, downloaded first if there is none.
    pub(super) fn obtain(release: Release) -> Result<Kernel> {
        let cache = places::cache(release.cache())?;
        // Two test programs may get here at once; the second finds what the first has downloaded.
        let lock = cache.join("lock");
        let file = File::create(&lock).with_context(|| format!("cannot create {}", lock.display()))?;
        let _lock = Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| errno)
            .with_context(|| format!("cannot lock {}", lock.display()))?;
        let tree = cache.join("tree");
        if !tree.is_dir() {
            download(&cache, &tree, &release.archive(&cache)?)?;
        }
        Kernel::in_tree(&tree)
    }

    fn in_tree(tree: &Path) -> Result<Kernel> {
        let boot = tree.join("boot");
        let entries = std::fs::read_dir(&boot).with_context(|| format!("cannot list {}", boot.display()))?;
        for entry in entries.flatten() {
            if let Some(release) = entry.file_name().to_string_lossy().strip_prefix("vmlinuz-") {
                return Ok(Kernel {
                    image: entry.path(),
                    release: release.to_string(),
                    tree: tree.to_path_buf(),
                });
            }
        }
        bail!("no kernel in {}: remove that directory to download it again", boot.display())
    }

    /// Whether an option is built in, `CONFIG_` and all.
    pub(super) fn has(&self, option: &str) -> Result<bool> {
        let path = self.tree.join("boot").join(format!("config-{}", self.release));
        let config =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(config.lines().any(|line| line == format!("{option}=y")))
    }

    /// Files of a module and of those it needs, in the order of loading.
    pub(super) fn module(&self, name: &str) -> Result<Vec<PathBuf>> {
        let index = self.tree.join("lib/modules").join(&self.release).join("modules.dep.bin");
        if !index.is_file() {
            machine::run(Command::new("/sbin/depmod").arg("-b").arg(&self.tree).arg(&self.release))?;
        }
        let mut modprobe = Command::new("/sbin/modprobe");
        modprobe.arg("-d").arg(&self.tree).args(["-S", &self.release, "--show-depends", name]);
        let listed = machine::run(&mut modprobe)?;
        let paths = listed.lines().filter_map(|line| line.strip_prefix("insmod "));
        Ok(paths.map(|path| PathBuf::from(path.trim())).collect())
    }
}

fn download(cache: &Path, tree: &Path, archive: &Archive) -> Result<()> {
    let scratch = tempfile::TempDir::new_in(cache).context("cannot make a scratch directory")?;
    // The index may be missing, or so old that the file it names is gone: then it is fetched once and tried again.
    if let Err(first) = fetch(scratch.path(), archive) {
        archive.update().context(first)?;
        fetch(scratch.path(), archive)?;
    }
    let package = std::fs::read_dir(scratch.path()).context("cannot list the download")?.flatten().next();
    let package = package.context("apt-get downloaded nothing")?.path();
    let unpacked = scratch.path().join("tree");
    machine::run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    // Since Debian 13 modules lie below /usr.
    if !unpacked.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", unpacked.join("lib")).context("cannot link the modules")?;
    }
    std::fs::rename(&unpacked, tree).context("cannot move the unpacked kernel")
}

fn fetch(into: &Path, archive: &Archive) -> Result<()> {
    let depends = machine::run(archive.command("apt-cache").args(["depends", META_PACKAGE]))?;
    let package = depends
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"))
        .with_context(|| format!("apt knows no {META_PACKAGE}; it is in Debian's main archive"))?;
    machine::run(archive.command("apt-get").current_dir(into).args(["-qq", "download", package]))?;
    Ok(())
}
