//! `evenkeel status`: what an agent does, can do and cannot.

use clap::Args;
use evenkeel_proto::v1::{ContainerStatus, GetStatusRequest, GetStatusResponse, KnobValue};
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Answer, Output};
use crate::table::{Cell, Table};
use crate::wire::{self, Classes, known};

/// Show the state of the agent: mode, knobs, sources, stream, and every container.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel status
  evenkeel status -o json
  evenkeel status --agent http://10.0.0.5:9522 -o wide")]
pub(crate) struct StatusArgs {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    cluster: String,
    node: String,
    version: String,
    mode: String,
    rules: String,
    panic: bool,
    capabilities: Vec<String>,
    knobs: Vec<Knob>,
    wake: Option<Wake>,
    sources: Vec<Source>,
    stream: Option<Stream>,
    containers: Vec<Container>,
}

#[derive(Serialize)]
struct Knob {
    name: String,
    state: String,
    why: Option<String>,
    remedy: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wake {
    process_events: bool,
    cgroup_events: bool,
    audit_period_seconds: f64,
    why: Option<String>,
}

#[derive(Serialize)]
struct Source {
    name: String,
    address: String,
    healthy: bool,
    containers: u32,
    why: Option<String>,
    remedy: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stream {
    address: String,
    connected: bool,
    epoch: String,
    frames_written: u64,
    frames_sent: u64,
    last_acknowledged: u64,
    spool_bytes: u64,
    frames_folded: u64,
    frames_dropped: u64,
    last_error: Option<String>,
}

/// One container of the agent.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Container {
    pod: String,
    container: String,
    kind: Option<&'static str>,
    id: String,
    inode: u64,
    cgroup: Option<String>,
    source: String,
    classes: Classes,
    estimated: bool,
    managed: bool,
    state: &'static str,
    why: Option<String>,
    generation: u64,
    verified_at: Option<String>,
    processes: u32,
    knobs: Vec<ContainerKnob>,
}

#[derive(Serialize)]
struct ContainerKnob {
    name: String,
    wanted: Option<String>,
    actual: Option<String>,
    state: &'static str,
    reason: String,
}

pub(crate) async fn run(_: &StatusArgs, address: &Address, output: &Output) -> Result<Answer, Failure> {
    let mut agent = client::agent(address).await?;
    let answer = agent.get_status(GetStatusRequest {}).await.map_err(|e| address.failed(&e))?;
    let status = Status::from(answer.into_inner());
    output.answer_text(&status, || text(&status, output))?;
    Ok(Answer::Yes)
}

impl From<GetStatusResponse> for Status {
    fn from(r: GetStatusResponse) -> Self {
        Self {
            cluster: r.cluster,
            node: r.node,
            version: r.version,
            mode: r.mode,
            rules: r.rules,
            panic: r.panic,
            capabilities: r.capabilities,
            knobs: r
                .knobs
                .into_iter()
                .map(|k| Knob { name: k.name, state: k.state, why: some(k.why), remedy: some(k.remedy) })
                .collect(),
            wake: r.wake.map(|w| Wake {
                process_events: w.process_events,
                cgroup_events: w.cgroup_events,
                audit_period_seconds: w.audit_period_usec as f64 / 1e6,
                why: some(w.why),
            }),
            sources: r
                .sources
                .into_iter()
                .map(|s| Source {
                    name: s.name,
                    address: s.address,
                    healthy: s.healthy,
                    containers: s.containers,
                    why: some(s.why),
                    remedy: some(s.remedy),
                })
                .collect(),
            stream: r.stream.map(|s| Stream {
                address: s.address,
                connected: s.connected,
                epoch: format!("{:016x}", s.epoch),
                frames_written: s.frames_written,
                frames_sent: s.frames_sent,
                last_acknowledged: s.last_acknowledged,
                spool_bytes: s.spool_bytes,
                frames_folded: s.frames_folded,
                frames_dropped: s.frames_dropped,
                last_error: some(s.last_error),
            }),
            containers: r.containers.into_iter().map(Container::from).collect(),
        }
    }
}

impl From<ContainerStatus> for Container {
    fn from(c: ContainerStatus) -> Self {
        let identity = c.identity.unwrap_or_default();
        Self {
            pod: wire::pod(&identity),
            kind: wire::kind(identity.kind),
            classes: Classes::of(&identity),
            estimated: identity.estimated,
            inode: identity.cgroup_inode,
            container: identity.container,
            id: identity.id,
            cgroup: some(c.cgroup),
            source: c.source,
            managed: c.managed,
            state: wire::state(c.state),
            why: some(c.why),
            generation: c.generation,
            verified_at: wire::time(c.verified_at_usec),
            processes: c.processes,
            knobs: c.knobs.into_iter().map(ContainerKnob::from).collect(),
        }
    }
}

impl From<KnobValue> for ContainerKnob {
    fn from(k: KnobValue) -> Self {
        Self {
            name: k.name,
            wanted: k.wanted,
            actual: k.actual,
            state: wire::state(k.state),
            reason: k.reason,
        }
    }
}

fn some(text: String) -> Option<String> {
    known(&text).is_some().then_some(text)
}

fn text(status: &Status, output: &Output) -> String {
    let mut text = format!(
        "node {} of cluster {}, {} with the {} rules{}, evenkeel-agent {}\n",
        status.node,
        status.cluster,
        status.mode,
        status.rules,
        if status.panic { ", PANIC: nothing is changed" } else { "" },
        status.version,
    );
    let held = if status.capabilities.is_empty() { "none".into() } else { status.capabilities.join(", ") };
    text.push_str(&format!("capabilities: {held}\n"));
    text.push_str(&stream_text(status));
    let tables = [knob_table(status), source_table(status), container_table(status, output.is_wide())];
    for table in tables {
        text.push('\n');
        text.push_str(&table.render(output.has_colour()));
    }
    text
}

fn stream_text(status: &Status) -> String {
    let mut text = String::new();
    if let Some(wake) = &status.wake {
        let yes = |b: bool| if b { "on" } else { "off" };
        text.push_str(&format!(
            "woken by: process events {}, cgroup events {}, audit every {} s{}\n",
            yes(wake.process_events),
            yes(wake.cgroup_events),
            wake.audit_period_seconds,
            wake.why.as_ref().map(|w| format!(" ({w})")).unwrap_or_default(),
        ));
    }
    if let Some(s) = status.stream.as_ref().filter(|s| !s.address.is_empty()) {
        text.push_str(&format!(
            "stream: {} {}, {} frames written, {} sent, acknowledged up to {}{}\n",
            s.address,
            if s.connected { "connected" } else { "disconnected" },
            s.frames_written,
            s.frames_sent,
            s.last_acknowledged,
            s.last_error.as_ref().map(|e| format!("; {e}")).unwrap_or_default(),
        ));
    }
    text
}

fn knob_table(status: &Status) -> Table {
    let mut table = Table::new(&["KNOB", "STATE", "WHY", "REMEDY"]);
    for knob in &status.knobs {
        table.row(vec![
            knob.name.as_str().into(),
            wire::toned(&knob.state),
            knob.why.as_deref().unwrap_or("").into(),
            knob.remedy.as_deref().unwrap_or("").into(),
        ]);
    }
    table
}

fn source_table(status: &Status) -> Table {
    let mut table = Table::new(&["SOURCE", "ADDRESS", "STATE", "CONTAINERS", "WHY", "REMEDY"]);
    for source in &status.sources {
        table.row(vec![
            source.name.as_str().into(),
            source.address.as_str().into(),
            wire::toned(if source.healthy { "ok" } else { "fail" }),
            source.containers.to_string().into(),
            source.why.as_deref().unwrap_or("").into(),
            source.remedy.as_deref().unwrap_or("").into(),
        ]);
    }
    table
}

fn container_table(status: &Status, wide: bool) -> Table {
    let mut titles =
        vec!["POD", "CONTAINER", "CLASS", "STATE", "OOM-SCORE-ADJ", "SHARES", "WEIGHT", "PROCESSES"];
    if wide {
        titles.extend(["KIND", "CPU-CLASS", "SOURCE", "GENERATION", "VERIFIED", "INODE", "CGROUP", "WHY"]);
    }
    let mut table = Table::new(&titles);
    for c in &status.containers {
        let mut row: Vec<Cell> = vec![
            c.pod.as_str().into(),
            c.container.as_str().into(),
            estimated(c).into(),
            wire::toned(c.state),
            c.knob("oom_score_adj").into(),
            c.knob("cpu.shares").into(),
            c.knob("cpu.weight").into(),
            c.processes.to_string().into(),
        ];
        if wide {
            row.extend([
                Cell::from(c.kind.unwrap_or("-")),
                c.classes.cpu.unwrap_or("-").into(),
                c.source.as_str().into(),
                c.generation.to_string().into(),
                c.verified_at.as_deref().unwrap_or("-").into(),
                c.inode.to_string().into(),
                c.cgroup.as_deref().unwrap_or("-").into(),
                c.why.as_deref().unwrap_or("").into(),
            ]);
        }
        table.row(row);
    }
    table
}

/// The class by memory, with a mark where it was inverted from a runtime's record.
fn estimated(c: &Container) -> String {
    let class = c.classes.memory.unwrap_or("-");
    if c.estimated { format!("{class} (estimated)") } else { class.to_owned() }
}

impl Container {
    /// `namespace/pod` and name.
    pub(crate) fn is_named(&self, pod: &str, container: Option<&str>) -> bool {
        let pod_name = self.pod.split_once('/').map_or(self.pod.as_str(), |(_, name)| name);
        (self.pod == pod || pod_name == pod) && container.is_none_or(|c| c == self.container)
    }

    /// Value of a knob: what is there, and what is wished where that differs.
    fn knob(&self, name: &str) -> String {
        let Some(knob) = self.knobs.iter().find(|k| k.name == name) else { return "-".to_owned() };
        match (&knob.actual, &knob.wanted) {
            (Some(actual), Some(wanted)) if actual != wanted => format!("{actual} (want {wanted})"),
            (Some(value), _) | (None, Some(value)) => value.clone(),
            (None, None) => "-".to_owned(),
        }
    }

    /// All that is known of it, for a person.
    pub(crate) fn describe(&self, colour: bool) -> String {
        let mut text = format!(
            "pod:         {}\ncontainer:   {} ({})\nid:          {}\ncgroup:      {} (inode {})\nsource:      {}\n\
             class:       {} by memory, {} by cpu{}\nstate:       {}{}\nverified:    {} with {} processes, generation {}\n\n",
            self.pod,
            self.container,
            self.kind.unwrap_or("unknown kind"),
            self.id,
            self.cgroup.as_deref().unwrap_or("unknown"),
            self.inode,
            self.source,
            self.classes.memory.unwrap_or("unknown"),
            self.classes.cpu.unwrap_or("unknown"),
            if self.estimated { ", estimated" } else { "" },
            self.state,
            self.why.as_ref().map(|w| format!(": {w}")).unwrap_or_default(),
            self.verified_at.as_deref().unwrap_or("never"),
            self.processes,
            self.generation,
        );
        let mut table = Table::new(&["KNOB", "WANTED", "ACTUAL", "STATE", "REASON"]);
        for knob in &self.knobs {
            table.row(vec![
                knob.name.as_str().into(),
                knob.wanted.as_deref().unwrap_or("-").into(),
                knob.actual.as_deref().unwrap_or("-").into(),
                wire::toned(knob.state),
                knob.reason.as_str().into(),
            ]);
        }
        text.push_str(&table.render(colour));
        text
    }
}
