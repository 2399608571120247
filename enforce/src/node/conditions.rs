//! Conditions of the machine that guarantees depend on: how memory is promised, swap, what the kernel does when it
//! runs out.
//!
//! Owned here: reading them, saying what is wrong with them and for whom, and `vm.overcommit_memory` where the
//! configuration gives it to the agent. Everything else is looked at, never written.

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::knob::{Knob, Overcommit as Mode, Setting};
use evenkeel_host::node::meminfo;
use evenkeel_host::roots::Roots;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{HostWriter, Outcome, Target, Write};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Bytes;
use evenkeel_qos::checks::{self, Finding};

use crate::converge::board::NodeKnob;
use crate::converge::roster::RosterEntry;
use crate::decisions::Draft;
use crate::journal::Journal;
use crate::node::rules::Overcommit;

const OVERCOMMIT: &str = "vm.overcommit_memory";
const PANIC: &str = "vm.panic_on_oom";
const SWAP: &str = "swap";
/// What helps where a file of the kernel cannot be read.
const ROOTS: &str = "give the agent the machine's procfs as roots.proc";

/// A row for status, and what is worth a decision when its state is news.
#[derive(Debug)]
pub(super) struct NodeCondition {
    pub(super) row: NodeKnob,
    /// Told when the row's state changed; a write is told in any case.
    pub(super) draft: Option<Draft>,
    pub(super) wrote: bool,
}

impl NodeCondition {
    fn new(name: &'static str, state: &'static str, why: String, remedy: &str) -> Self {
        let row = NodeKnob { name, state, why, remedy: remedy.to_owned() };
        Self { row, draft: None, wrote: false }
    }

    /// With a decision about it that names `value` as what was found.
    fn told(mut self, value: &str, wanted: &str, result: DecisionResult) -> Self {
        let reason = match self.row.remedy.as_str() {
            "" => self.row.why.clone(),
            remedy => format!("{}; {remedy}", self.row.why),
        };
        let draft = Draft::node(DecisionKind::Node, reason)
            .knob(self.row.name)
            .values(Some(value.to_owned()), Some(wanted.to_owned()))
            .input("state", self.row.state)
            .result(result);
        self.draft = Some(draft);
        self
    }
}

/// Looks at `vm.overcommit_memory`, and sets it where that is asked for.
pub(super) fn overcommit(
    policy: Overcommit,
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    journal: &mut Journal,
) -> NodeCondition {
    if policy == Overcommit::Off {
        return NodeCondition::new(OVERCOMMIT, "off", "turned off by memory.overcommit".into(), "");
    }
    let found = match reader.setting(&Target::Node, Knob::OvercommitMemory) {
        Ok(Setting::OvercommitMemory(found)) => found,
        Ok(_) => {
            return NodeCondition::new(
                OVERCOMMIT,
                "unsupported",
                "the kernel's answer is not understood".into(),
                ROOTS,
            );
        }
        Err(error) => return unread(OVERCOMMIT, &error),
    };
    match (found, policy) {
        (Mode::Always, _) => NodeCondition::new(OVERCOMMIT, "ok", "1".into(), ""),
        (_, Overcommit::Set) => set_overcommit(found, writer, journal),
        _ => judged(found).told(&found.to_string(), "1", DecisionResult::Unchanged),
    }
}

fn unread(name: &'static str, error: &HostError) -> NodeCondition {
    // Of others it knows what helps with cgroups.
    let remedy = error.remedy().filter(|_| error.category() == Category::Io);
    NodeCondition::new(name, "unsupported", error.to_string(), remedy.unwrap_or(ROOTS))
}

/// A finding as a row; a promise that is broken for everybody is a failure.
fn found(name: &'static str, state: &'static str, finding: &Finding) -> NodeCondition {
    NodeCondition::new(name, state, format!("{}: {}", finding.what, finding.why), &finding.remedy)
}

fn judged(mode: Mode) -> NodeCondition {
    let state = if mode == Mode::Never { "fail" } else { "warn" };
    match checks::overcommit(mode.get()) {
        Some(finding) => found(OVERCOMMIT, state, &finding),
        None => NodeCondition::new(OVERCOMMIT, "ok", mode.to_string(), ""),
    }
}

fn set_overcommit(found: Mode, writer: &mut dyn HostWriter, journal: &mut Journal) -> NodeCondition {
    let wish = Setting::OvercommitMemory(Mode::Always);
    journal.note(&Target::Node, Setting::OvercommitMemory(found), wish, None);
    journal.flush();
    let old = found.to_string();
    match writer.apply(&Write::node(wish)) {
        Outcome::Written { .. } | Outcome::Unchanged { .. } => {
            let why = format!("set to 1, so that a shortage ends a process by its score; it was {found}");
            let mut set = NodeCondition::new(OVERCOMMIT, "ok", why, "").told(&old, "1", DecisionResult::Done);
            set.wrote = true;
            set
        }
        Outcome::WouldWrite { .. } => {
            let why = format!("it is {found} and would be set to 1");
            NodeCondition::new(OVERCOMMIT, "would-set", why, "").told(&old, "1", DecisionResult::WouldDo)
        }
        Outcome::Refused(why) => NodeCondition::new(OVERCOMMIT, "denied", why.to_string(), "").told(
            &old,
            "1",
            DecisionResult::Rejected,
        ),
        Outcome::Failed { error, .. } => {
            let denied = error.category() == Category::Denied;
            let result = if denied { DecisionResult::Denied } else { DecisionResult::Failed };
            NodeCondition::new(OVERCOMMIT, "denied", error.to_string(), remedy_of(&error))
                .told(&old, "1", result)
        }
    }
}

fn remedy_of(error: &HostError) -> &'static str {
    error.remedy().unwrap_or("run as root with a writable procfs (no ProtectKernelTunables=)")
}

/// Looks at `vm.panic_on_oom`: with anything but 0 a shortage ends the machine, and no score matters.
pub(super) fn panic_on_oom(roots: &Roots) -> NodeCondition {
    match evenkeel_host::node::panic_on_oom(roots) {
        Ok(value) => match checks::panic_on_oom(u8::try_from(value).unwrap_or(u8::MAX)) {
            None => NodeCondition::new(PANIC, "ok", value.to_string(), ""),
            Some(finding) => {
                found(PANIC, "fail", &finding).told(&value.to_string(), "0", DecisionResult::Unchanged)
            }
        },
        Err(error) => unread(PANIC, &error),
    }
}

/// Looks for swap, and says whose guarantee it breaks.
pub(super) fn swap(roots: &Roots, roster: &[RosterEntry], limited: bool) -> NodeCondition {
    let total = match meminfo(roots) {
        Ok(memory) => memory.swap_total.unwrap_or(Bytes::ZERO),
        Err(error) => return unread(SWAP, &error),
    };
    let (guaranteed, burstable) = count(roster);
    swap_of(total, guaranteed, burstable, limited)
}

/// Guaranteed and Burstable containers by memory.
fn count(roster: &[RosterEntry]) -> (usize, usize) {
    let of = |class| roster.iter().filter(|entry| entry.tracked.classes.memory == Some(class)).count();
    (of(QosClass::Guaranteed), of(QosClass::Burstable))
}

fn swap_of(total: Bytes, guaranteed: usize, burstable: usize, limited: bool) -> NodeCondition {
    let Some(mut finding) = checks::swap(total, limited) else {
        return NodeCondition::new(SWAP, "ok", "off".into(), "");
    };
    finding.why.push_str(&format!("; here {guaranteed} Guaranteed and {burstable} Burstable containers"));
    let state = if limited { "warn" } else { "fail" };
    found(SWAP, state, &finding).told(&total.get().to_string(), "0", DecisionResult::Unchanged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::CgroupMode as Layout;

    #[test]
    fn overcommit_is_checked_or_set_and_its_original_kept() {
        let kernel = FakeKernel::new(Layout::V2);
        let mut journal = Journal::in_memory("boot");
        let mut look = |policy| {
            let condition = overcommit(policy, &kernel, &mut kernel.clone(), &mut journal);
            (condition.row.state, condition.draft.is_some(), condition.wrote, journal.originals().count())
        };
        assert_eq!(look(Overcommit::Off), ("off", false, false, 0));
        assert_eq!(look(Overcommit::Check), ("warn", true, false, 0));
        assert_eq!(look(Overcommit::Set), ("ok", true, true, 1));
        assert_eq!(look(Overcommit::Set), ("ok", false, false, 1));
        assert_eq!(look(Overcommit::Check), ("ok", false, false, 1));
        let original = journal.originals().next().map(|original| (original.target.clone(), original.old));
        assert_eq!(original, Some((Target::Node, Setting::OvercommitMemory(Mode::Heuristic))));
    }

    #[test]
    fn without_overcommit_no_score_decides() {
        assert_eq!((judged(Mode::Never).row.state, judged(Mode::Heuristic).row.state), ("fail", "warn"));
    }

    #[test]
    fn swap_names_whose_guarantee_it_breaks() {
        assert_eq!(swap_of(Bytes::ZERO, 1, 1, false).row.state, "ok");
        let found = swap_of(Bytes::new(1 << 30), 2, 3, false);
        assert_eq!(found.row.state, "fail");
        assert!(found.row.why.contains("2 Guaranteed and 3 Burstable"), "{found:?}");
        assert_eq!(swap_of(Bytes::new(1 << 30), 2, 3, true).row.state, "warn");
    }
}
