//! `evenkeel capacity`: how many more pods fit, where, and why not one more, from a saved cluster.

mod read;
mod scenarios;
mod text;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use evenkeel_capacity::admission;
use evenkeel_capacity::answer::{self, Ask, Shape, Steps};
use evenkeel_capacity::cluster::selector::Selector;
use evenkeel_capacity::cluster::{Cluster, Node};
use evenkeel_capacity::load::Report;
use evenkeel_capacity::object::{LabelSelector, Requirement, ResourceList};
use evenkeel_capacity::profile::{Profile, Profiles, Version};
use evenkeel_capacity::state::State;
use evenkeel_model::quantity::Quantity;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{Answer, Output};
use scenarios::WhatIf;

/// Count how many more pods fit a saved cluster, as kube-scheduler would place them.
///
/// Several pods are counted in complete sets. The exit status is 1 when none fits, or fewer than --need.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  kubectl get nodes,pods,namespaces,quota,limits,pv,pvc,sc,csinodes -A -o json > cluster.json
  evenkeel capacity -f pod.yaml --snapshot cluster.json
  evenkeel capacity -f web.yaml -f db.yaml --snapshot cluster.json --max 20 -o json
  evenkeel capacity -f pod.yaml --snapshot cluster.json --lose any
  evenkeel capacity -f pod.yaml --snapshot cluster.json --need 50 --add types.csv")]
pub(crate) struct CapacityArgs {
    /// Pods, or what makes pods (a Deployment counts with its replicas), in YAML or JSON.
    #[arg(short, long = "file", num_args = 1.., required_unless_present = "largest", value_name = "POD")]
    files: Vec<PathBuf>,
    /// Kubernetes objects in YAML or JSON; several files are one cluster; - is standard input.
    #[arg(long, num_args = 1.., required = true, value_name = "FILE")]
    snapshot: Vec<PathBuf>,
    /// Pods placed first, in file order.
    #[arg(long, value_name = "PODS")]
    place: Vec<PathBuf>,
    /// Stop after so many.
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// Exit with 1 when fewer than this fit.
    #[arg(long, value_name = "N")]
    need: Option<u64>,
    /// Show the first K placings with scores, or the node of every one with "all".
    #[arg(long, value_name = "K|all", value_parser = steps)]
    steps: Option<Steps>,
    /// Ask for this namespace, whatever the pods say.
    #[arg(long, value_name = "NS")]
    namespace: Option<String>,
    /// Ask for the largest pod the namespace's limit ranges allow.
    #[arg(long)]
    largest: bool,
    /// Only nodes with these labels, such as pool=a,gpu.
    #[arg(long, value_name = "SELECTOR")]
    nodes: Option<String>,
    /// Leave these nodes out.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    exclude_nodes: Vec<String>,
    /// Amounts that must stay free over all nodes, such as cpu=2,memory=2Gi.
    #[arg(long, value_delimiter = ',', value_name = "RESOURCE=AMOUNT")]
    reserve: Vec<String>,
    /// Profiles from a KubeSchedulerConfiguration.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Version whose rules hold where they differ.
    #[arg(long, value_name = "VERSION", value_parser = ["1.34", "1.36"], default_value = "1.36")]
    scheduler_version: String,
    #[command(flatten)]
    what_if: WhatIf,
}

fn steps(text: &str) -> Result<Steps, String> {
    if text == "all" {
        return Ok(Steps::All);
    }
    text.parse().map(Steps::First).map_err(|_| "give a number, or all".to_owned())
}

/// Everything the command answers.
#[derive(Debug, Serialize)]
pub(super) struct Whole {
    #[serde(flatten)]
    pub(super) answer: answer::Answer,
    #[serde(flatten)]
    pub(super) what_if: scenarios::Answers,
    /// What was read.
    pub(super) snapshot: Read,
}

/// What was read.
#[derive(Debug, Serialize)]
pub(super) struct Read {
    pub(super) nodes: usize,
    pub(super) pods: usize,
    pub(super) pending: usize,
    pub(super) ended: usize,
    pub(super) skipped: std::collections::BTreeMap<String, usize>,
    pub(super) contradictions: Vec<String>,
}

pub(crate) async fn run(
    args: &CapacityArgs,
    recommender: &crate::client::Address,
    output: &Output,
) -> Result<Answer, Failure> {
    let recommended = args.what_if.recommendations(recommender).await?;
    let (mut cluster, report) = read::snapshot(&args.snapshot, None)?;
    choose_nodes(args, &mut cluster)?;
    let profiles = profiles(args, &mut cluster)?;
    let shapes = shapes(args, &cluster)?;
    let first = if args.place.is_empty() { Vec::new() } else { read::pods(&args.place)? };
    let ask = Ask {
        shapes,
        first: first.into_iter().map(|shape| shape.pod).collect(),
        reserve: reserve(&args.reserve)?,
        max: args.max,
        steps: args.steps.unwrap_or_default(),
        help: true,
    };
    let mut state = State::new(&cluster);
    let before = state.clone();
    let mut progress = Progress::new();
    let answer = answer::ask(&mut cluster, &profiles, &mut state, &ask, &mut |placed| progress.tell(placed))
        .map_err(|e| Failure::new("cannot count", "the pods", e.to_string(), "correct the pod"))?;
    let mut question = scenarios::Question {
        cluster: &mut cluster,
        profiles: &profiles,
        state: before,
        ask: &ask,
        count: answer.count,
        need: args.need,
        progress: &mut progress,
    };
    let mut what_if = args.what_if.answer(&mut question)?;
    if let Some(recommended) = recommended {
        let (mut changed, _) = read::snapshot(&args.snapshot, Some(&recommended))?;
        choose_nodes(args, &mut changed)?;
        what_if.recommended = Some(scenarios::recommended(&mut changed, &profiles, &ask, &recommended)?);
    }
    progress.end();
    let enough = answer.count >= args.need.unwrap_or(1);
    let whole = Whole { answer, what_if, snapshot: read_of(report) };
    output.answer_text(&whole, || text::render(&whole, &ask, output))?;
    Ok(if enough { Answer::Yes } else { Answer::No })
}

fn read_of(report: Report) -> Read {
    Read {
        nodes: report.counts.nodes,
        pods: report.counts.placed,
        pending: report.counts.pending,
        ended: report.counts.ended,
        skipped: report.skipped,
        contradictions: report.oddities.iter().map(|odd| format!("{}: {}", odd.object, odd.what)).collect(),
    }
}

/// Drops the nodes that were not asked about.
fn choose_nodes(args: &CapacityArgs, cluster: &mut Cluster) -> Result<(), Failure> {
    let unknown: Vec<&str> =
        args.exclude_nodes.iter().filter(|name| cluster.node(name).is_none()).map(String::as_str).collect();
    if !unknown.is_empty() {
        let why = format!("no node of the snapshot is named {}", unknown.join(", "));
        return Err(Failure::new("cannot leave nodes out", "--exclude-nodes", why, "give names of nodes"));
    }
    let selector = match &args.nodes {
        Some(text) => Some(label_selector(text, cluster)?),
        None => None,
    };
    let left_out: BTreeSet<&str> = args.exclude_nodes.iter().map(String::as_str).collect();
    let keep = |cluster: &Cluster, node: &Node| {
        !left_out.contains(cluster.word(node.name))
            && selector.as_ref().is_none_or(|selector| selector.matches(&node.labels, &cluster.symbols))
    };
    if selector.is_some() || !left_out.is_empty() {
        cluster.keep_nodes(keep);
    }
    Ok(())
}

/// `a=b`, `a!=b`, `a`, `!a`, joined by commas.
fn label_selector(text: &str, cluster: &mut Cluster) -> Result<Selector, Failure> {
    let requirement = |part: &str| {
        let (key, operator, value) = if let Some((key, value)) = part.split_once("!=") {
            (key, "NotIn", Some(value))
        } else if let Some((key, value)) = part.split_once('=') {
            (key, "In", Some(value.trim_start_matches('=')))
        } else if let Some(key) = part.strip_prefix('!') {
            (key, "DoesNotExist", None)
        } else {
            (part, "Exists", None)
        };
        let values = value.map(|value| value.trim().to_owned()).into_iter().collect();
        Requirement { key: key.trim().to_owned(), operator: operator.to_owned(), values }
    };
    let match_expressions = text.split(',').map(|part| requirement(part.trim())).collect();
    let written = LabelSelector { match_expressions, ..LabelSelector::default() };
    Selector::new(Some(&written), &mut cluster.symbols).map_err(|e| {
        Failure::usage("cannot choose nodes", "--nodes", e.to_string(), "give labels such as pool=a")
    })
}

fn profiles(args: &CapacityArgs, cluster: &mut Cluster) -> Result<Profiles, Failure> {
    let version = if args.scheduler_version == "1.34" { Version::V1_34 } else { Version::V1_36 };
    match &args.scheduler_config {
        Some(file) => read::profiles(file, version, cluster),
        None => Ok(Profiles::new(vec![Profile { version, ..Profile::default() }])),
    }
}

fn shapes(args: &CapacityArgs, cluster: &Cluster) -> Result<Vec<Shape>, Failure> {
    let mut shapes = if args.files.is_empty() { Vec::new() } else { read::pods(&args.files)? };
    if args.largest {
        let namespace = args.namespace.as_deref().unwrap_or("default");
        let pod = admission::largest(cluster, namespace).map_err(|why| {
            Failure::new(
                "cannot tell the largest pod",
                "--largest",
                why,
                "put the limit range into the snapshot",
            )
        })?;
        shapes.push(Shape { pod, wanted: 1 });
    }
    if let Some(namespace) = &args.namespace {
        shapes.iter_mut().for_each(|shape| namespace.clone_into(&mut shape.pod.metadata.namespace));
    }
    Ok(shapes)
}

fn reserve(parts: &[String]) -> Result<ResourceList, Failure> {
    let one = |part: &String| {
        let wrong =
            |why: String| Failure::usage("cannot hold a reserve", "--reserve", why, "give cpu=2,memory=2Gi");
        let (name, amount) = part.split_once('=').ok_or_else(|| wrong(format!("{part:?} has no =")))?;
        let amount =
            amount.trim().parse::<Quantity>().map_err(|error| wrong(format!("{part:?}: {error}")))?;
        Ok((name.trim().to_owned(), amount))
    };
    parts.iter().map(one).collect()
}

/// Says on a terminal how far long work is.
pub(super) struct Progress {
    on: bool,
    begun: Instant,
    told: Option<Instant>,
}

/// Work that is done sooner needs no word.
const QUIET: Duration = Duration::from_secs(1);
/// Between two words.
const PACE: Duration = Duration::from_millis(200);

impl Progress {
    fn new() -> Self {
        Self { on: stderr().is_terminal(), begun: Instant::now(), told: None }
    }

    /// True: go on.
    pub(super) fn tell(&mut self, done: u64) -> bool {
        let now = Instant::now();
        let due = self.told.is_none_or(|told| now.duration_since(told) >= PACE);
        if self.on && due && now.duration_since(self.begun) >= QUIET {
            self.told = Some(now);
            // Nobody needs a word about progress that cannot be shown.
            let _ = write!(stderr(), "\r{done} so far, {} s\u{1b}[K", self.begun.elapsed().as_secs());
        }
        true
    }

    fn end(&self) {
        if self.told.is_some() {
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }
}
