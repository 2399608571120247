//! Owns what is told of each policy: what it recommends, whether it selects anything, and with whom it is in conflict.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_model::key::{ContainerKey, WorkloadKey};
use evenkeel_model::quantity::Quantity;
use evenkeel_proto::v1;
use evenkeel_rightsizing::policy::Policy;
use serde_json::{Map, Value, json};

use super::Set;

/// The status of every policy, as of the last pass over all containers.
#[derive(Debug, Default)]
pub struct Statuses(RwLock<Arc<PolicyStatuses>>);

/// What a pass tells of all policies.
#[derive(Debug, Default)]
pub struct PolicyStatuses {
    /// By `namespace/name`: the policy that was looked at, and what is told of it.
    by_policy: HashMap<String, (Arc<Policy>, Value)>,
    /// Policies that select no container that runs now.
    pub selecting_nothing: usize,
    /// Policies that select a container that another one selects, too.
    pub in_conflict: usize,
}

impl Statuses {
    /// The status of a policy; that nothing is known yet, before the first pass since it was there.
    pub fn get(&self, key: &str) -> Value {
        self.told().by_policy.get(key).map(|(_, status)| status.clone()).unwrap_or_else(|| {
            let waiting =
                condition("Evaluated", false, "Waiting", "no pass over the containers since it was made");
            json!({ "conditions": [waiting] })
        })
    }

    /// The status of a policy, once a pass has looked at it is now.
    pub(crate) fn seen(&self, policy: &Policy) -> Option<Value> {
        let told = self.told();
        let (of, status) = told.by_policy.get(&policy.key())?;
        of.is_same(policy).then(|| status.clone())
    }

    /// What the last pass told.
    pub fn told(&self) -> Arc<PolicyStatuses> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn replace(&self, all: PolicyStatuses) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(all);
    }
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message,
    })
}

/// What a pass has seen of one policy.
#[derive(Debug, Default)]
struct PolicyObservation {
    workloads: BTreeSet<WorkloadKey>,
    /// By container and resource: the greatest of its workloads, since one recommendation has to do for all.
    containers: BTreeMap<String, BTreeMap<String, v1::Recommendation>>,
    /// Places of other policies that select the same containers, and how many.
    conflicts: BTreeMap<usize, usize>,
}

/// A pass over all containers.
#[derive(Debug, Default)]
pub struct Pass {
    by_policy: HashMap<usize, PolicyObservation>,
}

impl Pass {
    /// Takes a container in: the places of the policies that select it, the governing one first, and what is recommended.
    pub fn take(&mut self, selecting: &[usize], recommendations: &[v1::Recommendation]) {
        for at in selecting {
            let seen = self.by_policy.entry(*at).or_default();
            for other in selecting.iter().filter(|other| *other != at) {
                *seen.conflicts.entry(*other).or_default() += 1;
            }
        }
        let Some(seen) = selecting.first().map(|at| self.by_policy.entry(*at).or_default()) else { return };
        for r in recommendations {
            seen.workloads.insert(ContainerKey::from(r).workload_key());
            let by_resource = seen.containers.entry(r.container.clone()).or_default();
            match by_resource.get(&r.resource) {
                Some(before) if before.request >= r.request => {}
                _ => {
                    by_resource.insert(r.resource.clone(), r.clone());
                }
            }
        }
    }

    /// The status of every policy of the set.
    pub fn statuses(&self, set: &Set) -> PolicyStatuses {
        let (none, mut told) = (PolicyObservation::default(), PolicyStatuses::default());
        for (at, dated) in set.all().iter().enumerate() {
            let seen = self.by_policy.get(&at).unwrap_or(&none);
            told.selecting_nothing += usize::from(!seen.selects());
            told.in_conflict += usize::from(!seen.conflicts.is_empty());
            let status = (Arc::clone(&dated.policy), seen.status(set, at));
            told.by_policy.insert(dated.policy.key(), status);
        }
        told
    }
}

impl PolicyObservation {
    fn selects(&self) -> bool {
        !self.containers.is_empty() || !self.conflicts.is_empty()
    }

    fn status(&self, set: &Set, at: usize) -> Value {
        let found = format!("{} workloads are governed", self.workloads.len());
        let nothing = "no container that runs now has labels it selects";
        let mut conditions = vec![match (self.selects(), self.workloads.is_empty()) {
            (false, _) => condition("Selects", false, "SelectsNothing", nothing),
            (true, true) => condition("Selects", true, "Overruled", "older policies govern all it selects"),
            (true, false) => condition("Selects", true, "Governs", &found),
        }];
        let known = self.containers.values().flat_map(BTreeMap::values).any(|r| r.request.is_some());
        let (reason, why) = match (known, self.containers.is_empty()) {
            (true, _) => ("Known", "history says enough"),
            (false, false) => ("NoData", "nothing is known of its containers yet"),
            (false, true) => ("GovernsNothing", "it governs no container that runs now"),
        };
        conditions.push(condition("RecommendationProvided", known, reason, why));
        let name = |at: &usize| set.all().get(*at).map(|d| d.policy.key()).unwrap_or_default();
        if !self.conflicts.is_empty() {
            let others: Vec<String> = self.conflicts.keys().map(name).collect();
            let message =
                format!("also selected by {}; the oldest governs, then the first by name", others.join(", "));
            conditions.push(condition("Conflict", true, "SelectedTwice", &message));
        }
        let conflicts = self.conflicts.iter().map(|(other, containers)| {
            // Places are in the order of precedence.
            json!({ "policy": name(other), "containers": containers, "governs": at < *other })
        });
        let mut status = Map::new();
        if !self.containers.is_empty() {
            let learns = set.all().get(at).and_then(|d| d.policy.startup).is_some_and(|boost| boost.learned);
            let told = |(name, r): (&String, &BTreeMap<String, v1::Recommendation>)| {
                let mut told = recommended(name, r);
                let start = r.values().find_map(|r| Some((&r.resource, r.start.filter(|_| learns)?)));
                if let Some((resource, start)) = start {
                    told["start"] = json!({ resource: written(resource, start) });
                }
                told
            };
            let containers: Vec<Value> = self.containers.iter().map(told).collect();
            status.insert("recommendation".into(), json!({ "containers": containers }));
        }
        status.insert("conditions".into(), conditions.into());
        if !self.conflicts.is_empty() {
            status.insert("conflicts".into(), conflicts.collect());
        }
        if let Some(source) = set.source(at) {
            status.insert("source".into(), source.to_string().into());
        }
        status.into()
    }
}

/// The document's form: resources by container; what leads to them beside.
fn recommended(name: &str, by_resource: &BTreeMap<String, v1::Recommendation>) -> Value {
    let list = |of: fn(&v1::Recommendation) -> Option<u64>| -> Value {
        let known =
            by_resource.values().filter_map(|r| Some((r.resource.clone(), written(&r.resource, of(r)?))));
        Value::Object(known.collect())
    };
    let capped: Map<String, Value> = by_resource
        .values()
        .filter(|r| !r.capped_by.is_empty())
        .map(|r| (r.resource.clone(), json!(r.capped_by)))
        .collect();
    // Two digits: it moves all the time, and each digit more is a write more.
    let rounded = |part: f64| (part * 100.0).round() / 100.0;
    let sure: Map<String, Value> = by_resource
        .values()
        .filter_map(|r| Some((r.resource.clone(), rounded(r.confidence?).into())))
        .collect();
    json!({
        "name": name,
        "resources": { "requests": list(|r| r.request) },
        "lowerBound": list(|r| r.lower),
        "upperBound": list(|r| r.upper),
        "uncapped": list(|r| r.raw),
        "confidence": sure,
        "cappedBy": capped,
    })
}

fn written(resource: &str, amount: u64) -> Value {
    let quantity = match resource {
        "cpu" => Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)),
        _ => Quantity::from_bytes(amount),
    };
    quantity.to_string().into()
}
