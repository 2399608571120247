//! Reading snapshots and pods: JSON as a stream, YAML as a bounded text.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, stdin};
use std::path::{Path, PathBuf};

use evenkeel_capacity::answer::Shape;
use evenkeel_capacity::load::{Loader, shapes};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::question::{Recommendations, Snapshot};
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
/// JSON up to this size is read at once, which is several times quicker; the rest of a larger one is read as a stream.
const AT_ONCE_BYTES: u64 = 400 << 20;
/// Bytes of YAML that are read.
const YAML_BYTES: u64 = 64 << 20;

/// Where a cluster is read from.
pub(super) enum Source<'a> {
    /// Files that are one cluster.
    Files(&'a [PathBuf]),
    /// What an API server said just now.
    Live(File),
}

/// Reads a cluster; a second time gives the same, unless it came by standard input.
///
/// # Errors
/// With the file, the object's place in it, and what is wrong.
pub(super) fn snapshot(
    source: &Source<'_>,
    recommendations: Option<&Recommendations>,
) -> Result<Snapshot, Failure> {
    let change = |pod: &mut Pod| {
        if let Some(recommendations) = recommendations {
            recommendations.apply(pod);
        }
    };
    let mut loader = Loader::new();
    if recommendations.is_some() {
        if matches!(source, Source::Files(files) if files.iter().any(|file| file == Path::new("-"))) {
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
    match source {
        Source::Files(files) => files.iter().try_for_each(|path| {
            let name = input::name(path);
            read_into(&mut loader, open(path, &name)?, &name)
        })?,
        Source::Live(file) => {
            let name = "the API server's answer";
            let failed = |e: std::io::Error| Failure::new("cannot read", name, e.to_string(), "try again");
            let mut file = file.try_clone().map_err(failed)?;
            file.rewind().map_err(failed)?;
            read_into(&mut loader, Box::new(BufReader::with_capacity(1 << 16, file)), name)?;
        }
    }
    let (cluster, report) = loader.finish();
    Ok(Snapshot { cluster, report })
}

fn read_into(loader: &mut Loader<'_>, mut reader: Box<dyn BufRead>, name: &str) -> Result<(), Failure> {
    if !starts_like_json(&mut *reader, name)? {
        return documents(&mut *reader, name)?
            .iter()
            .try_for_each(|document| loader.document(document).map_err(|e| broken(name, &e.to_string())));
    }
    let mut begin = Vec::new();
    (&mut *reader)
        .take(AT_ONCE_BYTES)
        .read_to_end(&mut begin)
        .map_err(|e| Failure::new("cannot read the file", name, e.to_string(), "give a readable file"))?;
    let read = if (begin.len() as u64) < AT_ONCE_BYTES {
        values(loader, &mut serde_json::Deserializer::from_slice(&begin))
    } else {
        let stream = BufReader::with_capacity(1 << 16, Cursor::new(begin).chain(reader));
        values(loader, &mut serde_json::Deserializer::from_reader(stream))
    };
    read.map_err(|error| broken(name, &error.to_string()))
}

/// Reads values that follow one another.
fn values<'de, R: serde_json::de::Read<'de>>(
    loader: &mut Loader<'_>,
    json: &mut serde_json::Deserializer<R>,
) -> Result<(), serde_json::Error> {
    while json.end().is_err() {
        loader.document(&mut *json)?;
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

/// A scheduler configuration as written.
///
/// # Errors
/// With the file.
pub(super) fn scheduler_config(path: &Path) -> Result<Value, Failure> {
    let name = input::name(path);
    let mut reader = open(path, &name)?;
    Ok(documents(&mut *reader, &name)?.into_iter().next().unwrap_or(Value::Null))
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

/// Recommendations from a file that holds what `evenkeel recommend -o json` printed.
///
/// # Errors
/// When it cannot be read or holds something else.
pub(super) fn recommendations(path: &Path) -> Result<Recommendations, Failure> {
    let name = input::name(path);
    let text = input::text(path)?;
    let rows: Vec<Row> = serde_json::from_str(&text).map_err(|error| {
        let remedy = "give what recommend -o json printed";
        Failure::new("cannot use the recommendations", &name, error.to_string(), remedy)
    })?;
    Ok(collected(rows))
}

/// Recommendations from the recommender.
///
/// # Errors
/// When it does not answer.
pub(super) async fn ask_recommendations(address: &Address) -> Result<Recommendations, Failure> {
    let mut recommender = client::recommender(address).await?;
    let request = ListRecommendationsRequest::default();
    let answer =
        recommender.list_recommendations(request).await.map_err(|e| address.failed(&e))?.into_inner();
    let rows = answer.recommendations.into_iter().map(|r| Row {
        namespace: r.namespace,
        workload: r.workload,
        container: r.container,
        resource: r.resource,
        request: r.request,
    });
    Ok(collected(rows))
}

fn collected(rows: impl IntoIterator<Item = Row>) -> Recommendations {
    let mut all = Recommendations::new();
    for row in rows {
        if let Some(request) = row.request {
            all.add(row.namespace, &row.workload, row.container, row.resource, request);
        }
    }
    all
}
