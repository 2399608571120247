//! `--by-hour`: what rules request at each hour of the day, and the pods that what is freed has room for.

use evenkeel_model::narrow::f64_to_u64;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::by_hour::requested;

use super::Replayed;
use super::text::in_units;
use crate::table::Table;
use crate::units;

/// A row an hour: what every rule requests, and by how many pods of a request the last frees more than the first.
pub(super) fn table(replayed: &[Replayed], resource: Resource, pod: f64) -> Table {
    let rules: Vec<(&str, [f64; 24])> =
        replayed.iter().map(|one| (one.rule.as_str(), requested(&one.outcomes))).collect();
    let mut titles = vec!["HOUR (UTC)"];
    titles.extend(rules.iter().map(|(rule, _)| *rule));
    titles.extend(["FREED BY THE LAST", "PODS"]);
    let mut table = Table::new(&titles);
    let amount = |value: f64| match resource {
        Resource::Cpu => format!("{:.2}", in_units(f64_to_u64(value), resource)),
        Resource::Memory => units::bytes(f64_to_u64(value)),
    };
    let (Some((_, first)), Some((_, last))) = (rules.first(), rules.last()) else { return table };
    // Memory is asked in GiB, and kept in bytes.
    let one = if resource == Resource::Cpu { pod } else { pod * f64::from(1 << 30) };
    for hour in 0..24 {
        let freed = (first[hour] - last[hour]).max(0.0);
        let mut row = vec![format!("{hour:02}").into()];
        row.extend(rules.iter().map(|(_, requests)| amount(requests[hour]).into()));
        row.push(amount(freed).into());
        row.push(format!("{:.0}", (in_units(f64_to_u64(freed), resource) / one).floor()).into());
        table.row(row);
    }
    table
}
