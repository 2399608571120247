//! What is told of a count: first placings, shapes, why not one more on each node, what borders cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::count::Counter;
use super::help::amount_text;
use super::reserve::Reserve;
use super::{Fragmentation, NodeAnswer, ScoreAnswer, ShapeAnswer, StatusAnswer, StepAnswer};
use crate::cluster::NodeIndex;
use crate::engine::step::Placer;
use crate::plugin::Rejection;

impl Counter<'_, '_> {
    /// The first placings of the first shape, under all bounds, and the look that finds no node.
    pub(super) fn first_steps(&mut self, most: usize) -> Vec<StepAnswer> {
        let most = most.min(self.let_in());
        let mut state = self.state.clone();
        let pod = Arc::clone(self.placers[0].pod());
        let mut reserve = Reserve::new(self.cluster, self.state, &self.ask.reserve);
        let mut placer = Placer::new(self.cluster, self.placers[0].profile(), &mut state, pod);
        let mut steps = Vec::new();
        while steps.len() < most {
            let step = placer.look(&state);
            let rejections = placer.rejections(&state);
            let infeasible = rejections.iter().enumerate().filter_map(|(node, rejection)| {
                let rejection = rejection.as_ref()?;
                let status =
                    StatusAnswer { code: rejection.code(), reasons: rejection.reasons(self.cluster) };
                Some((self.name(node), status))
            });
            let score = |at: usize| ScoreAnswer {
                total: step.scores.totals[at],
                weighted: step
                    .scores
                    .by_plugin
                    .iter()
                    .map(|(plugin, all)| ((*plugin).into(), all[at]))
                    .collect(),
            };
            steps.push(StepAnswer {
                best: step.best.iter().map(|node| self.name(*node)).collect(),
                feasible: step
                    .feasible
                    .iter()
                    .enumerate()
                    .map(|(at, node)| (self.name(*node), score(at)))
                    .collect(),
                infeasible: infeasible.collect(),
            });
            let Some(best) = step.best.first() else { break };
            if !reserve.allows(placer.pod()) {
                steps.pop();
                break;
            }
            placer.place(&mut state, *best);
        }
        steps
    }

    pub(super) fn shapes(&self, per_shape: &[Vec<u64>], failed: usize, message: &str) -> Vec<ShapeAnswer> {
        let one = |(index, counts): (usize, &Vec<u64>)| ShapeAnswer {
            name: self.ask.shapes[index].pod.metadata.name.clone(),
            wanted: self.ask.shapes[index].wanted,
            placed: counts.iter().sum(),
            per_node: self.by_name(counts),
            message: if index == failed { message.to_owned() } else { String::new() },
        };
        per_shape.iter().enumerate().map(one).collect()
    }

    pub(super) fn node_answers(&self, rejections: &[Option<Rejection>]) -> Vec<NodeAnswer> {
        let one = |(node, rejection): (usize, &Option<Rejection>)| {
            let rejection = rejection.as_ref()?;
            let mut short = BTreeMap::new();
            if let Rejection::Resources { pods, short: lacking } = rejection {
                short.extend(pods.then(|| ("pods".to_owned(), "1".to_owned())));
                short.extend(lacking.iter().map(|lack| {
                    let name = self.cluster.resources.name(lack.resource, &self.cluster.symbols).to_owned();
                    let by = amount_text(&name, lack.by);
                    (name, by)
                }));
            }
            let (code, reasons) = (rejection.code(), rejection.reasons(self.cluster));
            Some(NodeAnswer { node: self.name(node), code, reasons, short })
        };
        rejections.iter().enumerate().filter_map(one).collect()
    }

    /// What the sum of all nodes that could ever take it would hold.
    pub(super) fn fragmentation(&mut self) -> Option<Fragmentation> {
        let closed = self.placers[0].closed(self.state)?.count;
        let needs = self.placers[0].needs();
        let nodes: Vec<NodeIndex> = self.placers[0].never_out(self.state);
        let free = |resource: usize| {
            nodes.iter().fold(0_i64, |sum, node| {
                let free = self.state.allocatable[resource][*node] - self.state.requested[resource][*node];
                sum.saturating_add(free.max(0))
            })
        };
        let pods = nodes.iter().fold(0_i64, |sum, node| {
            sum.saturating_add(self.state.max_pods[*node].saturating_sub(self.state.pods[*node]).max(0))
        });
        let name = |resource| self.cluster.resources.name(resource, &self.cluster.symbols).to_owned();
        let by_resource = needs.iter().map(|(resource, amount)| (free(*resource) / amount, name(*resource)));
        let (aggregate, resource) = by_resource.chain([(pods, "pods".to_owned())]).min()?;
        let aggregate = u64::try_from(aggregate).unwrap_or(0);
        Some(Fragmentation { aggregate, nodes: closed, lost: aggregate.saturating_sub(closed), resource })
    }

    pub(super) fn by_name(&self, counts: &[u64]) -> BTreeMap<String, u64> {
        counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(node, count)| (self.name(node), *count))
            .collect()
    }

    pub(super) fn name(&self, node: NodeIndex) -> String {
        self.cluster.word(self.cluster.nodes[node].name).to_owned()
    }
}
