//! Debian's systemd as the first process of a guest. Owns the files it is made of: packages from the archive, unpacked
//! and kept as one tar in the fixtures' cache. Nothing is installed on the machine, and nothing of a package is run but
//! what it ships: the guest has the users and units it needs and no more.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};
use tempfile::TempDir;

use crate::archive::Archive;
use crate::{machine, places};

/// First process of such a guest: makes a root file system of its own in memory and leaves it to systemd.
pub(super) const INIT: &str = include_str!("systemd/init.sh");
/// The unit that runs the guest's script once the system is up.
const UNIT: &str = include_str!("systemd/run.service");
/// Runs the script, reports its status and switches off.
const RUN: &str = include_str!("systemd/run.sh");
/// Where the unpacked packages are in the guest before they are its root.
pub(super) const TAR: &str = "system.tar";
/// What is asked for; libraries come along.
const PACKAGES: [&str; 2] = ["systemd", "dbus"];
/// What neither systemd nor the bus reads.
const UNUSED: [&str; 13] = [
    "usr/lib/systemd/system/sysinit.target.wants/dev-hugepages.mount",
    "usr/lib/systemd/system/sysinit.target.wants/dev-mqueue.mount",
    "usr/lib/systemd/system/sysinit.target.wants/sys-kernel-debug.mount",
    "usr/lib/systemd/system/sysinit.target.wants/sys-kernel-tracing.mount",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/bash-completion",
    "usr/share/zsh",
    "usr/share/lintian",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/lib/udev",
];

/// Files every guest with systemd has, besides those of the packages: path, permissions, content.
pub(super) fn files() -> [(&'static str, u32, &'static str); 5] {
    [
        ("etc/systemd/system/evenkeel-test.service", 0o644, UNIT),
        // Nothing that a test does not need: no login, no clean-up timers.
        ("etc/systemd/system/default.target", 0o644, TARGET),
        ("sbin/evenkeel-test", 0o755, RUN),
        // With an identity this is no first boot, at which systemd would ask questions.
        ("etc/machine-id", 0o444, "0123456789abcdef0123456789abcdef\n"),
        ("etc/hostname", 0o644, "guest\n"),
    ]
}

const TARGET: &str = "[Unit]\nDescription=What a test needs\nRequires=basic.target dbus.socket\n\
                      After=basic.target\nWants=evenkeel-test.service\n";

/// The unpacked packages as one tar, downloaded first if there is none. With `further` packages the guest's dpkg knows all
/// of them as installed.
///
/// # Errors
///
/// Fails when apt cannot get the packages.
pub(super) fn tar(further: &[&str]) -> Result<PathBuf> {
    let cache = places::cache(&[&["systemd"], further].concat().join("-"))?;
    // Two test programs may get here at once; the second finds what the first has made.
    let lock = cache.join("lock");
    let file = File::create(&lock).with_context(|| format!("cannot create {}", lock.display()))?;
    let _lock = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .with_context(|| format!("cannot lock {}", lock.display()))?;
    let tar = cache.join(TAR);
    if !tar.is_file() {
        make(&cache, &tar, &[&PACKAGES, further].concat())?;
    }
    Ok(tar)
}

fn make(cache: &Path, tar: &Path, asked: &[&str]) -> Result<()> {
    let scratch = TempDir::new_in(cache).context("cannot make a scratch directory")?;
    let archive = Archive::own();
    // The index may be missing, or so old that the files it names are gone: then it is fetched once and tried again.
    if let Err(first) = download(&archive, scratch.path(), asked) {
        archive.update().context(first)?;
        download(&archive, scratch.path(), asked)?;
    }
    let root = scratch.path().join("root");
    for directory in ["bin", "sbin", "lib", "lib64"] {
        std::fs::create_dir_all(root.join("usr").join(directory)).context("cannot make the guest's root")?;
        std::os::unix::fs::symlink(format!("usr/{directory}"), root.join(directory))
            .context("cannot make the guest's root")?;
    }
    for entry in std::fs::read_dir(scratch.path()).context("cannot list the download")?.flatten() {
        if entry.path().extension().is_some_and(|ending| ending == "deb") {
            unpack(&entry.path(), &root)?;
            if asked.contains(&"dpkg") {
                register(&entry.path(), &root)?;
            }
        }
    }
    for unused in UNUSED.iter().filter(|path| !asked.iter().any(|name| path.ends_with(name))) {
        let path = root.join(unused);
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot remove {unused}"));
            }
            _ => {}
        }
    }
    let packed = scratch.path().join(TAR);
    machine::run(Command::new("tar").arg("-cf").arg(&packed).arg("-C").arg(&root).arg("."))?;
    std::fs::rename(&packed, tar).context("cannot keep the packed system")
}

/// Downloads the packages and the libraries they need.
fn download(archive: &Archive, into: &Path, asked: &[&str]) -> Result<()> {
    // As if nothing were installed, so that everything that is needed is named.
    let status = into.join("status");
    std::fs::write(&status, "").context("cannot write an empty package database")?;
    let mut apt = archive.command("apt-get");
    apt.arg("-o").arg(format!("Dir::State::status={}", status.display()));
    apt.args(["-o", "APT::Install-Recommends=false", "-qq", "--simulate", "install"]).args(asked);
    let planned = machine::run(&mut apt)?;
    let names = planned.lines().filter_map(|line| line.strip_prefix("Inst ")?.split(' ').next());
    let needed: Vec<&str> = names.filter(|name| is_needed(name, asked)).collect();
    ensure!(asked.iter().all(|name| needed.contains(name)), "apt would not install {asked:?}: {planned}");
    machine::run(archive.command("apt-get").current_dir(into).args(["-qq", "download"]).args(needed))?;
    Ok(())
}

/// Installation itself is not run, so what only it needs is left out.
fn is_needed(package: &str, asked: &[&str]) -> bool {
    let asked = asked.iter().any(|name| package == *name || package.starts_with(&format!("{name}-")));
    asked || (package.starts_with("lib") && !package.contains("perl"))
}

/// Enters a package into the database of the guest's dpkg, as installed. What it depends on may be left out of the guest,
/// so that is not entered.
fn register(package: &Path, root: &Path) -> Result<()> {
    let said = machine::run(Command::new("dpkg-deb").arg("-f").arg(package))?;
    let database = root.join("var/lib/dpkg");
    for directory in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(database.join(directory)).context("cannot make the guest's database")?;
    }
    let name =
        said.lines().find_map(|line| line.strip_prefix("Package: ")).context("a package without a name")?;
    let name = if said.contains("\nMulti-Arch: same") { format!("{name}:amd64") } else { name.to_owned() };
    std::fs::write(database.join(format!("info/{name}.list")), "")
        .context("cannot write the guest's database")?;
    let mut status = File::options()
        .create(true)
        .append(true)
        .open(database.join("status"))
        .context("cannot write the guest's database")?;
    let depends = |line: &&str| line.starts_with("Depends:") || line.starts_with("Pre-Depends:");
    let said: Vec<&str> = said.trim_end().lines().filter(|line| !depends(line)).collect();
    write!(status, "{}\nStatus: install ok installed\n\n", said.join("\n"))
        .context("cannot write the guest's database")
}

/// Unpacks a package without replacing the links of a merged `/usr` by directories.
fn unpack(package: &Path, root: &Path) -> Result<()> {
    let mut files = Command::new("dpkg")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run dpkg")?;
    let stream = files.stdout.take().context("dpkg has no output")?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "--keep-directory-symlink", "-C"]).arg(root).stdin(stream);
    let unpacked = tar.status().context("cannot run tar")?;
    let read = files.wait().context("cannot see to dpkg")?;
    ensure!(unpacked.success() && read.success(), "cannot unpack {}", package.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_what_was_asked_for_are_needed() {
        for (name, needed) in [
            ("systemd", true),
            ("systemd-sysv", true),
            ("dbus-daemon", true),
            ("libc6", true),
            ("libperl5.36", false),
            ("perl-base", false),
            ("debconf", false),
            ("passwd", false),
        ] {
            assert_eq!(is_needed(name, &PACKAGES), needed, "{name}");
        }
        assert!(is_needed("perl-base", &["perl-base"]) && is_needed("dpkg", &["dpkg"]));
    }
}
