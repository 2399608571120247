//! How it stands with one pod: whether a step of it is under way, over, or stuck.

use crate::facts::{Resizing, RunningPod, UpdateRules};
use crate::note::{Note, Stage};
use crate::plan::Reason;
use crate::sizes::has;

/// How it stands with a pod.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PodProgress {
    /// Nothing is under way.
    Free,
    /// It is left alone, and why.
    Waits(Reason, String),
    /// Its step is over: this is to be noted.
    Over(Note),
    /// Its step goes no further, and why.
    Stuck(String),
    /// What it had before is to be asked for again, as its note says.
    GoesBack,
}

impl PodProgress {
    /// Whether a step of it is under way, by us or by others.
    pub(crate) fn is_under_way(&self) -> bool {
        matches!(self, Self::Waits(Reason::UnderWay, _) | Self::Over(_) | Self::Stuck(_) | Self::GoesBack)
    }
}

/// How it stands with a pod now.
pub(crate) fn standing(pod: &RunningPod, rules: &UpdateRules, now: u64) -> PodProgress {
    let waits = |reason, why: &str| PodProgress::Waits(reason, why.to_owned());
    if pod.is_ending {
        return waits(Reason::UnderWay, "it ends");
    }
    if pod.is_sized_as_whole {
        return waits(Reason::Unsupported, "its resources are those of the pod as a whole");
    }
    let Some(note) = &pod.note else { return settled(pod) };
    match note.stage {
        Stage::Asked if has(pod, &note.target) => asked(pod, note, rules, now),
        Stage::Asked | Stage::Reverted if has(pod, &note.before) => settled(pod),
        Stage::GivenUp | Stage::Worse if note.target != note.back() && has(pod, &note.target) => {
            PodProgress::GoesBack
        }
        _ if !has(pod, &note.holds()) => waits(Reason::ChangedByOthers, "somebody else resized it"),
        _ => settled(pod),
    }
}

fn settled(pod: &RunningPod) -> PodProgress {
    match pod.resizing {
        Resizing::Settled => PodProgress::Free,
        _ => PodProgress::Waits(
            Reason::UnderWay,
            format!("a resize of it is under way{}", words(&pod.resizing)),
        ),
    }
}

/// Of what was asked for.
fn asked(pod: &RunningPod, note: &Note, rules: &UpdateRules, now: u64) -> PodProgress {
    let (since, within) = match &pod.resizing {
        Resizing::Settled => return PodProgress::Over(note.at_stage(Stage::Done, now, "")),
        Resizing::Infeasible { why } => return PodProgress::Stuck(format!("infeasible: {why}")),
        Resizing::Deferred { since, .. } => ((*since).max(note.at), rules.deferred_seconds),
        // It may be over with the next try of the node.
        Resizing::Failing { .. } => (note.at, rules.deferred_seconds),
        Resizing::InProgress => (note.at, rules.in_progress_seconds),
    };
    let words = words(&pod.resizing);
    if now >= since.saturating_add(within) {
        return PodProgress::Stuck(format!("for {} s{words}", now.saturating_sub(since)));
    }
    PodProgress::Waits(Reason::UnderWay, format!("its resize is under way{words}"))
}

fn words(resizing: &Resizing) -> String {
    match resizing {
        Resizing::Settled => String::new(),
        Resizing::Deferred { why, .. } => format!(", deferred: {why}"),
        Resizing::Infeasible { why } => format!(", infeasible: {why}"),
        Resizing::InProgress => ", in progress".to_owned(),
        Resizing::Failing { why } => format!(", failing: {why}"),
    }
}
