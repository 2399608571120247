//! Closed forms: how many fit without placing any, for shapes whose rules are local to a node, with one hard spread, or
//! that stay away from their own kind on each node.
//!
//! Where a closed form applies it agrees with the step loop; it cannot tell the order, and behind a spread not the node.

use evenkeel_model::narrow::usize_to_i64;
use std::collections::HashSet;

use crate::cluster::{Cluster, NodeIndex, Symbol};
use crate::plugin::{Constraint, Cycle, Sees};
use crate::profile::{Filter, Profile};
use crate::state::ClusterState;

/// A closed answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// How many fit.
    pub count: u64,
    /// How many on each node; `None` where only the domain is known.
    pub per_node: Option<Vec<u64>>,
}

/// Counts without placing; `None` where no closed form applies.
pub fn count(cluster: &Cluster, profile: &Profile, state: &ClusterState, cycle: &Cycle) -> Option<Closed> {
    if cycle.extended || profile.own_filters.iter().any(|own| own.sees() != Sees::Node) {
        return None;
    }
    if !cycle.volumes.as_ref().is_none_or(|rules| rules.is_settled()) {
        return None;
    }
    let keys = match &cycle.affinity {
        Some(rules) if !rules.is_settled() => return None,
        Some(rules) => rules.closing_keys(),
        None => Vec::new(),
    };
    if !keys.iter().all(|key| names_each_node(cluster, *key)) {
        return None;
    }
    // A node without the label is no domain: nobody is kept away from it.
    let one_each = |node: NodeIndex| keys.iter().any(|key| cluster.nodes[node].labels.get(*key).is_some());
    let nodes = 0..cluster.nodes.len();
    let rooms: Vec<u64> =
        nodes.map(|node| room(cluster, profile, state, cycle, node, one_each(node))).collect();
    let Some(rules) = &cycle.hard_spread else {
        let count = rooms.iter().fold(0_u64, |sum, room| sum.saturating_add(*room));
        return Some(Closed { count, per_node: Some(rooms) });
    };
    let [constraint] = &rules.constraints[..] else { return None };
    Some(Closed { count: spread_count(constraint, &rooms), per_node: None })
}

/// Whether no two nodes share a value of this label.
fn names_each_node(cluster: &Cluster, key: Symbol) -> bool {
    let mut seen = HashSet::new();
    cluster.nodes.iter().filter_map(|node| node.labels.get(key)).all(|value| seen.insert(value))
}

/// How many a node takes when it is asked alone, spread aside.
pub(crate) fn room(
    cluster: &Cluster,
    profile: &Profile,
    state: &ClusterState,
    cycle: &Cycle,
    node: NodeIndex,
    one_each: bool,
) -> u64 {
    if state.excluded[node] || !cycle.fits_but_spread(cluster, profile, state, node) {
        return 0;
    }
    let once = one_each
        || (profile.filters.has(Filter::NodePorts) && !cycle.pod.ports.is_empty())
        || cycle.pod.disks.iter().any(|disk| cycle.pod.disks.iter().any(|other| disk.conflicts(other)));
    if once {
        return 1;
    }
    if !profile.filters.has(Filter::NodeResourcesFit) {
        return u64::MAX;
    }
    let by_pods = state.max_pods[node].saturating_sub(state.pods[node]);
    let least = cycle.needs.iter().fold(by_pods, |room, (resource, amount)| {
        let free = state.allocatable[*resource][node].saturating_sub(state.requested[*resource][node]);
        room.min(free / amount)
    });
    let least = u64::try_from(least).unwrap_or(0);
    let attached = cycle.volumes.as_ref().filter(|_| profile.filters.has(Filter::NodeVolumeLimits));
    least.min(attached.and_then(|rules| rules.attach_room(cluster, node)).unwrap_or(u64::MAX))
}

/// With `x` there and room for `c` more in each domain, the emptiest one ends at `L = min(x + c)`, and no other gets
/// further than `L + skew`.
fn spread_count(constraint: &Constraint, rooms: &[u64]) -> u64 {
    let mut more = vec![0_i64; constraint.in_domain.len()];
    for (node, room) in rooms.iter().enumerate() {
        if let Some(more) = more.get_mut(constraint.domain[node] as usize) {
            *more = more.saturating_add(i64::try_from(*room).unwrap_or(i64::MAX));
        }
    }
    let terms = constraint.terms();
    let max_skew = terms.max_skew;
    let here = |domain: usize| if constraint.eligible[domain] { constraint.in_domain[domain] } else { 0 };
    let eligible: Vec<usize> = (0..more.len()).filter(|domain| constraint.eligible[*domain]).collect();
    let too_few = usize_to_i64(eligible.len()) < terms.min_domains;
    let least =
        |of: &dyn Fn(usize) -> i64| eligible.iter().map(|d| of(*d)).min().filter(|_| !too_few).unwrap_or(0);
    let counts = (0..more.len()).map(|domain| {
        if !terms.grows {
            // Its own kind does not count: nothing changes, and open domains fill up.
            let open = here(domain) + terms.own - least(&here) <= max_skew;
            return if open { more[domain] } else { 0 };
        }
        if !constraint.eligible[domain] {
            return if 1 - least(&here) <= max_skew { more[domain] } else { 0 };
        }
        let end = least(&|d| here(d).saturating_add(more[d])).saturating_add(max_skew);
        here(domain).saturating_add(more[domain]).min(end).saturating_sub(here(domain)).max(0)
    });
    counts.fold(0_u64, |sum, count| sum.saturating_add(u64::try_from(count).unwrap_or(0)))
}
