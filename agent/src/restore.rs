//! `evenkeel-agent restore`: puts back what knobs held before the agent first wrote them, and prints what became of each. With `--purge`, what
//! the agent keeps on the machine goes after that.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, bail};
use evenkeel_enforce::config::Mode;
use evenkeel_enforce::restore::{Report, everything};
use evenkeel_model::shown;

use crate::cli::Output;
use crate::config::Config;
use crate::{machine, systemd};

/// Puts everything back and prints a line for each. True when nothing failed.
///
/// # Errors
/// When the agent is running, the journal cannot be read, or the kernel's files are not there.
pub(crate) fn run(config: &Config, output: Output, purge: bool) -> anyhow::Result<bool> {
    let socket = &config.serve.socket;
    if UnixStream::connect(socket).is_ok() {
        bail!("an agent answers on {} and would set everything again; stop it first", socket.display());
    }
    let _lock = machine::only_agent(config)?;
    let reports = everything(&config.enforce, systemd::open)?;
    print(&reports, output)?;
    let is_restored = !reports.iter().any(Report::is_failed);
    if purge && is_restored && config.enforce.mode == Mode::Enforce {
        remove(config)?;
    }
    Ok(is_restored)
}

/// Removes what the agent keeps. The state directory may be a mount, as in a pod: then it stays, empty.
fn remove(config: &Config) -> anyhow::Result<()> {
    let state = &config.enforce.state_dir;
    for entry in fs::read_dir(state).with_context(|| format!("cannot list {}", state.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", state.display()))?.path();
        let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        gone(removed, &path)?;
    }
    let removed = fs::remove_dir(state);
    if !removed.as_ref().is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
        gone(removed, state)?;
    }
    for path in [&config.serve.socket, &machine::lock(config)] {
        gone(fs::remove_file(path), path)?;
    }
    Ok(())
}

fn gone(removed: io::Result<()>, path: &Path) -> anyhow::Result<()> {
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn print(reports: &[Report], output: Output) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = io::stdout().lock();
    match output {
        Output::Json => writeln!(out, "{}", shown::json(serde_json::to_string_pretty(reports)?))?,
        Output::Table if reports.is_empty() => writeln!(out, "nothing to restore: the journal is empty")?,
        Output::Table => {
            let (gone, there): (Vec<&Report>, Vec<&Report>) = reports.iter().partition(|r| r.is_gone());
            for r in there {
                let line = format!("{} {}: {} -> {}: {}", r.target, r.knob, r.set, r.original, r.result);
                writeln!(out, "{}", shown::plain(&line))?;
            }
            if !gone.is_empty() {
                writeln!(out, "{} processes and cgroups are gone", gone.len())?;
            }
        }
    }
    Ok(())
}
