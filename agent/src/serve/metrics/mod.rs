//! `/metrics` in the text form of OpenMetrics: the agent's own counters, and use by container under cAdvisor's names where
//! the meaning is equal.
//!
//! A page shows the latest tick and is answered at once. The label `name` is the whole container id, as cAdvisor's: it is
//! what tells two containers apart that are called the same, such as an old and a new one of a pod of one name.
//!
//! Owned here: names, labels and the listener. Not owned: the numbers. The number of series is bounded by the
//! containers sampled now; nothing is remembered between scrapes.

mod own;
mod pressure;
mod quality;
#[cfg(test)]
mod tests;

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
use evenkeel_enforce::stats::{HISTOGRAM_BOUNDS_USEC, Histogram, WriteStats};
use evenkeel_metrics::{Buckets, CONTENT_TYPE, FamilyKind, Labels, Number, Page};
use evenkeel_model::sample::Field;
use evenkeel_net::{Gate, Limits, Peer, Speech, called, is_own_name};
use tokio::sync::Semaphore;

use super::{Agent, Answers, Door, Listening};
use crate::pods::Pods;
use crate::shared::{LiveTick, Stats};
use crate::trust::Trusts;

/// Scrapes answered at the same time; more are told to come back.
const SCRAPES: usize = 4;

/// A tick may be so late that its containers are still told; on a loaded machine a few are late by tenths of a second.
const LATE: Duration = Duration::from_millis(500);

/// Connections of scrapers: a few Prometheus servers, each of which keeps one.
const CONNECTIONS: Limits = Limits { connections: 64, per_peer: 32 };

/// What the names of the agent's own families begin with.
const OWN: &str = "evenkeel_agent";

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
        Ok(page) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response(),
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
    trusted(&mut page, &context.trust, ends.iter().filter_map(|state| state.token_ends).min());
    by_api(&mut page, &context.pods);
    quality::render(&mut page, &lock(&agent.usage).quality());
    own::parts(&mut page, &agent.parts);
    page.finish()
}

/// The page as far as counters and the latest tick go; without a tick the containers are left out.
fn render(stats: &Stats, tick: Option<&LiveTick>, node: &str) -> Page {
    let mut page = Page::new(OWN);
    agent(&mut page, stats);
    writes(&mut page, stats);
    by_class(&mut page, stats);
    damages(&mut page, stats);
    pressure::render(&mut page, &stats.enforce.pressure);
    own::process(&mut page);
    page.histogram(
        "tick_lateness_seconds",
        "How late sampling ticks began after their deadline.",
        buckets(&stats.tick_lateness),
    );
    page.histogram(
        "time_to_right_seconds",
        "Time from noticing that a container may be wrong to having verified it.",
        buckets(&stats.enforce.time_to_right),
    );
    page.histogram(
        "first_pid_to_right_score_seconds",
        "Time from the start of a container's first process to all of its processes verified at their score.",
        buckets(&stats.enforce.first_pid_to_right),
    );
    if let Some(tick) = tick {
        containers(&mut page, tick, node);
    }
    page
}

/// What was observed, in seconds.
fn buckets(seen: &Histogram) -> Buckets {
    let bounds = HISTOGRAM_BOUNDS_USEC.iter().map(|usec| *usec as f64 / 1e6).chain([f64::INFINITY]);
    let counts = bounds.zip(seen.buckets.iter().map(|count| count.get())).collect();
    Buckets { counts, sum: seen.sum_usec.get() as f64 / 1e6 }
}

/// What the API server says of the node's pods; nothing where nothing was told.
fn by_api(page: &mut Page, pods: &Pods) {
    let Some(status) = pods.status() else { return };
    page.gauge(
        "api_pods",
        "Pods of the node whose requirements are known in the API server's words.",
        u64::from(status.pods),
    );
    page.gauge(
        "api_pods_changed_seconds",
        "When something in them changed last, seconds since 1970.",
        status.changed_usec / 1_000_000,
    );
}

/// Certificates, and what goes in the clear.
fn trusted(page: &mut Page, trust: &Trusts, token_ends: Option<u64>) {
    page.gauge(
        "insecure",
        "1 while something goes over networks without encryption, or is told to whoever asks.",
        u64::from(trust.is_insecure()),
    );
    let certificates = trust.certificates();
    page.by(
        FamilyKind::Gauge,
        "certificate_expires_seconds",
        "End of a certificate, seconds since 1970, by what it is for.",
        "for",
        certificates.iter().map(|(of, ends, _)| (*of, *ends)),
    );
    page.by(
        FamilyKind::Gauge,
        "certificate_failing",
        "1 while a certificate ends soon, or cannot be read, got or renewed.",
        "for",
        certificates.iter().map(|(of, _, fails)| (*of, u64::from(*fails))),
    );
    if let Some(ends) = token_ends {
        page.gauge(
            "token_expires_seconds",
            "End of the stream's token, seconds since 1970, as the recommender says; a newer one is sent before.",
            ends,
        );
    }
}

fn agent(page: &mut Page, stats: &Stats) {
    let streams = stats.streams.all();
    let connected = streams.iter().filter(|state| state.connected).count() as u64;
    let (counter, gauge) = (FamilyKind::Counter, FamilyKind::Gauge);
    let rows = [
        ("ticks", counter, "Sampling ticks done.", stats.ticks.get()),
        ("ticks_missed", counter, "Deadlines that passed without a tick.", stats.ticks_missed.get()),
        ("ticks_dropped", counter, "Ticks left out because reporting was behind.", stats.ticks_dropped.get()),
        ("sampled_containers", gauge, "Containers sampled at the last tick.", stats.sampled_containers.get()),
        ("samples", counter, "Samples taken.", stats.samples.get()),
        ("sample_errors", counter, "Files that could not be read or understood.", stats.sample_errors.get()),
        ("frames_written", counter, "Frames appended to the spool.", stats.frames_written.get()),
        ("frames_sent", counter, "Frames sent, repeats included.", stats.frames_sent.get()),
        ("frames_acknowledged", counter, "Frames acknowledged as durable.", stats.frames_acknowledged.get()),
        ("frames_folded", counter, "Frames folded into minutes for want of room.", stats.frames_folded.get()),
        ("frames_dropped", counter, "Frames lost.", stats.frames_dropped.get()),
        (
            "epochs_renewed",
            counter,
            "Epochs that go on under another name, because the recommender claimed more than it was sent.",
            stats.epochs_renewed.get(),
        ),
        ("spool_bytes", gauge, "Bytes in the spool.", stats.spool_bytes.get()),
        ("ring_bytes", gauge, "Bytes of seconds to look back at.", stats.ring_bytes.get()),
        (
            "ring_seconds_lost",
            counter,
            "Seconds that could not be kept to look back at.",
            stats.ring_seconds_lost.get(),
        ),
        ("stream_connected", gauge, "Streams to recommenders that stand.", connected),
        (
            "converge_passes",
            counter,
            "Passes over a container's processes.",
            stats.enforce.converge_passes.get(),
        ),
        ("freezes", counter, "Containers frozen for a pass.", stats.enforce.freezes.get()),
        ("processes_verified", counter, "Processes found right.", stats.enforce.processes_verified.get()),
        ("process_events", counter, "Process events from the kernel.", stats.enforce.process_events.get()),
        (
            "process_events_overrun",
            counter,
            "Times the kernel dropped process events.",
            stats.enforce.process_events_overrun.get(),
        ),
        (
            "process_events_paused",
            counter,
            "Times process events were not read for five seconds, because there were too many.",
            stats.enforce.process_events_paused.get(),
        ),
        (
            "process_events_shed",
            counter,
            "Execs of unknown processes not looked up, because there were too many at once.",
            stats.enforce.process_events_shed.get(),
        ),
        ("cgroup_events", counter, "Changes of the cgroup tree.", stats.enforce.cgroup_events.get()),
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
            "track_changes_deferred",
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
        ("decisions", counter, "Decisions recorded.", stats.enforce.decisions.get()),
        (
            "decisions_not_stored",
            counter,
            "Decisions that could not be written to disk.",
            stats.enforce.decisions_not_stored.get(),
        ),
        (
            "decisions_not_streamed",
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
            "events_dropped",
            counter,
            "Kills and rulings dropped before they were acknowledged.",
            stats.events_dropped.get(),
        ),
        (
            "rests_ended",
            counter,
            "Containers whose rest was ended after an OOM kill.",
            stats.enforce.rests_ended.get(),
        ),
        (
            "rulings_carried_out",
            counter,
            "Rulings of the eviction policy that the agent carried out itself.",
            stats.enforce.rulings_carried_out.get(),
        ),
        ("panics", counter, "Defects of the agent that ended a thread or task.", crate::panics::count()),
    ];
    for (name, kind, help, value) in rows {
        page.one(kind, name, help, value);
    }
}

fn writes(page: &mut Page, stats: &Stats) {
    let of = |knob: &'static str, result: &str| {
        Labels::of([("knob", knob.to_owned()), ("result", result.to_owned())])
    };
    let writes = stats.enforce.writes.iter().flat_map(|(knob, writes)| {
        let WriteStats { done, would, denied, rejected, gone, failed } = writes;
        [
            ("done", done),
            ("would-do", would),
            ("denied", denied),
            ("rejected", rejected),
            ("gone", gone),
            ("failed", failed),
        ]
        .map(|(result, count)| (of(knob.name(), result), count.get()))
    });
    page.family(FamilyKind::Counter, "writes", "Writes to the kernel by knob and result.", writes);
}

fn damages(page: &mut Page, stats: &Stats) {
    let entries = stats.enforce.damages.counts().map(|(file, entries)| (file.name(), entries));
    let help = "Entries of state files that could not be read at start.";
    page.by(FamilyKind::Counter, "state_entries_damaged", help, "file", entries);
}

fn by_class(page: &mut Page, stats: &Stats) {
    for (name, help, counts) in [
        ("oom_kills", "Processes of containers taken by the OOM killer.", &stats.enforce.oom_kills),
        ("evictions", "Rulings that a pod should go.", &stats.enforce.evictions),
        ("restarts", "Rulings that a container should start again.", &stats.enforce.restarts),
    ] {
        let by_class = [
            ("BestEffort", &counts.best_effort),
            ("Burstable", &counts.burstable),
            ("Guaranteed", &counts.guaranteed),
            ("unclassified", &counts.unclassified),
        ];
        page.by(
            FamilyKind::Counter,
            name,
            help,
            "class",
            by_class.map(|(class, count)| (class, count.get())),
        );
    }
}

/// Families by container: cAdvisor's name, its meaning, our field, and whether it is told in seconds.
const CONTAINER: [(&str, &str, Field, bool); 13] = [
    ("container_cpu_usage_seconds", "CPU time used.", Field::CpuUsageUsec, true),
    ("container_cpu_cfs_periods", "Elapsed enforcement periods.", Field::CpuPeriods, false),
    ("container_cpu_cfs_throttled_periods", "Throttled periods.", Field::CpuThrottledPeriods, false),
    ("container_cpu_cfs_throttled_seconds", "Time throttled.", Field::CpuThrottledUsec, true),
    ("container_memory_usage_bytes", "Memory charged.", Field::MemoryCurrentBytes, false),
    ("container_memory_working_set_bytes", "Working set.", Field::MemoryWorkingSetBytes, false),
    ("container_memory_rss", "Anonymous memory.", Field::MemoryAnonBytes, false),
    ("container_memory_swap", "Swap used.", Field::SwapBytes, false),
    ("container_pressure_cpu_waiting_seconds", "CPU stall, some.", Field::CpuPressureUsec, true),
    ("container_pressure_memory_waiting_seconds", "Memory stall, some.", Field::MemoryPressureUsec, true),
    ("container_pressure_io_waiting_seconds", "I/O stall, some.", Field::IoPressureUsec, true),
    ("container_oom_events", "Processes killed by the OOM killer.", Field::OomKills, false),
    ("container_threads", "Processes and threads.", Field::Pids, false),
];

/// Series of the containers of a tick. One a container is always 1: the classes are in its labels.
fn containers(page: &mut Page, tick: &LiveTick, node: &str) {
    let labels: Vec<Labels> = tick
        .containers
        .iter()
        .map(|container| {
            let workload = &container.tracked.workload;
            let of = [
                ("namespace", &workload.pod.namespace),
                ("pod", &workload.pod.name),
                ("container", &workload.container),
                ("name", &workload.id),
            ];
            Labels::of(
                of.map(|(name, value)| (name, value.to_string()))
                    .into_iter()
                    .chain([("node", node.to_owned())]),
            )
        })
        .collect();
    let classes = tick.containers.iter().zip(&labels).map(|(container, labels)| {
        let classes = container.tracked.classes;
        let memory = classes.memory.map_or("", |class| class.as_str());
        let cpu = classes.cpu.map_or("", |class| class.as_str());
        (labels.and([("memory_class", memory), ("cpu_class", cpu)]), 1_u64)
    });
    page.family(
        FamilyKind::Gauge,
        "container_qos_info",
        "QoS classes of a container, by memory and by CPU.",
        classes,
    );
    // Under cAdvisor's names, which have no program's before them.
    let mut as_cadvisor = Page::default();
    for (name, help, field, in_seconds) in CONTAINER {
        let kind = if field.is_counter() { FamilyKind::Counter } else { FamilyKind::Gauge };
        let number = |value| if in_seconds { Number::seconds(value) } else { Number::from(value) };
        let samples =
            tick.containers.iter().zip(&labels).filter_map(|(container, labels)| {
                Some((labels.clone(), number(container.sample.get(field)?)))
            });
        as_cadvisor.family(kind, name, help, samples);
    }
    page.append(&as_cadvisor);
}
