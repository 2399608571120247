//! Reading snapshots and pods: JSON as a stream, YAML as a bounded text.

use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, stdin};
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;

use evenkeel_capacity::load::{JsonStream, Loader, Manifest, Parsed, Piece, Pieces, StreamError};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::question::{Recommendations, Snapshot};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::yaml::{self, YamlBounds};
use evenkeel_proto::v1::ListRecommendationsRequest;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::input;

/// What is read as YAML; larger snapshots are given as JSON, which is read as a stream.
const YAML: YamlBounds = YamlBounds { documents: 100_000, nodes: 4_000_000 };
/// Pieces of JSON (some objects each) that may be parsed before those in front are taken in; the reading waits then.
const PIECES_AHEAD: usize = 8;
/// Bytes of YAML that are read.
const YAML_BYTES: u64 = 64 << 20;

/// What is read.
type Text = JsonStream<Box<dyn Read + Send>>;

/// Where a cluster is read from.
pub(super) enum SnapshotSource<'a> {
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
    source: &SnapshotSource<'_>,
    recommendations: Option<&Recommendations>,
    types: Option<&ResourceTypes>,
) -> Result<Snapshot, Failure> {
    let change = |pod: &mut Pod| {
        if let Some(recommendations) = recommendations {
            recommendations.apply(pod);
        }
        types.into_iter().for_each(|types| pod.fill(types));
    };
    let mut loader = Loader::new();
    let once_only = |files: &[PathBuf]| files.iter().any(|file| file == Path::new("-"));
    if recommendations.is_some() && matches!(source, SnapshotSource::Files(files) if once_only(files)) {
        let why = "standard input can be read once only";
        return Err(Failure::usage("cannot count twice", "--snapshot", why, "save the snapshot to a file"));
    }
    if recommendations.is_some() || types.is_some() {
        loader = loader.changing(&change);
    }
    match source {
        SnapshotSource::Files(files) => files.iter().try_for_each(|path| {
            let name = input::name(path);
            read_into(&mut loader, open(path, &name)?, &name)
        })?,
        SnapshotSource::Live(file) => {
            let name = "the API server's answer";
            let failed = |e: std::io::Error| Failure::new("cannot read", name, e.to_string(), "try again");
            let mut file = file.try_clone().map_err(failed)?;
            file.rewind().map_err(failed)?;
            read_into(&mut loader, begin(Box::new(file), name)?, name)?;
        }
    }
    let (cluster, report) = loader.finish();
    Ok(Snapshot { cluster, report })
}

fn read_into(loader: &mut Loader<'_>, mut text: Text, name: &str) -> Result<(), Failure> {
    if is_json(&mut text, name)? {
        return parsed_beside(loader, &mut text).map_err(|error| broken(name, &error.to_string()));
    }
    documents(text, name)?
        .iter()
        .try_for_each(|document| loader.document(document).map_err(|e| broken(name, &e.to_string())))
}

/// Takes in objects here while those that follow are cut and parsed on another thread: the two cost about the same. What
/// was taken in goes back, since memory is given back most quickly by the thread that took it; it is dropped here where
/// the way back is full.
fn parsed_beside(loader: &mut Loader<'_>, text: &mut Text) -> Result<(), StreamError> {
    thread::scope(|scope| {
        let (ahead, parsed) = sync_channel::<Result<Parsed, StreamError>>(PIECES_AHEAD);
        let (back, spent) = sync_channel::<Parsed>(PIECES_AHEAD);
        scope.spawn(move || {
            Pieces::new(text).try_for_each(|piece| {
                spent.try_iter().for_each(drop);
                // An object that cannot be taken in ends the reading: nobody receives then.
                ahead.send(piece.map(Piece::parse))
            })
        });
        parsed.into_iter().try_for_each(|piece| {
            let mut piece = piece?;
            loader.add_parsed(&mut piece)?;
            // What finds no way back is dropped here.
            drop(back.try_send(piece));
            Ok(())
        })
    })
}

fn open(path: &Path, name: &str) -> Result<Text, Failure> {
    if path == Path::new("-") {
        return begin(Box::new(stdin()), name);
    }
    let file = File::open(path).map_err(|error| {
        Failure::new(
            "cannot read the file",
            name,
            error.to_string(),
            "check the name, or use - for standard input",
        )
    })?;
    begin(Box::new(file), name)
}

fn begin(reader: Box<dyn Read + Send>, name: &str) -> Result<Text, Failure> {
    JsonStream::new(reader).map_err(|error| unreadable(name, &error))
}

fn is_json(text: &mut Text, name: &str) -> Result<bool, Failure> {
    text.begins_with(b"{[").map_err(|error| unreadable(name, &error))
}

fn unreadable(name: &str, error: &dyn std::error::Error) -> Failure {
    Failure::new("cannot read the file", name, error.to_string(), "give a text in YAML or JSON")
}

/// Documents of YAML.
fn documents(reader: impl Read, name: &str) -> Result<Vec<Value>, Failure> {
    let mut text = String::new();
    reader.take(YAML_BYTES + 1).read_to_string(&mut text).map_err(|error| unreadable(name, &error))?;
    if text.len() as u64 > YAML_BYTES {
        let why = format!("it is YAML of more than {YAML_BYTES} bytes");
        return Err(Failure::new(
            "cannot read the file",
            name,
            why,
            "give it as JSON, which is read as a stream",
        ));
    }
    let documents: Vec<Value> =
        yaml::documents(&text, YAML).map_err(|error| broken(name, &error.to_string()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn broken(name: &str, why: &str) -> Failure {
    Failure::new("cannot use the file", name, why, "correct the object, or leave it out")
}

/// Pods (or what makes pods) of several files, with what comes with them.
///
/// # Errors
/// With the file, and what is wrong.
pub(super) fn pods(files: &[PathBuf]) -> Result<Manifest, Failure> {
    let mut all = Manifest::default();
    for path in files {
        let name = input::name(path);
        take(&mut all, open(path, &name)?, &name)?;
    }
    with_pods(all)
}

/// The same of texts that were read, each with its name.
///
/// # Errors
/// As [`pods`].
pub(super) fn pods_of(texts: &[(String, String)]) -> Result<Manifest, Failure> {
    let mut all = Manifest::default();
    for (name, text) in texts {
        take(&mut all, begin(Box::new(Cursor::new(text.clone())), name)?, name)?;
    }
    with_pods(all)
}

fn take(all: &mut Manifest, mut reader: Text, name: &str) -> Result<(), Failure> {
    let documents = if is_json(&mut reader, name)? {
        let values = serde_json::Deserializer::from_reader(BufReader::new(reader)).into_iter();
        values.collect::<Result<Vec<Value>, _>>().map_err(|error| broken(name, &error.to_string()))?
    } else {
        documents(reader, name)?
    };
    documents.iter().try_for_each(|document| {
        let taken = all.take(document);
        taken.map_err(|e| Failure::new("cannot use the file", name, e.to_string(), "correct the object"))
    })
}

fn with_pods(all: Manifest) -> Result<Manifest, Failure> {
    if all.shapes.is_empty() {
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
    Ok(documents(open(path, &name)?, &name)?.into_iter().next().unwrap_or(Value::Null))
}

/// One row of what `evenkeel recommend -o json` prints.
#[derive(Debug, Deserialize)]
struct RecommendationRow {
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
    let rows: Vec<RecommendationRow> = serde_json::from_str(&text).map_err(|error| {
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
    let rows = answer.recommendations.into_iter().map(|r| RecommendationRow {
        namespace: r.namespace,
        workload: r.workload,
        container: r.container,
        resource: r.resource,
        request: r.request,
    });
    Ok(collected(rows))
}

fn collected(rows: impl IntoIterator<Item = RecommendationRow>) -> Recommendations {
    let mut all = Recommendations::new();
    for row in rows {
        if let Some(request) = row.request {
            all.add(row.namespace, &row.workload, row.container, row.resource, request);
        }
    }
    all
}
