//! What this node's kubelet says of its pods (`GET /pods`): for an agent that no recommender tells, or not yet (`sources.kubelet`).
//!
//! Owned here: when it is asked, and what its refusals mean. Not owned: the question (`evenkeel_net::get`), reading the list
//! (`evenkeel_model::pod`), what is known (the parent).

use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::pod::{Listed, read_pod_list};
use evenkeel_net::get::{Asked, NoAnswer, get};

use super::Pods;

/// What is asked for. `nodes/pods` is the right to it (KubeletFineGrainedAuthz, on by default since 1.33).
const PATH: &str = "/pods";
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer taken: a pod takes some 10 KiB, and 4,096 are taken.
const MOST_BYTES: usize = 64 << 20;
/// Between two questions, whatever happens on the node.
const LEAST: Duration = Duration::from_secs(1);

/// How the kubelet is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// Where it is, and what vouches for it and for this agent.
    pub asked: Asked,
    /// It is asked so often, whatever happens on the node.
    pub interval: Duration,
}

/// Asks until the agent ends: in intervals, and when something changed on the node.
pub(crate) async fn run(kubelet: Kubelet, pods: Arc<Pods>) {
    loop {
        let answer = look(&kubelet.asked).await;
        let is_well = answer.is_ok();
        pods.take_kubelets(answer);
        tokio::time::sleep(LEAST).await;
        tokio::select! {
            () = tokio::time::sleep(kubelet.interval.saturating_sub(LEAST)) => {}
            // One that does not answer is not asked more often.
            () = pods.stirred(), if is_well => {}
        }
    }
}

async fn look(asked: &Asked) -> Result<Listed, String> {
    let body = get(asked, PATH, PATIENCE, MOST_BYTES).await.map_err(|error| told(&error, asked))?;
    tokio::task::spawn_blocking(move || read_pod_list(&body)).await.map_err(|error| error.to_string())?
}

/// A refusal, and what to do about it.
fn told(error: &NoAnswer, asked: &Asked) -> String {
    match error {
        NoAnswer::Failed(why) => format!("{why}; see sources.kubelet"),
        NoAnswer::Refused(401, _) => format!(
            "401: it does not know the token in {}; give one of a service account for the API server's own audience",
            asked.token.display()
        ),
        NoAnswer::Refused(403, words) => format!(
            "403: {words}; allow this account to get nodes/pods, which kubelets know since 1.33 (before, only nodes/proxy would do, by which \
             every pod can be entered: have the recommender tell the pods instead, kubernetes.view)"
        ),
        NoAnswer::Refused(status, words) => format!("it answers {status}: {words}"),
    }
}

#[cfg(test)]
#[path = "kubelet_tests.rs"]
mod tests;
