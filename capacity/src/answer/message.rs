//! The scheduler's message for a pod that fits nowhere.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::plugin::Rejection;

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
    for reason in rejections.iter().flatten().flat_map(|rejection| rejection.reasons(cluster)) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut reasons: Vec<String> =
        counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    reasons.sort();
    format!("0/{nodes} nodes are available: {}.", reasons.join(", "))
}
