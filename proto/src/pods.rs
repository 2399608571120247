//! A node's pods as they are told over the stream: taking in what changed, whole or in part.
//!
//! Owned here: the set, what a message does to it, and its bounds. Not owned: who tells it to whom (the recommender), what follows from
//! it (the agent).

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::pod::PodRequirements;
use prost::Message as _;

use crate::v1;

/// Pods of one node at most: the kubelet takes 110 unless it is told otherwise, and large nodes have some hundred.
pub const MAX_PODS: usize = 4096;
/// Bytes of all of them on the wire at most: a pod takes some hundred.
pub const MAX_BYTES: usize = 8 << 20;
/// Messages that cannot be meant and are told of one taking-in.
const MOST_REFUSED: usize = 8;

/// What is known of the pods of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePods {
    run: u64,
    generation: u64,
    pods: BTreeMap<String, Arc<PodRequirements>>,
    /// Bytes of each on the wire.
    bytes: BTreeMap<String, usize>,
    /// What came of a generation that is not whole yet.
    open: Option<PodsTransfer>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PodsTransfer {
    run: u64,
    from: u64,
    generation: u64,
    whole: bool,
    /// Nothing for one that went.
    changed: BTreeMap<String, Option<(Arc<PodRequirements>, usize)>>,
    refused: Vec<String>,
}

/// What a message did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Something is known otherwise than before.
    pub is_change: bool,
    /// Pods that cannot be meant, and why; the first few. Nothing is known of them.
    pub refused: Vec<String>,
}

/// Why a message was not taken in; what is known stays.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// More than a node can have.
    #[error("it has more than {MAX_PODS} pods")]
    TooMany,
    /// Larger than what a node has.
    #[error("its pods take more than {MAX_BYTES} bytes")]
    TooLarge,
    /// It builds on something else than what is known.
    #[error("it builds on generation {from}, and {known} is known")]
    OutOfOrder {
        /// What it builds on.
        from: u64,
        /// What is known.
        known: u64,
    },
}

impl NodePods {
    /// What is known of an earlier run, by uid.
    pub fn new(run: u64, generation: u64, pods: impl IntoIterator<Item = PodRequirements>) -> Self {
        let mut known = Self { run, generation, ..Self::default() };
        for pod in pods.into_iter().take(MAX_PODS) {
            known.bytes.insert(pod.uid.clone(), v1::PodRequirements::from(&pod).encoded_len());
            known.pods.insert(pod.uid.clone(), Arc::new(pod));
        }
        known
    }

    /// How far it is known, as a Hello says it.
    pub fn known(&self) -> v1::PodsKnown {
        v1::PodsKnown { run: self.run, generation: self.generation }
    }

    /// All, by uid at the API server.
    pub fn pods(&self) -> &BTreeMap<String, Arc<PodRequirements>> {
        &self.pods
    }

    /// Forgets what is half told, of a connection that ended.
    pub fn cut(&mut self) {
        self.open = None;
    }

    /// Takes in a message. What is in several messages counts with the last of them.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub fn take(&mut self, message: v1::NodePods) -> Result<Taken, NotTaken> {
        let v1::NodePods { run, from, generation, whole, changed, gone_uids, more } = message;
        let is_next = |open: &PodsTransfer| (open.run, open.from, open.generation) == (run, from, generation);
        let mut open = match self.open.take().filter(is_next) {
            Some(open) => open,
            None if whole || (run, from) == (self.run, self.generation) => {
                PodsTransfer { run, from, generation, whole, changed: BTreeMap::new(), refused: Vec::new() }
            }
            None => return Err(NotTaken::OutOfOrder { from, known: self.generation }),
        };
        for pod in changed {
            open.add(pod);
        }
        open.changed.extend(gone_uids.into_iter().map(|uid| (uid, None)));
        // One that went and one that came are told in one generation.
        if open.changed.len() > 2 * MAX_PODS {
            return Err(NotTaken::TooMany);
        }
        if open.changed.values().flatten().map(|(_, bytes)| bytes).sum::<usize>() > MAX_BYTES {
            return Err(NotTaken::TooLarge);
        }
        if more {
            self.open = Some(open);
            return Ok(Taken::default());
        }
        self.finish(open)
    }

    fn finish(&mut self, open: PodsTransfer) -> Result<Taken, NotTaken> {
        let (mut pods, mut sizes) =
            if open.whole { Default::default() } else { (self.pods.clone(), self.bytes.clone()) };
        for (uid, pod) in open.changed {
            if let Some((pod, bytes)) = pod {
                sizes.insert(uid.clone(), bytes);
                pods.insert(uid, pod);
            } else {
                sizes.remove(&uid);
                pods.remove(&uid);
            }
        }
        if pods.len() > MAX_PODS {
            return Err(NotTaken::TooMany);
        }
        if sizes.values().sum::<usize>() > MAX_BYTES {
            return Err(NotTaken::TooLarge);
        }
        let is_change = pods != self.pods;
        (self.run, self.generation, self.pods, self.bytes) = (open.run, open.generation, pods, sizes);
        Ok(Taken { is_change, refused: open.refused })
    }
}

impl PodsTransfer {
    fn add(&mut self, pod: v1::PodRequirements) {
        let (uid, place) = (pod.uid.clone(), format!("{}/{}", pod.namespace, pod.name));
        let bytes = pod.encoded_len();
        match PodRequirements::try_from(pod) {
            Ok(pod) => {
                self.changed.insert(uid, Some((Arc::new(pod), bytes)));
            }
            Err(error) => {
                self.changed.insert(uid, None);
                if self.refused.len() < MOST_REFUSED {
                    let place: String = place.chars().take(128).collect();
                    self.refused.push(format!("{place}: {error}"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str, name: &str) -> v1::PodRequirements {
        v1::PodRequirements {
            uid: uid.into(),
            namespace: "shop".into(),
            name: name.into(),
            ..v1::PodRequirements::default()
        }
    }

    fn message(from: u64, generation: u64, changed: &[&str], gone: &[&str]) -> v1::NodePods {
        v1::NodePods {
            run: 1,
            from,
            generation,
            whole: from == 0,
            changed: changed.iter().map(|uid| pod(uid, uid)).collect(),
            gone_uids: gone.iter().map(|uid| (*uid).to_owned()).collect(),
            more: false,
        }
    }

    fn uids(pods: &NodePods) -> Vec<&str> {
        pods.pods().keys().map(String::as_str).collect()
    }

    #[test]
    fn changes_build_on_what_is_known_and_the_whole_on_nothing() {
        let mut pods = NodePods::default();
        assert!(matches!(pods.take(message(7, 8, &["a"], &[])), Err(NotTaken::OutOfOrder { .. })));
        assert!(pods.take(message(0, 3, &["a", "b"], &[])).unwrap().is_change);
        assert!(pods.take(message(3, 5, &["c"], &["a", "never"])).unwrap().is_change);
        assert_eq!(uids(&pods), ["b", "c"]);
        let out_of_order = Err(NotTaken::OutOfOrder { from: 3, known: 5 });
        assert_eq!(pods.take(message(3, 6, &[], &["b"])), out_of_order);
        let other_run = v1::NodePods { run: 2, ..message(5, 6, &[], &["b"]) };
        assert!(pods.take(other_run).is_err());
        assert_eq!((uids(&pods), pods.known().generation), (vec!["b", "c"], 5));
        assert!(!pods.take(message(0, 9, &["b", "c"], &[])).unwrap().is_change);
        assert_eq!(pods.known(), v1::PodsKnown { run: 1, generation: 9 });
    }

    #[test]
    fn parts_count_together_with_the_last() {
        let mut pods = NodePods::new(1, 3, []);
        let part = |whole: v1::NodePods| v1::NodePods { more: true, ..whole };
        assert!(!pods.take(part(message(0, 5, &["a"], &[]))).unwrap().is_change);
        assert_eq!((uids(&pods).len(), pods.known().generation), (0, 3));
        // The connection ended: what was half told is told again.
        pods.cut();
        pods.take(part(message(0, 6, &["b"], &[]))).unwrap();
        assert!(pods.take(message(0, 6, &["c"], &[])).unwrap().is_change);
        assert_eq!((uids(&pods), pods.known().generation), (vec!["b", "c"], 6));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_name_and_bounds_hold() {
        let mut pods = NodePods::default();
        let mut message = message(0, 2, &["a", "b"], &[]);
        message.changed[0].overhead.insert("cpu".into(), "-1".into());
        message.changed.push(pod("", "nameless"));
        message.changed.push(pod("long", &"x".repeat(300)));
        let container =
            |name: &str| v1::ContainerRequirements { name: name.into(), kind: 1, ..Default::default() };
        message.changed.push(v1::PodRequirements {
            containers: vec![container("c"), container("c")],
            ..pod("twice", "twice")
        });
        message.changed.push(v1::PodRequirements {
            containers: (0..=1000).map(|at| container(&at.to_string())).collect(),
            ..pod("many", "many")
        });
        let taken = pods.take(message.clone()).unwrap();
        assert_eq!((uids(&pods), taken.refused.len()), (vec!["b"], 5));
        assert!(taken.refused[0].starts_with("shop/a: overhead"), "{:?}", taken.refused);
        let many: Vec<String> = (0..=MAX_PODS).map(|at| format!("p{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(pods.take(self::message(0, 9, &many, &[])), Err(NotTaken::TooMany));
        assert_eq!((uids(&pods), pods.known().generation), (vec!["b"], 2), "what is known stays");
    }

    #[test]
    fn pods_that_are_large_together_are_refused_in_parts_and_one_after_another() {
        let large = |uid: String| {
            let container = |at: usize| v1::ContainerRequirements {
                name: format!("{at}-{}", "x".repeat(240)),
                kind: 1,
                ..Default::default()
            };
            v1::PodRequirements { containers: (0..1000).map(container).collect(), ..pod(&uid, "large") }
        };
        let part = |from, generation, at: u64, more| v1::NodePods {
            changed: vec![large(format!("u{at}"))],
            more,
            ..message(from, generation, &[], &[])
        };
        let mut pods = NodePods::default();
        let refused = (0..100).find_map(|at| pods.take(part(0, 9, at, true)).err());
        assert_eq!((refused, pods.pods().len()), (Some(NotTaken::TooLarge), 0));
        pods.take(part(0, 1, 0, false)).unwrap();
        let refused = (1..100).find_map(|at| pods.take(part(at, at + 1, at, false)).err());
        assert_eq!(refused, Some(NotTaken::TooLarge));
        assert!((20..40).contains(&pods.pods().len()), "{}", pods.pods().len());
        // As an earlier run kept it.
        let kept: Vec<_> = pods.pods().values().map(|pod| (**pod).clone()).collect();
        let of = pods.known();
        assert_eq!(NodePods::new(of.run, of.generation, kept), pods);
    }
}
