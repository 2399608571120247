//! `evenkeel doctor`: what this node's kernel and permissions allow.
//!
//! Owned here: the list of findings and its form. What is looked at is in `kernel` (the machine), `enforce`
//! (knobs and events), `rights` (this process) and `neighbours` (other programs). Nothing is changed but this process's own descriptor limit.

mod enforce;
mod kernel;
mod neighbours;
mod rights;

use std::path::PathBuf;

use clap::Args;
use evenkeel_host::error::HostError;
use evenkeel_host::roots::Roots;
use serde::Serialize;

use crate::client::Peers;
use crate::failure::Failure;
use crate::output::{Answer, Output};
use crate::table::Table;
use crate::wire;

/// Check what this node's kernel and permissions allow, and say what to do about the rest.
///
/// Run it as the agent would run: as the same user, in the same container. The exit status is 1 when a check
/// fails; warnings do not count.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo evenkeel doctor
  evenkeel doctor -o json
  evenkeel doctor --proc /host/proc --cgroup /host/sys/fs/cgroup")]
pub(crate) struct DoctorArgs {
    /// Where the node's procfs is mounted.
    #[arg(long, value_name = "DIR")]
    proc: Option<PathBuf>,
    /// Where the node's cgroup file systems are mounted.
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Warn,
    Fail,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

/// One check.
#[derive(Debug, Serialize)]
struct Finding {
    check: String,
    state: State,
    found: String,
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self { check: check.into(), state: State::Ok, found: found.into(), remedy: None }
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.into(), state: State::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: State::Fail, ..Self::warn(check, found, remedy) }
    }

    /// A check the kernel did not let us make; the error's own remedy comes first.
    fn error(check: &str, state: State, error: &HostError, remedy: &'static str) -> Self {
        let remedy = error.remedy().unwrap_or(remedy);
        Self { state, ..Self::warn(check, error.to_string(), remedy) }
    }
}

pub(crate) async fn run(args: &DoctorArgs, peers: &Peers<'_>, output: &Output) -> Result<Answer, Failure> {
    let roots = roots(args);
    let mut findings = kernel::findings(&roots);
    findings.extend(enforce::findings(&roots));
    findings.extend(rights::findings(&roots));
    findings.extend(neighbours::findings(&roots, peers).await);
    output.answer(&findings, || table(&findings))?;
    let is_sound = findings.iter().all(|f| f.state != State::Fail);
    Ok(if is_sound { Answer::Yes } else { Answer::No })
}

fn roots(args: &DoctorArgs) -> Roots {
    let usual = Roots::default();
    let proc = args.proc.clone().unwrap_or_else(|| usual.proc().to_owned());
    let cgroup = args.cgroup.clone().unwrap_or_else(|| usual.cgroup().to_owned());
    Roots::new(proc, cgroup)
}

fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["CHECK", "STATE", "FOUND", "REMEDY"]);
    for f in findings {
        table.row(vec![
            f.check.as_str().into(),
            wire::toned(f.state.name()),
            f.found.as_str().into(),
            f.remedy.as_deref().unwrap_or("").into(),
        ]);
    }
    table
}
