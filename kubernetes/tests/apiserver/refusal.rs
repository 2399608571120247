//! Refusals in the words of a real API server (1.36, as recorded).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A `Status` that is a refusal.
pub(crate) fn status(code: u16, reason: &str, message: &str, details: Value) -> Response {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason,
    });
    if !details.is_null() {
        body["details"] = details;
    }
    body["code"] = code.into();
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

/// What a collection is called in details: its plural, and its group where it has one.
fn of(name: &str, group: &str, kind: &str) -> Value {
    let mut details = json!({ "name": name, "kind": kind });
    if !group.is_empty() {
        details["group"] = group.into();
    }
    details
}

/// A resource as messages name it.
fn qualified(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

pub(crate) fn not_found(group: &str, plural: &str, name: &str) -> Response {
    let message = format!("{} {name:?} not found", qualified(group, plural));
    status(404, "NotFound", &message, of(name, group, plural))
}

pub(crate) fn unknown() -> Response {
    status(404, "NotFound", "the server could not find the requested resource", json!({}))
}

pub(crate) fn exists(group: &str, plural: &str, name: &str) -> Response {
    let message = format!("{} {name:?} already exists", qualified(group, plural));
    status(409, "AlreadyExists", &message, of(name, group, plural))
}

pub(crate) fn conflict(group: &str, plural: &str, name: &str) -> Response {
    let message = format!(
        "Operation cannot be fulfilled on {} {name:?}: the object has been modified; please apply your changes to the latest \
         version and try again",
        qualified(group, plural)
    );
    status(409, "Conflict", &message, of(name, group, plural))
}

/// A precondition of a deletion does not hold.
pub(crate) fn precondition(group: &str, kind: &str, name: &str, why: &str) -> Response {
    let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, kind));
    status(409, "Conflict", &message, of(name, group, kind))
}

pub(crate) fn without_version(group: &str, plural: &str, name: &str) -> Response {
    let why = "Invalid value: 0: must be specified for an update";
    let message =
        format!("{} {name:?} is invalid: metadata.resourceVersion: {why}", qualified(group, plural));
    let mut details = of(name, group, plural);
    details["causes"] =
        json!([{ "reason": "FieldValueInvalid", "message": why, "field": "metadata.resourceVersion" }]);
    status(422, "Invalid", &message, details)
}

/// An object with fields that its definition does not allow.
pub(crate) fn invalid(group: &str, kind: &str, name: &str, wrong: &[(String, String)]) -> Response {
    let all: Vec<String> = wrong.iter().map(|(field, why)| format!("{field}: {why}")).collect();
    let message = format!("{kind}.{group} {name:?} is invalid: [{}]", all.join(", "));
    let mut details = of(name, group, kind);
    let cause = |(field, why): &(String, String)| json!({ "reason": "FieldValueInvalid", "message": why, "field": field });
    details["causes"] = wrong.iter().map(cause).collect();
    status(422, "Invalid", &message, details)
}

pub(crate) fn bad(message: &str) -> Response {
    status(400, "BadRequest", message, Value::Null)
}

pub(crate) fn forbidden(user: &str, verb: &str, group: &str, plural: &str) -> Response {
    let message = format!(
        "{} is forbidden: User {user:?} cannot {verb} resource {plural:?} in API group {group:?} at the cluster scope",
        qualified(group, plural)
    );
    let mut details = json!({ "kind": plural });
    if !group.is_empty() {
        details["group"] = group.into();
    }
    status(403, "Forbidden", &message, details)
}

/// A version of the future.
pub(crate) fn too_new(asked: u64, current: u64) -> Response {
    let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
    let causes = json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]);
    let details = json!({ "causes": causes, "retryAfterSeconds": 1 });
    after(status(504, "Timeout", &message, details), 1)
}

/// Says when to ask again.
pub(crate) fn after(mut response: Response, seconds: u64) -> Response {
    let value = HeaderValue::from_str(&seconds.to_string()).unwrap();
    response.headers_mut().insert(header::RETRY_AFTER, value);
    response
}

/// A page of a list whose version is gone; the token goes on with what there is now.
pub(crate) fn page_gone(token: &str) -> Response {
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a new list \
                   without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
                   results. Continuing with the provided token results in an inconsistent list - objects that were created, \
                   modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": { "continue": token }, "status": "Failure", "message": message,
        "reason": "Expired", "code": 410,
    });
    (StatusCode::GONE, Json(body)).into_response()
}

pub(crate) fn list_gone() -> Response {
    status(410, "Expired", "The resourceVersion for the provided list is too old.", Value::Null)
}

/// The same within a watch.
pub(crate) fn watch_gone(asked: u64, current: u64) -> Value {
    json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": format!("too old resource version: {asked} ({current})"), "reason": "Expired", "code": 410,
    }})
}

pub(crate) fn initial_events() -> Response {
    let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: {why}");
    let causes =
        json!([{ "reason": "FieldValueForbidden", "message": why, "field": "resourceVersionMatch" }]);
    let details = json!({ "group": "meta.k8s.io", "kind": "ListOptions", "causes": causes });
    status(422, "Invalid", &message, details)
}
