//! `evenkeel updates`: what the recommender did to pods of its cluster that run, which it leaves alone and why, and what kubelets say went wrong; and
//! its choices made again (`replay`).

mod replay;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use evenkeel_proto::v1::{self, ListUpdatesRequest};
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Table, clean};
use crate::wire::time;

/// Show what the updater did to pods of the cluster that run, and which it leaves alone and why.
///
/// One line a step, oldest first, then one a pod or workload that asks for something else than is recommended and is left alone, then what
/// kubelets say went wrong with pods. With -o json everything has its inputs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel updates
  evenkeel updates shop/web-7d4b-x
  evenkeel updates -o json
  evenkeel updates --replay
  evenkeel updates --cases > choices.json; evenkeel updates --replay --from choices.json

Exit status of --replay: 0 every choice comes out as it did, 1 one differs.")]
pub(crate) struct UpdatesArgs {
    /// A pod: NAME or NAMESPACE/NAME.
    pod: Option<String>,
    /// Print the last choices with all that they rest on, one a line, JSON: of each step, and of each change of why something is left alone.
    #[arg(long, conflicts_with_all = ["pod", "replay"])]
    cases: bool,
    /// Make these choices again, and tell which would come out differently.
    #[arg(long, conflicts_with = "pod")]
    replay: bool,
    /// Read them from a file that --cases printed, or with - from standard input.
    #[arg(long, value_name = "FILE|-", requires = "replay")]
    from: Option<PathBuf>,
    /// Choices of this namespace alone.
    #[arg(long, short = 'n', conflicts_with_all = ["pod", "from"], default_value = "", hide_default_value = true)]
    namespace: String,
}

/// What is told.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Updates {
    mode: String,
    steps: Vec<UpdateStep>,
    left_alone: Vec<LeftAlone>,
    failures: Vec<Failed>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UpdateStep {
    time: Option<String>,
    namespace: String,
    workload: String,
    policy: String,
    pod: String,
    node: String,
    deed: String,
    reason: String,
    why: String,
    outcome: String,
    error: String,
    inputs: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LeftAlone {
    namespace: String,
    workload: String,
    policy: String,
    pod: String,
    reason: String,
    why: String,
    since: Option<String>,
    inputs: BTreeMap<String, String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    time: Option<String>,
    namespace: String,
    workload: String,
    pod: String,
    container: String,
    node: String,
    reason: String,
    message: String,
    told_by_agent: bool,
}

impl From<v1::PodUpdate> for UpdateStep {
    fn from(of: v1::PodUpdate) -> Self {
        Self {
            time: time(of.time_usec),
            namespace: of.namespace,
            workload: of.workload,
            policy: of.policy,
            pod: of.pod,
            node: of.node,
            deed: of.deed,
            reason: of.reason,
            why: of.why,
            outcome: of.outcome,
            error: of.error,
            inputs: of.inputs.into_iter().collect(),
        }
    }
}

impl From<v1::PodLeftAlone> for LeftAlone {
    fn from(of: v1::PodLeftAlone) -> Self {
        let v1::PodLeftAlone { namespace, workload, policy, pod, reason, why, inputs, since_usec } = of;
        let since = time(since_usec);
        Self { namespace, workload, policy, pod, reason, why, since, inputs: inputs.into_iter().collect() }
    }
}

impl From<v1::PodFailure> for Failed {
    fn from(of: v1::PodFailure) -> Self {
        Self {
            time: Some(of.time).filter(|time| !time.is_empty()),
            namespace: of.namespace,
            workload: of.workload,
            pod: of.pod,
            container: of.container,
            node: of.node,
            reason: of.reason,
            message: of.message,
            told_by_agent: of.told_by_agent,
        }
    }
}

impl Updates {
    /// Of a namespace and a pod; of all where they are empty.
    ///
    /// # Errors
    /// When the recommender cannot be asked.
    pub(crate) async fn of(namespace: &str, pod: &str, address: &Address) -> Result<Self, Failure> {
        let (namespace, pod) = (namespace.to_owned(), pod.to_owned());
        let request = ListUpdatesRequest { namespace, pod, cases: false };
        let mut recommender = client::recommender(address).await?;
        let told = recommender.list_updates(request).await.map_err(|e| address.failed(&e))?.into_inner();
        Ok(Self {
            mode: told.mode,
            steps: told.steps.into_iter().map(UpdateStep::from).collect(),
            left_alone: told.left_alone.into_iter().map(LeftAlone::from).collect(),
            failures: told.failures.into_iter().map(Failed::from).collect(),
        })
    }

    /// Of pods and workloads that are meant: by namespace, workload and pod. The last step alone, and what is left alone by itself or as a part of its
    /// workload.
    #[must_use]
    pub(crate) fn last(mut self, is_meant: impl Fn(&str, &str, &str) -> bool) -> Self {
        self.steps.retain(|of| is_meant(&of.namespace, &of.workload, &of.pod));
        self.steps.drain(..self.steps.len().saturating_sub(1));
        self.left_alone.retain(|of| is_meant(&of.namespace, &of.workload, &of.pod));
        self.failures.retain(|of| is_meant(&of.namespace, &of.workload, &of.pod));
        self
    }

    /// Whether nothing is told.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.left_alone.is_empty() && self.failures.is_empty()
    }
}

pub(crate) async fn run(args: &UpdatesArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    if args.cases {
        return replay::list(&args.namespace, address, output).await;
    }
    if args.replay {
        return replay::run(args.from.as_deref(), &args.namespace, address, output).await;
    }
    let named = args.pod.clone().unwrap_or_default();
    let (namespace, pod) = named.split_once('/').unwrap_or((&args.namespace, &named));
    let updates = Updates::of(namespace, pod, address).await?;
    output.answer(&updates, || table(&updates))?;
    Ok(YesOrNo::Yes)
}

/// How many pods and workloads are left alone, by reason.
pub(crate) fn reasons(told: &v1::ListUpdatesResponse) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    told.left_alone.iter().for_each(|left| *counts.entry(left.reason.clone()).or_default() += 1);
    counts
}

/// Steps, then what is left alone, then what went wrong.
pub(crate) fn table(updates: &Updates) -> Table {
    let mut table = Table::new(&["TIME", "POD", "WHAT", "REASON", "WHY"]);
    for step in &updates.steps {
        let what = if step.outcome == "done" {
            step.deed.clone()
        } else {
            format!("{} ({})", step.deed, step.outcome)
        };
        let why =
            if step.error.is_empty() { step.why.clone() } else { format!("{}: {}", step.why, step.error) };
        table.row(vec![
            step.time.as_deref().unwrap_or("-").into(),
            clean(&format!("{}/{}", step.namespace, step.pod)).into(),
            clean(&what).into(),
            clean(&step.reason).into(),
            clean(&why).into(),
        ]);
    }
    for left in &updates.left_alone {
        let of = if left.pod.is_empty() { &left.workload } else { &left.pod };
        let name =
            if left.namespace.is_empty() { "*".to_owned() } else { format!("{}/{of}", left.namespace) };
        table.row(vec![
            left.since.as_deref().unwrap_or("-").into(),
            clean(&name).into(),
            "left alone".into(),
            clean(&left.reason).into(),
            clean(&left.why).into(),
        ]);
    }
    for failed in &updates.failures {
        let by = if failed.told_by_agent { "" } else { "; no agent told of it" };
        let container = if failed.container.is_empty() { "" } else { "container " };
        let why = format!("{container}{}{}, on node {}{by}", failed.container, failed.message, failed.node);
        table.row(vec![
            failed.time.as_deref().unwrap_or("-").into(),
            clean(&format!("{}/{}", failed.namespace, failed.pod)).into(),
            "kubelet".into(),
            clean(&failed.reason).into(),
            clean(&why).into(),
        ]);
    }
    table
}
