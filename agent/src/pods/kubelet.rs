//! What this node's kubelet says of its pods (`GET /pods`): for an agent that no recommender tells, or not yet (`sources.kubelet`).
//!
//! Owned here: when and by whom it is asked, and what its refusals mean. Not owned: the question (`evenkeel_net::get`), reading the list
//! (`evenkeel_model::pod`), what is known (the parent).

use std::sync::Arc;
use std::time::Duration;

use evenkeel_border::coded::{Bytes, Coded as _};
use evenkeel_border::order::{self, Order};
use evenkeel_border::told::{Kubelets, PodList};
use evenkeel_model::pod::{PodListing, PodRequirements, read_pod_list};
use evenkeel_net::get::{HttpsEndpoint, NoAnswer, Vouchers, get};
use evenkeel_proto::v1;

use super::Pods;
use crate::outward::{Gate, Outward};

/// What is asked for. `nodes/pods` is the right to it (KubeletFineGrainedAuthz, on by default since 1.33).
const PATH: &str = "/pods";
/// An answer that takes longer is none.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest answer taken: a pod takes some 10 KiB, and 4,096 are taken.
const MOST_BYTES: usize = 64 << 20;
/// Largest message with the pods of a node that crosses the border: 4,096 pods may take 8 MiB ([`evenkeel_proto::pods`]).
pub(crate) const MOST_LISTED: usize = 12 << 20;
/// Characters of what it says in words, and pods that cannot be meant, that are told.
const MOST_TOLD: usize = 600;
const MOST_REFUSED: usize = 8;
/// Time for the network's part beyond what the kubelet has.
const CROSSING: Duration = Duration::from_secs(2);
/// Between two questions, whatever happens on the node.
const LEAST: Duration = Duration::from_secs(1);

/// How the kubelet is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kubelet {
    /// Where it is, and what vouches for it and for this agent.
    pub asked: HttpsEndpoint,
    /// It is asked so often, whatever happens on the node.
    pub interval: Duration,
}

/// Asks until the agent ends: in intervals, and when something changed on the node.
pub(crate) async fn run(kubelet: Kubelet, outward: Outward, pods: Arc<Pods>) {
    loop {
        let answer = ask(&kubelet.asked, &outward).await;
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

/// Asks from the process that has the network.
async fn ask(asked: &HttpsEndpoint, outward: &Outward) -> Result<PodListing, String> {
    let files = asked.clone();
    let vouchers = tokio::task::spawn_blocking(move || Vouchers::read(&files)).await;
    let vouchers = vouchers.unwrap_or_else(|error| Err(NoAnswer::Failed(error.to_string())));
    let answer = match (vouchers, outward) {
        (Err(error), _) => Err(error),
        (Ok(vouchers), Outward::Here) => look(asked, vouchers).await,
        (Ok(vouchers), Outward::There(gate)) => look_there(asked, vouchers, gate).await,
    };
    answer.map_err(|error| told(&error, asked))
}

/// Asks from this process.
pub(crate) async fn look(asked: &HttpsEndpoint, vouchers: Vouchers) -> Result<PodListing, NoAnswer> {
    let body = get(asked, &vouchers, PATH, PATIENCE, MOST_BYTES).await?;
    let read = tokio::task::spawn_blocking(move || read_pod_list(&body)).await;
    read.map_err(|error| error.to_string()).flatten().map_err(NoAnswer::Failed)
}

/// Has the network's part ask. What it says of a pod is read as what a recommender says of one.
async fn look_there(asked: &HttpsEndpoint, vouchers: Vouchers, gate: &Gate) -> Result<PodListing, NoAnswer> {
    let failed = |why: String| NoAnswer::Failed(why);
    let shown = |path: &std::path::Path| path.display().to_string();
    let order = Order::Kubelet(order::Kubelet {
        host: asked.host.clone(),
        port: asked.port,
        name: asked.name.clone(),
        authorities: (shown(&asked.authorities), Bytes(vouchers.authorities)),
        token: (shown(&asked.token), Bytes(vouchers.token)),
    });
    let answer = tokio::time::timeout(PATIENCE + CROSSING, gate.answer(&order, None)).await;
    let answer = answer.map_err(|_| failed("the network's part does not answer".to_owned()))?;
    let answer = answer.map_err(|error| failed(format!("{error:#}")))?;
    match Kubelets::of(&answer).map_err(|error| failed(error.to_string()))? {
        Kubelets::Refused((status, words)) => Err(NoAnswer::Refused(status, cut(&words))),
        Kubelets::Failed(why) => Err(failed(cut(&why))),
        Kubelets::Listed(PodList { pods, refused }) => Ok(listed(pods, refused)),
    }
}

fn listed(pods: Vec<v1::PodRequirements>, mut refused: Vec<String>) -> PodListing {
    let mut read = Vec::with_capacity(pods.len());
    for pod in pods {
        let name = format!("{}/{}", pod.namespace, pod.name);
        match PodRequirements::try_from(pod) {
            Ok(pod) => read.push(pod),
            Err(error) => refused.push(format!("{name}: {error}")),
        }
    }
    refused.truncate(MOST_REFUSED);
    PodListing { pods: read, refused: refused.iter().map(|text| cut(text)).collect() }
}

fn cut(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MOST_TOLD).collect()
}

/// A refusal, and what to do about it.
fn told(error: &NoAnswer, asked: &HttpsEndpoint) -> String {
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
