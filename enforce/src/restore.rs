//! Putting back what knobs held before the agent first wrote them.
//!
//! Only what still holds the agent's value is touched: what somebody changed since is theirs. Processes forked since
//! have no original of their own; they get the one most processes of their container had.

use std::collections::{BTreeMap, HashMap};

use anyhow::Context as _;
use evenkeel_host::freeze::freeze_write;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::node::{boot_id, page_size};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Target, Write};
use evenkeel_log::private;
use evenkeel_model::decision::DecisionKind;
use serde::Serialize;

use crate::config::Config;
use crate::converge::{forget_requests, limit_would_kill, rank};
use crate::damage::{Damages, StateFile};
use crate::decisions::{Draft, result_of};
use crate::journal::{Journal, Original};
use crate::kernel::{self, Way};
use crate::systemd::{OpenSystemd, Purpose};
use crate::transients::{Left, Transients, undo};

/// What became of an original whose process or cgroup has ended.
const GONE: &str = "gone";

/// What became of one original.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// Process or cgroup.
    pub target: String,
    /// Kernel file.
    pub knob: &'static str,
    /// What the agent had set.
    pub set: String,
    /// What it held before.
    pub original: String,
    /// In words.
    pub result: String,
}

impl RestoreReport {
    /// The original could not be put back.
    #[must_use]
    pub fn is_failed(&self) -> bool {
        self.result.starts_with("failed")
    }

    /// Its process or cgroup has ended.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.result == GONE
    }
}

/// Puts everything back.
///
/// # Errors
/// When the journal cannot be read, or the kernel's files are not there.
pub fn everything(config: &Config, systemd: OpenSystemd) -> anyhow::Result<Vec<RestoreReport>> {
    let (roots, tree) = kernel::open_tree(config)?;
    let boot = boot_id(&roots).map_err(kernel::with_remedy)?;
    let dir = &config.state_dir;
    private::directory(dir)?;
    let mut journal =
        Journal::open(dir, &boot).with_context(|| format!("cannot use the journal in {}", dir.display()))?;
    let damages = Damages::default();
    damages.take(StateFile::Journal, &Journal::path_in(dir), journal.damaged());
    let mut writer = kernel::open_writer(config, &roots, &tree, Way::Systemd(Purpose::Restore, systemd))?;
    let reader = KernelReader::new(roots, tree);
    let transients = Transients::open(dir, &boot)
        .with_context(|| format!("cannot use the journal in {}", dir.display()))?;
    damages.take(StateFile::Transients, &Transients::path_in(dir), transients.damaged());
    let mut reports = undo_transients(&reader, &mut *writer, &transients);
    reports.extend(restore(&reader, &mut *writer, &mut journal));
    journal.rewrite().context("cannot rewrite the journal")?;
    // The next run must not go on with them: everything is as before the agent.
    forget_requests(dir);
    let dir = crate::node::journal_dir(dir);
    let unusable = || format!("cannot use the journal in {}", dir.display());
    if dir.try_exists().with_context(unusable)? {
        let mut journal = Journal::open(&dir, &boot).with_context(unusable)?;
        damages.take(StateFile::NodeJournal, &Journal::path_in(&dir), journal.damaged());
        reports.extend(restore(&reader, &mut *writer, &mut journal));
        journal.rewrite().context("cannot rewrite the journal of the node")?;
    }
    Ok(reports)
}

/// What was only set for a while goes first: an original may have been noted while it stood.
fn undo_transients(
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    transients: &Transients,
) -> Vec<RestoreReport> {
    let mut reports = Vec::new();
    for entry in transients.to_undo() {
        let target = Target::Cgroup(entry.at.clone());
        let set = entry.ours.last().copied().unwrap_or(entry.old);
        let outcome = undo(reader, writer, &entry);
        reports.push(match &outcome {
            Ok(outcome) => report(&target, set, entry.old, outcome),
            Err(Left::Back) => told(&target, set, entry.old, "holds it already".to_owned()),
            Err(Left::Theirs(_)) => {
                told(&target, set, entry.old, "changed by somebody else since; left alone".to_owned())
            }
        });
        if outcome.map_or(true, |outcome| outcome.is_done()) {
            transients.end(&entry.at, entry.old.knob());
        }
    }
    reports
}

pub(crate) fn restore(
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    journal: &mut Journal,
) -> Vec<RestoreReport> {
    let mut reports = Vec::new();
    for at in journal.left_frozen().to_vec() {
        let outcome = writer.apply(&freeze_write(&at, false));
        let write = freeze_write(&at, true);
        reports.push(report(&write.target, write.setting, freeze_write(&at, false).setting, &outcome));
        if outcome.is_done() {
            journal.end_transient(&write);
        }
    }
    let mut originals: Vec<Original> = journal.originals().cloned().collect();
    originals.extend(descendants(reader, &originals));
    originals.sort_by_cached_key(order);
    originals.sort_by_cached_key(|original| last_the_oldest(reader, original));
    for original in originals {
        let Original { target, old, new, .. } = &original;
        let (report, settled) = match put_back(reader, writer, &original) {
            Back::Tried(outcome) => (report(target, *new, *old, &outcome), outcome.is_done()),
            Back::Left(why) => (told(target, *new, *old, why.to_owned()), true),
            Back::Later(why) => (told(target, *new, *old, format!("failed: {why}")), false),
        };
        reports.push(report);
        if settled {
            journal.forget(target, old.knob());
        }
    }
    reports
}

/// Puts these originals back while the agent runs, and tells it; true where one has to be tried again.
pub(crate) fn give_back(
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    journal: &mut Journal,
    mut originals: Vec<Original>,
    count: impl Fn(Knob, &Outcome),
) -> (Vec<Draft>, bool) {
    originals.extend(descendants(reader, &originals));
    originals.sort_by_cached_key(order);
    let (mut drafts, mut failed) = (Vec::new(), false);
    for original in originals {
        let Original { target, old, new, .. } = &original;
        let settled = match put_back(reader, writer, &original) {
            Back::Tried(outcome) => {
                count(old.knob(), &outcome);
                let why = "no source and no option asks for it any more: what it held before is put back";
                let draft = Draft::node(DecisionKind::Set, why).knob(old.knob().name()).input("of", target);
                let draft = draft.values(Some(new.to_string()), Some(old.to_string()));
                drafts.push(draft.result(result_of(&outcome)));
                outcome.is_done()
            }
            Back::Left(_) => true,
            Back::Later(_) => false,
        };
        if settled {
            journal.forget(target, old.knob());
        }
        failed |= !settled;
    }
    (drafts, failed)
}

/// Leaves first and what gives them their controllers last; within a cgroup as the kernel takes it.
fn order(original: &Original) -> (u8, std::cmp::Reverse<usize>, String, u8) {
    let last = matches!(original.old, Setting::SubtreeControl { .. });
    let depth = match &original.target {
        Target::Cgroup(at) => at.path.matches('/').count(),
        Target::Process(_) | Target::Node => 0,
    };
    let rank = rank(Some(original.new), original.old, true);
    (u8::from(last), std::cmp::Reverse(depth), original.target.to_string(), rank)
}

/// What ended goes last, and of that the oldest: a unit's cgroup may have been followed by others with originals of
/// their own, and what the first one held is what the unit had. The kernel numbers cgroups upwards.
fn last_the_oldest(reader: &dyn HostReader, original: &Original) -> std::cmp::Reverse<u64> {
    let ended = || reader.setting(&original.target, original.old.knob()).is_err_and(|error| error.is_gone());
    match &original.target {
        Target::Cgroup(at) if ended() => std::cmp::Reverse(at.inode),
        Target::Cgroup(_) | Target::Process(_) | Target::Node => std::cmp::Reverse(u64::MAX),
    }
}

/// Whether a target may still be there: gone is only what the kernel says is gone, and nothing that cannot be read for a moment.
pub(crate) fn may_be_there(reader: &dyn HostReader, target: &Target) -> bool {
    let is_gone = match target {
        Target::Process(_) => reader.setting(target, Knob::OomScoreAdj).is_err_and(|error| error.is_gone()),
        Target::Cgroup(at) => reader.pids(at).is_err_and(|error| error.is_gone()),
        Target::Node => false,
    };
    !is_gone
}

/// What became of an original.
#[derive(Debug)]
pub(crate) enum Back {
    /// It was written, or tried to be.
    Tried(Outcome),
    /// There is nothing to put back, and why.
    Left(&'static str),
    /// Not now, and why.
    Later(String),
}

/// Writes the original where our value still stands; otherwise says why not.
pub(crate) fn put_back(reader: &dyn HostReader, writer: &mut dyn HostWriter, original: &Original) -> Back {
    let is_ours = |ours: Setting, now: Setting| now == ours || now == ours.as_kept(page_size());
    // An agent killed between its note and its write leaves what it had set before.
    let kept = |now: Setting| is_ours(original.new, now) || original.was.is_some_and(|was| is_ours(was, now));
    let found = reader.setting(&original.target, original.old.knob());
    match found {
        Ok(now) if now == original.old => return Back::Left("holds it already"),
        Ok(now) if !kept(now) => return Back::Left("changed by somebody else since; left alone"),
        // The writer may know a unit by its name.
        Err(error) if error.is_gone() && matches!(original.target, Target::Cgroup(_)) => {
            let write = Write { target: original.target.clone(), setting: original.old };
            return match writer.apply(&write) {
                Outcome::Refused(_) => Back::Left(GONE),
                outcome => Back::Tried(outcome),
            };
        }
        Err(error) if error.is_gone() => return Back::Left(GONE),
        // A value that cannot be read is written all the same; the outcome tells.
        Ok(_) | Err(_) => {}
    }
    if let Target::Cgroup(place) = &original.target
        && let Some(why) = limit_would_kill(reader, place, None, original.old)
    {
        return Back::Later(why);
    }
    Back::Tried(writer.apply(&Write { target: original.target.clone(), setting: original.old }))
}

/// Processes of journalled containers that hold our score without an entry of their own.
fn descendants(reader: &dyn HostReader, originals: &[Original]) -> Vec<Original> {
    let mut containers: BTreeMap<&CgroupRef, Vec<&Original>> = BTreeMap::new();
    for original in originals {
        if let Some(container) = &original.container {
            containers.entry(container).or_default().push(original);
        }
    }
    let mut found = Vec::new();
    for (container, known) in containers {
        let Some((old, new)) = commonest(&known) else { continue };
        for pid in reader.pids(container).unwrap_or_default() {
            let Ok(facts) = reader.process(pid) else { continue };
            let target = Target::Process(facts.id);
            let ours = Setting::OomScoreAdj(facts.score) == new && !facts.zombie;
            if ours && !known.iter().any(|original| original.target == target) {
                found.push(Original { target, old, new, was: None, container: Some(container.clone()) });
            }
        }
    }
    found
}

fn commonest(originals: &[&Original]) -> Option<(Setting, Setting)> {
    let mut counts: HashMap<(Setting, Setting), usize> = HashMap::new();
    for original in originals.iter().filter(|original| original.old.knob() == Knob::OomScoreAdj) {
        *counts.entry((original.old, original.new)).or_default() += 1;
    }
    counts.into_iter().max_by_key(|((old, _), count)| (*count, old.to_string())).map(|(pair, _)| pair)
}

fn report(target: &Target, set: Setting, original: Setting, outcome: &Outcome) -> RestoreReport {
    let result = match outcome {
        Outcome::Written { .. } => "restored".to_owned(),
        Outcome::Unchanged { .. } => "holds it already".to_owned(),
        Outcome::WouldWrite { .. } => "would be restored".to_owned(),
        Outcome::Refused(why) => format!("failed: {why}"),
        Outcome::Failed { error, .. } if error.is_gone() => GONE.to_owned(),
        Outcome::Failed { error, .. } => match error.remedy() {
            Some(remedy) => format!("failed: {error}; {remedy}"),
            None => format!("failed: {error}"),
        },
    };
    told(target, set, original, result)
}

fn told(target: &Target, set: Setting, original: Setting, result: String) -> RestoreReport {
    RestoreReport {
        target: target.to_string(),
        knob: original.knob().name(),
        set: set.to_string(),
        original: original.to_string(),
        result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::CgroupMode;
    use evenkeel_model::units::OomScoreAdj;

    fn score(value: i64) -> Setting {
        Setting::OomScoreAdj(OomScoreAdj::clamped(value))
    }

    #[test]
    fn an_original_is_dropped_only_when_its_process_or_cgroup_is_gone() {
        let kernel = FakeKernel::new(CgroupMode::V2);
        kernel.with(|state| {
            state.add_cgroup("/c");
            state.add_process(10, 1, OomScoreAdj::clamped(0), "/c");
        });
        let process = |start_time| Target::Process(evenkeel_host::write::ProcessId { pid: 10, start_time });
        let cgroup = Target::Cgroup(kernel.cgroup("/c").unwrap().places[0].clone());
        let there = |target: &Target| may_be_there(&kernel, target);
        assert!(there(&process(1)) && there(&cgroup) && there(&Target::Node) && !there(&process(2)));
        // An agent that ends for want of descriptors must find them when it starts again.
        kernel.with(|state| state.lacks_descriptors = true);
        assert!(there(&process(1)) && there(&cgroup));
        kernel.with(|state| {
            state.lacks_descriptors = false;
            state.exit(10);
            state.remove_cgroup("/c");
        });
        assert!(!there(&process(1)) && !there(&cgroup));
    }

    #[test]
    fn only_what_still_holds_our_value_is_put_back() {
        let kernel = FakeKernel::new(CgroupMode::V1);
        kernel.with(|state| {
            state.add_cgroup("/c");
            for (pid, value) in [(10, 500), (11, 700), (12, 500)] {
                state.add_process(pid, 1, OomScoreAdj::clamped(value), "/c");
            }
            // Forked since: it has our value and no entry.
            state.fork(10, 13, 2);
        });
        let container = kernel.cgroup("/c").unwrap().processes_at().unwrap().clone();
        let mut journal = Journal::in_memory("boot");
        for pid in [10, 11, 14] {
            let id = evenkeel_host::write::ProcessId { pid, start_time: 1 };
            journal.note(&Target::Process(id), score(0), score(500), Some(&container));
        }
        let reports = restore(&kernel, &mut kernel.clone(), &mut journal);
        let results: Vec<&str> = reports.iter().map(|report| report.result.as_str()).collect();
        assert_eq!(
            results,
            ["restored", "changed by somebody else since; left alone", "restored", "restored", "gone"]
        );
        let scores: Vec<i16> =
            [10, 11, 12, 13].iter().map(|pid| kernel.with(|s| s.score(*pid).unwrap().get())).collect();
        assert_eq!(scores, [0, 700, 0, 0]);
        assert_eq!(journal.originals().count(), 0);
        assert_eq!(restore(&kernel, &mut kernel.clone(), &mut journal), []);
    }
}
