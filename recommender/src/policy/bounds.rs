//! LimitRange and ResourceQuota objects that are applied over the interfaces, as policies are: reading them, and what the
//! API server would refuse.
//!
//! Not owned: keeping them (`store`), what follows from them (`recommend::limits`, `capacity`).

use std::fmt;

use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::{LimitRange, LimitRangeItem, ResourceList, ResourceQuota};
use evenkeel_model::yaml::{self, YamlBounds as TextBounds};
use evenkeel_rightsizing::policy::PolicyError;
use serde_json::{Value, json};

use crate::audit::Object;

/// Kinds that are taken.
pub const KINDS: [&str; 2] = ["LimitRange", "ResourceQuota"];
/// What one text may hold: a limit range has a few dozen amounts.
const TEXT: TextBounds = TextBounds { documents: 2, nodes: 4_000 };
/// Largest text of one object, bytes.
const MAX_BYTES: usize = 64 << 10;
/// Longest name (RFC 1123 subdomain, as Kubernetes bounds names of objects), and of a namespace (a label).
const MAX_NAME: usize = 253;
const MAX_NAMESPACE: usize = 63;

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundKey {
    /// One of [`KINDS`].
    pub kind: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl BoundKey {
    /// As the audit record names it.
    pub(crate) fn object(&self) -> Object {
        Object::new(&self.kind, &self.namespace, &self.name)
    }
}

impl fmt::Display for BoundKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// One object.
#[derive(Debug, Clone)]
pub struct BoundObject {
    /// Which.
    pub key: BoundKey,
    /// The object: kind, name, spec and status.
    pub object: Value,
    /// The limit range, where it is one.
    pub range: Option<LimitRange>,
    /// The quota, where it is one.
    pub quota: Option<ResourceQuota>,
}

/// The kind of an object, where it is one of these.
pub fn kind_of(text: &str) -> Option<String> {
    let object = document(text).ok()?;
    let kind = object["kind"].as_str().filter(|kind| KINDS.contains(kind));
    kind.map(str::to_owned)
}

/// Reads exactly one object, in YAML or JSON.
///
/// # Errors
/// [`PolicyError`] naming the field.
pub fn read(text: &str) -> Result<BoundObject, PolicyError> {
    let written = document(text).map_err(|why| wrong("object", why, "write YAML or JSON, at most 64 KiB"))?;
    let kind = written["kind"].as_str().unwrap_or("").to_owned();
    if !KINDS.contains(&kind.as_str()) {
        return Err(wrong(
            "kind",
            format!("{kind:?} is not taken"),
            &format!("write {}", KINDS.join(" or ")),
        ));
    }
    let version = &written["apiVersion"];
    if !version.is_null() && version != "v1" {
        return Err(wrong("apiVersion", format!("{version} is not known"), "write v1"));
    }
    let name = named(&written, "name", MAX_NAME)?.unwrap_or_default();
    if name.is_empty() {
        return Err(wrong("metadata.name", "it is missing", "give a name"));
    }
    let namespace = named(&written, "namespace", MAX_NAMESPACE)?.unwrap_or_else(|| "default".to_owned());
    let mut object = json!({
        "apiVersion": "v1", "kind": kind, "metadata": { "name": name, "namespace": namespace }, "spec": written["spec"],
    });
    if !written["status"].is_null() {
        object["status"] = written["status"].clone();
    }
    let (mut ranges, mut quotas) = typed(&object)?;
    let (range, quota) = (ranges.pop(), quotas.pop());
    range.iter().try_for_each(|range| checked(&range.spec.limits))?;
    quota.iter().try_for_each(|quota| whole("spec.hard", &quota.spec.hard))?;
    Ok(BoundObject { key: BoundKey { kind, namespace, name }, object, range, quota })
}

fn typed(object: &Value) -> Result<(Vec<LimitRange>, Vec<ResourceQuota>), PolicyError> {
    let mut loader = Loader::new();
    let read = loader.document(object);
    read.map_err(|error| wrong("object", error.to_string(), "correct the field"))?;
    let (cluster, _) = loader.finish();
    Ok((cluster.limit_ranges, cluster.quotas))
}

fn document(text: &str) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it has {} bytes, over {MAX_BYTES}", text.len()));
    }
    if let Ok(object) = serde_json::from_str(text) {
        return Ok(object);
    }
    let mut all: Vec<Value> = yaml::documents(text, TEXT).map_err(|error| error.to_string())?;
    all.retain(|document| !document.is_null());
    match (all.pop(), all.len()) {
        (Some(object), 0) => Ok(object),
        (last, more) => {
            Err(format!("it holds {} objects; give one at a time", more + usize::from(last.is_some())))
        }
    }
}

fn named(object: &Value, key: &str, most: usize) -> Result<Option<String>, PolicyError> {
    let place = format!("metadata.{key}");
    let text = match &object["metadata"][key] {
        Value::Null => return Ok(None),
        Value::String(text) => text,
        other => return Err(wrong(&place, format!("{other} is no text"), "give a name")),
    };
    let is_in_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    if text.len() > most || !text.bytes().all(is_in_name) {
        let remedy = format!("give at most {most} of a-z, 0-9, - and .");
        return Err(wrong(&place, format!("{text:?} is no name"), &remedy));
    }
    Ok((!text.is_empty()).then(|| text.clone()))
}

/// What the API server refuses of a limit range (`ValidateLimitRange`), of items of containers and pods.
fn checked(items: &[LimitRangeItem]) -> Result<(), PolicyError> {
    for (index, item) in items.iter().enumerate() {
        let at = |field: &str| format!("spec.limits[{index}].{field}");
        let lists = [
            ("min", &item.min),
            ("defaultRequest", &item.default_request),
            ("default", &item.default_limit),
            ("max", &item.max),
        ];
        for (place, (field, list)) in lists.iter().enumerate() {
            whole(&at(field), list)?;
            for (name, amount) in *list {
                let above =
                    lists[place + 1..].iter().find(|(_, of)| of.get(name).is_some_and(|most| most < amount));
                if let Some((above, _)) = above {
                    let why = format!("{name} {amount} is more than that of {above}");
                    return Err(wrong(&at(field), why, "order them min, defaultRequest, default, max"));
                }
            }
        }
        let small = item.max_limit_request_ratio.iter().find(|(_, ratio)| ratio.milli() < 1000);
        if let Some((name, ratio)) = small {
            let why = format!("{name} {ratio} is below 1");
            return Err(wrong(&at("maxLimitRequestRatio"), why, "give 1 or more"));
        }
    }
    Ok(())
}

fn whole(place: &str, list: &ResourceList) -> Result<(), PolicyError> {
    match list.iter().find(|(_, amount)| amount.is_negative()) {
        Some((name, amount)) => {
            Err(wrong(place, format!("{name} {amount} is below zero"), "give zero or more"))
        }
        None => Ok(()),
    }
}

fn wrong(place: &str, why: impl Into<String>, remedy: &str) -> PolicyError {
    PolicyError { place: place.to_owned(), why: why.into(), remedy: remedy.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_and_what_the_api_server_refuses_is_refused() {
        let range = "kind: LimitRange\nmetadata: {name: b, namespace: shop, uid: x}\nspec: {limits: [{type: Container, max: {cpu: 2}}]}";
        let bound = read(range).unwrap();
        assert_eq!((bound.key.to_string().as_str(), bound.range.is_some()), ("LimitRange shop/b", true));
        assert_eq!(bound.object["metadata"], json!({"name": "b", "namespace": "shop"}));
        assert_eq!(read(&bound.object.to_string()).unwrap().object, bound.object, "it is read as it is kept");
        let quota = read(
            "kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {pods: 3}}\nstatus: {used: {pods: 1}}",
        );
        let quota = quota.unwrap();
        assert_eq!((quota.key.namespace.as_str(), quota.quota.unwrap().status.used.len()), ("default", 1));
        assert_eq!((kind_of(range).as_deref(), kind_of("kind: Policy")), (Some("LimitRange"), None));
        let item = |item: &str| {
            format!(
                "kind: LimitRange\nmetadata: {{name: b}}\nspec: {{limits: [{{type: Container, {item}}}]}}"
            )
        };
        for (text, why) in [
            ("kind: LimitRange\nspec: {limits: []}".to_owned(), "metadata.name: it is missing"),
            ("kind: LimitRange\nmetadata: {name: A_}".to_owned(), "metadata.name"),
            ("kind: LimitRange\nmetadata: {name: 3}".to_owned(), "metadata.name: 3 is no text"),
            ("kind: Node\nmetadata: {name: n}".to_owned(), "kind: \"Node\" is not taken"),
            ("apiVersion: v2\nkind: LimitRange\nmetadata: {name: n}".to_owned(), "apiVersion"),
            (item("min: {cpu: much}"), "spec.limits[0].min.cpu"),
            (item("min: {cpu: 3}, max: {cpu: 2}"), "spec.limits[0].min: cpu 3 is more than that of max"),
            (item("default: {memory: 1Gi}, defaultRequest: {memory: 2Gi}"), "spec.limits[0].defaultRequest"),
            (item("max: {cpu: -1}"), "spec.limits[0].max: cpu -1 is below zero"),
            (
                item("maxLimitRequestRatio: {cpu: 500m}"),
                "spec.limits[0].maxLimitRequestRatio: cpu 500m is below 1",
            ),
            ("kind: ResourceQuota\nmetadata: {name: q}\nspec: {hard: {cpu: -1}}".to_owned(), "spec.hard"),
            (format!("{range}\n---\n{range}"), "2 objects"),
            (format!("{range}\n#{}", "x".repeat(MAX_BYTES)), "over 65536"),
        ] {
            let told = read(&text).unwrap_err().to_string();
            assert!(told.contains(why), "{why}: {told}");
        }
    }
}
