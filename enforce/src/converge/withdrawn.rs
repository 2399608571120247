//! What the agent once set and nobody wishes any more: after a restart with an option switched off, and when a manifest
//! or an annotation is gone.
//!
//! Owned here: finding such originals in the journal, and putting them back. Not owned: a container that is known and
//! wishes something else now ([`super::knobs`]), what is set for a while ([`crate::holds`]).

use std::collections::HashSet;
use std::time::{Duration, Instant};

use evenkeel_host::knob::Knob;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{Outcome, Target};
use evenkeel_model::workload::SourceKind;

use super::container::{Counters, TrackedContainer};
use super::env::Env;
use super::own::Owned;
use super::table::Table;
use crate::decisions::Draft;
use crate::holds::Holds;
use crate::journal::Original;
use crate::restore::{give_back, may_be_there};
use crate::systemd;

/// How long nobody has to wish a knob before it is put back: sources tell of changes one after the other, and a container
/// that ends takes its cgroup with it.
const PERIOD: Duration = Duration::from_secs(10);
/// Time until what could not be put back is tried again.
const RETRY: Duration = Duration::from_secs(300);

/// When the journal is looked through, and what nobody wished at the last look.
#[derive(Debug)]
pub(super) struct Withdrawn {
    due: Option<Instant>,
    unwished: HashSet<(Target, Knob)>,
}

/// What is wished of containers and of owned cgroups now.
struct Wished<'a> {
    knobs: HashSet<(&'a Target, Knob)>,
    /// Inodes of cgroups whose processes are scored.
    scored: HashSet<u64>,
    /// Cgroups of containers that no source has told of yet, or that cannot be read now.
    unknown: Vec<&'a str>,
}

impl<'a> Wished<'a> {
    fn of(table: &'a Table, owned: &'a Owned, all_said: bool) -> Self {
        let unknown = table.unread().chain(owned.unread()).collect();
        let mut wished = Self { knobs: owned.wished().collect(), scored: HashSet::new(), unknown };
        for container in table.iter() {
            wished.knobs.extend(container.knobs.wished());
            if container.scores.is_some() {
                wished.scored.insert(container.processes_at.inode);
            }
            if !all_said && is_unknown(container) {
                wished.unknown.push(&container.tracked.cgroup);
            }
        }
        wished
    }

    fn has(&self, original: &Original) -> bool {
        match (&original.target, &original.container) {
            (Target::Process(_), Some(at)) => self.scored.contains(&at.inode) || self.is_unknown(&at.path),
            (Target::Cgroup(at), _) => {
                self.knobs.contains(&(&original.target, original.old.knob())) || self.is_unknown(&at.path)
            }
            // Nobody's business here.
            (Target::Process(_), None) | (Target::Node, _) => true,
        }
    }

    fn is_unknown(&self, path: &str) -> bool {
        self.unknown.iter().any(|unknown| path.starts_with(unknown) || unknown.starts_with(path))
    }
}

/// Whether only its name says that it is a container.
fn is_unknown(container: &TrackedContainer) -> bool {
    container.tracked.workload.source == SourceKind::Names
}

/// Whether this is of a unit that does not run: what was set of it is there when it starts again.
fn outlives(reader: &dyn HostReader, target: &Target) -> bool {
    systemd::outlives(target) && !may_be_there(reader, target)
}

fn is_held(holds: Option<&Holds>, original: &Original) -> bool {
    let Target::Cgroup(at) = &original.target else { return false };
    holds.is_some_and(|holds| holds.len() > 0 && holds.held(at.inode, original.old.knob()).is_some())
}

impl Withdrawn {
    /// To be looked for once sources have had time to say what they see.
    pub(super) fn new(now: Instant) -> Self {
        Self { due: Some(now + PERIOD), unwished: HashSet::new() }
    }

    /// When to look the next time.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Somebody may wish less now.
    pub(super) fn changed(&mut self, now: Instant) {
        self.due.get_or_insert(now + PERIOD);
    }

    /// Nothing can be said now of what nobody wishes.
    pub(super) fn put_off(&mut self, now: Instant) {
        self.due = Some(now + PERIOD);
    }

    /// Puts back what nobody wished at two looks in a row. `all_said`: every source can be read; while one cannot,
    /// containers that nobody has told of are left as they are.
    pub(super) fn turn(
        &mut self,
        env: &mut Env<'_>,
        table: &Table,
        owned: &Owned,
        all_said: bool,
        stats: &Counters<'_>,
        now: Instant,
    ) -> Vec<Draft> {
        let wished = Wished::of(table, owned, all_said);
        let is_unwished =
            |original: &&Original| !(wished.has(original) || outlives(env.reader, &original.target));
        let unwished = env.journal.originals().filter(is_unwished).cloned();
        // What is held for a while hides the agent's own value: it is looked at again once it is let go.
        let (held, unwished): (Vec<Original>, Vec<Original>) =
            unwished.partition(|original| is_held(env.holds, original));
        let key = |original: &Original| (original.target.clone(), original.old.knob());
        let (again, news): (Vec<Original>, Vec<Original>) =
            unwished.into_iter().partition(|original| self.unwished.contains(&key(original)));
        self.unwished = news.iter().map(key).collect();
        let count = |knob, outcome: &Outcome| stats.count(knob, outcome);
        let (drafts, failed) = give_back(env.reader, env.writer, env.journal, again, count);
        let all_seen = all_said && table.is_whole() && owned.unread().next().is_none();
        let again = !(self.unwished.is_empty() && held.is_empty() && all_seen);
        let next = if failed { Some(RETRY) } else { again.then_some(PERIOD) };
        self.due = next.map(|after| now + after);
        drafts
    }
}
