//! `evenkeel compare`: what different rules say of the same stored history.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use evenkeel_proto::v1::{ListRecommendationsRequest, RecommendPodRequest, Recommendation};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::named::NamedRule;
use serde::Serialize;

use crate::client::{self, Address};
use crate::commands::backtest::{self, AtEqualRisk};
use crate::commands::recommend::{YOUNG, amount, marked, saving, signed};
use crate::commands::series;
use crate::failure::Failure;
use crate::input;
use crate::output::{Format, Output, YesOrNo};
use crate::table::{Cell, Table};

/// Set rules side by side on stored history: what each would request, at what risk, and what that saves.
///
/// What rests on less than two days of history is marked with * and left out of sums. CPU is in thousandths of a core and memory in bytes in JSON and YAML.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel compare
  evenkeel compare --namespace shop --rules goal,vpa
  evenkeel compare --equal-risk
  evenkeel compare -f pod.yaml -o json")]
pub(crate) struct CompareArgs {
    /// Only of this namespace.
    #[arg(
        short,
        long,
        value_name = "NS",
        default_value = "",
        hide_default_value = true,
        conflicts_with = "file"
    )]
    namespace: String,
    /// Which rules, separated by commas; all the recommender knows without.
    #[arg(long, value_name = "RULE,...", value_delimiter = ',', num_args = 1.., default_value = "*", hide_default_value = true)]
    rules: Vec<String>,
    /// Replay the stored minutes under each rule, too, and set the rules side by side at equal risk: all requests of a rule
    /// multiplied by the factor with which 1 % of the time (CPU) or of the days (memory) are over.
    #[arg(long, conflicts_with = "file")]
    equal_risk: bool,
    /// For this pod, existing or not; - is standard input.
    #[arg(short, long, value_name = "POD", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ComparisonRow {
    namespace: String,
    workload: String,
    container: String,
    resource: String,
    current: Option<u64>,
    replicas: u32,
    risk_now: Option<f64>,
    /// In the order they were asked for.
    rules: Vec<RuleRecommendation>,
}

/// What one rule says.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RuleRecommendation {
    rule: String,
    request: Option<u64>,
    lower: Option<u64>,
    upper: Option<u64>,
    risk: Option<f64>,
    saving: Option<i64>,
    tier: String,
    samples: u64,
    confidence: Option<f64>,
    notes: Vec<String>,
    /// Rests on less than two days.
    young: bool,
}

impl From<Recommendation> for RuleRecommendation {
    fn from(r: Recommendation) -> Self {
        Self {
            saving: saving(&r),
            rule: r.rule,
            request: r.request,
            lower: r.lower,
            upper: r.upper,
            risk: r.risk_then,
            tier: r.tier,
            samples: r.samples,
            confidence: r.confidence,
            notes: r.notes,
            young: r.young,
        }
    }
}

pub(crate) async fn run(args: &CompareArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let mut recommender = client::recommender(address).await?;
    let rules = args.rules.clone();
    let found = match &args.file {
        Some(file) => {
            let request = RecommendPodRequest { pod: input::text(file)?, rules };
            recommender
                .recommend_pod(request)
                .await
                .map_err(|e| address.failed(&e))?
                .into_inner()
                .recommendations
        }
        None => {
            let request = ListRecommendationsRequest {
                namespace: args.namespace.clone(),
                rules,
                selector: String::new(),
            };
            let answer = recommender.list_recommendations(request).await.map_err(|e| address.failed(&e))?;
            answer.into_inner().recommendations
        }
    };
    let rows = side_by_side(found);
    let equal = if args.equal_risk { at_equal_risk(args, address, &rows).await? } else { Vec::new() };
    let text = || {
        let mut text = output.rendered(&table(&rows, output));
        if output.format() != Format::Csv {
            text.push_str(&totals(&rows));
            if rows.iter().flat_map(|row| &row.rules).any(|said| said.young) {
                text.push_str(&format!("\n{YOUNG}\n"));
            }
        }
        if args.equal_risk {
            text.push_str(&format!("\n{}", output.rendered(&equal_table(&equal))));
        }
        text
    };
    match args.equal_risk {
        true => output.answer_text(&WithEqualRisk { now: &rows, equal_risk: &equal }, text)?,
        false => output.answer_text(&rows, text)?,
    }
    Ok(YesOrNo::Yes)
}

/// What rules say today, and what they would have cost at equal risk.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WithEqualRisk<'a> {
    now: &'a [ComparisonRow],
    equal_risk: &'a [AtEqualRisk],
}

/// The stored minutes of what was asked about, replayed under each rule that said something.
async fn at_equal_risk(
    args: &CompareArgs,
    address: &Address,
    rows: &[ComparisonRow],
) -> Result<Vec<AtEqualRisk>, Failure> {
    let rules: Vec<(String, NamedRule)> = names(rows)
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), NamedRule::parse(name).ok()?)))
        .collect();
    let mut equal = Vec::new();
    for resource in Resource::ALL {
        let request = backtest::history::request("", &args.namespace, resource);
        let (trace, gaps) = series::stored(address, request).await?;
        gaps.tell();
        equal.extend(backtest::at_equal_risk(&trace, resource, &rules));
    }
    if equal.is_empty() {
        eprintln!("no workload has a day and a half of minutes to be replayed");
    }
    Ok(equal)
}

fn equal_table(equal: &[AtEqualRisk]) -> Table {
    let titles =
        ["RESOURCE", "RULE", "SERIES", "RISK", "SLACK", "FACTOR", "AT EQUAL RISK", "REQUESTED", "LESS FIRST"];
    let mut table = Table::new(&titles);
    let percent = |part: f64| format!("{:.1} %", 100.0 * part);
    for one in equal {
        let less = one.less_first.map_or("-".to_owned(), |[mean, low, high]| {
            format!("{:+.2} [{:+.2}, {:+.2}]", 100.0 * mean, 100.0 * low, 100.0 * high)
        });
        table.row(vec![
            one.resource.into(),
            one.rule.as_str().into(),
            one.series.to_string().into(),
            format!("{:.2} %", 100.0 * one.risk).into(),
            percent(one.slack).into(),
            format!("{:.2}", one.factor).into(),
            percent(one.slack_at_equal_risk).into(),
            amount(one.resource, Some(one.requested_at_equal_risk)).into(),
            less.into(),
        ]);
    }
    table
}

/// One row for what several rules say of one container's resource, in the order of the first of them.
fn side_by_side(all: Vec<Recommendation>) -> Vec<ComparisonRow> {
    let mut rows: Vec<ComparisonRow> = Vec::new();
    let mut places = BTreeMap::new();
    for r in all {
        let place = [&r.cluster, &r.namespace, &r.workload, &r.container, &r.resource].map(String::clone);
        let at = *places.entry(place).or_insert_with(|| {
            rows.push(ComparisonRow {
                namespace: r.namespace.clone(),
                workload: r.workload.clone(),
                container: r.container.clone(),
                resource: r.resource.clone(),
                current: r.current,
                replicas: r.replicas,
                risk_now: r.risk_now,
                rules: Vec::new(),
            });
            rows.len() - 1
        });
        rows[at].rules.push(r.into());
    }
    rows
}

/// Names of the rules, in the order they first appear.
fn names(rows: &[ComparisonRow]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for said in rows.iter().flat_map(|row| &row.rules) {
        if !names.contains(&said.rule.as_str()) {
            names.push(&said.rule);
        }
    }
    names
}

fn table(rows: &[ComparisonRow], output: &Output) -> Table {
    let (wide, csv) = (output.is_wide(), output.format() == Format::Csv);
    let mut titles: Vec<String> =
        ["NAMESPACE", "WORKLOAD", "CONTAINER", "RESOURCE", "CURRENT"].map(str::to_owned).into();
    let rules = names(rows);
    for rule in &rules {
        let name = rule.to_uppercase();
        titles.extend([name.clone(), format!("{name}-RISK")]);
        if wide {
            titles.extend([format!("{name}-LOWER"), format!("{name}-UPPER"), format!("{name}-TIER")]);
        }
        if csv {
            titles.push(format!("{name}-YOUNG"));
        }
    }
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for row in rows {
        let amount = |value| Cell::from(amount(&row.resource, value));
        let mut cells: Vec<Cell> = vec![
            row.namespace.as_str().into(),
            row.workload.as_str().into(),
            row.container.as_str().into(),
            row.resource.as_str().into(),
            amount(row.current),
        ];
        for rule in &rules {
            let said = row.rules.iter().find(|said| said.rule == *rule);
            cells.push(amount(said.and_then(|s| s.request)));
            let risk = said.and_then(|s| s.risk).map_or("-".to_owned(), |risk| format!("{risk:.3}"));
            let young = said.is_some_and(|s| s.young);
            cells.push(marked(risk, young && !csv).into());
            if wide {
                cells.push(amount(said.and_then(|s| s.lower)));
                cells.push(amount(said.and_then(|s| s.upper)));
                cells.push(said.map_or("-", |s| s.tier.as_str()).into());
            }
            if csv {
                cells.push(if young { "yes" } else { "no" }.into());
            }
        }
        table.row(cells);
    }
    table
}

/// What each rule saves over all that runs, and its mean risk, each resource by itself; young containers left out.
fn totals(rows: &[ComparisonRow]) -> String {
    let mut text = String::new();
    for rule in names(rows) {
        let mut parts = Vec::new();
        for resource in ["cpu", "memory"] {
            let said = || {
                let rows = rows.iter().filter(|row| row.resource == resource);
                rows.flat_map(|row| row.rules.iter().filter(|said| said.rule == rule && !said.young))
            };
            let saved: i64 = said().filter_map(|s| s.saving).fold(0, i64::saturating_add);
            let risks: Vec<f64> = said().filter_map(|s| s.risk).collect();
            if !risks.is_empty() {
                let mean = risks.iter().sum::<f64>() / risks.len() as f64;
                parts.push(format!(
                    "{resource} saves {} at a mean risk of {mean:.3}",
                    signed(resource, saved)
                ));
            }
        }
        if !parts.is_empty() {
            text.push_str(&format!("\n{rule}: {}", parts.join(", ")));
        }
    }
    if text.is_empty() { text } else { text + "\n" }
}
