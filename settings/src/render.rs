//! The configuration as text: TOML with each key's comment, JSON, JSON schema.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The JSON schema of a configuration.
pub fn schema<T: JsonSchema>() -> Value {
    schemars::schema_for!(T).to_value()
}

/// The values as JSON.
pub fn json<T: Serialize>(config: &T) -> Value {
    serde_json::to_value(config).unwrap_or(Value::Null)
}

/// The values as TOML, each key below its comment. A key without a value stands as a comment alone.
pub fn toml<T: Serialize + JsonSchema>(config: &T) -> String {
    let root = schema::<T>();
    let mut out = String::new();
    if let Value::Object(values) = json(config) {
        table(&mut out, &root, &root, &values, "");
    }
    out
}

/// Plain keys first, then tables, as TOML needs it. `root` is the whole schema, `schema` that of this table.
fn table(out: &mut String, root: &Value, schema: &Value, values: &Map<String, Value>, path: &str) {
    for (key, value) in values.iter().filter(|(_, value)| !is_table(value)) {
        comment(out, schema, key);
        // JSON's strings, numbers, truth values and lists of these are TOML's.
        let _ = match value {
            Value::Null => writeln!(out, "# {} =", quoted(key)),
            value => writeln!(out, "{} = {}", quoted(key), inline(value)),
        };
    }
    unset(out, schema, values);
    for (key, value) in values.iter().filter(|(_, value)| is_table(value)) {
        let inner = resolve(root, &schema["properties"][key]);
        let path = if path.is_empty() { quoted(key) } else { format!("{path}.{}", quoted(key)) };
        out.push('\n');
        comment(out, schema, key);
        match value {
            Value::Object(values) => {
                let _ = writeln!(out, "[{path}]");
                table(out, root, inner, values, &path);
            }
            list => {
                let item = resolve(root, &inner["items"]);
                for (index, values) in list.as_array().into_iter().flatten().enumerate() {
                    let between = if index == 0 { "" } else { "\n" };
                    let _ = writeln!(out, "{between}[[{path}]]");
                    table(out, root, item, values.as_object().unwrap_or(&Map::new()), &path);
                }
            }
        }
    }
}

/// Keys that have no default and are not set.
fn unset(out: &mut String, schema: &Value, values: &Map<String, Value>) {
    let Some(known) = schema["properties"].as_object() else { return };
    for key in known.keys().filter(|key| !values.contains_key(*key)) {
        comment(out, schema, key);
        let _ = writeln!(out, "# {} =", quoted(key));
    }
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

/// Whether a dotted key is one of the configuration's.
pub(crate) fn is_known(root: &Value, key: &str) -> bool {
    let mut schema = root;
    for part in key.split('.') {
        let inner = &schema["properties"][part];
        if inner.is_null() {
            return !schema["additionalProperties"].is_null()
                && schema["additionalProperties"] != Value::Bool(false);
        }
        schema = resolve(root, inner);
    }
    true
}

/// Whether a value is written with a head of its own: a table, or a list of tables.
fn is_table(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(list) => !list.is_empty() && list.iter().all(Value::is_object),
        _ => false,
    }
}

/// A value in one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(table) => {
            let inner: Vec<String> =
                table.iter().map(|(key, value)| format!("{} = {}", quoted(key), inline(value))).collect();
            format!("{{ {} }}", inner.join(", "))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(",")),
        value => value.to_string(),
    }
}

/// A key as TOML takes it.
fn quoted(key: &str) -> String {
    let bare = key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare && !key.is_empty() { key.to_owned() } else { Value::from(key).to_string() }
}
