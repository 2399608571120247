//! `AdmissionReview` of `admission.k8s.io/v1`, as far as pods that are made need it (kubernetes.io, "Dynamic Admission Control").

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::object::{JsonText, Pod};
use crate::patch::Operation;

/// The only version spoken.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";
/// Room for a patch that sets requests of two containers, and for an answer without its patch; more is made where it does not suffice.
const PATCH_BYTES: usize = 1 << 10;
const ANSWER_BYTES: usize = 256;

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

/// A review; of the object, `O` is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a, O> {
    #[serde(borrow)]
    api_version: Option<JsonText<'a>>,
    #[serde(borrow)]
    kind: Option<JsonText<'a>>,
    #[serde(borrow)]
    request: Option<ReviewRequest<'a, O>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReviewRequest<'a, O> {
    #[serde(borrow)]
    uid: Option<JsonText<'a>>,
    #[serde(borrow)]
    kind: Option<GroupVersionKind<'a>>,
    #[serde(borrow)]
    sub_resource: Option<JsonText<'a>>,
    #[serde(borrow)]
    namespace: Option<JsonText<'a>>,
    #[serde(borrow)]
    operation: Option<JsonText<'a>>,
    dry_run: Option<bool>,
    object: Option<O>,
}

/// What the API server asks about.
#[derive(Debug, Clone, PartialEq)]
pub struct AdmissionRequest<'a> {
    /// Names the request; the answer names it, too.
    pub uid: JsonText<'a>,
    /// Of the object, as the webhook asked for it.
    pub kind: GroupVersionKind<'a>,
    /// Subresource, such as `resize`; empty for the object itself.
    pub sub_resource: JsonText<'a>,
    /// Namespace of the object.
    pub namespace: JsonText<'a>,
    /// `CREATE`, `UPDATE`, ...
    pub operation: JsonText<'a>,
    /// Nothing of it will be kept.
    pub dry_run: bool,
    /// The object, as it would be made, read as a pod; why not, where it is none.
    pub object: Result<Pod<'a>, String>,
}

/// Group, version and kind of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct GroupVersionKind<'a> {
    /// Empty for the core group.
    #[serde(borrow)]
    pub group: Option<JsonText<'a>>,
    /// Version.
    #[serde(borrow)]
    pub version: Option<JsonText<'a>>,
    /// Kind.
    #[serde(borrow)]
    pub kind: Option<JsonText<'a>>,
}

impl<'a> AdmissionRequest<'a> {
    /// Reads a review. One about an object that is no pod is read, too: it is answered.
    ///
    /// # Errors
    /// [`NoReview`].
    pub fn read(body: &'a [u8]) -> Result<Self, NoReview> {
        // Once for the whole, which costs a fraction of looking at each text in it.
        let body = str::from_utf8(body).map_err(|error| NoReview::Form(error.to_string()))?;
        match serde_json::from_str::<Review<'a, Pod<'a>>>(body) {
            Ok(review) => Self::of(review, |object| Ok(object.unwrap_or_default())),
            Err(error) => {
                let form = |error: serde_json::Error| NoReview::Form(error.to_string());
                let review: Review<'a, IgnoredAny> = serde_json::from_str(body).map_err(form)?;
                Self::of(review, |_| Err(error.to_string()))
            }
        }
    }

    fn of<O>(
        review: Review<'a, O>,
        pod: impl FnOnce(Option<O>) -> Result<Pod<'a>, String>,
    ) -> Result<Self, NoReview> {
        let Review { api_version, kind, request } = review;
        let (version, kind) = (api_version.unwrap_or_default(), kind.unwrap_or_default());
        if &*version != API_VERSION || &*kind != KIND {
            return Err(NoReview::Version { kind: kind.to_string(), version: version.to_string() });
        }
        let ReviewRequest { uid, kind, sub_resource, namespace, operation, dry_run, object } =
            request.ok_or(NoReview::Empty)?;
        Ok(Self {
            uid: uid.filter(|uid| !uid.is_empty()).ok_or(NoReview::Empty)?,
            kind: kind.unwrap_or_default(),
            sub_resource: sub_resource.unwrap_or_default(),
            namespace: namespace.unwrap_or_default(),
            operation: operation.unwrap_or_default(),
            dry_run: dry_run.unwrap_or_default(),
            object: pod(object),
        })
    }

    /// Whether a pod is about to be made.
    #[must_use]
    pub fn makes_pod(&self) -> bool {
        let GroupVersionKind { group, version, kind } = &self.kind;
        let is = |field: &Option<JsonText<'_>>, want: &str| field.as_deref().unwrap_or_default() == want;
        &*self.operation == "CREATE"
            && self.sub_resource.is_empty()
            && is(group, "")
            && is(version, "v1")
            && is(kind, "Pod")
    }

    /// The answer that lets the object through, changed by these operations (RFC 6902), in JSON.
    #[must_use]
    pub fn allowed(&self, patch: &[Operation]) -> String {
        // Text, numbers and objects with keys of text are always written.
        let uid = serde_json::to_string(&self.uid).unwrap_or_default();
        let mut written = Vec::with_capacity(PATCH_BYTES);
        let _written = serde_json::to_writer(&mut written, patch);
        // The greater part of an answer is its patch, which holds nothing that JSON escapes: it is written straight to its place.
        let mut answer = String::with_capacity(ANSWER_BYTES + written.len() * 4 / 3);
        answer.extend([
            r#"{"apiVersion":""#,
            API_VERSION,
            r#"","kind":""#,
            KIND,
            r#"","response":{"uid":"#,
            &uid,
        ]);
        answer.push_str(r#","allowed":true"#);
        if !patch.is_empty() {
            answer.push_str(r#","patchType":"JSONPatch","patch":""#);
            STANDARD.encode_string(written, &mut answer);
            answer.push('"');
        }
        answer.push_str("}}");
        answer
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn body(change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut value = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": "shop",
                "operation": "CREATE", "object": {"metadata": {}}, "oldObject": null, "new": "field",
            },
        });
        change(&mut value);
        value.to_string().into_bytes()
    }

    #[test]
    fn only_pods_that_are_made_are_for_us() {
        assert!(AdmissionRequest::read(&body(|_| {})).unwrap().makes_pod());
        for change in [
            json!({"operation": "UPDATE"}),
            json!({"operation": "DELETE", "object": null}),
            json!({"subResource": "resize"}),
            json!({"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}}),
            json!({"kind": {"group": "", "version": "v2", "kind": "Pod"}}),
        ] {
            let body = body(|value| {
                for (key, new) in change.as_object().unwrap() {
                    value["request"][key] = new.clone();
                }
            });
            assert!(!AdmissionRequest::read(&body).unwrap().makes_pod(), "{change}");
        }
    }

    #[test]
    fn rubbish_is_refused_in_words() {
        let refused = |change: &dyn Fn(&mut Value)| AdmissionRequest::read(&body(change)).unwrap_err();
        assert_eq!(refused(&|value| value["request"] = Value::Null), NoReview::Empty);
        assert_eq!(refused(&|value| value["request"]["uid"] = "".into()), NoReview::Empty);
        let old = refused(&|value| value["apiVersion"] = "admission.k8s.io/v1beta1".into());
        assert!(old.to_string().contains("v1beta1"), "{old}");
        for body in ["", "{", "[]", "null", "{\"request\": 3}"] {
            assert!(matches!(AdmissionRequest::read(body.as_bytes()), Err(NoReview::Form(_))), "{body}");
        }
    }

    #[test]
    fn what_is_no_pod_is_answered_all_the_same() {
        for object in
            [json!(7), json!({"spec": {"containers": "none"}}), json!({"metadata": {"labels": [1]}})]
        {
            let body = body(|value| value["request"]["object"] = object.clone());
            let request = AdmissionRequest::read(&body).unwrap();
            assert!(request.object.is_err() && request.makes_pod(), "{object}");
            let answer: Value = serde_json::from_str(&request.allowed(&[])).unwrap();
            assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}), "{object}");
        }
        let body = body(|value| value["request"]["object"] = Value::Null);
        assert_eq!(AdmissionRequest::read(&body).unwrap().object, Ok(Pod::default()));
    }

    #[test]
    fn an_answer_holds_its_patch() {
        let body = body(|value| value["request"]["uid"] = "u\"\\".into());
        let request = AdmissionRequest::read(&body).unwrap();
        let patch = [Operation::add("/a".into(), "b")];
        let answer: Value = serde_json::from_str(&request.allowed(&patch)).unwrap();
        assert_eq!((&answer["kind"], &answer["apiVersion"]), (&json!(KIND), &json!(API_VERSION)));
        let response = &answer["response"];
        assert_eq!((&response["uid"], &response["patchType"]), (&json!("u\"\\"), &json!("JSONPatch")));
        let patch = STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        let patch: Value = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch, json!([{"op": "add", "path": "/a", "value": "b"}]));
    }
}
