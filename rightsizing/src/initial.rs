//! The `initial` rule: Initial Resources' chain of tiers.
//!
//! The request is the 90th percentile of the first set of samples that is large enough: image and tag over 7
//! days, image and tag over 30 days, image over 30 days (Kubernetes design proposal "Initial Resources",
//! "Predicting algorithm details"). A sample is a rollup of at most one minute, the proposal's resolution; an
//! unfinished minute counts as one, so that a container seconds old is answered from the image tier.

use serde::{Deserialize, Serialize};

use crate::percentile::{nearest_rank, risk_above};

/// Minutes of a day.
const DAY: u64 = 24 * 60;

/// Whose samples a tier looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Containers of the same image and tag.
    ImageTag,
    /// Containers of the same image, any tag.
    Image,
}

/// One step of the chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tier {
    /// Name shown with the answer.
    pub name: String,
    /// Whose samples.
    pub scope: Scope,
    /// How far back, minutes.
    pub window_minutes: u64,
    /// Samples needed for this tier to answer.
    pub min_samples: usize,
}

/// Parameters of the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Params {
    /// Percentile in thousandths.
    pub percentile_per_mille: u32,
    /// Tiers from first to last choice.
    pub tiers: Vec<Tier>,
}

impl Default for Params {
    /// The proposal's own numbers.
    fn default() -> Self {
        let tier = |name: &str, scope, days: u64, min_samples| Tier {
            name: name.into(),
            scope,
            window_minutes: days * DAY,
            min_samples,
        };
        Self {
            percentile_per_mille: 900,
            tiers: vec![
                tier("image:tag 7d", Scope::ImageTag, 7, 60),
                tier("image:tag 30d", Scope::ImageTag, 30, 60),
                tier("image 30d", Scope::Image, 30, 1),
            ],
        }
    }
}

/// Samples of one resource within a window, as the caller's history has them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observations {
    /// One value per rollup, any order; unit of the resource asked for.
    pub values: Vec<u64>,
    /// Minute (since 1970) of the earliest and of the latest value.
    pub span: Option<(u64, u64)>,
}

/// What the rule says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The value to request; `None` with tier `none`: nothing is known and nothing should be set.
    pub request: Option<u64>,
    /// Name of the tier that answered, `none` without data.
    pub tier: String,
    /// Samples used.
    pub samples: usize,
    /// From the first to the end of the last minute used, seconds.
    pub span_seconds: u64,
    /// Part of the tier's window for which there are samples, 0 to 1.
    pub confidence: f64,
    /// Part of the samples above the value that is requested now, if one is.
    pub risk_now: Option<f64>,
    /// Part of the samples above the recommended value.
    pub risk_then: Option<f64>,
}

/// Answers for one resource of one container.
///
/// `now_minute` is the present minute since 1970; `current` the present request; `fetch` returns the samples of
/// a scope from a minute on. Tiers are tried in order and only as many windows are fetched as needed.
pub fn recommend(
    params: &Params,
    now_minute: u64,
    current: Option<u64>,
    mut fetch: impl FnMut(Scope, u64) -> Observations,
) -> Answer {
    for tier in &params.tiers {
        let mut seen = fetch(tier.scope, now_minute.saturating_sub(tier.window_minutes));
        if seen.values.is_empty() || seen.values.len() < tier.min_samples {
            continue;
        }
        seen.values.sort_unstable();
        let request = nearest_rank(&seen.values, params.percentile_per_mille);
        let minutes = seen.span.map_or(0, |(first, last)| last.saturating_sub(first) + 1);
        return Answer {
            request,
            tier: tier.name.clone(),
            samples: seen.values.len(),
            span_seconds: minutes * 60,
            confidence: (minutes as f64 / tier.window_minutes.max(1) as f64).min(1.0),
            risk_now: current.and_then(|c| risk_above(&seen.values, c)),
            risk_then: request.and_then(|r| risk_above(&seen.values, r)),
        };
    }
    Answer {
        request: None,
        tier: "none".into(),
        samples: 0,
        span_seconds: 0,
        confidence: 0.0,
        risk_now: None,
        risk_then: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// History of one image: (scope it counts for, minute, value).
    fn answer(history: &[(Scope, u64, u64)], now: u64) -> Answer {
        recommend(&Params::default(), now, Some(50), |scope, from| {
            let hits: Vec<_> = history
                .iter()
                .filter(|(s, m, _)| (scope == Scope::Image || *s == scope) && (from..=now).contains(m))
                .collect();
            Observations {
                values: hits.iter().map(|h| h.2).collect(),
                span: hits.iter().map(|h| h.1).min().zip(hits.iter().map(|h| h.1).max()),
            }
        })
    }

    fn minutes(scope: Scope, from: u64, count: u64) -> Vec<(Scope, u64, u64)> {
        (0..count).map(|i| (scope, from + i, i + 1)).collect()
    }

    #[test]
    fn the_chain_is_walked_in_the_documents_order() {
        let now = 100 * DAY;
        let table = [
            ("an hour this week", minutes(Scope::ImageTag, now - 60, 60), "image:tag 7d", Some(54), 60),
            (
                "59 minutes fall through to the image",
                minutes(Scope::ImageTag, now - 60, 59),
                "image 30d",
                Some(54),
                59,
            ),
            (
                "an hour two weeks ago",
                minutes(Scope::ImageTag, now - 14 * DAY, 60),
                "image:tag 30d",
                Some(54),
                60,
            ),
            ("another tag only", minutes(Scope::Image, now - 14 * DAY, 1), "image 30d", Some(1), 1),
            ("older than a month", minutes(Scope::ImageTag, now - 31 * DAY, 60), "none", None, 0),
            ("nothing", vec![], "none", None, 0),
        ];
        for (name, history, tier, request, samples) in table {
            let got = answer(&history, now);
            assert_eq!((got.tier.as_str(), got.request, got.samples), (tier, request, samples), "{name}");
        }
    }

    #[test]
    fn span_confidence_and_risk_come_from_the_tiers_own_samples() {
        let now = 100 * DAY;
        let got = answer(&minutes(Scope::ImageTag, now - 99, 100), now);
        assert_eq!((got.span_seconds, got.risk_now, got.risk_then), (6000, Some(0.5), Some(0.1)));
        assert!((got.confidence - 100.0 / (7.0 * DAY as f64)).abs() < 1e-12);
    }
}
