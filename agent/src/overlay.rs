//! What the recommender says the containers of this node should request, from the wire.
//!
//! Owned here: reading it and its bounds. Not owned: keeping it and what is made of it (`evenkeel_enforce`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_enforce::overlay::{Advice, OverlayOffer, Switch};
use evenkeel_model::panic;
use evenkeel_proto::v1;

/// Containers of one node at most; a longer list is refused whole.
const ENTRIES: usize = 16_384;
/// Longest name: a DNS subdomain (RFC 1123), which policies have two of.
const NAME: usize = 2 * 253 + 1;

/// Reads a word.
///
/// # Errors
/// When it cannot be meant: no time to hold, too many containers, a name that is empty, too long or given twice.
pub(crate) fn read(word: v1::Overlay, now: Instant) -> Result<OverlayOffer, String> {
    if word.valid_seconds == 0 {
        return Err("they hold for no time at all".to_owned());
    }
    if word.entries.len() > ENTRIES {
        return Err(format!("{} containers; {ENTRIES} at most", word.entries.len()));
    }
    if word.frozen_namespaces.len() > ENTRIES {
        return Err(format!("{} frozen namespaces; {ENTRIES} at most", word.frozen_namespaces.len()));
    }
    if word.frozen_namespaces.iter().any(|name| name.is_empty() || name.len() > NAME) {
        return Err("the name of a frozen namespace is empty or too long".to_owned());
    }
    let frozen: BTreeSet<String> = word.frozen_namespaces.into_iter().collect();
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
    Ok(OverlayOffer {
        number: 0,
        panic: word.panic.then_some(Switch { reason, revert: word.panic_revert }),
        made_usec: word.made_usec,
        arrived: now,
        until: now + Duration::from_secs(word.valid_seconds.into()),
        entries: Arc::new(entries),
        frozen: Arc::new(frozen),
    })
}

#[cfg(test)]
mod tests {
    use evenkeel_enforce::overlay::Overlays;

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
        overlays.take(read(word.clone(), now));
        assert_eq!(overlays.last().unwrap().panic.map(|switch| switch.reason.len()), Some(panic::MAX_REASON));
        let entry = v1::OverlayEntry {
            namespace: "shop".into(),
            workload: "web".into(),
            container: "main".into(),
            rule: "x".repeat(NAME + 1),
            ..v1::OverlayEntry::default()
        };
        overlays.take(read(v1::Overlay { entries: vec![entry], ..word }, now));
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
        overlays.take(read(word(60, vec![entry("main")]), now));
        for bad in [
            word(0, vec![entry("main")]),
            word(60, vec![entry("main"), entry("main")]),
            word(60, vec![entry("")]),
            word(60, vec![entry(&"x".repeat(600))]),
            word(60, (0..=ENTRIES).map(|n| entry(&n.to_string())).collect()),
            v1::Overlay { frozen_namespaces: vec![String::new()], ..word(60, Vec::new()) },
            v1::Overlay { frozen_namespaces: vec!["x".into(); ENTRIES + 1], ..word(60, Vec::new()) },
        ] {
            overlays.take(read(bad, now));
        }
        let last = overlays.last().unwrap();
        assert_eq!((last.number, last.entries.len(), overlays.refused()), (1, 1, 7));
        assert_eq!(last.until, now + Duration::from_secs(60));
        overlays
            .take(read(v1::Overlay { panic: true, panic_reason: "stop".into(), ..word(60, vec![]) }, now));
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
