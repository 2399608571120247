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
/// Longest part of an object's name in that of its event: with a dot and sixteen digits it is a name.
const MOST_NAME: usize = 236;

/// Something that happened to an object, or was done to it.
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
    /// The container of a pod, where it is about one.
    pub container: Option<String>,
    /// What happened, in a word.
    pub reason: &'static str,
    /// What was done, in a word.
    pub action: &'static str,
    /// Somebody should look.
    pub is_warning: bool,
    /// Who did or saw it, such as `evenkeel.dev/webhook`.
    pub controller: &'static str,
    /// Which of several did, such as a node.
    pub instance: String,
    /// What happened, in words.
    pub note: String,
    /// When: RFC 3339 with six digits of a second, as the API takes no other.
    pub at: String,
    /// Tells it from others of its object.
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

impl ObjectEvent {
    /// Name of the event.
    #[must_use]
    pub fn event_name(&self) -> String {
        format!("{}.{:016x}", cut(&self.name, MOST_NAME).trim_end_matches(['-', '.']), self.number)
    }

    fn object(&self) -> Value {
        let mut regarding = json!({
            "apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name, "uid": self.uid,
        });
        if let Some(container) = &self.container {
            regarding["fieldPath"] = format!("spec.containers{{{container}}}").into();
        }
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "name": self.event_name(), "namespace": self.namespace },
            "eventTime": self.at, "reportingController": self.controller, "reportingInstance": cut(&self.instance, 128),
            "action": self.action, "reason": self.reason, "regarding": regarding, "note": cut(&self.note, MOST_NOTE),
            "type": if self.is_warning { "Warning" } else { "Normal" },
        })
    }
}

impl ApiServer {
    /// Makes an event.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Conflict`] when it is made already.
    pub async fn tell(&self, event: &ObjectEvent) -> Result<(), ApiError> {
        self.create(&collection(EVENTS, &event.namespace), &event.object()).await
    }

    /// Says that it happened so often by now (two or more), and when last.
    ///
    /// # Errors
    /// [`ApiError`]; [`ApiError::Absent`] when the API server has forgotten it, as it does after an hour.
    pub async fn tell_again(&self, event: &ObjectEvent, count: u64, at: &str) -> Result<(), ApiError> {
        let series = json!({ "series": { "count": count, "lastObservedTime": at } });
        self.merge(&place(EVENTS, &event.namespace, &event.event_name()), &series).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_that_an_api_server_takes() {
        let event = ObjectEvent {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: format!("{}-é", "p".repeat(235)),
            uid: "u".into(),
            container: Some("main".into()),
            reason: "OOMKill",
            action: "Kill",
            is_warning: true,
            controller: "evenkeel.dev/agent",
            instance: "node-1".into(),
            note: "é".repeat(1_000),
            at: "2026-11-21T01:43:47.216099Z".into(),
            number: 255,
        };
        let object = event.object();
        assert_eq!(event.event_name(), format!("{}.00000000000000ff", "p".repeat(235)));
        assert_eq!(object["note"].as_str().unwrap().len(), 1_024);
        assert_eq!(
            (&object["type"], &object["regarding"]["fieldPath"]),
            (&json!("Warning"), &json!("spec.containers{main}"))
        );
    }
}
