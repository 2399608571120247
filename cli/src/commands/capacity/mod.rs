//! `evenkeel capacity`: how many more pods fit, where, and why not one more: from a saved cluster, one that is read now, or the one that a
//! recommender knows.

mod ask;
mod extenders;
mod read;
mod scenarios;
mod steps;
mod text;
mod what_if;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use evenkeel_capacity::answer::{Ask, Steps};
use evenkeel_capacity::object::ResourceList;
use evenkeel_capacity::profile::Version;
use evenkeel_capacity::question::{
    CapacityQuestion, QuestionError, QuestionOptions, RightSizedCluster, Whole, version,
};
use evenkeel_model::quantity::Quantity;
use evenkeel_model::resource_type::ResourceTypes;

use crate::client::block_on;
use crate::commands::snapshot::{self, ServerArgs};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use read::SnapshotSource;
use scenarios::WhatIf;

/// Count how many more pods fit a cluster, as kube-scheduler would place them.
///
/// Without --snapshot and --live the recommender is asked, which knows the cluster from its API server (kubernetes.view) or from its agents.
/// /// Several pods are counted in complete sets. The exit status is 1 when none fits, or fewer than --need.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel capacity -f pod.yaml
  evenkeel snapshot cluster.json
  evenkeel capacity -f pod.yaml --snapshot cluster.json
  evenkeel capacity -f pod.yaml --live
  evenkeel capacity -f web.yaml -f db.yaml --snapshot cluster.json --max 20 -o json
  evenkeel capacity -f pod.yaml --snapshot cluster.json --lose any
  evenkeel capacity -f pod.yaml --snapshot cluster.json --need 50 --add types.csv
  evenkeel capacity -f pod.yaml --snapshot cluster.json --compact --defrag 5")]
pub(crate) struct CapacityArgs {
    /// Pods, or what makes pods (a Deployment counts with its replicas), in YAML or JSON.
    #[arg(short, long = "file", num_args = 1.., required_unless_present = "largest", value_name = "POD")]
    files: Vec<PathBuf>,
    /// Kubernetes objects in YAML or JSON; several files are one cluster; - is standard input.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    snapshot: Vec<PathBuf>,
    /// Ask the API server for the cluster as it is now; see "evenkeel snapshot".
    #[arg(long, conflicts_with = "snapshot")]
    live: bool,
    /// The cluster that is meant, where the recommender knows several.
    #[arg(long, conflicts_with_all = ["snapshot", "live"], value_name = "NAME", default_value = "", hide_default_value = true)]
    cluster: String,
    #[command(flatten)]
    server: ServerArgs,
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
    /// Profiles and extenders from a KubeSchedulerConfiguration.
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Version whose rules hold where they differ.
    #[arg(long, value_name = "VERSION", value_parser = scheduler_version, default_value = "1.36")]
    scheduler_version: Version,
    /// Resource types in YAML (resourceTypes, by name): default requests and granularity count in every pod.
    #[arg(long, value_name = "FILE")]
    types: Option<PathBuf>,
    #[command(flatten)]
    what_if: WhatIf,
}

fn steps(text: &str) -> Result<Steps, String> {
    if text == "all" {
        return Ok(Steps::All);
    }
    text.parse().map(Steps::First).map_err(|_| "give a number, or all".to_owned())
}

fn scheduler_version(text: &str) -> Result<Version, String> {
    version(text).ok_or_else(|| "give 1.34 or 1.36".to_owned())
}

pub(crate) fn run(
    args: &CapacityArgs,
    recommender: &crate::client::Address,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    if !args.live && args.snapshot.is_empty() {
        let (whole, ask) = block_on(ask::whole(args, recommender))?;
        return told(args, &whole, &ask, output);
    }
    let recommended = block_on(args.what_if.recommendations(recommender))?;
    let types = args.types.as_deref().map(crate::input::types).transpose()?;
    let question = question(args, types.as_ref())?;
    let source = if args.live {
        SnapshotSource::Live(snapshot::live(&args.server)?)
    } else {
        SnapshotSource::Files(&args.snapshot)
    };
    let snapshot = read::snapshot(&source, None, types.as_ref())?;
    let changed = match &recommended {
        Some(by) => Some(RightSizedCluster {
            cluster: read::snapshot(&source, Some(by), types.as_ref())?.cluster,
            by,
        }),
        None => None,
    };
    let mut progress = Progress::new();
    let answered = question.answer(snapshot, changed, &mut |done| progress.tell(done));
    progress.end();
    let (whole, ask) = answered.map_err(|error| refused(&error))?;
    told(args, &whole, &ask, output)
}

/// Prints the answer; whether enough fit.
fn told(args: &CapacityArgs, whole: &Whole, ask: &Ask, output: &Output) -> Result<YesOrNo, Failure> {
    output.answer_text(whole, || text::render(whole, ask, output))?;
    let enough = whole.answer.count >= args.need.unwrap_or(1);
    Ok(if enough { YesOrNo::Yes } else { YesOrNo::No })
}

fn question(args: &CapacityArgs, types: Option<&ResourceTypes>) -> Result<CapacityQuestion, Failure> {
    let what_if = &args.what_if;
    let options = QuestionOptions {
        namespace: args.namespace.clone(),
        largest: args.largest,
        nodes: args.nodes.clone(),
        exclude_nodes: args.exclude_nodes.clone(),
        reserve: reserve(&args.reserve)?,
        max: args.max,
        need: args.need,
        steps: args.steps.unwrap_or_default(),
        scheduler_config: args.scheduler_config.as_deref().map(read::scheduler_config).transpose()?,
        scheduler_version: args.scheduler_version,
        seed: what_if.seed,
        trials: what_if.trials,
        preempt: what_if.preempt,
        lose: what_if.lose.clone(),
        drain: what_if.drain.clone(),
        add: what_if.types()?,
        daemonset: what_if.daemonset,
        compact: what_if.compact,
        defrag: what_if.defrag,
    };
    let pods = |files: &[PathBuf]| {
        let mut pods = read::pods(files)?;
        pods.shapes.iter_mut().for_each(|shape| types.into_iter().for_each(|types| shape.pod.fill(types)));
        Ok::<_, Failure>(pods)
    };
    let mut question = CapacityQuestion { options, types: types.cloned(), ..CapacityQuestion::default() };
    if !args.files.is_empty() {
        question.asks(pods(&args.files)?);
    }
    if !args.place.is_empty() {
        question.places_first(pods(&args.place)?);
    }
    question.plugins.extenders_over(Arc::new(extenders::Http::new()?));
    Ok(question)
}

/// The failure in the words of the command line.
fn refused(error: &QuestionError) -> Failure {
    let place = match error.option {
        "pod" | "recommended" => "the pods".to_owned(),
        "excludeNodes" => "--exclude-nodes".to_owned(),
        "schedulerConfig" => "--scheduler-config".to_owned(),
        option => format!("--{option}"),
    };
    if error.option == "nodes" {
        return Failure::usage("cannot count", place, error.why.clone(), error.remedy);
    }
    Failure::new("cannot count", place, error.why.clone(), error.remedy)
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
struct Progress {
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
    fn tell(&mut self, done: u64) -> bool {
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
