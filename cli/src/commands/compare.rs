//! `evenkeel compare`: what different rules say of the same stored history.

mod table;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use evenkeel_proto::v1::{ListRecommendationsRequest, RecommendPodRequest, Recommendation};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::named::NamedRule;
use serde::Serialize;

use crate::client::{self, Address};
use crate::commands::backtest::{self, AtEqualRisk};
use crate::commands::recommend::{YOUNG, saving};
use crate::commands::series;
use crate::failure::Failure;
use crate::input;
use crate::output::{Format, Output, YesOrNo};
use table::{equal_table, names, table, totals};

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
