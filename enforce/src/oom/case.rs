//! One case: kills of a container seen together, and the decision that tells of them.
//!
//! Owned here: which numbers are told, and in which words. Not owned: who saw them, what follows.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_host::kernel_log::{Constraint, OomKill};
use evenkeel_host::write::CgroupRef;
use evenkeel_model::decision::DecisionKind;
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_model::workload::{ContainerResources, Requested};

use super::evictions::class_name;
use super::facts::KillMemory;
use super::rest::Rest;
use crate::decisions::Draft;
use crate::shared::Tracked;
use crate::usage::LastSeconds;

/// Victims told by name; a container of thousands of processes is told by their number.
const NAMED: usize = 16;

/// Who saw the kills first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witness {
    /// The kernel's counter, when it changed.
    Counter,
    /// The kernel's counter, when the container came to be watched.
    FirstLook,
    /// The sampler's last look at a cgroup that is no more.
    Sampler,
    /// The kernel's log alone.
    Log,
    /// Nobody: it ran out of memory and was gone before its counter could be read.
    Presumed,
}

impl Witness {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::FirstLook => "counter at first sight",
            Self::Sampler => "last sample",
            Self::Log => "kernel log",
            Self::Presumed => "presumed: out of memory, then gone",
        }
    }
}

/// Kills seen together.
pub(super) struct OomCase {
    /// The container.
    pub tracked: Arc<Tracked>,
    /// Whether it may be acted on.
    pub managed: bool,
    /// Its place in the memory hierarchy.
    pub at: CgroupRef,
    /// Processes killed.
    pub killed: u64,
    /// Processes killed since its cgroup was made.
    pub total: u64,
    /// Who saw it.
    pub witness: Witness,
    /// Since when it is open.
    pub since: Instant,
    /// When it was seen, microseconds since 1970.
    pub time_usec: u64,
    /// Memory at that moment.
    pub facts: KillMemory,
    /// The seconds before.
    pub before: Option<LastSeconds>,
    /// Score the container was given, where it was.
    pub score: Option<String>,
    /// Victims by name.
    pub victims: Vec<OomKill>,
    /// What was done to the rest.
    pub rest: Option<Rest>,
}

impl OomCase {
    /// Whose limit was hit.
    fn constraint(&self) -> Option<Constraint> {
        self.victims.iter().find_map(|v| v.constraint).or(self.facts.constraint)
    }

    /// What it was charged when it happened: its limit where that was hit, else the most that was seen.
    fn usage(&self) -> Option<Bytes> {
        let KillMemory { usage, peak, limit, .. } = self.facts;
        if let (Some(Constraint::Memcg), Some(Limit::Value(limit)), Some(peak)) =
            (self.facts.constraint, limit, peak)
        {
            return Some(peak.min(limit));
        }
        usage.max(self.before.as_ref().and_then(|b| b.usage))
    }

    /// The decision.
    pub(super) fn draft(&self) -> Draft {
        let workload = &self.tracked.workload;
        let class = class_name(self.tracked.classes.memory);
        let mut draft = Draft::of(workload, DecisionKind::OomKill, self.reason(class))
            .input("killed", self.killed)
            .input("total", self.total)
            .input("class", class)
            .input("cgroup", &self.tracked.cgroup)
            .input("inode", self.tracked.inode)
            .input("id", &workload.id)
            .input("seen_by", self.witness.as_str());
        let limit = self.facts.limit.map(|limit| match limit {
            Limit::Value(bytes) => bytes.get().to_string(),
            Limit::Max => "max".to_owned(),
        });
        let number = |bytes: Option<Bytes>| bytes.map(|b| b.get().to_string());
        let first = self.victims.first();
        let told = [
            ("usage_bytes", number(self.usage())),
            ("usage_after_bytes", number(self.facts.usage)),
            ("peak_bytes", number(self.facts.peak)),
            ("limit_bytes", limit),
            ("working_set_bytes", number(self.before.as_ref().and_then(|b| b.working_set))),
            ("request_bytes", number(resources(&workload.requested).and_then(|r| r.memory_request))),
            ("constraint", self.constraint().map(|c| name(c).to_owned())),
            (
                "oom_score_adj",
                first.and_then(|v| v.oom_score_adj).map(|s| s.get().to_string()).or(self.score.clone()),
            ),
            ("victim_pid", first.map(|v| v.pid.to_string())),
            ("victim_comm", first.map(|v| v.comm.clone())),
            ("victims", self.named()),
            ("samples", self.before.as_ref().map(|b| b.text.clone()).filter(|text| !text.is_empty())),
            ("pod_uid", workload.pod.uid.clone()),
        ];
        for (key, value) in told {
            if let Some(value) = value {
                draft = draft.input(key, value);
            }
        }
        draft
    }

    fn reason(&self, class: &str) -> String {
        let who = match (self.killed, self.victims.first()) {
            (1, Some(victim)) => format!("{} (pid {})", victim.comm, victim.pid),
            (1, None) => "a process".to_owned(),
            (n, Some(victim)) => {
                format!("{n} processes, the first of them {} (pid {}),", victim.comm, victim.pid)
            }
            (n, None) => format!("{n} processes"),
        };
        let place = match (self.constraint(), self.facts.limit) {
            (Some(Constraint::Memcg), Some(Limit::Value(limit))) => {
                format!(" at a limit of memory; its own is {limit}")
            }
            (Some(Constraint::Memcg), _) => " at a limit of memory above it".to_owned(),
            (Some(Constraint::None), _) => ": the machine ran out of memory".to_owned(),
            (Some(other), _) => format!(": out of memory within a {}", other.name()),
            (None, _) => String::new(),
        };
        let used = self.usage().map(|usage| format!(", {usage} used")).unwrap_or_default();
        format!("the OOM killer took {who} of this {class} container{place}{used}")
    }

    /// `pid comm adj anon-bytes` of the victims known.
    fn named(&self) -> Option<String> {
        let told = self.victims.iter().take(NAMED).map(|victim| {
            let mut text = format!("{} {}", victim.pid, victim.comm);
            if let Some(score) = victim.oom_score_adj {
                text += &format!(" adj={}", score.get());
            }
            if let Some(anon) = victim.anon_rss {
                text += &format!(" anon={}", anon.get());
            }
            text
        });
        let text = told.collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then_some(text)
    }
}

/// Name of a constraint in inputs: what Kubernetes' and the kernel's people call it.
const fn name(constraint: Constraint) -> &'static str {
    match constraint {
        Constraint::None => "global",
        Constraint::Memcg => "memcg",
        Constraint::Cpuset => "cpuset",
        Constraint::MemoryPolicy => "memory-policy",
    }
}

fn resources(requested: &Requested) -> Option<&ContainerResources> {
    match requested {
        Requested::Stated(resources) => Some(resources),
        Requested::Estimated(estimate) => Some(&estimate.resources),
        Requested::Unknown => None,
    }
}
