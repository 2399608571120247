//! A whole question as people and programs put it, and the whole answer in its pinned form.
//!
//! Owned here: what each option means, the order in which they act, the form of the answer. Not owned: where snapshots
//! and pods are read from, how options are written on a command line, words for people.

mod options;
mod recommended;
mod required;
mod scenarios;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::resource_type::ResourceTypes;
use serde::{Deserialize, Serialize};

pub use options::QuestionOptions;
pub use recommended::Recommendations;
pub use required::{Required, RequiredClaims};
pub use scenarios::{Recommended, ScenarioAnswers};
pub use types::node_types;

use crate::admission;
use crate::answer::{self, Ask, AskError, CapacityAnswer, Shape};
use crate::cluster::selector::Selector;
use crate::cluster::{BuildError, Cluster, NodeInfo};
use crate::config;
use crate::load::{LoadReport, Manifest};
use crate::object::{LabelSelector, Object, Pod};
use crate::plugin::Registry;
use crate::profile::{Profile, Profiles, Version};
use crate::state::ClusterState;

/// Label that names a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// What to do about an extender that fails.
const EXTENDER_REMEDY: &str = "see to it, say that it is ignorable, or leave it out to count without it";

/// What is said of daemons that are counted like any pods.
const AS_DAEMON: &str = "a DaemonSet has one pod a node, and its controller lets it bear more taints; --daemonset (daemonset: \
                         true) says on which nodes it fits";

/// A question cannot be answered as it is put.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{option}: {why}; {remedy}")]
pub struct QuestionError {
    /// Name of the option (as in [`QuestionOptions`]), or what else is meant.
    pub option: &'static str,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub remedy: &'static str,
}

impl QuestionError {
    fn new(option: &'static str, why: impl Into<String>, remedy: &'static str) -> Self {
        Self { option, why: why.into(), remedy }
    }

    fn pod(error: &AskError) -> Self {
        match error {
            AskError::Extender(why) => Self::new("schedulerConfig", why, EXTENDER_REMEDY),
            error => Self::new("pod", error.to_string(), "correct the pod"),
        }
    }
}

/// A question.
#[derive(Debug, Default)]
pub struct CapacityQuestion {
    /// The options.
    pub options: QuestionOptions,
    /// Pods asked about.
    pub shapes: Vec<Shape>,
    /// Pods placed first, in order.
    pub first: Vec<Pod>,
    /// What is made with the pods, where the cluster has none of the name.
    pub objects: Vec<Object>,
    /// What was given with the pods and takes no part, by kind and name.
    pub left_out: Vec<String>,
    /// Plugins that a configuration of the scheduler may enable.
    pub plugins: Registry,
    /// Resource types that somebody defined, for what is told of them; whoever reads pods fills them in.
    pub types: Option<ResourceTypes>,
}

/// A cluster and what was found while it was read.
#[derive(Debug)]
pub struct Snapshot {
    /// The cluster.
    pub cluster: Cluster,
    /// What was read.
    pub report: LoadReport,
}

/// The same cluster with recommended requests.
#[derive(Debug)]
pub struct RightSizedCluster<'a> {
    /// The cluster, its pods changed already.
    pub cluster: Cluster,
    /// What it was changed by.
    pub by: &'a Recommendations,
}

/// Everything that is answered.
#[derive(Debug, Serialize, Deserialize)]
pub struct Whole {
    /// The answer.
    #[serde(flatten)]
    pub answer: CapacityAnswer,
    /// What if.
    #[serde(flatten)]
    pub what_if: ScenarioAnswers,
    /// What each pod needs.
    pub requirements: Vec<Required>,
    /// What was read.
    pub snapshot: SnapshotSummary,
}

impl Whole {
    /// An answer as it was written, for a question with this need and these shapes: what is not written follows from them.
    ///
    /// # Errors
    /// When it is no answer.
    pub fn read(text: &str, need: Option<u64>, shapes: &[Shape]) -> Result<Self, serde_json::Error> {
        let mut whole: Self = serde_json::from_str(text)?;
        let pods = scenarios::missing(need, held(&whole.answer), shapes);
        whole.what_if.add.iter_mut().flatten().for_each(|addition| addition.pods = pods);
        Ok(whole)
    }
}

/// Whether something else than nodes lets no more in.
fn is_by_bound(answer: &CapacityAnswer) -> bool {
    let let_in = answer.binding.as_str();
    let_in.starts_with("quota/")
        || answer.bounds.get(let_in) == Some(&0) && !matches!(let_in, "nodes" | "limit" | "reserve")
}

/// How many the nodes hold, whatever else binds.
fn held(answer: &CapacityAnswer) -> u64 {
    let by_nodes = !is_by_bound(answer) && answer.binding != "limit";
    if by_nodes { answer.count } else { answer.bounds.get("nodes").map_or(answer.count, |n| *n) }
}

/// What was read.
#[derive(Debug, Serialize, Deserialize)]
pub struct SnapshotSummary {
    /// Nodes.
    pub nodes: usize,
    /// Pods on them.
    pub pods: usize,
    /// Pods without a node.
    pub pending: usize,
    /// Pods that ended.
    pub ended: usize,
    /// Objects that do not matter, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Contradictions, and what was made of them.
    pub contradictions: Vec<String>,
}

impl From<LoadReport> for SnapshotSummary {
    fn from(report: LoadReport) -> Self {
        Self {
            nodes: report.counts.nodes,
            pods: report.counts.placed,
            pending: report.counts.pending,
            ended: report.counts.ended,
            skipped: report.skipped,
            contradictions: report
                .oddities
                .iter()
                .map(|odd| format!("{}: {}", odd.object, odd.what))
                .collect(),
        }
    }
}

/// Most pods that are placed first.
const MOST_FIRST: usize = 100_000;

impl CapacityQuestion {
    /// Asks about the pods of a manifest too.
    pub fn asks(&mut self, manifest: Manifest) {
        let Manifest { shapes, objects, left_out } = manifest;
        self.shapes.extend(shapes);
        self.objects.extend(objects);
        self.left_out.extend(left_out);
    }

    /// Places the pods of a manifest first, as many of each as it says, at most 100,000 in all.
    pub fn places_first(&mut self, manifest: Manifest) {
        let Manifest { shapes, objects, left_out } = manifest;
        for Shape { pod, wanted } in shapes {
            let wanted = usize::try_from(wanted).unwrap_or(MOST_FIRST);
            for number in 0..wanted.min(MOST_FIRST.saturating_sub(self.first.len())) {
                let mut pod = pod.clone();
                if wanted > 1 {
                    pod.metadata.name = format!("{}-{number}", pod.metadata.name);
                }
                self.first.push(pod);
            }
        }
        self.objects.extend(objects);
        self.left_out.extend(left_out);
    }

    /// Answers it, and gives what was asked in the end (with the largest pod, and in the namespace asked for). `going`
    /// says whether the answer is still wanted, with how much is done.
    ///
    /// # Errors
    /// [`QuestionError`] naming the option.
    pub fn answer(
        self,
        snapshot: Snapshot,
        changed: Option<RightSizedCluster<'_>>,
        going: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(Whole, Ask), QuestionError> {
        let Self { options, shapes, first, mut objects, left_out, plugins, types } = self;
        if let Some(namespace) = &options.namespace {
            objects.iter_mut().for_each(|object| object.put_into(namespace));
        }
        let Snapshot { cluster, report } = snapshot;
        let (mut cluster, made) = with_objects(cluster, &objects)?;
        choose_nodes(&options, &mut cluster)?;
        let profiles = profiles(&options, &plugins, &mut cluster)?;
        check_reserve(&options, &cluster)?;
        let ask = Ask {
            shapes: whole_shapes(&options, shapes, &cluster)?,
            first,
            reserve: options.reserve.clone(),
            max: options.max,
            steps: options.steps,
            help: true,
        };
        let requirements = required::required(&mut cluster, &ask.shapes, types.as_ref());
        let mut state = ClusterState::new(&cluster);
        let placed = answer::place(&mut cluster, &profiles, &mut state, &ask.first)
            .map_err(|error| QuestionError::new("place", error.to_string(), "correct the pod"))?;
        answer::settle(&mut cluster, &state, &ask.first, &placed);
        let before = state.clone();
        let asked = Ask { first: Vec::new(), ..ask.clone() };
        let mut answer = answer::ask(&mut cluster, &profiles, &mut state, &asked, going)
            .map_err(|error| QuestionError::pod(&error))?;
        answer.placed = (!ask.first.is_empty()).then_some(placed);
        answer.notes.extend(report.counts.untold.iter().map(|(condition, nodes)| untold(condition, *nodes)));
        let is_daemon =
            |shape: &Shape| shape.pod.metadata.controller().is_some_and(|o| o.kind == "DaemonSet");
        if !options.daemonset && asked.shapes.iter().any(is_daemon) {
            answer.notes.push(AS_DAEMON.to_owned());
        }
        if !left_out.is_empty() {
            answer.notes.push(format!("what takes no part was left out: {}", left_out.join(", ")));
        }
        answer.changes.extend(made.into_iter().map(|made| format!("{made}, which comes with the pods")));
        if options.add.is_some() && is_by_bound(&answer) {
            let (binding, count) = (&answer.binding, answer.count);
            answer.notes.push(format!("{binding} lets only {count} in, whatever nodes are added"));
        }
        let mut asking = scenarios::Asking {
            cluster: &mut cluster,
            profiles: &profiles,
            state: before,
            ask: &asked,
            held: held(&answer),
            going,
        };
        let mut what_if = asking.all(&options)?;
        if let Some(RightSizedCluster { cluster: changed, by }) = changed {
            let mut changed = with_objects(changed, &objects)?.0;
            changed.tells_extenders = cluster.tells_extenders;
            choose_nodes(&options, &mut changed)?;
            what_if.recommended = Some(scenarios::recommended(&mut changed, &profiles, &ask, by, going)?);
        }
        if let Some(why) = profiles.extender_failure() {
            return Err(QuestionError::new("schedulerConfig", why, EXTENDER_REMEDY));
        }
        answer.notes.extend(profiles.extender_remarks());
        Ok((Whole { answer, what_if, requirements, snapshot: report.into() }, ask))
    }
}

/// What is not known of nodes, in words.
fn untold(condition: &str, nodes: usize) -> String {
    format!(
        "{condition} is not known of {nodes} node(s) that only agents report; its taint would keep pods away"
    )
}

fn with_objects(cluster: Cluster, objects: &[Object]) -> Result<(Cluster, Vec<String>), QuestionError> {
    let wrong = |error: BuildError| QuestionError::new("pod", error.to_string(), "correct the object");
    cluster.apply(objects).map_err(wrong)
}

/// Drops the nodes that were not asked about.
fn choose_nodes(options: &QuestionOptions, cluster: &mut Cluster) -> Result<(), QuestionError> {
    let unknown: Vec<&str> = options
        .exclude_nodes
        .iter()
        .filter(|name| cluster.node(name).is_none())
        .map(String::as_str)
        .collect();
    if !unknown.is_empty() {
        let why = format!("no node of the snapshot is named {}", unknown.join(", "));
        return Err(QuestionError::new("excludeNodes", why, "give names of nodes"));
    }
    let selector = match &options.nodes {
        Some(text) => Some(label_selector(text, cluster)?),
        None => None,
    };
    let left_out: BTreeSet<&str> = options.exclude_nodes.iter().map(String::as_str).collect();
    let keep = |cluster: &Cluster, node: &NodeInfo| {
        !left_out.contains(cluster.word(node.name))
            && selector.as_ref().is_none_or(|selector| selector.matches(&node.labels, &cluster.symbols))
    };
    if selector.is_some() || !left_out.is_empty() {
        cluster.keep_nodes(keep);
    }
    Ok(())
}

/// What must stay free is something that nodes have.
fn check_reserve(options: &QuestionOptions, cluster: &Cluster) -> Result<(), QuestionError> {
    let wrong =
        |why| Err(QuestionError::new("reserve", why, "give amounts of what nodes have, such as cpu=2"));
    for (name, amount) in &options.reserve {
        let has =
            |resource| cluster.nodes.iter().any(|n| n.allocatable.iter().any(|(of, _)| *of == resource));
        if amount.nano() < 0 {
            return wrong(format!("{name}={} is less than nothing", amount.canonical()));
        }
        if !cluster.nodes.is_empty() && !cluster.resources.find(name, &cluster.symbols).is_some_and(has) {
            return wrong(format!("no node that is asked about has {name}"));
        }
    }
    Ok(())
}

fn label_selector(text: &str, cluster: &mut Cluster) -> Result<Selector, QuestionError> {
    let wrong = |why| QuestionError::new("nodes", why, "give labels such as pool=a,!gpu or zone in (x,y)");
    let written = LabelSelector::parse(text).map_err(wrong)?;
    Selector::new(Some(&written), &mut cluster.symbols).map_err(|error| wrong(error.to_string()))
}

/// The version of a text such as `1.36`; `None` for any other than 1.34 and 1.36.
pub fn version(text: &str) -> Option<Version> {
    match text {
        "1.34" => Some(Version::V1_34),
        "1.36" => Some(Version::V1_36),
        _ => None,
    }
}

fn profiles(
    options: &QuestionOptions,
    plugins: &Registry,
    cluster: &mut Cluster,
) -> Result<Profiles, QuestionError> {
    let version = options.scheduler_version;
    match &options.scheduler_config {
        Some(written) => config::profiles_of(plugins, written, version, cluster)
            .map_err(|error| QuestionError::new("schedulerConfig", error.to_string(), "correct the field")),
        None => Ok(Profiles::new(vec![Profile { version, ..Profile::default() }])),
    }
}

fn whole_shapes(
    options: &QuestionOptions,
    mut shapes: Vec<Shape>,
    cluster: &Cluster,
) -> Result<Vec<Shape>, QuestionError> {
    if options.largest {
        let namespace = options.namespace.as_deref().unwrap_or("default");
        let pod = admission::largest(cluster, namespace)
            .map_err(|why| QuestionError::new("largest", why, "put the limit range into the snapshot"))?;
        shapes.push(Shape { pod, wanted: 1 });
    }
    if let Some(namespace) = &options.namespace {
        shapes.iter_mut().for_each(|shape| namespace.clone_into(&mut shape.pod.metadata.namespace));
    }
    Ok(shapes)
}
