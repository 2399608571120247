//! What is told of the updater: the last steps and why others were not taken, both with all that they rest on, counts, and a condition for each
//! policy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use evenkeel_proto::v1;
use evenkeel_updater::{Plan, PlannedStep, PodAction, Reason, ReplayCase, SkippedStep, Workload};
use serde_json::{Value, json};

use super::cases::Cases;
use super::failures;
use crate::api::Context;

/// Steps that are remembered, and refusals that are told.
const MOST: usize = 1_000;

/// What came of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Came {
    /// It was done.
    Done,
    /// It would have been.
    DryRun,
    /// The pod is another one by now.
    Conflict,
    /// It was refused.
    Refused,
    /// No answer came: the API server may have done it, which a later pass sees.
    Unknown,
}

impl Came {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::Done, Self::DryRun, Self::Conflict, Self::Refused, Self::Unknown];

    /// The word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::DryRun => "dry-run",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Default)]
struct UpdaterHistory {
    steps: VecDeque<v1::PodUpdate>,
    /// With the time since which it is so, microseconds.
    refusals: Vec<(SkippedStep, u64)>,
    cases: Cases,
    /// Steps by deed and what came of them.
    counts: BTreeMap<(&'static str, Came), u64>,
    /// Offers of agents that stand, and evictions for them.
    offers: usize,
    offered: BTreeMap<Came, u64>,
    by_policy: BTreeMap<String, (Reason, String)>,
    passes: u64,
}

/// What is told.
#[derive(Debug, Default)]
pub(crate) struct UpdaterStatus(Mutex<UpdaterHistory>);

impl UpdaterStatus {
    fn inner(&self) -> MutexGuard<'_, UpdaterHistory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pass is over, which did not look at these namespaces: what was refused there before stays. What is refused anew.
    pub(super) fn passed(
        &self,
        mut refusals: Vec<SkippedStep>,
        others: &BTreeSet<String>,
        time_usec: u64,
    ) -> Vec<SkippedStep> {
        let mut inner = self.inner();
        let before = inner.refusals.iter().map(|(of, _)| of);
        refusals.extend(before.filter(|of| others.contains(&of.namespace)).cloned());
        inner.passes += 1;
        inner.by_policy.clear();
        for refusal in refusals.iter().filter(|refusal| !refusal.policy.is_empty()) {
            let of = if refusal.pod.is_empty() { &refusal.workload } else { &refusal.pod };
            let told =
                || (refusal.reason, format!("{}/{of}: {}", refusal.namespace, refusal.reason.as_str()));
            inner.by_policy.entry(refusal.policy.clone()).or_insert_with(told);
        }
        let key = |refusal: &SkippedStep| {
            let SkippedStep { namespace, workload, pod, reason, .. } = refusal;
            (namespace.clone(), workload.clone(), pod.clone(), *reason)
        };
        let before: BTreeMap<_, u64> = inner.refusals.iter().map(|(of, since)| (key(of), *since)).collect();
        let new = refusals.iter().filter(|refusal| !before.contains_key(&key(refusal))).cloned().collect();
        refusals.truncate(MOST);
        let since = |of: SkippedStep| {
            let since = before.get(&key(&of)).copied().unwrap_or(time_usec);
            (of, since)
        };
        inner.refusals = refusals.into_iter().map(since).collect();
        new
    }

    /// Keeps what the steps of a plan rest on, and what is refused anew.
    pub(super) fn keep(
        &self,
        all: &[Workload],
        plan: &Plan,
        new: &[SkippedStep],
        case: impl Fn(&Workload) -> ReplayCase,
    ) {
        let steps = plan.actions.iter().map(|action| (&action.namespace, &action.workload));
        let told: BTreeSet<_> = steps.chain(new.iter().map(|of| (&of.namespace, &of.workload))).collect();
        for workload in all.iter().filter(|of| told.contains(&(&of.namespace, &of.name))) {
            let case = case(workload);
            self.inner().cases.keep(&case);
        }
    }

    /// So many offers of agents stand.
    pub(super) fn offers(&self, count: usize) {
        self.inner().offers = count;
    }

    /// How many offers of agents stand.
    pub(crate) fn offers_standing(&self) -> usize {
        self.inner().offers
    }

    /// Evictions for offers, by what came of them.
    pub(crate) fn offered(&self, came: Came) -> u64 {
        self.inner().offered.get(&came).copied().unwrap_or(0)
    }

    /// Choices that were too large to be kept.
    pub(crate) fn cases_too_large(&self) -> u64 {
        self.inner().cases.too_large()
    }

    /// A step was taken, or was to be.
    pub(super) fn step(&self, action: &PlannedStep, came: Came, error: &str, time_usec: u64) {
        let mut inner = self.inner();
        *inner.counts.entry((action.deed.as_str(), came)).or_default() += 1;
        if action.reason == Reason::Offered && matches!(action.deed, PodAction::Evict { .. }) {
            *inner.offered.entry(came).or_default() += 1;
        }
        // What would be done is told once for as long as nobody does it.
        let is_same =
            |of: &v1::PodUpdate| of.uid == action.uid && of.outcome == came.as_str() && of.why == action.why;
        if came == Came::DryRun
            && let Some(known) = inner.steps.iter_mut().find(|of| is_same(of))
        {
            known.time_usec = time_usec;
            return;
        }
        if inner.steps.len() >= MOST {
            inner.steps.pop_front();
        }
        inner.steps.push_back(v1::PodUpdate {
            time_usec,
            namespace: action.namespace.clone(),
            workload: action.workload.clone(),
            policy: action.policy.clone(),
            pod: action.pod.clone(),
            uid: action.uid.clone(),
            node: action.node.clone(),
            deed: action.deed.as_str().to_owned(),
            reason: action.reason.as_str().to_owned(),
            why: action.why.clone(),
            outcome: came.as_str().to_owned(),
            error: error.to_owned(),
            inputs: inputs(&action.inputs),
        });
    }

    /// Steps by deed and what came of them.
    pub(crate) fn counts(&self, deed: &'static str, came: Came) -> u64 {
        self.inner().counts.get(&(deed, came)).copied().unwrap_or(0)
    }

    /// How many pods or workloads are left alone, by reason.
    pub(crate) fn refused(&self) -> BTreeMap<Reason, u64> {
        let mut counts = BTreeMap::new();
        for (refusal, _) in &self.inner().refusals {
            *counts.entry(refusal.reason).or_default() += 1;
        }
        counts
    }

    /// Passes that were made.
    pub(crate) fn passes(&self) -> u64 {
        self.inner().passes
    }

    /// The condition `Updated` of a policy's object; nothing before the first pass.
    pub(crate) fn condition(&self, policy: &str) -> Option<Value> {
        let inner = self.inner();
        if inner.passes == 0 {
            return None;
        }
        let (status, reason, message) = match inner.by_policy.get(policy) {
            Some((reason, message)) => ("False", reason.as_str(), message.clone()),
            None => {
                ("True", "UpToDate", "its pods ask for what is recommended, or are being changed".to_owned())
            }
        };
        Some(json!({ "type": "Updated", "status": status, "reason": reason, "message": message }))
    }

    /// Everything, for who asks: of one namespace, or of all, and of one pod where it is named; or what it rests on.
    fn all(&self, request: &v1::ListUpdatesRequest) -> v1::ListUpdatesResponse {
        let v1::ListUpdatesRequest { namespace, pod, cases } = request;
        let inner = self.inner();
        if *cases {
            let (passes, cases) = (inner.passes, inner.cases.list(namespace));
            return v1::ListUpdatesResponse { passes, cases, ..v1::ListUpdatesResponse::default() };
        }
        let is_meant = |of: &str, name: &str| {
            (namespace.is_empty() || namespace == of || of.is_empty())
                && (pod.is_empty() || name.is_empty() || pod == name)
        };
        let left = |(of, since): &(SkippedStep, u64)| v1::PodLeftAlone {
            namespace: of.namespace.clone(),
            workload: of.workload.clone(),
            policy: of.policy.clone(),
            pod: of.pod.clone(),
            reason: of.reason.as_str().to_owned(),
            why: of.why.clone(),
            inputs: inputs(&of.inputs),
            since_usec: *since,
        };
        v1::ListUpdatesResponse {
            mode: String::new(),
            passes: inner.passes,
            steps: inner.steps.iter().filter(|of| is_meant(&of.namespace, &of.pod)).cloned().collect(),
            left_alone: inner
                .refusals
                .iter()
                .filter(|(of, _)| is_meant(&of.namespace, &of.pod))
                .map(left)
                .collect(),
            cases: Vec::new(),
            failures: Vec::new(),
        }
    }
}

/// What was done and left, of one namespace or of all, and of one pod where it is named; or what that rests on. May take its time.
pub(crate) fn list(context: &Context, request: &v1::ListUpdatesRequest) -> v1::ListUpdatesResponse {
    let told = context.readiness.updater().map(|updater| updater.told.all(request));
    let mode = context.config.now().kubernetes.updater.mode.as_str().to_owned();
    let failures = match request.cases {
        true => Vec::new(),
        false => failures::list(context, &request.namespace, &request.pod),
    };
    v1::ListUpdatesResponse { mode, failures, ..told.unwrap_or_default() }
}

fn inputs<T: FromIterator<(String, String)>>(inputs: &[(&'static str, String)]) -> T {
    inputs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// A refusal with its inputs.
pub(super) fn left(refusal: &SkippedStep) -> Value {
    json!({
        "namespace": refusal.namespace, "workload": refusal.workload, "policy": refusal.policy, "pod": refusal.pod,
        "reason": refusal.reason.as_str(), "why": refusal.why, "inputs": inputs::<BTreeMap<_, _>>(&refusal.inputs),
    })
}

/// A step with its inputs.
pub(super) fn written(action: &PlannedStep) -> Value {
    json!({
        "namespace": action.namespace, "workload": action.workload, "policy": action.policy, "pod": action.pod,
        "uid": action.uid, "node": action.node, "deed": action.deed.as_str(), "reason": action.reason.as_str(),
        "why": action.why, "inputs": inputs::<BTreeMap<_, _>>(&action.inputs),
        "note": action.note.as_ref().map(|note| serde_json::from_str::<Value>(&note.text()).unwrap_or_default()),
    })
}
