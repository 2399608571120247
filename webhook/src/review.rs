//! `AdmissionReview` of `admission.k8s.io/v1`, as far as pods that are made need it (kubernetes.io, "Dynamic Admission Control").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// The only version spoken.
const API_VERSION: &str = "admission.k8s.io/v1";
/// Bytes of an annotation, of all together that an object may have (256 KiB) a small part.
const MOST_ANNOTATION: usize = 4 << 10;

/// Why something is no review that can be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReview {
    /// It is no JSON of this form.
    #[error("it is no AdmissionReview: {0}")]
    Form(String),
    /// It is of another kind or version.
    #[error("it is a {kind} of {version}; AdmissionReview of admission.k8s.io/v1 is spoken")]
    Version {
        /// Its kind.
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
    /// It asks nothing.
    #[error("it is an AdmissionReview without a request")]
    Empty,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// What the API server asks about.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Names the request; the answer names it, too.
    pub uid: String,
    /// Of the object, as the webhook asked for it.
    pub kind: Kind,
    /// Subresource, such as `resize`; empty for the object itself.
    #[serde(deserialize_with = "null_is_default")]
    pub sub_resource: String,
    /// Namespace of the object.
    #[serde(deserialize_with = "null_is_default")]
    pub namespace: String,
    /// `CREATE`, `UPDATE`, ...
    pub operation: String,
    /// Nothing of it will be kept.
    #[serde(deserialize_with = "null_is_default")]
    pub dry_run: bool,
    /// The object, as it would be made.
    #[serde(deserialize_with = "null_is_default")]
    pub object: Map<String, Value>,
}

/// Group, version and kind of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// Empty for the core group.
    #[serde(deserialize_with = "null_is_default")]
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Request {
    /// Reads a review.
    ///
    /// # Errors
    /// [`NoReview`].
    pub fn read(body: &[u8]) -> Result<Self, NoReview> {
        let review: Review =
            serde_json::from_slice(body).map_err(|error| NoReview::Form(error.to_string()))?;
        let Review { api_version: version, kind, request } = review;
        if version != API_VERSION || kind != "AdmissionReview" {
            return Err(NoReview::Version { kind, version });
        }
        request.filter(|request| !request.uid.is_empty()).ok_or(NoReview::Empty)
    }

    /// Whether a pod is about to be made.
    #[must_use]
    pub fn makes_pod(&self) -> bool {
        let Kind { group, version, kind } = &self.kind;
        self.operation == "CREATE"
            && self.sub_resource.is_empty()
            && (group.as_str(), version.as_str(), kind.as_str()) == ("", "v1", "Pod")
    }

    /// The answer that lets the object through, changed by these operations (RFC 6902), with warnings for whoever made it.
    #[must_use]
    pub fn allowed(&self, patch: &[Value], warnings: &[String]) -> Value {
        let mut response = json!({ "uid": self.uid, "allowed": true });
        if !patch.is_empty() {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = STANDARD.encode(Value::from(patch.to_vec()).to_string()).into();
        }
        if !warnings.is_empty() {
            response["warnings"] = warnings.into();
        }
        json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response })
    }
}

/// Operations that put an annotation on an object, which may have none yet.
#[must_use]
pub fn annotate(object: &Map<String, Value>, key: &str, text: &str) -> Vec<Value> {
    let mut patch = Vec::new();
    let metadata = object.get("metadata").and_then(Value::as_object);
    if metadata.and_then(|metadata| metadata.get("annotations")).is_none_or(|all| !all.is_object()) {
        patch.push(json!({ "op": "add", "path": "/metadata/annotations", "value": {} }));
    }
    let end = text.char_indices().map(|(at, _)| at).find(|at| *at >= MOST_ANNOTATION);
    let text = end.map_or(text, |end| &text[..end]);
    patch.push(
        json!({ "op": "add", "path": format!("/metadata/annotations/{}", pointer(key)), "value": text }),
    );
    patch
}

/// Operations that put an annotation on an object, and a label of the same name with the value `true`, by which it is found, after `before`.
#[must_use]
pub fn mark(object: &Map<String, Value>, key: &str, text: &str, before: &[Value]) -> Vec<Value> {
    let is_made = |path: &str| before.iter().any(|operation| operation["path"] == path);
    let mut patch = annotate(object, key, text);
    patch.retain(|operation| {
        operation["path"] != "/metadata/annotations" || !is_made("/metadata/annotations")
    });
    let labels = object.get("metadata").and_then(|metadata| metadata.get("labels"));
    if !labels.is_some_and(Value::is_object) && !is_made("/metadata/labels") {
        patch.push(json!({ "op": "add", "path": "/metadata/labels", "value": {} }));
    }
    patch.push(json!({ "op": "add", "path": format!("/metadata/labels/{}", pointer(key)), "value": "true" }));
    patch
}

/// A key as part of a JSON pointer (RFC 6901, section 3).
fn pointer(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(change: impl FnOnce(&mut Value)) -> Result<Request, NoReview> {
        let mut value = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "shop",
                "operation": "CREATE", "object": {"metadata": {}}, "oldObject": null, "new": "field",
            },
        });
        change(&mut value);
        Request::read(value.to_string().as_bytes())
    }

    #[test]
    fn only_pods_that_are_made_are_for_us() {
        assert!(review(|_| {}).unwrap().makes_pod());
        for change in [
            json!({"operation": "UPDATE"}),
            json!({"operation": "DELETE", "object": null}),
            json!({"subResource": "resize"}),
            json!({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}),
            json!({"kind": {"group": "", "version": "v2", "kind": "Pod"}}),
        ] {
            let request = review(|value| {
                for (key, new) in change.as_object().unwrap() {
                    value["request"][key] = new.clone();
                }
            });
            assert!(!request.unwrap().makes_pod(), "{change}");
        }
    }

    #[test]
    fn rubbish_is_refused_in_words() {
        assert_eq!(review(|value| value["request"] = Value::Null).unwrap_err(), NoReview::Empty);
        assert_eq!(review(|value| value["request"]["uid"] = "".into()).unwrap_err(), NoReview::Empty);
        let old = review(|value| value["apiVersion"] = "admission.k8s.io/v1beta1".into()).unwrap_err();
        assert!(old.to_string().contains("v1beta1"), "{old}");
        for body in ["", "{", "[]", "null", "{\"request\": 3}"] {
            assert!(matches!(Request::read(body.as_bytes()), Err(NoReview::Form(_))), "{body}");
        }
    }

    #[test]
    fn an_annotation_is_put_where_there_is_none() {
        let none = json!({"metadata": {"name": "a"}});
        let patch = annotate(none.as_object().unwrap(), "evenkeel.dev/a~b", "text");
        assert_eq!(patch.len(), 2);
        assert_eq!(patch[1]["path"], "/metadata/annotations/evenkeel.dev~1a~0b");
        let some = json!({"metadata": {"annotations": {"a": "b"}}});
        let patch = annotate(some.as_object().unwrap(), "c", &"ü".repeat(MOST_ANNOTATION));
        assert_eq!(patch.len(), 1);
        assert!(patch[0]["value"].as_str().unwrap().len() <= MOST_ANNOTATION + 1);
        // What was made before is not made again.
        let none = json!({"metadata": {}});
        let before = annotate(none.as_object().unwrap(), "a", "x");
        let patch = mark(none.as_object().unwrap(), "b/c", "y", &before);
        let paths: Vec<&str> = patch.iter().map(|op| op["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/metadata/annotations/b~1c", "/metadata/labels", "/metadata/labels/b~1c"]);
    }
}
