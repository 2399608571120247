//! Owns `/metrics`, in the text form of OpenMetrics 1.0.

mod rows;

use std::sync::atomic::AtomicU64;

use evenkeel_kubernetes::{KindStatus, WatchState};
use evenkeel_metrics::{FamilyKind, Number, Page};
use evenkeel_store::ingest::health::{Health, read};
use evenkeel_store::state::belief::Dropped;
use evenkeel_store::state::{PanicSwitch, StoreState as Counted};
use evenkeel_updater::Reason;

use super::Context;
use crate::capacity::pool::PoolCounters;
use crate::capacity::watch::{MissingAnswer, WatchedQuestion};
use crate::updater::told::Came;

pub(crate) use rows::rows;

/// What names of families begin with.
const OWN: &str = "evenkeel_recommender";

/// Questions about capacity.
pub(crate) struct Capacity<'a> {
    pub(crate) lines: &'a [WatchedQuestion],
    pub(crate) counters: &'a PoolCounters,
}

/// While the log is being replayed.
pub(crate) fn starting() -> String {
    let mut text = Page::new(OWN);
    text.gauge("ready", "1 once everything acknowledged before has been read back", 0);
    text.finish()
}

/// Everything; `rows` are those of nodes, namespaces and workloads.
pub(crate) fn exposition(context: &Context, capacity: &Capacity<'_>, rows: Option<&Page>) -> String {
    let (state, health) = (&*context.engine.state().study(), context.engine.health());
    let mut text = Page::new(OWN);
    text.gauge("ready", "1 once everything acknowledged before has been read back", 1);
    checks(&mut text, context);
    ingest(&mut text, state, health);
    storage(&mut text, health);
    kept(&mut text, state);
    panic(&mut text, &context.engine.state().panic());
    estimates(&mut text, capacity);
    engines(&mut text, health);
    answers(&mut text, context);
    followed(&mut text, context);
    objects(&mut text, context);
    events(&mut text, context);
    updater(&mut text, context);
    lead(&mut text, context);
    bounds(&mut text, context);
    own_cost(&mut text);
    if let Some(rows) = rows {
        text.append(rows);
    }
    text.finish()
}

fn ingest(text: &mut Page, state: &Counted, health: &Health) {
    let c = &state.counters;
    text.counter("frames", "Frames counted.", c.frames);
    text.counter("samples", "Container seconds counted.", c.samples);
    text.counter("sample_bytes", "Bytes of encoded samples received.", read(&health.sample_bytes));
    text.counter(
        "duplicate_frames",
        "Frames acknowledged again without being counted.",
        read(&health.duplicates),
    );
    text.counter("refused_frames", "Frames refused for good.", read(&health.refused));
    text.counter("unreadable_frames", "Frames taken whose samples could not be read.", c.unreadable);
    text.counter("lost_frames", "Sequence numbers known to be missing.", c.lost);
    text.counter("unannounced_samples", "Samples of slots nobody announced.", c.unannounced);
    text.counter(
        "misplaced_samples",
        "Samples of pods that the Kubernetes API does not place on the node that sent them.",
        c.misplaced,
    );
    text.counter("misdated_samples", "Samples dated over a day ahead.", c.misdated);
    text.counter("late_samples", "Samples after later ones of the same container.", c.late);
    text.counter("ancient_samples", "Samples older than anything kept.", c.ancient);
    text.counter(
        "refused_kills",
        "Kills and evictions that are no history: more than 20 of a workload's container or 500 of a node in an hour.",
        c.refused_kills,
    );
    text.counter(
        "clock_doubts",
        "Times most nodes began to contradict the clock of this machine.",
        c.clock_doubts,
    );
    text.gauge(
        "clock_doubted",
        "1 while most nodes heard last contradict the clock of this machine, and no history expires.",
        u64::from(health.clock_doubt().is_some()),
    );
    text.one(
        FamilyKind::Gauge,
        "clock_ahead_seconds",
        "How far this machine's clock is ahead of the nodes that contradict it; 0 when none do.",
        health.clock_doubt().map_or(0.0, |doubt| doubt.ahead_usec as f64 / 1e6),
    );
    text.gauge(
        "clock_unconfirmed",
        "1 while a step of the clock waits to be confirmed by three nodes or to last a day before history expires by it.",
        u64::from(state.clock().is_waiting()),
    );
    text.counter("counter_resets", "Times a CPU counter went back.", c.resets);
    text.counter("refused_containers", "Announcements not followed for lack of room.", c.refused_containers);
    text.counter(
        "dropped_labels",
        "Containers followed without their labels, too many or too long.",
        c.dropped_labels,
    );
    text.counter(
        "dropped_requests",
        "Containers followed without their pod's requests of other resources, too many or unreadable.",
        c.dropped_requests,
    );
    text.counter("cut_decisions", "Decisions cut because they were too long.", c.cut_decisions);
    text.counter(
        "protocol_violations",
        "Connections ended for breaking the protocol.",
        read(&health.violations),
    );
    text.counter("superseded_connections", "Connections ended by a newer one.", read(&health.superseded));
    text.counter(
        "refused_rivals",
        "Connections refused because an older one of the same node lives.",
        read(&health.rivals_refused),
    );
    text.counter(
        "held_streams",
        "Times a stream was not read for the rest of a minute: more bytes than ingest.max_bytes_per_minute.",
        read(&health.held),
    );
    text.gauge(
        "contested_nodes",
        "Nodes for which two agents spoke in turns within the last ten minutes.",
        health.contests().len() as u64,
    );
    text.gauge("connections", "Open ingest connections.", read(&health.connections));
    let mut dropped = Dropped::default();
    state.nodes().for_each(|(_, node)| dropped += node.dropped);
    text.by(
        FamilyKind::Counter,
        "dropped",
        "What nodes said and was not taken in.",
        "reason",
        dropped.words(),
    );
}

fn storage(text: &mut Page, health: &Health) {
    text.gauge("log_bytes", "Bytes of the ingest log.", read(&health.log_bytes));
    text.gauge(
        "uncounted_bytes",
        "Bytes of the ingest log that are not counted yet.",
        read(&health.uncounted_bytes),
    );
    text.gauge(
        "log_failing",
        "1 while the log cannot be written and nothing is acknowledged.",
        u64::from(health.log_trouble().is_some()),
    );
    text.counter("log_failures", "Appends, flushes and syncs that failed.", read(&health.log_failures));
    text.counter("syncs", "Group syncs of the log.", read(&health.syncs));
    text.one(
        FamilyKind::Counter,
        "sync_seconds",
        "Time spent in them.",
        Number::seconds(read(&health.sync_usec)),
    );
    text.one(
        FamilyKind::Gauge,
        "sync_max_seconds",
        "The longest of them.",
        Number::seconds(read(&health.sync_max_usec)),
    );
    text.counter("checkpoints", "Checkpoints written.", read(&health.checkpoints));
    text.gauge("checkpoint_bytes", "Size of the last one.", read(&health.checkpoint_bytes));
    text.one(
        FamilyKind::Gauge,
        "checkpoint_seconds",
        "Time the last one took.",
        Number::seconds(read(&health.checkpoint_usec)),
    );
    text.gauge(
        "checkpoint_failing",
        "1 while no checkpoint can be written.",
        u64::from(health.checkpoint_trouble().is_some()),
    );
}

/// What was turned away to spare others.
fn bounds(text: &mut Page, context: &Context) {
    let gates =
        [("socket", &context.gates.socket), ("grpc", &context.gates.grpc), ("http", &context.gates.http)];
    let mut by_listener = |kind, name, help, of: fn(&evenkeel_net::ConnectionCounters) -> &AtomicU64| {
        text.by(kind, name, help, "listener", gates.map(|(name, gate)| (name, read(of(gate.counters())))));
    };
    by_listener(FamilyKind::Gauge, "open_connections", "Connections open.", |c| &c.open);
    by_listener(
        FamilyKind::Counter,
        "refused_connections",
        "Connections refused because as many as may be were in use.",
        |c| &c.refused,
    );
    by_listener(
        FamilyKind::Counter,
        "displaced_connections",
        "Connections without a request closed to make room for newer ones.",
        |c| &c.displaced,
    );
    by_listener(
        FamilyKind::Counter,
        "slow_connections",
        "Connections closed for saying nothing in time.",
        |c| &c.slow,
    );
    by_listener(
        FamilyKind::Counter,
        "failed_handshakes",
        "Connections on which no TLS or certificate was found that both sides accept.",
        |c| &c.handshakes,
    );
    by_listener(FamilyKind::Counter, "failed_accepts", "Connections that could not be accepted.", |c| {
        &c.failed
    });
    text.counter(
        "refused_callers",
        "Requests refused for who made them, or how.",
        read(context.access.refusals()),
    );
    text.counter(
        "limited_requests",
        "Requests refused because their caller made more than access.requests_per_second.",
        read(context.access.limited()),
    );
    let (asked, silent) =
        context.access.kubernetes().map(|kubernetes| kubernetes.counts()).unwrap_or_default();
    text.counter("kubernetes_questions", "Questions to the Kubernetes API server about callers.", asked);
    text.counter(
        "kubernetes_unanswered",
        "Questions to the Kubernetes API server without an answer.",
        silent,
    );
    text.gauge(
        "tokens_failing",
        "1 while the file of tokens cannot be used.",
        u64::from(context.access.tokens().trouble().is_some()),
    );
    if let Some(ends) = context.access.tokens().next_end(context.engine.now_usec() / 1_000_000) {
        text.gauge(
            "token_expires_seconds",
            "End of the next token of the file that ends, seconds since 1970.",
            ends,
        );
    }
    let audit = context.readiness.audit();
    text.by(
        FamilyKind::Counter,
        "audit_entries",
        "Changes and attempts by what came of them; left_out: attempts counted and not kept, lost: changes made without an entry.",
        "outcome",
        audit.counts().words(),
    );
    text.gauge(
        "audit_failing",
        "1 while the audit record cannot be written and changes are refused.",
        u64::from(audit.failing().is_some()),
    );
    if let Some(tls) = context.readiness.tls() {
        text.gauge(
            "certificate_expires_seconds",
            "End of the certificate that is served, seconds since 1970.",
            tls.expires(),
        );
        text.gauge(
            "certificate_failing",
            "1 while a new certificate cannot be served.",
            u64::from(tls.trouble().is_some()),
        );
    }
    if let Some(authority) = context.readiness.authority() {
        text.gauge(
            "authority_expires_seconds",
            "End of the own authority's certificate, seconds since 1970.",
            authority.expires(),
        );
    }
    text.gauge(
        "insecure",
        "1 while addresses that other machines reach are served without encryption.",
        u64::from(context.config.now().plaintext().is_some()),
    );
    text.counter(
        "refused_texts",
        "Requests refused because their text is too large or cannot be read.",
        read(&context.work.refused_texts),
    );
    let work = &context.work;
    let work = [("questions", &work.questions), ("texts", &work.texts), ("watches", &work.watches)];
    let mut by_work = |name, help, of: fn(&crate::turns::TurnCounters) -> &AtomicU64| {
        let values = work.map(|(name, turns)| (name, read(of(turns.counters()))));
        text.by(FamilyKind::Counter, name, help, "work", values);
    };
    by_work(
        "refused_questions",
        "Questions, large texts and watches refused because as many waited, or were open, as may.",
        |c| &c.refused,
    );
    by_work("given_up_questions", "Questions whose caller left, or whose time was over.", |c| &c.given_up);
}

/// What this process costs, under the names that client libraries of Prometheus use; left out where the kernel does not tell.
fn own_cost(text: &mut Page) {
    use nix::sys::resource::{UsageWho, getrusage};
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return };
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    let cpu = seconds(usage.user_time()) + seconds(usage.system_time());
    let mut process = Page::default();
    process.counter("process_cpu_seconds", "CPU time the recommender used.", cpu);
    // The kernel tells KiB (getrusage(2)).
    let most = u64::try_from(usage.max_rss()).unwrap_or_default().saturating_mul(1024);
    let help = "The most memory the recommender had resident.";
    process.gauge("process_max_resident_memory_bytes", help, most);
    text.append(&process);
}

/// The Kubernetes cluster that is followed, by kind.
fn followed(text: &mut Page, context: &Context) {
    let Some(followed) = context.readiness.followed() else { return };
    let objects = context.readiness.objects();
    let mut statuses = followed.status();
    statuses.extend(objects.iter().flat_map(|objects| objects.status()));
    let mut by_kind = |kind, name, help, of: fn(&KindStatus) -> u64| {
        let values = statuses.iter().map(|status| (status.kind.name, of(status)));
        text.by(kind, name, help, "kind", values);
    };
    by_kind(FamilyKind::Gauge, "kubernetes_objects", "Objects known.", |s| s.objects as u64);
    by_kind(FamilyKind::Gauge, "kubernetes_known", "1 once all objects of the kind were listed.", |s| {
        u64::from(s.is_known)
    });
    by_kind(FamilyKind::Gauge, "kubernetes_watching", "1 while changes arrive.", |s| {
        u64::from(s.state == WatchState::Watching)
    });
    by_kind(FamilyKind::Counter, "kubernetes_lists", "Lists that came whole.", |s| s.counts.lists);
    by_kind(FamilyKind::Counter, "kubernetes_watches", "Watches begun.", |s| s.counts.watches);
    by_kind(FamilyKind::Counter, "kubernetes_changes", "Objects added, changed or deleted.", |s| {
        s.counts.changes
    });
    by_kind(FamilyKind::Counter, "kubernetes_bookmarks", "Bookmarks.", |s| s.counts.bookmarks);
    by_kind(
        FamilyKind::Counter,
        "kubernetes_expired",
        "Lists begun anew because their version was gone.",
        |s| s.counts.expired,
    );
    by_kind(FamilyKind::Counter, "kubernetes_throttled", "Answers to ask again later (429).", |s| {
        s.counts.throttled
    });
    by_kind(FamilyKind::Counter, "kubernetes_failures", "Lists and watches that failed otherwise.", |s| {
        s.counts.failures
    });
    by_kind(FamilyKind::Counter, "kubernetes_unreadable", "Objects that could not be understood.", |s| {
        s.counts.unreadable
    });
}

/// Objects of the Kubernetes cluster that recommendations are written into.
fn objects(text: &mut Page, context: &Context) {
    let Some(objects) = context.readiness.objects() else { return };
    let counts = objects.counts();
    text.gauge("kubernetes_autoscalers", "Objects that ask for recommendations.", counts.asking);
    text.gauge("kubernetes_status_waiting", "Statuses that are to be written.", counts.waiting);
    text.counter("kubernetes_status_writes", "Statuses written.", counts.writes);
    text.counter(
        "kubernetes_status_conflicts",
        "Statuses not written because the object had changed.",
        counts.conflicts,
    );
    text.counter("kubernetes_status_failures", "Statuses not written for another reason.", counts.failures);
    text.counter("kubernetes_checkpoint_writes", "Checkpoints written.", counts.checkpoint_writes);
}

/// Who of several leads.
fn lead(text: &mut Page, context: &Context) {
    let leading = context.readiness.leading();
    text.gauge("leads", "1 while this recommender acts and takes changes.", u64::from(leading.leads()));
    let Some(standing) = leading.standing() else { return };
    text.gauge("lease_term", "How often the Lease has changed hands.", standing.term);
}

/// Events of the Kubernetes cluster's pods.
fn events(text: &mut Page, context: &Context) {
    let Some(events) = context.readiness.events() else { return };
    let counts = events.counts();
    text.gauge("kubernetes_events_waiting", "Events that are to be made.", counts.waiting);
    text.counter("kubernetes_events_written", "Events and their series written.", counts.written);
    text.counter("kubernetes_events_dropped", "Events not told: too many, or refused.", counts.dropped);
    text.gauge(
        "kubernetes_conditions_waiting",
        "Conditions of pods to be written.",
        counts.conditions_waiting,
    );
    text.counter("kubernetes_conditions_written", "Conditions of pods written.", counts.conditions);
}

/// What `/readyz` looks at: the store, certificates, the cluster, the webhook's registration, the updater, the panic switch.
fn checks(text: &mut Page, context: &Context) {
    let checks = context.readiness.checks(context.engine.health(), context.engine.now_usec());
    let failing = checks.iter().map(|check| (check.name, u64::from(check.trouble.is_some())));
    let help = "1 where a check of /readyz has something to say, by check; /readyz?verbose says what.";
    text.by(FamilyKind::Gauge, "check_failing", help, "check", failing);
}

/// Changes of the Kubernetes cluster's pods.
fn updater(text: &mut Page, context: &Context) {
    let Some(updater) = context.readiness.updater() else { return };
    let told = &updater.told;
    text.counter("updater_passes", "Times that pods which run were looked at.", told.passes());
    for (deed, name, help) in [
        ("resize", "updater_resizes", "Resizes of pods in place, by what came of them."),
        ("evict", "updater_evictions", "Evictions of pods, by what came of them."),
    ] {
        let counts = Came::ALL.map(|came| (came.as_str(), told.counts(deed, came)));
        text.by(FamilyKind::Counter, name, help, "outcome", counts);
    }
    let help = "Evictions of pods that agents offered, by what came of them; among all evictions, too.";
    let counts = Came::ALL.map(|came| (came.as_str(), told.offered(came)));
    text.by(FamilyKind::Counter, "updater_offer_evictions", help, "outcome", counts);
    let offers = told.offers_standing() as u64;
    text.gauge(
        "updater_offers",
        "Pods of which agents rule that they should go, and that are there.",
        offers,
    );
    let help = "Choices about so many pods that they are not kept to be replayed.";
    text.counter("updater_cases_too_large", help, told.cases_too_large());
    let refused = told.refused();
    let left = Reason::ALL.iter().filter_map(|reason| Some((reason.as_str(), *refused.get(reason)?)));
    let help =
        "Pods and workloads that ask for something else than is recommended and are left alone, by reason.";
    text.by(FamilyKind::Gauge, "updater_left_alone", help, "reason", left);
}

/// Engines outside, all together.
fn engines(text: &mut Page, health: &Health) {
    text.gauge("engine_waiting_values", "Values that wait for engines.", health.of_engines(|c| &c.waiting));
    text.counter("engine_written_values", "Values engines acknowledged.", health.of_engines(|c| &c.written));
    text.counter(
        "engine_refused_values",
        "Values engines refused for good.",
        health.of_engines(|c| &c.refused),
    );
    text.counter(
        "engine_dropped_values",
        "Values dropped because a queue was full.",
        health.of_engines(|c| &c.dropped),
    );
    text.counter("engine_read_values", "Values read back.", health.of_engines(|c| &c.read));
    text.counter(
        "engine_misread_points",
        "Points read back that were not understood.",
        health.of_engines(|c| &c.misread),
    );
    text.counter(
        "engine_unavailable",
        "Requests without an answer in time, or refused for now.",
        health.of_engines(|c| &c.unavailable),
    );
    text.counter("engine_malformed", "Answers that made no sense.", health.of_engines(|c| &c.malformed));
    text.counter("engine_refusals", "Requests that were refused.", health.of_engines(|c| &c.refusals));
}

fn kept(text: &mut Page, state: &Counted) {
    let (extents, pending, dropped_series) = state.history.counts();
    let (subjects, sealed_bytes) = state.past.size();
    let past = &state.past.counts;
    text.gauge("nodes", "Nodes known.", state.nodes().count() as u64);
    text.gauge("streams", "Streams whose position is kept.", state.streams().count() as u64);
    text.gauge(
        "containers",
        "Containers that run: of the newest epoch of nodes that are not gone.",
        state.containers() as u64,
    );
    text.gauge(
        "containers_kept",
        "Containers whose frames can be read, those of earlier epochs and gone nodes included.",
        state.followed() as u64,
    );
    let gone = state.nodes().filter(|(key, node)| state.current(key, node).is_some_and(|s| !s.counts));
    text.gauge(
        "nodes_gone",
        "Nodes silent for ingest.gone_after while others were heard.",
        gone.count() as u64,
    );
    text.gauge(
        "history_series",
        "Workload containers (by image) in the history.",
        state.history.all().count() as u64,
    );
    text.gauge("history_hours", "Hours of minutes in files.", extents as u64);
    text.gauge("history_pending", "Containers' hours of minutes not yet in a file.", pending as u64);
    text.gauge("history_subjects", "Workloads, commands and images with hours or days.", subjects as u64);
    text.gauge("history_memory_bytes", "Sealed hours and days in memory.", sealed_bytes as u64);
    text.gauge("history_bytes", "Bytes of the history's files.", past.file_bytes);
    text.counter("history_sealed_hours", "Hours of workloads sealed, by resource.", past.sealed_hours);
    text.counter("history_sealed_days", "Days of subjects sealed, by resource.", past.sealed_days);
    text.counter("history_events", "OOM kills and evictions remembered.", past.events);
    text.counter(
        "history_kubelet_events",
        "Of them OOM kills of which kubelets told, and no agent.",
        past.kubelet_events,
    );
    text.counter(
        "history_unplaced_events",
        "OOM kills and evictions of containers that are not known.",
        past.unplaced_events,
    );
    text.counter("history_refused_subjects", "Subjects not kept for lack of room.", past.refused_subjects);
    text.counter("history_undecodable", "Values in files that could not be understood.", past.undecodable);
    text.counter("history_expired_files", "Files of days that were dropped.", past.expired_files);
    text.counter(
        "history_crowded_files",
        "Of them dropped before their time, for retention.bytes.",
        past.crowded_files,
    );
    text.counter("history_dropped_series", "Workload containers dropped for lack of room.", dropped_series);
    text.counter("forgotten_streams", "Streams forgotten for lack of room.", state.counters.forgotten);
}

fn panic(text: &mut Page, switch: &PanicSwitch) {
    text.gauge("panic", "1 while the panic switch is on.", u64::from(switch.on));
    text.gauge(
        "panic_revert",
        "1 while the panic switch is on and containers get back the requests that were asked for.",
        u64::from(switch.on && switch.revert),
    );
}

fn estimates(text: &mut Page, capacity: &Capacity<'_>) {
    let Capacity { lines, counters } = capacity;
    text.counter("capacity_answers", "Questions about capacity answered.", read(&counters.answered));
    text.counter("capacity_refused", "Questions refused because too many waited.", read(&counters.refused));
    text.counter(
        "capacity_given_up",
        "Questions whose caller left or whose time was over.",
        read(&counters.given_up),
    );
    if lines.is_empty() {
        return;
    }
    let mut by_question = |name: &str, help: &str, value: fn(&WatchedQuestion) -> Option<Number>| {
        let values = lines.iter().filter_map(|line| Some((line.question.as_str(), value(line)?)));
        text.by(FamilyKind::Gauge, name, help, "question", values);
    };
    by_question("capacity_count", "How many more fit, at the last answer.", |line| {
        line.points.last().map(|point| point.count.into())
    });
    by_question("capacity_answered_seconds", "When that was, seconds since 1970.", |line| {
        line.points.last().map(|point| Number::seconds(point.time_usec))
    });
    by_question("capacity_days_until_none", "Days until none fits, while the count falls.", |line| {
        line.trend.and_then(|trend| trend.days_until_none).map(Number::from)
    });
    by_question("capacity_failing", "1 while a question is not answered.", |line| {
        Some(u64::from(matches!(line.trouble, Some(MissingAnswer::Failed(_)))).into())
    });
}

fn answers(text: &mut Page, context: &Context) {
    let (passes, took) = context.stored.passed();
    text.gauge("policies", "Policies in force.", context.policies.set().all().len() as u64);
    let told = context.policies.statuses.told();
    text.gauge(
        "policies_selecting_nothing",
        "Policies that select no container that runs now.",
        told.selecting_nothing as u64,
    );
    text.gauge(
        "policies_in_conflict",
        "Policies that select containers another one selects, too.",
        told.in_conflict as u64,
    );
    text.counter("policies_refused", "Objects refused because they are wrong.", context.policies.refused());
    text.gauge(
        "policy_file_troubles",
        "Files of policies that could not be read.",
        context.policies.troubles().len() as u64,
    );
    text.gauge(
        "object_file_troubles",
        "Files of limit ranges and quotas that could not be read.",
        context.advisor.limits.troubles().len() as u64,
    );
    text.counter("passes", "Passes in which all recommendations were made anew.", passes);
    let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    text.one(FamilyKind::Gauge, "pass_seconds", "Time the last pass took.", Number::seconds(took));
    text.counter(
        "late_answers",
        "Pods answered with what was kept, because their callers could not wait.",
        read(&context.advisor.late),
    );
    let help = "Time an answer about a pod took inside the process.";
    text.histogram("answer_seconds", help, context.advisor.times.buckets());
}
