//! What-if options of `evenkeel capacity`, each answered under a key of its own name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use evenkeel_capacity::admission::admit;
use evenkeel_capacity::answer::{Ask, ask};
use evenkeel_capacity::cluster::{Cluster, NodeIndex, Pod};
use evenkeel_capacity::object::{Metadata, Node, NodeStatus, ResourceList};
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::scenario::{self, Addition, DaemonAnswer, Displaced, NodeType, Preemption, Trials};
use evenkeel_capacity::state::State;
use evenkeel_model::quantity::Quantity;
use serde::Serialize;

use super::Progress;
use super::read::Recommendations;
use crate::client::Address;
use crate::failure::Failure;

/// Label that names a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What-if options.
#[derive(Debug, Args)]
#[command(next_help_heading = "What if")]
pub(crate) struct WhatIf {
    /// Let ties fall by this seed instead of to the smallest name.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Let ties fall in so many ways and tell the smallest, middle and largest count.
    #[arg(long, value_name = "N")]
    trials: Option<u64>,
    /// Count with displacing pods of lower priority.
    #[arg(long)]
    preempt: bool,
    /// Lose a node (any one in turn with "node" or "any"), a node by name, or a zone with zone=Z.
    #[arg(long, value_name = "node|NAME|zone=Z|any")]
    lose: Vec<String>,
    /// Drain this node: do its pods find another place?
    #[arg(long, value_name = "NAME")]
    drain: Vec<String>,
    /// How many nodes to add by type, from a table with name, cpu, memory and, where known, other columns.
    #[arg(long, value_name = "TYPES.csv")]
    add: Option<PathBuf>,
    /// The pod is a daemon: does it fit on every node it belongs to, in place of the present one of its name?
    #[arg(long)]
    daemonset: bool,
    /// Count with recommended instead of current requests: "recommended" asks the recommender, a file holds what
    /// "evenkeel recommend -o json" printed.
    #[arg(long, value_name = "recommended|FILE")]
    what_if: Option<String>,
}

/// Answers by the name of the option.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trials: Option<Trials>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preempt: Option<Preemption>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) lose: Vec<Displaced>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) drain: Vec<Displaced>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) add: Option<Vec<Addition>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) daemonset: Option<DaemonAnswer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recommended: Option<Recommended>,
}

/// The count with recommended requests.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Recommended {
    /// How many fit then.
    pub(super) count: u64,
    /// Requests that were replaced, in the snapshot and in the pods asked about.
    pub(super) requests: usize,
    /// Why not one more then.
    pub(super) message: String,
}

/// What the options are asked about.
pub(super) struct Question<'a> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) profiles: &'a Profiles,
    pub(super) state: State,
    pub(super) ask: &'a Ask,
    pub(super) count: u64,
    pub(super) need: Option<u64>,
    pub(super) progress: &'a mut Progress,
}

impl Question<'_> {
    /// The first shape as its namespace makes it.
    fn shape(&mut self, tolerant: bool) -> Result<Arc<Pod>, Failure> {
        let mut pod = admit(self.cluster, self.ask.shapes[0].pod.clone()).pod;
        if tolerant {
            scenario::daemon_tolerations(&mut pod);
        }
        self.cluster
            .shape(&pod)
            .map(Arc::new)
            .map_err(|e| Failure::new("cannot count", "the pod", e.to_string(), "correct the pod"))
    }

    fn node(&self, option: &str, name: &str) -> Result<NodeIndex, Failure> {
        self.cluster.node(name).ok_or_else(|| {
            let why = format!("no node of the snapshot is named {name}");
            Failure::new("cannot try that", option, why, "give the name of a node")
        })
    }
}

impl WhatIf {
    /// Recommended requests, where they were asked for.
    pub(super) async fn recommendations(
        &self,
        address: &Address,
    ) -> Result<Option<Recommendations>, Failure> {
        match self.what_if.as_deref() {
            None => Ok(None),
            Some("recommended") => Recommendations::ask(address).await.map(Some),
            Some(file) => Recommendations::read(Path::new(file)).map(Some),
        }
    }

    /// Answers every option that was given.
    pub(super) fn answer(&self, question: &mut Question<'_>) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        if self.trials.is_some() || self.seed.is_some() {
            let pod = question.shape(false)?;
            let how = (self.seed.unwrap_or(0), self.trials.unwrap_or(1));
            let max = question.ask.max;
            answers.trials =
                Some(scenario::trials(question.cluster, question.profiles, &question.state, &pod, max, how));
        }
        if self.preempt {
            let pod = question.shape(false)?;
            let progress = &mut *question.progress;
            let max = question.ask.max;
            answers.preempt = Some(scenario::preempt(
                question.cluster,
                question.profiles,
                &question.state,
                &pod,
                max,
                &mut |done| progress.tell(done),
            ));
        }
        for lost in &self.lose {
            answers.lose.extend(lose(question, lost)?);
        }
        for name in &self.drain {
            let node = question.node("--drain", name)?;
            answers.drain.push(scenario::displace(
                question.cluster,
                question.profiles,
                &question.state,
                &[node],
            ));
        }
        if let Some(file) = &self.add {
            let missing = question.need.unwrap_or(question.count + 1).saturating_sub(question.count);
            let pod = admit(question.cluster, question.ask.shapes[0].pod.clone()).pod;
            answers.add = Some(scenario::add(question.profiles, &pod, missing, &node_types(file)?));
        }
        if self.daemonset {
            let name = question.ask.shapes[0].pod.metadata.name.clone();
            let pod = question.shape(true)?;
            answers.daemonset =
                Some(scenario::daemon(question.cluster, question.profiles, &question.state, pod, &name));
        }
        Ok(answers)
    }
}

fn lose(question: &mut Question<'_>, lost: &str) -> Result<Vec<Displaced>, Failure> {
    let try_one = |question: &Question<'_>, nodes: &[NodeIndex]| {
        scenario::displace(question.cluster, question.profiles, &question.state, nodes)
    };
    if let Some(zone) = lost.strip_prefix("zone=") {
        let zones = scenario::groups(question.cluster, ZONE);
        let nodes = zones.get(zone).ok_or_else(|| {
            let known = zones.keys().cloned().collect::<Vec<_>>().join(", ");
            let why = format!("no node is in zone {zone}; zones are {known}");
            Failure::new("cannot try that", "--lose", why, "give one of these zones")
        })?;
        return Ok(vec![try_one(question, nodes)]);
    }
    if !matches!(lost, "node" | "any") {
        let node = question.node("--lose", lost)?;
        return Ok(vec![try_one(question, &[node])]);
    }
    let mut all = Vec::new();
    for node in 0..question.cluster.nodes.len() {
        question.progress.tell(node as u64);
        all.push(try_one(question, &[node]));
    }
    // The worst first; who loses nothing is not worth a line.
    all.sort_by_key(|lost| std::cmp::Reverse(lost.failed.len()));
    Ok(all)
}

/// Counts with recommended requests in the snapshot and in the shapes.
pub(super) fn recommended(
    cluster: &mut Cluster,
    profiles: &Profiles,
    asked: &Ask,
    recommendations: &Recommendations,
) -> Result<Recommended, Failure> {
    let mut shapes = asked.shapes.clone();
    shapes.iter_mut().for_each(|shape| recommendations.apply(&mut shape.pod));
    let question = Ask {
        shapes,
        reserve: asked.reserve.clone(),
        max: asked.max,
        first: asked.first.clone(),
        ..Ask::default()
    };
    let mut state = State::new(cluster);
    let answer = ask(cluster, profiles, &mut state, &question, &mut |_| true).map_err(|e| {
        Failure::new("cannot count", "recommended requests", e.to_string(), "correct the pod")
    })?;
    Ok(Recommended { count: answer.count, requests: recommendations.applied(), message: answer.message })
}

/// Columns of a type that are not resources.
const NOT_RESOURCES: [&str; 7] =
    ["name", "architecture", "operating_systems", "price_on_demand", "price_spot", "price", "zones"];

/// Reads node types: a table with a head; columns are resources, except for a few.
fn node_types(path: &Path) -> Result<Vec<NodeType>, Failure> {
    let name = path.display().to_string();
    let failed = |why: String| {
        Failure::new(
            "cannot use the node types",
            &name,
            why,
            "give CSV with a head: name,cpu,memory,pods,price",
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let head: Vec<&str> =
        lines.next().map(|(_, line)| line.split(',').map(str::trim).collect()).unwrap_or_default();
    if !head.contains(&"name") || !head.contains(&"cpu") || !head.contains(&"memory") {
        return Err(failed("the first line does not name the columns name, cpu and memory".to_owned()));
    }
    lines
        .map(|(line, text)| node_type(&head, text).map_err(|why| failed(format!("line {}: {why}", line + 1))))
        .collect()
}

fn node_type(head: &[&str], line: &str) -> Result<NodeType, String> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    if cells.len() != head.len() {
        return Err(format!("{} cells, but {} columns", cells.len(), head.len()));
    }
    let row: BTreeMap<&str, &str> = head.iter().copied().zip(cells).collect();
    let mut allocatable = ResourceList::new();
    for (column, cell) in
        row.iter().filter(|(column, cell)| !NOT_RESOURCES.contains(column) && !cell.is_empty())
    {
        let amount: Quantity = cell.parse().map_err(|error| format!("{column}: {error}"))?;
        allocatable.insert(column.replace('_', "-"), amount);
    }
    allocatable.entry("pods".to_owned()).or_insert(Quantity::from_units(110));
    let price = ["price", "price_on_demand"]
        .iter()
        .find_map(|column| row.get(column))
        .filter(|cell| !cell.is_empty());
    let price = match price {
        Some(cell) => Some(
            cell.parse::<f64>()
                .ok()
                .filter(|p| p.is_finite())
                .ok_or(format!("price: {cell:?} is not a number"))?,
        ),
        None => None,
    };
    let first =
        |column: &str| row.get(column).and_then(|cell| cell.split('|').next()).unwrap_or("").to_owned();
    let mut labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), row["name"].to_owned())]);
    for (label, column) in
        [("kubernetes.io/arch", "architecture"), ("kubernetes.io/os", "operating_systems"), (ZONE, "zones")]
    {
        if row.contains_key(column) {
            labels.insert(label.to_owned(), first(column));
        }
    }
    let metadata = Metadata { name: row["name"].to_owned(), labels, ..Metadata::default() };
    let status = NodeStatus { allocatable, ..NodeStatus::default() };
    Ok(NodeType { name: row["name"].to_owned(), node: Node { metadata, status, ..Node::default() }, price })
}
