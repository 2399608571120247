//! Watches: what there is, then each change as it comes, until the time that was asked for is over.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};

use super::Known;
use super::refusal::{self, bad, initial_events};
use super::rest::{Asked, Named, shown};
use super::select::Select;
use super::store::Change;

/// A watch that is being sent.
struct Sent {
    known: Arc<Mutex<Known>>,
    moved: tokio::sync::watch::Receiver<u64>,
    named: Named,
    select: Select,
    partial: bool,
    bookmarks: bool,
    version: u64,
    initial: Option<String>,
    ends: tokio::time::Instant,
    is_over: bool,
}

pub(crate) fn watch(
    known: &Arc<Mutex<Known>>,
    named: &Named,
    asked: &Asked,
    lasts: Option<Duration>,
) -> Response {
    let locked = known.lock().unwrap();
    let store = &locked.store;
    let initial_asked = asked.parameter("sendInitialEvents") == "true";
    if initial_asked && asked.parameter("resourceVersionMatch") != "NotOlderThan" {
        return initial_events();
    }
    let select = match Select::parse(asked.parameter("fieldSelector"), asked.parameter("labelSelector")) {
        Ok(select) => select,
        Err(why) => return bad(&why),
    };
    let Ok(version) = asked
        .parameter("resourceVersion")
        .parse::<u64>()
        .or_else(|error| if asked.parameter("resourceVersion").is_empty() { Ok(0) } else { Err(error) })
    else {
        return bad("invalid resource version");
    };
    let bookmarks = asked.parameter("allowWatchBookmarks") == "true";
    let partial = asked.is_partial();
    let mut initial = None;
    if version == 0 {
        let mut text = String::new();
        let all = store.objects.get(named.collection().as_str()).into_iter().flatten();
        for (_, object) in all.filter(|(key, text)| {
            (named.namespace.is_empty() || key.0 == named.namespace) && select.takes(text)
        }) {
            writeln!(text, "{{\"type\":\"ADDED\",\"object\":{}}}", shown(object, partial)).unwrap();
        }
        if initial_asked && bookmarks {
            let annotations = json!({ "k8s.io/initial-events-end": "true" });
            writeln!(text, "{}", bookmark(named, store.version, Some(annotations))).unwrap();
        }
        initial = Some(text);
    } else if version < store.compacted {
        initial = Some(format!("{}\n", refusal::watch_gone(version, store.version)));
    }
    let is_gone = version != 0 && version < store.compacted;
    let seconds = asked.parameter("timeoutSeconds").parse().unwrap_or(1800);
    let lasts = lasts.unwrap_or(Duration::from_secs(seconds)).min(Duration::from_secs(seconds));
    let sent = Sent {
        known: Arc::clone(known),
        moved: store.moved.subscribe(),
        named: named.clone(),
        select,
        partial,
        bookmarks,
        version: if version == 0 { store.version } else { version },
        initial,
        ends: tokio::time::Instant::now() + lasts,
        is_over: is_gone,
    };
    let body = Body::from_stream(stream::unfold(sent, |mut sent| async {
        let text = sent.next().await?;
        Some((Ok::<_, Infallible>(text), sent))
    }));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

fn bookmark(named: &Named, version: u64, annotations: Option<Value>) -> Value {
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if let Some(annotations) = annotations {
        metadata["annotations"] = annotations;
    }
    json!({ "type": "BOOKMARK", "object": { "kind": named.kind, "apiVersion": named.api_version(), "metadata": metadata } })
}

impl Sent {
    /// What is sent next; nothing at the end.
    async fn next(&mut self) -> Option<String> {
        if let Some(initial) = self.initial.take().filter(|text| !text.is_empty()) {
            return Some(initial);
        }
        loop {
            if self.is_over {
                return None;
            }
            let text = self.changes();
            if !text.is_empty() {
                return Some(text);
            }
            tokio::select! {
                moved = self.moved.changed() => if moved.is_err() { return None },
                () = tokio::time::sleep_until(self.ends) => {
                    self.is_over = true;
                    // One more at the end, as a real one does.
                    if self.bookmarks {
                        return Some(format!("{}\n", bookmark(&self.named, self.version, None)));
                    }
                }
            }
        }
    }

    /// Changes since the last ones.
    fn changes(&mut self) -> String {
        let mut text = String::new();
        let known = Arc::clone(&self.known);
        let known = known.lock().unwrap();
        let collection = self.named.collection();
        let from = known.store.log.partition_point(|change| change.version <= self.version);
        for change in known.store.log.range(from..).filter(|change| *change.collection == *collection) {
            if let Some(kind) = self.kind(change) {
                writeln!(text, "{{\"type\":{kind:?},\"object\":{}}}", shown(&change.text, self.partial))
                    .unwrap();
            }
        }
        self.moved.mark_unchanged();
        self.version = self.version.max(known.store.version);
        text
    }

    /// What a change is for who looks at some objects alone.
    fn kind(&self, change: &Change) -> Option<&'static str> {
        if !self.named.namespace.is_empty() && self.named.namespace != change.key.0 {
            return None;
        }
        let before = change.before.as_ref().is_some_and(|text| self.select.takes(text));
        let after = change.kind != "DELETED" && self.select.takes(&change.text);
        match (before, after) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }
}
