//! How many hours and days kept to what `evenkeel usage` would have predicted of them.

use evenkeel_model::usage::Percentile;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::foretold::{Foretold, foretold};
use evenkeel_rightsizing::backtest::trace::TraceSeries;
use evenkeel_rightsizing::forecast::ForecastWindow;
use serde::Serialize;

use super::read::Progress;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::Table;

/// Windows of one length.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Judged {
    window_seconds: u64,
    windows: u64,
    /// Mean confidence that was stated.
    confidence: f64,
    /// Part of the windows that kept to each value.
    held: Vec<ForecastCoverage>,
}

#[derive(Serialize)]
struct ForecastCoverage {
    value: String,
    part: f64,
}

/// Foretells every hour and day of all series from what lies before it.
pub(super) fn run(
    trace: &[TraceSeries],
    resource: Resource,
    progress: &mut Progress,
    output: &Output,
) -> Result<YesOrNo, Failure> {
    let judged = [ForecastWindow::Hour, ForecastWindow::Day].map(|window| {
        let mut all = Foretold::default();
        for (done, series) in trace.iter().enumerate() {
            all.merge(&foretold(series, resource, window));
            progress.tell(|| format!("{} of {} series", done + 1, trace.len()));
        }
        let names = ["mean", "max", "min"].map(str::to_owned).into_iter();
        let names = names.chain(Percentile::STANDARD.into_iter().map(|p| format!("p{p}")));
        let held = names.zip(all.held()).map(|(value, part)| ForecastCoverage { value, part });
        Judged {
            window_seconds: window.ms() / 1_000,
            windows: all.windows,
            confidence: all.confidence(),
            held: held.collect(),
        }
    });
    progress.end();
    output.answer(&judged, || table(&judged))?;
    Ok(if judged.iter().any(|judged| judged.windows > 0) { YesOrNo::Yes } else { YesOrNo::No })
}

fn table(judged: &[Judged]) -> Table {
    let mut titles = vec!["NEXT".to_owned(), "WINDOWS".to_owned(), "CONFIDENCE".to_owned()];
    titles.extend(judged.iter().take(1).flat_map(|one| &one.held).map(|held| held.value.to_uppercase()));
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for one in judged.iter().filter(|one| one.windows > 0) {
        let mut row = vec![
            format!("{}s", one.window_seconds).into(),
            one.windows.to_string().into(),
            format!("{:.3}", one.confidence).into(),
        ];
        row.extend(one.held.iter().map(|held| format!("{:.3}", held.part).into()));
        table.row(row);
    }
    table
}
