//! What this machine has and allows: tools, capabilities, the length of run asked for.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use caps::{CapSet, Capability};

/// Whether the long forms of the tests are wanted, as `scripts/test --full` says.
pub fn full() -> bool {
    std::env::var("EVENKEEL_FULL").is_ok_and(|value| value == "1")
}

/// `short` in an ordinary run, `long` in a full one.
pub fn scaled<T>(short: T, long: T) -> T {
    if full() { long } else { short }
}

/// Whether this is a guest whose processor is emulated, in which forks take several times as long.
pub fn is_emulated() -> bool {
    std::env::var_os("EVENKEEL_EMULATED").is_some()
}

/// Whether this process is root.
pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Whether this process may write a negative `oom_score_adj` (`CAP_SYS_RESOURCE`).
pub fn may_lower_scores() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE).unwrap_or(false)
}

/// Where programs are looked for: `PATH`, and the system directories it lacks for ordinary users of Debian.
pub fn path() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin")
}

/// Path of a program in one of the directories of [`path`].
///
/// # Errors
///
/// Fails when there is none.
pub fn find(name: &str) -> Result<PathBuf> {
    let path = path();
    let found = path.split(':').map(|directory| Path::new(directory).join(name)).find(|path| path.is_file());
    found.with_context(|| format!("{name} is not installed"))
}

/// The first of `names` that is not a program in one of the directories of [`path`].
pub fn missing(names: &[&'static str]) -> Option<&'static str> {
    names.iter().copied().find(|name| find(name).is_err())
}

/// Runs a command to its end and returns what it printed.
///
/// # Errors
///
/// Fails when it cannot be started or does not exit with 0; the text has its command line and its messages.
pub fn run(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
