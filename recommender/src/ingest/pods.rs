//! Owns telling a node what its own pods require: everything once, then what changes, soon after the API server says so.
//!
//! Nothing is told while pods are not listed, to an agent that does not ask, and to one whose credential stands for more than its node.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_kubernetes::{ClusterView, NodePods};
use evenkeel_proto::v1;
use prost::Message as _;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Changes that come within this are told together: a rollout changes several pods of a node.
const TOGETHER: Duration = Duration::from_millis(200);
/// Bytes of one message, about: gRPC takes 4 MiB unless it is told otherwise.
const MESSAGE_BYTES: usize = 1 << 20;

/// What one agent is told.
#[derive(Debug)]
pub(super) struct Telling {
    view: Arc<ClusterView>,
    node: String,
    bell: Arc<Notify>,
    /// The bell rang since it was looked last.
    has_rung: bool,
    /// When this was last due.
    looked: Instant,
    /// Run and generation that the agent knows, once it has been sent what waits.
    known: (u64, u64),
    waiting: VecDeque<v1::NodePods>,
}

impl Telling {
    /// Tells a node that knows so much.
    pub(super) fn new(view: &Arc<ClusterView>, node: &str, known: v1::PodsKnown) -> Self {
        Self {
            view: Arc::clone(view),
            node: node.to_owned(),
            bell: view.node_bell(node),
            has_rung: true,
            looked: Instant::now(),
            known: (known.run, known.generation),
            waiting: VecDeque::new(),
        }
    }

    /// Waits until there may be something to tell. What was heard is kept when this is given up.
    pub(super) async fn due(&mut self) {
        if !self.has_rung {
            self.bell.notified().await;
            self.has_rung = true;
        }
        tokio::time::sleep_until(self.looked + TOGETHER).await;
        self.looked = Instant::now();
    }

    /// The next message, where there is one.
    pub(super) fn next(&mut self) -> Option<v1::NodePods> {
        if self.waiting.is_empty() {
            self.has_rung = false;
            let told = self.view.node_pods(&self.node, self.known)?;
            self.known = (told.run, told.generation);
            self.waiting = messages(&told, MESSAGE_BYTES);
        }
        self.waiting.pop_front()
    }
}

/// In messages of about so many bytes.
fn messages(told: &NodePods, most: usize) -> VecDeque<v1::NodePods> {
    let &NodePods { run, from, generation, whole, .. } = told;
    let empty = || v1::NodePods { run, from, generation, whole, more: true, ..v1::NodePods::default() };
    let (mut messages, mut last, mut bytes) = (VecDeque::new(), empty(), 0);
    for pod in &told.changed {
        let pod = v1::PodRequirements::from(pod);
        bytes += pod.encoded_len();
        if bytes > most && !last.changed.is_empty() {
            messages.push_back(std::mem::replace(&mut last, empty()));
            bytes = pod.encoded_len();
        }
        last.changed.push(pod);
    }
    last.gone_uids.clone_from(&told.gone);
    last.more = false;
    messages.push_back(last);
    messages
}

#[cfg(test)]
mod tests {
    use evenkeel_model::pod::PodRequirements;
    use evenkeel_proto::pods::NodePods as Known;

    use super::*;

    #[test]
    fn many_pods_are_told_in_several_messages_and_count_with_the_last() {
        let pod = |at: usize| PodRequirements {
            uid: format!("uid-{at}"),
            namespace: "shop".into(),
            name: format!("web-{at}"),
            ..PodRequirements::default()
        };
        let told = NodePods {
            run: 7,
            generation: 9,
            whole: true,
            changed: (0..100).map(pod).collect(),
            gone: vec!["uid-gone".into()],
            ..NodePods::default()
        };
        for (most, least) in [(usize::MAX, 1), (1, 100), (300, 2)] {
            let messages = messages(&told, most);
            assert!((least..=100).contains(&messages.len()), "{most}: {}", messages.len());
            for message in &messages {
                let bytes: usize = message.changed.iter().map(v1::PodRequirements::encoded_len).sum();
                assert!(bytes <= most || message.changed.len() == 1, "{most}: {bytes}");
            }
            let mut known = Known::default();
            let last = messages.len() - 1;
            for (at, message) in messages.into_iter().enumerate() {
                assert_eq!(known.take(message).unwrap().is_change, at == last);
            }
            assert_eq!(known.pods().len(), 100);
            assert_eq!(known.known(), v1::PodsKnown { run: 7, generation: 9 });
        }
    }
}
