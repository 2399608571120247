//! What is done at the end of each round, and once at start: counting, the journal's size, freezes left behind.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use evenkeel_host::freeze::freeze_write;
use evenkeel_host::write::{HostWriter, Outcome};
use evenkeel_model::workload::SourceKind;

use super::board::WakeView;
use super::container::{Counters, State, TrackedContainer};
use super::env::{Env, ticks_since_boot};
use super::own::InnerKnobs;
use super::{Converger, LONGEST_SLEEP, roster};
use crate::decisions::now_usec;
use crate::restore::may_be_there;
use crate::shared::SourceUpdate;
use crate::systemd;

impl Converger {
    pub(super) fn finish_round(&mut self) {
        if self.parts.journal.wants_compacting() {
            self.compact_journal();
        }
        if std::mem::take(&mut self.roster_changed) {
            self.parts.board.publish_roster(self.table.iter().map(roster::entry).collect());
        }
        let stats = &self.parts.context.stats;
        self.table.hand_over(stats);
        self.parts.decisions.flush(stats);
        stats.containers.set(self.table.len() as u64);
        let now = Instant::now();
        if now >= self.count_at {
            self.count_at = now + LONGEST_SLEEP;
            let count = |holds: &dyn Fn(&TrackedContainer) -> bool| {
                self.table.iter().filter(|c| holds(c)).count() as u64
            };
            stats.containers_converged.set(count(&|c| c.state() == State::Converged));
            stats.containers_ineffective.set(count(&|c| c.has(State::Ineffective)));
            stats
                .containers_contended
                .set(count(&|c| c.state() == State::Contended || c.has(State::Contended)));
        }
        if self.queue.len() > 4 * (self.due.len() + 16) {
            self.queue = self.due.iter().map(|(key, at)| Reverse((*at, *key))).collect();
        }
    }

    /// Gives active and idle containers their parts of the CPU, in the fair mode.
    pub(super) fn fair(&mut self, now: Instant) {
        let Some(fair) = self.fair.as_mut() else { return };
        let cpu = self.parts.context.facts.cpu_milli;
        let changed = fair.turn(&mut self.table, &self.rules, cpu, now_usec(), now);
        if changed.inner {
            self.owned.changed(now);
        }
        for key in changed.keys {
            self.schedule(key, now);
        }
    }

    /// Ranks Burstable containers by use and priority, where scores are dynamic.
    pub(super) fn rank(&mut self, now: Instant) {
        let Some(dynamic) = self.dynamic.as_mut() else { return };
        let memory = self.parts.context.facts.memory_bytes;
        for key in dynamic.turn(&mut self.table, &self.rules, memory, now_usec(), now) {
            self.schedule(key, now);
        }
    }

    /// Brings the cgroups between an owned root and its containers to their sums.
    pub(super) fn inner(&mut self, now: Instant) {
        if self.owned.due().is_none_or(|due| now < due) {
            return;
        }
        let (context, none) = (&self.parts.context, BTreeMap::new());
        let mut env = Env {
            reader: &self.parts.reader,
            writer: &mut *self.parts.writer,
            journal: &mut self.parts.journal,
            ticks: &ticks_since_boot,
            config: &self.live.converge,
            holds: self.parts.holds.as_deref(),
        };
        let parts = self.fair.as_ref().map_or(&none, |fair| &fair.inner);
        let wanted = self.table.inner(&self.rules, parts);
        let options = InnerKnobs { on: &context.config.knobs, cores: self.cores.is_some() };
        let drafts = self.owned.turn(&mut env, options, wanted, &Counters(&context.stats), now);
        for draft in drafts {
            self.parts.decisions.record(draft, &self.parts.context.stats);
        }
        if let Some(standing) = self.owned.standing() {
            self.parts.board.show_knob(standing);
        }
    }

    /// Puts back what nobody wishes any more.
    pub(super) fn withdraw(&mut self, now: Instant) {
        if self.withdrawn.due().is_none_or(|due| now < due) {
            return;
        }
        let Some(all_said) = self.sources_said() else { return self.withdrawn.put_off(now) };
        let context = &self.parts.context;
        let mut env = Env {
            reader: &self.parts.reader,
            writer: &mut *self.parts.writer,
            journal: &mut self.parts.journal,
            ticks: &ticks_since_boot,
            config: &self.live.converge,
            holds: self.parts.holds.as_deref(),
        };
        let drafts =
            self.withdrawn.turn(&mut env, &self.table, &self.owned, all_said, &Counters(&context.stats), now);
        for draft in drafts {
            self.parts.decisions.record(draft, &self.parts.context.stats);
        }
    }

    /// `None` while those who bind by path or unit have not told all they see, or units cannot be looked for; then whether
    /// every runtime and engine has.
    fn sources_said(&self) -> Option<bool> {
        let sources = &self.parts.context.config.sources;
        let of = |kind: SourceKind| self.snapshots.sources().filter(move |update| update.source == kind);
        // What stands in a manifest that cannot be read, nobody knows; a directory that is not there holds none.
        let told = |update: &SourceUpdate| update.healthy && update.problems.is_empty();
        let holds_none = |update: &SourceUpdate| !update.healthy && !Path::new(&update.address).exists();
        let said = |kind| of(kind).next().is_some();
        let manifests = !sources.manifests
            || (said(SourceKind::Manifests) && of(SourceKind::Manifests).all(|u| told(u) || holds_none(u)));
        let systemd = !sources.systemd || (said(SourceKind::Systemd) && of(SourceKind::Systemd).all(told));
        (manifests && systemd && said(SourceKind::Names) && !self.is_blind).then(|| {
            let runtimes = of(SourceKind::Cri).filter(|update| told(update)).count();
            runtimes == sources.cri && of(SourceKind::Names).all(told)
        })
    }

    /// Drops the originals of processes and cgroups that are no more.
    pub(super) fn compact_journal(&mut self) {
        let reader = &self.parts.reader;
        self.parts.journal.compact(|target| may_be_there(reader, target) || systemd::outlives(target));
    }

    /// Thaws what an earlier run froze and could not thaw.
    pub(super) fn thaw_leftovers(&mut self) {
        for at in self.parts.journal.left_frozen().to_vec() {
            let freeze = freeze_write(&at, true);
            let outcome = self.parts.writer.apply(&freeze_write(&at, false));
            tracing::warn!(cgroup = %at, outcome = outcome.name(), "an earlier run left this cgroup frozen");
            if outcome.is_done() || matches!(outcome, Outcome::Refused(_)) {
                self.parts.journal.end_transient(&freeze);
            }
        }
    }

    pub(super) fn show_wake(&self) {
        let wake = WakeView {
            process_events: self.wake.has_process_events(),
            cgroup_events: self.wake.has_cgroup_events(),
            why: self.wake.why(),
        };
        if let Some(why) = &wake.why {
            tracing::warn!(why, "some new processes are noticed later");
        }
        self.parts.board.show_wake(wake);
    }
}
