//! How a backtest is printed: tables for people, CSV for spreadsheets and scripts.

use evenkeel_model::narrow::f64_to_u64;
use std::fmt::Write;

use evenkeel_model::shown::csv as field;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::replay::TimedRequest;
use evenkeel_rightsizing::backtest::trace::Seconds;

use super::{Judged, Replayed, SeriesRecommendation};
use crate::output::Output;
use crate::table::{Cell, Table, Tone};
use crate::units;

/// Goals of time over, of windows over and of churn; what is above is shown as bad.
const GOAL: f64 = 0.01;
const CHURN_GOAL: f64 = 0.05;

/// Rules side by side, and with one rule or wide output every series.
pub(super) fn render(replayed: &[Replayed], output: &Output) -> String {
    let mut text = overall(replayed, output).render(output.has_colour());
    if let [first, .., _] = replayed {
        let _ = write!(text, "\n{}", against(&first.rule, replayed).render(output.has_colour()));
    }
    if replayed.iter().any(|one| one.halves.is_some()) {
        let _ = write!(text, "\n{}", super::halves::table(replayed).render(output.has_colour()));
    }
    if output.is_wide() {
        let _ = write!(text, "\n{}", calibration(replayed).render(output.has_colour()));
    }
    if replayed.len() == 1 || output.is_wide() {
        for one in replayed {
            let title = if replayed.len() == 1 { String::new() } else { format!("{}\n", one.rule) };
            let _ = write!(text, "\n{title}{}", series(one).render(output.has_colour()));
        }
    }
    text
}

fn overall(replayed: &[Replayed], output: &Output) -> Table {
    let mut titles =
        vec!["RULE", "SERIES", "STEPS", "SLACK", "OVER", "CAPPED", "OOM24", "CHURN", "CHANGES/DAY", "ISO"];
    if output.is_wide() {
        titles.extend(["POOLED SLACK", "BAD", "FACTOR"]);
    }
    let mut table = Table::new(&titles);
    for one in replayed {
        let Some(all) = &one.overall else {
            table.row(vec![one.rule.as_str().into(), "0".into(), "too short to judge".into()]);
            continue;
        };
        let is_cpu = one.resource == Resource::Cpu.as_str();
        let mut row = vec![
            Cell::from(one.rule.as_str()),
            all.series.to_string().into(),
            all.steps.to_string().into(),
            percent(Some(all.slack)),
            judged(Some(all.over), GOAL, is_cpu),
            judged(Some(all.capped_over), GOAL, is_cpu),
            judged(Some(all.oom24), GOAL, !is_cpu),
            judged(Some(all.churn), CHURN_GOAL, true),
            format!("{:.2}", all.changes_a_day).into(),
            percent(Some(all.iso)),
        ];
        if output.is_wide() {
            row.extend([
                percent(Some(all.pooled_slack)),
                percent(Some(all.bad)),
                format!("{:.2}", all.factor).into(),
            ]);
        }
        table.row(row);
    }
    table
}

/// Every rule less the first one, in points, with the interval in which nine of ten draws of the series lie.
fn against(first: &str, replayed: &[Replayed]) -> Table {
    let title = format!("LESS {first}");
    let titles = [title.as_str(), "SERIES", "SLACK", "AT EQUAL RISK", "OVER", "OOM24", "CHANGES/DAY"];
    let mut table = Table::new(&titles);
    let points = |[mean, low, high]: [f64; 3]| {
        format!("{:+.2} [{:+.2}, {:+.2}]", 100.0 * mean, 100.0 * low, 100.0 * high).into()
    };
    for one in replayed {
        let Some(all) = &one.against_first else { continue };
        let [mean, low, high] = all.changes_a_day;
        table.row(vec![
            one.rule.as_str().into(),
            all.series.to_string().into(),
            points(all.slack),
            points(all.slack_at_equal_risk),
            points(all.over),
            points(all.oom24),
            format!("{mean:+.2} [{low:+.2}, {high:+.2}]").into(),
        ]);
    }
    table
}

/// What rules expected to be over, and what was.
fn calibration(replayed: &[Replayed]) -> Table {
    let mut table = Table::new(&["RULE", "EXPECTED OVER", "WAS OVER", "ANSWERS"]);
    for one in replayed {
        for bin in one.overall.iter().flat_map(|all| &all.calibration) {
            table.row(vec![
                one.rule.as_str().into(),
                percent(Some(bin.expected)),
                percent(Some(bin.came)),
                bin.answers.to_string().into(),
            ]);
        }
    }
    table
}

fn series(one: &Replayed) -> Table {
    let is_cpu = one.resource == Resource::Cpu.as_str();
    let mut table = Table::new(&["SERIES", "STEPS", "SLACK", "OVER", "OOM24", "CHURN"]);
    for Judged { series, steps, slack, over, oom24, churn, .. } in &one.series {
        table.row(vec![
            series.as_str().into(),
            steps.to_string().into(),
            percent(*slack),
            judged(*over, GOAL, is_cpu),
            judged(*oom24, GOAL, !is_cpu),
            percent(*churn),
        ]);
    }
    table
}

pub(super) fn percent(part: Option<f64>) -> Cell {
    part.map_or_else(|| "-".into(), |part| format!("{:.2} %", 100.0 * part).into())
}

/// A part that has a goal, bad above it; only where it is this resource's goal.
fn judged(part: Option<f64>, goal: f64, counts: bool) -> Cell {
    match part {
        Some(part) if counts && part > goal => Cell::toned(format!("{:.2} %", 100.0 * part), Tone::Bad),
        other => percent(other),
    }
}

/// A row for each rule and series.
pub(super) fn csv(replayed: &[Replayed]) -> String {
    let mut text = String::from("rule,series,steps,slack,over,oom24,churn,capped_over,changes_a_day\n");
    let shown = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    for one in replayed {
        for Judged { series, steps, slack, over, oom24, churn, capped_over, changes_a_day } in &one.series {
            let _ = writeln!(
                text,
                "{},{},{steps},{},{},{},{},{},{}",
                field(&one.rule),
                field(series),
                shown(*slack),
                shown(*over),
                shown(*oom24),
                shown(*churn),
                shown(*capped_over),
                shown(*changes_a_day)
            );
        }
    }
    text
}

/// Every request in the trace's units.
pub(super) fn requests<'a>(
    rows: impl Iterator<Item = (&'a str, TimedRequest)>,
    resource: Resource,
) -> String {
    let mut text = String::from("series,t,request,lower,upper\n");
    let shown =
        |value: Option<u64>| value.map(|value| in_units(value, resource).to_string()).unwrap_or_default();
    for (series, request) in rows {
        let _ = writeln!(
            text,
            "{},{},{},{},{}",
            field(series),
            Seconds(request.time_ms),
            shown(Some(request.request)),
            shown(request.lower),
            shown(request.upper)
        );
    }
    text
}

/// Cores or bytes, as the trace has them.
pub(super) fn in_units(value: u64, resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => value as f64 / 1e6,
        Resource::Memory => value as f64,
    }
}

/// What rules say at one time.
pub(super) fn said(
    said: &[SeriesRecommendation],
    title: &str,
    resource: Resource,
    output: &Output,
) -> String {
    let mut table =
        Table::new(&["SERIES", "RULE", "REQUEST", "LOWER", "UPPER", "TIER", "CONFIDENCE", "RISK", "NOTES"]);
    let amount = |value: Option<f64>| match (value, resource) {
        (None, _) => "-".to_owned(),
        (Some(cores), Resource::Cpu) => format!("{cores:.3}"),
        (Some(bytes), Resource::Memory) => units::bytes(f64_to_u64(bytes)),
    };
    for one in said {
        table.row(vec![
            one.series.as_str().into(),
            one.rule.as_str().into(),
            amount(one.request).into(),
            amount(one.lower).into(),
            amount(one.upper).into(),
            one.tier.as_str().into(),
            format!("{:.2}", one.confidence).into(),
            percent(one.risk),
            one.notes.join("; ").into(),
        ]);
    }
    format!("{title}\n{}", table.render(output.has_colour()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_others_are_cells_and_nothing_else() {
        let request = TimedRequest { time_ms: 1_000, request: 250_000, lower: None, upper: None, risk: None };
        let rows = ["shop/web", "=HYPERLINK(\"x\")", "a\u{1b}[2J,b"].map(|series| (series, request));
        assert_eq!(
            requests(rows.into_iter(), Resource::Cpu),
            "series,t,request,lower,upper\nshop/web,1,0.25,,\n\"'=HYPERLINK(\"\"x\"\")\",1,0.25,,\n\"a\u{fffd}[2J,b\",1,0.25,,\n"
        );
    }
}
