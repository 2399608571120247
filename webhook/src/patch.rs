//! Operations of a JSON patch (RFC 6902), as the API server takes them.

use serde::Serialize;
use serde_json::Value;

use crate::object::Pod;

/// Bytes of keys and values of all annotations of an object; the API server refuses it with more (`TotalAnnotationSizeLimitB` of
/// `k8s.io/apimachinery`, v1.34).
const ALL_ANNOTATIONS: usize = 256 << 10;
/// Bytes of an annotation that people read.
const MOST_TOLD: usize = 4 << 10;
/// Where annotations and labels are.
const ANNOTATIONS: &str = "/metadata/annotations";
const LABELS: &str = "/metadata/labels";

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Operation {
    /// `add` or `remove`.
    pub op: &'static str,
    /// Where, as a JSON pointer (RFC 6901).
    pub path: String,
    /// What is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

impl Operation {
    /// Puts a value at a place, over what is there.
    #[must_use]
    pub fn add(path: String, value: impl Into<Value>) -> Self {
        Self { op: "add", path, value: Some(value.into()) }
    }

    /// Takes away what is at a place, which has to be there.
    #[must_use]
    pub const fn remove(path: String) -> Self {
        Self { op: "remove", path, value: None }
    }

    /// Puts an object without fields at a place.
    #[must_use]
    pub fn make(path: String) -> Self {
        Self::add(path, serde_json::Map::new())
    }
}

/// Bytes of keys and values that may still be annotated to a pod.
#[must_use]
pub fn room(pod: &Pod<'_>) -> usize {
    let annotations = pod.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    ALL_ANNOTATIONS.saturating_sub(annotations.map_or(0, |all| all.bytes))
}

/// Operations that tell people something in an annotation, cut to what there is room for; none where there is none.
#[must_use]
pub fn tell(pod: &Pod<'_>, key: &str, text: &str, room: usize) -> Vec<Operation> {
    let text = &text[..text.floor_char_boundary(room.saturating_sub(key.len()).min(MOST_TOLD))];
    if text.is_empty() { Vec::new() } else { annotate(pod, key, text) }
}

/// Operations that put an annotation on a pod, which may have none yet. There has to be [`room`] for it.
#[must_use]
pub fn annotate(pod: &Pod<'_>, key: &str, text: &str) -> Vec<Operation> {
    let mut patch = Vec::new();
    if pod.metadata.as_ref().is_none_or(|metadata| metadata.annotations.is_none()) {
        patch.push(Operation::make(ANNOTATIONS.to_owned()));
    }
    patch.push(Operation::add(below(ANNOTATIONS, key), text));
    patch
}

/// Operations that put an annotation on a pod, and a label of the same name with the value `true`, by which it is found, after `before`.
#[must_use]
pub fn mark(pod: &Pod<'_>, key: &str, text: &str, before: &[Operation]) -> Vec<Operation> {
    let is_made = |path: &str| before.iter().any(|operation| operation.path == path);
    let mut patch = annotate(pod, key, text);
    patch.retain(|operation| operation.path != ANNOTATIONS || !is_made(ANNOTATIONS));
    if !is_made(LABELS) {
        patch.extend(without_labels(pod));
    }
    patch.push(label(key));
    patch
}

/// The operation that makes labels where a pod has none.
pub(crate) fn without_labels(pod: &Pod<'_>) -> Option<Operation> {
    pod.labels().is_none().then(|| Operation::make(LABELS.to_owned()))
}

/// The operation that puts down a label with the value `true`.
pub(crate) fn label(key: &str) -> Operation {
    Operation::add(below(LABELS, key), "true")
}

/// The pointer to a key of an object (RFC 6901, section 3).
fn below(parent: &str, key: &str) -> String {
    let mut pointer = String::with_capacity(parent.len() + 1 + 2 * key.len());
    pointer.push_str(parent);
    pointer.push('/');
    for letter in key.chars() {
        match letter {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            letter => pointer.push(letter),
        }
    }
    pointer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn an_annotation_is_put_where_there_is_none() {
        let none = pod(r#"{"metadata":{"name":"a"}}"#);
        let patch = annotate(&none, "evenkeel.dev/a~b", "text");
        assert_eq!(patch.len(), 2);
        assert_eq!(patch[1].path, "/metadata/annotations/evenkeel.dev~1a~0b");
        let some = pod(r#"{"metadata":{"annotations":{"a":"b"}}}"#);
        let long = "ü".repeat(MOST_TOLD);
        for (room, length) in [(room(&some), MOST_TOLD), (7, 6), (3, 2)] {
            let patch = tell(&some, "c", &long, room);
            assert_eq!(patch.len(), 1, "{room}");
            assert_eq!(patch[0].value.as_ref().unwrap().as_str().unwrap().len(), length, "{room}");
        }
        assert_eq!(tell(&some, "c", &long, 2), [], "no whole letter has room");
        assert_eq!((room(&none), room(&some)), (ALL_ANNOTATIONS, ALL_ANNOTATIONS - 2));
        // What was made before is not made again.
        let before = annotate(&none, "a", "x");
        let patch = mark(&none, "b/c", "y", &before);
        let paths: Vec<&str> = patch.iter().map(|operation| operation.path.as_str()).collect();
        assert_eq!(paths, ["/metadata/annotations/b~1c", "/metadata/labels", "/metadata/labels/b~1c"]);
    }

    #[test]
    fn operations_are_written_as_the_api_server_reads_them() {
        let all =
            [Operation::make("/a".into()), Operation::add("/b".into(), "1"), Operation::remove("/c".into())];
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(
            text,
            r#"[{"op":"add","path":"/a","value":{}},{"op":"add","path":"/b","value":"1"},{"op":"remove","path":"/c"}]"#
        );
    }
}
