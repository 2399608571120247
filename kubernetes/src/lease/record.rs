//! What stands in a Lease, and what follows for who would hold it. Time is an argument.
//!
//! Times in the object are for people: clocks of machines differ. A lease has run out when nobody has changed it for as long as it lasts, by
//! the clock of who looks (as `client-go`, `tools/leaderelection` does).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// How long a holder counts as one, when it gives up, and how often both sides look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Others wait so long after the last change before they take it.
    pub lasts: Duration,
    /// A holder that could not renew it for so long holds it no more.
    pub renew_within: Duration,
    /// Between looks, and between renewals.
    pub retry: Duration,
}

impl Default for Times {
    /// Those of `client-go`, and of the control plane's own components.
    fn default() -> Self {
        let [lasts, renew_within, retry] = [15, 10, 2].map(Duration::from_secs);
        Self { lasts, renew_within, retry }
    }
}

/// A Lease as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LeaseRecord {
    /// Who holds it; empty where it was given back.
    pub(super) holder: String,
    /// How often it has changed hands.
    pub(super) transitions: u64,
    /// How long its holder says that it lasts.
    lasts: Duration,
    /// What its holder left beside it.
    pub(super) note: String,
    version: String,
}

/// Longest note that is read, bytes.
const MOST_NOTE: usize = 8192;
/// Longest holder's name that is read, bytes.
const MOST_HOLDER: usize = 512;

impl LeaseRecord {
    /// Of an object.
    pub(super) fn of(object: &Value, note: &str) -> Self {
        let spec = &object["spec"];
        let text = |value: &Value, most: usize| {
            value.as_str().filter(|text| text.len() <= most).unwrap_or_default().to_owned()
        };
        Self {
            holder: text(&spec["holderIdentity"], MOST_HOLDER),
            transitions: spec["leaseTransitions"].as_u64().unwrap_or(0),
            lasts: Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(0)),
            note: text(&object["metadata"]["annotations"][note], MOST_NOTE),
            version: text(&object["metadata"]["resourceVersion"], MOST_HOLDER),
        }
    }
}

/// What is known of a Lease, and since when.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) record: LeaseRecord,
    changed: Option<Instant>,
}

impl Observed {
    /// Takes in what was read.
    pub(super) fn take(&mut self, record: LeaseRecord, now: Instant) {
        if self.changed.is_none() || record.version != self.record.version {
            self.changed = Some(now);
        }
        self.record = record;
    }

    /// Whether it may be taken, by who has seen it change as this has.
    pub(super) fn is_free(&self, times: &Times, now: Instant) -> bool {
        // A holder that says a longer time means it; a shorter one is that of a lease that was given back, or of other settings.
        let lasts = times.lasts.max(self.record.lasts.min(times.lasts * 4));
        let since = self.changed.map(|changed| now.saturating_duration_since(changed));
        self.record.holder.is_empty() || since.is_some_and(|since| since >= lasts)
    }
}

/// The object as this holder would have it: held from now on, or given back.
pub(super) fn held(
    mut object: Value,
    identity: &str,
    times: &Times,
    transitions: u64,
    key: &str,
    note: Option<&str>,
    now: &str,
) -> Value {
    let is_mine = object["spec"]["holderIdentity"] == identity;
    let is_back = identity.is_empty();
    let seconds = if is_back { 1 } else { times.lasts.as_secs().max(1) };
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    let spec = &mut object["spec"];
    spec["holderIdentity"] = identity.into();
    spec["leaseDurationSeconds"] = seconds.into();
    spec["leaseTransitions"] = transitions.into();
    spec["renewTime"] = now.into();
    if !is_mine && !is_back {
        spec["acquireTime"] = now.into();
    }
    if let Some(text) = note {
        if !object["metadata"]["annotations"].is_object() {
            object["metadata"]["annotations"] = json!({});
        }
        object["metadata"]["annotations"][key] = text.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTE: &str = "evenkeel.dev/x";

    fn lease(holder: &str, version: &str, seconds: u64) -> LeaseRecord {
        let object = json!({
            "metadata": { "resourceVersion": version },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3, "renewTime": "1999-01-01T00:00:00Z" },
        });
        LeaseRecord::of(&object, NOTE)
    }

    #[test]
    fn a_lease_runs_out_by_the_clock_of_who_looks() {
        let (times, now) = (Times::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut observed = Observed::default();
        observed.take(lease("other", "1", 15), now);
        // Its own times are of the last century, and nobody asks for them.
        assert!(!observed.is_free(&times, at(14)) && observed.is_free(&times, at(15)));
        observed.take(lease("other", "1", 15), at(14));
        assert!(observed.is_free(&times, at(15)), "it did not change");
        observed.take(lease("other", "2", 15), at(14));
        assert!(!observed.is_free(&times, at(28)) && observed.is_free(&times, at(29)));
        // One that lasts longer by its holder's word, within reason.
        observed.take(lease("other", "3", 40), at(29));
        assert!(!observed.is_free(&times, at(60)) && observed.is_free(&times, at(69)));
        observed.take(lease("other", "4", 1 << 40), at(69));
        assert!(observed.is_free(&times, at(129)));
        observed.take(lease("", "5", 1), at(130));
        assert!(observed.is_free(&times, at(130)), "it was given back");
        assert!(Observed::default().record.holder.is_empty());
    }

    #[test]
    fn what_is_no_lease_is_one_that_nobody_holds() {
        for object in [
            json!({}),
            json!({ "spec": null }),
            json!({ "spec": { "holderIdentity": 7, "leaseTransitions": -1 } }),
        ] {
            let record = LeaseRecord::of(&object, NOTE);
            assert_eq!((record.holder.as_str(), record.transitions), ("", 0), "{object}");
            let mine = held(object, "a", &Times::default(), 1, NOTE, None, "now");
            assert_eq!(mine["spec"]["holderIdentity"], "a");
        }
    }

    #[test]
    fn other_peoples_fields_stay() {
        let object =
            json!({ "metadata": { "name": "x", "labels": { "a": "b" } }, "spec": { "strategy": "y" } });
        let mine = held(object, "a", &Times::default(), 4, NOTE, Some("told"), "t1");
        assert_eq!((&mine["spec"]["strategy"], &mine["metadata"]["labels"]["a"]), (&json!("y"), &json!("b")));
        assert_eq!(
            (&mine["spec"]["acquireTime"], &mine["spec"]["leaseTransitions"]),
            (&json!("t1"), &json!(4))
        );
        assert_eq!(mine["metadata"]["annotations"][NOTE], "told");
        let renewed = held(mine, "a", &Times::default(), 4, NOTE, None, "t2");
        assert_eq!(
            (&renewed["spec"]["acquireTime"], &renewed["spec"]["renewTime"]),
            (&json!("t1"), &json!("t2"))
        );
        assert_eq!(renewed["metadata"]["annotations"][NOTE], "told", "left alone");
        let back = held(renewed, "", &Times::default(), 4, NOTE, None, "t3");
        assert_eq!(
            (&back["spec"]["holderIdentity"], &back["spec"]["leaseDurationSeconds"]),
            (&json!(""), &json!(1))
        );
    }
}
