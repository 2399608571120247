//! `evenkeel updates`: what the recommender did to pods of its cluster that run, and which it leaves alone and why.

use std::collections::BTreeMap;

use clap::Args;
use evenkeel_proto::v1::{self, ListUpdatesRequest};
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Answer, Output};
use crate::table::{Table, clean};
use crate::wire::time;

/// Show what the updater did to pods of the cluster that run, and which it leaves alone and why.
///
/// One line a step, oldest first, then one a pod or workload that asks for something else than is recommended and is left alone. With -o json
/// every step has its inputs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel updates
  evenkeel updates shop/web-7d4b-x
  evenkeel updates -o json")]
pub(crate) struct UpdatesArgs {
    /// A pod: NAME or NAMESPACE/NAME.
    pod: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Updates {
    mode: String,
    steps: Vec<Step>,
    left_alone: Vec<LeftAlone>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Step {
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
}

impl From<v1::PodUpdate> for Step {
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
        let v1::PodLeftAlone { namespace, workload, policy, pod, reason, why } = of;
        Self { namespace, workload, policy, pod, reason, why }
    }
}

pub(crate) async fn run(args: &UpdatesArgs, address: &Address, output: &Output) -> Result<Answer, Failure> {
    let named = args.pod.clone().unwrap_or_default();
    let (namespace, pod) = named.split_once('/').unwrap_or(("", &named));
    let request = ListUpdatesRequest { namespace: namespace.to_owned(), pod: pod.to_owned() };
    let mut recommender = client::recommender(address).await?;
    let told = recommender.list_updates(request).await.map_err(|e| address.failed(&e))?.into_inner();
    let updates = Updates {
        mode: told.mode,
        steps: told.steps.into_iter().map(Step::from).collect(),
        left_alone: told.left_alone.into_iter().map(LeftAlone::from).collect(),
    };
    output.answer(&updates, || table(&updates))?;
    Ok(Answer::Yes)
}

/// How many pods and workloads are left alone, by reason.
pub(crate) fn reasons(told: &v1::ListUpdatesResponse) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    told.left_alone.iter().for_each(|left| *counts.entry(left.reason.clone()).or_default() += 1);
    counts
}

fn table(updates: &Updates) -> Table {
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
            "-".into(),
            clean(&name).into(),
            "left alone".into(),
            clean(&left.reason).into(),
            clean(&left.why).into(),
        ]);
    }
    table
}
