//! `evenkeel recommend`: what containers should request.

use std::path::PathBuf;

use clap::Args;
use evenkeel_proto::v1::{ListRecommendationsRequest, RecommendPodRequest, Recommendation};
use serde::Serialize;

use crate::client::{self, Address};
use crate::failure::Failure;
use crate::output::{Answer, Output};
use crate::table::{Cell, Table};
use crate::{input, units};

/// Show what containers should request, and how sure that is.
///
/// CPU is in thousandths of a core and memory in bytes in JSON and YAML.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel recommend
  evenkeel recommend --namespace shop -o json
  evenkeel recommend -f pod.yaml")]
pub(crate) struct RecommendArgs {
    /// Only of this namespace.
    #[arg(short, long, value_name = "NS", conflicts_with = "file")]
    namespace: Option<String>,
    /// For this pod, existing or not; - is standard input.
    #[arg(short, long, value_name = "POD")]
    file: Option<PathBuf>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
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
}

/// Expected part of time over the request, as it is and as recommended.
#[derive(Serialize)]
struct Risk {
    now: Option<f64>,
    then: Option<f64>,
}

impl From<Recommendation> for Row {
    fn from(r: Recommendation) -> Self {
        Self {
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

pub(crate) async fn run(args: &RecommendArgs, address: &Address, output: &Output) -> Result<Answer, Failure> {
    let failed = |e| address.failed(&e);
    let found = match &args.file {
        Some(file) => {
            let pod = input::text(file)?;
            let mut recommender = client::recommender(address).await?;
            let answer = recommender.recommend_pod(RecommendPodRequest { pod }).await.map_err(failed)?;
            answer.into_inner().recommendations
        }
        None => {
            let namespace = args.namespace.clone().unwrap_or_default();
            let mut recommender = client::recommender(address).await?;
            let request = ListRecommendationsRequest { namespace };
            recommender.list_recommendations(request).await.map_err(failed)?.into_inner().recommendations
        }
    };
    let rows: Vec<Row> = found.into_iter().map(Row::from).collect();
    output.answer(&rows, || table(&rows, output.is_wide()))?;
    Ok(Answer::Yes)
}

fn table(rows: &[Row], wide: bool) -> Table {
    let mut titles = vec![
        "NAMESPACE",
        "WORKLOAD",
        "CONTAINER",
        "RESOURCE",
        "CURRENT",
        "REQUEST",
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
            "SPAN",
            "CONFIDENCE",
            "RISK-NOW",
            "RISK-THEN",
            "AGE",
        ]);
    }
    let mut table = Table::new(&titles);
    for r in rows {
        let amount = |value: Option<u64>| Cell::from(amount(&r.resource, value));
        let mut row: Vec<Cell> = vec![
            r.namespace.as_str().into(),
            r.workload.as_str().into(),
            r.container.as_str().into(),
            r.resource.as_str().into(),
            amount(r.current),
            amount(r.request),
            r.rule.as_str().into(),
            r.tier.as_str().into(),
            r.samples.to_string().into(),
        ];
        if wide {
            let part = |p: Option<f64>| Cell::from(p.map_or("-".to_owned(), |p| format!("{p:.3}")));
            row.extend([
                amount(r.lower),
                amount(r.upper),
                amount(r.raw),
                r.capped_by.join(",").into(),
                format!("{}s", r.span_seconds).into(),
                part(r.confidence),
                part(r.risk.now),
                part(r.risk.then),
                format!("{}s", r.age_seconds).into(),
            ]);
        }
        table.row(row);
    }
    table
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
