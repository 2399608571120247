//! What was changed, by whom, and what came of it.

use std::collections::BTreeMap;

use evenkeel_proto::v1;
use evenkeel_rightsizing::policy::API_VERSION;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{RecommendationAnswer, time};
use crate::api::policies::AppliedPolicy;
use crate::audit::{AuditEntry, ObjectText, Page};

/// Policies with their status, first by precedence.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PolicyList)]
pub(crate) struct PolicyListAnswer {
    api_version: &'static str,
    kind: &'static str,
    #[schema(value_type = Vec<PolicyObject>)]
    items: Vec<Value>,
    /// LimitRange and ResourceQuota objects.
    #[schema(value_type = Vec<Object>)]
    objects: Vec<Value>,
}

impl PolicyListAnswer {
    pub(crate) fn new(items: Vec<Value>, objects: Vec<Value>) -> Self {
        Self { api_version: API_VERSION, kind: "PolicyList", items, objects }
    }
}

/// A policy, as the definition of the objects in the cluster has it.
#[derive(ToSchema)]
#[schema(as = Policy)]
#[expect(dead_code, reason = "a name for the document, which has the definition in its place")]
pub(crate) struct PolicyObject(Value);

/// What came of it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Applied)]
pub(crate) struct AppliedAnswer {
    /// `created`, `changed` or `unchanged`.
    outcome: &'static str,
    dry_run: bool,
    #[schema(value_type = PolicyObject)]
    policy: Value,
    /// What is recommended to the containers it governs.
    preview: Vec<RecommendationAnswer>,
}

impl AppliedAnswer {
    pub(crate) fn new(applied: AppliedPolicy, dry_run: bool) -> Self {
        Self {
            outcome: applied.outcome.as_str(),
            dry_run,
            policy: applied.object,
            preview: applied.preview.into_iter().map(Into::into).collect(),
        }
    }
}

/// What the updater did to pods that run, and which it leaves alone.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Updates)]
pub(crate) struct UpdatesAnswer {
    /// `off`, `dry-run` or `on`.
    mode: String,
    /// How often pods were looked at since this recommender began.
    passes: u64,
    /// The last 1,000, oldest first.
    steps: Vec<StepAnswer>,
    /// As of the last pass.
    left_alone: Vec<LeftAloneAnswer>,
    /// What kubelets say went wrong with pods that there are.
    failures: Vec<FailureAnswer>,
    /// Choices with all that they rest on, as evenkeel updates --replay reads them.
    #[schema(value_type = Vec<Object>)]
    cases: Vec<Value>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = UpdateStep)]
struct StepAnswer {
    time_usec: u64,
    namespace: String,
    /// Such as deployment/web.
    workload: String,
    policy: String,
    pod: String,
    uid: String,
    node: String,
    /// `resize`, `evict` or `note`.
    deed: String,
    /// In a word, such as `OomKilled`, `Raise` or `CanaryWorse`.
    reason: String,
    why: String,
    /// `done`, `dry-run`, `conflict`, `refused`, or `unknown`: no answer came, and a later pass sees whether it was done.
    outcome: String,
    /// Why it was not done.
    error: String,
    /// What it was decided by.
    inputs: BTreeMap<String, String>,
}

impl From<v1::PodUpdate> for StepAnswer {
    fn from(of: v1::PodUpdate) -> Self {
        Self {
            time_usec: of.time_usec,
            namespace: of.namespace,
            workload: of.workload,
            policy: of.policy,
            pod: of.pod,
            uid: of.uid,
            node: of.node,
            deed: of.deed,
            reason: of.reason,
            why: of.why,
            outcome: of.outcome,
            error: of.error,
            inputs: of.inputs.into_iter().collect(),
        }
    }
}

/// A pod, or (where `pod` is empty) a workload, that asks for something else than is recommended.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LeftAlone)]
struct LeftAloneAnswer {
    namespace: String,
    workload: String,
    policy: String,
    pod: String,
    /// In a word, such as `NoRoom`, `Budget` or `Frozen`.
    reason: String,
    why: String,
    /// What it was decided by, when it was decided last.
    inputs: BTreeMap<String, String>,
    /// Since when it is left alone for that reason.
    since_usec: u64,
}

impl From<v1::PodLeftAlone> for LeftAloneAnswer {
    fn from(of: v1::PodLeftAlone) -> Self {
        Self {
            namespace: of.namespace,
            workload: of.workload,
            policy: of.policy,
            pod: of.pod,
            reason: of.reason,
            why: of.why,
            inputs: of.inputs.into_iter().collect(),
            since_usec: of.since_usec,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = PodFailure)]
struct FailureAnswer {
    namespace: String,
    pod: String,
    workload: String,
    node: String,
    /// Empty where it is about the pod.
    container: String,
    /// `OOMKilled` or `Evicted`.
    reason: String,
    /// In the kubelet's words.
    message: String,
    /// Empty where the kubelet does not say it.
    time: String,
    /// The node's agent told of it, too: it counts once.
    told_by_agent: bool,
}

impl From<v1::PodFailure> for FailureAnswer {
    fn from(of: v1::PodFailure) -> Self {
        Self {
            namespace: of.namespace,
            pod: of.pod,
            workload: of.workload,
            node: of.node,
            container: of.container,
            reason: of.reason,
            message: of.message,
            time: of.time,
            told_by_agent: of.told_by_agent,
        }
    }
}

impl From<v1::ListUpdatesResponse> for UpdatesAnswer {
    fn from(told: v1::ListUpdatesResponse) -> Self {
        let case = |of: v1::UpdateCase| serde_json::from_str(&of.text).unwrap_or_default();
        Self {
            mode: told.mode,
            passes: told.passes,
            steps: told.steps.into_iter().map(Into::into).collect(),
            left_alone: told.left_alone.into_iter().map(Into::into).collect(),
            failures: told.failures.into_iter().map(Into::into).collect(),
            cases: told.cases.into_iter().map(case).collect(),
        }
    }
}

/// A page of the audit record, newest first.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AuditPage {
    entries: Vec<AuditAnswer>,
    /// To be given as pageToken for the next.
    next_page_token: Option<String>,
    /// What of the record cannot be read.
    trouble: Option<String>,
}

/// A change, or an attempt.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = AuditEntry)]
struct AuditAnswer {
    /// Grows by one with each entry.
    number: u64,
    #[schema(format = DateTime)]
    time: Option<String>,
    /// user anna (1000), token anna, certificate URI, join token of CLUSTER/NODE, recommender or nobody.
    who: String,
    /// An address, the Unix socket with pid and uid, or the command line.
    from: String,
    method: String,
    kind: String,
    namespace: String,
    name: String,
    /// The object; null: there was none. One above 16 KiB is {cut, bytes}: the text as far as it was kept, and the length of
    /// the whole.
    #[schema(value_type = Object, nullable)]
    before: Value,
    /// As before.
    #[schema(value_type = Object, nullable)]
    after: Value,
    /// `done`, `refused`, `failed` or `unknown`.
    outcome: &'static str,
    reason: String,
    /// Attempts before this one that were counted and not kept.
    left_out: u64,
}

impl From<AuditEntry> for AuditAnswer {
    fn from(entry: AuditEntry) -> Self {
        let text = |text: Option<ObjectText>| match text {
            None => Value::Null,
            // Cut text is no JSON any more.
            Some(text) => serde_json::from_str(&text.text)
                .unwrap_or_else(|_| json!({ "cut": text.text, "bytes": text.bytes })),
        };
        Self {
            number: entry.number,
            time: time(entry.time_usec),
            who: entry.who,
            from: entry.from,
            method: entry.method,
            kind: entry.object.kind,
            namespace: entry.object.namespace,
            name: entry.object.name,
            before: text(entry.before),
            after: text(entry.after),
            outcome: entry.outcome.as_str(),
            reason: entry.reason,
            left_out: entry.left_out,
        }
    }
}

impl From<Page> for AuditPage {
    fn from(page: Page) -> Self {
        Self {
            entries: page.entries.into_iter().map(Into::into).collect(),
            next_page_token: page.next.map(|number| number.to_string()),
            trouble: page.trouble,
        }
    }
}
