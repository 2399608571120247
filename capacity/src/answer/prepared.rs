//! Shapes as the API server makes them, and what is said of them before any is placed.

use std::sync::Arc;

use super::count::{Ask, AskError};
use crate::admission::{Admitted, PodRefusal, admit, held, quota};
use crate::cluster::Cluster;
use crate::cluster::selector::SelectorError;
use crate::object::Pod;
use crate::profile::Profiles;

/// Shapes as the API server makes them, ready to be placed.
pub(crate) struct Prepared {
    pub(crate) admitted: Vec<Admitted>,
    pub(super) compiled: Vec<Arc<crate::cluster::PodInfo>>,
}

impl Prepared {
    /// Brings the shapes of a question through the API server.
    ///
    /// # Errors
    /// When a selector cannot be used.
    pub(crate) fn new(cluster: &mut Cluster, profiles: &Profiles, ask: &Ask) -> Result<Self, AskError> {
        let mut admitted = Vec::with_capacity(ask.shapes.len());
        let mut compiled = Vec::with_capacity(ask.shapes.len());
        for shape in &ask.shapes {
            let mut made = admit(cluster, shape.pod.clone());
            made.refused = made.refused.or_else(|| held(profiles, &made.pod));
            let pod = match (cluster.shape(&made.pod), &made.refused) {
                (Ok(pod), _) => pod,
                // Its selectors may be why it is refused.
                (Err(_), Some(_)) => {
                    cluster.shape(&Pod::default()).map_err(|error| selector(&made.pod, error))?
                }
                (Err(error), None) => return Err(selector(&made.pod, error)),
            };
            compiled.push(Arc::new(pod));
            admitted.push(made);
        }
        Ok(Self { admitted, compiled })
    }

    /// The shapes as quotas see them.
    pub(crate) fn counted<'a>(&'a self, ask: &Ask) -> Vec<quota::Counted<'a>> {
        let all = self.admitted.iter().zip(&ask.shapes);
        all.map(|(admitted, shape)| quota::Counted {
            name: &admitted.pod.metadata.name,
            wanted: shape.wanted,
            quotas: &admitted.quotas,
        })
        .collect()
    }

    /// How many sets are let in at most, and the bound that says so; nothing where nothing bounds them.
    pub(crate) fn let_in(&self, ask: &Ask) -> Option<(u64, String)> {
        let refused = |admitted: &Admitted| {
            let refusal = admitted.refused.as_ref()?;
            Some((0, refusal.bound(admitted.pod.metadata.namespace_or_default())))
        };
        let sets = || quota::sets(&self.counted(ask)).into_iter();
        let by_quota = || sets().map(|(name, sets)| (sets, format!("quota/{name}"))).min();
        self.admitted.iter().find_map(refused).or_else(by_quota)
    }

    /// The refusal of the first shape that is refused.
    pub(crate) fn refusal(&self) -> Option<&PodRefusal> {
        self.admitted.iter().find_map(|admitted| admitted.refused.as_ref())
    }
}

fn selector(pod: &Pod, error: SelectorError) -> AskError {
    AskError::Selector { pod: pod.metadata.name.clone(), error }
}

/// What is said where the scheduler does not look at all nodes: the simulator does.
pub(super) fn looked_for(cluster: &Cluster, profiles: &Profiles, prepared: &Prepared) -> Option<String> {
    let nodes = cluster.nodes.len() as u64;
    let profile = profiles.of(cluster.word(prepared.compiled.first()?.scheduler));
    let looked_for = profile.nodes_looked_for(nodes);
    (looked_for < nodes).then(|| {
        let how = match profile.percentage_of_nodes_to_score {
            0 => "its default for so many nodes".to_owned(),
            percentage => percentage.to_string(),
        };
        format!(
            "the scheduler stops looking once {looked_for} of {nodes} nodes fit (percentageOfNodesToScore: {how}); here all are \
             looked at, so that its choice of nodes (perNode, soft spread) may differ"
        )
    })
}

/// What to say of a pod that waits behind scheduling gates.
pub(super) fn gated(pod: &Pod) -> Option<String> {
    let gates: Vec<&str> = pod.spec.scheduling_gates.iter().map(|gate| gate.name.as_str()).collect();
    let (name, gates) = (&pod.metadata.name, (!gates.is_empty()).then(|| gates.join(", "))?);
    Some(format!(
        "pod {name} has scheduling gates ({gates}): no scheduler looks at it before they are removed; leave them out to \
         count as if they were"
    ))
}
