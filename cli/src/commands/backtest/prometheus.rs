//! Series from a Prometheus, or what speaks its API: a range query, a day at a time.
//!
//! Owned here: asking, and what is kept of the answer. Not owned: what is made of the series. Samples that are no
//! measurement (NaN, infinite, negative) and such that come twice are left out and counted; a day that Prometheus has
//! nothing of is a gap. Counter resets are for `rate` in the query.

use evenkeel_model::narrow::f64_to_u64;
use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_model::shown;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::trace::{TraceSample, TraceSeries};
use serde::Deserialize;
use ureq::Agent;

use super::read::Progress;
use crate::failure::Failure;

/// Time asked for at once: a day of ten thousand series at five minutes is some 100 MB of JSON.
const CHUNK_MS: u64 = 86_400_000;
/// Points that Prometheus gives of a series at most (`query_range`, "exceeded maximum resolution of 11,000 points").
const MOST_POINTS: u64 = 11_000;
/// Greatest answer that is read.
const MOST_BYTES: u64 = 1 << 30;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Greatest value: a million cores, an exbibyte. What is above is no measurement.
const MOST_CORES: f64 = 1e6;
const MOST_MEMORY: f64 = (1u64 << 60) as f64;

/// What cAdvisor measures, by container of a pod.
const CPU: &str = "sum by (namespace, pod, container) \
                   (rate(container_cpu_usage_seconds_total{container!=\"\",container!=\"POD\"}[5m]))";
const MEMORY: &str = "max by (namespace, pod, container) \
                      (container_memory_working_set_bytes{container!=\"\",container!=\"POD\"})";

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeQuery<'a> {
    /// Where it is, with the path before `/api/v1`.
    pub(super) url: &'a str,
    /// PromQL; what cAdvisor measures without.
    pub(super) query: Option<&'a str>,
    pub(super) resource: Resource,
    /// From so long before now, milliseconds.
    pub(super) since_ms: u64,
    /// From one sample to the next, milliseconds.
    pub(super) step_ms: u64,
    /// The present, milliseconds since 1970.
    pub(super) now_ms: u64,
    /// How long each answer may take, milliseconds.
    pub(super) timeout_ms: u64,
}

/// Series, and how many samples were left out.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) series: Vec<TraceSeries>,
    /// No measurement, or twice at one time.
    pub(super) left_out: u64,
    /// What Prometheus warned of: then parts may be missing.
    pub(super) warnings: Vec<String>,
}

impl Answered {
    /// What people should know before they rely on it, a line each.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut remarks: Vec<String> =
            self.warnings.iter().map(|text| shown::plain(&format!("Prometheus warns: {text}"))).collect();
        if self.left_out > 0 {
            remarks.push(format!("{} samples that are no measurement were left out", self.left_out));
        }
        remarks
    }
}

#[derive(Deserialize)]
struct Envelope {
    status: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    #[serde(default)]
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct MatrixSeries {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
}

/// Asks for all series of a time.
///
/// # Errors
/// When Prometheus cannot be reached, refuses, takes too long, or answers something else than a matrix of a range.
pub(super) fn series(asked: &RangeQuery<'_>, progress: &mut Progress) -> Result<Answered, Failure> {
    let step_ms = asked.step_ms.max(1_000);
    if CHUNK_MS / step_ms > MOST_POINTS {
        let why = format!("a step of {} s is more than {MOST_POINTS} points a day", step_ms / 1_000);
        return Err(Failure::usage("cannot ask Prometheus", "--step", why, "give a step of 10s or more"));
    }
    let config = Agent::config_builder()
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(Duration::from_millis(asked.timeout_ms)))
        .http_status_as_error(false)
        .build();
    let agent = config.new_agent();
    let mut gathered = Gathered::new(asked.resource);
    let end = asked.now_ms / step_ms * step_ms;
    let first = end.saturating_sub(asked.since_ms).div_ceil(step_ms) * step_ms;
    let days = (end - first).div_ceil(CHUNK_MS).max(1);
    for day in 0..days {
        progress.tell(|| format!("{}: day {} of {days}", asked.resource.as_str(), day + 1));
        let from = first + day * CHUNK_MS;
        let until = (from + CHUNK_MS - step_ms).min(end);
        let (rows, warnings) = chunk(&agent, asked, [from, until, step_ms])?;
        gathered.take(rows, warnings);
    }
    progress.end();
    let answered = gathered.finish();
    if answered.series.is_empty() {
        let why = "Prometheus has no sample for the query in that time";
        return Err(failed(asked, why, "see that cAdvisor is scraped, or give --query and a longer --since"));
    }
    Ok(answered)
}

fn chunk(
    agent: &Agent,
    asked: &RangeQuery<'_>,
    times_ms: [u64; 3],
) -> Result<(Vec<MatrixSeries>, Vec<String>), Failure> {
    let url = format!("{}/api/v1/query_range", asked.url.trim_end_matches('/'));
    let [start, end, step] = times_ms.map(|ms| format!("{}.{:03}", ms / 1_000, ms % 1_000));
    let query = asked.query.unwrap_or(match asked.resource {
        Resource::Cpu => CPU,
        Resource::Memory => MEMORY,
    });
    let call =
        agent.get(&url).query("query", query).query("start", start).query("end", end).query("step", step);
    let mut response = call.call().map_err(|error| unanswered(asked, &error, ""))?;
    let status = response.status();
    let body = response.body_mut().with_config().limit(MOST_BYTES).read_to_string();
    let body = body.map_err(|error| unanswered(asked, &error, "its answer broke off: "))?;
    let envelope: Envelope = serde_json::from_str(&body).map_err(|error| {
        let why = format!("status {status}, and what it says is no answer of Prometheus: {error}");
        failed(asked, why, "give the address before /api/v1/query_range")
    })?;
    if envelope.status != "success" {
        let why = format!("it refuses: {}", envelope.error);
        return Err(failed(asked, why, "correct the query"));
    }
    let data = envelope.data.filter(|data| data.kind == "matrix");
    let rows = data.and_then(|data| serde_json::from_value(data.result).ok());
    let rows =
        rows.ok_or_else(|| failed(asked, "it answers no matrix of a range", "give a query of series"))?;
    Ok((rows, envelope.warnings))
}

/// No answer, or a part of one.
fn unanswered(asked: &RangeQuery<'_>, error: &ureq::Error, what: &str) -> Failure {
    if let ureq::Error::Timeout(_) = error {
        let why = format!("no answer within {:?}", Duration::from_millis(asked.timeout_ms));
        return failed(asked, why, "give a longer --timeout or --step, or ask for less");
    }
    failed(asked, format!("{what}{error}"), "see that it is up; give a longer --step, or ask for less")
}

fn failed(asked: &RangeQuery<'_>, why: impl Into<String>, remedy: &str) -> Failure {
    Failure::new("cannot ask Prometheus", asked.url.to_owned(), why, remedy)
}

/// Samples by series while days arrive.
struct Gathered {
    resource: Resource,
    series: BTreeMap<String, BTreeMap<u64, u64>>,
    left_out: u64,
    warnings: Vec<String>,
}

impl Gathered {
    const fn new(resource: Resource) -> Self {
        Self { resource, series: BTreeMap::new(), left_out: 0, warnings: Vec::new() }
    }

    fn take(&mut self, rows: Vec<MatrixSeries>, warnings: Vec<String>) {
        for warning in warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
        for row in rows {
            let samples = self.series.entry(name(&row.metric)).or_default();
            for (time, value) in row.values {
                match measured(self.resource, time, &value) {
                    Some((time_ms, value)) if !samples.contains_key(&time_ms) => {
                        samples.insert(time_ms, value);
                    }
                    _ => self.left_out += 1,
                }
            }
        }
    }

    fn finish(self) -> Answered {
        let series = self.series.into_iter().filter(|(_, samples)| !samples.is_empty());
        let series = series.map(|(name, samples)| {
            let samples = samples.into_iter().map(|(time_ms, value)| TraceSample { time_ms, value });
            TraceSeries { name, samples: samples.collect() }
        });
        Answered { series: series.collect(), left_out: self.left_out, warnings: self.warnings }
    }
}

/// A sample in whole units, where it can be a measurement.
fn measured(resource: Resource, time: f64, value: &str) -> Option<(u64, u64)> {
    let (most, unit) = match resource {
        Resource::Cpu => (MOST_CORES, 1e6),
        Resource::Memory => (MOST_MEMORY, 1.0),
    };
    let value: f64 = value.parse().ok()?;
    let is_sound = (0.0..=most).contains(&value) && (0.0..1e11).contains(&time);
    is_sound.then(|| (f64_to_u64((time * 1e3).round()), f64_to_u64((value * unit).round())))
}

/// `namespace/pod/container` where those are the labels; else all of them.
fn name(metric: &BTreeMap<String, String>) -> String {
    let of = |label: &str| metric.get(label).map(String::as_str);
    if let (3, Some(namespace), Some(pod), Some(container)) =
        (metric.len(), of("namespace"), of("pod"), of("container"))
    {
        return format!("{namespace}/{pod}/{container}");
    }
    let labels: Vec<String> = metric.iter().map(|(label, value)| format!("{label}={value}")).collect();
    if labels.is_empty() { "all".to_owned() } else { labels.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_measurement_is_left_out_and_counted() {
        let mut gathered = Gathered::new(Resource::Cpu);
        let labels =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let values =
            [(60.0, "0.5"), (120.0, "NaN"), (180.0, "-1"), (240.0, "+Inf"), (60.0, "0.7"), (30.5, "1e-6")];
        let values = values.map(|(time, value)| (time, value.to_owned())).to_vec();
        let metric = labels(&[("namespace", "n"), ("pod", "p"), ("container", "c")]);
        gathered.take(vec![MatrixSeries { metric, values }], vec!["partial".into()]);
        gathered.take(
            vec![MatrixSeries { metric: labels(&[("job", "j")]), values: vec![(1.0, "x".into())] }],
            vec!["partial".into()],
        );
        let answered = gathered.finish();
        let samples =
            [TraceSample { time_ms: 30_500, value: 1 }, TraceSample { time_ms: 60_000, value: 500_000 }]
                .to_vec();
        assert_eq!(answered.series, [TraceSeries { name: "n/p/c".into(), samples }]);
        assert_eq!((answered.left_out, answered.warnings.len(), answered.remarks().len()), (5, 1, 2));
    }

    #[test]
    fn names_tell_series_apart() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        assert_eq!(name(&labels(&[])), "all");
        assert_eq!(name(&labels(&[("pod", "p"), ("node", "n")])), "node=n,pod=p");
    }
}
