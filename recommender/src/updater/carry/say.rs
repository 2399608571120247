//! Telling of steps: Events, the audit record, steps that were not taken.

use evenkeel_kubernetes::objects::PodEvent;
use evenkeel_updater::{PlannedStep, PodAction, Reason, SkippedStep, Workload};
use jiff::Timestamp;
use tracing::{info, warn};

use super::super::Updater;
use super::super::told::left;
use super::{FROM, MOST_EVENTS};
use crate::api::Context;
use crate::audit::{Object, Ticket};

/// Tells of a step that was taken: in the log, and as an Event of its pod where these are written.
pub(super) async fn say(updater: &Updater, context: &Context, action: &PlannedStep) {
    let PlannedStep { namespace, pod, workload, policy, why, .. } = action;
    let (deed, reason) = (action.deed.as_str(), action.reason.as_str());
    info!(namespace, pod, workload, policy, deed, reason, why, "a pod that runs is changed");
    if !context.config.now().kubernetes.events || action.deed == PodAction::Note {
        return;
    }
    let usec = context.engine.now_usec();
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
    let event = PodEvent {
        namespace: namespace.clone(),
        pod: pod.clone(),
        uid: action.uid.clone(),
        container: None,
        by: "evenkeel.dev/updater",
        node: action.node.clone(),
        reason: word,
        action: verb,
        is_warning: is_offer,
        note,
        at: time(usec),
        number: usec,
    };
    if let Err(error) = updater.api.tell(&event).await {
        warn!(%error, "an Event of a step was not written");
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
        let event = PodEvent {
            namespace: namespace.clone(),
            pod: pod.clone(),
            uid: found.uid.clone(),
            container: None,
            by: "evenkeel.dev/updater",
            node: found.node.clone(),
            reason: "LeftAloneByUpdater",
            action: "Resize",
            is_warning: true,
            note: format!("{word}: {why} (policy {policy})"),
            at: time(usec),
            number: usec + told as u64,
        };
        if let Err(error) = updater.api.tell(&event).await {
            warn!(%error, "an Event of a pod that is left alone was not written");
            return;
        }
    }
}

/// Whether a reason goes by itself with other steps: then it is told where steps are, and is no entry in the audit record.
pub(super) const fn is_for_a_while(reason: Reason) -> bool {
    matches!(reason, Reason::UnderWay | Reason::CanaryWatched | Reason::Rate | Reason::Budget)
}

/// A time with six digits of a second, which the API asks for.
pub(super) fn time(usec: u64) -> String {
    let at = i64::try_from(usec).ok().and_then(|usec| Timestamp::from_microsecond(usec).ok());
    format!("{:.6}", at.unwrap_or_default())
}
