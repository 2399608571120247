//! Carries out what was planned, step by step: the note first, then the deed, each only while this recommender leads and the panic switch is as it
//! was when it was planned.

mod say;

use std::time::{Duration, Instant};

use evenkeel_kubernetes::PodAt;
use evenkeel_kubernetes::objects::ApiError;
use evenkeel_rightsizing::Resource;
use evenkeel_updater::note::quantity;
use evenkeel_updater::{
    Note, PlannedStep, PodAction, Reason, RunningPod, Size, Sizes, Stage, Two, UpdaterMemory, Workload,
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tracing::debug;

use super::told::{Came, written};
use super::{Updater, panic_of};
use crate::api::Context;
use crate::audit::{AuditOutcome, AuditedChange, Object, Ticket};
use crate::config::UpdaterMode;
use say::say;
pub(super) use say::say_left;

/// How long nothing is done after the API server gave no answer or asked for patience.
const PAUSE: Duration = Duration::from_secs(5);
/// Nobody asked for it from anywhere.
const FROM: &str = "policies";

/// Carries out steps in their order; until when nothing more is to be done, where that is so.
pub(super) async fn out(
    updater: &Updater,
    context: &Context,
    all: &[Workload],
    actions: Vec<PlannedStep>,
    kept: &mut UpdaterMemory,
) -> Option<Instant> {
    let before = panic_of(context);
    for action in actions {
        let is_eviction = matches!(action.deed, PodAction::Evict { .. });
        let is_offer = action.reason == Reason::Offered;
        if mode(context, is_offer) != UpdaterMode::On {
            if is_eviction && !is_offer {
                kept.evicts_not(&action.namespace, &action.workload);
            }
            updater.told.step(&action, Came::DryRun, "", context.engine.now_usec());
            continue;
        }
        if !context.readiness.leading().leads() || panic_of(context) != before {
            return None;
        }
        let pod = all.iter().flat_map(|workload| &workload.pods).find(|pod| pod.uid == action.uid);
        let done = recorded(updater, context, &action, pod).await;
        let (came, why) = match &done {
            Ok(()) => (Came::Done, String::new()),
            Err(NotCarried::Unrecorded(why)) => (Came::Refused, why.clone()),
            Err(NotCarried::Api(error)) => (came(error), error.to_string()),
        };
        updater.told.step(&action, came, &why, context.engine.now_usec());
        if came == Came::Done {
            if is_offer {
                let now = context.engine.now_usec() / 1_000_000;
                let created = pod.map_or(now, |pod| pod.created);
                kept.took_offer(&action.namespace, &action.workload, created, now);
            }
            updater.trouble(None);
            say(updater, context, &action).await;
            continue;
        }
        if is_eviction && !is_offer {
            kept.evicts_not(&action.namespace, &action.workload);
        }
        debug!(pod = action.pod, why, "a step came to nothing");
        match done {
            Err(NotCarried::Api(ApiError::Forbidden(why))) => updater.trouble(Some(why)),
            // A PodDisruptionBudget asks for patience of this pod alone.
            Err(NotCarried::Api(ApiError::Later(_, None))) if is_eviction => {}
            Err(NotCarried::Api(ApiError::Later(_, after))) => {
                return Some(Instant::now() + after.unwrap_or(PAUSE));
            }
            Err(NotCarried::Api(ApiError::Silent(why)) | NotCarried::Unrecorded(why)) => {
                updater.trouble(Some(why));
                return Some(Instant::now() + PAUSE);
            }
            _ => {}
        }
    }
    None
}

/// How far steps are carried out.
fn mode(context: &Context, is_offer: bool) -> UpdaterMode {
    let config = context.config.now();
    let updater = &config.kubernetes.updater;
    if is_offer { updater.evictions.min(updater.mode) } else { updater.mode }
}

/// A step between the beginning and the end of its entry in the audit record. What is noted alone is none.
async fn recorded(
    updater: &Updater,
    context: &Context,
    action: &PlannedStep,
    pod: Option<&RunningPod>,
) -> Result<(), NotCarried> {
    let (from, to) = match &action.deed {
        PodAction::Note => return step(updater, context, action, pod).await.map_err(NotCarried::Api),
        PodAction::Resize { from, to } => (shown(from), shown(to)),
        PodAction::Evict { to } => (pod.map_or(Value::Null, |pod| shown(&pod.sizes)), shown(to)),
    };
    let ticket = Ticket::own(context.readiness.audit(), FROM, "updater");
    let object = Object::new("Pod", &action.namespace, &action.pod);
    let mut after = written(action);
    after["to"] = to;
    let change = async {
        step(updater, context, action, pod).await.map_err(|error| {
            let outcome = match came(&error) {
                Came::Unknown => AuditOutcome::Unknown,
                _ => AuditOutcome::Failed,
            };
            (CarryError(error), outcome)
        })
    };
    match ticket.around_async(AuditedChange { object, before: from, after }, false, change).await {
        Ok(done) => done.map_err(|CarryError(error)| NotCarried::Api(error)),
        Err(error) => {
            Err(NotCarried::Unrecorded(format!("there is no entry of it in the audit record: {error}")))
        }
    }
}

/// Why a step was not carried out, or is not known to have been.
enum NotCarried {
    /// What the API server said, or that it said nothing.
    Api(ApiError),
    /// It could not be recorded, and was not tried.
    Unrecorded(String),
}

/// What came of a step of which the API server says this.
const fn came(error: &ApiError) -> Came {
    match error {
        ApiError::Conflict(_) | ApiError::Absent(_) => Came::Conflict,
        ApiError::Silent(_) => Came::Unknown,
        ApiError::Forbidden(_) | ApiError::Later(..) | ApiError::Wrong(_) => Came::Refused,
    }
}

struct CarryError(ApiError);

impl std::fmt::Display for CarryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

async fn step(
    updater: &Updater,
    context: &Context,
    action: &PlannedStep,
    pod: Option<&RunningPod>,
) -> Result<(), ApiError> {
    let at =
        PodAt { namespace: &action.namespace, name: &action.pod, uid: &action.uid, version: &action.version };
    let mut version = action.version.clone();
    if let Some(note) = &action.note {
        version = note_on(updater, context, at, note).await?;
    }
    let now = PodAt { version: &version, ..at };
    match &action.deed {
        PodAction::Note => Ok(()),
        PodAction::Evict { .. } => updater.api.evict(now).await,
        PodAction::Resize { from, to } => {
            let done = updater.api.resize(now, &spec(pod, from, to)).await;
            // What will not be taken the next time either is given up, so that it is not tried at each look.
            if let (Err(ApiError::Wrong(why) | ApiError::Forbidden(why)), Some(note)) = (&done, &action.note)
                && note.stage == Stage::Asked
            {
                let given_up = note.at_stage(Stage::GivenUp, context.engine.now_usec() / 1_000_000, cut(why));
                note_on(updater, context, now, &given_up).await?;
            }
            done
        }
    }
}

/// The first words of a refusal.
fn cut(why: &str) -> &str {
    const MOST: usize = 512;
    &why[..why.floor_char_boundary(MOST.min(why.len()))]
}

async fn note_on(
    updater: &Updater,
    context: &Context,
    at: PodAt<'_>,
    note: &Note,
) -> Result<String, ApiError> {
    let now = i64::try_from(context.engine.now_usec() / 1_000_000).unwrap_or_default();
    let now = Timestamp::from_second(now).unwrap_or_default().to_string();
    updater.api.note_resize(at, note.stage.as_str(), &note.text(), &now).await
}

/// What changes of a pod's spec.
fn spec(pod: Option<&RunningPod>, from: &Sizes, to: &Sizes) -> Value {
    let (mut ordinary, mut sidecars) = (Vec::new(), Vec::new());
    for (name, new) in to {
        let old = from.get(name).copied().unwrap_or_default();
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for (at, resource) in Resource::ALL.into_iter().enumerate() {
            let put = |list: &mut Map<String, Value>, old: Option<u64>, new: Option<u64>| {
                if let Some(amount) = new.filter(|_| old != new) {
                    list.insert(resource.as_str().to_owned(), quantity(resource, amount).into());
                }
            };
            put(&mut requests, old[at].request, new[at].request);
            put(&mut limits, old[at].limit, new[at].limit);
        }
        let mut resources = Map::new();
        for (field, list) in [("requests", requests), ("limits", limits)] {
            if !list.is_empty() {
                resources.insert(field.to_owned(), list.into());
            }
        }
        let container = json!({ "name": name, "resources": resources });
        let is_sidecar = pod.is_some_and(|pod| pod.containers.get(name).is_some_and(|of| of.is_sidecar));
        if is_sidecar { sidecars.push(container) } else { ordinary.push(container) }
    }
    let mut spec = Map::new();
    for (field, list) in [("containers", ordinary), ("initContainers", sidecars)] {
        if !list.is_empty() {
            spec.insert(field.to_owned(), list.into());
        }
    }
    spec.into()
}

/// Sizes as resources.
fn shown(sizes: &Sizes) -> Value {
    let of = |two: &Two<Size>, pick: fn(&Size) -> Option<u64>| -> Value {
        let all = Resource::ALL.into_iter().zip(two).filter_map(|(resource, size)| {
            Some((resource.as_str().to_owned(), quantity(resource, pick(size)?).into()))
        });
        Value::Object(all.collect())
    };
    let one = |(name, two): (&String, &Two<Size>)| {
        let resources =
            json!({ "requests": of(two, |size| size.request), "limits": of(two, |size| size.limit) });
        (name.clone(), resources)
    };
    Value::Object(sizes.iter().map(one).collect())
}

/// Events of pods that are left alone, in one pass.
const MOST_EVENTS: usize = 10;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn only_what_changes_is_asked_for() {
        let size = |request, limit| Size { request, limit };
        let of = |cpu: Size, memory: Size| BTreeMap::from([("main".to_owned(), [cpu, memory])]);
        let from = of(size(Some(100), Some(200)), size(Some(64 << 20), None));
        let to = of(size(Some(150), Some(200)), size(Some(64 << 20), Some(96 << 20)));
        let resources = json!({ "requests": { "cpu": "150m" }, "limits": { "memory": "96Mi" } });
        assert_eq!(
            spec(None, &from, &to),
            json!({ "containers": [{ "name": "main", "resources": resources }] })
        );
        assert_eq!(cut(&"é".repeat(600)).len(), 512);
    }
}
