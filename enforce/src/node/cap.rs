//! The cap of all workloads: one cgroup holds them, and memory less a reserve is the most it may use.
//!
//! Owned here: measuring each second what is used inside and outside of it, writing the cap, and letting go when
//! somebody else keeps rewriting it. Not owned: how large it is (`qos::reserve`).

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::hierarchy::{Controller, Hierarchy, Layout};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::node::MemInfo;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Target, Write};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_qos::plan::Wish;
use evenkeel_qos::reserve::{NodeUse, Reserve, ReserveRule};
use evenkeel_qos::why::Why;

use crate::converge::board::NodeKnob;
use crate::decisions::{Draft, now_usec};
use crate::journal::Journal;
use crate::node::rules::CapRules;

/// Name of the row that status shows.
const ROW: &str = "memory.workloads_cap";
/// The kubelet's own cgroup, by either driver: it writes its limit each minute (`enforceNodeAllocatable`).
const KUBELET: [&str; 2] = ["/kubepods", "/kubepods.slice"];
/// What to do about two owners.
const LET_ONE_OWN: &str =
    "turn memory.workloads_cap off here, or take pods out of the kubelet's enforceNodeAllocatable";
/// Seconds in a row for which the cap held after which earlier rewrites are forgotten.
const FORGIVEN_AFTER: u32 = 60;

/// The cap as status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapView {
    /// Path of the cgroup.
    pub cgroup: String,
    /// `ok`, `would-set`, `contended`, `denied`, `unsupported`, `waiting`.
    pub state: &'static str,
    /// What is wrong with it; empty when nothing is.
    pub why: String,
    /// What a person can do.
    pub remedy: String,
    /// Memory kept from workloads: what remains of the machine's.
    pub reserve: Bytes,
    /// The cap wished; `None` before the first measurement.
    pub cap: Option<Bytes>,
    /// What workloads use.
    pub inside: Bytes,
    /// What everything else uses and cannot give back.
    pub outside: Bytes,
    /// Rewrites by somebody else, in a row.
    pub rewrites: u32,
    /// When the first of them was seen, microseconds since 1970; `None` = none.
    pub since_usec: Option<u64>,
}

/// The kernel's files, and where their originals go.
pub(super) struct KernelAccess<'a> {
    /// Reads them.
    pub(super) reader: &'a dyn HostReader,
    /// Writes them.
    pub(super) writer: &'a mut dyn HostWriter,
    /// Keeps originals.
    pub(super) journal: &'a mut Journal,
}

/// Keeps the cap.
pub(super) struct WorkloadCap {
    rules: CapRules,
    reserve: Reserve,
    contended_after: u32,
    place: Option<CgroupRef>,
    /// What the kernel made of our last write.
    kept: Option<Setting>,
    held_for: u32,
    view: CapView,
}

/// What a second of it came to.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Worth telling.
    pub(super) draft: Option<Draft>,
    /// A write that was tried, for the counters.
    pub(super) wrote: Option<(Knob, Outcome)>,
}

impl WorkloadCap {
    pub(super) fn new(rules: CapRules, contended_after: u32) -> Self {
        let rule = ReserveRule { configured: rules.reserve, margin_percent: rules.margin_percent };
        let view = CapView {
            cgroup: rules.cgroup.clone(),
            state: "waiting",
            why: "the cgroup is not there yet".into(),
            remedy: String::new(),
            reserve: rules.reserve,
            cap: None,
            inside: Bytes::ZERO,
            outside: Bytes::ZERO,
            rewrites: 0,
            since_usec: None,
        };
        Self {
            rules,
            reserve: Reserve::new(rule),
            contended_after,
            place: None,
            kept: None,
            held_for: 0,
            view,
        }
    }

    pub(super) fn view(&self) -> &CapView {
        &self.view
    }

    /// The row of status.
    pub(super) fn row(&self) -> NodeKnob {
        let CapView { cgroup, state, why, remedy, .. } = &self.view;
        let cap = self.view.cap.map_or_else(|| "none yet".to_owned(), |cap| cap.get().to_string());
        let why =
            if why.is_empty() { format!("{cgroup} is capped at {cap}") } else { format!("{cgroup}: {why}") };
        NodeKnob { name: ROW, state, why, remedy: remedy.clone() }
    }

    /// Measures, and writes where that is needed and ours to do. `kubelet` tells that one runs on this node.
    pub(super) fn round(
        &mut self,
        now_usec: u64,
        memory: &MemInfo,
        page: Bytes,
        layout: &Layout,
        kubelet: bool,
        access: KernelAccess<'_>,
    ) -> Round {
        let at = match self.find(layout, access.reader) {
            Ok(at) => at,
            Err((state, why, remedy)) => {
                self.place = None;
                self.kept = None;
                self.put(state, why, remedy);
                return Round::default();
            }
        };
        let used = match access.reader.memory(&at) {
            Ok(used) => used,
            Err(error) => {
                // Gone: it is looked for again in a second, and another one of its name is another cgroup.
                self.place = None;
                self.kept = None;
                self.put("waiting", error.to_string(), "");
                return Round::default();
            }
        };
        let available = memory.available.or(memory.free).unwrap_or(Bytes::ZERO);
        let held = used.current.saturating_sub(used.inactive_file);
        let outside = memory.total.saturating_sub(available).saturating_sub(held);
        let node = NodeUse { memory: memory.total, daemons: outside, workloads: used.current, page };
        let wish = self.reserve.observe(now_usec, node);
        self.view.inside = used.current;
        self.view.outside = outside;
        self.view.cap = Some(wish.value);
        self.view.reserve = memory.total.saturating_sub(wish.value);
        let owned = kubelet && KUBELET.iter().any(|tier| self.rules.cgroup == *tier);
        if owned {
            return self.leave_to_the_kubelet(now_usec);
        }
        self.keep(&at, &wish, access)
    }

    /// The cgroup, found again when it was replaced.
    fn find(
        &mut self,
        layout: &Layout,
        reader: &dyn HostReader,
    ) -> Result<CgroupRef, (&'static str, String, &'static str)> {
        if let Some(at) = &self.place {
            return Ok(at.clone());
        }
        let home = layout.home(Controller::Memory).ok_or((
            "unsupported",
            "this machine has no memory controller".to_owned(),
            "enable memory in cgroup.subtree_control from the root down, or boot without cgroup_disable=memory",
        ))?;
        let at = reader.place(home, &self.rules.cgroup).map_err(|error| {
            let remedy = "make it and put every workload into it, or name another one";
            ("waiting", error.to_string(), remedy)
        })?;
        self.place = Some(at.clone());
        Ok(at)
    }

    fn put(&mut self, state: &'static str, why: String, remedy: &str) {
        self.view.state = state;
        self.view.why = why;
        self.view.remedy = remedy.to_owned();
    }

    fn leave_to_the_kubelet(&mut self, now_usec: u64) -> Round {
        let news = self.view.state != "contended";
        self.view.since_usec.get_or_insert(now_usec);
        self.put("contended", "a kubelet runs here and owns its limit".into(), LET_ONE_OWN);
        let draft = news.then(|| self.told(DecisionKind::Contended, None, DecisionResult::Unchanged));
        Round { draft, wrote: None }
    }

    fn keep(&mut self, at: &CgroupRef, wish: &Wish<Bytes>, access: KernelAccess<'_>) -> Round {
        let KernelAccess { reader, writer, journal } = access;
        let limit = Limit::Value(wish.value);
        let wanted = match at.hierarchy {
            Hierarchy::V2 => Setting::MemoryMax(limit),
            Hierarchy::V1(_) => Setting::MemoryLimit(limit),
        };
        let target = Target::Cgroup(at.clone());
        let found = match reader.setting(&target, wanted.knob()) {
            Ok(found) => found,
            Err(error) => {
                self.trouble(&error);
                return Round::default();
            }
        };
        if self.kept.is_some_and(|kept| kept != found) {
            self.held_for = 0;
            self.view.rewrites += 1;
            self.view.since_usec.get_or_insert_with(now_usec);
            self.kept = None;
        } else if self.kept.is_some() {
            self.held_for += 1;
            if self.held_for >= FORGIVEN_AFTER {
                self.view.rewrites = 0;
                self.view.since_usec = None;
            }
        }
        if self.view.rewrites >= self.contended_after {
            return self.contended(found, wanted);
        }
        if self.kept == Some(found) && found == wanted {
            self.put("ok", String::new(), "");
            return Round::default();
        }
        journal.note(&target, found, wanted, None);
        journal.flush();
        let outcome = writer.apply(&Write { target, setting: wanted });
        let draft = self.take(&outcome, found, wanted, &wish.reason);
        Round { draft, wrote: Some((wanted.knob(), outcome)) }
    }

    fn contended(&mut self, found: Setting, wanted: Setting) -> Round {
        let news = self.view.state != "contended";
        let why = format!(
            "somebody else rewrote its limit {} times in a row, last to {found}; it is left alone",
            self.view.rewrites
        );
        self.put("contended", why, LET_ONE_OWN);
        let draft = news.then(|| {
            self.told(DecisionKind::Contended, Some((found, wanted)), DecisionResult::Unchanged)
                .input("count", self.view.rewrites)
        });
        Round { draft, wrote: None }
    }

    fn take(&mut self, outcome: &Outcome, old: Setting, wanted: Setting, reason: &Why) -> Option<Draft> {
        let (result, news) = match outcome {
            Outcome::Written { new, .. } | Outcome::Unchanged { value: new } => {
                self.kept = Some(*new);
                self.put("ok", String::new(), "");
                (DecisionResult::Done, matches!(outcome, Outcome::Written { .. }))
            }
            Outcome::WouldWrite { .. } => {
                let why = format!("its limit is {old} and would be {wanted}");
                let news = self.view.state != "would-set";
                self.put("would-set", why, "");
                (DecisionResult::WouldDo, news)
            }
            Outcome::Refused(why) => {
                let news = self.view.state != "denied";
                self.put("denied", why.to_string(), "name a cgroup the configuration does not deny");
                (DecisionResult::Rejected, news)
            }
            Outcome::Failed { error, .. } => {
                let before = self.view.state;
                self.trouble(error);
                let result = match error.category() {
                    Category::Denied => DecisionResult::Denied,
                    _ => DecisionResult::Failed,
                };
                (result, before != self.view.state)
            }
        };
        news.then(|| {
            Draft::node(DecisionKind::Node, format!("{}: {}", self.rules.cgroup, reason.text()))
                .knob(wanted.knob().name())
                .values(Some(old.to_string()), Some(wanted.to_string()))
                .inputs(reason.inputs())
                .input("cgroup", &self.rules.cgroup)
                .input("outside_use", self.view.outside.get())
                .result(result)
        })
    }

    fn trouble(&mut self, error: &HostError) {
        let state = match error.category() {
            Category::Denied => "denied",
            Category::Unsupported => "unsupported",
            // Busy: more is used than the limit, and the kernel could not reclaim it; tried again in a second.
            _ => "waiting",
        };
        if error.is_gone() {
            self.place = None;
            self.kept = None;
        }
        self.put(state, error.to_string(), error.remedy().unwrap_or_default());
    }

    fn told(&self, kind: DecisionKind, values: Option<(Setting, Setting)>, result: DecisionResult) -> Draft {
        let reason = format!("{}: {}; {}", self.rules.cgroup, self.view.why, self.view.remedy);
        let draft = Draft::node(kind, reason).knob(ROW).input("cgroup", &self.rules.cgroup).result(result);
        match values {
            Some((found, wanted)) => draft.values(Some(found.to_string()), Some(wanted.to_string())),
            None => draft,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::{CgroupMode, Mount};

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000;

    fn layout() -> Layout {
        let mount = Mount {
            hierarchy: Hierarchy::V2,
            path: "/x".into(),
            controllers: vec![Controller::Memory],
            delegated: vec![Controller::Memory],
        };
        Layout::declare(vec![mount]).unwrap()
    }

    fn memory(total: u64, available: u64) -> MemInfo {
        MemInfo {
            total: Bytes::new(total * MIB),
            free: None,
            available: Some(Bytes::new(available * MIB)),
            swap_total: None,
            swap_free: None,
            swap_cached: None,
            commit_limit: None,
            committed: None,
        }
    }

    struct Bench {
        kernel: FakeKernel,
        cap: WorkloadCap,
        journal: Journal,
        now: u64,
    }

    impl Bench {
        fn new(cgroup: &str) -> Self {
            let kernel = FakeKernel::new(CgroupMode::V2);
            let rules =
                CapRules { cgroup: cgroup.into(), reserve: Bytes::new(200 * MIB), margin_percent: 10 };
            Self { kernel, cap: WorkloadCap::new(rules, 3), journal: Journal::in_memory("boot"), now: 0 }
        }

        /// One second on a machine of 1,000 MiB.
        fn second(&mut self, available: u64, kubelet: bool) -> (&'static str, Option<Setting>, bool) {
            self.now += SECOND;
            let mut writer = self.kernel.clone();
            let round = self.cap.round(
                self.now,
                &memory(1000, available),
                Bytes::new(4096),
                &layout(),
                kubelet,
                KernelAccess { reader: &self.kernel, writer: &mut writer, journal: &mut self.journal },
            );
            (self.cap.view().state, self.limit(), round.draft.is_some())
        }

        fn limit(&self) -> Option<Setting> {
            let at = self.cap.place.clone()?;
            self.kernel.setting(&Target::Cgroup(at), Knob::MemoryMax).ok()
        }

        fn rewrite(&self) {
            let at = self.cap.place.clone().unwrap();
            let mut hand = self.kernel.clone();
            let _ = hand.apply(&Write::cgroup(at, Setting::MemoryMax(Limit::Max)));
        }
    }

    fn max(mib: u64) -> Option<Setting> {
        Some(Setting::MemoryMax(Limit::Value(Bytes::new(mib * MIB))))
    }

    #[test]
    fn the_cap_is_written_once_and_its_original_kept() {
        let mut bench = Bench::new("/work");
        assert_eq!(bench.second(900, false), ("waiting", None, false));
        bench.kernel.with(|state| state.add_cgroup("/work"));
        assert_eq!(bench.second(900, false), ("ok", max(800), true));
        assert_eq!(bench.second(900, false), ("ok", max(800), false));
        let original = bench.journal.originals().next().map(|o| o.old);
        assert_eq!(original, Some(Setting::MemoryMax(Limit::Max)));
    }

    #[test]
    fn what_somebody_else_keeps_rewriting_is_left_to_them() {
        let mut bench = Bench::new("/work");
        bench.kernel.with(|state| state.add_cgroup("/work"));
        bench.second(900, false);
        for (state, limit, told) in [
            ("ok", max(800), true),
            ("ok", max(800), true),
            ("contended", Some(Setting::MemoryMax(Limit::Max)), true),
        ] {
            bench.rewrite();
            assert_eq!(bench.second(900, false), (state, limit, told));
        }
        assert_eq!(bench.second(900, false), ("contended", Some(Setting::MemoryMax(Limit::Max)), false));
        assert_eq!((bench.cap.view().rewrites, bench.cap.view().since_usec.is_some()), (3, true));
    }

    #[test]
    fn a_kubelets_own_cgroup_is_its_own() {
        let mut bench = Bench::new("/kubepods");
        bench.kernel.with(|state| state.add_cgroup("/kubepods"));
        assert_eq!(bench.second(900, true), ("contended", Some(Setting::MemoryMax(Limit::Max)), true));
        assert!(!bench.second(900, true).2);
        assert_eq!(bench.second(900, false).0, "ok");
    }
}
