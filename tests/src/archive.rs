//! Debian's package archive as apt sees it: the machine's own index, or a private one of another release from the same
//! mirror. Owns the options that keep the private index apart; never the machine's sources or what is installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::machine;

/// What signs Debian's archives, of the release that comes next too.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An index to look packages up in.
#[derive(Debug)]
pub(crate) struct Archive {
    options: Vec<String>,
}

impl Archive {
    /// The machine's own.
    pub(crate) fn own() -> Archive {
        Archive { options: vec!["APT::Sandbox::User=root".to_string()] }
    }

    /// That of a Debian release by its name, with lists of its own in `state`.
    ///
    /// # Errors
    ///
    /// Fails when this machine takes no packages from a mirror of Debian.
    pub(crate) fn of(suite: &str, state: &Path) -> Result<Archive> {
        let lists = state.join("lists");
        std::fs::create_dir_all(lists.join("partial"))
            .with_context(|| format!("cannot create {}", lists.display()))?;
        let sources = state.join("sources.list");
        let line = format!("deb [signed-by={KEYRING}] {} {suite} main\n", mirror()?);
        std::fs::write(&sources, line).with_context(|| format!("cannot write {}", sources.display()))?;
        let mut archive = Archive::own();
        let paths: [(&str, PathBuf); 4] = [
            ("Etc::sourcelist", sources),
            ("Etc::sourceparts", "-".into()),
            ("State::lists", lists),
            ("Cache", state.to_path_buf()),
        ];
        archive.options.extend(paths.map(|(key, path)| format!("Dir::{key}={}", path.display())));
        Ok(archive)
    }

    /// A program of apt that uses this index.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for option in &self.options {
            command.args(["-o", option]);
        }
        command
    }

    /// Fetches the index.
    ///
    /// # Errors
    ///
    /// Fails when apt cannot, for example because no mirror answers.
    pub(crate) fn update(&self) -> Result<()> {
        machine::run(self.command("apt-get").args(["-qq", "update"])).map(|_| ())
    }
}

/// The mirror this machine gets the packages of its own release from.
fn mirror() -> Result<String> {
    let release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.context("/etc/os-release names no release")?.trim_matches('"');
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(CREATED_BY) $(RELEASE) $(REPO_URI)"]);
    let known = machine::run(&mut apt)?;
    let prefix = format!("Packages {suite} ");
    let uris = known.lines().filter_map(|line| line.strip_prefix(prefix.as_str()));
    let found = uris.into_iter().find(|uri| uri.trim_end_matches('/').ends_with("/debian"));
    Ok(found.with_context(|| format!("apt has no mirror of Debian for {suite}"))?.to_string())
}
