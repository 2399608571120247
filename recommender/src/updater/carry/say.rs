//! Telling of steps: Events, the audit record, steps that were not taken.

use evenkeel_kubernetes::objects::ObjectEvent;
use evenkeel_updater::{PlannedStep, PodAction, Reason, SkippedStep, Workload};
use tracing::info;

use super::super::Updater;
use super::super::told::left;
use super::{FROM, MOST_EVENTS};
use crate::api::Context;
use crate::audit::{Object, Ticket};
use crate::events::event_time;

/// Tells of a step that was taken: in the log, and as an Event of its pod where these are written.
pub(super) async fn say(updater: &Updater, context: &Context, action: &PlannedStep) {
    let PlannedStep { namespace, pod, workload, policy, why, .. } = action;
    let (deed, reason) = (action.deed.as_str(), action.reason.as_str());
    info!(namespace, pod, workload, policy, deed, reason, why, "a pod that runs is changed");
    if !context.config.now().kubernetes.events || action.deed == PodAction::Note {
        return;
    }
    // The kubelet's own word for a pod that goes for the sake of its node.
    let is_offer = action.reason == Reason::Offered;
    let (word, verb) = match &action.deed {
        PodAction::Evict { .. } if is_offer => ("Evicted", "Evict"),
        PodAction::Evict { .. } => ("EvictedByUpdater", "Evict"),
        _ => ("ResizedByUpdater", "Resize"),
    };
    let note = if is_offer {
        format!("{why} (policy {policy})")
    } else {
        format!("{reason}: {why} (policy {policy})")
    };
    updater.recorder.record(ObjectEvent {
        reason: word,
        action: verb,
        is_warning: is_offer,
        ..about(namespace, pod, &action.uid, &action.node, note, context.engine.now_usec())
    });
}

/// That a running pod was left alone, and why.
fn about(namespace: &str, pod: &str, uid: &str, node: &str, note: String, usec: u64) -> ObjectEvent {
    ObjectEvent {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: namespace.to_owned(),
        name: pod.to_owned(),
        uid: uid.to_owned(),
        container: None,
        reason: "LeftAloneByUpdater",
        action: "Resize",
        is_warning: true,
        controller: "evenkeel.dev/updater",
        instance: node.to_owned(),
        note,
        at: event_time(usec),
        number: 0,
    }
}

/// Tells which pods are left alone from now on: in the log, and as Events of those that somebody should look at.
pub(crate) async fn say_left(updater: &Updater, context: &Context, all: &[Workload], new: &[SkippedStep]) {
    let needs_somebody = |reason| {
        use Reason::{
            AdmissionUnproven, BackOff, CanaryWorse, ChangedByOthers, ClassWouldChange, NoRoom, Unsupported,
        };
        matches!(
            reason,
            AdmissionUnproven
                | BackOff
                | CanaryWorse
                | ChangedByOthers
                | ClassWouldChange
                | NoRoom
                | Unsupported
        )
    };
    let (mut told, usec) = (0, context.engine.now_usec());
    for refusal in new {
        let SkippedStep { namespace, workload, pod, policy, why, reason, .. } = refusal;
        let word = reason.as_str();
        info!(namespace, workload, pod, reason = word, why, "a pod that runs is left as it is");
        if !is_for_a_while(*reason) {
            let ticket = Ticket::own(context.readiness.audit(), FROM, "updater");
            let (kind, name) = if pod.is_empty() { ("Workload", workload) } else { ("Pod", pod) };
            ticket
                .refused(Object::new(kind, namespace, name), left(refusal), &format!("{word}: {why}"))
                .await;
        }
        let of = all.iter().filter(|of| of.namespace == *namespace && of.name == *workload);
        let found = of.flat_map(|of| &of.pods).find(|of| of.name == *pod);
        let Some(found) = found.filter(|_| needs_somebody(*reason) && told < MOST_EVENTS) else { continue };
        if !context.config.now().kubernetes.events {
            continue;
        }
        told += 1;
        let note = format!("{word}: {why} (policy {policy})");
        updater.recorder.record(about(namespace, pod, &found.uid, &found.node, note, usec));
    }
}

/// Whether a reason goes by itself with other steps: then it is told where steps are, and is no entry in the audit record.
pub(super) const fn is_for_a_while(reason: Reason) -> bool {
    matches!(reason, Reason::UnderWay | Reason::CanaryWatched | Reason::Rate | Reason::Budget)
}
