//! `evenkeel quantity`: parse, check and convert resource quantities.

use clap::Args;
use evenkeel_model::quantity::QuantityReport;

use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, Tone};

/// Parse, check and convert quantities such as 129M, 123Mi, 1.5 or 300m.
///
/// Every argument is answered; the exit status is 1 when one of them is no quantity.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel quantity 128Mi
  evenkeel quantity -o json -- 129M 123Mi 1.5 300m
  evenkeel quantity -- -5 1e3")]
pub(crate) struct QuantityArgs {
    /// Quantities; put -- before the first when one begins with a minus.
    #[arg(required = true, value_name = "Q")]
    quantities: Vec<String>,
}

pub(crate) fn run(args: &QuantityArgs, output: &Output) -> Result<YesOrNo, Failure> {
    let reports: Vec<_> = args.quantities.iter().map(|q| QuantityReport::of(q)).collect();
    output.answer(&reports, || table(&reports))?;
    Ok(if reports.iter().all(QuantityReport::is_accepted) { YesOrNo::Yes } else { YesOrNo::No })
}

fn table(reports: &[QuantityReport]) -> Table {
    let mut table = Table::new(&["INPUT", "CANONICAL", "EXACT", "VALUE", "MILLI", "FORMAT"]);
    for report in reports {
        table.row(match report {
            QuantityReport::Accepted { input, canonical, exact, value, milli, format } => {
                [input, canonical, exact, value, milli]
                    .map(|text| Cell::from(text.as_str()))
                    .into_iter()
                    .chain([Cell::from(format.to_string())])
                    .collect()
            }
            QuantityReport::Rejected { input, error } => {
                // In the last column, so that it widens no other.
                let unknown = || Cell::from("-");
                let error = Cell::toned(format!("error: {error}"), Tone::Bad);
                vec![input.as_str().into(), unknown(), unknown(), unknown(), unknown(), error]
            }
        });
    }
    table
}
