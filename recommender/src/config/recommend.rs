//! The rule that answers, and what caps it.

use std::path::PathBuf;

use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::policy::Goals;
use evenkeel_rightsizing::{Resource, initial};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// The rule that answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Recommend {
    /// The rule where no policy names one.
    pub rule: String,
    /// Percentile of the `initial` rule, thousandths.
    pub percentile_per_mille: u32,
    /// Its tiers, first choice first.
    pub tiers: Vec<TierSection>,
    /// How often the recommendations kept of every workload are made anew, and watches told what has changed.
    pub watch_interval: Span,
    /// Policies kept at once, applied ones and those of files each; further ones are refused.
    pub max_policies: usize,
    /// Values for well-known images of which nothing else is known; a copy of `predefined.toml`. The values built in
    /// without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predefined: Option<PathBuf>,
    /// The former name of `objects`.
    #[serde(skip_serializing)]
    #[schemars(skip)]
    pub objects: Vec<PathBuf>,
    /// What the goals of the rule `goal` are where no policy says otherwise.
    pub goals: GoalsSection,
    /// What LimitRange objects of namespaces allow a container; they cap what is recommended.
    pub limit_ranges: Vec<LimitRangeSection>,
}

/// What the `goal` rule is to reach in the whole cluster. Absent = the rule's own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GoalsSection {
    /// Part of the request above which CPU use counts as over; 0.95 is the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_threshold: Option<f64>,
    /// Part of the time in which that may be; 0.01 is the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_over: Option<f64>,
    /// Part of the 24-hour windows in which memory may exceed the request; 0.01 is the rule's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_over: Option<f64>,
}

impl GoalsSection {
    /// As policies have them.
    pub const fn goals(&self) -> Goals {
        let Self { cpu_threshold, cpu_over, memory_over } = *self;
        Goals { cpu_threshold, cpu_over, memory_over }
    }

    fn problems(&self) -> impl Iterator<Item = (&'static str, String)> {
        let all = [
            ("recommend.goals.cpu_threshold", self.cpu_threshold),
            ("recommend.goals.cpu_over", self.cpu_over),
            ("recommend.goals.memory_over", self.memory_over),
        ];
        let wrong = |part: f64| !(part > 0.0 && part <= 1.0);
        let wrong =
            all.into_iter().filter_map(move |(key, part)| part.filter(|part| wrong(*part)).map(|_| key));
        wrong.map(|key| (key, "must be above 0 and up to 1, such as 0.01".to_owned()))
    }
}

/// What the LimitRange of a namespace allows a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitRangeSection {
    /// The namespace.
    pub namespace: String,
    /// Least CPU, such as 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cpu_min: Option<Quantity>,
    /// Greatest CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cpu_max: Option<Quantity>,
    /// Least memory, such as 16Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub memory_min: Option<Quantity>,
    /// Greatest memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub memory_max: Option<Quantity>,
}

impl LimitRangeSection {
    /// Least and greatest of one resource: thousandths of a core, or bytes.
    pub fn of(&self, resource: Resource) -> (Option<u64>, Option<u64>) {
        match resource {
            Resource::Cpu => {
                let milli = |q: Option<Quantity>| q.and_then(Quantity::milli_u64);
                (milli(self.cpu_min), milli(self.cpu_max))
            }
            Resource::Memory => {
                let bytes = |q: Option<Quantity>| q.and_then(Quantity::to_u64);
                (bytes(self.memory_min), bytes(self.memory_max))
            }
        }
    }
}

/// One tier of the `initial` rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierSection {
    /// Name shown with answers.
    pub name: String,
    /// Whose samples count.
    pub scope: ScopeSection,
    /// How far back.
    pub window: Span,
    /// Samples needed.
    pub min_samples: usize,
}

/// Whose samples a tier looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScopeSection {
    /// Containers of the same image and tag.
    ImageTag,
    /// Containers of the same image, any tag.
    Image,
}

impl Default for Recommend {
    fn default() -> Self {
        let params = initial::InitialParams::default();
        let tiers = params.tiers.into_iter().map(|tier| TierSection {
            name: tier.name,
            scope: match tier.scope {
                initial::Scope::ImageTag => ScopeSection::ImageTag,
                initial::Scope::Image => ScopeSection::Image,
            },
            window: Span::from_secs(tier.window_minutes * 60),
            min_samples: tier.min_samples,
        });
        Self {
            rule: crate::recommend::rules::NAMES[0].to_owned(),
            percentile_per_mille: params.percentile_per_mille,
            tiers: tiers.collect(),
            watch_interval: Span::from_secs(15),
            // Twice the 10,000 that are refreshed in less than five seconds.
            max_policies: 20_000,
            predefined: None,
            objects: Vec::new(),
            goals: GoalsSection::default(),
            limit_ranges: Vec::new(),
        }
    }
}

impl Recommend {
    /// The parameters of the rule.
    pub fn initial(&self) -> initial::InitialParams {
        let tiers = self.tiers.iter().map(|tier| initial::Tier {
            name: tier.name.clone(),
            scope: match tier.scope {
                ScopeSection::ImageTag => initial::Scope::ImageTag,
                ScopeSection::Image => initial::Scope::Image,
            },
            window_minutes: tier.window.minutes(),
            min_samples: tier.min_samples,
        });
        initial::InitialParams { percentile_per_mille: self.percentile_per_mille, tiers: tiers.collect() }
    }

    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found: Vec<_> = self.goals.problems().collect();
        let mut check = |ok: bool, key, what: &str| {
            if !ok {
                found.push((key, what.to_owned()));
            }
        };
        check(
            self.percentile_per_mille <= 1000,
            "recommend.percentile_per_mille",
            "must be 0 to 1000: 900 is the 90th percentile",
        );
        let rules = crate::recommend::rules::NAMES;
        check(
            rules.contains(&self.rule.as_str()),
            "recommend.rule",
            &format!("must be one of {}", rules.join(", ")),
        );
        for range in &self.limit_ranges {
            for resource in Resource::ALL {
                let (min, max) = range.of(resource);
                let ordered = min.is_none_or(|min| max.is_none_or(|max| min <= max));
                check(
                    ordered,
                    "recommend.limit_ranges",
                    &format!("{}: {resource:?} min is above max", range.namespace),
                );
            }
        }
        check(!self.tiers.is_empty(), "recommend.tiers", "must name at least one tier");
        found
    }
}
