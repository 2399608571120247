//! The shipped definition of Evenkeel's own objects, as an API server applies it: what it takes as a definition, and what becomes of an object:
//! unknown fields pruned, defaults set, values and rules checked.

use std::collections::BTreeSet;

use evenkeel_model::quantity::Quantity;
use evenkeel_model::yaml::{self, YamlBounds};
use serde_json::{Map, Value, json};

use super::cel;

/// What a schema of the definition may say; an API server takes more, and refuses what it does not know.
const KEYWORDS: [&str; 24] = [
    "additionalProperties",
    "anyOf",
    "default",
    "description",
    "enum",
    "exclusiveMinimum",
    "format",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minLength",
    "minimum",
    "pattern",
    "properties",
    "required",
    "type",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
    "nullable",
];
/// The one pattern: quantities that are not negative, as definitions of Kubernetes' own projects have it.
const QUANTITY: &str = r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// A definition of a kind.
#[derive(Debug)]
pub(crate) struct Definition {
    /// The object that it is.
    pub(crate) object: Value,
}

impl Definition {
    pub(crate) fn shipped() -> Self {
        let text = include_str!("../../../packaging/kubernetes/crd.yaml");
        let mut all: Vec<Value> = yaml::documents(text, YamlBounds { documents: 2, nodes: 10_000 }).unwrap();
        assert_eq!(all.len(), 1);
        Self { object: all.remove(0) }
    }

    pub(crate) fn version(&self) -> &Value {
        &self.object["spec"]["versions"][0]
    }

    pub(crate) fn schema(&self) -> &Value {
        &self.version()["schema"]["openAPIV3Schema"]
    }

    /// What becomes of an object that is written, or the fields that are wrong.
    pub(crate) fn admit(&self, object: &mut Value) -> Result<(), Vec<(String, String)>> {
        let metadata = object["metadata"].take();
        pruned(self.schema(), object);
        defaulted(self.schema(), object);
        let mut wrong = Vec::new();
        check(self.schema(), object, "", &mut wrong);
        object["metadata"] = metadata;
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The same of its status alone.
    pub(crate) fn admit_status(&self, object: &mut Value) -> Result<(), Vec<(String, String)>> {
        let (schema, status) = (&self.schema()["properties"]["status"], &mut object["status"]);
        pruned(schema, status);
        let mut wrong = Vec::new();
        check(schema, status, "status", &mut wrong);
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Why it is no structural schema; nothing where it is one.
    pub(crate) fn not_structural(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        structural(self.schema(), "", true, &mut wrong);
        wrong
    }
}

fn list<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[], |all| all)
}

fn fields(schema: &Value) -> &Map<String, Value> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    schema["properties"].as_object().unwrap_or(&NONE)
}

fn below(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// The rules of `k8s.io/apiextensions-apiserver`, `pkg/apiserver/schema/validation.go`, as far as its keywords go. A rule's cost is bounded
/// where lists, maps and strings around and under it are.
fn structural(schema: &Value, place: &str, is_root: bool, wrong: &mut Vec<String>) {
    let is = |key: &str| schema[key] == true;
    let mut say = |what: String| wrong.push(format!("{place}: {what}"));
    for key in schema.as_object().unwrap().keys().filter(|key| !KEYWORDS.contains(&key.as_str())) {
        say(format!("{key} is not allowed"));
    }
    let kind = schema["type"].as_str();
    if is("x-kubernetes-int-or-string") {
        if kind.is_some() || schema["anyOf"] != json!([{ "type": "integer" }, { "type": "string" }]) {
            say("a number or string has no type of its own, and anyOf both".into());
        }
    } else if kind.is_none() || !schema["anyOf"].is_null() {
        say("it has a type, and no anyOf".into());
    }
    let has = |key: &str| !schema[key].is_null();
    match kind {
        Some("array") if !has("items") => say("what it is a list of is not told".into()),
        Some("object")
            if !has("properties")
                && !has("additionalProperties")
                && !is("x-kubernetes-preserve-unknown-fields")
                && !place.starts_with("metadata") =>
        {
            say("it has no fields".into());
        }
        _ => {}
    }
    if has("properties") && has("additionalProperties") {
        say("it has fields and any fields".into());
    }
    if has("pattern") && schema["pattern"] != QUANTITY {
        say("its pattern is not known here".into());
    }
    let is_kind =
        |kind: &str| matches!(kind, "array" | "boolean" | "integer" | "number" | "object" | "string");
    if kind.is_some_and(|kind| !is_kind(kind)) || (is_root && kind != Some("object")) {
        say(format!("type {kind:?}"));
    }
    for key in
        list(schema, "required").iter().filter(|key| !fields(schema).contains_key(key.as_str().unwrap()))
    {
        say(format!("{key} is required and no field"));
    }
    if schema["x-kubernetes-list-type"] == "map" {
        let needed = list(&schema["items"], "required");
        for key in list(schema, "x-kubernetes-list-map-keys").iter().filter(|key| !needed.contains(key)) {
            say(format!("the key {key} is not required"));
        }
    }
    if has("default") {
        let mut twin = schema["default"].clone();
        pruned(schema, &mut twin);
        let mut why = Vec::new();
        check(schema, &twin, place, &mut why);
        if twin != schema["default"] || !why.is_empty() {
            say(format!("its default is wrong: {why:?}"));
        }
    }
    for rule in list(schema, "x-kubernetes-validations") {
        let message = rule["message"].as_str().unwrap_or_default();
        if message.is_empty() || message.contains('\n') {
            say(format!("rule {} has no message of one line", rule["rule"]));
        }
    }
    for (name, field) in fields(schema) {
        structural(field, &below(place, name), false, wrong);
    }
    for (inner, bound) in [("items", "maxItems"), ("additionalProperties", "maxProperties")] {
        if !schema[inner].is_object() {
            continue;
        }
        structural(&schema[inner], &below(place, "[]"), false, wrong);
        if has_rules(&schema[inner]) && schema[bound].is_null() {
            wrong.push(format!("{place}: there are rules under it, and no {bound}"));
        }
    }
}

fn has_rules(schema: &Value) -> bool {
    let inner = fields(schema).values().chain([&schema["items"], &schema["additionalProperties"]]);
    !list(schema, "x-kubernetes-validations").is_empty() || inner.filter(|s| s.is_object()).any(has_rules)
}

/// Takes out fields that the schema does not have, and what is null.
fn pruned(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            let keeps = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let any = schema["additionalProperties"].is_object();
            object.retain(|name, value| {
                (keeps || any || fields(schema).contains_key(name)) && !value.is_null()
            });
            for (name, value) in object {
                match fields(schema).get(name) {
                    Some(field) => pruned(field, value),
                    None if any => pruned(&schema["additionalProperties"], value),
                    None => {}
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| pruned(&schema["items"], one)),
        _ => {}
    }
}

fn defaulted(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(object) => {
            for (name, field) in fields(schema) {
                if !field["default"].is_null() && !object.contains_key(name) {
                    object.insert(name.clone(), field["default"].clone());
                }
                if let Some(value) = object.get_mut(name) {
                    defaulted(field, value);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| defaulted(&schema["items"], one)),
        _ => {}
    }
}

/// Whether a value is of a type, in the words of a schema.
fn is_of(schema: &Value, value: &Value) -> bool {
    if schema["x-kubernetes-int-or-string"] == true {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        _ => true,
    }
}

fn check(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<(String, String)>) {
    let before = wrong.len();
    let mut say = |what: String| wrong.push((place.to_owned(), what));
    if !is_of(schema, value) {
        return say(format!("Invalid value: {value}: must be of type {}", schema["type"]));
    }
    if !schema["enum"].is_null() && !list(schema, "enum").contains(value) {
        say(format!("Unsupported value: {value}: supported values: {}", schema["enum"]));
    }
    let most = |key: &str| schema[key].as_u64().map_or(usize::MAX, |most| most as usize);
    match value {
        Value::String(text) => {
            let length = text.chars().count();
            if length > most("maxLength") || (length as u64) < schema["minLength"].as_u64().unwrap_or(0) {
                say(format!("Invalid value: {value}: it is too long or too short"));
            }
            let is_quantity = || Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative());
            if schema["pattern"] == QUANTITY && !is_quantity() {
                say(format!("Invalid value: {value}: should match '{QUANTITY}'"));
            }
        }
        Value::Number(number) => {
            let number = number.as_f64().unwrap();
            let least = schema["minimum"].as_f64().unwrap_or(f64::MIN);
            let is_low = number < least || (number == least && schema["exclusiveMinimum"] == true);
            if is_low || number > schema["maximum"].as_f64().unwrap_or(f64::MAX) {
                say(format!("Invalid value: {value}: it is out of bounds"));
            }
        }
        Value::Object(object) => {
            for key in list(schema, "required").iter().filter_map(Value::as_str) {
                if !object.contains_key(key) {
                    wrong.push((below(place, key), "Required value".to_owned()));
                }
            }
            if object.len() > most("maxProperties") {
                wrong.push((place.to_owned(), "Too many".to_owned()));
            }
            for (name, value) in object {
                let field = fields(schema).get(name).unwrap_or(&schema["additionalProperties"]);
                check(field, value, &below(place, name), wrong);
            }
        }
        Value::Array(all) => {
            if all.len() > most("maxItems") {
                say(format!("Too many: {}", all.len()));
            }
            let keys = list(schema, "x-kubernetes-list-map-keys");
            let mut seen = BTreeSet::new();
            for (at, one) in all.iter().enumerate() {
                let key: Vec<String> =
                    keys.iter().map(|key| one[key.as_str().unwrap()].to_string()).collect();
                if !keys.is_empty() && !seen.insert(key) {
                    wrong.push((format!("{place}[{at}]"), "Duplicate value".to_owned()));
                }
                check(&schema["items"], one, &format!("{place}[{at}]"), wrong);
            }
        }
        _ => {}
    }
    if wrong.len() > before {
        // A value that is no such thing is not asked.
        return;
    }
    for rule in list(schema, "x-kubernetes-validations") {
        let told = match cel::holds(rule["rule"].as_str().unwrap(), value) {
            Ok(true) => continue,
            Ok(false) => rule["message"].as_str().unwrap().to_owned(),
            Err(why) => why,
        };
        wrong.push((place.to_owned(), format!("Invalid value: {told}")));
    }
}
