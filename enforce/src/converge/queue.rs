//! Whose turn it is: events and audits put containers into the queue, turns take them out.
//!
//! Owned here: the queue, and what follows from a turn. Not owned: what a turn does ([`super::container`]), which
//! events there are ([`super::wake`]).

use std::cmp::Reverse;
use std::time::Instant;

use evenkeel_host::knob::Knob;

use super::board::NodeKnob;
use super::container::{Counters, Next, TrackedContainer};
use super::env::{Env, ticks_since_boot};
use super::wake::{Key, Notices};
use super::{ALL_DIRTY_PERIOD, Converger, TURNS_AT_ONCE};
use crate::shared::lock;

impl Converger {
    pub(super) fn take_events(&mut self, now: Instant) {
        let mut notices = Notices::default();
        self.wake.read(now, &self.parts.context.stats, &mut notices);
        if self.wake.take_changed() {
            self.show_wake();
        }
        for key in notices.removed {
            self.schedule(key, now);
        }
        for (key, pid) in notices.suspects {
            let reader = &self.parts.reader;
            let wrong = |key| self.table.get(key).is_some_and(|container| container.has_wrong(reader, pid));
            if !notices.dirty.contains(&key) && wrong(key) {
                notices.dirty.insert(key);
            }
        }
        for key in notices.dirty {
            self.notice(key, now);
        }
        if notices.tree_changed {
            self.survey.tree_changed(now);
            self.parts.rescan.ring();
            if !self.parts.board.waiting().is_empty() {
                self.merge_soon(now);
            }
        }
        let recently = self.all_dirty_at.is_some_and(|at| now.duration_since(at) < ALL_DIRTY_PERIOD);
        if notices.all && !recently {
            self.all_dirty_at = Some(now);
            let keys: Vec<Key> = self.table.keys().collect();
            for key in keys {
                self.notice(key, now);
            }
        }
    }

    /// Reads the families around the containers again when that is due, and judges every knob by them.
    pub(super) fn survey(&mut self, now: Instant) {
        if !self.survey.refresh(&self.parts.reader, now) {
            return;
        }
        let mut drafts = Vec::new();
        for (key, container) in self.table.iter_mut() {
            drafts.extend(self.survey.judge(&self.parts.reader, container));
            if container.stale {
                self.parts.board.show(key, container);
            }
        }
        for draft in drafts {
            self.parts.decisions.record(draft, &self.parts.context.stats);
        }
    }

    /// Looks at containers of which a transient setting was let go.
    pub(super) fn take_pokes(&mut self, now: Instant) {
        let Some(holds) = self.parts.holds.as_ref() else { return };
        let poked = std::mem::take(&mut *lock(holds.pokes()));
        if poked.is_empty() {
            return;
        }
        let keys: Vec<Key> = self.table.keys_of(|container| poked.contains(&container.tracked.inode));
        for key in keys {
            if let Some(container) = self.table.get_mut(key) {
                container.whole = true;
                container.stale = true;
            }
            self.schedule(key, now);
        }
    }

    pub(super) fn notice(&mut self, key: Key, now: Instant) {
        if self.table.get_mut(key).is_some_and(|container| container.notice(now)) {
            self.schedule(key, now);
        }
    }

    /// Puts a container into the queue unless it is due sooner.
    pub(super) fn schedule(&mut self, key: Key, at: Instant) {
        if self.due.get(&key).is_none_or(|due| at < *due) {
            self.due.insert(key, at);
            self.queue.push(Reverse((at, key)));
        }
    }

    pub(super) fn audit(&mut self, now: Instant) {
        for _ in 0..self.audit.take(self.table.len(), now) {
            let Some(key) = self.table.after(self.audit.cursor) else { return };
            self.audit.cursor = key;
            self.schedule(key, now);
        }
    }

    /// Gives due containers their turns.
    pub(super) fn turns(&mut self) {
        for _ in 0..TURNS_AT_ONCE {
            let now = Instant::now();
            let Some(&Reverse((at, key))) = self.queue.peek() else { return };
            if at > now {
                return;
            }
            self.queue.pop();
            // An older entry of a container that has been looked at since.
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.turn(key, now);
            }
        }
    }

    pub(super) fn turn(&mut self, key: Key, now: Instant) {
        let Some(container) = self.table.get_mut(key) else { return };
        let context = &self.parts.context;
        let mut env = Env {
            reader: &self.parts.reader,
            writer: &mut *self.parts.writer,
            journal: &mut self.parts.journal,
            ticks: &ticks_since_boot,
            config: &self.live.converge,
            holds: self.parts.holds.as_deref(),
        };
        match container.turn(&mut env, now, &Counters(&context.stats)) {
            Ok(mut next) => {
                if container.judged != self.survey.epoch {
                    next.drafts.extend(self.survey.judge(&self.parts.reader, container));
                }
                self.wake.learn(key, container.pids_to_learn());
                self.parts.board.show(key, container);
                self.take_next(key, next, now);
            }
            Err(error) if error.is_gone() => {
                let applied = self.table.gone(key);
                self.take_in(applied, now);
                // The path may lead to another cgroup already: a service that was restarted.
                self.merge_soon(now);
                self.parts.rescan.ring();
            }
            Err(error) => {
                tracing::debug!(%error, "ignoring: a container cannot be listed; the next audit tries again");
            }
        }
    }

    pub(super) fn take_next(&mut self, key: Key, next: Next, now: Instant) {
        let stats = &self.parts.context.stats;
        for draft in next.drafts {
            self.parts.decisions.record(draft, stats);
        }
        for (knob, why, remedy) in next.denied {
            self.tell_denied(knob, &why, remedy);
        }
        if next.ask_source
            && let Some(container) = self.table.get(key)
        {
            self.parts.rescan.ask_about(&container.tracked.workload.id);
        }
        if let Some(after) = next.again {
            self.schedule(key, now + after);
        }
    }

    /// Said once for each knob of the node; containers say the rest.
    pub(super) fn tell_denied(&self, knob: Knob, why: &str, remedy: Option<String>) {
        let remedy = remedy.unwrap_or_default();
        let shown =
            NodeKnob { name: knob.name(), state: "denied", why: why.to_owned(), remedy: remedy.clone() };
        if self.parts.board.show_knob(shown) {
            tracing::warn!(
                knob = knob.name(),
                why,
                remedy,
                "some writes are not allowed here; everything else goes on"
            );
        }
    }
}

impl TrackedContainer {
    /// Processes seen right, for remembering whose they are.
    fn pids_to_learn(&self) -> impl Iterator<Item = u32> {
        self.scores.iter().flat_map(|scores| scores.looper.pids_if_changed())
    }
}
