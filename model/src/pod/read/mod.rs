//! Owns reading pods from ordinary Kubernetes YAML or JSON: Pods, Lists, and the templates of the objects that make
//! pods. Other objects are skipped and listed. The text is an argument: no file is opened here.
//!
//! Bounds: 8 MiB of text unless said otherwise, 64 levels of nesting, and limits on what YAML aliases may add.

mod cursor;
mod error;
mod fields;
mod syntax;
mod tree;

use cursor::{Cursor, ManifestSource};
pub use error::{ReadError, ReadReason};

use super::{Pod, PodOrigin};
use crate::requirements::Requirements;

/// Text that is read unless said otherwise, in bytes.
pub const MAX_TEXT_BYTES: usize = 8 << 20;
/// Text of one pod, in bytes: etcd's limit of an object, which no pod of Kubernetes exceeds.
pub const MAX_POD_BYTES: usize = 1536 << 10;
/// Commas in the text of one pod, within strings too: each may stand for a value, which takes some fifty bytes of memory.
const MAX_POD_COMMAS: usize = 200_000;
/// Objects of one text that are told as unreadable.
const MAX_ERRORS: usize = 1000;
/// Lists within lists that are read.
const MAX_LIST_DEPTH: usize = 8;

/// What a source holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodObjects {
    /// Pods and pod templates in their order.
    pub pods: Vec<Pod>,
    /// Objects that are neither, in their order.
    pub skipped: Vec<SkippedObject>,
    /// Why others could not be read, in their order; at most a thousand.
    pub errors: Vec<ReadError>,
}

/// An object that is no pod and holds no pod template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedObject {
    /// Place of its document in the source, from 0.
    pub document: usize,
    /// Its kind.
    pub kind: String,
    /// Its name, empty where it has none.
    pub name: String,
}

/// Reads the pods of a text of at most [`MAX_TEXT_BYTES`]; `source_name` stands in the errors.
///
/// # Errors
/// [`ReadError`], also when there is no pod at all.
pub fn read_pods(text: &str, source_name: &str) -> Result<Vec<Pod>, ReadError> {
    let objects = read_pod_objects(text, source_name, MAX_TEXT_BYTES)?;
    if let Some(error) = objects.errors.into_iter().next() {
        return Err(error);
    }
    if objects.pods.is_empty() {
        let skipped = objects.skipped.into_iter().map(|object| object.kind).collect();
        return Err(whole_source(source_name, ReadReason::NoPods { skipped }));
    }
    Ok(objects.pods)
}

/// Reads the one pod of a text of at most [`MAX_POD_BYTES`] that came from somebody else: what it costs is bounded, and
/// it keeps the rules of requests and limits ([`Pod::check`]), as every pod does that Kubernetes takes.
///
/// # Errors
/// [`ReadError`], also when there are several.
pub fn read_pod(text: &str, source_name: &str) -> Result<Pod, ReadError> {
    let invalid = |text| Err(whole_source(source_name, ReadReason::Invalid(text)));
    check_pod_text(text, source_name)?;
    let mut pods = read_pods(text, source_name)?;
    let pod = match (pods.pop(), pods.len()) {
        (Some(pod), 0) => pod,
        (_, others) => return invalid(format!("there are {} pods; give one at a time", others + 1)),
    };
    match pod.check().as_slice() {
        [] => Ok(pod),
        errors => invalid(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
    }
}

/// Whether a text may be one pod, before anything is made of it.
///
/// # Errors
/// [`ReadError`] when it is larger than any pod.
pub fn check_pod_text(text: &str, source_name: &str) -> Result<(), ReadError> {
    let refused = |reason| Err(whole_source(source_name, reason));
    if text.len() > MAX_POD_BYTES {
        return refused(ReadReason::TooLarge { bytes: text.len(), limit: MAX_POD_BYTES });
    }
    let commas = text.bytes().filter(|byte| *byte == b',').count();
    if commas > MAX_POD_COMMAS {
        return refused(ReadReason::Syntax(format!(
            "{commas} commas are more than the {MAX_POD_COMMAS} of the largest pod; give one pod"
        )));
    }
    Ok(())
}

/// Reads the pods of a text of at most `max_bytes` and lists what else is there, and what cannot be read.
///
/// # Errors
/// [`ReadError`] when the text as a whole cannot be read: its size, its syntax.
pub fn read_pod_objects(text: &str, source_name: &str, max_bytes: usize) -> Result<PodObjects, ReadError> {
    if text.len() > max_bytes {
        let reason = ReadReason::TooLarge { bytes: text.len(), limit: max_bytes };
        return Err(whole_source(source_name, reason));
    }
    let mut objects = PodObjects::default();
    for document in syntax::documents(text, source_name)? {
        let source = ManifestSource { name: source_name, text, document: document.index };
        collect(&Cursor::root(&source, &document.root), "", &source, 0, &mut objects);
    }
    Ok(objects)
}

/// Reads requests and limits by container name from JSON or YAML, as in the annotation `evenkeel.dev/resources`.
///
/// # Errors
/// [`ReadError`] names the source, container and field.
pub fn read_resources_by_container(
    text: &str,
    source_name: &str,
) -> Result<Vec<(String, Requirements)>, ReadError> {
    if text.len() > MAX_TEXT_BYTES {
        let reason = ReadReason::TooLarge { bytes: text.len(), limit: MAX_TEXT_BYTES };
        return Err(whole_source(source_name, reason));
    }
    let mut by_container = Vec::new();
    for document in syntax::documents(text, source_name)? {
        let source = ManifestSource { name: source_name, text, document: document.index };
        let root = Cursor::root(&source, &document.root);
        for (container, resources) in root.fields()? {
            by_container.push((container.to_owned(), fields::requirements(&resources)?));
        }
    }
    Ok(by_container)
}

/// Reads one object, or notes why it cannot be read.
fn collect(
    at: &Cursor<'_>,
    implied: &str,
    source: &ManifestSource<'_>,
    depth: usize,
    objects: &mut PodObjects,
) {
    if let Err(error) = object(at, implied, source, depth, objects)
        && objects.errors.len() < MAX_ERRORS
    {
        objects.errors.push(error);
    }
}

/// Reads one object; `implied` is the kind of an element of a typed list, which names none itself.
fn object(
    at: &Cursor<'_>,
    implied: &str,
    source: &ManifestSource<'_>,
    depth: usize,
    objects: &mut PodObjects,
) -> Result<(), ReadError> {
    let kind = match at.field("kind")? {
        Some(kind) => kind.text()?,
        None if !implied.is_empty() => implied.to_owned(),
        None => at.required("kind", "write what the object is, such as kind: Pod")?.text()?,
    };
    let origin =
        || PodOrigin { source: source.name.to_owned(), document: source.document, kind: kind.clone() };
    if kind == "Pod" {
        objects.pods.push(fields::pod(at, origin())?);
        return Ok(());
    }
    if let Some(element) = kind.strip_suffix("List").filter(|_| matches!(at.field("items"), Ok(Some(_)))) {
        if depth == MAX_LIST_DEPTH {
            return Err(at.invalid(format!("lists are nested more than {MAX_LIST_DEPTH} deep; unpack them")));
        }
        let items = at.required("items", "write the list's items")?;
        for item in items.elements()? {
            collect(&item, element, source, depth + 1, objects);
        }
        return Ok(());
    }
    let way: &[&str] = match kind.as_str() {
        "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet" | "ReplicationController" | "Job" => {
            &["spec", "template"]
        }
        "CronJob" => &["spec", "jobTemplate", "spec", "template"],
        "PodTemplate" => &["template"],
        _ => {
            objects.skipped.push(skipped(at, kind, source.document)?);
            return Ok(());
        }
    };
    template(at, at, way, &origin, objects)
}

/// Follows `way` from `at` to the template of `owner` and reads it.
fn template(
    owner: &Cursor<'_>,
    at: &Cursor<'_>,
    way: &[&str],
    origin: &dyn Fn() -> PodOrigin,
    objects: &mut PodObjects,
) -> Result<(), ReadError> {
    match way.split_first() {
        Some((step, rest)) => {
            let next = at.required(step, "write the object's pod template")?;
            template(owner, &next, rest, origin, objects)
        }
        None => {
            objects.pods.push(fields::templated(owner, at, origin())?);
            Ok(())
        }
    }
}

fn skipped(at: &Cursor<'_>, kind: String, document: usize) -> Result<SkippedObject, ReadError> {
    let mut name = String::new();
    if let Some(metadata) = at.field("metadata")?
        && let Some(field) = metadata.field("name")?
    {
        name = field.text()?;
    }
    Ok(SkippedObject { document, kind, name })
}

fn whole_source(source_name: &str, reason: ReadReason) -> ReadError {
    ReadError { source_name: source_name.to_owned(), document: None, path: None, line: None, reason }
}
