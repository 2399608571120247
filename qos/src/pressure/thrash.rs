//! A container that thrashes at its own limit: it is named, with the limit it should have, and nobody is touched.
//!
//! It gives up pages to stay below its limit and waits to have them back. No other container can help it: memory of
//! the node is not what it lacks. Pure: the looks come in, reports go out; the memory is bounded by the last look.

use std::collections::BTreeMap;

use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

use super::grade::part_of;
use super::trend::share;
use crate::why::Why;

/// Least growth of a limit that is proposed, hundredths of a percent: the Vertical Pod Autoscaler's after a container
/// ran out of memory (OOMBumpUpRatio 1.2).
const LEAST_RAISE: u32 = 2000;
/// Where nobody tells who waits (v1), a container is named when it had to read back at least this part of its limit,
/// hundredths of a percent.
const LEAST_REFAULTED: u32 = 500;
/// Thrash that pauses for longer than this has ended, microseconds.
const PAUSE_USEC: u64 = 10_000_000;
/// Proposed limits are whole MiB.
const MIB: u64 = 1 << 20;

/// Who waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waited {
    /// Some of this container, this part of the time, hundredths of a percent.
    #[serde(rename = "waited")]
    Container(u32),
    /// Some of the node; the kernel does not tell whose they were (v1).
    #[serde(rename = "node_waited")]
    Node(u32),
}

/// Everything that says whether a container thrashes at its own limit, and what limit it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thrashing {
    /// The limit it runs into: the smaller of `memory.max` and `memory.high`.
    pub limit: Bytes,
    /// What is charged to it.
    pub current: Bytes,
    /// How often it ran into the limit.
    pub hits: u64,
    /// What it read back that it had given up before.
    pub refaulted: Bytes,
    /// Who waited; `None` where the kernel tells of nobody.
    #[serde(flatten)]
    pub waited: Option<Waited>,
    /// The part of the time in which some must wait for it to count, hundredths of a percent.
    pub least_waited: u32,
    /// In how long, microseconds.
    pub span_usec: u64,
}

impl Thrashing {
    fn thrashes(&self) -> bool {
        let read_back = |part: u32| self.refaulted >= part_of(self.limit, part) && !self.refaulted.is_zero();
        let waits = match self.waited {
            Some(Waited::Container(part)) => part >= self.least_waited,
            Some(Waited::Node(part)) => part >= self.least_waited && read_back(LEAST_REFAULTED),
            None => read_back(10_000),
        };
        self.hits > 0 && waits
    }

    /// The limit it should have, or `None` when it does not thrash: what it has and what it read back, at least a
    /// fifth more and at most twice as much, since a page may have been read back more than once.
    pub fn proposed(&self) -> Option<Bytes> {
        if !self.thrashes() {
            return None;
        }
        let over = self.current.saturating_sub(self.limit);
        let lacks = self.refaulted.saturating_add(over).max(part_of(self.limit, LEAST_RAISE)).min(self.limit);
        let limit = self.limit.saturating_add(lacks).get();
        Some(Bytes::new(limit.div_ceil(MIB).saturating_mul(MIB)))
    }

    /// Why, with all numbers it was decided by. `knob` is the file of the limit.
    pub fn why(self, knob: &str) -> Why {
        Why::Thrash(Box::new(Thrash { case: self, knob: knob.into() }))
    }
}

/// A container thrashes at its own limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thrash {
    /// What says so.
    #[serde(flatten)]
    pub case: Thrashing,
    /// File of the limit; told in the text alone.
    #[serde(skip)]
    pub knob: Box<str>,
}

impl Thrash {
    pub(crate) fn text(&self) -> String {
        let Self { case, knob } = self;
        let mib = |bytes: Bytes| bytes.get() / MIB;
        let seconds = case.span_usec / 1_000_000;
        let waited = match case.waited {
            Some(Waited::Container(part)) => format!(", waited for memory in {} % of the time", part / 100),
            Some(Waited::Node(_)) | None => String::new(),
        };
        let limit = case.proposed().unwrap_or(case.limit);
        format!(
            "it thrashes at its own limit: in {seconds} s it ran into {knob} of {} MiB {} times{waited} and read back \
             {} MiB it had just given up; raise its limit to {} MiB (what it read back on top, at most twice the limit); \
             no other container is touched for it",
            mib(case.limit),
            case.hits,
            mib(case.refaulted),
            mib(limit),
        )
    }

    /// The limit it should have by the present rule, `none` where it would not be said.
    pub(crate) fn again(&self) -> String {
        self.case.proposed().map_or_else(|| "none".to_owned(), |limit| limit.get().to_string())
    }
}

/// One container at one look; counters since its cgroup was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitFacts {
    /// Which.
    pub key: u32,
    /// The smaller of `memory.max` and `memory.high`.
    pub limit: Bytes,
    /// What is charged to it.
    pub current: Bytes,
    /// How often it ran into its limit.
    pub hits: u64,
    /// What it read back that it had given up before.
    pub refaulted: Bytes,
    /// Time in which some in it waited for memory, microseconds; `None` where the kernel does not tell.
    pub some_usec: Option<u64>,
    /// When this was read, on the clock of the looks, microseconds.
    pub read_usec: u64,
}

/// When it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThrashRules {
    /// The part of the time in which some must wait, hundredths of a percent.
    pub least_waited: u32,
    /// How long it thrashes before it is said, microseconds.
    pub after_usec: u64,
    /// How long it is then not said again while the limit stays, microseconds.
    pub again_usec: u64,
}

#[derive(Debug, Clone, Copy)]
struct ThrashState {
    last: LimitFacts,
    /// The look before the first that showed it thrashing, and the last that did.
    thrash: Option<(LimitFacts, u64)>,
    said: Option<(u64, Bytes)>,
}

/// Who thrashes since when.
#[derive(Debug, Clone, Default)]
pub struct ThrashWatch {
    containers: BTreeMap<u32, ThrashState>,
}

impl ThrashWatch {
    /// Containers that thrash at their own limits, by the last look.
    pub fn thrashing(&self) -> usize {
        self.containers.values().filter(|memory| memory.thrash.is_some()).count()
    }

    /// True while this one thrashes.
    pub fn watches(&self, key: u32) -> bool {
        self.containers.get(&key).is_some_and(|memory| memory.thrash.is_some())
    }

    /// Takes in one look; `node_waited` is the part of the time since the last in which some of the node waited.
    /// Answers with those who are to be named now. Whoever is missing from `seen` is forgotten.
    pub fn step(
        &mut self,
        now_usec: u64,
        node_waited: Option<u32>,
        seen: &[LimitFacts],
        rules: &ThrashRules,
    ) -> Vec<(u32, Thrashing)> {
        let mut before = std::mem::take(&mut self.containers);
        let mut named = Vec::new();
        for facts in seen {
            let memory = match before.remove(&facts.key) {
                Some(memory) if memory.last.limit == facts.limit => memory,
                // Another limit is another question.
                _ => ThrashState { last: *facts, thrash: None, said: None },
            };
            let mut memory = memory.after(facts, now_usec, node_waited, rules);
            if let Some(case) = memory.due(facts, now_usec, node_waited, rules) {
                memory.said = Some((now_usec, facts.limit));
                named.push((facts.key, case));
            }
            self.containers.insert(facts.key, memory);
        }
        named
    }
}

impl ThrashState {
    fn after(mut self, facts: &LimitFacts, now: u64, node_waited: Option<u32>, rules: &ThrashRules) -> Self {
        if between(&self.last, facts, node_waited, rules).is_some_and(|case| case.thrashes()) {
            self.thrash = Some((self.thrash.map_or(self.last, |(first, _)| first), now));
        } else if self.thrash.is_some_and(|(_, last)| now.saturating_sub(last) >= PAUSE_USEC) {
            self.thrash = None;
        }
        self.last = *facts;
        self
    }

    fn due(
        &self,
        facts: &LimitFacts,
        now: u64,
        node_waited: Option<u32>,
        rules: &ThrashRules,
    ) -> Option<Thrashing> {
        let (first, last) = self.thrash?;
        if last != now || self.said.is_some_and(|(at, _)| now.saturating_sub(at) < rules.again_usec) {
            return None;
        }
        let case = between(&first, facts, node_waited, rules)?;
        (case.span_usec >= rules.after_usec && case.thrashes()).then_some(case)
    }
}

/// What happened between two looks.
fn between(
    first: &LimitFacts,
    last: &LimitFacts,
    node_waited: Option<u32>,
    rules: &ThrashRules,
) -> Option<Thrashing> {
    let span_usec = last.read_usec.checked_sub(first.read_usec).filter(|span| *span > 0)?;
    let own = last.some_usec.zip(first.some_usec);
    let own = own.and_then(|(to, from)| share(to.saturating_sub(from), span_usec));
    Some(Thrashing {
        limit: last.limit,
        current: last.current,
        hits: last.hits.saturating_sub(first.hits),
        refaulted: last.refaulted.saturating_sub(first.refaulted),
        waited: match (own, node_waited) {
            (Some(part), _) => Some(Waited::Container(part)),
            (None, Some(part)) => Some(Waited::Node(part)),
            (None, None) => None,
        },
        least_waited: rules.least_waited,
        span_usec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mib(n: u64) -> Bytes {
        Bytes::new(n * MIB)
    }

    fn case() -> Thrashing {
        Thrashing {
            limit: mib(24),
            current: mib(24),
            hits: 4711,
            refaulted: mib(310),
            waited: Some(Waited::Container(8700)),
            least_waited: 1000,
            span_usec: 5_200_000,
        }
    }

    #[test]
    fn who_thrashes_and_what_limit_it_should_have() {
        let base = case();
        let some = |n| Some(mib(n));
        let v1 = Thrashing { waited: Some(Waited::Node(8700)), ..base };
        let blind = Thrashing { waited: None, ..base };
        for (name, case, want) in [
            ("twice its limit at most", base, some(48)),
            ("what it read back on top", Thrashing { refaulted: mib(10), ..base }, some(34)),
            ("a fifth at least, in whole MiB", Thrashing { refaulted: Bytes::ZERO, ..base }, some(29)),
            (
                "what is over memory.high on top",
                Thrashing { refaulted: mib(2), current: mib(30), ..base },
                some(32),
            ),
            ("it never ran into it", Thrashing { hits: 0, ..base }, None),
            ("it hardly waits", Thrashing { waited: Some(Waited::Container(999)), ..base }, None),
            ("somebody waits, and it reads back", v1, some(48)),
            ("somebody waits, and it reads back little", Thrashing { refaulted: mib(1), ..v1 }, None),
            ("nobody waits", Thrashing { waited: Some(Waited::Node(999)), ..v1 }, None),
            ("nobody tells, and it reads back all it has", blind, some(48)),
            ("nobody tells, and it reads back a part", Thrashing { refaulted: mib(23), ..blind }, None),
        ] {
            assert_eq!(case.proposed(), want, "{name}");
            let replayed = want.map_or("none".to_owned(), |limit| limit.get().to_string());
            assert_eq!(Thrash { case, knob: "".into() }.again(), replayed, "{name}");
        }
        let reason = base.why("memory.max").text();
        assert!(reason.contains("memory.max of 24 MiB 4711 times, waited for memory in 87 %"), "{reason}");
        assert!(reason.contains("raise its limit to 48 MiB"), "{reason}");
    }

    #[test]
    fn it_is_said_after_a_while_once_and_again_for_another_limit() {
        let rules = ThrashRules { least_waited: 1000, after_usec: 4_000_000, again_usec: 600_000_000 };
        let mut watch = ThrashWatch::default();
        let mut said = Vec::new();
        for second in (0..120_u64).step_by(2) {
            let limit = if second < 40 { mib(24) } else { mib(48) };
            // It thrashes, with a pause from 60 to 80, and from 100 on no more.
            let busy = second.min(60) + second.clamp(80, 100) - 80;
            let facts = LimitFacts {
                key: 1,
                limit,
                current: limit,
                hits: busy * 100,
                refaulted: mib(busy * 50),
                some_usec: Some(busy * 900_000),
                read_usec: second * 1_000_000,
            };
            let idle = LimitFacts { key: 2, hits: 7, refaulted: mib(9), some_usec: Some(0), ..facts };
            for (key, case) in watch.step(second * 1_000_000, None, &[facts, idle], &rules) {
                assert_eq!(case.proposed(), Some(limit.saturating_add(limit)));
                said.push((second, key));
            }
        }
        assert_eq!(said, [(4, 1), (44, 1)]);
        assert_eq!(watch.thrashing(), 0);
        assert!(watch.step(0, None, &[], &rules).is_empty() && watch.containers.is_empty());
    }
}
