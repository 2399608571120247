//! Owns when a status is written: what is new at once, what only moved once a minute; one after the other at a bounded rate; after a refusal
//! not before a pause.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use evenkeel_kubernetes::ApiKind;
use evenkeel_kubernetes::objects::{ApiError, Autoscaler, FROZEN, OWN, is_alike, is_same, patch};
use evenkeel_model::quantity::Quantity;
use serde_json::Value;

use super::{RecommendedObjects, StatusRefusal};
use crate::events::ApiPause;

/// How often a status is written that only moved: as often as the Vertical Pod Autoscaler's recommender does (`--recommender-interval`).
const EVERY: Duration = Duration::from_secs(60);
/// A target that rises by more than this part is written at once.
const RISES: f64 = 0.1;
/// The least time from one write to the next, on average: 50 a second, as that recommender's `--kube-api-qps`.
const APART: Duration = Duration::from_millis(20);
/// How long the longest round writes; what is left is in the next one.
const LONGEST: Duration = Duration::from_secs(30);
/// How long an object is left alone that may not be written, or whose status is refused.
const REFUSED: Duration = Duration::from_secs(300);

/// What an object should say.
#[derive(Debug)]
pub(super) struct TargetStatus {
    pub(super) kind: &'static ApiKind,
    pub(super) object: Arc<Autoscaler>,
    pub(super) status: Value,
}

/// What is remembered of what was written.
#[derive(Debug)]
struct WrittenStatus {
    /// Version of the object that it was written into, and the one that came of it.
    versions: (String, String),
    /// What was written, and what of it is kept: an older definition of the kind drops fields that it does not know.
    status: (Value, Value),
    at: Option<Instant>,
    not_before: Option<Instant>,
}

/// What came of a write.
enum Came {
    Written,
    /// This object alone is left for another time.
    Refused,
    /// So are all others.
    Over,
}

/// Writes statuses.
#[derive(Debug, Default)]
pub(super) struct StatusWriter {
    /// By uid.
    written: HashMap<String, WrittenStatus>,
    pause: ApiPause,
}

impl StatusWriter {
    /// Forgets what is gone.
    pub(super) fn forget_others(&mut self, all: &[&Autoscaler]) {
        let there: HashSet<&str> = all.iter().map(|object| object.metadata.uid.as_str()).collect();
        self.written.retain(|uid, _| there.contains(uid.as_str()));
    }

    /// Whether nothing is written for a while.
    pub(super) fn is_pausing(&self) -> bool {
        self.pause.is_on()
    }

    /// The object as it is: what was just written into it may not have come back yet.
    pub(super) fn present(&self, object: Arc<Autoscaler>) -> Arc<Autoscaler> {
        match self.written.get(&object.metadata.uid) {
            Some(written)
                if written.versions.0 == object.metadata.resource_version && written.at.is_some() =>
            {
                let mut newer = (*object).clone();
                newer.metadata.resource_version.clone_from(&written.versions.1);
                newer.status.clone_from(&written.status.1);
                Arc::new(newer)
            }
            _ => object,
        }
    }

    /// Whether an object says something else than it should.
    pub(super) fn differs(&self, object: &Autoscaler, status: &Value) -> bool {
        let as_kept = |written: &WrittenStatus| {
            is_same(&written.status.0, status) && is_same(&written.status.1, &object.status)
        };
        !is_same(&object.status, status) && !self.written.get(&object.metadata.uid).is_some_and(as_kept)
    }

    /// Whether it is time to write it.
    fn is_due(&self, wanted: &TargetStatus, now: Instant) -> bool {
        let Some(written) = self.written.get(&wanted.object.metadata.uid) else { return true };
        let is_old = written.at.is_none_or(|at| now.duration_since(at) >= EVERY);
        written.not_before.is_none_or(|at| now >= at)
            && (is_old || is_news(&wanted.object.status, &wanted.status))
    }

    /// Writes what is due, longest unwritten first.
    pub(super) async fn write(&mut self, objects: &RecommendedObjects, wanted: Vec<TargetStatus>) {
        let (began, mut waiting) = (Instant::now(), wanted.len() as u64);
        objects.waiting.store(waiting, Ordering::Relaxed);
        let mut due: Vec<TargetStatus> = wanted.into_iter().filter(|one| self.is_due(one, began)).collect();
        due.sort_by_key(|one| self.written.get(&one.object.metadata.uid).and_then(|written| written.at));
        for one in due {
            if began.elapsed() > LONGEST {
                return;
            }
            let metadata = &one.object.metadata;
            let api = objects.asking.api();
            let patch = patch(&one.object, &one.status);
            let answer = api.patch_status(one.kind, &metadata.namespace, &metadata.name, &patch).await;
            match self.answered(objects, one, answer) {
                Came::Written => waiting -= 1,
                Came::Refused => {}
                Came::Over => return,
            }
            objects.waiting.store(waiting, Ordering::Relaxed);
            tokio::time::sleep(APART).await;
        }
    }

    /// Takes an answer in.
    fn answered(
        &mut self,
        objects: &RecommendedObjects,
        one: TargetStatus,
        answer: Result<Value, ApiError>,
    ) -> Came {
        let TargetStatus { kind, object, status } = one;
        let metadata = &object.metadata;
        let now = Instant::now();
        let told = |why: &str| StatusRefusal {
            uid: metadata.uid.clone(),
            why: format!("{} {}/{}: {why}", kind.name, metadata.namespace, metadata.name),
        };
        let entry = self.written.entry(metadata.uid.clone()).or_insert_with(|| WrittenStatus {
            versions: Default::default(),
            status: Default::default(),
            at: None,
            not_before: None,
        });
        match answer {
            Ok(mut made) => {
                let version = made["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                let versions = (metadata.resource_version.clone(), version);
                if *kind == *OWN {
                    objects.dropped(dropped(&status, &made["status"]));
                }
                *entry = WrittenStatus {
                    versions,
                    status: (status, made["status"].take()),
                    at: Some(now),
                    not_before: None,
                };
                objects.refused(None);
                objects.writes.fetch_add(1, Ordering::Relaxed);
                self.pause.end();
                Came::Written
            }
            // It comes as it is now, and is looked at again then.
            Err(ApiError::Conflict(_)) => {
                objects.conflicts.fetch_add(1, Ordering::Relaxed);
                Came::Refused
            }
            Err(ApiError::Absent(why) | ApiError::Forbidden(why) | ApiError::Wrong(why)) => {
                objects.failures.fetch_add(1, Ordering::Relaxed);
                objects.refused(Some(told(&why)));
                entry.not_before = Some(now + REFUSED);
                Came::Refused
            }
            Err(ApiError::Later(why, after)) => self.pause(objects, told(&why), after),
            Err(ApiError::Silent(why)) => self.pause(objects, told(&why), None),
        }
    }

    fn pause(&mut self, objects: &RecommendedObjects, why: StatusRefusal, after: Option<Duration>) -> Came {
        objects.failures.fetch_add(1, Ordering::Relaxed);
        objects.refused(Some(why));
        self.pause.begin(after);
        Came::Over
    }
}

/// What a definition does not keep of a status: it is older, or not ours.
fn dropped(written: &Value, kept: &Value) -> Option<String> {
    let fields = written
        .as_object()?
        .iter()
        .filter(|(field, value)| !value.is_null() && !is_alike(&kept[*field], value));
    let fields: Vec<&str> = fields.map(|(field, _)| field.as_str()).collect();
    (!fields.is_empty()).then(|| {
        format!(
            "the definition of {} in the cluster is older than this release, and does not keep status.{} as it is written; apply crd.yaml",
            OWN.name,
            fields.join(", status.")
        )
    })
}

/// Whether a status says something that is not to wait: a condition, a container, another version of the spec, a target that rises.
fn is_news(before: &Value, after: &Value) -> bool {
    let conditions = |status: &Value| -> Vec<(Value, Value, Value)> {
        let all = status["conditions"].as_array().into_iter().flatten();
        let of = |condition: &Value| {
            // Who reads of objects what is frozen goes by the reason: the switch, or the namespace.
            let why = if condition["type"] == FROZEN { condition["reason"].clone() } else { Value::Null };
            (condition["type"].clone(), condition["status"].clone(), why)
        };
        all.map(of).collect()
    };
    let targets = |status: &Value| -> HashMap<(String, String), Option<Quantity>> {
        let recommendation = &status["recommendation"];
        // Of the Vertical Pod Autoscaler's objects, or of Evenkeel's own.
        let all = recommendation["containerRecommendations"].as_array();
        let all = all.or(recommendation["containers"].as_array()).cloned().unwrap_or_default();
        let of = |container: &Value| {
            let name = container["containerName"].as_str().or(container["name"].as_str());
            let name = name.unwrap_or_default().to_owned();
            let target = container["target"].as_object().or(container["resources"]["requests"].as_object());
            let target = target.cloned().unwrap_or_default();
            target.into_iter().map(move |(resource, amount)| {
                ((name.clone(), resource), amount.as_str().and_then(|text| Quantity::parse(text).ok()))
            })
        };
        all.iter().flat_map(of).collect()
    };
    let (old, new) = (targets(before), targets(after));
    let rises = |(place, amount): (&(String, String), &Option<Quantity>)| match (old.get(place), amount) {
        (Some(Some(before)), Some(amount)) => amount.nano() as f64 > before.nano() as f64 * (1.0 + RISES),
        (Some(None), _) | (Some(_), None) => true,
        (None, _) => true,
    };
    before["observedGeneration"] != after["observedGeneration"]
        || conditions(before) != conditions(after)
        || old.len() != new.len()
        || new.iter().any(rises)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(kinds: &[&str], containers: &[(&str, &str)], generation: u64) -> Value {
        let conditions: Vec<Value> =
            kinds.iter().map(|kind| json!({ "type": kind, "status": "True" })).collect();
        let container =
            |(name, memory): &(&str, &str)| json!({ "containerName": name, "target": { "memory": memory } });
        let containers: Vec<Value> = containers.iter().map(container).collect();
        json!({
            "conditions": conditions, "observedGeneration": generation,
            "recommendation": { "containerRecommendations": containers },
        })
    }

    #[test]
    fn what_only_moved_is_no_news() {
        let before = status(&["a"], &[("main", "100Mi")], 1);
        for (after, want) in [
            (status(&["a"], &[("main", "109Mi")], 1), false),
            (status(&["a"], &[("main", "10Mi")], 1), false),
            (status(&["a"], &[("main", "111Mi")], 1), true),
            (status(&["a", "b"], &[("main", "100Mi")], 1), true),
            (status(&["a"], &[("main", "100Mi")], 2), true),
            (status(&["a"], &[], 1), true),
            (status(&["a"], &[("side", "100Mi")], 1), true),
            (status(&["a"], &[("main", "100Mi"), ("side", "1Mi")], 1), true),
        ] {
            assert_eq!(is_news(&before, &after), want, "{after}");
        }
        assert!(is_news(&Value::Null, &before));
        // Which is frozen, the namespace or everything, is news; of other conditions the reason is not.
        let because = |kind: &str, reason: &str| json!({ "conditions": [{ "type": kind, "status": "True", "reason": reason }] });
        for (kind, want) in [(FROZEN, true), ("Updated", false)] {
            assert_eq!(is_news(&because(kind, "Panic"), &because(kind, "FrozenNamespace")), want, "{kind}");
        }
    }

    #[test]
    fn what_an_older_definition_drops_is_named() {
        let written = json!({ "conditions": [], "recommendation": { "containers": [{ "name": "a" }] }, "conflicts": null });
        assert_eq!(dropped(&written, &written), None);
        let number =
            |of: Value| json!({ "recommendation": { "containers": [{ "confidence": { "cpu": of } }] } });
        assert_eq!(dropped(&number(json!(0.0)), &number(json!(0))), None, "as an API server writes it");
        assert!(dropped(&number(json!(0.25)), &number(json!(0))).is_some());
        let told = dropped(&written, &json!({ "conditions": [], "recommendation": {} })).unwrap();
        assert!(
            told.contains("does not keep status.recommendation as") && told.contains("apply crd.yaml"),
            "{told}"
        );
        assert!(
            dropped(&written, &Value::Null).unwrap().contains("status.conditions, status.recommendation")
        );
    }

    fn object(version: &str, status: &Value) -> Arc<Autoscaler> {
        let metadata = json!({ "name": "a", "namespace": "n", "uid": "u", "resourceVersion": version });
        let object = json!({ "metadata": metadata, "spec": {}, "status": status });
        Arc::new(Autoscaler::read(object.to_string().as_bytes()).unwrap())
    }

    #[test]
    fn what_was_written_is_not_written_again_whatever_was_kept_of_it() {
        let (wanted, old) = (status(&["a"], &[("main", "1Mi")], 3), status(&[], &[], 3));
        // A definition that knows no observedGeneration.
        let mut kept = wanted.clone();
        kept.as_object_mut().unwrap().remove("observedGeneration");
        let mut writer = StatusWriter::default();
        assert!(writer.differs(&object("1", &old), &wanted));
        let entry = WrittenStatus {
            versions: ("1".into(), "2".into()),
            status: (wanted.clone(), kept.clone()),
            at: Some(Instant::now()),
            not_before: None,
        };
        writer.written.insert("u".into(), entry);
        // The watch has not told yet, and has.
        let present = writer.present(object("1", &old));
        assert_eq!((present.metadata.resource_version.as_str(), &present.status), ("2", &kept));
        assert!(!writer.differs(&present, &wanted));
        assert!(!writer.differs(&writer.present(object("2", &kept)), &wanted));
        // Somebody else wrote something.
        assert!(writer.differs(&writer.present(object("3", &old)), &wanted));
        let moved = TargetStatus {
            kind: OWN,
            object: object("2", &kept),
            status: status(&["a"], &[("main", "2Mi")], 3),
        };
        assert!(writer.is_due(&moved, Instant::now()), "a target that rises");
        writer.forget_others(&[]);
        assert!(writer.written.is_empty());
    }
}
