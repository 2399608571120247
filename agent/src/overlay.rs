//! What the recommender says the containers of this node should request: the last word that arrived.
//!
//! Owned here: taking it in from the stream, its bounds, its age. Not owned: what is made of it
//! ([`crate::converge`]), the rule of a step (`evenkeel_qos::overlay`).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_model::panic::{self, Panic};
use evenkeel_proto::v1;
use serde::{Deserialize, Serialize};

use crate::shared::{Waker, lock};

/// Containers of one node at most; a longer list is refused whole.
const ENTRIES: usize = 16_384;
/// Longest name: a DNS subdomain (RFC 1123), which policies have two of.
const NAME: usize = 2 * 253 + 1;

/// Whose requests are meant: namespace, workload, container.
pub(crate) type Place = (String, String, String);

/// What one container should request; absent is as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Advice {
    /// Thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Policy, `namespace/name`.
    pub policy: String,
    /// Rule that made it.
    pub rule: String,
}

/// The panic switch, while it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Switch {
    /// Why it was set.
    pub reason: String,
    /// Requests in force go back to what was asked for, step by step; otherwise they stay in force.
    pub revert: bool,
}

impl Switch {
    /// What it does.
    pub(crate) const fn panic(&self) -> Panic {
        Panic::of(true, self.revert)
    }

    /// The reason, for whoever reads it.
    pub(crate) fn why(&self) -> &str {
        if self.reason.is_empty() { "no reason given" } else { &self.reason }
    }
}

/// One word of the recommender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Grows with every word.
    pub number: u64,
    /// The panic switch, where it is on: it holds until another word says otherwise, however long that takes.
    pub panic: Option<Switch>,
    /// When it was made, microseconds since 1970.
    pub made_usec: u64,
    /// When it arrived.
    pub arrived: Instant,
    /// From when on its entries hold no more.
    pub until: Instant,
    /// By container.
    pub entries: Arc<BTreeMap<Place, Advice>>,
}

/// A container that is not given what was said of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// Pod, `namespace/name`.
    pub pod: String,
    /// Container.
    pub container: String,
    /// Why.
    pub why: String,
}

/// The last word, shared by the stream and the converger.
#[derive(Default)]
pub(crate) struct Overlays {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    last: Option<Offer>,
    bell: Option<Waker>,
    /// Words that were refused.
    refused: u64,
    /// Of the last word. At most one a container of the node.
    refusals: Arc<[Refusal]>,
}

impl Overlays {
    /// Who is woken when a word arrives.
    pub(crate) fn set_bell(&self, bell: Waker) {
        lock(&self.inner).bell = Some(bell);
    }

    /// The last word.
    pub(crate) fn last(&self) -> Option<Offer> {
        lock(&self.inner).last.clone()
    }

    /// Words refused so far.
    #[cfg(test)]
    pub(crate) fn refused(&self) -> u64 {
        lock(&self.inner).refused
    }

    /// Containers that are not given what the last word said of them, by name.
    pub(crate) fn refusals(&self) -> Arc<[Refusal]> {
        Arc::clone(&lock(&self.inner).refusals)
    }

    /// Says which these are now.
    pub(crate) fn set_refusals(&self, mut refusals: Vec<Refusal>) {
        refusals.sort_unstable();
        lock(&self.inner).refusals = refusals.into();
    }

    /// The panic switch was on when the agent last ran: it is on until the recommender says otherwise.
    pub(crate) fn resume(&self, switch: Switch, made_usec: u64, now: Instant) {
        say_switch(None, Some(&switch));
        let offer = Offer {
            number: 0,
            panic: Some(switch),
            made_usec,
            arrived: now,
            until: now,
            entries: Arc::default(),
        };
        lock(&self.inner).last.get_or_insert(offer);
    }

    /// Takes a word in. One that cannot be meant is refused, and the one before holds until it is too old.
    pub(crate) fn take(&self, word: v1::Overlay, now: Instant) {
        let read = read(word, now);
        let mut inner = lock(&self.inner);
        match read {
            Ok(mut offer) => {
                offer.number = inner.last.as_ref().map_or(1, |last| last.number + 1);
                say_switch(inner.last.as_ref().and_then(|last| last.panic.as_ref()), offer.panic.as_ref());
                inner.last = Some(offer);
                inner.bell.iter().for_each(Waker::wake);
            }
            Err(why) => {
                inner.refused += 1;
                tracing::warn!(
                    why,
                    "recommended requests are refused; those before hold until they are too old"
                );
            }
        }
    }
}

/// Logs that the switch was set, taken back or set otherwise.
fn say_switch(before: Option<&Switch>, after: Option<&Switch>) {
    let state = after.map_or(Panic::Off, Switch::panic);
    if before.map_or(Panic::Off, Switch::panic) != state {
        let reason = after.map_or("", Switch::why);
        tracing::warn!(on = state.is_on(), reason, "the panic switch was set: {}", state.meaning());
    }
}

fn read(word: v1::Overlay, now: Instant) -> Result<Offer, String> {
    if word.valid_seconds == 0 {
        return Err("they hold for no time at all".to_owned());
    }
    if word.entries.len() > ENTRIES {
        return Err(format!("{} containers; {ENTRIES} at most", word.entries.len()));
    }
    let mut entries = BTreeMap::new();
    for entry in word.entries {
        let names = [&entry.namespace, &entry.workload, &entry.container];
        let labels = [&entry.policy, &entry.rule];
        if names.iter().any(|name| name.is_empty() || name.len() > NAME)
            || labels.iter().any(|label| label.len() > NAME)
        {
            return Err("a name is empty or too long".to_owned());
        }
        let place = (entry.namespace, entry.workload, entry.container);
        let advice = Advice {
            cpu_milli: entry.cpu_request_milli,
            memory_bytes: entry.memory_request_bytes,
            policy: entry.policy,
            rule: entry.rule,
        };
        if entries.contains_key(&place) {
            return Err(format!("{}/{}/{} is given twice", place.0, place.1, place.2));
        }
        entries.insert(place, advice);
    }
    // The panic switch holds whatever its reason is; the reason is kept in status, logs and decisions.
    let reason = panic::reason(word.panic_reason);
    Ok(Offer {
        number: 0,
        panic: word.panic.then_some(Switch { reason, revert: word.panic_revert }),
        made_usec: word.made_usec,
        arrived: now,
        until: now + Duration::from_secs(word.valid_seconds.into()),
        entries: Arc::new(entries),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_and_a_long_rule_refused() {
        let overlays = Overlays::default();
        let now = Instant::now();
        let word = v1::Overlay {
            valid_seconds: 60,
            panic: true,
            panic_reason: "ü".repeat(600_000),
            ..v1::Overlay::default()
        };
        overlays.take(word.clone(), now);
        assert_eq!(overlays.last().unwrap().panic.map(|switch| switch.reason.len()), Some(panic::MAX_REASON));
        let entry = v1::OverlayEntry {
            namespace: "shop".into(),
            workload: "web".into(),
            container: "main".into(),
            rule: "x".repeat(NAME + 1),
            ..v1::OverlayEntry::default()
        };
        overlays.take(v1::Overlay { entries: vec![entry], ..word }, now);
        assert_eq!(overlays.refused(), 1);
    }

    #[test]
    fn a_word_that_cannot_be_meant_is_refused_and_the_one_before_holds() {
        let overlays = Overlays::default();
        let entry = |container: &str| v1::OverlayEntry {
            namespace: "shop".into(),
            workload: "web".into(),
            container: container.into(),
            cpu_request_milli: Some(100),
            ..v1::OverlayEntry::default()
        };
        let word = |valid_seconds, entries| v1::Overlay { valid_seconds, entries, ..v1::Overlay::default() };
        let now = Instant::now();
        overlays.take(word(60, vec![entry("main")]), now);
        for bad in [
            word(0, vec![entry("main")]),
            word(60, vec![entry("main"), entry("main")]),
            word(60, vec![entry("")]),
            word(60, vec![entry(&"x".repeat(600))]),
            word(60, (0..=ENTRIES).map(|n| entry(&n.to_string())).collect()),
        ] {
            overlays.take(bad, now);
        }
        let last = overlays.last().unwrap();
        assert_eq!((last.number, last.entries.len(), overlays.refused()), (1, 1, 5));
        assert_eq!(last.until, now + Duration::from_secs(60));
        overlays.take(v1::Overlay { panic: true, panic_reason: "stop".into(), ..word(60, vec![]) }, now);
        let frozen = Switch { reason: "stop".into(), revert: false };
        assert_eq!(overlays.last().unwrap().panic, Some(frozen.clone()));
        // What an earlier run knew says nothing beside a word that has arrived.
        overlays.resume(Switch { revert: true, ..frozen.clone() }, 7, now);
        assert_eq!(overlays.last().unwrap().panic, Some(frozen.clone()));
        let anew = Overlays::default();
        anew.resume(frozen.clone(), 7, now);
        let resumed = anew.last().unwrap();
        assert_eq!((resumed.panic, resumed.made_usec), (Some(frozen), 7));
    }
}
