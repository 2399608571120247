//! The pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The dashboard, pages for people at the HTTP interface below `/ui/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DashboardSection {
    /// Serve the pages. They are behind the same door as the rest of the interface.
    pub enabled: bool,
    /// Price of a core for an hour; with `gib_hour`, pages show what requests cost. None without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub core_hour: Option<f64>,
    /// Price of a GiB of memory for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gib_hour: Option<f64>,
    /// What stands behind amounts of money.
    pub currency: String,
}

impl Default for DashboardSection {
    fn default() -> Self {
        Self { enabled: true, core_hour: None, gib_hour: None, currency: "USD".to_owned() }
    }
}

impl DashboardSection {
    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let fits =
            |price: Option<f64>| price.is_none_or(|price| price.is_finite() && (0.0..=1e6).contains(&price));
        for (key, price) in [("dashboard.core_hour", self.core_hour), ("dashboard.gib_hour", self.gib_hour)] {
            if !fits(price) {
                found.push((key, "must be a price of 0 to 1000000".to_owned()));
            }
        }
        if self.core_hour.is_some() != self.gib_hour.is_some() {
            found.push(("dashboard", "core_hour and gib_hour are given together".to_owned()));
        }
        if self.currency.is_empty() || self.currency.chars().count() > 8 {
            found.push(("dashboard.currency", "must have 1 to 8 characters".to_owned()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_that_are_rubbish_are_refused_by_key() {
        for (core, gib, currency, want) in [
            (None, None, "USD", None),
            (Some(0.03), Some(0.004), "EUR", None),
            (Some(-1.0), Some(0.0), "EUR", Some("dashboard.core_hour")),
            (Some(f64::NAN), Some(0.0), "EUR", Some("dashboard.core_hour")),
            (Some(0.0), Some(f64::INFINITY), "EUR", Some("dashboard.gib_hour")),
            (Some(0.03), None, "EUR", Some("dashboard")),
            (None, None, "", Some("dashboard.currency")),
        ] {
            let section = DashboardSection {
                core_hour: core,
                gib_hour: gib,
                currency: currency.into(),
                ..Default::default()
            };
            assert_eq!(section.problems().first().map(|(key, _)| *key), want, "{section:?}");
        }
    }
}
