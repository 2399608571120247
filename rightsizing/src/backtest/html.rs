//! A report of a backtest as one HTML file, without scripts and without anything from elsewhere.

use std::fmt::Write;

use super::paired::{Difference, Paired};
use super::replay::SeriesResult;
use super::score::{Score, Summary};
use super::svg::{self, escaped};
use super::trace::TraceSeries;
use crate::Resource;
use crate::units::MICROS_A_CORE;

/// Series that are drawn: those with most over under the first rule, and those that leave most unused.
const DRAWN: usize = 3;
/// Hours of a month of 30.4 days, by which prices of an hour are shown.
const MONTH_HOURS: f64 = 730.0;
const GIB: f64 = (1u64 << 30) as f64;

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>evenkeel backtest</title>\n\
<style>body{font-family:sans-serif;max-width:62em;margin:2em auto;color:#333}table{border-collapse:collapse;margin:1em 0}\
th,td{padding:.3em .8em;border-bottom:1px solid #ddd;text-align:right}th:first-child,td:first-child{text-align:left}\
.bad{color:#c0392b}svg{max-width:100%;height:auto}</style></head><body>\n";

/// One rule and what became of every series under it.
#[derive(Debug, Clone, Copy)]
pub struct Replayed<'a> {
    /// As it was named.
    pub rule: &'a str,
    /// In the order of the series.
    pub outcomes: &'a [SeriesResult],
}

impl<'a> Replayed<'a> {
    fn scores(&self) -> impl Iterator<Item = &'a Score> {
        self.outcomes.iter().map(|outcome| &outcome.score)
    }
}

/// The report. `price` is of a core or a GiB for an hour, in whatever currency.
pub fn report(
    series: &[TraceSeries],
    replayed: &[Replayed<'_>],
    resource: Resource,
    price: Option<f64>,
) -> String {
    let mut html = HEAD.to_owned();
    let samples: usize = series.iter().map(|one| one.samples.len()).sum();
    let _ = writeln!(
        html,
        "<h1>Requests for {}, replayed</h1>\n<p>{} series, {samples} samples. Each request is set from the past alone and \
         judged by what came after.</p>",
        resource.as_str(),
        series.len()
    );
    html.push_str(&rules(replayed, resource, price));
    html.push_str(&against(replayed, resource));
    html.push_str(&calibration(replayed, resource));
    if let Some(first) = replayed.first() {
        html.push_str(&charts(series, first, resource));
    }
    html.push_str("</body></html>\n");
    html
}

fn row(html: &mut String, cell: &str, cells: &[String]) {
    html.push_str("<tr>");
    for text in cells {
        let _ = write!(html, "<{cell}>{text}</{cell}>");
    }
    html.push_str("</tr>\n");
}

fn table(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut html = String::from("<table>\n");
    row(&mut html, "th", &titles.iter().map(|title| (*title).to_owned()).collect::<Vec<_>>());
    rows.into_iter().for_each(|cells| row(&mut html, "td", &cells));
    html.push_str("</table>\n");
    html
}

fn percent(part: f64) -> String {
    format!("{:.2} %", 100.0 * part)
}

/// Cores, or GiB.
fn amount(value: f64, resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => value / MICROS_A_CORE,
        Resource::Memory => value / GIB,
    }
}

fn rules(replayed: &[Replayed<'_>], resource: Resource, price: Option<f64>) -> String {
    let (over, unit) = match resource {
        Resource::Cpu => ("time over 95 % of the request", "cores"),
        Resource::Memory => ("days over the request", "GiB"),
    };
    let (requested, unused) = (format!("{unit} requested"), format!("{unit} unused"));
    let mut titles = vec!["rule", "slack", over, "changes a day", "slack at equal risk", &requested, &unused];
    titles.extend(price.map(|_| "unused, a month"));
    let rows = replayed.iter().filter_map(|one| {
        let all = Summary::of(resource, one.scores())?;
        let broken = match resource {
            Resource::Cpu => all.over,
            Resource::Memory => all.oom24,
        };
        let class = if broken > 0.01 { " class=\"bad\"" } else { "" };
        let unused = amount(all.requested - all.used, resource);
        let mut cells = vec![
            escaped(one.rule),
            percent(all.slack),
            format!("<span{class}>{}</span>", percent(broken)),
            format!("{:.2}", all.changes_a_day),
            percent(all.iso),
            format!("{:.2}", amount(all.requested, resource)),
            format!("{unused:.2}"),
        ];
        cells.extend(price.map(|price| format!("{:.2}", unused * price * MONTH_HOURS)));
        Some(cells)
    });
    format!("<h2>Rules</h2>\n{}", table(&titles, rows))
}

fn against(replayed: &[Replayed<'_>], resource: Resource) -> String {
    let Some((first, others)) = replayed.split_first().filter(|(_, others)| !others.is_empty()) else {
        return String::new();
    };
    let points =
        |d: Difference| format!("{:+.2} [{:+.2}, {:+.2}]", 100.0 * d.mean, 100.0 * d.low, 100.0 * d.high);
    let rows = others.iter().filter_map(|other| {
        let paired = Paired::of(resource, other.scores(), first.scores())?;
        let changes = paired.changes_a_day;
        Some(vec![
            escaped(other.rule),
            points(paired.slack),
            points(paired.slack_at_equal_risk),
            points(paired.over),
            format!("{:+.2} [{:+.2}, {:+.2}]", changes.mean, changes.low, changes.high),
        ])
    });
    let titles = ["rule", "slack", "slack at equal risk", "time over", "changes a day"];
    format!(
        "<h2>Less {}</h2>\n<p>Differences per series in points; nine of ten draws of the series lie within the brackets.</p>\n{}",
        escaped(first.rule),
        table(&titles, rows)
    )
}

fn calibration(replayed: &[Replayed<'_>], resource: Resource) -> String {
    let rows = replayed.iter().flat_map(|one| {
        let bins = Summary::of(resource, one.scores()).map(|all| all.calibration);
        let bins: Vec<_> = bins.iter().flat_map(|calibration| calibration.bins()).collect();
        bins.into_iter().map(|bin| {
            vec![escaped(one.rule), percent(bin.expected), percent(bin.came), bin.answers.to_string()]
        })
    });
    format!(
        "<h2>What was expected, and what came</h2>\n{}",
        table(&["rule", "expected over", "was over", "answers"], rows)
    )
}

/// Charts of the series that went over most and that left most unused.
fn charts(series: &[TraceSeries], first: &Replayed<'_>, resource: Resource) -> String {
    let judged: Vec<usize> = (0..series.len().min(first.outcomes.len()))
        .filter(|at| first.outcomes[*at].score.steps > 0)
        .collect();
    let score = |at: &usize| &first.outcomes[*at].score;
    let mut over = judged.clone();
    over.sort_by(|a, b| score(b).over().total_cmp(&score(a).over()));
    let mut unused = judged;
    unused.sort_by(|a, b| score(b).unused().total_cmp(&score(a).unused()));
    let mut html = String::new();
    for (title, places) in [("Most over", over), ("Most unused", unused)] {
        let _ = writeln!(html, "<h2>{title}</h2>");
        for at in places.into_iter().take(DRAWN) {
            html.push_str(&svg::chart(&series[at], &first.outcomes[at].requests, resource, first.rule));
        }
    }
    html
}
