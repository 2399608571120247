//! Recorded exchanges, as facts to compare with.

use serde_json::Value;

/// The exchanges of a file of `recordings/`.
pub(crate) fn exchanges(file: &str) -> Vec<Value> {
    let text = match file {
        "pods" => include_str!("../recordings/pods.json"),
        "errors" => include_str!("../recordings/errors.json"),
        "leases" => include_str!("../recordings/leases.json"),
        "objects" => include_str!("../recordings/objects.json"),
        "vpa" => include_str!("../recordings/vpa.json"),
        "discovery" => include_str!("../recordings/discovery.json"),
        other => panic!("no recording {other}"),
    };
    let mut file: Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(file["exchanges"].take()).unwrap()
}

/// The answer of the exchange whose note begins so.
pub(crate) fn body(file: &str, note: &str) -> Value {
    let found =
        exchanges(file).into_iter().find(|exchange| exchange["note"].as_str().unwrap().starts_with(note));
    found.unwrap_or_else(|| panic!("no exchange {note}"))["response"]["body"].take()
}
