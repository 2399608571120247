//! What this machine has and allows: tools, capabilities, the length of run asked for.

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

/// Whether this process is root.
pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Whether this process may write a negative `oom_score_adj` (`CAP_SYS_RESOURCE`).
pub fn may_lower_scores() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_RESOURCE).unwrap_or(false)
}

/// The first of `names` that is not a program on `PATH` or in the usual system directories.
pub fn missing(names: &[&'static str]) -> Option<&'static str> {
    let path = std::env::var("PATH").unwrap_or_default();
    let directories: Vec<&str> = path.split(':').chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"]).collect();
    names.iter().copied().find(|name| {
        !directories.iter().any(|directory| std::path::Path::new(directory).join(name).is_file())
    })
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
