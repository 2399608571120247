//! The configuration as text: TOML with each key's comment, JSON, JSON schema.

use std::fmt::Write;

use serde_json::{Map, Value};

use super::raw::Raw;

/// The JSON schema of the file.
pub(crate) fn schema() -> Value {
    schemars::schema_for!(Raw).to_value()
}

/// The values as JSON.
pub(crate) fn json(raw: &Raw) -> Value {
    serde_json::to_value(raw).unwrap_or(Value::Null)
}

/// The values as TOML, each key below its comment.
pub(crate) fn toml(raw: &Raw) -> String {
    let schema = schema();
    let mut out = String::new();
    if let Value::Object(values) = json(raw) {
        table(&mut out, &schema, &schema, &values, "");
    }
    out
}

/// Plain keys first, then tables, as TOML needs it.
fn table(out: &mut String, root: &Value, schema: &Value, values: &Map<String, Value>, path: &str) {
    for (key, value) in values.iter().filter(|(_, value)| !value.is_object()) {
        comment(out, schema, key);
        // JSON's strings, numbers, truth values and lists of these are TOML's.
        let _ = writeln!(out, "{} = {value}", quoted(key));
    }
    for (key, value) in values {
        let Value::Object(inner) = value else { continue };
        let path = if path.is_empty() { quoted(key) } else { format!("{path}.{}", quoted(key)) };
        out.push('\n');
        comment(out, schema, key);
        let _ = writeln!(out, "[{path}]");
        table(out, root, resolve(root, &schema["properties"][key]), inner, &path);
    }
}

/// A key as TOML takes it.
fn quoted(key: &str) -> String {
    let bare = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { key.to_owned() } else { Value::from(key).to_string() }
}

fn comment(out: &mut String, schema: &Value, key: &str) {
    let text = schema["properties"][key]["description"].as_str().unwrap_or_default();
    for line in text.lines() {
        let _ = writeln!(out, "# {line}");
    }
}

/// Follows a `$ref` to the schema it names.
fn resolve<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#'));
    name.and_then(|pointer| root.pointer(pointer)).unwrap_or(schema)
}
