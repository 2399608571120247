//! `VerticalPodAutoscaler` of `autoscaling.k8s.io/v1`, as far as a recommender reads it, and what it does not heed of one; and of
//! `evenkeel.dev/v1`, whose spec is left to what reads policies.

use std::collections::BTreeMap;

use evenkeel_model::null::null_is_default;
use evenkeel_model::quantity::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Meta;

/// The name by which objects ask for this recommender.
pub const NAME: &str = "evenkeel";

/// An object that asks for a recommendation.
#[derive(Debug, Clone, Default)]
pub struct Autoscaler {
    /// Which.
    pub metadata: Meta,
    /// What it asks.
    pub spec: Spec,
    /// The same as it is written.
    written: Value,
    /// What was written into it last.
    pub status: Value,
}

/// What it asks.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Whose pods.
    pub target_ref: Option<TargetRef>,
    #[serde(deserialize_with = "null_is_default")]
    recommenders: Vec<Recommender>,
    /// What holds for its containers.
    #[serde(deserialize_with = "null_is_default")]
    pub resource_policy: ResourcePolicy,
}

/// A controller.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// Group and version, such as `apps/v1`.
    #[serde(deserialize_with = "null_is_default")]
    pub api_version: String,
    /// Kind, such as `Deployment`.
    #[serde(deserialize_with = "null_is_default")]
    pub kind: String,
    /// Name.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Recommender {
    #[serde(deserialize_with = "null_is_default")]
    name: String,
}

/// What holds for containers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePolicy {
    /// Of each, or of all that are not named (`*`).
    #[serde(deserialize_with = "null_is_default")]
    pub container_policies: Vec<ContainerPolicy>,
}

/// What holds for a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPolicy {
    /// Its name; `*` for all that are not named.
    #[serde(deserialize_with = "null_is_default")]
    pub container_name: String,
    /// `Auto` or `Off`.
    #[serde(deserialize_with = "null_is_default")]
    pub mode: String,
    /// Least that is recommended.
    #[serde(deserialize_with = "null_is_default")]
    pub min_allowed: BTreeMap<String, Quantity>,
    /// Most that is recommended.
    #[serde(deserialize_with = "null_is_default")]
    pub max_allowed: BTreeMap<String, Quantity>,
    /// Resources for which something is recommended; both where it is not written.
    pub controlled_resources: Option<Vec<String>>,
    /// `RequestsAndLimits` or `RequestsOnly`.
    #[serde(deserialize_with = "null_is_default")]
    pub controlled_values: String,
}

impl ContainerPolicy {
    /// Whether something is recommended for the container at all.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.mode == "Off"
    }

    /// Whether limits stay what they are, and bound requests; else they keep their ratio to these.
    #[must_use]
    pub fn keeps_limits(&self) -> bool {
        self.controlled_values == "RequestsOnly"
    }

    /// Whether something is recommended for a resource.
    #[must_use]
    pub fn controls(&self, resource: &str) -> bool {
        self.controlled_resources.as_ref().is_none_or(|all| all.iter().any(|one| one == resource))
    }
}

impl TargetRef {
    /// The workload's name where this is the controller at the top of pods, such as `deployment/web`.
    #[must_use]
    pub fn workload(&self) -> String {
        format!("{}/{}", self.kind.to_ascii_lowercase(), self.name)
    }
}

impl Autoscaler {
    /// Reads one.
    ///
    /// # Errors
    /// When a field is of another type than the definition has.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut object: Value = serde_json::from_slice(json)?;
        let metadata = Meta::deserialize(&object["metadata"])?;
        let written = object["spec"].take();
        let spec = Option::<Spec>::deserialize(&written)?.unwrap_or_default();
        Ok(Self { metadata, spec, written, status: object["status"].take() })
    }

    /// One of Evenkeel's own, with its spec as it is written.
    ///
    /// # Errors
    /// When it has no metadata.
    pub fn own(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut object: Value = serde_json::from_slice(json)?;
        let metadata = Meta::deserialize(&object["metadata"])?;
        let (written, status) = (object["spec"].take(), object["status"].take());
        Ok(Self { metadata, spec: Spec::default(), written, status })
    }

    /// Its spec as it is written.
    #[must_use]
    pub fn as_written(&self) -> &Value {
        &self.written
    }

    /// Whether a recommender of this name is to answer it: only where one of its `recommenders` has the name, as the Vertical Pod
    /// Autoscaler decides of those that are not its default one (`selectsRecommender`, `pkg/recommender/input/cluster_feeder.go`).
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        self.spec.recommenders.iter().any(|recommender| recommender.name == name)
    }

    /// What may be done with what is recommended (`updatePolicy.updateMode`); `Auto` where it is not written, as that project takes it.
    #[must_use]
    pub fn update_mode(&self) -> &str {
        let mode = self.written["updatePolicy"]["updateMode"].as_str();
        mode.filter(|mode| !mode.is_empty()).unwrap_or("Auto")
    }

    /// What holds for a container: the entry of its name, else that of `*`.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerPolicy> {
        let all = &self.spec.resource_policy.container_policies;
        let of = |wanted: &str| all.iter().find(|policy| policy.container_name == wanted);
        of(name).or_else(|| of("*"))
    }

    /// Fields that it has and that change nothing of what is recommended.
    #[must_use]
    pub fn not_honoured(&self) -> Vec<String> {
        let mut found = Vec::new();
        let none = Map::new();
        let object = |value: &'static str, of: &Value| of[value].as_object().cloned().unwrap_or_default();
        let spec = self.written.as_object().unwrap_or(&none);
        others(spec, &["targetRef", "recommenders", "resourcePolicy", "updatePolicy"], "spec", &mut found);
        let update = object("updatePolicy", &self.written);
        let mode = update.get("updateMode").and_then(Value::as_str).unwrap_or("Off");
        if mode != "Off" {
            found.push(format!("spec.updatePolicy.updateMode ({mode})"));
        }
        others(&update, &["updateMode"], "spec.updatePolicy", &mut found);
        let policy = object("resourcePolicy", &self.written);
        others(&policy, &["containerPolicies"], "spec.resourcePolicy", &mut found);
        let containers = policy.get("containerPolicies").and_then(Value::as_array);
        for container in containers.into_iter().flatten().filter_map(Value::as_object) {
            let name = container.get("containerName").and_then(Value::as_str).unwrap_or_default();
            others(container, &OF_CONTAINERS, &format!("containerPolicies[{name}]"), &mut found);
        }
        found
    }
}

/// Fields of a container's policy that are heeded. `controlledValues` says what becomes of limits, which who applies a recommendation sets.
const OF_CONTAINERS: [&str; 6] =
    ["containerName", "mode", "minAllowed", "maxAllowed", "controlledResources", "controlledValues"];

/// Names fields beside those that are known.
fn others(of: &Map<String, Value>, known: &[&str], place: &str, found: &mut Vec<String>) {
    let unknown = of.iter().filter(|(name, value)| !known.contains(&name.as_str()) && !value.is_null());
    found.extend(unknown.map(|(name, _)| format!("{place}.{name}")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(spec: Value) -> Autoscaler {
        let object = json!({ "metadata": { "name": "a", "namespace": "n", "generation": 3 }, "spec": spec });
        Autoscaler::read(object.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn only_those_that_name_a_recommender_are_for_it() {
        for (recommenders, want) in [
            (Value::Null, false),
            (json!([]), false),
            (json!([{ "name": "default" }]), false),
            (json!([{ "name": "evenkeel" }]), true),
            (json!([{ "name": "Evenkeel" }]), false),
            // Its admission webhook refuses two; where that is away, one of them is enough.
            (json!([{ "name": "default" }, { "name": "evenkeel" }]), true),
        ] {
            assert_eq!(of(json!({ "recommenders": recommenders })).is_for(NAME), want, "{recommenders}");
        }
    }

    #[test]
    fn a_container_has_its_own_policy_or_that_of_all() {
        let object = of(json!({ "resourcePolicy": { "containerPolicies": [
            { "containerName": "*", "mode": "Off" },
            { "containerName": "main", "controlledResources": ["memory"], "minAllowed": { "cpu": "0.5" } },
        ]}}));
        let main = object.container("main").unwrap();
        assert_eq!((main.is_off(), main.controls("cpu"), main.controls("memory")), (false, false, true));
        assert_eq!(main.min_allowed["cpu"].canonical(), "500m");
        assert!(object.container("side").unwrap().is_off());
        assert!(of(json!({})).container("main").is_none());
        assert!(of(Value::Null).spec.target_ref.is_none());
    }

    #[test]
    fn what_changes_nothing_is_named() {
        let named = |spec: Value| of(spec).not_honoured();
        assert!(named(json!({
            "targetRef": {}, "recommenders": [{ "name": "evenkeel" }], "updatePolicy": { "updateMode": "Off" },
            "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "controlledValues": "RequestsOnly", "mode": "Auto" }] },
        }))
        .is_empty());
        for mode in ["Initial", "Recreate", "InPlace", "InPlaceOrRecreate", "Auto"] {
            let want = format!("spec.updatePolicy.updateMode ({mode})");
            assert_eq!(named(json!({ "updatePolicy": { "updateMode": mode } })), [want]);
        }
        let all = named(json!({
            "startupBoost": { "cpu": { "type": "Factor", "factor": 2 } },
            "updatePolicy": { "minReplicas": 1, "evictionRequirements": [], "evictAfterOOMSeconds": 5 },
            "resourcePolicy": { "containerPolicies": [{
                "containerName": "main", "startupBoost": {}, "oomBumpUpRatio": "2", "oomMinBumpUp": "1Mi",
                "memoryAggregationIntervalSeconds": 60, "memoryAggregationIntervalCount": 3,
            }]},
        }));
        assert_eq!(all.len(), 9, "{all:?}");
        for want in
            ["spec.startupBoost", "spec.updatePolicy.minReplicas", "containerPolicies[main].oomBumpUpRatio"]
        {
            assert!(all.iter().any(|named| named == want), "{want}: {all:?}");
        }
    }

    #[test]
    fn what_is_of_another_type_is_refused() {
        for wrong in [json!({ "recommenders": 7 }), json!({ "targetRef": "web" }), json!("none")] {
            let object = json!({ "metadata": { "name": "a" }, "spec": wrong }).to_string();
            assert!(Autoscaler::read(object.as_bytes()).is_err(), "{object}");
        }
        assert!(Autoscaler::read(b"[]").is_err());
    }
}
