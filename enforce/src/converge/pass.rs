//! One pass over a container's processes.
//!
//! Open the processes of the whole subtree, list it again, write only those in both lists, each by its identity
//! (pid and start time), read back. A pid that was reused between the two lists belongs to a process that is in
//! the second list itself, or has another start time than the one written to; so no stranger is ever written.
//! One pass proves nothing by itself; [`super::score`] repeats it.

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::{HostReader, ProcessFacts};
use evenkeel_host::write::{CgroupRef, Outcome, Refusal, Target as WriteTarget, Write};
use evenkeel_model::units::OomScoreAdj;

use super::env::Env;
use super::members::{Members, ProcessVerdict, Target};

/// What a pass found and did.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Pids of the second listing, sorted.
    pub pids: Vec<u32>,
    /// Processes at the target or respected before anything was written.
    pub right: u32,
    /// Of these, above the target by their own choice.
    pub respected: u32,
    /// Processes that were not right.
    pub wrong: u32,
    /// Of these, written and read back.
    pub written: u32,
    /// Of these, seen right before: somebody else changed them.
    pub rewritten_by_others: u32,
    /// Dry run: would have been written.
    pub would: u32,
    /// Ended before they could be written.
    pub gone: u32,
    /// The first wrong process and its value.
    pub first: Option<(u32, OomScoreAdj)>,
    /// The two listings differ or a process ended in between.
    pub moving: bool,
    /// Processes that ended before anybody could see their score: whatever they forked may have any.
    pub unjudged: u32,
    /// When the youngest of the right ones began, clock ticks since boot.
    pub youngest: Option<u64>,
    /// When the oldest of them began.
    pub oldest: Option<u64>,
    /// First refusal for lack of permission, and how many.
    pub denied: Option<(HostError, u32)>,
    /// First refusal of the writer itself.
    pub refused: Option<Refusal>,
    /// First other failure.
    pub failed: Option<HostError>,
}

impl Pass {
    fn saw_right(&mut self, start_time: u64) {
        self.youngest = self.youngest.max(Some(start_time));
        self.oldest = Some(self.oldest.map_or(start_time, |oldest| oldest.min(start_time)));
    }

    /// True when nothing was wrong and everything could be read.
    pub(super) fn is_clean(&self) -> bool {
        self.wrong == 0 && self.failed.is_none()
    }
}

/// Looks at every process and writes those that are wrong.
///
/// # Errors
/// `Gone` when the cgroup is no more; other categories when it cannot be listed.
pub(super) fn pass(
    env: &mut Env<'_>,
    cgroup: &CgroupRef,
    target: Target,
    members: &mut Members,
) -> Result<Pass, HostError> {
    let first = env.reader.pids(cgroup)?;
    let mut pass = Pass::default();
    let facts = open_all(env.reader, &first, &mut pass);
    pass.pids = env.reader.pids(cgroup)?;
    pass.moving |= pass.pids != first;
    members.keep_only(&pass.pids);
    let mut wrong = Vec::new();
    for facts in &facts {
        let listed = pass.pids.binary_search(&facts.id.pid).is_ok();
        match members.judge(facts, target) {
            // It ended, but it was wrong, and so is what it may have forked.
            ProcessVerdict::Wrong if !listed => {
                pass.wrong += 1;
                pass.gone += 1;
            }
            _ if !listed => {}
            ProcessVerdict::Right => {
                pass.right += 1;
                pass.saw_right(facts.id.start_time);
                members.remember(facts.id, (env.ticks)(), None);
            }
            ProcessVerdict::Respected => {
                pass.right += 1;
                pass.saw_right(facts.id.start_time);
                pass.respected += 1;
                members.remember(facts.id, (env.ticks)(), Some(facts.score));
            }
            ProcessVerdict::Wrong => wrong.push(*facts),
            ProcessVerdict::Skipped => {}
        }
    }
    look_at_newcomers(env.reader, &first, target, members, &mut pass);
    pass.first = wrong.first().map(|facts| (facts.id.pid, facts.score));
    for facts in &wrong {
        env.journal.note(
            &WriteTarget::Process(facts.id),
            Setting::OomScoreAdj(facts.score),
            Setting::OomScoreAdj(target.score),
            Some(cgroup),
        );
    }
    env.journal.flush();
    for facts in wrong {
        write(env, facts, target, members, &mut pass);
    }
    Ok(pass)
}

fn open_all(reader: &dyn HostReader, pids: &[u32], pass: &mut Pass) -> Vec<ProcessFacts> {
    let mut all = Vec::with_capacity(pids.len());
    for &pid in pids {
        match reader.process(pid) {
            Ok(facts) => all.push(facts),
            Err(error) if error.is_gone() => {
                pass.moving = true;
                pass.unjudged += 1;
            }
            Err(error) => pass.failed = pass.failed.take().or(Some(error)),
        }
    }
    all
}

/// Processes of the second listing alone were forked or moved in meanwhile. They are not written in this pass, but a
/// wrong one among them keeps it from being clean: a chain of forks may show each listing another process.
fn look_at_newcomers(
    reader: &dyn HostReader,
    first: &[u32],
    target: Target,
    members: &Members,
    pass: &mut Pass,
) {
    let newcomers = pass.pids.iter().filter(|pid| first.binary_search(pid).is_err());
    for &pid in newcomers {
        match reader.score(pid) {
            Ok(score) if members.is_as_seen(pid, score, target) => pass.right += 1,
            Ok(_) => pass.wrong += 1,
            Err(error) if error.is_gone() => {
                pass.moving = true;
                pass.unjudged += 1;
            }
            Err(error) => pass.failed = pass.failed.take().or(Some(error)),
        }
    }
}

fn write(env: &mut Env<'_>, facts: ProcessFacts, target: Target, members: &mut Members, pass: &mut Pass) {
    let known = members.knows(facts.id);
    pass.wrong += 1;
    let wish = Setting::OomScoreAdj(target.score);
    match env.writer.apply(&Write::process(facts.id, wish)) {
        Outcome::Written { new, .. } | Outcome::Unchanged { value: new } if new == wish => {
            pass.written += 1;
            pass.rewritten_by_others += u32::from(known);
            members.remember(facts.id, (env.ticks)(), None);
        }
        // Read back as something else: somebody was faster. The next pass sees it.
        Outcome::Written { .. } | Outcome::Unchanged { .. } => {}
        Outcome::WouldWrite { .. } => pass.would += 1,
        Outcome::Refused(Refusal::Replaced) => pass.gone += 1,
        Outcome::Refused(refusal) => pass.refused = pass.refused.take().or(Some(refusal)),
        Outcome::Failed { error, .. } => match error.category() {
            Category::Gone => pass.gone += 1,
            Category::Denied => {
                let count = pass.denied.as_ref().map_or(0, |(_, count)| *count);
                let first = pass.denied.take().map_or(error, |(first, _)| first);
                pass.denied = Some((first, count + 1));
            }
            _ => pass.failed = pass.failed.take().or(Some(error)),
        },
    }
}

/// The cheap look of an audit: true when every process has the score it was last seen with. Processes that ended
/// meanwhile do not count.
///
/// # Errors
/// As [`pass`].
pub(super) fn look(
    reader: &dyn HostReader,
    cgroup: &CgroupRef,
    target: Target,
    members: &Members,
) -> Result<Option<u32>, HostError> {
    let pids = reader.pids(cgroup)?;
    let mut count = 0;
    for pid in pids {
        match reader.score(pid) {
            Ok(score) if members.is_as_seen(pid, score, target) => count += 1,
            Err(error) if error.is_gone() => {}
            Ok(_) | Err(_) => return Ok(None),
        }
    }
    Ok(Some(count))
}

/// Name of the knob passes write.
pub(super) const KNOB: Knob = Knob::OomScoreAdj;
