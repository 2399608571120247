//! Owns the reading of questions: one JSON object that is read as it arrives, its snapshot never in memory as a whole, or
//! the same as bounded YAML.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;

use evenkeel_capacity::load::{JsonStream, Loader, Manifest, Members, StreamError};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::question::{CapacityQuestion, QuestionOptions, Snapshot};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::yaml::{self, YamlBounds};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::pool::StillWanted;
use crate::policy::Listing;

/// What is read as YAML; larger snapshots are given as JSON, which is read as a stream.
const YAML: YamlBounds = YamlBounds { documents: 10_000, nodes: 1_000_000 };
/// Bytes of YAML that are read.
const YAML_BYTES: u64 = 16 << 20;
/// Bytes of a file of `objects` that are read: a snapshot of a cluster is larger, what agents do not report of it is not.
const OBJECTS_BYTES: u64 = 64 << 20;
/// Placings told in detail: each holds the scores of every node.
const MAX_STEPS: usize = 1000;

/// Resource types that somebody defined, whose defaults and granularity count in every pod that is read.
pub(crate) type Types<'a> = Option<&'a ResourceTypes>;

/// A question that was read, and the cluster it is about where one was posted.
#[derive(Debug, Default)]
pub(crate) struct CapacityRequest {
    /// The question.
    pub(crate) question: CapacityQuestion,
    /// The posted cluster; what agents reported without.
    pub(crate) snapshot: Option<Snapshot>,
    /// Which cluster's agents are meant.
    pub(crate) cluster: String,
    /// Count with recommended requests too.
    pub(crate) recommended: bool,
}

/// A reader that ends with an error when nobody waits for the answer any more.
pub(crate) struct Interrupted<'a, R> {
    /// Where the text comes from.
    pub(crate) inner: R,
    /// Whether somebody waits.
    pub(crate) wanted: &'a StillWanted,
}

impl<R: Read> Read for Interrupted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.wanted.is_wanted() {
            return Err(io::Error::other("whoever asked has gone"));
        }
        self.inner.read(buffer)
    }
}

/// Reads a whole question: `{pods, place, snapshot, cluster, recommended}` and the options beside them.
///
/// # Errors
/// What is wrong, with its place.
pub(crate) fn question(reader: impl Read, types: Types<'_>) -> Result<CapacityRequest, String> {
    let mut text = JsonStream::new(reader).map_err(said)?;
    if text.begins_with(b"{").map_err(said)? {
        return json_question(&mut text, types).map_err(said);
    }
    let document = documents(text)?.into_iter().next().unwrap_or(Value::Null);
    EnvelopeSeed(types).deserialize(document).map_err(|error| error.to_string())
}

/// The snapshot is read as it arrives, the rest when all of it is there.
fn json_question(text: &mut JsonStream<impl Read>, types: Types<'_>) -> Result<CapacityRequest, StreamError> {
    let fill = |pod: &mut Pod| types.into_iter().for_each(|types| pod.fill(types));
    let (mut members, mut snapshot) = (Members::begin(text)?, None);
    while let Some(key) = members.next(text)? {
        if key == "snapshot" && text.begins_with(b"{")? {
            members.stand_in(b"{}");
            let mut loader = Loader::new().changing(&fill);
            loader.text_of_one(text)?;
            members.go_on(text);
            snapshot = Some(finished(loader));
        } else {
            members.keep(text)?;
        }
    }
    let rest = members.rest();
    let read = EnvelopeSeed(types).deserialize(&mut serde_json::Deserializer::from_slice(rest.text()));
    let asked = read.map_err(|error| rest.error(&error))?;
    text.end()?;
    Ok(CapacityRequest { snapshot: snapshot.or(asked.snapshot), ..asked })
}

fn said(error: StreamError) -> String {
    error.to_string()
}

/// Reads a snapshot that stands alone, in JSON or YAML.
///
/// # Errors
/// What is wrong, with its place.
pub(crate) fn snapshot(reader: impl Read, types: Types<'_>) -> Result<Snapshot, String> {
    let fill = |pod: &mut Pod| types.into_iter().for_each(|types| pod.fill(types));
    let mut loader = Loader::new().changing(&fill);
    read_into(&mut loader, reader)?;
    Ok(finished(loader))
}

fn read_into(loader: &mut Loader<'_>, reader: impl Read) -> Result<(), String> {
    let mut text = JsonStream::new(reader).map_err(said)?;
    if text.begins_with(b"{").map_err(said)? {
        return loader.text(&mut text).map_err(said);
    }
    documents(text)?.into_iter().try_for_each(|document| loader.document(document).map_err(|e| e.to_string()))
}

/// Reads the files of `objects`; nodes and pods in them do not count, since agents report these.
///
/// # Errors
/// With the file, and what is wrong with it.
pub(super) fn objects(loader: &mut Loader<'_>, places: &[PathBuf]) -> Result<(), String> {
    let Listing { files, unlisted } = Listing::of(places);
    if let Some((path, why)) = unlisted.first_key_value() {
        return Err(format!("objects: {}: {why}", path.display()));
    }
    files.into_iter().try_for_each(|(path, (_, bytes, _))| {
        let mut read = || {
            if bytes > OBJECTS_BYTES {
                return Err(format!("it has {bytes} bytes, over {OBJECTS_BYTES}; split it"));
            }
            let file = File::open(&path).map_err(|error| error.to_string())?;
            loader.leaves_out_nodes_and_pods(true);
            let read = read_into(loader, file.take(OBJECTS_BYTES));
            loader.leaves_out_nodes_and_pods(false);
            read
        };
        read().map_err(|why| format!("objects: {}: {why}", path.display()))
    })
}

fn finished(loader: Loader<'_>) -> Snapshot {
    let (cluster, report) = loader.finish();
    Snapshot { cluster, report }
}

/// Pods (or what makes pods) of a text in JSON or YAML.
///
/// # Errors
/// What is wrong, with the field.
pub(crate) fn pods(text: &str) -> Result<Manifest, String> {
    let documents = match serde_json::from_str::<Value>(text) {
        Ok(value) => vec![value],
        Err(_) => documents(text.as_bytes())?,
    };
    let mut all = Manifest::default();
    for document in &documents {
        all.take(document).map_err(|error| error.to_string())?;
    }
    if all.shapes.is_empty() {
        let what = if all.left_out.is_empty() {
            String::new()
        } else {
            format!(", but {}", all.left_out.join(", "))
        };
        return Err(format!("it holds no pod{what}; give a Pod, or what makes pods"));
    }
    Ok(all)
}

/// Options of one JSON object, within the limits of a hosted question.
///
/// # Errors
/// With the name of the option.
pub(crate) fn options(written: Map<String, Value>) -> Result<QuestionOptions, String> {
    let options: QuestionOptions =
        serde_json::from_value(Value::Object(written)).map_err(|error| error.to_string())?;
    match options.steps {
        evenkeel_capacity::answer::Steps::First(steps) if steps > MAX_STEPS => {
            Err(format!("steps: {steps} are more than the {MAX_STEPS} that are told"))
        }
        _ => Ok(options),
    }
}

/// Documents of YAML that hold something.
fn documents(reader: impl Read) -> Result<Vec<Value>, String> {
    let mut text = String::new();
    reader.take(YAML_BYTES + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > YAML_BYTES {
        return Err(format!(
            "it is YAML of more than {YAML_BYTES} bytes; send JSON, which is read as it arrives"
        ));
    }
    let documents: Vec<Value> = yaml::documents(&text, YAML).map_err(|error| error.to_string())?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// A question as one object.
struct EnvelopeSeed<'a>(Types<'a>);

impl<'de> DeserializeSeed<'de> for EnvelopeSeed<'_> {
    type Value = CapacityRequest;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<CapacityRequest, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EnvelopeSeed<'_> {
    type Value = CapacityRequest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a question: an object with pods, and perhaps a snapshot and options")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CapacityRequest, A::Error> {
        let mut asked = CapacityRequest::default();
        let mut written = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "pods" => of_list("pods", map.next_value()?, |pods| asked.question.asks(pods))?,
                "place" => of_list("place", map.next_value()?, |pods| asked.question.places_first(pods))?,
                "snapshot" => asked.snapshot = map.next_value_seed(SnapshotSeed(self.0))?,
                "cluster" => asked.cluster = map.next_value()?,
                "recommended" => asked.recommended = map.next_value()?,
                _ => {
                    written.insert(key, map.next_value::<Value>()?);
                }
            }
        }
        asked.question.options = options(written).map_err(A::Error::custom)?;
        Ok(asked)
    }
}

/// Pods of a list of objects or of texts.
fn of_list<E: serde::de::Error>(
    key: &str,
    list: Vec<Value>,
    mut take: impl FnMut(Manifest),
) -> Result<(), E> {
    for (index, value) in list.iter().enumerate() {
        let read = match value.as_str() {
            Some(text) => pods(text),
            None => {
                let mut manifest = Manifest::default();
                manifest.take(value).map(|()| manifest).map_err(|error| error.to_string())
            }
        };
        take(read.map_err(|why| E::custom(format_args!("{key}[{index}]: {why}")))?);
    }
    Ok(())
}

/// A snapshot inside of a question.
struct SnapshotSeed<'a>(Types<'a>);

impl<'de> DeserializeSeed<'de> for SnapshotSeed<'_> {
    type Value = Option<Snapshot>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let fill = |pod: &mut Pod| self.0.into_iter().for_each(|types| pod.fill(types));
        let mut loader = Loader::new().changing(&fill);
        loader.document(deserializer)?;
        Ok(Some(finished(loader)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}"#;

    #[test]
    fn questions_are_read_in_json_and_yaml_and_refused_with_their_place() {
        let node = r#"{"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}"#;
        let json = format!(
            r#"{{"max": 3, "snapshot": {{"kind": "List", "items": [{node}]}}, "pods": [{POD}, "spec: {{}}"], "preempt": true}}"#
        );
        let asked = question(json.as_bytes(), None).unwrap();
        assert_eq!((asked.question.shapes.len(), asked.question.options.max), (2, Some(3)));
        assert_eq!(asked.snapshot.unwrap().report.counts.nodes, 1);
        let yaml = "pods:\n- spec: {containers: []}\nlose: [any]\ncluster: a\nrecommended: true\n";
        let asked = question(yaml.as_bytes(), None).unwrap();
        assert_eq!(asked.question.options.lose, ["any"]);
        assert!(asked.recommended && asked.cluster == "a" && asked.snapshot.is_none());
        for (text, why) in [
            ("", "a question"),
            ("[]", "a question"),
            (r#"{"pods": [], "nonsense": 1}"#, "nonsense"),
            (r#"{"pods": ["kind: Node\nmetadata: {name: n1}"]}"#, "pods[0]: it holds no pod, but Node n1"),
            (r#"{"pods": [], "steps": 1001}"#, "steps"),
            (
                r#"{"snapshot": {"kind": "List", "items": [{"kind": "Node", "status": 3}]}}"#,
                "items[0] (Node)",
            ),
            (r#"{"pods": []} x"#, "trailing"),
            (r#"{"snapshot": {"nodes": [{}, {}]}, "pods": []}"#, "nodes[1] (Node): Node  is there twice"),
            ("{\"snapshot\": {\"nodes\": []},\n \"max\": nope}", "at line 2 column 10"),
            (r#"{"snapshot": []}"#, "invalid type: sequence"),
            (r#"{"snapshot": {"nodes": [}}"#, "expected value"),
        ] {
            let error = question(text.as_bytes(), None).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn reading_ends_when_nobody_waits() {
        let pool = super::super::pool::Pool::start(1, 1).unwrap();
        let (told, seen) = std::sync::mpsc::channel();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let waiting = pool.submit(move |wanted| {
            gate.recv().unwrap();
            let inner = POD.as_bytes();
            told.send(question(Interrupted { inner, wanted }, None).unwrap_err()).unwrap();
        });
        drop(waiting);
        // The thread may have skipped the question already, which is as good.
        if go.send(()).is_ok()
            && let Ok(error) = seen.recv()
        {
            assert!(error.contains("has gone"), "{error}");
        }
    }
}
