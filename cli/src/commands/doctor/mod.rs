//! `evenkeel doctor`: what this node's kernel and permissions allow, and what is wrong with the programs and nodes around it.
//!
//! Owned here: the list of findings and its form. What is looked at is in `kernel` (the machine), `enforce`
//! (knobs and events), `rights` (this process), `neighbours` (other programs), `cluster` (the recommender and its nodes) and `updater` (what
//! changes pods that run). Nothing is changed but this process's own descriptor limit.

mod cluster;
mod enforce;
mod kernel;
mod neighbours;
mod rights;
mod updater;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use evenkeel_host::error::HostError;
use evenkeel_host::roots::Roots;
use jiff::SignedDuration;
use serde::Serialize;

use crate::client::Peers;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::Table;
use crate::wire;

/// Check what this node's kernel and permissions allow, and say what to do about the rest.
///
/// Run it as the agent would run: as the same user, in the same container. The exit status is 1 when a check
/// fails; warnings do not count. docs/doctor.md has a section for each check.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sudo evenkeel doctor
  evenkeel doctor -o json
  evenkeel doctor --wait 2m                  until the agent answers and nothing fails
  evenkeel doctor --all-nodes
  evenkeel doctor --proc /host/proc --cgroup /host/sys/fs/cgroup")]
pub(crate) struct DoctorArgs {
    /// Where the node's procfs is mounted.
    #[arg(long, value_name = "DIR")]
    proc: Option<PathBuf>,
    /// Where the node's cgroup file systems are mounted.
    #[arg(long, value_name = "DIR")]
    cgroup: Option<PathBuf>,
    /// Check again until the agent answers (with --all-nodes the recommender, and all nodes are connected) and nothing fails, at most for
    /// so long, such as 30s or 2m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
    /// Ask the recommender about all nodes and itself, instead of looking at this node.
    #[arg(long, conflicts_with_all = ["proc", "cgroup"])]
    all_nodes: bool,
}

/// Between two looks of `--wait`.
const PAUSE: Duration = Duration::from_millis(500);

fn duration(text: &str) -> Result<Duration, String> {
    let span = text.parse::<SignedDuration>().ok().filter(|span| !span.is_negative());
    span.and_then(|span| Duration::try_from(span).ok())
        .ok_or_else(|| "write a duration such as 30s or 2m".to_owned())
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum CheckStatus {
    Ok,
    Warn,
    Fail,
}

impl CheckStatus {
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
    /// Of which node, where more than one is looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    check: String,
    /// Where the documentation explains it, below `docs/`.
    page: String,
    state: CheckStatus,
    found: String,
    remedy: Option<String>,
}

/// The section of docs/doctor.md about a check: those of a kind share one.
fn section(check: &str) -> String {
    const KINDS: [(&str, &str); 4] = [
        ("controller ", "controllers"),
        ("CAP_", "capabilities"),
        ("agent's ", "agents-certificates"),
        ("node ", "nodes"),
    ];
    if let Some((_, section)) = KINDS.iter().find(|(begin, _)| check.starts_with(begin)) {
        return (*section).to_owned();
    }
    let letters = |c: char| {
        if c.is_ascii_alphanumeric() {
            Some(c.to_ascii_lowercase())
        } else {
            matches!(c, ' ' | '-' | '.').then_some('-')
        }
    };
    check.chars().filter_map(letters).collect()
}

impl Finding {
    fn new(check: String, state: CheckStatus, found: String, remedy: Option<String>) -> Self {
        Self { node: None, page: format!("doctor.md#{}", section(&check)), check, state, found, remedy }
    }

    /// The same about a node.
    fn of_node(self, node: &str) -> Self {
        Self { node: Some(node.to_owned()), ..self }
    }

    fn ok(check: impl Into<String>, found: impl Into<String>) -> Self {
        Self::new(check.into(), CheckStatus::Ok, found.into(), None)
    }

    fn warn(check: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::new(check.into(), CheckStatus::Warn, found.into(), Some(remedy.into()))
    }

    fn fail(check: impl Into<String>, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { state: CheckStatus::Fail, ..Self::warn(check, found, remedy) }
    }

    /// A check the kernel did not let us make; the error's own remedy comes first.
    fn error(check: &str, state: CheckStatus, error: &HostError, remedy: &'static str) -> Self {
        let remedy = error.remedy().unwrap_or(remedy);
        Self { state, ..Self::warn(check, error.to_string(), remedy) }
    }
}

pub(crate) async fn run(args: &DoctorArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    let begun = Instant::now();
    let findings = loop {
        let findings = findings(args, peers).await;
        let waits = args.wait.is_some_and(|wait| begun.elapsed() < wait) && !is_up(&findings);
        if !waits {
            break findings;
        }
        tokio::time::sleep(PAUSE).await;
    };
    output.answer(&findings, || table(&findings))?;
    if args.wait.is_some() {
        return Ok(if is_up(&findings) { YesOrNo::Yes } else { YesOrNo::No });
    }
    let is_sound = findings.iter().all(|f| f.state != CheckStatus::Fail);
    Ok(if is_sound { YesOrNo::Yes } else { YesOrNo::No })
}

async fn findings(args: &DoctorArgs, peers: &Peers<'_>) -> Vec<Finding> {
    if args.all_nodes {
        return cluster::findings(peers.recommender).await;
    }
    let roots = roots(args);
    let mut findings = kernel::findings(&roots);
    findings.extend(enforce::findings(&roots));
    findings.extend(rights::findings(&roots));
    findings.extend(neighbours::findings(&roots, peers).await);
    findings
}

/// Whether nothing fails, and whoever is waited for answers.
fn is_up(findings: &[Finding]) -> bool {
    let waited = ["agent", "recommender"];
    let answers =
        |check: &str| findings.iter().find(|f| f.check == check).is_none_or(|f| f.state == CheckStatus::Ok);
    // On a node the recommender may be another machine's business.
    let is_cluster = !findings.iter().any(|f| f.check == "agent");
    let of_nodes =
        findings.iter().filter(|f| f.check == "node connection").all(|f| f.state == CheckStatus::Ok);
    let waited = if is_cluster { answers(waited[1]) && of_nodes } else { answers(waited[0]) };
    waited && findings.iter().all(|f| f.state != CheckStatus::Fail)
}

fn roots(args: &DoctorArgs) -> Roots {
    let usual = Roots::default();
    let proc = args.proc.clone().unwrap_or_else(|| usual.proc().to_owned());
    let cgroup = args.cgroup.clone().unwrap_or_else(|| usual.cgroup().to_owned());
    Roots::new(proc, cgroup)
}

fn table(findings: &[Finding]) -> Table {
    let has_nodes = findings.iter().any(|f| f.node.is_some());
    let mut titles = if has_nodes { vec!["NODE"] } else { Vec::new() };
    titles.extend(["CHECK", "STATE", "FOUND", "REMEDY"]);
    let mut table = Table::new(&titles);
    for f in findings {
        // What is wrong is explained further where its page says.
        let remedy = f.remedy.as_ref().map(|remedy| format!("{remedy} ({})", f.page));
        let mut row = if has_nodes { vec![f.node.as_deref().unwrap_or("-").into()] } else { Vec::new() };
        row.extend([
            f.check.as_str().into(),
            wire::toned(f.state.name()),
            f.found.as_str().into(),
            remedy.unwrap_or_default().into(),
        ]);
        table.row(row);
    }
    table
}
