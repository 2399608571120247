//! `evenkeel usage`: the resource model's usage records.

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use evenkeel_proto::v1::{ListContainersRequest, QuerySeriesRequest, QueryUsageRequest, Stats, UsageRecord};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::named::duration_ms;
use jiff::SignedDuration;
use serde::Serialize;

use crate::client::{self, Address, Peers};
use crate::commands::backtest::Measured;
use crate::commands::recommend::amount;
use crate::commands::series;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table};

/// Show what containers used: mean, peak and percentiles of the seconds of a window.
///
/// A window of more than a minute begins with a whole hour, because seconds are kept by the hour; -o wide shows how long it
/// is. Confidence is the part of its seconds that was seen. PREDICTED is the maximum expected of the next hour, or after a
/// longer window of the next day once days are known; -o wide shows how likely it is to be kept to. CPU is in thousandths of a core and memory in bytes in JSON and YAML.
/// Block I/O and network are of this hour and the one before, whatever the window, and have no series.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel usage
  evenkeel usage --namespace shop --window 1h
  evenkeel usage --local
  evenkeel usage --series --resource cpu --window 7d > cpu.csv
  evenkeel usage --series --resource memory --local --for 10m > memory.csv
  evenkeel usage --workload deployment/web --container app -o json")]
pub(crate) struct UsageArgs {
    /// Only of this namespace.
    #[arg(short, long, value_name = "NS", default_value = "", hide_default_value = true)]
    namespace: String,
    /// Only of this workload.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    workload: String,
    /// Only of this container.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    container: String,
    /// Length of the window, such as 10m or 7d; all that is kept unless given.
    #[arg(long, value_name = "DURATION", value_parser = window)]
    window: Option<u64>,
    /// Ask the agent of this node, which keeps the last minute, and not the recommender.
    #[arg(long, conflicts_with = "window")]
    local: bool,
    /// Print use over time instead: the CSV series,t,value that backtest reads, in cores or bytes; gaps go to standard error.
    /// With --local, seconds as the agent samples them.
    #[arg(long, requires = "resource")]
    series: bool,
    /// Of what.
    #[arg(long, value_enum, requires = "series")]
    resource: Option<Measured>,
    /// From one value to the next. Seconds are kept for a minute; a value of more is the mean of CPU or the peak of memory,
    /// of several replicas that of the one at rank 95 %.
    #[arg(long, value_enum, default_value = "1m", requires = "series", conflicts_with = "local")]
    step: UsageStep,
    /// How long to follow the agent, such as 10m; until it is interrupted unless given.
    #[arg(long = "for", value_name = "DURATION", value_parser = window, requires = "local", requires = "series")]
    length: Option<u64>,
}

impl UsageArgs {
    /// Whether use over time is asked for.
    pub(crate) const fn is_series(&self) -> bool {
        self.series
    }
}

/// From one value to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UsageStep {
    #[value(name = "1s")]
    Second,
    #[value(name = "1m")]
    Minute,
    #[value(name = "1h")]
    Hour,
    #[value(name = "1d")]
    Day,
}

impl UsageStep {
    const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
        }
    }
}

impl UsageArgs {
    /// Whether a record is one of those asked for.
    fn wants(&self, record: &UsageRecord) -> bool {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        fits(&self.namespace, &record.namespace)
            && fits(&self.workload, &record.workload)
            && fits(&self.container, &record.container)
    }
}

/// Seconds of a length of time; days are 24 hours, which the calendar's are not always.
fn window(text: &str) -> Result<u64, String> {
    if let Ok(ms) = duration_ms(text) {
        return Ok(ms / 1_000);
    }
    let duration: SignedDuration =
        text.parse().map_err(|_| "write a duration such as 10m, 24h or 7d".to_owned())?;
    match u64::try_from(duration.as_secs()) {
        Ok(seconds) if seconds > 0 => Ok(seconds),
        _ => Err("a window is at least a second long".to_owned()),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageRow {
    namespace: String,
    workload: String,
    container: String,
    usage: BTreeMap<String, Distribution>,
    maxusage: BTreeMap<String, Distribution>,
    predicted: BTreeMap<String, Distribution>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_confidence: Option<f64>,
    window_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    window_start_seconds: Option<i64>,
    confidence: Option<f64>,
    dropped: u64,
}

#[derive(Serialize)]
struct Distribution {
    mean: Option<u64>,
    max: Option<u64>,
    min: Option<u64>,
    count: u64,
    percentiles: BTreeMap<String, u64>,
}

impl From<Stats> for Distribution {
    fn from(s: Stats) -> Self {
        Self { mean: s.mean, max: s.max, min: s.min, count: s.count, percentiles: s.percentiles }
    }
}

impl From<UsageRecord> for UsageRow {
    fn from(r: UsageRecord) -> Self {
        let all = |m: BTreeMap<String, Stats>| m.into_iter().map(|(k, v)| (k, v.into())).collect();
        Self {
            namespace: r.namespace,
            workload: r.workload,
            container: r.container,
            usage: all(r.usage),
            maxusage: all(r.max_usage),
            predicted: all(r.predicted),
            predicted_seconds: r.predicted_seconds,
            predicted_confidence: r.predicted_confidence,
            window_seconds: r.window_seconds,
            window_start_seconds: r.window_start_seconds,
            confidence: r.confidence,
            dropped: r.dropped,
        }
    }
}

pub(crate) async fn run(args: &UsageArgs, peers: &Peers<'_>, output: &Output) -> Result<YesOrNo, Failure> {
    if let Some(resource) = args.resource.filter(|_| args.series) {
        return over_time(args, resource.into(), peers).await;
    }
    let found = if args.local {
        last_minute(args, peers.agent).await?
    } else {
        kept(args, peers.recommender).await?
    };
    let records: Vec<UsageRow> = found.into_iter().map(UsageRow::from).collect();
    output.answer(&records, || table(&records, output.is_wide()))?;
    Ok(YesOrNo::Yes)
}

/// Use over time as CSV.
async fn over_time(args: &UsageArgs, resource: Resource, peers: &Peers<'_>) -> Result<YesOrNo, Failure> {
    let count = if args.local {
        let fits = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let wants = |namespace: &str, workload: &str, container: &str| {
            fits(&args.namespace, namespace)
                && fits(&args.workload, workload)
                && fits(&args.container, container)
        };
        series::print_live(peers.agent, resource, args.length, &wants).await?
    } else {
        let now = u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0);
        let request = QuerySeriesRequest {
            namespace: args.namespace.clone(),
            workload: args.workload.clone(),
            container: args.container.clone(),
            resource: resource.as_str().to_owned(),
            step_seconds: args.step.seconds(),
            from_seconds: args.window.map_or(0, |window| now.saturating_sub(window)),
            to_seconds: 0,
        };
        series::print_stored(peers.recommender, request).await?
    };
    Ok(if count > 0 { YesOrNo::Yes } else { YesOrNo::No })
}

/// What the agent has of the last minute.
async fn last_minute(args: &UsageArgs, address: &Address) -> Result<Vec<UsageRecord>, Failure> {
    let mut agent = client::agent(address).await?;
    let answer = agent.list_containers(ListContainersRequest {}).await.map_err(|e| address.failed(&e))?;
    let records = answer.into_inner().containers.into_iter().filter_map(|c| c.usage);
    Ok(records.filter(|record| args.wants(record)).collect())
}

/// What the recommender has kept.
async fn kept(args: &UsageArgs, address: &Address) -> Result<Vec<UsageRecord>, Failure> {
    let request = QueryUsageRequest {
        namespace: args.namespace.clone(),
        workload: args.workload.clone(),
        container: args.container.clone(),
        window_seconds: args.window.unwrap_or(0),
    };
    let mut recommender = client::recommender(address).await?;
    let answer = recommender.query_usage(request).await.map_err(|e| address.failed(&e))?;
    Ok(answer.into_inner().records)
}

/// Percentiles of the table, and further ones of the wide table.
const SHOWN: [&str; 3] = ["50", "90", "99"];
const FURTHER: [&str; 3] = ["95", "99.5", "99.9"];

fn table(records: &[UsageRow], wide: bool) -> Table {
    let mut titles = vec![
        "NAMESPACE",
        "WORKLOAD",
        "CONTAINER",
        "RESOURCE",
        "MEAN",
        "P50",
        "P90",
        "P99",
        "MAX",
        "PREDICTED",
        "SAMPLES",
    ];
    if wide {
        titles.extend(["MIN", "P95", "P99.5", "P99.9", "WINDOW", "CONFIDENCE", "DROPPED"]);
        titles.extend(["NEXT", "NEXT-CONFIDENCE", "NEXT-MEAN", "NEXT-P99"]);
    }
    let mut table = Table::new(&titles);
    for record in records {
        for (resource, usage) in &record.usage {
            table.row(row(record, resource, usage, wide));
        }
    }
    table
}

fn row(r: &UsageRow, resource: &str, usage: &Distribution, wide: bool) -> Vec<Cell> {
    let shown = |value: Option<u64>| Cell::from(amount(resource, value));
    let percentile = |p: &&str| shown(usage.percentiles.get(*p).copied());
    let mut row: Vec<Cell> = vec![
        r.namespace.as_str().into(),
        r.workload.as_str().into(),
        r.container.as_str().into(),
        resource.into(),
        shown(usage.mean),
    ];
    row.extend(SHOWN.iter().map(percentile));
    row.extend([
        shown(usage.max),
        shown(r.predicted.get(resource).and_then(|d| d.max)),
        usage.count.to_string().into(),
    ]);
    if wide {
        row.push(shown(usage.min));
        row.extend(FURTHER.iter().map(percentile));
        row.extend([
            Cell::from(format!("{}s", r.window_seconds)),
            r.confidence.map_or("-".to_owned(), |c| format!("{c:.3}")).into(),
            r.dropped.to_string().into(),
        ]);
        let next = r.predicted.get(resource);
        row.extend([
            Cell::from(r.predicted_seconds.map_or("-".to_owned(), |s| format!("{s}s"))),
            r.predicted_confidence.map_or("-".to_owned(), |c| format!("{c:.2}")).into(),
            shown(next.and_then(|d| d.mean)),
            shown(next.and_then(|d| d.percentiles.get("99").copied())),
        ]);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_seconds_to_weeks() {
        for (text, want) in [("10m", 600), ("24h", 86_400), ("7d", 604_800), ("1h30m", 5_400)] {
            assert_eq!(window(text), Ok(want), "{text}");
        }
        assert!(["", "7", "0d", "0s", "-1h", "7w d"].iter().all(|text| window(text).is_err()));
    }
}
