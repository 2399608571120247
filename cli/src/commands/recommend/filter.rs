//! Which recommendations are shown, and in which order.

use std::cmp::Reverse;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use evenkeel_model::quantity::Quantity;

use super::RecommendationRow;
use crate::failure::Failure;

/// Which of them, in which order.
#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// Only of running pods with these labels, such as app=web,tier in (a,b),!canary.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with_all = ["file", "prometheus"])]
    pub(super) selector: Option<String>,
    /// Only of this workload, with or without its kind, such as deployment/web.
    #[arg(long, value_name = "NAME", conflicts_with = "prometheus")]
    workload: Option<String>,
    /// Order: by name, or the greatest saving first (by price where prices are given, else each resource by itself).
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Order::Name, conflicts_with = "prometheus")]
    sort: Order,
    /// Only what saves at least so much, such as cpu=500m,memory=1Gi; with --price also a price a month, such as 10.
    #[arg(long, value_name = "AMOUNT", conflicts_with = "prometheus")]
    min_saving: Option<MinSaving>,
}

/// Order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// By namespace, workload and container.
    Name,
    /// The greatest saving first.
    Saving,
}

/// The least saving shown.
#[derive(Debug, Clone, PartialEq)]
enum MinSaving {
    /// Of these resources, in the units of requests; others are not shown.
    Amounts(Vec<(String, i128)>),
    /// A price a month.
    Price(f64),
}

impl FromStr for MinSaving {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains('=') {
            let price: Option<f64> =
                text.parse().ok().filter(|price: &f64| price.is_finite() && *price >= 0.0);
            return price
                .map(Self::Price)
                .ok_or_else(|| "write cpu=500m,memory=1Gi, or a price a month".into());
        }
        let one = |part: &str| {
            let (name, amount) = part.split_once('=').ok_or_else(|| format!("{part:?} has no ="))?;
            let amount: Quantity = amount.trim().parse().map_err(|error| format!("{part:?}: {error}"))?;
            let unit = match name.trim() {
                "cpu" => 1_000_000,
                "memory" => 1_000_000_000,
                other => return Err(format!("{other:?} is neither cpu nor memory")),
            };
            Ok((name.trim().to_owned(), amount.nano() / unit))
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Self::Amounts)
    }
}

impl FilterArgs {
    /// Keeps and sorts what was asked for.
    ///
    /// # Errors
    /// When a price is given without a list of prices.
    pub(super) fn apply(&self, rows: &mut Vec<RecommendationRow>, has_prices: bool) -> Result<(), Failure> {
        if let Some(wanted) = &self.workload {
            let name = |row: &RecommendationRow| row.workload.rsplit('/').next() == Some(wanted);
            rows.retain(|row| row.workload == *wanted || name(row));
        }
        match &self.min_saving {
            None => {}
            Some(MinSaving::Price(_)) if !has_prices => {
                return Err(Failure::usage(
                    "cannot tell what is saved",
                    "--min-saving",
                    "a price is given, but no list of prices",
                    "give --price, or amounts such as cpu=500m,memory=1Gi",
                ));
            }
            Some(MinSaving::Price(least)) => {
                rows.retain(|row| row.saving_per_month.is_some_and(|saved| saved >= *least));
            }
            Some(MinSaving::Amounts(least)) => rows.retain(|row| {
                let least = least.iter().find(|(resource, _)| *resource == row.resource);
                least.zip(row.saving).is_some_and(|((_, least), saved)| i128::from(saved) >= *least)
            }),
        }
        if self.sort == Order::Saving && has_prices {
            let saved = |row: &RecommendationRow| row.saving_per_month.unwrap_or(f64::NEG_INFINITY);
            rows.sort_by(|a, b| saved(b).total_cmp(&saved(a)));
        } else if self.sort == Order::Saving {
            rows.sort_by_key(|row| (row.resource.clone(), Reverse(row.saving.unwrap_or(i64::MIN))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_savings_are_amounts_or_a_price() {
        let amounts = |list: &[(&str, i128)]| {
            MinSaving::Amounts(list.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect())
        };
        for (text, want) in [
            ("cpu=500m", amounts(&[("cpu", 500)])),
            ("cpu=1.5, memory=1Gi", amounts(&[("cpu", 1500), ("memory", 1 << 30)])),
            ("12.5", MinSaving::Price(12.5)),
            ("0", MinSaving::Price(0.0)),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for text in ["", "cpu", "cpu=", "gpu=1", "cpu=1,memory", "-1", "NaN", "inf"] {
            assert!(text.parse::<MinSaving>().is_err(), "{text}");
        }
    }
}
