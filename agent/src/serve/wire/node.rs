//! What the wire says of the node: its knobs, daemons, cap, sources and ring.

use evenkeel_enforce::converge::board::{NodeKnob, SourceView};
use evenkeel_enforce::converge::source_name;
use evenkeel_enforce::node::cap::CapView;
use evenkeel_enforce::node::daemons::{Daemon, DaemonState};
use evenkeel_enforce::shared::lock;
use evenkeel_model::units::Bytes;
use evenkeel_proto::v1;

use super::TOLD_PROBLEMS;
use crate::shared::Stats;

pub(super) fn node_knob(knob: NodeKnob) -> v1::KnobStatus {
    v1::KnobStatus {
        name: knob.name.to_owned(),
        state: knob.state.to_owned(),
        why: knob.why,
        remedy: knob.remedy,
    }
}

pub(super) fn daemon(daemon: Daemon) -> v1::DaemonStatus {
    v1::DaemonStatus {
        state: daemon.state.as_str().to_owned(),
        why: match daemon.state {
            DaemonState::Denied(why) => why,
            DaemonState::Managed(name) => format!("it is in the container {name}, whose score it has"),
            DaemonState::Contended => "somebody else keeps changing its score; it is left alone".to_owned(),
            DaemonState::Protected | DaemonState::Would => String::new(),
        },
        name: daemon.name,
        pid: daemon.pid,
        found_by: daemon.by,
        cgroup: daemon.cgroup.unwrap_or_default(),
        wanted: daemon.wanted.get().into(),
        actual: daemon.actual.map(|score| score.get().into()),
    }
}

pub(super) fn cap(cap: CapView) -> v1::WorkloadsCapStatus {
    v1::WorkloadsCapStatus {
        cgroup: cap.cgroup,
        state: cap.state.to_owned(),
        why: cap.why,
        remedy: cap.remedy,
        reserve_bytes: cap.reserve.get(),
        cap_bytes: cap.cap.map(Bytes::get),
        inside_bytes: cap.inside.get(),
        outside_bytes: cap.outside.get(),
        rewrites: cap.rewrites,
        since_usec: cap.since_usec.unwrap_or(0),
    }
}

pub(super) fn source(view: &SourceView) -> v1::SourceStatus {
    let told = view.problems.iter().take(TOLD_PROBLEMS);
    let mut why: Vec<String> = told.map(|p| format!("cannot {} {}: {}", p.what, p.where_, p.why)).collect();
    let more = view.problems.len().saturating_sub(TOLD_PROBLEMS);
    if more > 0 {
        why.push(format!("and {more} more, which `evenkeel events --kind source` tells"));
    }
    v1::SourceStatus {
        name: source_name(view.kind).to_owned(),
        address: view.address.clone(),
        healthy: view.healthy,
        why: why.join("; "),
        remedy: view.problems.first().map(|p| p.remedy.clone()).unwrap_or_default(),
        containers: u32::try_from(view.containers).unwrap_or(u32::MAX),
    }
}

/// Why seconds to look back at are not kept.
pub(super) fn ring(stats: &Stats) -> Option<NodeKnob> {
    let why = lock(&stats.ring_failure).clone()?;
    let remedy = "free space on the file system of state_dir; it is tried again every minute".to_owned();
    Some(NodeKnob { name: "ring", state: "failed", why, remedy })
}
