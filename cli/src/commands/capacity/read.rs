//! Reading snapshots and pods: JSON as a stream, YAML as a bounded text.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, stdin};
use std::path::{Path, PathBuf};

use evenkeel_capacity::answer::Shape;
use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::load::{Loader, Report, shapes};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::profile::{Profiles, Version};
use evenkeel_model::quantity::Quantity;
use evenkeel_proto::v1::ListRecommendationsRequest;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::input;

/// Nesting of lists and maps in YAML; a pod needs about ten levels.
const YAML_DEPTH: usize = 64;
/// Lists, maps and scalars of YAML; larger snapshots are given as JSON, which is read as a stream.
const YAML_NODES: usize = 4_000_000;
/// Bytes of YAML that are read.
const YAML_BYTES: u64 = 64 << 20;

/// Reads several files as one cluster.
///
/// # Errors
/// With the file, the object's place in it, and what is wrong.
pub(super) fn snapshot(
    files: &[PathBuf],
    recommendations: Option<&Recommendations>,
) -> Result<(Cluster, Report), Failure> {
    let change = |pod: &mut Pod| {
        if let Some(recommendations) = recommendations {
            recommendations.apply(pod);
        }
    };
    let mut loader = Loader::new();
    if recommendations.is_some() {
        if files.iter().any(|file| file == Path::new("-")) {
            let why = "standard input can be read once only";
            return Err(Failure::usage(
                "cannot count twice",
                "--snapshot",
                why,
                "save the snapshot to a file",
            ));
        }
        loader = loader.changing(&change);
    }
    for file in files {
        read_into(&mut loader, file)?;
    }
    Ok(loader.finish())
}

fn read_into(loader: &mut Loader<'_>, path: &Path) -> Result<(), Failure> {
    let name = input::name(path);
    let mut reader = open(path, &name)?;
    if !starts_like_json(&mut *reader, &name)? {
        return documents(&mut *reader, &name)?
            .iter()
            .try_for_each(|document| loader.document(document).map_err(|e| broken(&name, &e.to_string())));
    }
    let mut json = serde_json::Deserializer::from_reader(reader);
    // Several values may follow one another.
    while json.end().is_err() {
        loader.document(&mut json).map_err(|error| broken(&name, &error.to_string()))?;
    }
    Ok(())
}

fn open(path: &Path, name: &str) -> Result<Box<dyn BufRead>, Failure> {
    if name == "standard input" || path == Path::new("-") {
        return Ok(Box::new(BufReader::with_capacity(1 << 16, stdin())));
    }
    let file = File::open(path).map_err(|error| {
        Failure::new(
            "cannot read the file",
            name,
            error.to_string(),
            "check the name, or use - for standard input",
        )
    })?;
    Ok(Box::new(BufReader::with_capacity(1 << 16, file)))
}

/// Whether the first character that is not blank opens a JSON value. The reader is left before it.
fn starts_like_json(reader: &mut dyn BufRead, name: &str) -> Result<bool, Failure> {
    loop {
        let buffer = reader
            .fill_buf()
            .map_err(|e| Failure::new("cannot read the file", name, e.to_string(), "give a readable file"))?;
        let blank = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        match buffer.get(blank) {
            Some(byte) => return Ok(matches!(byte, b'{' | b'[')),
            None if buffer.is_empty() => return Ok(false),
            None => reader.consume(blank),
        }
    }
}

/// Documents of YAML.
fn documents(reader: &mut dyn BufRead, name: &str) -> Result<Vec<Value>, Failure> {
    let mut text = String::new();
    reader.take(YAML_BYTES + 1).read_to_string(&mut text).map_err(|e| {
        Failure::new("cannot read the file", name, e.to_string(), "give a text in YAML or JSON")
    })?;
    if text.len() as u64 > YAML_BYTES {
        let why = format!("it is YAML of more than {YAML_BYTES} bytes");
        return Err(Failure::new(
            "cannot read the file",
            name,
            why,
            "give it as JSON, which is read as a stream",
        ));
    }
    let budget = serde_saphyr::budget! {
        max_depth: YAML_DEPTH,
        flow_nesting_limit: YAML_DEPTH,
        max_nodes: YAML_NODES,
        max_events: 2 * YAML_NODES,
    };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false, emit_comments: false };
    let documents: Vec<Value> = serde_saphyr::from_str_multiple_with_options(&text, options)
        .map_err(|error| broken(name, &error.to_string()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn broken(name: &str, why: &str) -> Failure {
    Failure::new("cannot use the file", name, why, "correct the object, or leave it out")
}

/// Pods (or what makes pods) of several files.
///
/// # Errors
/// With the file, and what is wrong.
pub(super) fn pods(files: &[PathBuf]) -> Result<Vec<Shape>, Failure> {
    let mut all = Vec::new();
    for path in files {
        let name = input::name(path);
        let mut reader = open(path, &name)?;
        let documents = if starts_like_json(&mut *reader, &name)? {
            let values = serde_json::Deserializer::from_reader(reader).into_iter();
            values.collect::<Result<Vec<Value>, _>>().map_err(|error| broken(&name, &error.to_string()))?
        } else {
            documents(&mut *reader, &name)?
        };
        for document in documents {
            let shapes = shapes(&document);
            all.extend(
                shapes
                    .map_err(|e| Failure::new("cannot use the file", &name, e.to_string(), "give a pod"))?,
            );
        }
    }
    if all.is_empty() {
        return Err(Failure::new(
            "cannot ask",
            "-f",
            "no file holds a pod",
            "give a Pod, or what makes pods",
        ));
    }
    Ok(all)
}

/// Profiles of a scheduler configuration.
///
/// # Errors
/// With the file and the field.
pub(super) fn profiles(path: &Path, version: Version, cluster: &mut Cluster) -> Result<Profiles, Failure> {
    let name = input::name(path);
    let mut reader = open(path, &name)?;
    let documents = documents(&mut *reader, &name)?;
    let config = documents.first().unwrap_or(&Value::Null);
    evenkeel_capacity::config::profiles(config, version, cluster).map_err(|error| {
        Failure::new("cannot use the scheduler configuration", &name, error.to_string(), "correct the field")
    })
}

/// One row of what `evenkeel recommend -o json` prints.
#[derive(Debug, Deserialize)]
struct Row {
    namespace: String,
    workload: String,
    container: String,
    resource: String,
    request: Option<u64>,
}

/// Container, resource, request.
type Wish = (String, String, Quantity);

/// Recommended requests by namespace and workload.
#[derive(Debug, Default)]
pub(super) struct Recommendations {
    rows: BTreeMap<(String, String), Vec<Wish>>,
    applied: Cell<usize>,
}

impl Recommendations {
    /// From a file that holds what `evenkeel recommend -o json` printed.
    ///
    /// # Errors
    /// When it cannot be read or holds something else.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let name = input::name(path);
        let text = input::text(path)?;
        let rows: Vec<Row> = serde_json::from_str(&text).map_err(|error| {
            Failure::new(
                "cannot use the recommendations",
                &name,
                error.to_string(),
                "give what recommend -o json printed",
            )
        })?;
        Ok(Self::of(rows))
    }

    /// From the recommender.
    ///
    /// # Errors
    /// When it does not answer.
    pub(super) async fn ask(address: &Address) -> Result<Self, Failure> {
        let mut recommender = client::recommender(address).await?;
        let request = ListRecommendationsRequest { namespace: String::new() };
        let answer =
            recommender.list_recommendations(request).await.map_err(|e| address.failed(&e))?.into_inner();
        let rows = answer.recommendations.into_iter().map(|r| Row {
            namespace: r.namespace,
            workload: r.workload,
            container: r.container,
            resource: r.resource,
            request: r.request,
        });
        Ok(Self::of(rows.collect()))
    }

    fn of(rows: Vec<Row>) -> Self {
        let mut all = Self::default();
        for row in rows {
            let Some(request) = row.request else { continue };
            let request = match row.resource.as_str() {
                "cpu" => Quantity::from_milli(i64::try_from(request).unwrap_or(i64::MAX)),
                _ => Quantity::from_bytes(request),
            };
            // Workloads are named kind/name where the kind is known.
            let workload = row.workload.rsplit('/').next().unwrap_or_default().to_owned();
            all.rows.entry((row.namespace, workload)).or_default().push((
                row.container,
                row.resource,
                request,
            ));
        }
        all
    }

    /// Replaces the requests of a pod's containers that there is something for.
    pub(super) fn apply(&self, pod: &mut Pod) {
        let namespace = pod.metadata.namespace_or_default().to_owned();
        let owner = pod.metadata.controller().map(|owner| owner.name.clone());
        let hash = pod.metadata.labels.get("pod-template-hash");
        // A replica set is named after its deployment and the hash of the template.
        let deployment =
            owner.as_ref().zip(hash).and_then(|(owner, hash)| owner.strip_suffix(&format!("-{hash}")));
        let names = [deployment.map(str::to_owned), owner.clone(), Some(pod.metadata.name.clone())];
        let mut names = names.into_iter().flatten();
        let Some(found) = names.find_map(|name| self.rows.get(&(namespace.clone(), name))) else { return };
        for container in &mut pod.spec.containers {
            for (_, resource, request) in found.iter().filter(|(name, _, _)| *name == container.name) {
                container.resources.requests.insert(resource.clone(), *request);
                self.applied.set(self.applied.get() + 1);
            }
        }
    }

    /// How many requests were replaced so far.
    pub(super) fn applied(&self) -> usize {
        self.applied.get()
    }
}
