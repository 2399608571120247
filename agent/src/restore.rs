//! `evenkeel-agent restore`: puts back what knobs held before the agent first wrote them, and prints what became of each.

use std::os::unix::net::UnixStream;

use anyhow::bail;
use evenkeel_enforce::restore::{Report, everything};
use evenkeel_model::shown;

use crate::cli::Output;
use crate::config::Config;
use crate::{machine, systemd};

/// Puts everything back and prints a line for each. True when nothing failed.
///
/// # Errors
/// When the agent is running, the journal cannot be read, or the kernel's files are not there.
pub(crate) fn run(config: &Config, output: Output) -> anyhow::Result<bool> {
    let socket = &config.serve.socket;
    if UnixStream::connect(socket).is_ok() {
        bail!("an agent answers on {} and would set everything again; stop it first", socket.display());
    }
    let _lock = machine::only_agent(config)?;
    let reports = everything(&config.enforce, systemd::open)?;
    print(&reports, output)?;
    Ok(!reports.iter().any(Report::is_failed))
}

fn print(reports: &[Report], output: Output) -> anyhow::Result<()> {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
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
