//! `evenkeel-agent restore`: puts back what knobs held before the agent first wrote them, and prints what became of each. With `--purge`, what
//! the agent keeps on the machine goes after that.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use evenkeel_enforce::config::Mode;
use evenkeel_enforce::restore::{RestoreReport, everything};
use evenkeel_enforce::systemd::bus;
use evenkeel_model::shown;

use crate::cli::Output;
use crate::config::Config;
use crate::{machine, program};

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
    let reports = everything(&config.enforce, bus::open)?;
    print(&reports, output)?;
    let is_restored = !reports.iter().any(RestoreReport::is_failed);
    if purge && is_restored && config.enforce.mode == Mode::Enforce {
        remove(config)?;
    }
    Ok(is_restored)
}

/// What the agent makes in its state directory, without extensions; the replacement of a file ends with `.new` while it is written.
const OWN: [&str; 12] = [
    "admitted",
    "decisions",
    "events",
    "identity",
    "journal",
    "node",
    "oom-counters",
    "overlay",
    "pods",
    "ring",
    "spool",
    "transients",
];
/// What a file system has at its root.
const LOST_AND_FOUND: &str = "lost+found";
/// Names that are told one by one.
const TOLD: usize = 5;

/// Removes what the agent keeps.
fn remove(config: &Config) -> anyhow::Result<()> {
    empty(&config.enforce.state_dir)?;
    for path in [&config.serve.socket, &machine::lock(config)] {
        gone(fs::remove_file(path), path)?;
    }
    Ok(())
}

/// Removes the state directory, which stays, empty, where it is a mount, as in a pod. One that holds anything the agent does not make is
/// another directory, by a mistake in `state_dir`: then nothing of it is removed.
fn empty(state: &Path) -> anyhow::Result<()> {
    let listed = || format!("cannot list {}", state.display());
    let entries =
        fs::read_dir(state).with_context(listed)?.collect::<io::Result<Vec<_>>>().with_context(listed)?;
    let paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    let is_own = |path: &&PathBuf| {
        let is_known = |extension: &OsStr| ["json", "jsonl", "new"].iter().any(|known| extension == *known);
        path.extension().is_none_or(is_known)
            && OWN.iter().any(|own| path.file_stem() == Some(OsStr::new(own)))
    };
    let (own, others): (Vec<_>, Vec<_>) = paths.iter().partition(is_own);
    let names: Vec<_> =
        others.iter().filter_map(|path| path.file_name()).filter(|name| *name != LOST_AND_FOUND).collect();
    if !names.is_empty() {
        let told: Vec<String> =
            names.iter().take(TOLD).map(|name| shown::plain(&name.to_string_lossy())).collect();
        let more = names
            .len()
            .checked_sub(TOLD + 1)
            .map_or_else(String::new, |more| format!(" and {} more", more + 1));
        bail!(
            "nothing was removed: {} holds {}{more}, which the agent does not make; see whether state_dir is right, or move it away",
            state.display(),
            told.join(", ")
        );
    }
    for path in own {
        let is_directory = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        gone(if is_directory { fs::remove_dir_all(path) } else { fs::remove_file(path) }, path)?;
    }
    let removed = fs::remove_dir(state);
    let stays = [ErrorKind::ResourceBusy, ErrorKind::DirectoryNotEmpty];
    if !removed.as_ref().is_err_and(|error| stays.contains(&error.kind())) {
        gone(removed, state)?;
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

fn print(reports: &[RestoreReport], output: Output) -> anyhow::Result<()> {
    if output == Output::Json {
        return program::write(&format!("{}\n", shown::json(serde_json::to_string_pretty(reports)?)));
    }
    if reports.is_empty() {
        return program::write("nothing to restore: the journal is empty\n");
    }
    let (gone, there): (Vec<&RestoreReport>, Vec<&RestoreReport>) = reports.iter().partition(|r| r.is_gone());
    let mut text = String::new();
    for r in there {
        let line = format!("{} {}: {} -> {}: {}", r.target, r.knob, r.set, r.original, r.result);
        text += &format!("{}\n", shown::plain(&line));
    }
    if !gone.is_empty() {
        text += &format!("{} processes and cgroups are gone\n", gone.len());
    }
    program::write(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_the_agents_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("var");
        for folder in ["spool/old", "ring", "log"] {
            fs::create_dir_all(state.join(folder)).unwrap();
        }
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        for file in ["journal.jsonl", "overlay.new", "passwd"] {
            fs::write(state.join(file), "").unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, state.join("identity")).unwrap();
        let refused = empty(&state).unwrap_err().to_string();
        assert!(refused.contains("nothing was removed") && refused.contains("state_dir"), "{refused}");
        assert!(
            refused.contains("log") && refused.contains("passwd") && !refused.contains("spool"),
            "{refused}"
        );
        assert!(state.join("spool/old").exists() && state.join("journal.jsonl").exists());
        fs::remove_dir(state.join("log")).unwrap();
        fs::remove_file(state.join("passwd")).unwrap();
        empty(&state).unwrap();
        assert!(!state.exists());
        assert_eq!(fs::read_to_string(elsewhere).unwrap(), "kept");
    }
}
