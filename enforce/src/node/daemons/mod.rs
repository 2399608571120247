//! Daemons the node cannot live without, kept at the score of infrastructure.
//!
//! Processes one by one, never cgroups as a whole: a runtime's unit holds shims beside the runtime, and a container
//! that its runtime gives no score would inherit the shim's. Owned here: the score of these processes. Not owned:
//! who they are (`find`), the agent's own process ([`protect_ourselves`] sets it once, at start).

mod find;

use std::collections::BTreeMap;

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::programs::set_own_score;
use evenkeel_host::roots::Roots;
use evenkeel_host::snapshot::{HostReader, ProcessFacts};
use evenkeel_host::write::{HostWriter, Outcome, ProcessId, Refusal, Target, Write};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::OomScoreAdj;
use evenkeel_qos::rules::RuleSet;
use evenkeel_qos::score::infrastructure_score;
use evenkeel_qos::why::{Infrastructure, Why};

use crate::config::{Config, Mode};
use crate::converge::board::NodeKnob;
use crate::converge::roster::RosterEntry;
use crate::decisions::Draft;
use crate::journal::Journal;
use find::{DaemonProcess, Finder, FoundDaemons};

/// Name of the row that status shows for all of them.
const ROW: &str = "oom_score_adj of daemons";
/// What helps against a refusal.
const REMEDY: &str =
    "grant CAP_SYS_RESOURCE (in the initial user namespace), or set OOMScoreAdjust=-999 in the units";

/// Where a daemon's score stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DaemonState {
    /// Holds the score.
    Protected,
    /// Dry run: would be written.
    Would,
    /// Not allowed, or refused by the writer.
    Denied(String),
    /// Somebody else keeps rewriting it.
    Contended,
    /// It is part of a managed container, whose score it has.
    Managed(String),
}

impl DaemonState {
    /// The name in output.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Protected => "protected",
            Self::Would => "would-protect",
            Self::Denied(_) => "denied",
            Self::Contended => "contended",
            Self::Managed(_) => "managed",
        }
    }
}

/// One daemon as status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Name of its program.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// How it was found.
    pub by: String,
    /// Its cgroup, where it is known.
    pub cgroup: Option<String>,
    /// Score it should have.
    pub wanted: OomScoreAdj,
    /// Score last read.
    pub actual: Option<OomScoreAdj>,
    /// Where it stands.
    pub state: DaemonState,
}

#[derive(Debug)]
struct KnownDaemon {
    shown: Daemon,
    rewrites: u32,
    /// What it had before we wrote it.
    original: Option<OomScoreAdj>,
}

/// Keeps every daemon at its score.
pub(super) struct Guard {
    finder: Finder,
    reader: KernelReader,
    score: OomScoreAdj,
    rules: RuleSet,
    contended_after: u32,
    excluded: Vec<String>,
    known: BTreeMap<ProcessId, KnownDaemon>,
}

impl Guard {
    /// A guard that knows nobody yet; `None` where daemons are not to be protected.
    pub(super) fn new(config: &Config, reader: &KernelReader) -> Option<Self> {
        if !config.daemons.enabled || !config.knobs.oom_score_adj {
            return None;
        }
        Some(Self {
            finder: Finder::new(config.daemons.clone(), reader.clone()),
            reader: reader.clone(),
            score: infrastructure_score(config.plan.rules, false),
            rules: config.plan.rules,
            contended_after: config.converge.contended_after,
            excluded: config.manage.exclude_namespaces.clone(),
            known: BTreeMap::new(),
        })
    }

    /// Looks for daemons and sets those right that are not. Returns what is to be told.
    pub(super) fn audit(
        &mut self,
        roster: &[RosterEntry],
        writer: &mut dyn HostWriter,
        journal: &mut Journal,
    ) -> Vec<Draft> {
        let FoundDaemons { processes, is_whole } = self.finder.look(roster, &self.excluded);
        let mut drafts = Vec::new();
        let is_lost = |id: &ProcessId| is_whole && !processes.iter().any(|one| one.id == *id);
        let lost: Vec<ProcessId> = self.known.keys().filter(|id| is_lost(id)).copied().collect();
        for id in lost {
            let Some(known) = self.known.remove(&id) else { continue };
            match self.seen(id) {
                Ok(facts) => drafts.extend(facts.and_then(|facts| self.let_go(&facts, &known, writer))),
                Err(_) => drop(self.known.insert(id, known)),
            }
        }
        for one in processes {
            drafts.extend(self.one(one, roster, writer, journal));
        }
        drafts
    }

    /// What is known of a process; nothing where it has ended.
    ///
    /// # Errors
    /// When it cannot be read now.
    fn seen(&self, id: ProcessId) -> Result<Option<ProcessFacts>, HostError> {
        match self.reader.process(id.pid) {
            Ok(facts) => Ok((facts.id == id).then_some(facts)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// One that is no daemon any more, because it turned out to be in a container: it gets back what it had.
    fn let_go(
        &self,
        facts: &ProcessFacts,
        known: &KnownDaemon,
        writer: &mut dyn HostWriter,
    ) -> Option<Draft> {
        let (original, id) = (known.original?, facts.id);
        if facts.score != self.score {
            return None;
        }
        let outcome = writer.apply(&Write::process(id, Setting::OomScoreAdj(original)));
        let result = if outcome.is_done() { DecisionResult::Done } else { DecisionResult::Failed };
        let reason =
            format!("{}: it is no daemon of the node; what it had before is put back", known.shown.name);
        Some(
            Draft::node(DecisionKind::Set, reason)
                .knob(Knob::OomScoreAdj.name())
                .values(Some(facts.score.to_string()), Some(original.to_string()))
                .input("pid", id.pid)
                .result(result),
        )
    }

    /// Every daemon.
    pub(super) fn daemons(&self) -> Vec<Daemon> {
        self.known.values().map(|known| known.shown.clone()).collect()
    }

    /// A kubelet is among them.
    pub(super) fn has_kubelet(&self) -> bool {
        self.known.values().any(|known| known.shown.name == "kubelet")
    }

    /// How many hold the score.
    pub(super) fn protected(&self) -> usize {
        self.known.values().filter(|known| known.shown.actual == Some(self.score)).count()
    }

    /// The row of all of them.
    /// Namespaces whose containers may hold daemons, from the configuration in force.
    pub(super) fn set_excluded(&mut self, namespaces: &[String]) {
        if self.excluded != namespaces {
            self.excluded = namespaces.to_vec();
        }
    }

    pub(super) fn row(&self) -> NodeKnob {
        let denied: Vec<&Daemon> = self
            .known
            .values()
            .map(|known| &known.shown)
            .filter(|daemon| matches!(daemon.state, DaemonState::Denied(_)))
            .collect();
        let why = match denied.first().map(|daemon| (daemon, &daemon.state)) {
            Some((daemon, DaemonState::Denied(why))) => {
                format!(
                    "{} of {} cannot be protected; {}: {why}",
                    denied.len(),
                    self.known.len(),
                    daemon.name
                )
            }
            _ if self.known.is_empty() => "none found".to_owned(),
            _ => format!("{} of {} are at {}", self.protected(), self.known.len(), self.score),
        };
        let (state, remedy) = if denied.is_empty() { ("ok", "") } else { ("denied", REMEDY) };
        NodeKnob { name: ROW, state, why, remedy: remedy.to_owned() }
    }

    fn one(
        &mut self,
        found: DaemonProcess,
        roster: &[RosterEntry],
        writer: &mut dyn HostWriter,
        journal: &mut Journal,
    ) -> Option<Draft> {
        let before = self.known.remove(&found.id);
        let facts = match self.seen(found.id) {
            Ok(facts) => facts?,
            Err(_) => {
                self.known.extend(before.map(|known| (found.id, known)));
                return None;
            }
        };
        let rewrites = before.as_ref().map_or(0, |known| known.rewrites);
        let original = before.as_ref().and_then(|known| known.original);
        let state = before.as_ref().map(|known| known.shown.state.clone());
        let mut known = KnownDaemon {
            shown: Daemon {
                name: found.name,
                pid: found.id.pid,
                by: found.by,
                cgroup: found.cgroup,
                wanted: self.score,
                actual: Some(facts.score),
                state: state.clone().unwrap_or(DaemonState::Would),
            },
            rewrites,
            original,
        };
        let draft = if let Some(name) = manager(known.shown.cgroup.as_deref(), roster) {
            known.shown.state = DaemonState::Managed(name);
            None
        } else if facts.score == self.score {
            known.shown.state = DaemonState::Protected;
            None
        } else if state == Some(DaemonState::Contended) {
            None
        } else {
            known.rewrites += u32::from(state == Some(DaemonState::Protected));
            self.write(&mut known, found.id, facts.score, state.as_ref(), writer, journal)
        };
        self.known.insert(found.id, known);
        draft
    }

    /// Writes one; tells when that is news.
    fn write(
        &self,
        known: &mut KnownDaemon,
        id: ProcessId,
        old: OomScoreAdj,
        before: Option<&DaemonState>,
        writer: &mut dyn HostWriter,
        journal: &mut Journal,
    ) -> Option<Draft> {
        if known.rewrites >= self.contended_after {
            known.shown.state = DaemonState::Contended;
            let why = format!(
                "somebody else changed its score {} times in a row; it is left alone",
                known.rewrites
            );
            return Some(self.draft(DecisionKind::Contended, &why, known, old, DecisionResult::Unchanged));
        }
        let wanted = Setting::OomScoreAdj(self.score);
        journal.note(&Target::Process(id), Setting::OomScoreAdj(old), wanted, None);
        journal.flush();
        let (state, kind, result) = match writer.apply(&Write::process(id, wanted)) {
            Outcome::Written { new, .. } | Outcome::Unchanged { value: new } => {
                let Setting::OomScoreAdj(new) = new else { return None };
                known.shown.actual = Some(new);
                known.original = known.original.or(Some(old));
                (DaemonState::Protected, DecisionKind::Set, DecisionResult::Done)
            }
            Outcome::WouldWrite { .. } => (DaemonState::Would, DecisionKind::Set, DecisionResult::WouldDo),
            Outcome::Refused(Refusal::Replaced) => return None,
            Outcome::Refused(why) => {
                (DaemonState::Denied(why.to_string()), DecisionKind::Denied, DecisionResult::Rejected)
            }
            Outcome::Failed { error, .. } => failed(&error)?,
        };
        // What is denied is tried again at each audit, and told once.
        let news = state == DaemonState::Protected || before != Some(&state);
        let why = match &state {
            DaemonState::Denied(why) => why.clone(),
            _ => "a daemon the node needs: it must not be killed before what it carries".to_owned(),
        };
        known.shown.state = state;
        news.then(|| self.draft(kind, &why, known, old, result))
    }

    fn draft(
        &self,
        kind: DecisionKind,
        why: &str,
        known: &KnownDaemon,
        old: OomScoreAdj,
        result: DecisionResult,
    ) -> Draft {
        let draft = Draft::node(kind, format!("{}: {why}", known.shown.name))
            .knob(Knob::OomScoreAdj.name())
            .values(Some(old.to_string()), Some(self.score.to_string()))
            .inputs(Why::Infrastructure(Infrastructure { rules: self.rules, pause: false }).inputs())
            .input("daemon", &known.shown.name)
            .input("found_by", &known.shown.by)
            .input("pid", known.shown.pid)
            .result(result);
        match &known.shown.cgroup {
            Some(path) => draft.input("cgroup", path),
            None => draft,
        }
    }
}

/// `None` when it is gone or to be tried again in silence.
fn failed(error: &HostError) -> Option<(DaemonState, DecisionKind, DecisionResult)> {
    let result = match error.category() {
        Category::Gone => return None,
        Category::Denied => DecisionResult::Denied,
        _ => DecisionResult::Failed,
    };
    Some((DaemonState::Denied(error.to_string()), DecisionKind::Denied, result))
}

/// The managed container that a cgroup is, or is in: its owner is the converger.
fn manager(cgroup: Option<&str>, roster: &[RosterEntry]) -> Option<String> {
    let path = cgroup?;
    let inside =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    roster.iter().find(|entry| entry.managed && inside(&entry.tracked.cgroup)).map(|entry| {
        let workload = &entry.tracked.workload;
        format!("{}/{}/{}", workload.pod.namespace, workload.pod.name, workload.container)
    })
}

/// Sets the agent's own score, once and before anything is started that inherits it. The writer refuses our own
/// process, whatever it is asked; this is the one exception and it can hit nobody else.
pub fn protect_ourselves(config: &Config, roots: &Roots) {
    if config.mode != Mode::Enforce || !config.daemons.enabled || !config.knobs.oom_score_adj {
        return;
    }
    let score = infrastructure_score(config.plan.rules, false);
    match set_own_score(roots, score) {
        Ok(old) if old == score => {}
        Ok(old) => tracing::info!(%old, new = %score, "the agent's own oom_score_adj"),
        Err(error) => {
            tracing::warn!(%error, remedy = REMEDY, "the agent's own oom_score_adj stays as it is");
        }
    }
}
