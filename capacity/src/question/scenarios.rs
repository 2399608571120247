//! What-if options, each answered under a key of its own name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{QuestionError, QuestionOptions, Recommendations, ZONE};
use crate::admission::admit;
use crate::answer::{Ask, AskError, Prepared, Reserve, Shape, ask};
use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::profile::Profiles;
use crate::scenario::{
    self, Addition, Compaction, DaemonAnswer, Defragmentation, Displaced, Mix, NodeType, Preemption, Room,
    Trials,
};
use crate::state::ClusterState;

/// Answers by the name of the option.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioAnswers {
    /// How ties may fall.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trials: Option<Trials>,
    /// With displacing others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preempt: Option<Preemption>,
    /// Without some nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lose: Vec<Displaced>,
    /// With nodes drained.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drain: Vec<Displaced>,
    /// Nodes to add.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<Vec<Addition>>,
    /// The cheapest mix of these, where prices are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cheapest: Option<Mix>,
    /// As a daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemonset: Option<DaemonAnswer>,
    /// Fewer nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact: Option<Compaction>,
    /// A few moves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defrag: Option<Defragmentation>,
    /// With recommended requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommended: Option<Recommended>,
}

/// The count with recommended requests.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recommended {
    /// How many fit then.
    pub count: u64,
    /// Requests that were replaced, in the snapshot and in the pods asked about.
    pub requests: usize,
    /// Why not one more then.
    pub message: String,
}

/// How many pods nodes are added for (sets where there are several shapes): those that are needed, or one more than there is room for.
pub(super) fn missing(need: Option<u64>, held: u64, shapes: &[Shape]) -> u64 {
    let missing = need.unwrap_or(held.saturating_add(1)).saturating_sub(held);
    match shapes {
        [one] => missing.saturating_mul(one.wanted),
        _ => missing,
    }
}

/// What the options are asked about.
pub(super) struct Asking<'a, 'b> {
    pub(super) cluster: &'a mut Cluster,
    pub(super) profiles: &'a Profiles,
    pub(super) state: ClusterState,
    pub(super) ask: &'a Ask,
    /// How many the nodes hold now, whatever else binds.
    pub(super) held: u64,
    pub(super) going: &'a mut (dyn FnMut(u64) -> bool + 'b),
}

impl Asking<'_, '_> {
    /// Answers every option that was given.
    pub(super) fn all(&mut self, options: &QuestionOptions) -> Result<ScenarioAnswers, QuestionError> {
        let mut answers = ScenarioAnswers::default();
        if options.trials.is_some() || options.seed.is_some() {
            let (seed, trials) = (options.seed.unwrap_or(0), options.trials.unwrap_or(1));
            let Self { cluster, profiles, state, ask, going, .. } = self;
            let trials = scenario::trials(cluster, profiles, state, ask, seed, trials, &mut **going);
            answers.trials = Some(trials.map_err(|error| QuestionError::pod(&error))?);
        }
        if options.preempt {
            let pod = self.shape(false)?;
            let room = self.room()?;
            let Self { cluster, profiles, state, going, .. } = self;
            answers.preempt = Some(scenario::preempt(cluster, profiles, state, &pod, room, &mut **going));
        }
        for lost in &options.lose {
            answers.lose.extend(self.lose(lost)?);
        }
        for name in &options.drain {
            let node = self.node("drain", name)?;
            answers.drain.push(self.without(&[node]));
        }
        if let Some(types) = &options.add {
            let missing = missing(options.need, self.held, &self.ask.shapes);
            let additions = self.additions(missing, types);
            answers.cheapest = match self.ask.shapes.len() {
                1 => scenario::mix(&additions, types, missing),
                _ => scenario::mix_sets(&additions, types, missing, &self.of_set()),
            };
            answers.add = Some(additions);
        }
        if options.daemonset {
            let name = self.ask.shapes[0].pod.metadata.name.clone();
            let pod = self.shape(true)?;
            let prepared = Prepared::new(self.cluster, self.profiles, self.ask);
            let prepared = prepared.map_err(|error| QuestionError::pod(&error))?;
            let let_in = prepared.let_in(self.ask).map(|(pods, bound)| {
                let why =
                    prepared.refusal().map_or_else(|| format!("{bound} lets no more in"), |r| r.why.clone());
                (pods, why)
            });
            let bounds = scenario::DaemonBounds { let_in, reserve: &self.ask.reserve };
            answers.daemonset =
                Some(scenario::daemon(self.cluster, self.profiles, &self.state, pod, &name, bounds));
        }
        if options.compact {
            let Self { cluster, profiles, state, ask, going, .. } = self;
            answers.compact = Some(scenario::compact(cluster, profiles, state, &ask.reserve, &mut **going));
        }
        if let Some(moves) = options.defrag {
            let pod = self.shape(false)?;
            let Self { cluster, profiles, state, going, .. } = self;
            let mut defrag = scenario::defrag(cluster, profiles, state, &pod, moves, &mut **going);
            // Moves bring nothing where no more are let in.
            if let Some(most) = self.most(&pod)?.filter(|most| defrag.after > *most) {
                (defrag.before, defrag.after) = (defrag.before.min(most), most);
                if defrag.before == defrag.after {
                    defrag.moves.clear();
                }
            }
            answers.defrag = Some(defrag);
        }
        Ok(answers)
    }

    /// What bounds the first shape besides nodes.
    fn room(&mut self) -> Result<Room, QuestionError> {
        let prepared = Prepared::new(self.cluster, self.profiles, self.ask);
        let mut prepared = prepared.map_err(|error| QuestionError::pod(&error))?;
        let wanted = self.ask.shapes[0].wanted.max(1);
        let max = match prepared.refusal() {
            Some(_) => Some(0),
            None => self.ask.max.map(|sets| sets.saturating_mul(wanted)),
        };
        let quotas = std::mem::take(&mut prepared.admitted[0].quotas);
        Ok(Room { max, quotas, reserve: self.ask.reserve.clone() })
    }

    /// How many of the first shape are let in at most: as many as are asked for, as bounds of its namespace allow, and as
    /// leave free what must stay free.
    fn most(&mut self, pod: &PodInfo) -> Result<Option<u64>, QuestionError> {
        let Room { max, quotas, reserve } = self.room()?;
        let by_quota = quotas.iter().map(|bound| bound.count).min();
        let by_reserve = Reserve::new(self.cluster, &self.state, &reserve).room(pod);
        Ok([max, by_quota, by_reserve].into_iter().flatten().min())
    }

    /// Nodes that hold what is missing, by type.
    fn additions(&mut self, missing: u64, types: &[NodeType]) -> Vec<Addition> {
        let admitted = self.ask.shapes.iter().map(|shape| {
            let pod = admit(self.cluster, shape.pod.clone()).pod;
            Shape { pod, wanted: shape.wanted }
        });
        let shapes: Vec<Shape> = admitted.collect();
        match &shapes[..] {
            [one] => scenario::add(self.profiles, &one.pod, missing, types, &mut *self.going),
            _ => scenario::add_sets(self.profiles, &shapes, missing, types, &mut *self.going),
        }
    }

    /// What a complete set asks of each resource.
    fn of_set(&mut self) -> BTreeMap<String, i64> {
        let mut sum: BTreeMap<String, i64> = BTreeMap::new();
        for shape in &self.ask.shapes {
            let admitted = admit(self.cluster, shape.pod.clone()).pod;
            // One that cannot be used was told already, and adds nothing to the bound.
            let Ok(pod) = self.cluster.shape(&admitted) else { continue };
            let wanted = i64::try_from(shape.wanted).unwrap_or(i64::MAX);
            let name = |resource| self.cluster.resources.name(resource, &self.cluster.symbols).to_owned();
            let asked = pod.requests.plain.iter().map(|(resource, amount)| (name(*resource), *amount));
            for (resource, amount) in asked.chain([("pods".to_owned(), 1)]) {
                let slot = sum.entry(resource).or_default();
                *slot = slot.saturating_add(amount.saturating_mul(wanted));
            }
        }
        sum
    }

    /// The first shape as its namespace makes it.
    fn shape(&mut self, tolerant: bool) -> Result<Arc<PodInfo>, QuestionError> {
        let mut pod = admit(self.cluster, self.ask.shapes[0].pod.clone()).pod;
        if tolerant {
            scenario::daemon_tolerations(&mut pod);
        }
        self.cluster.shape(&pod).map(Arc::new).map_err(|error| {
            let pod = pod.metadata.name.clone();
            QuestionError::pod(&AskError::Selector { pod, error })
        })
    }

    fn node(&self, option: &'static str, name: &str) -> Result<NodeIndex, QuestionError> {
        self.cluster.node(name).ok_or_else(|| {
            let why = format!("no node of the snapshot is named {name}");
            QuestionError::new(option, why, "give the name of a node")
        })
    }

    fn without(&mut self, nodes: &[NodeIndex]) -> Displaced {
        let Self { cluster, profiles, state, ask, going, .. } = self;
        scenario::displace(cluster, profiles, state, nodes, &ask.reserve, &mut **going)
    }

    fn lose(&mut self, lost: &str) -> Result<Vec<Displaced>, QuestionError> {
        if let Some(zone) = lost.strip_prefix("zone=") {
            let zones = scenario::groups(self.cluster, ZONE);
            let nodes = zones.get(zone).ok_or_else(|| {
                let known = zones.keys().cloned().collect::<Vec<_>>().join(", ");
                let why = format!("no node is in zone {zone}; zones are {known}");
                QuestionError::new("lose", why, "give one of these zones")
            })?;
            return Ok(vec![self.without(nodes)]);
        }
        if !matches!(lost, "node" | "any") {
            let node = self.node("lose", lost)?;
            return Ok(vec![self.without(&[node])]);
        }
        let mut all = Vec::new();
        for node in 0..self.cluster.nodes.len() {
            if !(self.going)(node as u64) {
                break;
            }
            all.push(self.without(&[node]));
        }
        // The worst first; who loses nothing is not worth a line.
        all.sort_by_key(|lost| std::cmp::Reverse(lost.failed.len()));
        Ok(all)
    }
}

/// Counts with recommended requests in the snapshot and in the shapes.
pub(super) fn recommended(
    cluster: &mut Cluster,
    profiles: &Profiles,
    asked: &Ask,
    recommendations: &Recommendations,
    going: &mut dyn FnMut(u64) -> bool,
) -> Result<Recommended, QuestionError> {
    let mut shapes = asked.shapes.clone();
    shapes.iter_mut().for_each(|shape| recommendations.apply(&mut shape.pod));
    let question = Ask {
        shapes,
        reserve: asked.reserve.clone(),
        max: asked.max,
        first: asked.first.clone(),
        ..Ask::default()
    };
    let mut state = ClusterState::new(cluster);
    let answer = ask(cluster, profiles, &mut state, &question, going)
        .map_err(|error| QuestionError::new("recommended", error.to_string(), "correct the pod"))?;
    Ok(Recommended { count: answer.count, requests: recommendations.applied(), message: answer.message })
}
