//! From what sources said to the table: snapshots taken in, merged, applied, shown.
//!
//! Owned here: when the desired state is merged again, and telling what sources could not use. Not owned: merging
//! ([`crate::reconcile`]), what becomes of a container ([`super::table`]).

use std::mem::take;
use std::sync::Arc;
use std::time::Instant;

use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::workload::Workload;

use super::board::SourceView;
use super::overlay::{self, ObservedContainer, kept};
use super::table::{TableChanges, source_name};
use super::{BETWEEN_MERGES, Converger, WAITING_PERIOD, cores};
use crate::allocatable;
use crate::config::Mode;
use crate::damage::StateFile;
use crate::decisions::{Draft, now_usec};
use crate::reconcile::bind::Binder;
use crate::reconcile::merge;
use crate::shared::SourceProblem;

impl Converger {
    pub(super) fn take_updates(&mut self, now: Instant) {
        let mut any = false;
        while let Ok(update) = self.parts.updates.try_recv() {
            any = true;
            let (source, address, healthy) =
                (source_name(update.source), update.address.clone(), update.healthy);
            let change = self.snapshots.take(update);
            if change.workloads {
                self.merge_at = Some(now);
            }
            if change.health && !healthy {
                tracing::warn!(source, address, "source cannot be read; what it last said stays in force");
            } else if change.health {
                tracing::info!(source, address, "source is healthy");
            }
            for problem in change.new_problems {
                self.tell_problem(source, &problem);
            }
        }
        if any {
            self.show_sources(None);
        }
    }

    pub(super) fn tell_problem(&self, source: &str, problem: &SourceProblem) {
        tracing::warn!(
            source,
            what = problem.what,
            at = problem.where_,
            why = problem.why,
            remedy = problem.remedy,
            "source"
        );
        let reason = format!("cannot {}: {}; {}", problem.what, problem.why, problem.remedy);
        let draft = Draft::node(DecisionKind::Source, reason)
            .input("source", source)
            .input("where", &problem.where_)
            .result(DecisionResult::Failed);
        self.parts.decisions.record(draft, &self.parts.context.stats);
    }

    /// Has everything merged again because of an event, also where that was put off to a later time.
    pub(super) fn merge_soon(&mut self, now: Instant) {
        let soonest = self.merged_at.map_or(now, |merged| now.max(merged + BETWEEN_MERGES));
        self.merge_at = Some(self.merge_at.map_or(soonest, |at| at.min(soonest)));
    }

    /// Merges again if that is due, and brings the table to the result.
    pub(super) fn reconcile(&mut self, now: Instant) {
        if self.merge_at.is_none_or(|at| at > now) {
            return;
        }
        self.merge_at = None;
        self.merged_at = Some(now);
        self.withdrawn.changed(now);
        let mut binder = Binder::knowing(self.snapshots.workloads(), take(&mut self.units));
        let reader = &self.parts.reader;
        let manage = &self.live.manage;
        let mut merged = merge(self.snapshots.workloads(), manage, &self.rules.facts, &mut |binding| {
            binder.resolve(reader, binding)
        });
        self.is_blind = binder.is_blind();
        self.units = binder.into_units();
        self.admit(&mut merged, now);
        let reader = &self.parts.reader;
        if let Some(overlay) = self.overlay.as_mut() {
            overlay.apply(&mut merged.bound, now);
        }
        for problem in merged.problems.iter().filter(|problem| !self.conflicts.contains(problem)) {
            self.tell_problem("reconcile", problem);
        }
        self.conflicts = merged.problems;
        let weight = self.rules.plan.cpu_weight;
        let applied = self.table.apply(reader, &mut self.rules, merged.bound);
        let waiting: Vec<_> = merged.waiting.iter().chain(&applied.vanished).cloned().collect();
        let again = (!waiting.is_empty()).then(|| now + WAITING_PERIOD);
        self.merge_at = self.merge_at.into_iter().chain(again).chain(self.table.incomplete_due()).min();
        self.take_in(applied, now);
        self.divide_cores(now);
        if self.rules.plan.cpu_weight != weight {
            let again = self.table.replan_all(&self.parts.reader, &self.rules);
            self.take_in(again, now);
        }
        if !self.table.is_whole() {
            let again = now + WAITING_PERIOD;
            self.merge_at = Some(self.merge_at.map_or(again, |at| at.min(again)));
        }
        self.show_sources(Some(waiting));
    }

    /// Brings requests a step nearer to what is recommended, or back, where that is accepted.
    pub(super) fn resize(&mut self, now: Instant) {
        let Some(overlay) = self.overlay.as_mut() else { return };
        let context = &self.parts.context;
        let table = &self.table;
        let seen = |id: &str| {
            table.by_id(id).map(|container| ObservedContainer {
                generation: container.generation,
                state: container.state(),
                processes: container.processes,
            })
        };
        let node = overlay::OverlayNode {
            cpu_milli: context.facts.cpu_milli.get(),
            memory_bytes: context.facts.memory_bytes.get(),
            allocatable: &|| allocatable::cpu_and_memory(context),
            seen: &seen,
            dry_run: context.config.mode == Mode::DryRun,
        };
        let offer = context.overlays.last();
        let turn = overlay.turn(offer.as_ref(), &node, now);
        context.stats.resized.set(overlay.len() as u64);
        let before = context.overlays.in_force();
        context.overlays.set_in_force(overlay.standing(offer.as_ref(), &before));
        if let Some(refusals) = turn.refusals {
            context.overlays.set_refusals(refusals);
        }
        for draft in turn.drafts {
            self.parts.decisions.record(draft, &context.stats);
        }
        if turn.changed {
            self.merge_at = Some(now);
        }
        self.keep_requests(turn.changed, now);
    }

    /// Keeps on disk what is in force instead of what was asked for, for the next run. Before it is carried out: a killed
    /// agent goes on from it.
    fn keep_requests(&mut self, changed: bool, now: Instant) {
        let context = &self.parts.context;
        if context.config.mode == Mode::DryRun {
            return;
        }
        let Some(overlay) = self.overlay.as_mut() else { return };
        let offer = context.overlays.last();
        if !(overlay.is_time_to_keep(offer.as_ref(), now) || changed) {
            return;
        }
        let Some(kept) = overlay.unsaved(offer.as_ref(), &context.boot_id, now_usec()) else { return };
        if let Err(error) = kept.write(&context.config.state_dir) {
            overlay.not_kept();
            tracing::debug!(%error, "ignoring that requests in force cannot be kept; the next round tries again");
        }
    }

    /// Goes on with the requests that an earlier run left in force, or forgets them where they are not taken any more.
    pub(super) fn resume_requests(&mut self, now: Instant) {
        let context = &self.parts.context;
        let dir = &context.config.state_dir;
        if context.config.mode == Mode::DryRun {
            return;
        }
        let Some(overlay) = self.overlay.as_mut() else { return kept::forget(dir) };
        let (kept, damaged) = kept::StoredOverlay::read(dir, &context.boot_id);
        context.stats.damages.take(
            StateFile::Overlay,
            &dir.join(StateFile::Overlay.name()),
            usize::from(damaged),
        );
        let Some(kept) = kept else { return };
        if let Some((switch, made_usec)) = overlay.resume(kept, now, now_usec()) {
            context.overlays.resume(switch, made_usec, now);
        }
    }

    /// Gives whole-core Guaranteed containers their processors, and everybody else the rest.
    fn divide_cores(&mut self, now: Instant) {
        let Some(cores) = self.cores.as_mut() else { return };
        let allocation = cores.allocate(&self.table, &self.parts.journal);
        if allocation == self.rules.allocation {
            return;
        }
        self.parts.board.show_knob(cores::shown(allocation.as_ref()));
        self.rules.allocation = allocation;
        for key in self.table.renew(&self.parts.reader, &self.rules) {
            self.schedule(key, now);
        }
    }

    pub(super) fn take_in(&mut self, applied: TableChanges, now: Instant) {
        if !(applied.removed.is_empty() && applied.changed.is_empty()) {
            self.roster_changed = true;
            self.owned.changed(now);
        }
        for (key, container) in applied.removed {
            self.wake.remove(key, &container.processes_at);
            container.close(&self.parts.reader);
            self.parts.board.remove(key);
            self.due.remove(&key);
        }
        for draft in applied.drafts {
            self.parts.decisions.record(draft, &self.parts.context.stats);
        }
        for key in applied.changed {
            if let Some(container) = self.table.get_mut(key) {
                self.wake.add(key, &container.processes_at);
                self.parts.board.show(key, container);
            }
            self.schedule(key, now);
        }
        self.table.hand_over(&self.parts.context.stats);
    }

    pub(super) fn show_sources(&self, waiting: Option<Vec<Arc<Workload>>>) {
        let mut sources: Vec<SourceView> = self
            .snapshots
            .sources()
            .map(|update| SourceView {
                kind: update.source,
                address: update.address.clone(),
                healthy: update.healthy,
                containers: update.workloads.len(),
                problems: update.problems.clone(),
            })
            .collect();
        // The first source has the last word in a conflict, so it is shown there.
        if let Some(first) = sources.first_mut() {
            first.problems.extend(self.conflicts.iter().cloned());
        }
        let stats = &self.parts.context.stats;
        stats.sources.set(sources.len() as u64);
        stats.sources_healthy.set(sources.iter().filter(|source| source.healthy).count() as u64);
        let waiting = waiting.unwrap_or_else(|| self.parts.board.waiting_workloads());
        self.parts.board.show_sources(sources, waiting);
    }
}
