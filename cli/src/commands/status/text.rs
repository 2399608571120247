//! An agent's status as people read it.

mod containers;

use super::cluster::Recommender;
use super::form::{AgentStatus, ProcessStatus};
use crate::output::Output;
use crate::table::{Table, clean};
use crate::{units, wire};
use containers::container_table;
use evenkeel_model::panic::Panic;

/// Everything, in a few lines and three tables.
pub(super) fn status(status: &AgentStatus, output: &Output) -> String {
    let mut text = format!(
        "node {} of cluster {}, {} with the {} rules{}, evenkeel-agent {}\n",
        status.node,
        status.cluster,
        status.mode,
        status.rules,
        panic_text(status),
        status.version,
    );
    let held = if status.capabilities.is_empty() { "none".into() } else { status.capabilities.join(", ") };
    text.push_str(&format!("capabilities: {held}\n"));
    text.push_str(&parts_text(status));
    text.push_str(&stream_text(status));
    text.push_str(&cap_text(status));
    text.push_str(&overlay_text(status));
    text.push_str(&pods_text(status));
    text.push_str(&status.recommender.as_ref().map(Recommender::text).unwrap_or_default());
    if let Some(pressure) = &status.pressure {
        text.push_str(&pressure.text());
    }
    let tables = [
        Some(knob_table(status)),
        Some(source_table(status)),
        (!status.holds.is_empty()).then(|| super::pressure::table(&status.holds)),
        (!status.daemons.is_empty()).then(|| daemon_table(status)),
        Some(container_table(status, output.is_wide())),
    ];
    for table in tables.into_iter().flatten() {
        text.push('\n');
        text.push_str(&table.render(output.has_colour()));
    }
    text
}

/// The agent's processes.
fn parts_text(status: &AgentStatus) -> String {
    let line = |part: &ProcessStatus| {
        let held =
            if part.capabilities.is_empty() { "none".to_owned() } else { part.capabilities.join(", ") };
        let yes = |b: bool| if b { "yes" } else { "no" };
        let stands = match part.pid {
            Some(pid) => format!(
                "pid {pid}, uid {}, capabilities {}, seccomp {}, no_new_privs {}",
                part.uid,
                clean(&held),
                yes(part.seccomp),
                yes(part.no_new_privs),
            ),
            None => "not there".to_owned(),
        };
        let ended = part.ended.as_deref().map(|why| format!(": {}", clean(why))).unwrap_or_default();
        let again = match part.restarts {
            0 => String::new(),
            times => format!("; started again {times} times, last{ended}"),
        };
        format!("process {}: {stands}{again}\n", clean(&part.name))
    };
    status.parts.iter().map(line).collect()
}

fn stream_text(status: &AgentStatus) -> String {
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
    let several = !status.streams.is_empty();
    let one = status.stream.iter().filter(|s| !several && !s.address.is_empty());
    for s in one.chain(&status.streams) {
        text.push_str(&format!(
            "stream: {} {}{}, {} frames written, {} sent, acknowledged up to {}{}\n",
            clean(&s.address),
            if s.connected { "connected" } else { "disconnected" },
            if several && s.leads { ", leads" } else { "" },
            s.frames_written,
            s.frames_sent,
            s.last_acknowledged,
            s.last_error.as_ref().map(|e| format!("; {}", clean(e))).unwrap_or_default(),
        ));
        for d in &s.dropped {
            let (reason, remedy) = (clean(&d.reason), clean(&d.remedy));
            text.push_str(&format!("stream: {} not taken in: {reason}; {remedy}\n", d.count));
        }
    }
    text
}

fn cap_text(status: &AgentStatus) -> String {
    let Some(c) = &status.workloads_cap else { return String::new() };
    let cap = c.cap_bytes.map_or_else(|| "not yet".to_owned(), units::bytes);
    format!(
        "workloads: {} capped at {cap} ({}), using {}; {} kept for everything else, which uses {}\n",
        clean(&c.cgroup),
        c.state,
        units::bytes(c.inside_bytes),
        units::bytes(c.reserve_bytes),
        units::bytes(c.outside_bytes),
    )
}

/// The panic switch, where it is on.
fn panic_text(status: &AgentStatus) -> String {
    let revert = status.overlay.as_ref().is_some_and(|overlay| overlay.panic_revert);
    match status.panic {
        true => format!(", PANIC: {}", Panic::of(true, revert).meaning()),
        false => String::new(),
    }
}

/// Refusals that people are shown.
const REFUSALS: usize = 5;

fn overlay_text(status: &AgentStatus) -> String {
    let Some(o) = &status.overlay else { return String::new() };
    match (&o.made, &o.panic) {
        (_, Some(why)) => format!(
            "recommended requests: in force for {}, the panic switch is on ({}): {}\n",
            o.in_force,
            clean(why),
            Panic::of(true, o.panic_revert).meaning()
        ),
        (None, None) => "recommended requests: accepted, none offered yet\n".to_owned(),
        (Some(made), None) => {
            let mut text = format!(
                "recommended requests: in force for {} of {} offered, told at {made}\n",
                o.in_force, o.offered
            );
            for r in o.refused.iter().take(REFUSALS) {
                text.push_str(&format!("  {} {}: {}\n", clean(&r.pod), clean(&r.container), clean(&r.why)));
            }
            let more = (o.refused_count as usize).saturating_sub(REFUSALS);
            if more > 0 {
                text.push_str(&format!("  and {more} more: evenkeel status -o json\n"));
            }
            text
        }
    }
}

fn pods_text(status: &AgentStatus) -> String {
    let Some(p) = &status.pods else { return String::new() };
    let mut text = format!(
        "pods by the API server: {} known, {} containers follow them; generation {}, changed at {}{}\n",
        p.known,
        p.followed,
        p.generation,
        p.changed.as_deref().unwrap_or("-"),
        if p.kept { ", kept by an earlier run" } else { "" },
    );
    if let Some(kubelet) = &p.kubelet {
        let read = kubelet.read.as_deref().unwrap_or("never");
        text.push_str(&format!("pods by the kubelet: {} listed, read at {read}\n", kubelet.pods));
        if !kubelet.trouble.is_empty() {
            text.push_str(&format!("  not read again: {}\n", clean(&kubelet.trouble)));
        }
    }
    for refused in &p.refused {
        text.push_str(&format!("  not followed: {}\n", clean(refused)));
    }
    text
}

fn daemon_table(status: &AgentStatus) -> Table {
    let mut table = Table::new(&["DAEMON", "PID", "FOUND-BY", "STATE", "OOM-SCORE-ADJ", "CGROUP", "WHY"]);
    for daemon in &status.daemons {
        let score = &daemon.oom_score_adj;
        let score = match score.actual {
            Some(actual) if actual == score.wanted => actual.to_string(),
            Some(actual) => format!("{actual} (want {})", score.wanted),
            None => format!("(want {})", score.wanted),
        };
        table.row(vec![
            daemon.name.as_str().into(),
            daemon.pid.to_string().into(),
            daemon.found_by.as_str().into(),
            wire::toned(&daemon.state),
            score.into(),
            daemon.cgroup.as_deref().unwrap_or("-").into(),
            daemon.why.as_deref().unwrap_or("").into(),
        ]);
    }
    table
}

fn knob_table(status: &AgentStatus) -> Table {
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

fn source_table(status: &AgentStatus) -> Table {
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
