//! Owns the answer for every workload's container seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::key::ContainerKey;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::selector::Selector;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::ContainerResources;
use evenkeel_proto::v1;
use evenkeel_qos::rules::{PodShape, pod_class};
use evenkeel_store::key::SeriesId;
use evenkeel_store::state::StoreState;
use evenkeel_store::state::history::HistorySeries;

use super::advice::{AdviceSubject, Amounts};
use super::rules::Chosen;
use super::{Desk, Now};
use crate::policy::Governing;

/// One workload's container.
#[derive(Debug, Clone)]
pub struct WorkloadContainer {
    /// Whose past it has.
    pub asked: AdviceSubject,
    /// What it has now.
    pub now: Now,
    /// Identity of one of its containers that run now, for the labels of its pod.
    pub identity: Option<Arc<v1::ContainerIdentity>>,
}

/// All, in the order of their names; `namespace` empty for every one.
pub fn lines(state: &StoreState, namespace: &str) -> Vec<WorkloadContainer> {
    newest_by_container(state, namespace).map(|(id, series)| line(state, id, series)).collect()
}

/// The line of a series.
pub(super) fn line(state: &StoreState, id: SeriesId, series: &HistorySeries) -> WorkloadContainer {
    let identity = state.live_of(id).next().map(|(_, slot)| Arc::clone(&slot.identity));
    let limits = identity.as_ref().and_then(|i| i.requested);
    let key = &series.key.of;
    WorkloadContainer {
        asked: AdviceSubject {
            cluster: Some(key.cluster.clone()),
            namespace: key.namespace.clone(),
            workload: key.workload.clone(),
            container: key.container.clone(),
            image: series.key.image.clone(),
            command: identity.as_ref().and_then(|i| i.command_hash),
        },
        now: Now {
            requests: [series.requested.cpu_milli, series.requested.memory_bytes],
            limits: limits.map_or([None; 2], |l| [l.cpu_limit_milli, l.memory_limit_bytes]),
            replicas: u32::try_from(state.live_of(id).count()).unwrap_or(u32::MAX),
        },
        identity,
    }
}

/// Of every (cluster, namespace, workload, container) the series that is followed now, or was last: after a roll-out
/// there is one per image.
fn newest_by_container<'a>(
    state: &'a StoreState,
    namespace: &str,
) -> impl Iterator<Item = (SeriesId, &'a HistorySeries)> {
    type Place<'a> = (&'a str, &'a str, &'a str, &'a str);
    let mut newest: BTreeMap<Place<'a>, (SeriesId, &'a HistorySeries)> = BTreeMap::new();
    for (id, series) in state.history.all() {
        let ContainerKey { cluster, namespace: space, workload, container } = &series.key.of;
        if !namespace.is_empty() && namespace != space || is_infrastructure(state, id, series) {
            continue;
        }
        let rank = |id: SeriesId, s: &HistorySeries| (state.is_live(id), s.newest);
        let place = newest.entry((space, workload, container, cluster)).or_insert((id, series));
        if rank(id, series) >= rank(place.0, place.1) {
            *place = (id, series);
        }
    }
    newest.into_values()
}

/// Whether it is a pod's sandbox, whose requests nobody can set. Of what does not run any more its name tells.
fn is_infrastructure(state: &StoreState, id: SeriesId, series: &HistorySeries) -> bool {
    state.live_of(id).next().map_or_else(
        || series.key.of.container == "pause" && series.key.image.is_none(),
        |(_, slot)| slot.identity.kind() == v1::ContainerKind::Infrastructure,
    )
}

/// The policy that governs a line, and the places of those that select it. Policies govern what runs: of what has gone
/// nobody knows the labels.
pub(crate) fn governing<'a>(
    desk: &Desk<'a>,
    line: &WorkloadContainer,
) -> (Option<Governing<'a>>, Vec<usize>) {
    let Some(identity) = &line.identity else { return (None, Vec::new()) };
    let labels = identity.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    desk.policies.governing(line.asked.cluster.as_deref(), &line.asked.namespace, labels)
}

/// What is recommended to a line, under these rules or the one in force, and the places of the policies that select it.
pub fn recommend(
    desk: &Desk<'_>,
    line: &WorkloadContainer,
    rules: &[Chosen],
) -> (Vec<v1::Recommendation>, Vec<usize>) {
    let (governing, selecting) = governing(desk, line);
    let one = |rule: Option<&Chosen>| desk.recommend(&line.asked, &line.now, governing, rule);
    let mut all: Vec<v1::Recommendation> = match rules {
        [] => one(None).into(),
        rules => rules.iter().flat_map(|rule| one(Some(rule))).collect(),
    };
    let kind = line.identity.as_ref().map_or(0, |identity| identity.kind);
    all.iter_mut().for_each(|r| r.kind = kind);
    (all, selecting)
}

/// Recommendations for every workload's container, in the order of their names.
pub fn all(desk: &Desk<'_>, namespace: &str, rules: &[Chosen]) -> Vec<v1::Recommendation> {
    selected(desk, namespace, &Selector::default(), rules)
}

/// The same of workloads whose pods have these labels; of what does not run nobody knows any.
pub fn selected(
    desk: &Desk<'_>,
    namespace: &str,
    selector: &Selector,
    rules: &[Chosen],
) -> Vec<v1::Recommendation> {
    let lines = lines(desk.state, namespace);
    let is_selected = |line: &&WorkloadContainer| {
        let matches = |identity: &Arc<v1::ContainerIdentity>| {
            selector.matches(|key| identity.labels.get(key).map(String::as_str))
        };
        selector.is_everything() || line.identity.as_ref().is_some_and(matches)
    };
    lines
        .iter()
        .filter(is_selected)
        .take_while(|_| desk.wanted.is_wanted())
        .flat_map(|line| recommend(desk, line, rules).0)
        .collect()
}

/// Class of a container by itself. When no container of a pod changes its own class, the pod does not change its.
pub(super) fn class(requests: Amounts, limits: Amounts) -> QosClass {
    let resources = ContainerResources {
        cpu_request: requests[0].or(limits[0]).map(MilliCpu::new),
        cpu_limit: limits[0].map(MilliCpu::new),
        memory_request: requests[1].or(limits[1]).map(Bytes::new),
        memory_limit: limits[1].map(Bytes::new),
    };
    pod_class(PodShape::Containers(&[resources]))
}
