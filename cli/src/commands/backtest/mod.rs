//! `evenkeel backtest`: replays traces of use under any rule, and says how good its requests would have been.

mod by_hour;
mod foretold;
mod halves;
pub(crate) mod history;
mod prometheus;
mod read;
mod text;

use evenkeel_model::narrow::f64_to_u64;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::paired::{Difference, Paired};
use evenkeel_rightsizing::backtest::replay::{self, SeriesResult, TimedRequest};
use evenkeel_rightsizing::backtest::score::{Score, Summary};
use evenkeel_rightsizing::backtest::trace::{Seconds, TraceSeries};
use evenkeel_rightsizing::backtest::{Schedule, html, svg};
use evenkeel_rightsizing::named::{NamedRule, duration_ms};
use serde::Serialize;

use crate::client::Address;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo, print};
use read::Progress;

/// Replay traces of use: set requests from the past by a rule, judge them by what came after.
///
/// A trace is CSV with the header series,t,value: t in seconds since 1970, increasing within a series; value in cores or
/// bytes. It may be gzipped. Requests are set at each series' first sample plus warm-up, and then at every step, from
/// samples before that time only.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel backtest --trace cpu.csv --resource cpu
  evenkeel backtest --trace cpu.csv.gz --resource cpu --rule goal --rule vpa --rule vpa:percentile=0.99,half-life=72h
  evenkeel backtest --trace memory.csv --resource memory --requests-out requests.csv -o json
  evenkeel backtest --trace cpu.csv --resource cpu --rule goal --rule goal:change=hourly --every 1h
  evenkeel backtest --trace cpu.csv --resource cpu --rule goal:price=0.17 --rule goal:price=0.2 --halves
  evenkeel backtest --trace cpu.csv --resource cpu --at 2026-01-31T00:00:00Z
  evenkeel backtest --trace cpu.csv --resource cpu --series web --svg web.svg
  evenkeel backtest --history deployment/web --resource cpu --rule goal --rule vpa
  evenkeel backtest --history --namespace shop --resource memory --predicted
  evenkeel backtest --prometheus http://prometheus:9090 --resource cpu --rule goal --rule vpa --rule krr --html report.html

Rules: goal, vpa, vpa-p99, initial, krr, p99-7d, with parameters after a colon; a wrong one lists what there is.")]
pub(crate) struct BacktestArgs {
    /// Trace to replay; - is standard input.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["prometheus", "history"])]
    trace: Option<PathBuf>,
    /// Replay what the recommender has stored of these workloads (deployment/web, or shop/deployment/web), or of all.
    #[arg(long, value_name = "WORKLOAD", num_args = 0.., conflicts_with_all = ["trace", "prometheus"])]
    history: Option<Vec<String>>,
    /// Only workloads of this namespace.
    #[arg(
        short,
        long,
        value_name = "NS",
        default_value = "",
        hide_default_value = true,
        requires = "history"
    )]
    namespace: String,
    /// Ask this Prometheus for the series instead.
    #[arg(long, value_name = "URL", conflicts_with = "trace")]
    prometheus: Option<String>,
    /// What to ask it, in cores or bytes; without, what cAdvisor measures of each container.
    #[arg(long, value_name = "PROMQL", requires = "prometheus")]
    query: Option<String>,
    /// How far back to ask it.
    #[arg(long, value_name = "TIME", default_value = "21d", value_parser = time, requires = "prometheus")]
    since: u64,
    /// From one sample to the next of what it is asked.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = time, requires = "prometheus")]
    step: u64,
    /// How long it may take to answer for a day of the series.
    #[arg(long, value_name = "TIME", default_value = TIMEOUT, value_parser = time, requires = "prometheus")]
    timeout: u64,
    /// What the trace measures.
    #[arg(long, value_enum)]
    resource: Measured,
    /// Rule to replay; repeat it to set several side by side.
    #[arg(long = "rule", value_name = "RULE[:KEY=VALUE,...]", default_value = "goal")]
    rules: Vec<String>,
    /// From the first sample of a series to its first request.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = time)]
    warmup: u64,
    /// From one request to the next.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
    every: u64,
    /// Judge only so much of each series.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<u64>,
    /// Answer once, as of this time (seconds since 1970 or RFC 3339).
    #[arg(long, value_name = "T", value_parser = moment)]
    at: Option<u64>,
    /// Write every request with its bounds as CSV.
    #[arg(long, value_name = "FILE")]
    requests_out: Option<PathBuf>,
    /// Draw use and request of one series.
    #[arg(long, value_name = "FILE", conflicts_with = "at")]
    svg: Option<PathBuf>,
    /// The series to draw; the first one unless named.
    #[arg(long, value_name = "NAME", requires = "svg")]
    series: Option<String>,
    /// Write a report with charts.
    #[arg(long, value_name = "FILE", conflicts_with = "at")]
    html: Option<PathBuf>,
    /// Price of a core or a GiB for an hour, in any currency, for the report.
    #[arg(long, value_name = "NUMBER", requires = "html", value_parser = price)]
    price: Option<f64>,
    /// Judge what `evenkeel usage` predicts of the next hour and day instead of requests: how many windows kept to it.
    #[arg(long, conflicts_with_all = ["at", "svg", "html", "csv", "requests_out", "rules", "halves", "by_hour"])]
    predicted: bool,
    /// Judge halves of the series and of the time apart: each with every request multiplied by the factor that meets the goal of
    /// 1 % on the other half.
    #[arg(long, conflicts_with_all = ["at", "csv"])]
    halves: bool,
    /// Show what the rules request at each hour of the day, and how many pods of this request (cores or GiB) the room has that
    /// the last rule frees beside the first.
    #[arg(long, value_name = "REQUEST", value_parser = positive, conflicts_with_all = ["at", "csv"])]
    by_hour: Option<f64>,
    /// Print a row of CSV for each rule and series.
    #[arg(long, conflicts_with = "at")]
    csv: bool,
}

/// What a trace measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measured {
    /// Cores in use.
    Cpu,
    /// Bytes in use.
    Memory,
}

impl From<Measured> for Resource {
    fn from(measured: Measured) -> Self {
        match measured {
            Measured::Cpu => Self::Cpu,
            Measured::Memory => Self::Memory,
        }
    }
}

/// How long a Prometheus may take for an answer unless said otherwise: it gives a query up itself after two minutes by default.
pub(super) const TIMEOUT: &str = "150s";

/// A length of time, milliseconds.
pub(super) fn time(text: &str) -> Result<u64, String> {
    duration_ms(text).map_err(|error| error.to_string())
}

fn price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
    price.ok_or_else(|| "give a number of 0 or more, such as 0.031".to_owned())
}

fn positive(text: &str) -> Result<f64, String> {
    price(text)
        .ok()
        .filter(|amount| *amount > 0.0)
        .ok_or_else(|| "give a number above 0, such as 0.5".to_owned())
}

fn moment(text: &str) -> Result<u64, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
    let ms = match seconds {
        Some(seconds) => seconds * 1e3,
        None => {
            let time: jiff::Timestamp =
                text.parse().map_err(|_| "give seconds since 1970, or 2026-01-31T00:00:00Z".to_owned())?;
            time.as_millisecond() as f64
        }
    };
    if ms < 0.0 { Err("times begin in 1970".to_owned()) } else { Ok(f64_to_u64(ms.round())) }
}

/// The replay of one rule.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replayed {
    pub(super) rule: String,
    pub(super) resource: &'static str,
    pub(super) overall: Option<Overall>,
    /// Against the first rule, on the same series; none for that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) against_first: Option<Against>,
    pub(super) series: Vec<Judged>,
    /// On halves of the trace, where that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) halves: Option<Vec<halves::OnHalf>>,
    #[serde(skip)]
    outcomes: Vec<SeriesResult>,
}

impl Replayed {
    fn scores(&self) -> impl Iterator<Item = &Score> {
        self.outcomes.iter().map(|outcome| &outcome.score)
    }
}

/// How good the requests of all series were.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Overall {
    pub(super) series: usize,
    pub(super) steps: u64,
    pub(super) slack: f64,
    pub(super) pooled_slack: f64,
    pub(super) over: f64,
    pub(super) bad: f64,
    pub(super) oom24: f64,
    pub(super) churn: f64,
    pub(super) factor: f64,
    pub(super) iso: f64,
    pub(super) capped_over: f64,
    pub(super) changes_a_day: f64,
    pub(super) calibration: Vec<Expected>,
}

/// Requests that were expected to be exceeded for about the same part of the time, and for how much of it they were.
#[derive(Debug, Serialize)]
pub(super) struct Expected {
    pub(super) expected: f64,
    pub(super) came: f64,
    pub(super) answers: u64,
}

/// A rule less the first one: mean over the series, and where nine of ten draws of the series lie.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Against {
    pub(super) series: usize,
    pub(super) slack: [f64; 3],
    pub(super) slack_at_equal_risk: [f64; 3],
    pub(super) over: [f64; 3],
    pub(super) oom24: [f64; 3],
    pub(super) changes_a_day: [f64; 3],
}

impl From<Paired> for Against {
    fn from(paired: Paired) -> Self {
        let parts = |of: Difference| [of.mean, of.low, of.high];
        Self {
            series: paired.series,
            slack: parts(paired.slack),
            slack_at_equal_risk: parts(paired.slack_at_equal_risk),
            over: parts(paired.over),
            oom24: parts(paired.oom24),
            changes_a_day: parts(paired.changes_a_day),
        }
    }
}

impl From<Summary> for Overall {
    fn from(s: Summary) -> Self {
        let expected = s.calibration.bins();
        let calibration =
            expected.map(|bin| Expected { expected: bin.expected, came: bin.came, answers: bin.answers });
        Self {
            series: s.series,
            steps: s.steps,
            slack: s.slack,
            pooled_slack: s.pooled_slack,
            over: s.over,
            bad: s.bad,
            oom24: s.oom24,
            churn: s.churn,
            factor: s.factor,
            iso: s.iso,
            capped_over: s.capped_over,
            changes_a_day: s.changes_a_day,
            calibration: calibration.collect(),
        }
    }
}

/// How good the requests of one series were; nothing where it is too short to judge.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Judged {
    pub(super) series: String,
    pub(super) steps: u64,
    pub(super) slack: Option<f64>,
    pub(super) over: Option<f64>,
    pub(super) oom24: Option<f64>,
    pub(super) churn: Option<f64>,
    pub(super) capped_over: Option<f64>,
    pub(super) changes_a_day: Option<f64>,
}

impl Judged {
    fn new(series: &TraceSeries, score: &Score) -> Self {
        let known = |value: f64| (score.steps > 0).then_some(value);
        Self {
            series: series.name.clone(),
            steps: score.steps,
            slack: known(score.slack()),
            over: known(score.over()),
            oom24: known(score.oom24()),
            churn: known(score.churn()),
            capped_over: known(score.capped_over()),
            changes_a_day: known(score.changes_a_day()),
        }
    }
}

pub(crate) fn run(args: &BacktestArgs, address: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let resource = args.resource.into();
    let rules = rules(args)?;
    let mut progress = Progress::new();
    let trace = trace(args, resource, address, &mut progress)?;
    if args.predicted {
        return foretold::run(&trace, resource, &mut progress, output);
    }
    let drawn = drawn(args, &trace)?;
    if let Some(at) = args.at {
        return answer_at(args, &trace, resource, &rules, at, output);
    }
    let schedule = Schedule { warmup_ms: args.warmup, every_ms: args.every, until_ms: args.until };
    let mut replayed: Vec<Replayed> = rules
        .iter()
        .map(|(name, rule)| replayed(&trace, resource, name, rule, &schedule, &mut progress))
        .collect();
    progress.end();
    compare(&mut replayed, resource);
    if args.halves {
        for (one, (_, rule)) in replayed.iter_mut().zip(&rules) {
            one.halves = Some(halves::on_halves(&trace, &one.outcomes, resource, rule, &schedule));
        }
    }
    if let Some((file, first)) = args.requests_out.as_ref().zip(replayed.first()) {
        let rows = trace.iter().zip(&first.outcomes).flat_map(|(series, outcome)| {
            outcome.requests.iter().map(move |request| (series.name.as_str(), *request))
        });
        write_file(file, &text::requests(rows, resource))?;
    }
    if let (Some(file), Some(at), Some(first)) = (&args.svg, drawn, replayed.first()) {
        let chart = svg::chart(&trace[at], &first.outcomes[at].requests, resource, &first.rule);
        write_file(file, &chart)?;
    }
    if let Some(file) = &args.html {
        let rules: Vec<html::Replayed<'_>> =
            replayed.iter().map(|one| html::Replayed { rule: &one.rule, outcomes: &one.outcomes }).collect();
        write_file(file, &html::report(&trace, &rules, resource, args.price))?;
    }
    if let Some(pod) = args.by_hour {
        print(&by_hour::table(&replayed, resource, pod).render(output.has_colour()))?;
    } else if args.csv {
        print(&text::csv(&replayed))?;
    } else {
        match replayed.as_slice() {
            [one] => output.answer_text(one, || text::render(&replayed, output))?,
            several => output.answer_text(&several, || text::render(&replayed, output))?,
        }
    }
    Ok(YesOrNo::Yes)
}

/// The series to replay, of a file, of a recommender's history or of a Prometheus.
fn trace(
    args: &BacktestArgs,
    resource: Resource,
    address: &Address,
    progress: &mut Progress,
) -> Result<Vec<TraceSeries>, Failure> {
    if let Some(workloads) = &args.history {
        return history::trace(workloads, &args.namespace, resource, address);
    }
    if let Some(file) = &args.trace {
        return read::trace(file, resource, progress);
    }
    let asked = prometheus::RangeQuery {
        url: args.prometheus.as_deref().unwrap_or_default(),
        query: args.query.as_deref(),
        resource,
        since_ms: args.since,
        step_ms: args.step,
        now_ms: now_ms(),
        timeout_ms: args.timeout,
    };
    let answered = prometheus::series(&asked, progress)?;
    answered.remarks().iter().for_each(|remark| eprintln!("{remark}"));
    Ok(answered.series)
}

/// The present, milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0)
}

/// Holds every rule against the first one.
fn compare(replayed: &mut [Replayed], resource: Resource) {
    let Some((first, others)) = replayed.split_first_mut() else { return };
    for other in others {
        other.against_first = Paired::of(resource, other.scores(), first.scores()).map(Against::from);
    }
}

/// The rules and how they were named.
fn rules(args: &BacktestArgs) -> Result<Vec<(String, NamedRule)>, Failure> {
    let one = |text: &String| {
        let rule = NamedRule::parse(text).map_err(|error| {
            Failure::usage(
                "cannot choose a rule",
                "--rule",
                error.to_string(),
                "see evenkeel backtest --help",
            )
        })?;
        Ok((text.clone(), rule))
    };
    let rules: Vec<(String, NamedRule)> = args.rules.iter().map(one).collect::<Result<_, Failure>>()?;
    let single = args.requests_out.as_ref().map(|_| "--requests-out").or(args.svg.as_ref().map(|_| "--svg"));
    match single.filter(|_| rules.len() > 1) {
        Some(option) => {
            let why = format!("{} rules were given", rules.len());
            Err(Failure::usage("cannot write requests of several rules", option, why, "give one --rule"))
        }
        None => Ok(rules),
    }
}

/// Place of the series to draw, if one is to be drawn.
fn drawn(args: &BacktestArgs, trace: &[TraceSeries]) -> Result<Option<usize>, Failure> {
    if args.svg.is_none() {
        return Ok(None);
    }
    let Some(name) = &args.series else { return Ok(Some(0)) };
    match trace.iter().position(|series| series.name == *name) {
        Some(at) => Ok(Some(at)),
        None => {
            let mut known: String = String::new();
            for series in trace.iter().take(5) {
                let _ = write!(known, "{}{}", if known.is_empty() { "" } else { ", " }, series.name);
            }
            let why = format!(
                "the trace has no series {name:?}; it has {known}{}",
                if trace.len() > 5 { ", ..." } else { "" }
            );
            Err(Failure::new("cannot draw", "--series", why, "name a series of the trace"))
        }
    }
}

fn replayed(
    trace: &[TraceSeries],
    resource: Resource,
    name: &str,
    rule: &NamedRule,
    schedule: &Schedule,
    progress: &mut Progress,
) -> Replayed {
    let mut outcomes = Vec::with_capacity(trace.len());
    for series in trace {
        outcomes.push(replay::replay(series, resource, rule, schedule));
        progress.tell(|| format!("{name}: {} of {} series", outcomes.len(), trace.len()));
    }
    Replayed {
        rule: name.to_owned(),
        resource: resource.as_str(),
        against_first: None,
        halves: None,
        overall: Summary::of(resource, outcomes.iter().map(|outcome| &outcome.score)).map(Overall::from),
        series: trace
            .iter()
            .zip(&outcomes)
            .map(|(series, outcome)| Judged::new(series, &outcome.score))
            .collect(),
        outcomes,
    }
}

/// Rules side by side on the same series, at equal risk.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AtEqualRisk {
    pub(crate) resource: &'static str,
    pub(crate) rule: String,
    pub(crate) series: usize,
    /// Part of the time over (CPU), or of the days (memory), as requested.
    pub(crate) risk: f64,
    pub(crate) slack: f64,
    /// What all requests are multiplied by so that the risk is 1 %.
    pub(crate) factor: f64,
    pub(crate) slack_at_equal_risk: f64,
    /// Sum of the requests then, thousandths of a core or bytes.
    pub(crate) requested_at_equal_risk: u64,
    /// Less the first rule: mean, and where nine of ten draws of the series lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) less_first: Option<[f64; 3]>,
}

/// Replays stored series under rules by name, and holds the rules against the first one at equal risk; nothing where no
/// series is long enough.
pub(crate) fn at_equal_risk(
    trace: &[TraceSeries],
    resource: Resource,
    rules: &[(String, NamedRule)],
) -> Vec<AtEqualRisk> {
    let mut progress = Progress::new();
    let schedule = Schedule::default();
    let replay =
        |(name, rule): &(String, NamedRule)| replayed(trace, resource, name, rule, &schedule, &mut progress);
    let mut all: Vec<Replayed> = rules.iter().map(replay).collect();
    progress.end();
    compare(&mut all, resource);
    let unit = if resource == Resource::Cpu { 1_000.0 } else { 1.0 };
    let told = |one: &Replayed| {
        let summary = Summary::of(resource, one.scores())?;
        Some(AtEqualRisk {
            resource: resource.as_str(),
            rule: one.rule.clone(),
            series: summary.series,
            risk: if resource == Resource::Cpu { summary.over } else { summary.oom24 },
            slack: summary.slack,
            factor: summary.factor,
            slack_at_equal_risk: summary.iso,
            requested_at_equal_risk: f64_to_u64((summary.requested * summary.factor / unit).round()),
            less_first: one.against_first.as_ref().map(|against| against.slack_at_equal_risk),
        })
    };
    all.iter().filter_map(told).collect()
}

/// What a rule says of a series at one time, in the units of the trace.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SeriesRecommendation {
    pub(super) series: String,
    pub(super) resource: &'static str,
    pub(super) rule: String,
    pub(super) request: Option<f64>,
    pub(super) lower: Option<f64>,
    pub(super) upper: Option<f64>,
    pub(super) tier: String,
    pub(super) samples: u64,
    pub(super) span_seconds: u64,
    pub(super) confidence: f64,
    pub(super) risk: Option<f64>,
    pub(super) notes: Vec<String>,
}

impl SeriesRecommendation {
    pub(super) fn new(
        series: &TraceSeries,
        resource: Resource,
        rule: &str,
        answer: evenkeel_rightsizing::rule::Answer,
    ) -> Self {
        let unit = |value: Option<u64>| value.map(|value| text::in_units(value, resource));
        Self {
            series: series.name.clone(),
            resource: resource.as_str(),
            rule: rule.to_owned(),
            request: unit(answer.request),
            lower: unit(answer.lower),
            upper: unit(answer.upper),
            tier: answer.tier,
            samples: answer.samples,
            span_seconds: answer.span_seconds,
            confidence: answer.confidence,
            risk: answer.risk_then,
            notes: answer.notes,
        }
    }
}

/// What the default rule says now of every container that cAdvisor measured, for a cluster where nothing else runs yet.
pub(super) fn recommend_of_prometheus(
    url: &str,
    timeout_ms: u64,
    namespace: Option<&str>,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let (rule, now) = (NamedRule::default(), now_ms());
    let mut progress = Progress::new();
    let (mut said, mut text, mut remarks) = (Vec::new(), String::new(), Vec::new());
    for resource in Resource::ALL {
        let (query, since_ms, step_ms) = (None, SINCE_MS, STEP_MS);
        let asked =
            prometheus::RangeQuery { url, query, resource, since_ms, step_ms, now_ms: now, timeout_ms };
        let answered = prometheus::series(&asked, &mut progress)?;
        remarks.extend(answered.remarks());
        let wanted = |name: &str| namespace.is_none_or(|n| name.split('/').next() == Some(n));
        let all = answered.series.iter().filter(|series| wanted(&series.name));
        let of = all.map(|one| {
            SeriesRecommendation::new(one, resource, "goal", replay::answer_at(one, resource, &rule, now))
        });
        let of: Vec<SeriesRecommendation> = of.collect();
        text.push_str(&text::said(&of, resource.as_str(), resource, output));
        said.extend(of);
    }
    remarks.iter().for_each(|remark| eprintln!("{remark}"));
    output.answer_text(&said, || text)?;
    Ok(if said.iter().any(|one| one.request.is_some()) { YesOrNo::Yes } else { YesOrNo::No })
}

/// What `recommend` asks of a Prometheus: two weeks of five minutes.
const SINCE_MS: u64 = 14 * 86_400_000;
const STEP_MS: u64 = 300_000;

fn answer_at(
    args: &BacktestArgs,
    trace: &[TraceSeries],
    resource: Resource,
    rules: &[(String, NamedRule)],
    at: u64,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let mut said = Vec::new();
    let mut requests = Vec::new();
    for series in trace {
        for (name, rule) in rules {
            let answer = replay::answer_at(series, resource, rule, at);
            if let Some(request) = answer.request {
                let (lower, upper) = (answer.lower, answer.upper);
                let risk = answer.risk_then;
                requests
                    .push((series.name.as_str(), TimedRequest { time_ms: at, request, lower, upper, risk }));
            }
            said.push(SeriesRecommendation::new(series, resource, name, answer));
        }
    }
    if let Some(file) = &args.requests_out {
        write_file(file, &text::requests(requests.into_iter(), resource))?;
    }
    let title = format!("as of {} s", Seconds(at));
    output.answer_text(&said, || text::said(&said, &title, resource, output))?;
    let is_known = said.iter().any(|said| said.request.is_some());
    Ok(if is_known { YesOrNo::Yes } else { YesOrNo::No })
}

fn write_file(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| {
        Failure::new(
            "cannot write the file",
            file.display().to_string(),
            error.to_string(),
            "write it elsewhere",
        )
    })
}
