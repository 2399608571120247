//! Pressure and what is held against it, as status shows them.

use evenkeel_proto::v1::{HoldStatus, PressureDomain, PressureStatus};
use serde::Serialize;

use crate::table::{Table, clean};
use crate::{units, wire};

/// How short memory is, and what was done about it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pressure {
    enabled: bool,
    domains: Vec<Domain>,
    starving: u32,
    last_step: Option<LastStep>,
}

/// Something that has memory of its own to run short of.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Domain {
    /// `None` = the node.
    cgroup: Option<String>,
    grade: String,
    cause: Option<String>,
    since: Option<String>,
    some_percent: Option<f64>,
    full_percent: Option<f64>,
    available_bytes: u64,
    total_bytes: u64,
    exhaustion_seconds: Option<f64>,
    wake: String,
}

/// The last step.
#[derive(Serialize)]
struct LastStep {
    time: Option<String>,
    container: String,
    knob: String,
    value: String,
    why: String,
}

/// A setting that is in force for a while.
#[derive(Serialize)]
pub(super) struct Hold {
    container: String,
    cgroup: String,
    knob: String,
    value: String,
    original: String,
    since: Option<String>,
    by: String,
    why: String,
}

impl From<PressureStatus> for Pressure {
    fn from(p: PressureStatus) -> Self {
        Self {
            enabled: p.enabled,
            domains: p.domains.into_iter().map(Domain::from).collect(),
            starving: p.starving,
            last_step: p.last_step.map(|s| LastStep {
                time: wire::time(s.time_usec),
                container: s.container,
                knob: s.knob,
                value: s.value,
                why: s.why,
            }),
        }
    }
}

impl From<PressureDomain> for Domain {
    fn from(d: PressureDomain) -> Self {
        let known = |text: String| (!text.is_empty()).then_some(text);
        Self {
            cgroup: known(d.cgroup),
            grade: d.grade,
            cause: known(d.cause),
            since: wire::time(d.since_usec),
            some_percent: d.some_percent,
            full_percent: d.full_percent,
            available_bytes: d.available_bytes,
            total_bytes: d.total_bytes,
            exhaustion_seconds: d.exhaustion_usec.map(|usec| usec as f64 / 1e6),
            wake: d.wake,
        }
    }
}

impl From<HoldStatus> for Hold {
    fn from(h: HoldStatus) -> Self {
        Self {
            container: h.container,
            cgroup: h.cgroup,
            knob: h.knob,
            value: h.value,
            original: h.original,
            since: wire::time(h.since_usec),
            by: h.by,
            why: h.why,
        }
    }
}

impl Pressure {
    /// A line for each domain, and one for starvation where there is any.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for d in &self.domains {
            let place = d.cgroup.as_deref().map_or_else(|| "node".to_owned(), clean);
            let percent = |p: Option<f64>| p.map_or_else(|| "unknown".to_owned(), |p| format!("{p:.1} %"));
            // A subtree on cgroup v1 tells of nobody's waiting.
            let waiting = match (d.some_percent, d.full_percent) {
                (None, None) => String::new(),
                (some, full) => format!(" waiting some {} full {},", percent(some), percent(full)),
            };
            text.push_str(&format!(
                "pressure: {place} {}{},{waiting} {} of {} available{}\n",
                clean(&d.grade),
                d.cause.as_ref().map(|c| format!(" by {}", clean(c))).unwrap_or_default(),
                units::bytes(d.available_bytes),
                units::bytes(d.total_bytes),
                if self.enabled { "" } else { "; nothing is done about it" },
            ));
        }
        if let Some(step) = &self.last_step {
            let time = step.time.as_deref().unwrap_or("unknown");
            text.push_str(&format!(
                "last step: {time} {} {} = {}: {}\n",
                clean(&step.container),
                clean(&step.knob),
                clean(&step.value),
                clean(&step.why)
            ));
        }
        if self.starving > 0 {
            text.push_str(&format!("containers with less CPU than they requested: {}\n", self.starving));
        }
        text
    }
}

/// What is held now.
pub(super) fn table(holds: &[Hold]) -> Table {
    let mut table = Table::new(&["HELD", "KNOB", "VALUE", "ORIGINAL", "BY", "SINCE", "WHY"]);
    for h in holds {
        table.row(vec![
            h.container.as_str().into(),
            h.knob.as_str().into(),
            h.value.as_str().into(),
            h.original.as_str().into(),
            h.by.as_str().into(),
            h.since.as_deref().unwrap_or("-").into(),
            h.why.as_str().into(),
        ]);
    }
    table
}
