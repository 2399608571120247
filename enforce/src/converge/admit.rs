//! Admission at each merge: when it is judged, what follows for the containers, and what is shown.
//!
//! Not owned: the order and the judgement ([`crate::admission`]).

use std::collections::BTreeSet;
use std::time::Instant;

use evenkeel_model::workload::SourceKind;

use super::Converger;
use super::board::NodeKnob;
use crate::admission::Mode;
use crate::admission::{self, AdmissionResult};
use crate::allocatable;
use crate::decisions::now_usec;
use crate::reconcile::Merged;
use crate::shared::SourceUpdate;

/// What to do about manifests that do not fit.
const REMEDY: &str =
    "lower their requests, take others away, or state what the node has to give in node.allocatable";

impl Converger {
    /// Looks which manifests fit beside everything else, and tells; those that do not are left alone where that is wished.
    pub(super) fn admit(&mut self, merged: &mut Merged, now: Instant) {
        let refuses = self.live.admission == Mode::Refuse;
        let expected = self.parts.context.config.sources.count();
        if self.snapshots.sources().count() < expected && now < self.admission.until() {
            self.merge_at = Some(self.admission.until());
            if refuses {
                admission::refuse(merged, &self.admission.unjudged(merged));
            }
            return;
        }
        // A directory that cannot be read says nothing of who is gone.
        let is_read = |s: &SourceUpdate| s.source == SourceKind::Manifests && s.healthy;
        if !self.snapshots.sources().any(is_read) {
            return;
        }
        let allocatable = allocatable::of_node(&self.parts.context);
        let verdict = self.admission.look(merged, &allocatable, now_usec());
        if verdict.changed
            && let Err(error) = self.admission.save()
        {
            tracing::warn!(%error, "which manifests were admitted is not kept; after a restart they are admitted anew");
        }
        if refuses {
            admission::refuse(merged, &verdict.short);
        }
        self.show_admission(verdict);
    }

    fn show_admission(&mut self, verdict: AdmissionResult) {
        let (context, board) = (&self.parts.context, &self.parts.board);
        for draft in verdict.drafts {
            let decision = self.parts.decisions.record(draft, &context.stats);
            tracing::warn!(pod = decision.pod, seq = decision.seq, "{}", decision.reason);
        }
        let short = verdict.short;
        let were_short = std::mem::replace(&mut self.is_short, !short.is_empty());
        context.stats.pods_not_admitted.set(short.len() as u64);
        let mode = self.live.admission;
        let refused = if mode == Mode::Refuse { short.keys().cloned().collect() } else { BTreeSet::new() };
        board.show_refused(refused);
        let (state, why, remedy) = match mode {
            _ if short.is_empty() => ("ok", String::new(), String::new()),
            Mode::Report => ("over", admission::sentence(mode, &short), REMEDY.to_owned()),
            Mode::Refuse => ("refused", admission::sentence(mode, &short), REMEDY.to_owned()),
        };
        if !short.is_empty() || were_short {
            board.show_knob(NodeKnob { name: "admission", state, why, remedy });
        }
    }
}
