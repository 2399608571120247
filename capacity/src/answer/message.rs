//! The scheduler's message for a pod that fits nowhere.

use std::collections::{BTreeMap, HashMap};

use crate::cluster::Cluster;
use crate::plugin::{Rejection, Short};

/// `0/5 nodes are available: 2 node(s) had untolerated taint(s), 3 Insufficient cpu.` (`FitError.Error`): reasons are
/// counted and sorted as text. A pod that is refused as such has one reason, without a number.
pub fn fit_error(cluster: &Cluster, rejections: &[Option<Rejection>]) -> String {
    let nodes = rejections.len();
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let refused = rejections.iter().flatten().find_map(|rejection| match rejection {
        Rejection::Pod(text) => Some(text),
        _ => None,
    });
    if let Some(text) = refused {
        return format!("0/{nodes} nodes are available: {text}.");
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (rejection, nodes) in alike(rejections) {
        for reason in rejection.reasons(cluster) {
            *counts.entry(reason).or_default() += nodes;
        }
    }
    let mut reasons: Vec<String> =
        counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}

/// Rejections that read the same, with the number of nodes: the words are made once for all of them.
fn alike(rejections: &[Option<Rejection>]) -> Vec<(Rejection, usize)> {
    let (mut too_many_pods, mut short): (usize, Vec<(Short, usize)>) = (0, Vec::new());
    let mut others: HashMap<&Rejection, usize> = HashMap::new();
    for rejection in rejections.iter().flatten() {
        // By how much resources are short is another number on each node, and not in the words.
        let Rejection::Resources { pods, short: lacking } = rejection else {
            *others.entry(rejection).or_default() += 1;
            continue;
        };
        too_many_pods += usize::from(*pods);
        for lack in lacking {
            match short.iter_mut().find(|(known, _)| known.resource == lack.resource) {
                Some((_, nodes)) => *nodes += 1,
                None => short.push((*lack, 1)),
            }
        }
    }
    let resources = |pods, short| Rejection::Resources { pods, short };
    let short = short.into_iter().map(|(lack, nodes)| (resources(false, vec![lack]), nodes));
    let others = others.into_iter().map(|(rejection, nodes)| (rejection.clone(), nodes));
    let pods = (too_many_pods > 0).then(|| (resources(true, Vec::new()), too_many_pods));
    short.chain(others).chain(pods).collect()
}
