//! From the API's messages to the facts of pages.

use std::collections::BTreeMap;

use evenkeel_dashboard::chart::thinned;
use evenkeel_dashboard::facts::{
    AuditChange, Decision, Node, NodeContainer, PolicyFacts, Replica, ResourceAdvice, ResourceTotals, Rival,
    Share, Spread, UsageSeries, Workload,
};
use evenkeel_dashboard::page::decisions::PRESSURE;
use evenkeel_dashboard::page::overview::Overview;
use evenkeel_dashboard::page::report::ReportPage;
use evenkeel_dashboard::page::workload::{RANGES, WorkloadPage};
use evenkeel_dashboard::page::workloads;
use evenkeel_model::name::ResourceName;
use evenkeel_model::usage::Stats;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use serde_json::Value;

use super::Dashboard;
use crate::allocated::AT_MOST_USEC;
use crate::api::{Context, answers, convert};
use crate::audit::{AuditEntry, Object};
use crate::recommend::list;
use crate::recommend::series::{SeriesRequest, SeriesStep, places, size, throttled};
use crate::recommend::usage::{self, UsageScope};

/// Decisions that are counted on the overview: those of the last day.
const DAY_MS: u64 = 86_400_000;
/// Risk from which on a container counts as at risk.
const AT_RISK: f64 = 0.01;
/// Replicas that a page looks at.
const REPLICAS: usize = 1_000;
/// Values read for one chart: a month of hours is 720, a day of minutes 1440.
const VALUES: usize = 20_000;

/// Bytes of minutes read for one page, encoded: 400 days of a busy container. What has more is shown by hours, which are kept of the
/// workload as a whole, however many replicas it has.
const MINUTES: u64 = 16 << 20;
/// Containers whose present hour is looked at for one page.
const CONTAINERS: usize = 2_000;

fn class(class: i32) -> &'static str {
    match v1::QosClass::try_from(class) {
        Ok(v1::QosClass::Guaranteed) => "Guaranteed",
        Ok(v1::QosClass::Burstable) => "Burstable",
        Ok(v1::QosClass::BestEffort) => "BestEffort",
        Ok(v1::QosClass::Unspecified) | Err(_) => "",
    }
}

fn advice(r: &v1::Recommendation) -> ResourceAdvice {
    ResourceAdvice {
        current: r.current,
        request: r.request,
        lower: r.lower,
        upper: r.upper,
        raw: r.raw,
        capped_by: r.capped_by.clone(),
        rule: r.rule.clone(),
        tier: r.tier.clone(),
        samples: r.samples,
        span_seconds: r.span_seconds,
        confidence: r.confidence,
        risk_now: r.risk_now,
        risk_then: r.risk_then,
        current_limit: r.current_limit,
        limit: r.limit,
        young: r.young,
        notes: r.notes.clone(),
        age_seconds: r.age_seconds,
    }
}

/// Which of a pair a recommendation is.
fn place(r: &v1::Recommendation) -> usize {
    usize::from(r.resource == Resource::Memory.as_str())
}

/// Workloads of recommendations, of which those of one container follow each other.
pub(super) fn workloads<'a>(all: impl Iterator<Item = &'a v1::Recommendation>) -> Vec<Workload> {
    let mut found: Vec<Workload> = Vec::new();
    for r in all {
        let is_same = found.last().is_some_and(|w| {
            (&w.cluster, &w.namespace, &w.workload, &w.container)
                == (&r.cluster, &r.namespace, &r.workload, &r.container)
        });
        if !is_same {
            found.push(Workload {
                cluster: r.cluster.clone(),
                namespace: r.namespace.clone(),
                workload: r.workload.clone(),
                container: r.container.clone(),
                image: r.image.clone(),
                init: matches!(r.kind(), v1::ContainerKind::Init | v1::ContainerKind::Sidecar),
                replicas: r.replicas.into(),
                class: [class(r.qos_class_before), class(r.qos_class_after)],
                changes_class: r.changes_class,
                policy: r.policy.clone(),
                mode: r.mode.clone(),
                advice: Default::default(),
            });
        }
        if let Some(w) = found.last_mut() {
            w.advice[place(r)] = advice(r);
        }
    }
    found
}

fn sums(sum: Option<v1::AllocatedResource>) -> ResourceTotals {
    let sum = sum.unwrap_or_default();
    ResourceTotals {
        allocatable: sum.allocatable,
        requested: sum.requested,
        used: sum.used,
        recommended: sum.recommended,
        limited: sum.limited,
        quota: sum.quota_requests,
    }
}

fn share(cluster: &str, name: &str, allocated: Option<&v1::Allocated>) -> Share {
    let of = allocated.cloned().unwrap_or_default();
    Share {
        cluster: cluster.to_owned(),
        name: name.to_owned(),
        pods: of.pods.into(),
        containers: of.containers.into(),
        sums: [sums(of.cpu), sums(of.memory)],
    }
}

fn decision(d: v1::Decision) -> Decision {
    Decision {
        time_ms: d.time_usec / 1000,
        node: d.node,
        pod: d.pod.unwrap_or_default(),
        container: d.container.unwrap_or_default(),
        kind: d.kind,
        knob: d.knob.unwrap_or_default(),
        old: d.old.unwrap_or_default(),
        new: d.new.unwrap_or_default(),
        reason: d.reason,
        inputs: d.inputs.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect(),
        result: d.result,
    }
}

/// Decisions kept of a node, or of all; newest first.
pub(super) fn decisions(context: &Context, node: &str) -> Vec<Decision> {
    let kept = convert::events(&context.engine.state().study(), node, usize::MAX);
    kept.into_iter().rev().map(decision).collect()
}

/// Every node with its troubles among the decisions kept.
pub(super) fn nodes(context: &Context, decisions: &[Decision]) -> Vec<Node> {
    let mut counts: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for d in decisions {
        let [kills, pressure] = counts.entry(&d.node).or_default();
        *kills += u64::from(d.kind == "oom-kill");
        *pressure += u64::from(PRESSURE.contains(&d.kind.as_str()));
    }
    let (health, allocated) = (context.engine.health(), context.allocated.within(context, AT_MOST_USEC));
    let connected = |node: &_| health.is_node_connected(node);
    let all = convert::nodes(&context.engine.state().study(), &allocated, connected);
    let one = |n: v1::Node| {
        let [oom_kills, pressure] = counts.get(n.name.as_str()).copied().unwrap_or_default();
        let facts = n.facts.unwrap_or_default();
        Node {
            share: Share {
                containers: n.containers.into(),
                ..share(&n.cluster, &n.name, n.allocated.as_ref())
            },
            version: n.version,
            connected: n.connected,
            gone: n.gone,
            seen_ms: n.last_seen_usec / 1000,
            gaps: n.gaps,
            dropped: n.dropped.into_iter().map(|d| (d.reason, d.count, d.remedy)).collect(),
            size: [facts.cpu_milli, facts.memory_bytes],
            oom_kills,
            pressure,
        }
    };
    all.into_iter().map(one).collect()
}

/// The containers of a node.
pub(super) fn containers(context: &Context, cluster: &str, node: &str) -> Vec<NodeContainer> {
    let live = convert::live_now(&context.engine.state().study(), node);
    let mut all: Vec<NodeContainer> =
        live.into_iter().filter(|usage| usage.cluster == cluster).map(container).collect();
    all.sort_by(|a, b| (&a.namespace, &a.pod, &a.container).cmp(&(&b.namespace, &b.pod, &b.container)));
    all
}

fn container(usage: v1::ContainerUsage) -> NodeContainer {
    let (identity, sample) = (usage.identity.unwrap_or_default(), usage.sample.unwrap_or_default());
    let wished = identity.requested.unwrap_or_default();
    let throttled = sample.cpu_throttled_periods.zip(sample.cpu_periods).filter(|(_, all)| *all > 0);
    let class_of = if identity.memory_class == 0 { identity.cpu_class } else { identity.memory_class };
    NodeContainer {
        namespace: identity.namespace,
        pod: identity.pod,
        container: identity.container,
        workload: identity.workload,
        class: class(class_of),
        requests: [wished.cpu_request_milli, wished.memory_request_bytes],
        limits: [wished.cpu_limit_milli, wished.memory_limit_bytes],
        used: [usage.cpu_milli, sample.memory_working_set_bytes.or(sample.memory_current_bytes)],
        throttled: throttled.map(|(throttled, all)| throttled as f64 / all as f64),
        oom_kills: sample.oom_kills.unwrap_or(0),
        pids: sample.pids,
    }
}

impl Dashboard {
    /// The cluster at a glance. May take its time.
    pub(super) fn overview(&self, context: &Context) -> Overview {
        let now_ms = context.engine.now_usec() / 1000;
        let decisions = decisions(context, "");
        let nodes = nodes(context, &decisions);
        let spaces = convert::namespaces(&context.allocated.within(context, AT_MOST_USEC));
        let of = |n: &v1::Namespace| share(&n.cluster, &n.name, n.allocated.as_ref());
        let mut namespaces: Vec<Share> = spaces.namespaces.iter().map(of).collect();
        namespaces.sort_by_key(|n| std::cmp::Reverse(n.sums[0].requested));
        let all = self.workloads();
        let recent = || decisions.iter().filter(|d| d.time_ms + DAY_MS >= now_ms);
        let count = |is: &dyn Fn(&Decision) -> bool| recent().filter(|d| is(d)).count() as u64;
        let named = |name: &str| all.iter().filter(|w| w.class[0] == name).count() as u64;
        Overview {
            nodes: [
                nodes.len() as u64,
                nodes.iter().filter(|n| n.connected).count() as u64,
                nodes.iter().filter(|n| n.gone).count() as u64,
            ],
            clusters: spaces.clusters.iter().map(of).collect(),
            namespaces,
            classes: ["Guaranteed", "Burstable", "BestEffort"].map(named),
            workloads: all.len() as u64,
            young: all.iter().filter(|w| w.advice.iter().any(|a| a.young)).count() as u64,
            savers: self.first(&all, "saving", |w| workloads::worth(w, self.prices.as_ref()) > 0.0),
            risky: self.first(&all, "risk", |w| w.risk()[0] >= AT_RISK),
            at_risk: all.iter().filter(|w| w.risk()[0] >= AT_RISK).count() as u64,
            oom_kills: count(&|d| d.kind == "oom-kill"),
            pressure: count(&|d| PRESSURE.contains(&d.kind.as_str())),
            troubles: troubles(context),
            decisions: decisions.into_iter().take(10).collect(),
            prices: self.prices.clone(),
        }
    }

    /// The cluster in one file. May take its time.
    pub(super) fn report(&self, context: &Context) -> ReportPage {
        let overview = self.overview(context);
        let decisions = decisions(context, "");
        let nodes = nodes(context, &decisions);
        let all = self.workloads();
        let savers = self.ordered(&all, "saving", |w| workloads::worth(w, self.prices.as_ref()) > 0.0);
        let risky = self.ordered(&all, "risk", |w| w.risk()[0] >= AT_RISK);
        let kills = decisions.into_iter().filter(|d| d.kind == "oom-kill").collect();
        ReportPage { overview, nodes, savers, risky, kills }
    }

    /// Those that are taken, in an order.
    fn ordered(&self, all: &[Workload], sort: &str, takes: impl Fn(&Workload) -> bool) -> Vec<Workload> {
        let mut found: Vec<&Workload> = all.iter().filter(|w| takes(w)).collect();
        let filter =
            workloads::WorkloadFilter { sort: sort.to_owned(), ..workloads::WorkloadFilter::default() };
        filter.order(&mut found, self.prices.as_ref());
        found.into_iter().cloned().collect()
    }

    /// The first few in an order.
    fn first(&self, all: &[Workload], sort: &str, takes: impl Fn(&Workload) -> bool) -> Vec<Workload> {
        const FEW: usize = 8;
        let mut found: Vec<&Workload> = all.iter().filter(|w| takes(w)).collect();
        workloads::WorkloadFilter { sort: sort.to_owned(), ..workloads::WorkloadFilter::default() }
            .order(&mut found, self.prices.as_ref());
        found.into_iter().take(FEW).cloned().collect()
    }
}

fn troubles(context: &Context) -> Vec<(String, String)> {
    let health = context.engine.health();
    let clock = health.clock_trouble().map(|trouble| ("clock".to_owned(), trouble));
    let others = context.readiness.troubles(health, context.engine.now_usec());
    clock.into_iter().chain(others).collect()
}

/// Whose page it is, and the time that is shown.
#[derive(Debug, Clone)]
pub(super) struct Whose {
    pub(super) cluster: String,
    pub(super) namespace: String,
    pub(super) workload: String,
    pub(super) container: String,
    pub(super) range: String,
}

impl Whose {
    fn question(&self) -> UsageScope {
        let name = |text: &String| text.clone();
        UsageScope {
            namespace: name(&self.namespace),
            workload: name(&self.workload),
            container: name(&self.container),
            window_seconds: 0,
        }
    }
}

/// Everything about one workload's container; nothing where it is not known. May take its time.
pub(super) fn workload(context: &Context, whose: &Whose) -> Option<WorkloadPage> {
    let rules = context.rules(&["*".to_owned()]).unwrap_or_default();
    let (own, others) = context.at_desk(|desk| {
        let lines = list::lines(desk.state, &whose.namespace);
        let line = lines.iter().find(|line| {
            line.asked.workload == whose.workload
                && line.asked.container == whose.container
                && (whose.cluster.is_empty() || line.asked.cluster.as_deref() == Some(whose.cluster.as_str()))
        })?;
        Some((list::recommend(desk, line, &[]).0, list::recommend(desk, line, &rules).0))
    })?;
    let workload = workloads(own.iter()).into_iter().next()?;
    let records = context.at_desk(|desk| usage::query(desk, &whose.question()));
    let record = records.into_iter().next();
    let (seconds, step) =
        RANGES.iter().find(|(name, ..)| *name == whose.range).map_or((86_400, 60), |r| (r.2, r.3));
    let now = context.engine.now_usec() / 1_000_000;
    let asked = SeriesRequest {
        whose: whose.question(),
        resource: Resource::Cpu,
        step: SeriesStep::Minute,
        from: now.saturating_sub(seconds),
        to: 0,
    };
    let (bytes, containers) = if step == 60 { size(&context.engine.state().study(), &asked) } else { (0, 0) };
    let is_coarse = bytes > MINUTES || containers > CONTAINERS;
    let step = if is_coarse { 3_600 } else { step };
    let throttled = if step == 60 { throttled(&context.engine.state().study(), &asked) } else { Vec::new() };
    let times = (now.saturating_sub(seconds) * 1000, now * 1000);
    let replicas = record.as_ref().map(replicas).unwrap_or_default();
    let decisions = of_workload(decisions(context, ""), whose, &replicas);
    Some(WorkloadPage {
        range: whose.range.clone(),
        times,
        series: Resource::ALL
            .map(|resource| series(context, whose, resource, now.saturating_sub(seconds), step)),
        spread: [ResourceName::CPU, ResourceName::MEMORY].map(|name| {
            record.as_ref().and_then(|usage| usage.record.usage.get(&name)).map(spread).unwrap_or_default()
        }),
        rivals: rivals(&others),
        throttled: throttled.into_iter().map(|at| at * 1000).collect(),
        is_coarse,
        kills: decisions.iter().filter(|d| d.kind == "oom-kill").map(|d| d.time_ms).collect(),
        replicas,
        decisions,
        workload,
    })
}

fn rivals(all: &[v1::Recommendation]) -> Vec<Rival> {
    let mut rivals: Vec<Rival> = Vec::new();
    for r in all {
        if rivals.last().is_none_or(|rival| rival.rule != r.rule) {
            rivals.push(Rival { rule: r.rule.clone(), ..Rival::default() });
        }
        if let Some(rival) = rivals.last_mut() {
            rival.advice[place(r)] = advice(r);
        }
    }
    rivals
}

fn spread(stats: &Stats) -> Spread {
    Spread {
        percentiles: stats.percentiles.iter().map(|(p, value)| (p.to_string(), *value)).collect(),
        mean: stats.mean,
        max: stats.max,
        count: stats.count.unwrap_or(0),
    }
}

fn replicas(usage: &usage::Usage) -> Vec<Replica> {
    let one = |(node, pod, moments): &(String, String, Vec<evenkeel_store::state::slots::Moment>)| {
        let last = moments.last();
        Replica {
            node: node.clone(),
            pod: pod.clone(),
            used: [last.and_then(|m| m.cpu_milli), last.and_then(|m| m.memory_bytes)],
        }
    };
    usage.live.iter().take(REPLICAS).map(one).collect()
}

/// Decisions about pods of a workload: those that run, and those named after its controller.
fn of_workload(all: Vec<Decision>, whose: &Whose, replicas: &[Replica]) -> Vec<Decision> {
    let short = whose.workload.rsplit('/').next().unwrap_or_default();
    let started = format!("{}/{short}-", whose.namespace);
    let running: std::collections::HashSet<String> =
        replicas.iter().map(|replica| format!("{}/{}", whose.namespace, replica.pod)).collect();
    let is_its = |d: &Decision| {
        (d.container.is_empty() || d.container == whose.container)
            && (running.contains(&d.pod) || d.pod.starts_with(&started))
    };
    all.into_iter().filter(is_its).collect()
}

/// Use over time; seconds of the replica that used most in its last one.
fn series(context: &Context, whose: &Whose, resource: Resource, from: u64, step: u64) -> UsageSeries {
    let Some(of) = SeriesStep::of_seconds(step) else { return UsageSeries::default() };
    let asked = SeriesRequest { whose: whose.question(), resource, step: of, from, to: 0 };
    let mut found: Vec<Vec<(u64, u64)>> = Vec::new();
    // Not in the head of the loop, where the state would be held for all of it.
    let all = places(&context.engine.state().study(), &asked);
    for mut place in all {
        let mut values = Vec::new();
        while place.has_more() && context.is_wanted() && values.len() < VALUES {
            let pieces = place.read(&context.engine.state().study(), &asked, context.engine.now_usec());
            match of {
                SeriesStep::Second => found.extend(pieces.into_iter().map(|piece| piece.values)),
                _ => values.extend(pieces.into_iter().flat_map(|piece| piece.values)),
            }
        }
        found.push(values);
    }
    let last = |values: &Vec<(u64, u64)>| values.last().map_or(0, |(_, value)| *value);
    let values = found.into_iter().filter(|values| !values.is_empty()).max_by_key(last).unwrap_or_default();
    let amount = |value: u64| match resource {
        // Series tell millionths of a core, seconds and minutes alike.
        Resource::Cpu => value.div_ceil(1000),
        Resource::Memory => value,
    };
    let points: Vec<(u64, u64)> = values.iter().map(|(at, value)| (at * 1000, amount(*value))).collect();
    UsageSeries { of: points.len(), points: thinned(&points), step_ms: step * 1000 }
}

/// Policies, and objects that bound recommendations, of their JSON forms.
pub(super) fn policies(all: &[Value]) -> Vec<PolicyFacts> {
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let one = |object: &Value| PolicyFacts {
        kind: text(&object["kind"]),
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
        mode: text(&object["spec"]["updatePolicy"]["mode"]),
        rule: text(&object["spec"]["rule"]),
        containers: object["status"]["recommendation"]["containers"].as_array().map(|all| all.len() as u64),
        conditions: conditions(object),
    };
    all.iter().map(one).collect()
}

/// An object's conditions: type, status, message.
pub(super) fn conditions(object: &Value) -> Vec<(String, String, String)> {
    let all = object["status"]["conditions"].as_array();
    let text = |value: &Value| value.as_str().map(str::to_owned).unwrap_or_default();
    all.into_iter().flatten().map(|c| (text(&c["type"]), text(&c["status"]), text(&c["message"]))).collect()
}

/// Entries of the audit record.
pub(super) fn changes(entries: Vec<AuditEntry>) -> Vec<AuditChange> {
    let one = |entry: AuditEntry| {
        let Object { kind, namespace, name } = entry.object;
        let object = if namespace.is_empty() { name } else { format!("{namespace}/{name}") };
        AuditChange {
            time: answers::time(entry.time_usec).unwrap_or_default(),
            who: entry.who,
            from: entry.from,
            method: entry.method,
            object: format!("{kind} {object}").trim().to_owned(),
            outcome: entry.outcome.as_str().to_owned(),
            why: entry.reason,
        }
    };
    entries.into_iter().map(one).collect()
}
