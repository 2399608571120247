//! An agent's status as people read it.

use super::form::{Container, Status};
use crate::output::Output;
use crate::table::{Cell, Table, clean};
use crate::wire;

/// Everything, in a few lines and three tables.
pub(super) fn status(status: &Status, output: &Output) -> String {
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
            clean(&self.pod),
            clean(&self.container),
            self.kind.unwrap_or("unknown kind"),
            clean(&self.id),
            clean(self.cgroup.as_deref().unwrap_or("unknown")),
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
