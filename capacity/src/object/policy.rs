//! Quotas, limit ranges, priorities, disruption budgets.

use super::{LabelSelector, ObjectMeta, ResourceList, StringMap, Toleration};

objects! {
    /// A quota of one namespace.
    pub struct ResourceQuota {
        /// Name and namespace.
        pub metadata: ObjectMeta,
        /// What it bounds.
        pub spec: QuotaSpec,
        /// What is used.
        pub status: QuotaStatus,
    }

    /// What a quota bounds, and for which pods.
    pub struct QuotaSpec {
        /// Bounds.
        pub hard: ResourceList,
        /// Scopes by name, all of which must match.
        pub scopes: Vec<String>,
        /// Scopes with values, all of which must match.
        pub scope_selector: ScopeSelector,
    }

    /// Scopes with values.
    pub struct ScopeSelector {
        /// All must match.
        pub match_expressions: Vec<ScopeRequirement>,
    }

    /// One scope.
    pub struct ScopeRequirement {
        /// `BestEffort`, `NotBestEffort`, `Terminating`, `NotTerminating`, `PriorityClass`, `CrossNamespacePodAffinity`.
        pub scope_name: String,
        /// `In`, `NotIn`, `Exists`, `DoesNotExist`.
        pub operator: String,
        /// Values.
        pub values: Vec<String>,
    }

    /// What of a quota is used.
    pub struct QuotaStatus {
        /// Used amounts; absent where the quota was never counted.
        pub used: ResourceList,
    }

    /// Defaults and bounds of a namespace.
    pub struct LimitRange {
        /// Name and namespace.
        pub metadata: ObjectMeta,
        /// Items.
        pub spec: LimitRangeSpec,
    }

    /// Items of a limit range.
    pub struct LimitRangeSpec {
        /// Items.
        pub limits: Vec<LimitRangeItem>,
    }

    /// Defaults and bounds of one type of thing.
    pub struct LimitRangeItem {
        /// `Container`, `Pod`, `PersistentVolumeClaim`.
        #[serde(rename = "type")]
        pub kind: String,
        /// Limits may be at most this.
        pub max: ResourceList,
        /// Requests must be at least this.
        pub min: ResourceList,
        /// Limit where none is given.
        #[serde(rename = "default")]
        pub default_limit: ResourceList,
        /// Request where none is given.
        pub default_request: ResourceList,
        /// Limit over request at most.
        pub max_limit_request_ratio: ResourceList,
    }

    /// A priority.
    pub struct PriorityClass {
        /// Name.
        pub metadata: ObjectMeta,
        /// Value.
        pub value: i32,
        /// Applies to pods that name none.
        pub global_default: bool,
        /// `Never` or `PreemptLowerPriority`.
        pub preemption_policy: String,
    }

    /// What a container runtime brings with it.
    pub struct RuntimeClass {
        /// Name.
        pub metadata: ObjectMeta,
        /// What a pod costs on top.
        pub overhead: Option<Overhead>,
        /// Which nodes have it.
        pub scheduling: Option<RuntimeScheduling>,
    }

    /// What a pod costs on top of its containers.
    pub struct Overhead {
        /// Amounts for each pod.
        pub pod_fixed: ResourceList,
    }

    /// Which nodes have a runtime.
    pub struct RuntimeScheduling {
        /// Labels of its nodes.
        pub node_selector: StringMap,
        /// Taints its pods bear.
        pub tolerations: Vec<Toleration>,
    }

    /// How many pods of a group may be away at once.
    pub struct DisruptionBudget {
        /// Name and namespace.
        pub metadata: ObjectMeta,
        /// Which pods.
        pub spec: BudgetSpec,
        /// How many may go now.
        pub status: BudgetStatus,
    }

    /// Which pods a budget protects.
    pub struct BudgetSpec {
        /// Selector.
        pub selector: Option<LabelSelector>,
    }

    /// State of a budget.
    pub struct BudgetStatus {
        /// How many pods may go now.
        pub disruptions_allowed: i64,
    }
}
