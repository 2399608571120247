//! Owns which decisions become events, and when: equal ones are counted up as one, a pod has a bounded number, and so has everything that waits.
//! Time is an argument.

use std::collections::HashMap;
use std::time::Instant;

use evenkeel_kubernetes::objects::ObjectEvent;
use evenkeel_proto::v1;

use super::series::{EventTally, MOST};

/// Events of a pod at once, and how long one more takes (`client-go`, `tools/record`: 25, and one in five minutes).
const OF_POD: (f64, f64) = (25.0, 300.0);

/// What a decision is as an event: reason, action, and whether somebody should look. Life cycle and single settings are none.
const fn meaning(kind: &str) -> Option<(&'static str, &'static str, bool)> {
    Some(match kind.as_bytes() {
        b"oom-kill" => ("OOMKill", "Kill", true),
        b"kill" => ("Killed", "Kill", true),
        b"evict" => ("Eviction", "Evict", true),
        b"restart" => ("Restart", "Restart", true),
        b"thrash" => ("MemoryThrashing", "Observe", true),
        b"starved" => ("CPUStarved", "Observe", true),
        b"relieve" => ("PressureStep", "Relieve", false),
        b"release" => ("PressureStepUndone", "Release", false),
        b"resize" => ("RequestsResized", "Resize", false),
        b"contended" => ("SettingContended", "Observe", true),
        b"denied" => ("SettingDenied", "Set", true),
        b"ineffective" => ("SettingIneffective", "Observe", true),
        _ => return None,
    })
}

/// Pod, container, kind and result.
pub(super) type Key = (String, String, String, String);

/// Decisions that are counted as events.
#[derive(Debug, Default)]
pub(super) struct DecisionTally {
    pub(super) events: EventTally<Key>,
    /// What is left of a pod's, and when that was.
    of_pods: HashMap<String, (f64, Instant)>,
    /// Decisions of which nothing was told because there were too many.
    pub(super) dropped: u64,
}

impl DecisionTally {
    /// Takes a decision in; `uid` says whose pod it is, nothing where it is not to be told. `at` is when it was made, RFC 3339.
    pub(super) fn take(
        &mut self,
        decision: &v1::Decision,
        uid: impl FnOnce(&str, &str) -> Option<String>,
        at: &str,
        now: Instant,
    ) {
        let Some((reason, action, is_warning)) = meaning(&decision.kind) else { return };
        let Some((namespace, pod)) = decision.pod.as_deref().and_then(|pod| pod.split_once('/')) else {
            return;
        };
        let container = decision.container.clone().unwrap_or_default();
        let whole = format!("{namespace}/{pod}");
        let key = (whole.clone(), container, decision.kind.clone(), decision.result.clone());
        if self.events.count(&key, at, now) {
            return;
        }
        let Some(uid) = uid(namespace, pod) else { return };
        if !self.events.has_room(now) || !self.may(&whole, now) {
            self.dropped += 1;
            return;
        }
        let done = decision.result == "done";
        let note = match decision.result.as_str() {
            "done" => decision.reason.clone(),
            "would-do" => format!("dry run, not done: {}", decision.reason),
            other => format!("{} ({other})", decision.reason),
        };
        let event = ObjectEvent {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            namespace: namespace.to_owned(),
            name: pod.to_owned(),
            uid,
            container: decision.container.clone(),
            reason,
            action,
            is_warning: is_warning && (done || decision.result != "would-do"),
            controller: "evenkeel.dev/agent",
            instance: decision.node.clone(),
            note,
            at: at.to_owned(),
            number: 0,
        };
        self.events.insert(key, event, now);
    }

    /// Whether a pod may have one more.
    fn may(&mut self, pod: &str, now: Instant) -> bool {
        let (most, each) = OF_POD;
        if self.of_pods.len() >= MOST {
            self.of_pods.retain(|_, (left, at)| *left + now.duration_since(*at).as_secs_f64() / each < most);
        }
        if self.of_pods.len() >= MOST && !self.of_pods.contains_key(pod) {
            return false;
        }
        let (left, at) = self.of_pods.entry(pod.to_owned()).or_insert((most, now));
        *left = (*left + now.duration_since(*at).as_secs_f64() / each).min(most);
        *at = now;
        let may = *left >= 1.0;
        *left -= if may { 1.0 } else { 0.0 };
        may
    }

    /// It cannot be written, ever.
    pub(super) fn drop(&mut self, key: &Key) {
        self.events.forget(key);
        self.dropped += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::series::Due;
    use super::*;

    const AT: &str = "2026-11-21T01:43:47.216099Z";

    fn decision(pod: &str, kind: &str, result: &str) -> v1::Decision {
        v1::Decision {
            pod: Some(pod.into()),
            container: Some("main".into()),
            kind: kind.into(),
            result: result.into(),
            reason: "over its limit".into(),
            node: "node-1".into(),
            ..v1::Decision::default()
        }
    }

    fn taken(tally: &mut DecisionTally, decision: &v1::Decision, now: Instant) {
        tally.take(decision, |namespace, _| (namespace == "shop").then(|| "u".to_owned()), AT, now);
    }

    fn next(tally: &mut DecisionTally, now: Instant) -> Option<Due> {
        let (key, due) = tally.events.due(now).into_iter().next()?;
        tally.events.told(&key, &due, now);
        Some(due)
    }

    #[test]
    fn only_what_somebody_looks_for_is_an_event() {
        let (now, mut tally) = (Instant::now(), DecisionTally::default());
        for kind in ["found", "set", "converged", "classified", "node", "agent", "source", "gone"] {
            taken(&mut tally, &decision("shop/web", kind, "done"), now);
        }
        taken(&mut tally, &v1::Decision { pod: None, ..decision("", "relieve", "done") }, now);
        taken(&mut tally, &decision("elsewhere/web", "oom-kill", "done"), now);
        assert_eq!(tally.events.due(now), []);
        for (kind, result, warns, note) in [
            ("oom-kill", "done", true, "over its limit"),
            ("evict", "would-do", false, "dry run, not done: over its limit"),
            ("resize", "failed", false, "over its limit (failed)"),
            ("kill", "denied", true, "over its limit (denied)"),
        ] {
            taken(&mut tally, &decision("shop/web", kind, result), now);
            let Some(Due::First(event)) = next(&mut tally, now) else { panic!("{kind}") };
            assert_eq!((event.is_warning, event.note.as_str()), (warns, note), "{kind}");
        }
    }

    #[test]
    fn equal_ones_are_one_and_a_pod_has_a_bounded_number() {
        let (start, mut tally) = (Instant::now(), DecisionTally::default());
        let kill = decision("shop/web", "oom-kill", "done");
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        (0..5).for_each(|second| taken(&mut tally, &kill, at(second)));
        let Some(Due::First(first)) = next(&mut tally, at(5)) else { panic!("no event") };
        assert_eq!(tally.events.due(at(6)), [], "a series is written once a minute");
        let Some(Due::Again(again, count, _)) = next(&mut tally, at(65)) else { panic!("no series") };
        assert_eq!((again.event_name(), count), (first.event_name(), 5));
        taken(&mut tally, &kill, at(66));
        assert!(matches!(next(&mut tally, at(126)), Some(Due::Again(_, 6, _))));
        // Long after, it is another one.
        taken(&mut tally, &kill, at(1_000));
        let Some(Due::First(later)) = next(&mut tally, at(1_000)) else { panic!("no event") };
        assert_ne!(later.event_name(), first.event_name());
        // A pod that tells of a new container each time.
        let mut tally = DecisionTally::default();
        for number in 0..100 {
            let mut kill = kill.clone();
            kill.container = Some(format!("c{number}"));
            taken(&mut tally, &kill, start);
        }
        assert_eq!((tally.events.waiting(), tally.dropped), (25, 75));
        taken(&mut tally, &decision("shop/db", "kill", "done"), start);
        assert_eq!(tally.events.waiting(), 26, "others go on");
        // So many pods that there is no room.
        (0..10_000)
            .for_each(|pod| taken(&mut tally, &decision(&format!("shop/p{pod}"), "kill", "done"), start));
        assert!(tally.events.waiting() == MOST && tally.of_pods.len() <= MOST);
        let (key, _) = tally.events.due(start).swap_remove(0);
        tally.drop(&key);
        assert_eq!(tally.events.waiting(), MOST - 1);
    }
}
