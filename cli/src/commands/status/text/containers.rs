//! The table of containers.

use super::super::form::{AgentStatus, ContainerRow};
use crate::table::{Cell, Table, clean};
use crate::wire;

pub(super) fn container_table(status: &AgentStatus, wide: bool) -> Table {
    let mut titles = vec![
        "POD",
        "CONTAINER",
        "CLASS",
        "CPU-CLASS",
        "STATE",
        "OOM-SCORE-ADJ",
        "SHARES",
        "WEIGHT",
        "PROCESSES",
    ];
    if wide {
        titles.extend(["KIND", "THROTTLED", "SOURCE", "GENERATION", "VERIFIED", "INODE", "CGROUP", "WHY"]);
    }
    let mut table = Table::new(&titles);
    for c in &status.containers {
        let mut row: Vec<Cell> = vec![
            c.pod.as_str().into(),
            c.container.as_str().into(),
            estimated(c).into(),
            c.classes.cpu.unwrap_or("-").into(),
            wire::toned(c.state),
            c.knob("oom_score_adj").into(),
            c.knob("cpu.shares").into(),
            c.knob("cpu.weight").into(),
            c.processes.to_string().into(),
        ];
        if wide {
            row.extend([
                Cell::from(c.kind.unwrap_or("-")),
                c.throttled().into(),
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
pub(super) fn estimated(c: &ContainerRow) -> String {
    let class = c.classes.memory.unwrap_or("-");
    if c.estimated { format!("{class} (estimated)") } else { class.to_owned() }
}

impl ContainerRow {
    /// Value of a knob: what is there, and what is wished where that differs.
    fn knob(&self, name: &str) -> String {
        let Some(knob) = self.knobs.iter().find(|k| k.name == name) else { return "-".to_owned() };
        match (&knob.actual, &knob.wanted) {
            (Some(actual), Some(wanted)) if actual != wanted => format!("{actual} (want {wanted})"),
            (Some(value), _) | (None, Some(value)) => value.clone(),
            (None, None) => "-".to_owned(),
        }
    }

    /// Part of its periods in which its CPU limit held it back, in the last minute.
    fn throttled(&self) -> String {
        match &self.throttling {
            Some(t) if t.periods > 0 => {
                let tenths = t.throttled_periods.saturating_mul(1000) / t.periods;
                format!("{}.{} %", tenths / 10, tenths % 10)
            }
            Some(_) => "0.0 %".to_owned(),
            None => "-".to_owned(),
        }
    }

    /// The same in words.
    fn throttled_words(&self) -> String {
        let Some(t) = &self.throttling else { return "no CPU limit, or not measured yet".to_owned() };
        format!(
            "in {} of {} periods of the last {} s, for {:.3} s in all",
            t.throttled_periods,
            t.periods,
            t.window_seconds,
            t.throttled_usec as f64 / 1e6,
        )
    }

    /// All that is known of it, for a person.
    pub(crate) fn describe(&self, colour: bool) -> String {
        let mut text = format!(
            "pod:         {}\ncontainer:   {} ({})\nid:          {}\ncgroup:      {} (inode {})\nsource:      {}\n\
             class:       {} by memory, {} by cpu{}\nrequired by: {}\nstate:       {}{}\nverified:    {} with {} processes, generation {}\n\
             throttled:   {}\n\n",
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
            clean(self.required_by.as_deref().unwrap_or("nobody")),
            self.state,
            self.why.as_ref().map(|w| format!(": {w}")).unwrap_or_default(),
            self.verified_at.as_deref().unwrap_or("never"),
            self.processes,
            self.generation,
            self.throttled_words(),
        );
        let mut table = Table::new(&["KNOB", "WANTED", "ACTUAL", "STATE", "SEEN", "SINCE", "BY", "REASON"]);
        for knob in &self.knobs {
            table.row(vec![
                knob.name.as_str().into(),
                knob.wanted.as_deref().unwrap_or("-").into(),
                knob.actual.as_deref().unwrap_or("-").into(),
                wire::toned(knob.state),
                knob.count.map_or_else(String::new, |count| format!("{count}x")).into(),
                knob.since.as_deref().unwrap_or("").into(),
                knob.by.as_deref().unwrap_or("").into(),
                match &knob.remedy {
                    Some(remedy) => format!("{}; {remedy}", knob.reason).into(),
                    None => knob.reason.as_str().into(),
                },
            ]);
        }
        text.push_str(&table.render(colour));
        text
    }
}
