//! Where decisions are read from: a running agent, printed events, or the log directory of an agent.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

use evenkeel_log::Snapshot;
use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_proto::v1::watch_decisions_response::Event as Watched;
use evenkeel_proto::v1::{self, GetStatusRequest, WatchDecisionsRequest};
use serde::Deserialize;
use serde_json::Value;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::input;
use crate::wire;

/// Largest text that is read, bytes: sixteen times what an agent keeps.
const MAX_TEXT_BYTES: u64 = 256 << 20;
/// What could not be read is told in words up to this many times.
const MAX_UNREAD: usize = 20;

/// A decision as it was recorded.
#[derive(Debug)]
pub(super) struct Recorded {
    /// When, in RFC 3339.
    pub(super) time: Option<String>,
    /// Where.
    pub(super) node: Option<String>,
    /// Its kind, as printed.
    pub(super) kind: String,
    /// The decision.
    pub(super) decision: Decision,
}

/// Everything read, and what could not be.
#[derive(Debug, Default)]
pub(super) struct RecordedDecisions {
    /// The decisions, in the order found.
    pub(super) decisions: Vec<Recorded>,
    /// What could not be read, in words.
    pub(super) unread: Vec<String>,
}

impl RecordedDecisions {
    fn unread(&mut self, what: String) {
        if self.unread.len() < MAX_UNREAD {
            self.unread.push(what);
        }
    }

    /// Takes a decision of the wire, whose kind may be one this program does not know yet.
    fn wire(&mut self, decision: v1::Decision, node: &str) {
        let time = wire::time(decision.time_usec);
        let node = wire::known(&decision.node).or(wire::known(node)).map(str::to_owned);
        let (seq, kind) = (decision.seq, decision.kind.clone());
        match Decision::try_from(decision) {
            Ok(decision) => self.decisions.push(Recorded { time, node, kind, decision }),
            Err(e) => self.unread(format!("decision {seq}: {e}")),
        }
    }
}

/// The decision log of a running agent.
///
/// # Errors
/// When the agent cannot be asked.
pub(super) async fn from_agent(address: &Address) -> Result<RecordedDecisions, Failure> {
    let mut agent = client::agent(address).await?;
    let status = agent.get_status(GetStatusRequest {}).await.map_err(|e| address.failed(&e))?;
    let node = status.into_inner().node;
    let request = WatchDecisionsRequest { no_follow: true, ..Default::default() };
    let mut stream = agent.watch_decisions(request).await.map_err(|e| address.failed(&e))?.into_inner();
    let mut read = RecordedDecisions::default();
    while let Some(message) = stream.message().await.map_err(|e| address.failed(&e))? {
        match message.event {
            Some(Watched::Decision(decision)) => read.wire(decision, &node),
            Some(Watched::Missed(count)) => {
                read.unread(format!("{count} decisions came faster than they were read"));
            }
            Some(Watched::Bookmark(_)) => break,
            None => {}
        }
    }
    Ok(read)
}

/// A file of printed events, a directory of a decision log, or standard input.
///
/// # Errors
/// When it cannot be read, or is neither.
pub(super) fn from_path(path: &Path) -> Result<RecordedDecisions, Failure> {
    if path == Path::new("-") {
        return from_text(io::stdin().lock(), path);
    }
    if path.is_dir() {
        return from_log(path);
    }
    let file = File::open(path).map_err(|e| unreadable(path, &e.to_string(), "check the name"))?;
    from_text(BufReader::new(file), path)
}

fn unreadable(path: &Path, why: &str, remedy: &str) -> Failure {
    Failure::new("cannot read the decisions", input::name(path), why, remedy)
}

/// The log itself, or a state directory with the log in it.
fn from_log(path: &Path) -> Result<RecordedDecisions, Failure> {
    let inner = path.join("decisions");
    let dir = if inner.is_dir() { &inner } else { path };
    let log = Snapshot::open(dir).map_err(|e| unreadable(dir, &e.to_string(), "copy the directory again"))?;
    let mut read = RecordedDecisions::default();
    for torn in log.torn() {
        // The last of a log that is being written is read up to here next time.
        read.unread(format!(
            "{} bytes of {} from {} on: {}",
            torn.bytes,
            torn.path.display(),
            torn.offset,
            torn.reason
        ));
    }
    for record in log {
        match record {
            Ok(record) => match serde_json::from_slice::<Decision>(&record.payload) {
                Ok(decision) => read.decisions.push(Recorded {
                    time: wire::time(decision.time_usec),
                    node: None,
                    kind: v1::Decision::from(decision.clone()).kind,
                    decision,
                }),
                Err(e) => read.unread(format!("record {}: {e}", record.seq)),
            },
            Err(e) => read.unread(e.to_string()),
        }
    }
    if read.decisions.is_empty() && read.unread.is_empty() {
        return Err(unreadable(
            dir,
            "there is no decision in it",
            "give the directory decisions of an agent's state",
        ));
    }
    Ok(read)
}

/// An event in its pinned form; unknown names are of a later version and left out.
#[derive(Debug, Deserialize)]
struct Printed {
    time: Option<String>,
    seq: u64,
    node: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    kind: DecisionKind,
    knob: Option<String>,
    old: Option<String>,
    new: Option<String>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    inputs: std::collections::BTreeMap<String, String>,
    result: DecisionResult,
}

/// Values one after the other, or lists of them.
fn from_text(reader: impl io::Read, path: &Path) -> Result<RecordedDecisions, Failure> {
    let mut read = RecordedDecisions::default();
    let text = reader.take(MAX_TEXT_BYTES);
    for value in serde_json::Deserializer::from_reader(BufReader::new(text)).into_iter::<Value>() {
        let remedy = "give what evenkeel events -o json prints";
        match value.map_err(|e| unreadable(path, &e.to_string(), remedy))? {
            Value::Array(all) => all.into_iter().for_each(|one| printed(&mut read, one)),
            one => printed(&mut read, one),
        }
    }
    Ok(read)
}

fn printed(read: &mut RecordedDecisions, value: Value) {
    let seq = value.get("seq").and_then(Value::as_u64);
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    match serde_json::from_value::<Printed>(value) {
        Ok(p) => read.decisions.push(Recorded {
            time: p.time,
            node: p.node,
            kind,
            decision: Decision {
                time_usec: 0,
                seq: p.seq,
                pod: p.pod,
                container: p.container,
                kind: p.kind,
                knob: p.knob,
                old: p.old,
                new: p.new,
                reason: p.reason,
                inputs: p.inputs,
                result: p.result,
            },
        }),
        Err(e) => {
            let which = seq.map_or_else(|| "a value".to_owned(), |seq| format!("decision {seq}"));
            let e = e.to_string();
            // Not the list of all names that would be known.
            let why = e.split(", expected").next().unwrap_or(&e);
            read.unread(format!("{which}: {why}"));
        }
    }
}
