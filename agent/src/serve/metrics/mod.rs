//! `/metrics` in Prometheus text form: the agent's own counters, and use by container under cAdvisor's names where
//! the meaning is equal.
//!
//! A page shows the latest tick and is answered at once. The label `name` is the whole container id, as cAdvisor's: it is
//! what tells two containers apart that are called the same, such as an old and a new one of a pod of one name.
//!
//! Owned here: names, labels and the listener. Not owned: the numbers. The number of series is bounded by the
//! containers sampled now; nothing is remembered between scrapes.

mod own;
mod page;
mod pressure;
mod quality;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use evenkeel_enforce::shared::lock;
use evenkeel_enforce::stats::WriteStats;
use evenkeel_model::sample::Field;
use evenkeel_net::{Gate, Limits, Peer, Speech, called, is_own_name};
use tokio::sync::Semaphore;

use super::{Agent, Answers, Door, Listening};
use crate::pods::Pods;
use crate::shared::{LiveTick, Stats};
use crate::trust::Trusts;

use page::{FamilyKind, Page, seconds};

/// Scrapes answered at the same time; more are told to come back.
const SCRAPES: usize = 4;

/// A tick may be so late that its containers are still told; on a loaded machine a few are late by tenths of a second.
const LATE: Duration = Duration::from_millis(500);

/// Connections of scrapers: a few Prometheus servers, each of which keeps one.
const CONNECTIONS: Limits = Limits { connections: 64, per_peer: 32 };

/// Content type of the format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone)]
struct MetricsServer {
    answers: Answers,
    door: Door,
    scrapes: Arc<Semaphore>,
}

/// Serves until the agent stops.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) async fn serve(
    answers: Answers,
    Listening { address, door, tls }: Listening,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::bind(address).await.with_context(|| {
        format!("cannot serve metrics on {address}; change serve.metrics or free the port")
    })?;
    let served = MetricsServer { answers, door, scrapes: Arc::new(Semaphore::new(SCRAPES)) };
    let mut app = Router::new().route("/metrics", get(scrape)).with_state(served);
    if address.ip().is_loopback() {
        // Browsers of this machine get here, and no credential is asked for.
        app = app.layer(from_fn(by_own_name));
    }
    let gate = Gate::new("serve.metrics", CONNECTIONS);
    let connections = evenkeel_net::at_address(listener, gate, Speech::Http, tls);
    evenkeel_net::http::serve(connections, app, std::future::pending())
        .await
        .context("the metrics listener ended")
}

/// Refuses what is for another name: a page of another site could have its own name point here (DNS rebinding).
pub(super) async fn by_own_name(request: Request, next: Next) -> Response {
    if called(&request).is_some_and(|host| is_own_name(host, &[])) {
        return next.run(request).await;
    }
    let why = "this is for a host that is no name of this program: ask by address or as localhost\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

async fn scrape(State(served): State<MetricsServer>, request: Request) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    if let Err(why) = served.door.may(request.extensions().get::<Peer>(), sent) {
        let scheme = [(header::WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, scheme, format!("{why}\n")).into_response();
    }
    let Ok(_turn) = served.scrapes.try_acquire() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many scrapes at the same time\n").into_response();
    };
    match served.answers.metrics().await {
        Ok(page) => ([(header::CONTENT_TYPE, TEXT)], page).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", error.message())).into_response(),
    }
}

/// The whole page of an agent.
pub(super) async fn text(agent: &Agent) -> String {
    let context = &agent.context;
    let interval = context.config.sample.interval;
    let latest = lock(&agent.usage).now(interval + LATE);
    let tick = match latest {
        Some(tick) => Some(Arc::new(tick)),
        // Before the first tick, or while ticks are late: the next one, if it comes soon.
        None => {
            let mut ticks = agent.live.subscribe();
            tokio::time::timeout(interval + LATE, ticks.recv()).await.ok().and_then(Result::ok)
        }
    };
    let mut page = render(&context.stats, tick.as_deref(), &context.node.node);
    let ends = context.stats.streams.all();
    let token_ends = ends.iter().filter_map(|state| state.token_ends).min();
    page.push_str(&trusted(&context.trust, token_ends));
    page.push_str(&by_api(&context.pods));
    page.push_str(&quality::render(&lock(&agent.usage).quality()));
    let mut others = Page::default();
    own::parts(&mut others, &agent.parts);
    page.push_str(&others.text);
    page
}

/// The whole page; without a tick the containers are left out.
fn render(stats: &Stats, tick: Option<&LiveTick>, node: &str) -> String {
    let mut page = Page::default();
    agent(&mut page, stats);
    writes(&mut page, stats);
    by_class(&mut page, stats);
    damages(&mut page, stats);
    pressure::render(&mut page, &stats.enforce.pressure);
    own::process(&mut page);
    page.histogram(
        "evenkeel_agent_tick_lateness_seconds",
        "How late sampling ticks began after their deadline.",
        &stats.tick_lateness,
    );
    page.histogram(
        "evenkeel_agent_time_to_right_seconds",
        "Time from noticing that a container may be wrong to having verified it.",
        &stats.enforce.time_to_right,
    );
    page.histogram(
        "evenkeel_agent_first_pid_to_right_score_seconds",
        "Time from the start of a container's first process to all of its processes verified at their score.",
        &stats.enforce.first_pid_to_right,
    );
    if let Some(tick) = tick {
        classes(&mut page, tick, node);
        containers(&mut page, tick, node);
    }
    page.text
}

/// What the API server says of the node's pods; nothing where nothing was told.
fn by_api(pods: &Pods) -> String {
    let mut page = Page::default();
    let Some(status) = pods.status() else { return page.text };
    let (known, changed) = ("evenkeel_agent_api_pods", "evenkeel_agent_api_pods_changed_seconds");
    page.family(
        known,
        FamilyKind::Gauge,
        "Pods of the node whose requirements are known in the API server's words.",
    );
    page.sample(known, &[], status.pods);
    page.family(changed, FamilyKind::Gauge, "When something in them changed last, seconds since 1970.");
    page.sample(changed, &[], status.changed_usec / 1_000_000);
    page.text
}

/// Certificates, and what goes in the clear.
fn trusted(trust: &Trusts, token_ends: Option<u64>) -> String {
    let mut page = Page::default();
    let (insecure, expires, failing) = (
        "evenkeel_agent_insecure",
        "evenkeel_agent_certificate_expires_seconds",
        "evenkeel_agent_certificate_failing",
    );
    page.family(
        insecure,
        FamilyKind::Gauge,
        "1 while something goes over networks without encryption, or is told to whoever asks.",
    );
    page.sample(insecure, &[], u8::from(trust.is_insecure()));
    let certificates = trust.certificates();
    page.family(expires, FamilyKind::Gauge, "End of a certificate, seconds since 1970, by what it is for.");
    for (of, ends, _) in &certificates {
        page.sample(expires, &[("for", of)], ends);
    }
    page.family(
        failing,
        FamilyKind::Gauge,
        "1 while a certificate ends soon, or cannot be read, got or renewed.",
    );
    for (of, _, fails) in &certificates {
        page.sample(failing, &[("for", of)], u8::from(*fails));
    }
    if let Some(ends) = token_ends {
        let name = "evenkeel_agent_token_expires_seconds";
        page.family(
            name,
            FamilyKind::Gauge,
            "End of the stream's token, seconds since 1970, as the recommender says; a newer one is sent before.",
        );
        page.sample(name, &[], ends);
    }
    page.text
}

fn agent(page: &mut Page, stats: &Stats) {
    let streams = stats.streams.all();
    let connected = streams.iter().filter(|state| state.connected).count() as u64;
    let (counter, gauge) = (FamilyKind::Counter, FamilyKind::Gauge);
    let rows = [
        ("ticks_total", counter, "Sampling ticks done.", stats.ticks.get()),
        ("ticks_missed_total", counter, "Deadlines that passed without a tick.", stats.ticks_missed.get()),
        (
            "ticks_dropped_total",
            counter,
            "Ticks left out because reporting was behind.",
            stats.ticks_dropped.get(),
        ),
        ("sampled_containers", gauge, "Containers sampled at the last tick.", stats.sampled_containers.get()),
        ("samples_total", counter, "Samples taken.", stats.samples.get()),
        (
            "sample_errors_total",
            counter,
            "Files that could not be read or understood.",
            stats.sample_errors.get(),
        ),
        ("frames_written_total", counter, "Frames appended to the spool.", stats.frames_written.get()),
        ("frames_sent_total", counter, "Frames sent, repeats included.", stats.frames_sent.get()),
        (
            "frames_acknowledged_total",
            counter,
            "Frames acknowledged as durable.",
            stats.frames_acknowledged.get(),
        ),
        (
            "frames_folded_total",
            counter,
            "Frames folded into minutes for want of room.",
            stats.frames_folded.get(),
        ),
        ("frames_dropped_total", counter, "Frames lost.", stats.frames_dropped.get()),
        (
            "epochs_renewed_total",
            counter,
            "Epochs that go on under another name, because the recommender claimed more than it was sent.",
            stats.epochs_renewed.get(),
        ),
        ("spool_bytes", gauge, "Bytes in the spool.", stats.spool_bytes.get()),
        ("ring_bytes", gauge, "Bytes of seconds to look back at.", stats.ring_bytes.get()),
        (
            "ring_seconds_lost_total",
            counter,
            "Seconds that could not be kept to look back at.",
            stats.ring_seconds_lost.get(),
        ),
        ("stream_connected", gauge, "Streams to recommenders that stand.", connected),
        (
            "converge_passes_total",
            counter,
            "Passes over a container's processes.",
            stats.enforce.converge_passes.get(),
        ),
        ("freezes_total", counter, "Containers frozen for a pass.", stats.enforce.freezes.get()),
        (
            "processes_verified_total",
            counter,
            "Processes found right.",
            stats.enforce.processes_verified.get(),
        ),
        (
            "process_events_total",
            counter,
            "Process events from the kernel.",
            stats.enforce.process_events.get(),
        ),
        (
            "process_events_overrun_total",
            counter,
            "Times the kernel dropped process events.",
            stats.enforce.process_events_overrun.get(),
        ),
        (
            "process_events_paused_total",
            counter,
            "Times process events were not read for five seconds, because there were too many.",
            stats.enforce.process_events_paused.get(),
        ),
        (
            "process_events_shed_total",
            counter,
            "Execs of unknown processes not looked up, because there were too many at once.",
            stats.enforce.process_events_shed.get(),
        ),
        ("cgroup_events_total", counter, "Changes of the cgroup tree.", stats.enforce.cgroup_events.get()),
        ("containers", gauge, "Containers known.", stats.enforce.containers.get()),
        ("containers_converged", gauge, "Containers converged.", stats.enforce.containers_converged.get()),
        (
            "containers_ineffective",
            gauge,
            "Containers of which some knob is without its effect.",
            stats.enforce.containers_ineffective.get(),
        ),
        (
            "containers_resized",
            gauge,
            "Containers whose requests follow a recommendation.",
            stats.enforce.resized.get(),
        ),
        (
            "containers_contended",
            gauge,
            "Containers of which somebody else keeps rewriting some knob.",
            stats.enforce.containers_contended.get(),
        ),
        (
            "pods_not_admitted",
            gauge,
            "Pods of manifests whose requests do not fit beside the others'.",
            stats.enforce.pods_not_admitted.get(),
        ),
        (
            "track_changes_deferred_total",
            counter,
            "Changes of the tracked set that had to wait for the sampler.",
            stats.enforce.track_changes_deferred.get(),
        ),
        ("sources", gauge, "Sources of containers known.", stats.enforce.sources.get()),
        ("sources_healthy", gauge, "Sources of these that are healthy.", stats.enforce.sources_healthy.get()),
        ("daemons", gauge, "Daemons found that the node cannot live without.", stats.enforce.daemons.get()),
        (
            "daemons_protected",
            gauge,
            "Of these, those at the score of infrastructure.",
            stats.enforce.daemons_protected.get(),
        ),
        (
            "node_overcommit_memory",
            gauge,
            "vm.overcommit_memory; 1 is wished.",
            stats.enforce.overcommit.get(),
        ),
        ("node_swap_bytes", gauge, "Swap that is on.", stats.enforce.swap_bytes.get()),
        (
            "workloads_cap_bytes",
            gauge,
            "Limit of the cgroup that holds all workloads; 0 where it is not set.",
            stats.enforce.workloads_cap_bytes.get(),
        ),
        (
            "outside_workloads_bytes",
            gauge,
            "What everything outside that cgroup uses and cannot give back.",
            stats.enforce.outside_workloads_bytes.get(),
        ),
        ("decisions_total", counter, "Decisions recorded.", stats.enforce.decisions.get()),
        (
            "decisions_not_stored_total",
            counter,
            "Decisions that could not be written to disk.",
            stats.enforce.decisions_not_stored.get(),
        ),
        (
            "decisions_not_streamed_total",
            counter,
            "Decisions dropped before they were streamed.",
            stats.enforce.decisions_not_streamed.get(),
        ),
        (
            "events_waiting",
            gauge,
            "Kills and rulings the recommender has not acknowledged.",
            stats.events_waiting.get(),
        ),
        (
            "events_dropped_total",
            counter,
            "Kills and rulings dropped before they were acknowledged.",
            stats.events_dropped.get(),
        ),
        (
            "rests_ended_total",
            counter,
            "Containers whose rest was ended after an OOM kill.",
            stats.enforce.rests_ended.get(),
        ),
        (
            "rulings_carried_out_total",
            counter,
            "Rulings of the eviction policy that the agent carried out itself.",
            stats.enforce.rulings_carried_out.get(),
        ),
        (
            "panics_total",
            counter,
            "Defects of the agent that ended a thread or task.",
            crate::panics::count(),
        ),
    ];
    for (name, kind, help, value) in rows {
        let name = format!("evenkeel_agent_{name}");
        page.family(&name, kind, help);
        page.sample(&name, &[], value);
    }
}

fn writes(page: &mut Page, stats: &Stats) {
    const NAME: &str = "evenkeel_agent_writes_total";
    page.family(NAME, FamilyKind::Counter, "Writes to the kernel by knob and result.");
    for (knob, writes) in stats.enforce.writes.iter() {
        let WriteStats { done, would, denied, rejected, gone, failed } = writes;
        let knob = knob.name();
        for (result, count) in [
            ("done", done),
            ("would-do", would),
            ("denied", denied),
            ("rejected", rejected),
            ("gone", gone),
            ("failed", failed),
        ] {
            page.sample(NAME, &[("knob", knob), ("result", result)], count.get());
        }
    }
}

fn damages(page: &mut Page, stats: &Stats) {
    const NAME: &str = "evenkeel_agent_state_entries_damaged_total";
    page.family(NAME, FamilyKind::Counter, "Entries of state files that could not be read at start.");
    for (file, entries) in stats.enforce.damages.counts() {
        page.sample(NAME, &[("file", file.name())], entries);
    }
}

fn by_class(page: &mut Page, stats: &Stats) {
    for (name, help, counts) in [
        (
            "evenkeel_agent_oom_kills_total",
            "Processes of containers taken by the OOM killer.",
            &stats.enforce.oom_kills,
        ),
        ("evenkeel_agent_evictions_total", "Rulings that a pod should go.", &stats.enforce.evictions),
        (
            "evenkeel_agent_restarts_total",
            "Rulings that a container should start again.",
            &stats.enforce.restarts,
        ),
    ] {
        page.family(name, FamilyKind::Counter, help);
        for (class, count) in [
            ("BestEffort", &counts.best_effort),
            ("Burstable", &counts.burstable),
            ("Guaranteed", &counts.guaranteed),
            ("unclassified", &counts.unclassified),
        ] {
            page.sample(name, &[("class", class)], count.get());
        }
    }
}

/// Families by container: cAdvisor's name, its meaning, our field, and whether it is told in seconds.
const CONTAINER: [(&str, &str, Field, bool); 13] = [
    ("container_cpu_usage_seconds_total", "CPU time used.", Field::CpuUsageUsec, true),
    ("container_cpu_cfs_periods_total", "Elapsed enforcement periods.", Field::CpuPeriods, false),
    ("container_cpu_cfs_throttled_periods_total", "Throttled periods.", Field::CpuThrottledPeriods, false),
    ("container_cpu_cfs_throttled_seconds_total", "Time throttled.", Field::CpuThrottledUsec, true),
    ("container_memory_usage_bytes", "Memory charged.", Field::MemoryCurrentBytes, false),
    ("container_memory_working_set_bytes", "Working set.", Field::MemoryWorkingSetBytes, false),
    ("container_memory_rss", "Anonymous memory.", Field::MemoryAnonBytes, false),
    ("container_memory_swap", "Swap used.", Field::SwapBytes, false),
    ("container_pressure_cpu_waiting_seconds_total", "CPU stall, some.", Field::CpuPressureUsec, true),
    (
        "container_pressure_memory_waiting_seconds_total",
        "Memory stall, some.",
        Field::MemoryPressureUsec,
        true,
    ),
    ("container_pressure_io_waiting_seconds_total", "I/O stall, some.", Field::IoPressureUsec, true),
    ("container_oom_events_total", "Processes killed by the OOM killer.", Field::OomKills, false),
    ("container_threads", "Processes and threads.", Field::Pids, false),
];

/// One series a container, always 1: the classes are in the labels.
fn classes(page: &mut Page, tick: &LiveTick, node: &str) {
    const NAME: &str = "evenkeel_agent_container_qos_info";
    page.family(NAME, FamilyKind::Gauge, "QoS classes of a container, by memory and by CPU.");
    for container in &tick.containers {
        let (workload, classes) = (&container.tracked.workload, container.tracked.classes);
        let labels = [
            ("namespace", workload.pod.namespace.as_str()),
            ("pod", workload.pod.name.as_str()),
            ("container", workload.container.as_str()),
            ("name", workload.id.as_str()),
            ("node", node),
            ("memory_class", classes.memory.map_or("", |class| class.as_str())),
            ("cpu_class", classes.cpu.map_or("", |class| class.as_str())),
        ];
        page.sample(NAME, &labels, 1);
    }
}

fn containers(page: &mut Page, tick: &LiveTick, node: &str) {
    for (name, help, field, in_seconds) in CONTAINER {
        let kind = if field.is_counter() { FamilyKind::Counter } else { FamilyKind::Gauge };
        page.family(name, kind, help);
        for container in &tick.containers {
            let Some(value) = container.sample.get(field) else { continue };
            let workload = &container.tracked.workload;
            let labels = [
                ("namespace", workload.pod.namespace.as_str()),
                ("pod", workload.pod.name.as_str()),
                ("container", workload.container.as_str()),
                ("name", workload.id.as_str()),
                ("node", node),
            ];
            let value: &dyn Display = if in_seconds { &seconds(value) } else { &value };
            page.sample(name, &labels, value);
        }
    }
}
