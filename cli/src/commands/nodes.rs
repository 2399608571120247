//! `evenkeel nodes`: the nodes a recommender hears from.

use std::io::Write as _;

use clap::Args;
use evenkeel_proto::v1::{self, ListNodesRequest, Node};
use serde::Serialize;

use super::allocated::{self, Allocated};
use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, clean};
use crate::wire::{self, Dropped};

/// Show the nodes the recommender hears from, and what is allocated of them.
///
/// CPU-OF and MEM-OF are what pods may request; percentages are of it. Recommended are the requests that rest on two days of
/// history, and the present ones of the rest. A plus beside limits means that some containers have none. OTHERS (wide) are resources
/// that agents' configurations state (`node.allocatable`), and what pods whose manifests are known request of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel nodes
  evenkeel nodes -o wide
  evenkeel nodes -o json")]
pub(crate) struct NodesArgs {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeRow {
    cluster: String,
    node: String,
    version: String,
    connected: bool,
    last_seen: Option<String>,
    containers: u32,
    memory_bytes: Option<u64>,
    cpu_milli: Option<u64>,
    /// Speed of a core over that of the canonical one, in which CPU is told.
    cpu_conversion_factor: Option<f64>,
    frames: u64,
    samples: u64,
    gap_seconds: u64,
    gone: bool,
    refused_containers: u64,
    clock_behind_seconds: f64,
    /// What was not taken in of what it said.
    dropped: Vec<Dropped>,
    allocated: Option<Allocated>,
}

impl From<Node> for NodeRow {
    fn from(n: Node) -> Self {
        Self {
            cluster: n.cluster,
            node: n.name,
            version: n.version,
            connected: n.connected,
            last_seen: wire::time(n.last_seen_usec),
            containers: n.containers,
            memory_bytes: n.facts.as_ref().map(|f| f.memory_bytes),
            cpu_milli: n.facts.as_ref().map(|f| f.cpu_milli),
            cpu_conversion_factor: n.facts.as_ref().map(factor),
            frames: n.frames,
            samples: n.samples,
            gap_seconds: n.gaps,
            gone: n.gone,
            refused_containers: n.refused_containers,
            clock_behind_seconds: n.clock_behind_usec as f64 / 1e6,
            dropped: n.dropped.into_iter().map(Dropped::from).collect(),
            allocated: n.allocated.map(Allocated::from),
        }
    }
}

/// An agent that knows no factor tells 0.
fn factor(facts: &v1::NodeFacts) -> f64 {
    if facts.cpu_conversion_milli == 0 { 1.0 } else { f64::from(facts.cpu_conversion_milli) / 1000.0 }
}

impl NodeRow {
    /// `gone` is a node whose containers do not count any more.
    fn state(&self) -> &'static str {
        match (self.connected, self.gone) {
            (true, _) => "connected",
            (false, false) => "disconnected",
            (false, true) => "gone",
        }
    }
}

pub(crate) async fn run(_: &NodesArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let mut recommender = client::recommender(address).await?;
    let answer = recommender.list_nodes(ListNodesRequest {}).await.map_err(|e| address.failed(&e))?;
    let v1::ListNodesResponse { nodes, clock_trouble, troubles, .. } = answer.into_inner();
    let rows: Vec<NodeRow> = nodes.into_iter().map(NodeRow::from).collect();
    output.answer(&rows, || table(&rows, output.is_wide()))?;
    for trouble in troubles.values().chain([&clock_trouble]).filter(|trouble| !trouble.is_empty()) {
        // Whoever reads the table sees it; scripts read metrics and /readyz.
        let _unread = writeln!(std::io::stderr(), "evenkeel: {}", clean(trouble));
    }
    Ok(YesOrNo::Yes)
}

fn table(rows: &[NodeRow], wide: bool) -> Table {
    let amounts = allocated::titles(wide);
    let mut titles = vec!["CLUSTER", "NODE", "STATE", "LAST-SEEN", "CONTAINERS"];
    titles.extend(amounts.iter().map(String::as_str));
    titles.extend(["SAMPLES", "GAPS"]);
    if wide {
        titles.extend(["VERSION", "FRAMES", "REFUSED", "DROPPED", "CLOCK-BEHIND", "CPU-FACTOR", "OTHERS"]);
    }
    let mut table = Table::new(&titles);
    for r in rows {
        let mut row: Vec<Cell> = vec![
            r.cluster.as_str().into(),
            r.node.as_str().into(),
            wire::toned(r.state()),
            r.last_seen.as_deref().unwrap_or("-").into(),
            r.containers.to_string().into(),
        ];
        row.extend(allocated::cells(r.allocated.as_ref(), wide));
        row.extend([Cell::from(r.samples.to_string()), r.gap_seconds.to_string().into()]);
        if wide {
            row.extend([
                Cell::from(r.version.as_str()),
                r.frames.to_string().into(),
                r.refused_containers.to_string().into(),
                wire::dropped(&r.dropped).into(),
                format!("{:.1}s", r.clock_behind_seconds).into(),
                r.cpu_conversion_factor.map_or("-".to_owned(), |factor| factor.to_string()).into(),
                allocated::others(r.allocated.as_ref()),
            ]);
        }
        table.row(row);
    }
    table
}
