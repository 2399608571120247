//! Views to messages.

mod node;

use std::sync::Arc;

use evenkeel_enforce::allocatable::Shortage;
use evenkeel_enforce::converge::board::{ContainerView, KnobView};
use evenkeel_enforce::converge::{State, source_name};
use evenkeel_enforce::oom::evictions::EvictionOffer;
use evenkeel_enforce::shared::{Tracked, lock, micros};
use evenkeel_model::sample::Sample;
use evenkeel_model::usage::UsageRecord;
use evenkeel_model::workload::{Requested, SourceKind, Workload};
use evenkeel_proto::convert::{Identity, usage_record};
use evenkeel_proto::v1;

use super::{Agent, pressure};
use crate::parts::status;
use crate::report::{PastSecond, Throttling};
use crate::shared::{Context, LiveTick, StreamState};
use node::{cap, daemon, node_knob, ring, source};

/// Everything status shows.
pub(super) fn status(agent: &Agent) -> v1::GetStatusResponse {
    let (context, board) = (&agent.context, &agent.board);
    let config = &context.config;
    let wake = board.wake();
    let (followed, streams) = streams(agent);
    v1::GetStatusResponse {
        cluster: context.node.cluster.clone(),
        node: context.node.node.clone(),
        mode: config.enforce.mode.as_str().to_owned(),
        rules: config.enforce.plan.rules.as_str().to_owned(),
        panic: context.enforce.overlays.last().is_some_and(|offer| offer.panic.is_some()),
        capabilities: agent.capabilities.clone(),
        knobs: board
            .knobs()
            .into_iter()
            .chain(context.stats.enforce.damages.rows())
            .chain(ring(&context.stats))
            .chain(context.trust.rows())
            .map(node_knob)
            .collect(),
        containers: containers(agent, false),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        facts: Some((&context.enforce.facts).into()),
        stream: Some(followed),
        streams,
        wake: Some(v1::WakeStatus {
            process_events: wake.process_events,
            cgroup_events: wake.cgroup_events,
            audit_period_usec: micros(config.enforce.converge.audit_period),
            why: wake.why.unwrap_or_default(),
        }),
        sources: board.sources().iter().map(source).collect(),
        pressure: Some(pressure::status(&agent.pressure)),
        holds: agent.holds.list().iter().map(pressure::hold).collect(),
        daemons: agent.node.daemons().into_iter().map(daemon).collect(),
        workloads_cap: agent.node.cap().map(cap),
        overlay: config.enforce.overlay.accept.then(|| overlay(context)),
        pods: pods(agent),
        parts_mode: config.parts.mode.as_str().to_owned(),
        parts: status::all(config.parts.mode, &agent.parts),
    }
}

/// What is known of the node's pods in the API server's words.
fn pods(agent: &Agent) -> Option<v1::PodsStatus> {
    let followed =
        agent.board.containers().iter().filter(|view| view.tracked.workload.pod_facts.from_api).count();
    let status = agent.context.pods.status()?;
    Some(v1::PodsStatus { followed: u32::try_from(followed).unwrap_or(u32::MAX), ..status })
}

/// Who says what a container requires.
fn required_by(workload: &Workload) -> &'static str {
    match (&workload.requested, workload.source) {
        _ if workload.pod_facts.from_api => "api",
        (Requested::Unknown, _) => "",
        (Requested::Estimated(_), _) => "estimate",
        (Requested::Stated(_), SourceKind::Manifests) => "manifest",
        (Requested::Stated(_), SourceKind::Systemd) => "unit",
        (Requested::Stated(_), _) => "annotation",
    }
}

/// Refusals shown at most: a policy that cannot be followed is seen from a few.
const REFUSALS: usize = 100;

/// What the recommender said last.
fn overlay(context: &Context) -> v1::OverlayStatus {
    let (last, refused) = (context.enforce.overlays.last(), context.enforce.overlays.refusals());
    let shown = refused.iter().take(REFUSALS).map(|refusal| v1::OverlayRefusal {
        pod: refusal.pod.clone(),
        container: refusal.container.clone(),
        why: format!("refused: {}", refusal.why),
    });
    let switch = last.as_ref().and_then(|offer| offer.panic.clone());
    v1::OverlayStatus {
        refused: shown.collect(),
        refused_count: u32::try_from(refused.len()).unwrap_or(u32::MAX),
        made_usec: last.as_ref().map_or(0, |offer| offer.made_usec),
        offered: last.as_ref().map_or(0, |offer| u32::try_from(offer.entries.len()).unwrap_or(u32::MAX)),
        in_force: u32::try_from(context.stats.enforce.resized.get()).unwrap_or(u32::MAX),
        panic_revert: switch.as_ref().is_some_and(|switch| switch.revert),
        panic: switch.map(|switch| switch.why().to_owned()).unwrap_or_default(),
    }
}

/// Every container, with what it used in the last minute where that is asked for.
pub(super) fn containers(agent: &Agent, with_usage: bool) -> Vec<v1::ContainerStatus> {
    let latest = lock(&agent.usage);
    let views = agent.board.containers();
    let of = |view: &Arc<ContainerView>| {
        let slot = view.tracked.slot;
        let usage = if with_usage { latest.record(slot) } else { None };
        container(view, usage, latest.throttling(slot))
    };
    views.iter().map(of).collect()
}

fn container(
    view: &ContainerView,
    usage: Option<UsageRecord>,
    throttling: Option<Throttling>,
) -> v1::ContainerStatus {
    let workload = &view.tracked.workload;
    let usage = usage.map(|record| {
        usage_record(&record, &workload.pod.namespace, &workload.workload, &workload.container)
    });
    v1::ContainerStatus {
        identity: Some(identity(&view.tracked)),
        state: state(view.state).into(),
        generation: view.generation,
        verified_at_usec: view.verified_at_usec.unwrap_or(0),
        processes: view.processes,
        knobs: view.knobs.iter().map(knob).collect(),
        source: source_name(view.tracked.workload.source).to_owned(),
        managed: view.unmanaged.is_none(),
        why: view.unmanaged.clone().unwrap_or_default(),
        cgroup: view.tracked.cgroup.to_string(),
        usage,
        throttling: throttling.map(|t| v1::Throttling {
            window_seconds: u32::try_from(t.seconds).unwrap_or(u32::MAX),
            periods: t.periods,
            throttled_periods: t.throttled_periods,
            throttled_usec: t.throttled_usec,
        }),
        required_by: required_by(workload).to_owned(),
    }
}

/// Who a container is.
pub(super) fn identity(tracked: &Tracked) -> v1::ContainerIdentity {
    let classes = tracked.classes;
    Identity::of(&tracked.workload, classes.memory, classes.cpu, tracked.inode).into()
}

fn knob(view: &KnobView) -> v1::KnobValue {
    v1::KnobValue {
        name: view.name().to_owned(),
        wanted: Some(view.wanted.to_string()),
        actual: view.actual.map(|actual| actual.to_string()),
        state: state(view.state).into(),
        reason: view.reason.to_string(),
        count: view.trouble.as_ref().map_or(0, |trouble| trouble.count),
        since_usec: view.trouble.as_ref().map_or(0, |trouble| trouble.since_usec),
        by: view.trouble.as_ref().map(|trouble| trouble.by()).unwrap_or_default(),
        remedy: view.trouble.as_ref().map(|trouble| trouble.remedy()).unwrap_or_default(),
    }
}

/// Problems of one source that status tells in full; all are among the decisions.
const TOLD_PROBLEMS: usize = 8;

/// The stream to the recommender that is followed, or the first; and all of them where there are several.
fn streams(agent: &Agent) -> (v1::StreamStatus, Vec<v1::StreamStatus>) {
    let addresses = &agent.context.config.stream.recommenders;
    let states = agent.context.stats.streams.all();
    let state = |at: usize| states.get(at).cloned().unwrap_or_default();
    let all = addresses.iter().enumerate().map(|(at, address)| stream(agent, address, state(at)));
    let all: Vec<v1::StreamStatus> = all.collect();
    let one = all.iter().find(|stream| stream.leads).or(all.first()).cloned();
    let one = one.unwrap_or_else(|| stream(agent, "", StreamState::default()));
    (one, if all.len() > 1 { all } else { Vec::new() })
}

fn stream(agent: &Agent, address: &str, state: StreamState) -> v1::StreamStatus {
    let stats = &agent.context.stats;
    let epoch = *lock(&stats.epoch);
    v1::StreamStatus {
        address: address.to_owned(),
        connected: state.connected,
        epoch: epoch.unwrap_or(agent.context.epoch),
        frames_written: stats.frames_written.get(),
        frames_sent: stats.frames_sent.get(),
        last_acknowledged: state.last_acknowledged,
        spool_bytes: stats.spool_bytes.get(),
        frames_folded: stats.frames_folded.get(),
        frames_dropped: stats.frames_dropped.get(),
        last_error: state.last_error.unwrap_or_default(),
        dropped: state.dropped,
        leads: state.leads,
    }
}

fn state(state: State) -> v1::ConvergeState {
    match state {
        State::Converged => v1::ConvergeState::Converged,
        State::Ineffective => v1::ConvergeState::Ineffective,
        State::Dirty => v1::ConvergeState::Dirty,
        State::Converging => v1::ConvergeState::Converging,
        State::Contended => v1::ConvergeState::Contended,
        State::Denied => v1::ConvergeState::Denied,
        State::Unclassified => v1::ConvergeState::Unclassified,
    }
}

/// A restart or an eviction that is offered.
pub(super) fn offer(offer: &EvictionOffer) -> v1::EvictionOffer {
    let pod = &offer.container.pod;
    v1::EvictionOffer {
        action: offer.remedy.as_str().to_owned(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        pod_uid: pod.uid.clone().unwrap_or_default(),
        container: offer.container.container.clone(),
        id: offer.id.clone(),
        cgroup_inode: offer.inode,
        restarts: offer.restarts,
        restarts_allowed: offer.allowed,
        window_usec: offer.window_usec,
        actor: offer.actor.clone(),
        standing: offer.standing,
        decision: Some((*offer.decision).clone().into()),
    }
}

/// Live use of all containers at one tick.
pub(super) fn usage(agent: &Agent, tick: &Arc<LiveTick>) -> v1::UsageTick {
    let node = &agent.context.node;
    let containers = tick.containers.iter().map(|live| v1::ContainerUsage {
        cluster: node.cluster.clone(),
        node: node.node.clone(),
        identity: Some(identity(&live.tracked)),
        time_usec: tick.time_usec,
        sample: Some(sample(&live.sample)),
        cpu_milli: live.cpu_milli,
        traffic: live.traffic.as_ref().map(|traffic| v1::Traffic::of(0, traffic)),
    });
    v1::UsageTick { containers: containers.collect() }
}

/// A second that was kept.
pub(super) fn past(agent: &Agent, past: PastSecond) -> v1::UsageTick {
    let node = &agent.context.node;
    let containers = past.containers.into_iter().map(|of| v1::ContainerUsage {
        cluster: node.cluster.clone(),
        node: node.node.clone(),
        identity: Some(of.identity),
        time_usec: past.time_usec,
        sample: Some(sample(&of.sample)),
        cpu_milli: of.cpu_milli,
        traffic: of.traffic,
    });
    v1::UsageTick { containers: containers.collect() }
}

fn sample(sample: &Sample) -> v1::Sample {
    v1::Sample::from(sample)
}

/// What is lacking of one resource.
pub(super) fn shortage(shortage: Shortage) -> v1::Shortage {
    let Shortage { resource, requested, free, by, why } = shortage;
    v1::Shortage { resource, requested, free, by, why }
}
