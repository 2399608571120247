//! Owns the fields of a pod in Kubernetes' objects: which are read, and from where. Fields not named here are ignored:
//! Kubernetes' objects carry plenty.

use std::collections::{BTreeMap, HashSet};

use super::cursor::Cursor;
use super::error::ReadError;
use crate::name::ResourceName;
use crate::pod::{Container, OwnerReference, Pod, PodMetadata, PodOrigin, RestartPolicy};
use crate::requirements::{Requirements, ResourceList};
use crate::workload::ContainerKind;

/// Namespace of an object that names none.
const DEFAULT_NAMESPACE: &str = "default";

/// Containers of one kind in one pod. No pod has a hundred; etcd's limit of an object ends at some thousand.
const MAX_CONTAINERS: usize = 1000;

/// Reads an object of kind `Pod`.
pub(super) fn pod(object: &Cursor<'_>, origin: PodOrigin) -> Result<Pod, ReadError> {
    let metadata = metadata(object)?;
    if metadata.name.is_empty() {
        let remedy = "write the pod's name";
        let none = object.required("metadata", remedy)?;
        return Err(none.required("name", remedy).err().unwrap_or_else(|| none.invalid(remedy.to_owned())));
    }
    let spec = object.required("spec", "write the pod's spec with its containers")?;
    from_spec(&spec, metadata, origin)
}

/// Reads the pod template at `template` of the object `owner`.
pub(super) fn templated(
    owner: &Cursor<'_>,
    template: &Cursor<'_>,
    origin: PodOrigin,
) -> Result<Pod, ReadError> {
    let outer = metadata(owner)?;
    let inner = metadata(template)?;
    let controller = OwnerReference {
        kind: origin.kind.clone(),
        name: outer.name.clone(),
        uid: outer.uid.clone(),
        controller: true,
    };
    // The pods made from a template get uids of their own, so none is known here.
    let metadata = PodMetadata {
        name: outer.name,
        namespace: outer.namespace,
        uid: None,
        owners: vec![controller],
        ..inner
    };
    let spec = template.required("spec", "write the template's spec with its containers")?;
    from_spec(&spec, metadata, origin)
}

fn from_spec(spec: &Cursor<'_>, metadata: PodMetadata, origin: PodOrigin) -> Result<Pod, ReadError> {
    let mut names = HashSet::new();
    let containers = containers(spec, "containers", &mut names)?;
    if containers.is_empty() {
        let field = spec.required("containers", "write at least one container")?;
        return Err(field.invalid("the pod has no container; write at least one".to_owned()));
    }
    Ok(Pod {
        metadata,
        origin,
        containers,
        init_containers: self::containers(spec, "initContainers", &mut names)?,
        ephemeral_containers: self::containers(spec, "ephemeralContainers", &mut names)?,
        overhead: list(spec, "overhead")?,
        resources: spec.field("resources")?.map(|field| requirements(&field)).transpose()?,
        priority_class_name: text(spec, "priorityClassName")?,
        priority: spec.field("priority")?.map(|field| field.integer()).transpose()?,
        node_name: text(spec, "nodeName")?,
        restart_policy: restart_policy(spec)?,
    })
}

fn metadata(object: &Cursor<'_>) -> Result<PodMetadata, ReadError> {
    let named = |namespace: Option<String>| namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
    let Some(metadata) = object.field("metadata")? else {
        return Ok(PodMetadata { namespace: named(None), ..PodMetadata::default() });
    };
    let name = match text(&metadata, "name")? {
        Some(name) => name,
        None => text(&metadata, "generateName")?.unwrap_or_default(),
    };
    Ok(PodMetadata {
        name,
        namespace: named(text(&metadata, "namespace")?),
        uid: text(&metadata, "uid")?,
        labels: texts_by_key(&metadata, "labels")?,
        annotations: texts_by_key(&metadata, "annotations")?,
        owners: owners(&metadata)?,
    })
}

fn owners(metadata: &Cursor<'_>) -> Result<Vec<OwnerReference>, ReadError> {
    let Some(references) = metadata.field("ownerReferences")? else { return Ok(Vec::new()) };
    let read = |reference: Cursor<'_>| {
        Ok(OwnerReference {
            kind: reference.required("kind", "write the owner's kind")?.text()?,
            name: reference.required("name", "write the owner's name")?.text()?,
            uid: text(&reference, "uid")?,
            controller: reference
                .field("controller")?
                .is_some_and(|field| matches!(field.boolean(), Ok(true))),
        })
    };
    references.elements()?.into_iter().map(read).collect()
}

fn containers(
    spec: &Cursor<'_>,
    group: &str,
    names: &mut HashSet<String>,
) -> Result<Vec<Container>, ReadError> {
    let Some(list) = spec.field(group)? else { return Ok(Vec::new()) };
    let mut containers = Vec::new();
    let elements = list.elements()?;
    if elements.len() > MAX_CONTAINERS {
        let text = format!(
            "{} are more than the {MAX_CONTAINERS} containers that are read; split the pod",
            elements.len()
        );
        return Err(list.invalid(text));
    }
    for element in elements {
        let container = container(&element, group == "initContainers")?;
        if !names.insert(container.name.clone()) {
            let text = format!("a second container is named {:?}; names are unique in a pod", container.name);
            return Err(element.invalid(text));
        }
        containers.push(container);
    }
    Ok(containers)
}

fn container(element: &Cursor<'_>, init: bool) -> Result<Container, ReadError> {
    let always = text(element, "restartPolicy")?.as_deref() == Some("Always");
    let kind = match (init, always) {
        (true, true) => ContainerKind::Sidecar,
        (true, false) => ContainerKind::Init,
        (false, _) => ContainerKind::Regular,
    };
    let name = element.required("name", "write the container's name")?;
    let name = match name.text()? {
        text if text.is_empty() => {
            return Err(name.invalid("the container's name is empty; write one".to_owned()));
        }
        text => text,
    };
    Ok(Container {
        name,
        kind,
        image: text(element, "image")?,
        command: texts(element, "command")?,
        args: texts(element, "args")?,
        resources: element
            .field("resources")?
            .map(|field| requirements(&field))
            .transpose()?
            .unwrap_or_default(),
    })
}

/// Reads `requests` and `limits`.
pub(super) fn requirements(resources: &Cursor<'_>) -> Result<Requirements, ReadError> {
    Ok(Requirements { requests: list(resources, "requests")?, limits: list(resources, "limits")? })
}

fn list(object: &Cursor<'_>, name: &str) -> Result<ResourceList, ReadError> {
    let Some(field) = object.field(name)? else { return Ok(ResourceList::new()) };
    let mut list = ResourceList::new();
    for (key, entry) in field.fields()? {
        let resource = ResourceName::parse(key).map_err(|error| entry.invalid(error.to_string()))?;
        list.insert(resource, entry.quantity()?).map_err(|error| entry.invalid(error.to_string()))?;
    }
    Ok(list)
}

fn restart_policy(spec: &Cursor<'_>) -> Result<RestartPolicy, ReadError> {
    let Some(field) = spec.field("restartPolicy")? else { return Ok(RestartPolicy::default()) };
    match field.text()?.as_str() {
        "Always" => Ok(RestartPolicy::Always),
        "OnFailure" => Ok(RestartPolicy::OnFailure),
        "Never" => Ok(RestartPolicy::Never),
        other => {
            Err(field.invalid(format!("{other:?} is not a restart policy; use Always, OnFailure or Never")))
        }
    }
}

fn text(object: &Cursor<'_>, name: &str) -> Result<Option<String>, ReadError> {
    object.field(name)?.map(|field| field.text()).transpose()
}

fn texts(object: &Cursor<'_>, name: &str) -> Result<Vec<String>, ReadError> {
    match object.field(name)? {
        Some(field) => field.elements()?.iter().map(Cursor::text).collect(),
        None => Ok(Vec::new()),
    }
}

fn texts_by_key(object: &Cursor<'_>, name: &str) -> Result<BTreeMap<String, String>, ReadError> {
    match object.field(name)? {
        Some(field) => {
            field.fields()?.into_iter().map(|(key, entry)| Ok((key.to_owned(), entry.text()?))).collect()
        }
        None => Ok(BTreeMap::new()),
    }
}
