//! Quotas, limit ranges, priorities, disruption budgets.

use serde::Deserialize;

use super::{LabelSelector, Metadata, ResourceList, StringMap, Toleration};

/// A quota of one namespace.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceQuota {
    /// Name and namespace.
    pub metadata: Metadata,
    /// What it bounds.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: QuotaSpec,
    /// What is used.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub status: QuotaStatus,
}

/// What a quota bounds, and for which pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaSpec {
    /// Bounds.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub hard: ResourceList,
    /// Scopes by name, all of which must match.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub scopes: Vec<String>,
    /// Scopes with values, all of which must match.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub scope_selector: ScopeSelector,
}

/// Scopes with values.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopeSelector {
    /// All must match.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub match_expressions: Vec<ScopeRequirement>,
}

/// One scope.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScopeRequirement {
    /// `BestEffort`, `NotBestEffort`, `Terminating`, `NotTerminating`, `PriorityClass`, `CrossNamespacePodAffinity`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub scope_name: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub operator: String,
    /// Values.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub values: Vec<String>,
}

/// What of a quota is used.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QuotaStatus {
    /// Used amounts; absent where the quota was never counted.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub used: ResourceList,
}

/// Defaults and bounds of a namespace.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRange {
    /// Name and namespace.
    pub metadata: Metadata,
    /// Items.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: LimitRangeSpec,
}

/// Items of a limit range.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeSpec {
    /// Items.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub limits: Vec<LimitRangeItem>,
}

/// Defaults and bounds of one type of thing.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LimitRangeItem {
    /// `Container`, `Pod`, `PersistentVolumeClaim`.
    #[serde(rename = "type", deserialize_with = "crate::object::null_is_default")]
    pub kind: String,
    /// Limits may be at most this.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub max: ResourceList,
    /// Requests must be at least this.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub min: ResourceList,
    /// Limit where none is given.
    #[serde(rename = "default", deserialize_with = "crate::object::null_is_default")]
    pub default_limit: ResourceList,
    /// Request where none is given.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub default_request: ResourceList,
    /// Limit over request at most.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub max_limit_request_ratio: ResourceList,
}

/// A priority.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityClass {
    /// Name.
    pub metadata: Metadata,
    /// Value.
    pub value: i32,
    /// Applies to pods that name none.
    pub global_default: bool,
    /// `Never` or `PreemptLowerPriority`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub preemption_policy: String,
}

/// What a container runtime brings with it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeClass {
    /// Name.
    pub metadata: Metadata,
    /// What a pod costs on top.
    pub overhead: Option<Overhead>,
    /// Which nodes have it.
    pub scheduling: Option<RuntimeScheduling>,
}

/// What a pod costs on top of its containers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Overhead {
    /// Amounts for each pod.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub pod_fixed: ResourceList,
}

/// Which nodes have a runtime.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuntimeScheduling {
    /// Labels of its nodes.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub node_selector: StringMap,
    /// Taints its pods bear.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub tolerations: Vec<Toleration>,
}

/// How many pods of a group may be away at once.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DisruptionBudget {
    /// Name and namespace.
    pub metadata: Metadata,
    /// Which pods.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: BudgetSpec,
    /// How many may go now.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub status: BudgetStatus,
}

/// Which pods a budget protects.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetSpec {
    /// Selector.
    pub selector: Option<LabelSelector>,
}

/// State of a budget.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BudgetStatus {
    /// How many pods may go now.
    pub disruptions_allowed: i64,
}
