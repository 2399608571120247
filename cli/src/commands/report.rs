//! `evenkeel report`: what enforcing would change on nodes whose agents run dry; or the cluster in one file, which the recommender makes.
//!
//! The recommender knows it by the agents' decisions, of which it keeps the newest (`history.max_events`); of a node whose agent's start is
//! no longer among them it is not known whether these are all. One agent says what stands, whatever was decided when.

mod changes;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use evenkeel_proto::v1::{
    ContainerStatus, ConvergeState, Decision, GetStatusRequest, GetStatusResponse, ListEventsRequest,
    ListNodesRequest, Node,
};
use serde::Serialize;

use super::dashboard::target::Upstream;
use crate::client::{self, Address, Peers};
use crate::failure::Failure;
use crate::output::{Format, Output, YesOrNo, print};
use crate::table::{Cell, Table, Tone};
use crate::wire;
use changes::PendingChanges;

/// Show what enforcing would change on every node, or write what the cluster uses, wastes and risks into one file.
///
/// Agents in mode dry-run take the whole road and write nothing; each value that they would write is a decision, and the recommender keeps
/// the newest of all nodes. NODE is followed by a star where the agent's start is no longer among them: there may be more then, which
/// --this-node shows on the node itself.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel report --would-change
  evenkeel report --would-change --node n1 -o wide
  evenkeel report --would-change --this-node
  evenkeel report --would-change -o json
  evenkeel report --html cluster.html")]
pub(crate) struct ReportArgs {
    /// What enforcing would change.
    #[arg(long, required_unless_present = "html", conflicts_with = "html")]
    would_change: bool,
    /// Write the cluster into one HTML file that can be kept or mailed: without scripts, and nothing is loaded. One that is there is not
    /// replaced; - is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["this_node", "node"])]
    html: Option<PathBuf>,
    /// With --html: the recommender's HTTP interface, https://HOST:PORT, where it is not asked over its socket.
    #[arg(long, value_name = "URL", requires = "html")]
    http: Option<String>,
    /// Ask the agent (--agent) instead of the recommender: what stands on its node, complete.
    #[arg(long, conflicts_with = "node")]
    this_node: bool,
    /// Only of this node.
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

/// The answer.
#[derive(Debug, Default, Serialize)]
struct DryRunReport {
    nodes: Vec<NodeReport>,
    changes: Vec<PendingChange>,
}

/// How much would change on a node.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct NodeReport {
    cluster: String,
    node: String,
    /// enforce or dry-run; absent where the agent's start is no longer known.
    mode: Option<String>,
    containers: u32,
    changes: usize,
    /// Nothing was left out.
    complete: bool,
}

/// A value that would be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct PendingChange {
    node: String,
    /// NAMESPACE/NAME; absent for what is the node's.
    pod: Option<String>,
    container: Option<String>,
    knob: String,
    now: Option<String>,
    then: Option<String>,
    why: String,
}

/// Longest time until the file is told, and its largest size.
const PATIENCE: Duration = Duration::from_secs(60);
const LARGEST: u64 = 32 << 20;

/// Asks the recommender for the file and writes it.
fn html(path: &Path, http: Option<&str>, recommender: &Address) -> Result<YesOrNo, Failure> {
    let text = Upstream::of(http, recommender)?.get(
        "/ui/report",
        recommender.token()?.as_deref(),
        PATIENCE,
        LARGEST,
    )?;
    if path == Path::new("-") {
        print(&text)?;
        return Ok(YesOrNo::Yes);
    }
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|why| {
        let remedy = "name a file that is not there yet, in a directory that you may write";
        Failure::new("cannot write the report", path.display().to_string(), why.to_string(), remedy)
    })?;
    Ok(YesOrNo::Yes)
}

pub(crate) async fn run(args: &ReportArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    if let Some(path) = &args.html {
        return html(path, args.http.as_deref(), peers.recommender);
    }
    let report = if args.this_node {
        let mut agent = client::agent(peers.agent).await?;
        let status = agent.get_status(GetStatusRequest {}).await.map_err(|e| peers.agent.failed(&e))?;
        standing(status.into_inner())
    } else {
        let mut recommender = client::recommender(peers.recommender).await?;
        let failed = |error| peers.recommender.failed(&error);
        let nodes = recommender.list_nodes(ListNodesRequest {}).await.map_err(failed)?.into_inner().nodes;
        let node = args.node.clone().unwrap_or_default();
        let nodes: Vec<Node> = nodes.into_iter().filter(|n| node.is_empty() || n.name == node).collect();
        if nodes.is_empty() && !node.is_empty() {
            let why = "the recommender has heard of no node of this name";
            return Err(Failure::new("cannot report", node, why, "see evenkeel nodes"));
        }
        let asked = ListEventsRequest { node, limit: 0 };
        let events = recommender.list_events(asked).await.map_err(failed)?.into_inner().events;
        told(&nodes, events)
    };
    output.answer_text(&report, || text(&report, output))?;
    Ok(YesOrNo::Yes)
}

/// Kinds of decisions about what is set against pressure for a while, and about deeds: they say nothing of what stands.
const FOR_A_WHILE: [&str; 7] = ["relieve", "release", "starved", "thrash", "kill", "evict", "restart"];

/// What nodes would change by their decisions, oldest first.
fn told(nodes: &[Node], events: Vec<Decision>) -> DryRunReport {
    let mut known = PendingChanges::default();
    events.into_iter().for_each(|event| known.take(event));
    let PendingChanges { standing, started } = known;
    let changes: Vec<PendingChange> = standing.into_values().collect();
    let nodes = nodes.iter().map(|node| NodeReport {
        cluster: node.cluster.clone(),
        node: node.name.clone(),
        mode: started.get(&node.name).cloned(),
        containers: node.containers,
        changes: changes.iter().filter(|change| change.node == node.name).count(),
        complete: started.contains_key(&node.name),
    });
    DryRunReport { nodes: nodes.collect(), changes }
}

/// What an agent would change by its status.
fn standing(status: GetStatusResponse) -> DryRunReport {
    let node = status.node;
    let of_node = |knob: &str, now, then, why: String| PendingChange {
        node: node.clone(),
        pod: None,
        container: None,
        knob: knob.to_owned(),
        now,
        then,
        why,
    };
    let mut changes: Vec<PendingChange> = Vec::new();
    for daemon in status.daemons.iter().filter(|daemon| daemon.state == "would-protect") {
        let now = daemon.actual.map(|score| score.to_string());
        let why = format!("{} (pid {}) is a daemon the node cannot live without", daemon.name, daemon.pid);
        changes.push(of_node("oom_score_adj", now, Some(daemon.wanted.to_string()), why));
    }
    for knob in status.knobs.iter().filter(|knob| knob.state == "would-set") {
        changes.push(of_node(&knob.name, None, None, knob.why.clone()));
    }
    if let Some(cap) = status.workloads_cap.filter(|cap| cap.state == "would-set") {
        let then = cap.cap_bytes.map(|bytes| bytes.to_string());
        changes.push(of_node(&format!("limit of {}", cap.cgroup), None, then, cap.why));
    }
    let managed: Vec<&ContainerStatus> = status.containers.iter().filter(|of| of.managed).collect();
    changes.extend(managed.iter().flat_map(|container| of_container(&node, container)));
    let containers = u32::try_from(status.containers.len()).unwrap_or(u32::MAX);
    let mode = Some(status.mode).filter(|mode| !mode.is_empty());
    let changed = changes.len();
    let row =
        NodeReport { cluster: status.cluster, node, mode, containers, changes: changed, complete: true };
    DryRunReport { nodes: vec![row], changes }
}

fn of_container<'a>(
    node: &'a str,
    container: &'a ContainerStatus,
) -> impl Iterator<Item = PendingChange> + 'a {
    let identity = container.identity.clone().unwrap_or_default();
    let differs = container.knobs.iter().filter(|knob| {
        knob.wanted.is_some() && knob.wanted != knob.actual && knob.state() == ConvergeState::Dirty
    });
    differs.map(move |knob| PendingChange {
        node: node.to_owned(),
        pod: Some(wire::pod(&identity)),
        container: Some(identity.container.clone()),
        knob: knob.name.clone(),
        now: knob.actual.clone(),
        then: knob.wanted.clone(),
        why: knob.reason.clone(),
    })
}

fn text(report: &DryRunReport, output: &Output) -> String {
    let incomplete: BTreeSet<&str> =
        report.nodes.iter().filter(|node| !node.complete).map(|node| node.node.as_str()).collect();
    let starred = |node: &str| {
        let star = if incomplete.contains(node) { "*" } else { "" };
        format!("{node}{star}")
    };
    let changes = output.rendered(&changes(report, output.is_wide(), starred));
    if output.format() == Format::Csv {
        return changes;
    }
    let mut text = output.rendered(&nodes(report, starred));
    if !report.changes.is_empty() {
        text.push('\n');
        text.push_str(&changes);
    }
    if !incomplete.is_empty() {
        text.push_str(
            "\n* the agent's start is no longer among the decisions that the recommender keeps (history.max_events): there may be more; \
             evenkeel report --would-change --this-node says all of it on the node\n",
        );
    }
    text
}

fn nodes(report: &DryRunReport, starred: impl Fn(&str) -> String) -> Table {
    let mut table = Table::new(&["NODE", "MODE", "CONTAINERS", "WOULD-CHANGE"]);
    for node in &report.nodes {
        let count = match (node.changes, node.complete) {
            (0, false) => Cell::toned("not known", Tone::Warn),
            (0, true) => Cell::toned("nothing", Tone::Good),
            (count, _) => count.to_string().into(),
        };
        let mode = node.mode.as_deref().unwrap_or("-");
        table.row(vec![starred(&node.node).into(), mode.into(), node.containers.to_string().into(), count]);
    }
    table
}

fn changes(report: &DryRunReport, wide: bool, starred: impl Fn(&str) -> String) -> Table {
    let mut titles = vec!["NODE", "POD", "CONTAINER", "KNOB", "NOW", "THEN"];
    titles.extend(wide.then_some("WHY"));
    let mut table = Table::new(&titles);
    for change in &report.changes {
        let text = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or("-"));
        let mut row = vec![
            starred(&change.node).into(),
            text(&change.pod),
            text(&change.container),
            change.knob.as_str().into(),
            text(&change.now),
            text(&change.then),
        ];
        row.extend(wide.then(|| change.why.as_str().into()));
        table.row(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(node: &str, pod: &str, kind: &str, knob: Option<&str>, result: &str, new: &str) -> Decision {
        Decision {
            node: node.to_owned(),
            pod: Some(pod.to_owned()).filter(|pod| !pod.is_empty()),
            container: Some("app".to_owned()).filter(|_| !pod.is_empty()),
            kind: kind.to_owned(),
            knob: knob.map(str::to_owned),
            old: Some("0".to_owned()),
            new: Some(new.to_owned()),
            result: result.to_owned(),
            ..Decision::default()
        }
    }

    fn start(node: &str) -> Decision {
        let inputs = [("mode", "dry-run"), ("rules", "kubelet")];
        let inputs = inputs.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Decision { inputs, ..event(node, "", "agent", None, "done", "") }
    }

    #[test]
    fn the_last_word_about_each_knob_counts() {
        let score = Some("oom_score_adj");
        let node = |name: &str| Node { name: name.to_owned(), containers: 2, ..Node::default() };
        let report = told(
            &[node("n1"), node("n2"), node("n3")],
            vec![
                event("n1", "shop/old", "set", score, "would-do", "1000"),
                start("n1"),
                event("n1", "shop/web", "set", score, "would-do", "900"),
                event("n1", "shop/web", "set", score, "would-do", "800"),
                event("n1", "shop/web", "set", Some("memory.min"), "would-do", "1"),
                event("n1", "shop/web", "set", Some("memory.min"), "done", "1"),
                event("n1", "shop/gone", "set", score, "would-do", "7"),
                event("n1", "shop/gone", "gone", None, "done", ""),
                event("n1", "", "node", Some("vm.overcommit_memory"), "would-do", "1"),
                event("n2", "shop/web", "set", score, "would-do", "5"),
                start("n3"),
            ],
        );
        let changes = report.changes.iter().map(|change| {
            let pod = change.pod.as_deref().unwrap_or("-");
            format!("{} {pod} {} {}", change.node, change.knob, change.then.as_deref().unwrap_or("-"))
        });
        assert_eq!(
            changes.collect::<Vec<_>>(),
            ["n1 - vm.overcommit_memory 1", "n1 shop/web oom_score_adj 800", "n2 shop/web oom_score_adj 5"]
        );
        let nodes = report.nodes.iter().map(|node| (node.node.as_str(), node.changes, node.complete));
        assert_eq!(nodes.collect::<Vec<_>>(), [("n1", 2, true), ("n2", 1, false), ("n3", 0, true)]);
        assert_eq!(report.nodes[0].mode.as_deref(), Some("dry-run"));
    }
}
