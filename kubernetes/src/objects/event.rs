//! Events of `events.k8s.io/v1`, about pods and about what makes them: made once, and then counted up as a series (as recorded of 1.36).

use serde_json::{Value, json};

use super::ask::{ApiError, collection, place};
use crate::connect::ApiServer;
use crate::kinds::ApiKind;

/// The kind.
static EVENTS: &ApiKind =
    &ApiKind { name: "Event", path: "/apis/events.k8s.io/v1/events", metadata_only: false };
/// Longest note, bytes.
const MOST_NOTE: usize = 1024;
/// Longest part of a pod's name in that of its event: with a dot and sixteen digits it is a name.
const MOST_NAME: usize = 236;

/// Something that happened to a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    /// Namespace of the pod.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// Its uid, by which kubectl finds its events.
    pub uid: String,
    /// The container, where it is about one.
    pub container: Option<String>,
    /// Who did or saw it, such as `evenkeel.dev/agent`.
    pub by: &'static str,
    /// The node on which it happened.
    pub node: String,
    /// What happened, in a word.
    pub reason: &'static str,
    /// What was done, in a word.
    pub action: &'static str,
    /// Somebody should look.
    pub is_warning: bool,
    /// What happened, in words.
    pub note: String,
    /// When: RFC 3339 with six digits of a second, as the API takes no other.
    pub at: String,
    /// Tells it from others of its pod.
    pub number: u64,
}

/// Cut between characters.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl PodEvent {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}.{:016x}", cut(&self.pod, MOST_NAME).trim_end_matches(['-', '.']), self.number)
    }

    fn object(&self) -> Value {
        let mut regarding = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": self.namespace, "name": self.pod, "uid": self.uid });
        if let Some(container) = &self.container {
            regarding["fieldPath"] = format!("spec.containers{{{container}}}").into();
        }
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "name": self.name(), "namespace": self.namespace },
            "eventTime": self.at, "reportingController": self.by, "reportingInstance": cut(&self.node, 128),
            "action": self.action, "reason": self.reason, "regarding": regarding, "note": cut(&self.note, MOST_NOTE),
            "type": if self.is_warning { "Warning" } else { "Normal" },
        })
    }
}

/// Something that was done to what an object makes or is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectEvent {
    /// Group and version of the object.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid, by which kubectl finds its events.
    pub uid: String,
    /// What happened, in a word.
    pub reason: &'static str,
    /// What was done, in a word.
    pub action: &'static str,
    /// Somebody should look.
    pub is_warning: bool,
    /// Who did it, such as `evenkeel.dev/webhook`.
    pub controller: &'static str,
    /// Which of several did.
    pub instance: String,
    /// What happened, in words.
    pub note: String,
    /// When: RFC 3339 with six digits of a second, as the API takes no other.
    pub at: String,
    /// Tells it from others of its object.
    pub number: u64,
}

impl ObjectEvent {
    fn object_name(&self) -> String {
        format!("{}.{:016x}", cut(&self.name, MOST_NAME).trim_end_matches(['-', '.']), self.number)
    }

    fn object(&self) -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "name": self.object_name(), "namespace": self.namespace },
            "eventTime": self.at, "reportingController": self.controller, "reportingInstance": cut(&self.instance, 128),
            "action": self.action, "reason": self.reason, "note": cut(&self.note, MOST_NOTE),
            "regarding": {
                "apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name, "uid": self.uid,
            },
            "type": if self.is_warning { "Warning" } else { "Normal" },
        })
    }
}

impl ApiServer {
    /// Makes an event about an object.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tell_object(&self, event: &ObjectEvent) -> Result<(), ApiError> {
        self.create(&collection(EVENTS, &event.namespace), &event.object()).await
    }

    /// Says that it happened so often by now (two or more), and when last.
    ///
    /// # Errors
    /// As [`ApiServer::tell_again`].
    pub async fn tell_object_again(&self, event: &ObjectEvent, count: u64, at: &str) -> Result<(), ApiError> {
        self.again(&event.namespace, &event.object_name(), count, at).await
    }

    async fn again(&self, namespace: &str, name: &str, count: u64, at: &str) -> Result<(), ApiError> {
        let series = json!({ "series": { "count": count, "lastObservedTime": at } });
        self.merge(&place(EVENTS, namespace, name), &series).await
    }

    /// Makes an event.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn tell(&self, event: &PodEvent) -> Result<(), ApiError> {
        self.create(&collection(EVENTS, &event.namespace), &event.object()).await
    }

    /// Says that it happened so often by now (two or more), and when last.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Absent`] when the API server has forgotten it, as it does after an hour.
    pub async fn tell_again(&self, event: &PodEvent, count: u64, at: &str) -> Result<(), ApiError> {
        self.again(&event.namespace, &event.name(), count, at).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_that_an_api_server_takes() {
        let event = PodEvent {
            namespace: "shop".into(),
            pod: format!("{}-é", "p".repeat(235)),
            uid: "u".into(),
            container: Some("main".into()),
            by: "evenkeel.dev/agent",
            node: "node-1".into(),
            reason: "OOMKill",
            action: "Kill",
            is_warning: true,
            note: "é".repeat(1_000),
            at: "2026-11-21T01:43:47.216099Z".into(),
            number: 255,
        };
        let object = event.object();
        assert_eq!(event.name(), format!("{}.00000000000000ff", "p".repeat(235)));
        assert_eq!(object["note"].as_str().unwrap().len(), 1_024);
        assert_eq!(
            (&object["type"], &object["regarding"]["fieldPath"]),
            (&json!("Warning"), &json!("spec.containers{main}"))
        );
    }
}
