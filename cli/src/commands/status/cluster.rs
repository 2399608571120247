//! What the recommender says of itself, and of what changes pods that run, beside the status of an agent. A node does its work without: where
//! nobody answers at once, nothing is said.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_proto::v1::{ListNodesRequest, ListNodesResponse, ListUpdatesRequest, ListUpdatesResponse};
use serde::Serialize;

use crate::client::{self, Address};
use crate::commands::updates;
use crate::table::clean;

/// How long it is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What is said of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Recommender {
    /// Absent where it shares no Lease.
    leads: Option<bool>,
    /// By check of its /readyz.
    troubles: BTreeMap<String, String>,
    /// Absent where pods that run are not changed, or who asks may not know.
    updater: Option<Updater>,
}

/// What changes pods that run.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Updater {
    mode: String,
    passes: u64,
    /// The last steps by what came of them.
    steps: BTreeMap<String, u64>,
    /// How many pods and workloads, by reason.
    left_alone: BTreeMap<String, u64>,
}

/// Asks it.
pub(super) async fn asked(address: &Address) -> Option<Recommender> {
    let ask = async {
        let mut recommender = client::recommender(address).await.ok()?;
        let nodes = recommender.list_nodes(ListNodesRequest {}).await.ok()?.into_inner();
        let updates = recommender.list_updates(ListUpdatesRequest::default()).await;
        Some((nodes, updates.map(|told| told.into_inner()).unwrap_or_default()))
    };
    let (nodes, updates) = tokio::time::timeout(PATIENCE, ask).await.ok()??;
    Some(Recommender::of(nodes, &updates))
}

impl Recommender {
    fn of(nodes: ListNodesResponse, updates: &ListUpdatesResponse) -> Self {
        let mut troubles: BTreeMap<String, String> = nodes.troubles.into_iter().collect();
        if !nodes.clock_trouble.is_empty() {
            troubles.insert("clock".to_owned(), nodes.clock_trouble);
        }
        let mut steps = BTreeMap::new();
        updates.steps.iter().for_each(|step| *steps.entry(step.outcome.clone()).or_default() += 1);
        let updater = (!matches!(updates.mode.as_str(), "" | "off")).then(|| Updater {
            mode: updates.mode.clone(),
            passes: updates.passes,
            steps,
            left_alone: updates::reasons(updates),
        });
        Self { leads: nodes.leading.map(|leading| leading.leads), troubles, updater }
    }

    /// A line of it, one of each trouble, and one of the updater.
    pub(super) fn text(&self) -> String {
        let leads = match self.leads {
            None => "answers",
            Some(true) => "leads",
            Some(false) => "stands by",
        };
        let mut text = format!("recommender: {leads}\n");
        for (check, why) in &self.troubles {
            text.push_str(&format!("  {}: {}\n", clean(check), clean(why)));
        }
        if let Some(Updater { mode, steps, left_alone, .. }) = &self.updater {
            let counted = |all: &BTreeMap<String, u64>| {
                let words: Vec<String> =
                    all.iter().map(|(word, count)| format!("{} {count}", clean(word))).collect();
                if words.is_empty() { "none".to_owned() } else { words.join(", ") }
            };
            let (steps, left) = (counted(steps), counted(left_alone));
            text.push_str(&format!("updater: {}; last steps: {steps}; left alone: {left}\n", clean(mode)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1::{Leading, PodLeftAlone, PodUpdate};

    use super::*;

    #[test]
    fn what_is_wrong_and_left_alone_is_said() {
        let nodes = |leading| ListNodesResponse {
            troubles: [("webhook".to_owned(), "the authority has ended; renew it".to_owned())].into(),
            leading,
            ..ListNodesResponse::default()
        };
        let left = PodLeftAlone { reason: "NoRoom".into(), ..PodLeftAlone::default() };
        let step = PodUpdate { outcome: "done".into(), ..PodUpdate::default() };
        let updates = ListUpdatesResponse {
            mode: "on".into(),
            passes: 3,
            steps: vec![step],
            left_alone: vec![left],
            ..Default::default()
        };
        let leading = Leading { leads: true, ..Leading::default() };
        let told = Recommender::of(nodes(Some(leading)), &updates).text();
        assert_eq!(
            told,
            "recommender: leads\n  webhook: the authority has ended; renew it\n\
             updater: on; last steps: done 1; left alone: NoRoom 1\n"
        );
        let none = Recommender::of(nodes(None), &ListUpdatesResponse::default());
        assert!(none.updater.is_none() && none.text().starts_with("recommender: answers\n"));
    }
}
