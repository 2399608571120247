//! What a comparison shows.

use super::ComparisonRow;
use crate::commands::backtest::AtEqualRisk;
use crate::commands::recommend::{amount, marked, signed};
use crate::output::{Format, Output};
use crate::table::{Cell, Table};

pub(super) fn equal_table(equal: &[AtEqualRisk]) -> Table {
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

/// Names of the rules, in the order they first appear.
pub(super) fn names(rows: &[ComparisonRow]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for said in rows.iter().flat_map(|row| &row.rules) {
        if !names.contains(&said.rule.as_str()) {
            names.push(&said.rule);
        }
    }
    names
}

pub(super) fn table(rows: &[ComparisonRow], output: &Output) -> Table {
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
pub(super) fn totals(rows: &[ComparisonRow]) -> String {
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
