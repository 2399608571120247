//! Owns what of a node's words is believed: no more than its machine can do. What is not is left out and counted by reason,
//! for the node and for people.

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::v1;

use super::slots::memory_of;

/// Why something a node said was not taken in. The order is that of checkpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// More CPU than the node has.
    Cpu,
    /// More memory than it has.
    Memory,
    /// A kill of what does not run.
    NoSuchKill,
    /// More kills than there may be in an hour.
    Kills,
    /// Dated more than a day ahead.
    Ahead,
    /// Older than anything kept.
    Ancient,
    /// Of a slot that nobody announced.
    Unannounced,
    /// More containers than a node may have, or than there is room for.
    Containers,
    /// More new names than a node may bring in a minute.
    Names,
    /// More replicas of a workload than all other nodes together.
    Share,
    /// Of pods that the API of the cluster does not place on the node.
    Placement,
}

const REASONS: [(Reason, &str, &str); 11] = [
    (
        Reason::Cpu,
        "cpu-beyond-node",
        "the containers use more CPU than the node says it has; correct the node's clock or cpuConversionFactor",
    ),
    (
        Reason::Memory,
        "memory-beyond-node",
        "the containers use more memory than the node says it has; restart the agent if memory was added",
    ),
    (Reason::NoSuchKill, "kill-of-nothing", "the containers killed do not run on this node"),
    (Reason::Kills, "too-many-kills", "raise ingest.max_kills_per_hour of the recommender"),
    (Reason::Ahead, "dated-ahead", "set the node's clock (timedatectl)"),
    (
        Reason::Ancient,
        "too-old",
        "set the node's clock (timedatectl), or raise retention.days of the recommender",
    ),
    (Reason::Unannounced, "unannounced", "restart the agent, which announces its containers again"),
    (
        Reason::Containers,
        "too-many-containers",
        "raise ingest.max_containers_per_node or ingest.max_containers of the recommender",
    ),
    (
        Reason::Names,
        "too-many-names",
        "raise ingest.max_names_per_minute or history.max_series of the recommender",
    ),
    (
        Reason::Share,
        "beyond-share",
        "the node has more replicas of a workload than all others together; the rest of them is no history",
    ),
    (
        Reason::Placement,
        "not-placed-here",
        "the Kubernetes API places these pods on other nodes, or knows none of them; set node.name of the agent to the name of its \
         Kubernetes node",
    ),
];

/// What was not taken in of one node, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dropped([u64; REASONS.len()]);

impl Dropped {
    pub(crate) fn add(&mut self, reason: Reason, count: u64) {
        let at = &mut self.0[reason as usize];
        *at = at.saturating_add(count);
    }

    pub(crate) const fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// As nodes and people are told.
    pub fn told(&self) -> Vec<v1::Dropped> {
        let told = REASONS.iter().filter(|(reason, ..)| self.of(*reason) > 0);
        told.map(|(reason, word, remedy)| v1::Dropped {
            reason: (*word).to_owned(),
            count: self.of(*reason),
            remedy: (*remedy).to_owned(),
        })
        .collect()
    }

    /// Each reason's word and count.
    pub fn words(&self) -> [(&'static str, u64); REASONS.len()] {
        REASONS.map(|(reason, word, _)| (word, self.of(reason)))
    }

    /// As a checkpoint has it.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.to_vec()
    }

    /// From a checkpoint; an earlier release knew fewer reasons.
    pub(crate) fn from_numbers(numbers: &[u64]) -> Self {
        let mut dropped = Self::default();
        dropped.0.iter_mut().zip(numbers).for_each(|(into, from)| *into = *from);
        dropped
    }
}

impl std::ops::AddAssign for Dropped {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(into, from)| *into = into.saturating_add(from));
    }
}

/// What a node that does not tell its size may use: more than any machine has.
const MOST_CPU_MICRO: u64 = 16_384 * 1_000_000;
const MOST_MEMORY: u64 = 256 << 40;

/// What the containers of a node can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Means {
    cpu_micro: u64,
    memory: u64,
}

impl Means {
    /// Half as much CPU again, and half a core: counters and clocks are not read in one moment. A tenth more memory, and
    /// 64 MiB: charges that are on their way are counted already.
    pub(crate) fn of(facts: Option<&v1::NodeFacts>) -> Self {
        let (cpu_milli, memory) = facts.map_or((0, 0), |facts| (facts.cpu_milli, facts.memory_bytes));
        let cpu = cpu_milli.saturating_mul(1_500).saturating_add(500_000);
        let bytes = memory.saturating_add(memory / 10).saturating_add(64 << 20);
        Self {
            cpu_micro: if cpu_milli == 0 { MOST_CPU_MICRO } else { cpu.min(MOST_CPU_MICRO) },
            memory: if memory == 0 { MOST_MEMORY } else { bytes.min(MOST_MEMORY) },
        }
    }

    /// Whether one container can have used so much.
    pub(crate) const fn doubt(&self, cpu_micro: Option<u64>, memory: Option<u64>) -> Option<Reason> {
        match (cpu_micro, memory) {
            (Some(cpu), _) if cpu > self.cpu_micro => Some(Reason::Cpu),
            (_, Some(memory)) if memory > self.memory => Some(Reason::Memory),
            _ => None,
        }
    }

    /// The same of a sample.
    pub(crate) fn doubt_sample(&self, sample: &Sample, previous: Option<&Sample>) -> Option<Reason> {
        self.doubt(previous.and_then(|previous| sample.cpu_micro(previous)), memory_of(sample))
    }

    /// The same of a minute.
    pub(crate) const fn doubt_minute(&self, rollup: &Rollup) -> Option<Reason> {
        self.doubt(Some(rollup.cpu_micro.max), Some(rollup.memory_bytes.max))
    }

    /// Whether all containers of a second together can have: the double, since a container may be counted within another.
    pub(crate) fn doubt_all<'a>(
        &self,
        samples: impl Iterator<Item = (&'a Sample, Option<&'a Sample>)>,
    ) -> Option<Reason> {
        let (mut cpu, mut memory) = (0_u64, 0_u64);
        for (sample, previous) in samples {
            cpu = cpu.saturating_add(previous.and_then(|p| sample.cpu_micro(p)).unwrap_or(0));
            memory = memory.saturating_add(memory_of(sample).unwrap_or(0));
        }
        self.doubt(Some(cpu / 2), Some(memory / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_uses_what_its_node_has_and_a_little_more() {
        let facts =
            |cpu_milli, memory_bytes| v1::NodeFacts { cpu_milli, memory_bytes, ..v1::NodeFacts::default() };
        let (core, gib) = (1_000_000, 1_u64 << 30);
        for (facts, cpu, memory, want) in [
            (Some(facts(4_000, 8 << 30)), 4 * core, 8 * gib, None),
            (Some(facts(4_000, 8 << 30)), 6 * core, 8 * gib, None),
            (Some(facts(4_000, 8 << 30)), 7 * core, 8 * gib, Some(Reason::Cpu)),
            (Some(facts(4_000, 8 << 30)), core, 9 * gib, Some(Reason::Memory)),
            (Some(facts(0, 0)), 1_000 * core, 1_000 * gib, None),
            (None, 1_000 * core, 1_000 * gib, None),
            (None, u64::MAX, 0, Some(Reason::Cpu)),
            (None, 0, u64::MAX, Some(Reason::Memory)),
            (Some(facts(u64::MAX, u64::MAX)), u64::MAX, 0, Some(Reason::Cpu)),
        ] {
            let got = Means::of(facts.as_ref()).doubt(Some(cpu), Some(memory));
            assert_eq!(got, want, "{facts:?} {cpu} {memory}");
        }
    }

    #[test]
    fn reasons_stand_in_their_order() {
        for (at, (reason, ..)) in REASONS.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
        let mut dropped = Dropped::default();
        dropped.add(Reason::Ahead, 3);
        assert_eq!(Dropped::from_numbers(&dropped.numbers()), dropped);
        assert_eq!(dropped.told()[0].reason, "dated-ahead");
    }
}
