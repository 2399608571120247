//! `evenkeel recommend`: what containers should request.

mod filter;
mod prices;

use std::path::PathBuf;

use clap::Args;
use evenkeel_model::panic::Panic;
use evenkeel_proto::v1::{
    ContainerKind, ListRecommendationsRequest, RecommendPodRequest, RecommendPodResponse, Recommendation,
};
use evenkeel_rightsizing::patch::{self, ResourceChange};
use serde::Serialize;

use super::backtest::{TIMEOUT, time};
use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Format, Output, YesOrNo};
use crate::table::{Cell, Table, clean};
use crate::wire::{self, ClassChange};
use crate::{input, units};
use filter::FilterArgs;
use prices::Prices;

/// Show what containers should request: now, recommended, what that saves, and the risk of both.
///
/// The risk is the expected part of time (CPU) or of days (memory) above the request. Savings are over all containers that
/// run now; a negative one is what has to be added. What rests on less than two days of history is marked with * and left
/// out of sums. CPU is in thousandths of a core and memory in bytes in JSON and YAML. -o patch prints kubectl commands that
/// set what is recommended; nothing is changed before a shell runs them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel recommend
  evenkeel recommend --namespace shop -o json
  evenkeel recommend -o csv > recommendations.csv
  evenkeel recommend --sort saving --min-saving cpu=500m,memory=1Gi
  evenkeel recommend -n shop -l app=web -o patch
  evenkeel recommend --price prices.csv --sort saving
  evenkeel recommend -f pod.yaml
  evenkeel recommend --prometheus http://prometheus:9090")]
pub(crate) struct RecommendArgs {
    /// Only of this namespace.
    #[arg(short, long, value_name = "NS", conflicts_with = "file")]
    namespace: Option<String>,
    /// For this pod, existing or not; - is standard input.
    #[arg(short, long, value_name = "POD", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Answer from what this Prometheus has of cAdvisor, where no recommender runs yet.
    #[arg(long, value_name = "URL", conflicts_with = "file")]
    prometheus: Option<String>,
    /// How long it may take to answer for a day of all containers.
    #[arg(long, value_name = "TIME", default_value = TIMEOUT, value_parser = time, requires = "prometheus")]
    timeout: u64,
    /// What a core and a GiB cost an hour, in CSV: resource,price, then a line for cpu and one for memory.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with = "prometheus")]
    price: Option<PathBuf>,
    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecommendationRow {
    namespace: String,
    workload: String,
    container: String,
    resource: String,
    current: Option<u64>,
    request: Option<u64>,
    lower: Option<u64>,
    upper: Option<u64>,
    raw: Option<u64>,
    capped_by: Vec<String>,
    rule: String,
    tier: String,
    samples: u64,
    span_seconds: u64,
    confidence: Option<f64>,
    risk: Risk,
    age_seconds: u64,
    replicas: u32,
    /// Over all containers that run now; absent where there is none, or one of the two requests.
    saving: Option<i64>,
    /// What that is worth a month, where prices are given.
    #[serde(skip_serializing_if = "Option::is_none")]
    saving_per_month: Option<f64>,
    limit: Option<u64>,
    current_limit: Option<u64>,
    policy: Option<String>,
    mode: Option<String>,
    qos_class: ClassChange,
    changes_class: bool,
    notes: Vec<String>,
    /// Rests on less than two days.
    young: bool,
    /// What its start could use, where starts were seen, and seconds of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_seconds: Option<u64>,
    /// It is among the pod's init containers.
    #[serde(skip)]
    init: bool,
}

impl RecommendationRow {
    /// As a command that carries it out.
    fn change(&self) -> ResourceChange<'_> {
        ResourceChange {
            namespace: &self.namespace,
            workload: &self.workload,
            container: &self.container,
            init: self.init,
            resource: &self.resource,
            current: self.current,
            request: self.request,
            current_limit: self.current_limit,
            limit: self.limit,
            young: self.young,
            class: self.changes_class.then(|| self.qos_class.words()),
        }
    }
}

/// Expected part of time over the request, as it is and as recommended.
#[derive(Serialize)]
struct Risk {
    now: Option<f64>,
    then: Option<f64>,
}

/// What a recommendation saves over all containers that run now.
pub(crate) fn saving(r: &Recommendation) -> Option<i64> {
    let (now, then) = (i128::from(r.current?), i128::from(r.request?));
    i64::try_from((now - then) * i128::from(r.replicas)).ok().filter(|_| r.replicas > 0)
}

fn filled(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

impl From<Recommendation> for RecommendationRow {
    fn from(r: Recommendation) -> Self {
        Self {
            saving: saving(&r),
            saving_per_month: None,
            init: matches!(r.kind(), ContainerKind::Init | ContainerKind::Sidecar),
            replicas: r.replicas,
            limit: r.limit,
            current_limit: r.current_limit,
            policy: filled(r.policy),
            mode: filled(r.mode),
            qos_class: ClassChange::new(r.qos_class_before, r.qos_class_after),
            changes_class: r.changes_class,
            notes: r.notes,
            young: r.young,
            start: r.start,
            start_seconds: r.start.map(|_| r.start_seconds),
            namespace: r.namespace,
            workload: r.workload,
            container: r.container,
            resource: r.resource,
            current: r.current,
            request: r.request,
            lower: r.lower,
            upper: r.upper,
            raw: r.raw,
            capped_by: r.capped_by,
            rule: r.rule,
            tier: r.tier,
            samples: r.samples,
            span_seconds: r.span_seconds,
            confidence: r.confidence,
            risk: Risk { now: r.risk_now, then: r.risk_then },
            age_seconds: r.age_seconds,
        }
    }
}

pub(crate) async fn run(
    args: &RecommendArgs,
    address: &Address,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    if let Some(url) = &args.prometheus {
        return super::backtest::recommend_of_prometheus(
            url,
            args.timeout,
            args.namespace.as_deref(),
            output,
        );
    }
    let prices = args.price.as_deref().map(Prices::read).transpose()?;
    let mut recommender = client::recommender(address).await?;
    let (found, remarks) = match &args.file {
        Some(file) => {
            let request = RecommendPodRequest { pod: input::text(file)?, rules: Vec::new() };
            let answer =
                recommender.recommend_pod(request).await.map_err(|e| address.failed(&e))?.into_inner();
            let remarks = of_pod(&answer);
            (answer.recommendations, remarks)
        }
        None => {
            let namespace = args.namespace.clone().unwrap_or_default();
            let request = ListRecommendationsRequest {
                namespace,
                rules: Vec::new(),
                selector: args.filter.selector.clone().unwrap_or_default(),
            };
            let answer =
                recommender.list_recommendations(request).await.map_err(|e| address.failed(&e))?.into_inner();
            let panic = Panic::of(answer.panic, answer.panic_revert);
            let remarks = states(answer.loading, panic, &answer.panic_reason);
            (answer.recommendations, remarks)
        }
    };
    let mut rows: Vec<RecommendationRow> = found.into_iter().map(RecommendationRow::from).collect();
    if let Some(prices) = &prices {
        let per_month = |row: &RecommendationRow| prices.per_month(&row.resource, row.saving?);
        rows.iter_mut().for_each(|row| row.saving_per_month = per_month(row));
    }
    args.filter.apply(&mut rows, prices.is_some())?;
    let mut remarks = remarks;
    if args.file.is_none() {
        remarks.extend(totals(&rows));
    }
    if rows.iter().any(|r| r.young) {
        remarks.push(YOUNG.to_owned());
    }
    output.answer_text(&rows, || {
        if output.format() == Format::Patch {
            let remarks = remarks.iter().map(|line| format!("# {}\n", clean(line)));
            return remarks.collect::<String>()
                + &patch::commands(&rows.iter().map(RecommendationRow::change).collect::<Vec<_>>());
        }
        let mut text = output.rendered(&table(&rows, output));
        if output.format() != Format::Csv && !remarks.is_empty() {
            text.push('\n');
            // Reasons and names of others are among them.
            remarks.iter().for_each(|line| text.extend([clean(line).as_str(), "\n"]));
        }
        text
    })?;
    Ok(YesOrNo::Yes)
}

/// What the mark means.
pub(crate) const YOUNG: &str =
    "* rests on less than two days of history: savings and risks may be far off and are left out of sums";

/// A cell with the mark of what is young.
pub(crate) fn marked(text: String, young: bool) -> String {
    // What is absent has nothing to be doubted.
    if young && text != "-" { text + "*" } else { text }
}

/// What people should know before they rely on an answer.
fn states(loading: bool, panic: Panic, reason: &str) -> Vec<String> {
    let mut lines = Vec::new();
    if loading {
        lines.push(
            "history is still being read back: these are the last answers of the run before".to_owned(),
        );
    }
    if panic.is_on() {
        let why = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        lines.push(format!("the panic switch is on{why}: {}", panic.meaning()));
    }
    lines
}

/// What all recommendations save together, but for those that rest on too little.
fn totals(all: &[RecommendationRow]) -> Vec<String> {
    let of = |resource: &str| {
        let known = all.iter().filter(|r| r.resource == resource && r.replicas > 0);
        let (young, old): (Vec<_>, Vec<_>) =
            known.filter_map(|r| Some((r, r.saving?))).partition(|(r, _)| r.young);
        let now = old.iter().map(|(r, _)| i128::from(r.current.unwrap_or(0)) * i128::from(r.replicas)).sum();
        let saved = old.iter().map(|(_, saved)| i128::from(*saved)).sum();
        let amount = |v: i128| signed(resource, i64::try_from(v).unwrap_or(i64::MAX));
        let summed = || {
            let count = old.len();
            format!("saving {resource}: {} of {} in {count} workload containers", amount(saved), amount(now))
        };
        match (old.is_empty(), young.len()) {
            (true, 0) => None,
            (true, left) => Some(format!(
                "saving {resource}: unknown, all {left} workload containers are younger than two days"
            )),
            (false, 0) => Some(summed()),
            (false, left) => Some(format!("{}; {left} younger than two days are left out", summed())),
        }
    };
    let worth =
        all.iter().filter(|r| !r.young).filter_map(|r| r.saving_per_month).reduce(|sum, one| sum + one);
    let worth = worth.map(|worth| format!("saving a month: {worth:.2}"));
    ["cpu", "memory"].into_iter().filter_map(of).chain(worth).collect()
}

/// What a pod's answer says besides its recommendations.
fn of_pod(answer: &RecommendPodResponse) -> Vec<String> {
    let mut lines = states(answer.loading, Panic::Off, "");
    if answer.panic {
        let why = "the panic switch is on, its namespace is frozen, or what that allows is not known yet";
        lines.push(format!("the pod gets what it asks for: {why}"));
    }
    if answer.cached {
        lines.push("a fresh answer takes too long: this one was kept, -o wide shows its age".to_owned());
    }
    if !answer.policy.is_empty() {
        lines.push(format!("policy: {}", answer.policy));
    }
    if !answer.conflicts.is_empty() {
        lines.push(format!("overruled: {}", answer.conflicts.join(", ")));
    }
    for container in &answer.containers {
        let r = container.resources.unwrap_or_default();
        let shown = |resource, value| amount(resource, value);
        lines.push(format!(
            "{}: requests cpu {}, memory {}; limits cpu {}, memory {}",
            container.name,
            shown("cpu", r.cpu_request_milli),
            shown("memory", r.memory_request_bytes),
            shown("cpu", r.cpu_limit_milli),
            shown("memory", r.memory_limit_bytes),
        ));
    }
    if let (Some(before), Some(after)) = (wire::class(answer.qos_before), wire::class(answer.qos_after)) {
        lines.push(match before == after {
            true => format!("class: {before}"),
            false => format!("class: {before} becomes {after}, which no running pod is changed to in place"),
        });
    }
    lines
}

fn table(rows: &[RecommendationRow], output: &Output) -> Table {
    let (wide, csv) = (output.is_wide(), output.format() == Format::Csv);
    let mut titles = vec![
        "NAMESPACE",
        "WORKLOAD",
        "CONTAINER",
        "RESOURCE",
        "REPLICAS",
        "CURRENT",
        "REQUEST",
        "SAVING",
        "SAVED-A-MONTH",
        "RISK-NOW",
        "RISK-THEN",
        "RULE",
        "TIER",
        "SAMPLES",
    ];
    if wide {
        titles.extend([
            "LOWER",
            "UPPER",
            "RAW",
            "CAPPED-BY",
            "LIMIT",
            "LIMIT-THEN",
            "SPAN",
            "CONFIDENCE",
            "AGE",
            "POLICY",
            "MODE",
            "CLASS",
            "NOTES",
        ]);
    }
    if csv {
        titles.push("YOUNG");
    }
    let started = wide && rows.iter().any(|r| r.start.is_some());
    if started {
        titles.push("START");
    }
    let priced = rows.iter().any(|r| r.saving_per_month.is_some());
    titles.retain(|title| priced || *title != "SAVED-A-MONTH");
    let mut table = Table::new(&titles);
    for r in rows {
        let amount = |value: Option<u64>| Cell::from(amount(&r.resource, value));
        let part = |p: Option<f64>| p.map_or("-".to_owned(), |p| format!("{p:.3}"));
        // Programs read numbers, and the mark in a column of its own.
        let marked = |text: String| Cell::from(marked(text, r.young && !csv));
        let mut row: Vec<Cell> = vec![
            r.namespace.as_str().into(),
            r.workload.as_str().into(),
            r.container.as_str().into(),
            r.resource.as_str().into(),
            r.replicas.to_string().into(),
            amount(r.current),
            amount(r.request),
            marked(r.saving.map_or("-".to_owned(), |s| signed(&r.resource, s))),
        ];
        if priced {
            row.push(marked(r.saving_per_month.map_or("-".to_owned(), |worth| format!("{worth:.2}"))));
        }
        row.extend([
            marked(part(r.risk.now)),
            marked(part(r.risk.then)),
            r.rule.as_str().into(),
            r.tier.as_str().into(),
            r.samples.to_string().into(),
        ]);
        if wide {
            row.extend([
                amount(r.lower),
                amount(r.upper),
                amount(r.raw),
                r.capped_by.join(",").into(),
                amount(r.current_limit),
                amount(r.limit),
                format!("{}s", r.span_seconds).into(),
                part(r.confidence).into(),
                format!("{}s", r.age_seconds).into(),
                r.policy.as_deref().unwrap_or("-").into(),
                r.mode.as_deref().unwrap_or("-").into(),
                r.qos_class.to_string().into(),
                r.notes.join("; ").into(),
            ]);
        }
        if csv {
            row.push(if r.young { "yes" } else { "no" }.into());
        }
        if started {
            row.push(amount(r.start));
        }
        table.row(row);
    }
    table
}

/// A difference of amounts as people read it.
pub(crate) fn signed(resource: &str, value: i64) -> String {
    let text = amount(resource, Some(value.unsigned_abs()));
    if value < 0 { format!("-{text}") } else { text }
}

/// An amount of a resource as people read it.
pub(crate) fn amount(resource: &str, value: Option<u64>) -> String {
    match (resource, value) {
        (_, None) => "-".to_owned(),
        ("cpu", Some(milli)) => units::cpu(milli),
        ("memory", Some(bytes)) => units::bytes(bytes),
        (_, Some(other)) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(current: u64, request: u64, replicas: u32, young: bool) -> Recommendation {
        Recommendation {
            resource: "cpu".into(),
            current: Some(current),
            request: Some(request),
            replicas,
            young,
            ..Default::default()
        }
    }

    #[test]
    fn what_is_young_is_left_out_of_sums_and_counted() {
        let (old, young) = (cpu(1_000, 250, 3, false), cpu(500, 10, 2, true));
        let table = [
            (vec![], vec![]),
            (vec![old.clone()], vec!["saving cpu: 2250m of 3 in 1 workload containers"]),
            (
                vec![young.clone(), old, young.clone()],
                vec!["saving cpu: 2250m of 3 in 1 workload containers; 2 younger than two days are left out"],
            ),
            (vec![young], vec!["saving cpu: unknown, all 1 workload containers are younger than two days"]),
            // Nothing runs, nothing is saved.
            (vec![cpu(500, 10, 0, true)], vec![]),
        ];
        for (all, want) in table {
            assert_eq!(totals(&all.into_iter().map(RecommendationRow::from).collect::<Vec<_>>()), want);
        }
    }

    #[test]
    fn a_start_is_told_where_one_was_seen() {
        let told = |start: Option<u64>| {
            let seen = Recommendation { start, start_seconds: 90, ..cpu(1_000, 250, 3, false) };
            let row = serde_json::to_value(RecommendationRow::from(seen)).unwrap();
            (row.get("start").cloned(), row.get("startSeconds").cloned())
        };
        assert_eq!(told(None), (None, None));
        assert_eq!(told(Some(910)), (Some(910.into()), Some(90.into())));
    }

    #[test]
    fn a_mark_is_set_where_there_is_something_to_doubt() {
        assert_eq!(marked("0.010".into(), true), "0.010*");
        assert_eq!(marked("0.010".into(), false), "0.010");
        assert_eq!(marked("-".into(), true), "-");
    }
}
