//! `--halves`: every rule on halves of the series and of the time, each with the factor that the other half asks for.

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::Schedule;
use evenkeel_rightsizing::backtest::halves::{NAMES, of};
use evenkeel_rightsizing::backtest::replay::SeriesResult;
use evenkeel_rightsizing::backtest::trace::TraceSeries;
use evenkeel_rightsizing::named::NamedRule;
use serde::Serialize;

use super::Replayed;
use super::text::percent;
use crate::table::{Cell, Table};

/// A rule on one half.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct OnHalf {
    half: &'static str,
    over: f64,
    unseen_over: f64,
    unseen_slack: f64,
}

/// What became of a rule on every half; nothing where a half has nothing to judge.
pub(super) fn on_halves(
    trace: &[TraceSeries],
    outcomes: &[SeriesResult],
    resource: Resource,
    rule: &NamedRule,
    schedule: &Schedule,
) -> Vec<OnHalf> {
    let halves = of(trace, outcomes, resource, schedule, rule.fill());
    let named = NAMES.into_iter().zip(halves.into_iter().flatten());
    let on = named.map(|(half, on)| OnHalf {
        half,
        over: on.over,
        unseen_over: on.unseen_over,
        unseen_slack: on.unseen_slack,
    });
    on.collect()
}

/// A row for each half and rule.
pub(super) fn table(replayed: &[Replayed]) -> Table {
    let mut table = Table::new(&["HALF", "RULE", "OVER", "UNSEEN OVER", "UNSEEN SLACK"]);
    for half in NAMES {
        for one in replayed {
            let Some(on) = one.halves.iter().flatten().find(|on| on.half == half) else { continue };
            table.row(vec![
                Cell::from(half),
                one.rule.as_str().into(),
                percent(Some(on.over)),
                percent(Some(on.unseen_over)),
                percent(Some(on.unseen_slack)),
            ]);
        }
    }
    table
}
