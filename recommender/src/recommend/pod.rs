//! Owns the answer for one pod, existing or not: its containers, their advice, and the resources that follow from it.

use evenkeel_model::name::ResourceName;
use evenkeel_model::pod::{Pod, ReadError, read_pods};
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::Requirements;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::initial::Params;
use serde_json::{Map, Value};

use super::{Of, advise, recommendation};
use crate::state::State;
use crate::state::image::Image;

/// The advice for one container of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerAdvice {
    /// Its name.
    pub name: String,
    /// What it asked for, with the recommended requests in their place.
    pub resources: Requirements,
    /// The recommendations behind them, CPU first.
    pub recommendations: Vec<v1::Recommendation>,
}

/// Reads one pod from YAML or JSON. A JSON object with a `spec` but without a kind is taken as a pod, and one that is yet
/// to be created needs no name.
///
/// # Errors
/// [`ReadError`] naming document, field and line.
pub fn read(text: &str) -> Result<Pod, ReadError> {
    let completed = serde_json::from_str::<Value>(text).ok().and_then(completed);
    let mut pods = read_pods(completed.as_deref().unwrap_or(text), "request")?;
    // The reader returns at least one.
    Ok(pods.swap_remove(0))
}

/// The object with what the API server would fill in; nothing where nothing is missing.
fn completed(mut value: Value) -> Option<String> {
    const UNNAMED: &str = "unnamed";
    let object = value.as_object_mut()?;
    if object.get("kind").is_some_and(|kind| kind != "Pod") || !object.contains_key("spec") {
        return None;
    }
    object.insert("kind".to_owned(), "Pod".into());
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    if metadata.get("name").is_none_or(Value::is_null) {
        let generated = metadata.get("generateName").and_then(Value::as_str).unwrap_or(UNNAMED);
        let name = generated.trim_end_matches(['-', '.']).to_owned();
        metadata.insert("name".to_owned(), name.into());
    }
    Some(value.to_string())
}

/// Recommends for every container that counts for the scheduler.
pub fn advise_pod(state: &State, params: &Params, now_usec: u64, pod: &Pod) -> Vec<ContainerAdvice> {
    let workload = workload_of(pod);
    let containers = pod.counted_containers().map(|container| {
        let asked = container.cpu_and_memory();
        let image = container.image.as_deref().and_then(Image::parse);
        let of = Of {
            namespace: &pod.metadata.namespace,
            workload: &workload,
            container: &container.name,
            image: image.as_ref(),
        };
        let mut resources = container.resources.clone();
        let mut recommendations = Vec::new();
        for resource in Resource::ALL {
            let (current, limit) = match resource {
                Resource::Cpu => (asked.cpu_request.map(|m| m.get()), asked.cpu_limit.map(|m| m.get())),
                Resource::Memory => {
                    (asked.memory_request.map(|b| b.get()), asked.memory_limit.map(|b| b.get()))
                }
            };
            let advice = advise(state, params, now_usec, image.as_ref(), resource, current, limit);
            if let Some(request) = advice.answer.request {
                let (name, amount) = quantity(resource, request);
                resources.requests.set(name, amount);
            }
            recommendations.push(recommendation(&of, resource, current, advice));
        }
        ContainerAdvice { name: container.name.clone(), resources, recommendations }
    });
    containers.collect()
}

/// An amount in the resource's own units.
fn quantity(resource: Resource, amount: u64) -> (ResourceName, Quantity) {
    match resource {
        Resource::Cpu => (ResourceName::CPU, Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX))),
        Resource::Memory => (ResourceName::MEMORY, Quantity::from_bytes(amount)),
    }
}

/// Name of the controller, as agents report it, or of the pod.
fn workload_of(pod: &Pod) -> String {
    match pod.controller() {
        Some(owner) => format!("{}/{}", owner.kind.to_lowercase(), owner.name),
        None => pod.metadata.name.clone(),
    }
}
