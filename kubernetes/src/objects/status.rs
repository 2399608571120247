//! The status of a `VerticalPodAutoscaler` in the form and words of the Vertical Pod Autoscaler's own recommender (1.7, as recorded), so that its
//! updater and admission webhook, and people's tools, read it as theirs. Pure: what was found in, JSON out.

use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;
use serde_json::{Map, Value, json};

use super::{Autoscaler, ContainerPolicy};

/// Its greatest amount (`MaxResourceAmount`), which stands for a bound that nothing is known of: thousandths of a core, or bytes.
const MOST: u64 = 100_000_000_000_000;

/// What is recommended for one resource: thousandths of a core, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    /// The request, before the object's policy.
    pub target: u64,
    /// A request below is too small; nothing where the rule has no bounds.
    pub lower: Option<u64>,
    /// A request above is too large; nothing beside a lower bound: there is no such amount yet.
    pub upper: Option<u64>,
}

/// What is recommended for a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommended {
    /// Its name.
    pub container: String,
    /// CPU.
    pub cpu: Option<Amounts>,
    /// Memory.
    pub memory: Option<Amounts>,
    /// It rests on little.
    pub is_young: bool,
}

/// What is known of an object's pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectPods {
    /// There are pods.
    pub has_pods: bool,
    /// Why its target cannot be used.
    pub trouble: Option<String>,
    /// By container.
    pub containers: Vec<Recommended>,
}

impl Recommended {
    fn of(&self, resource: &str) -> Option<Amounts> {
        match resource {
            "cpu" => self.cpu,
            _ => self.memory,
        }
    }
}

/// Both resources, in the order in which they are written.
const RESOURCES: [&str; 2] = ["cpu", "memory"];

fn quantity(resource: &str, amount: u64) -> Quantity {
    match resource {
        "cpu" => Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)),
        _ => Quantity::from_bytes(amount),
    }
}

/// Within a policy's bounds: first the least, then the most.
fn within(policy: Option<&ContainerPolicy>, resource: &str, amount: Quantity) -> Quantity {
    let bound = |of: fn(&ContainerPolicy) -> &BTreeMap<String, Quantity>| {
        policy.and_then(|p| of(p).get(resource)).copied()
    };
    let amount = bound(|p| &p.min_allowed).filter(|least| amount < *least).unwrap_or(amount);
    bound(|p| &p.max_allowed).filter(|most| amount > *most).unwrap_or(amount)
}

fn container(recommended: &Recommended, policy: Option<&ContainerPolicy>) -> Option<Value> {
    let controlled = RESOURCES.iter().filter(|name| policy.is_none_or(|policy| policy.controls(name)));
    let known: Vec<(&str, Amounts)> =
        controlled.filter_map(|name| Some((*name, recommended.of(name)?))).collect();
    let list = |of: fn(&Amounts) -> Option<u64>, is_capped: bool| -> Value {
        let one = |(name, amounts): &(&str, Amounts)| {
            let amount = quantity(name, of(amounts)?);
            let amount = if is_capped { within(policy, name, amount) } else { amount };
            Some(((*name).to_owned(), amount.canonical().into()))
        };
        Value::Object(known.iter().filter_map(one).collect())
    };
    // A bound of a rule without bounds is left out: who compares a request with it then does not.
    let upper = |amounts: &Amounts| amounts.upper.or(amounts.lower.map(|_| MOST));
    (!known.is_empty()).then(|| {
        json!({
            "containerName": recommended.container,
            "target": list(|a| Some(a.target), true),
            "lowerBound": list(|a| a.lower, true),
            "upperBound": list(upper, true),
            "uncappedTarget": list(|a| Some(a.target), false),
        })
    })
}

/// A condition, without the time since which it holds.
struct StatusCondition {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// Conditions that are written here, or were by the recommender before.
const KNOWN: [&str; 7] = [
    "ConfigDeprecated",
    "ConfigUnsupported",
    "FetchingHistory",
    "LowConfidence",
    "NoPodsMatched",
    "RecommendationProvided",
    NOT_HONOURED,
];
/// Conditions of Evenkeel's own objects.
pub const OWN_CONDITIONS: [&str; 8] = [
    "ConfigUnsupported",
    "Conflict",
    "Evaluated",
    FROZEN,
    "InForce",
    "RecommendationProvided",
    "Selects",
    "Updated",
];
/// The condition of Evenkeel's own objects while the panic switch is on, or their namespace is frozen: nothing that they recommend is applied.
pub const FROZEN: &str = "Frozen";
/// The reason of that condition where the namespace says so, and not the switch.
pub const FROZEN_NAMESPACE: &str = "FrozenNamespace";
/// The condition that names fields which change nothing.
const NOT_HONOURED: &str = "evenkeel.dev/NotHonoured";
const NO_PODS: (&str, &str) = ("NoPodsMatched", "No pods match this VPA object");

fn conditions(
    of: &Autoscaler,
    found: &ObjectPods,
    young: &[&str],
    is_provided: bool,
) -> Vec<StatusCondition> {
    let condition = |kind, holds, (reason, message): (_, &str)| StatusCondition {
        kind,
        holds,
        reason,
        message: message.to_owned(),
    };
    let mut all = Vec::new();
    if let Some(why) = &found.trouble {
        all.push(condition("ConfigUnsupported", true, ("", why)));
    }
    if !young.is_empty() {
        let message = format!("little history yet: {}", young.join(", "));
        all.push(condition("LowConfidence", true, ("LittleHistory", &message)));
    }
    if !found.has_pods {
        all.push(condition("NoPodsMatched", true, NO_PODS));
    }
    all.push(match (is_provided, found.has_pods) {
        (true, _) => condition("RecommendationProvided", true, ("", "")),
        (false, false) => condition("RecommendationProvided", false, NO_PODS),
        (false, true) => {
            let why = ("NoHistory", "nothing is known yet of what its containers use");
            condition("RecommendationProvided", false, why)
        }
    });
    let others = of.not_honoured();
    if !others.is_empty() {
        let message = format!(
            "Evenkeel recommends, and leaves the rest to who applies it; these change nothing of what it recommends: {}",
            others.join(", ")
        );
        all.push(condition(NOT_HONOURED, true, ("FieldsNotHonoured", &message)));
    }
    all
}

/// The status that an object should have at a time (RFC 3339, whole seconds).
#[must_use]
pub fn status(of: &Autoscaler, found: &ObjectPods, now: &str) -> Value {
    let is_wanted = |r: &&Recommended| of.container(&r.container).is_none_or(|policy| !policy.is_off());
    let mut wanted: Vec<&Recommended> = found.containers.iter().filter(is_wanted).collect();
    wanted.sort_by(|a, b| a.container.cmp(&b.container));
    let (shown, containers): (Vec<&Recommended>, Vec<Value>) =
        wanted.into_iter().filter_map(|r| Some((r, container(r, of.container(&r.container))?))).unzip();
    let young: Vec<&str> = shown.iter().filter(|r| r.is_young).map(|r| &*r.container).collect();
    let conditions = conditions(of, found, &young, !containers.is_empty());
    let before = of.status["conditions"].as_array().map_or(&[][..], |all| all);
    let mut recommendation = Map::new();
    if !containers.is_empty() {
        recommendation.insert("containerRecommendations".into(), containers.into());
    }
    let conditions = conditions.iter().map(StatusCondition::plain).collect();
    json!({
        "conditions": stamped(conditions, before, &KNOWN, now),
        "observedGeneration": of.metadata.generation,
        "recommendation": recommendation,
    })
}

impl StatusCondition {
    fn plain(&self) -> Value {
        let status = if self.holds { "True" } else { "False" };
        json!({ "type": self.kind, "status": status, "reason": self.reason, "message": self.message })
    }
}

/// Conditions by name, each with the time since which it holds; of those that were there before, what is not `known` here stays.
#[must_use]
pub fn stamped(conditions: Vec<Value>, before: &[Value], known: &[&str], now: &str) -> Vec<Value> {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for other in before {
        let kind = other["type"].as_str().unwrap_or_default();
        if !known.contains(&kind) {
            all.insert(kind.to_owned(), other.clone());
        }
    }
    for condition in conditions {
        let (kind, status) = (&condition["type"], &condition["status"]);
        let same = before.iter().find(|other| other["type"] == *kind && other["status"] == *status);
        let since = same.and_then(|other| other["lastTransitionTime"].as_str()).unwrap_or(now);
        let mut made = json!({ "type": kind, "status": status, "lastTransitionTime": since });
        for name in ["reason", "message"] {
            if condition[name].as_str().is_some_and(|text| !text.is_empty()) {
                made[name] = condition[name].clone();
            }
        }
        all.insert(kind.as_str().unwrap_or_default().to_owned(), made);
    }
    all.into_values().collect()
}

/// Whether two statuses say the same, as far as they are written here.
#[must_use]
pub fn is_same(a: &Value, b: &Value) -> bool {
    ["conditions", "conflicts", "observedGeneration", "recommendation", "selector"]
        .iter()
        .all(|field| is_alike(&a[field], &b[field]))
}

/// Whether two values are the same to an API server, which keeps numbers and not how they are written: 0.0 comes back as 0.
#[must_use]
pub fn is_alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(some), Value::Array(others)) => {
            some.len() == others.len() && some.iter().zip(others).all(|(one, other)| is_alike(one, other))
        }
        (Value::Object(some), Value::Object(others)) => {
            some.len() == others.len()
                && some.iter().all(|(key, one)| others.get(key).is_some_and(|other| is_alike(one, other)))
        }
        _ => a == b,
    }
}

/// The merge patch that writes a status into an object of this version: another version is a conflict.
#[must_use]
pub fn patch(of: &Autoscaler, status: &Value) -> Value {
    let mut status = status.clone();
    // What is left out of a merge patch stays.
    if status["recommendation"].as_object().is_some_and(Map::is_empty) {
        status["recommendation"] = json!({ "containerRecommendations": null });
    }
    json!({ "metadata": { "resourceVersion": of.metadata.resource_version }, "status": status })
}

#[cfg(test)]
mod tests;
