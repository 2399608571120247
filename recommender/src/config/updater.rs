//! The updater: what changes pods that run.

use std::time::Duration;

use evenkeel_updater::UpdateRules;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;

/// What is done with pods that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpdaterMode {
    /// Nothing.
    #[default]
    Off,
    /// What would be done is told, and not done.
    DryRun,
    /// Pods are resized, and evicted where their policy lets them be.
    On,
}

impl UpdaterMode {
    /// The word.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::DryRun => "dry-run",
            Self::On => "on",
        }
    }
}

/// What changes pods of the cluster that run, by policies in mode `auto` (`docs/updater.md`). Needs `kubernetes.view`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UpdaterSection {
    /// Whether pods are changed.
    pub mode: UpdaterMode,
    /// Whether offers of agents are carried out, which rule that a pod should go (OOM kills, a node short of memory or CPU), through the Eviction
    /// API and where its policy lets it be (`evictOffers`); no further than `mode`.
    pub evictions: UpdaterMode,
    /// How often pods are looked at.
    pub interval: Span,
    /// Most steps in a minute, over the whole cluster.
    pub per_minute: u32,
    /// How long a node may defer a resize before it is given up, or the pod evicted.
    pub deferred_for: Span,
    /// How long a node may be at a resize.
    pub in_progress_for: Span,
    /// How long a pod or workload is left alone after a step that came to nothing; each further one doubles it, up to a day.
    pub again_after: Span,
    /// A younger pod is evicted only where it was OOM-killed.
    pub evict_age: Span,
    /// MutatingWebhookConfiguration of Evenkeel's webhook: nothing is evicted before it is there and who it calls serves, or a pod of the last hour
    /// was given requests by it. Empty = only the latter counts.
    pub webhook: String,
    /// Namespaces whose pods are left alone.
    pub exclude_namespaces: Vec<String>,
}

impl Default for UpdaterSection {
    fn default() -> Self {
        let rules = UpdateRules::default();
        Self {
            mode: UpdaterMode::default(),
            evictions: UpdaterMode::default(),
            interval: Span::from_secs(30),
            per_minute: rules.per_minute,
            deferred_for: Span::from_secs(rules.deferred_seconds),
            in_progress_for: Span::from_secs(rules.in_progress_seconds),
            again_after: Span::from_secs(rules.again_seconds),
            evict_age: Span::from_secs(rules.evict_age_seconds),
            webhook: String::new(),
            exclude_namespaces: ["kube-system", "kube-public", "kube-node-lease", "evenkeel"]
                .map(str::to_owned)
                .into(),
        }
    }
}

impl UpdaterSection {
    /// As the updater takes it.
    pub(crate) fn rules(&self) -> UpdateRules {
        UpdateRules {
            per_minute: self.per_minute,
            deferred_seconds: self.deferred_for.get().as_secs(),
            in_progress_seconds: self.in_progress_for.get().as_secs(),
            again_seconds: self.again_after.get().as_secs(),
            evict_age_seconds: self.evict_age.get().as_secs(),
            ..UpdateRules::default()
        }
    }

    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self, view: bool) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut check = |ok: bool, key, what: &str| {
            if !ok {
                found.push((key, what.to_owned()));
            }
        };
        check(
            view || self.mode == UpdaterMode::Off,
            "kubernetes.updater.mode",
            "needs kubernetes.view = true",
        );
        check(
            self.evictions <= self.mode,
            "kubernetes.updater.evictions",
            "can go no further than kubernetes.updater.mode",
        );
        let within = |span: Span, least: u64, most: u64| {
            (Duration::from_millis(least)..=Duration::from_secs(most)).contains(&span.get())
        };
        let day = 86_400;
        check(within(self.interval, 10, 3600), "kubernetes.updater.interval", "must be 10ms to 1h");
        check((1..=6000).contains(&self.per_minute), "kubernetes.updater.per_minute", "must be 1 to 6000");
        check(within(self.deferred_for, 1000, day), "kubernetes.updater.deferred_for", "must be 1s to 1d");
        check(
            within(self.in_progress_for, 1000, day),
            "kubernetes.updater.in_progress_for",
            "must be 1s to 1d",
        );
        check(within(self.again_after, 1000, day), "kubernetes.updater.again_after", "must be 1s to 1d");
        check(within(self.evict_age, 0, 365 * day), "kubernetes.updater.evict_age", "must be at most a year");
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_named() {
        let told = |view: bool, change: &dyn Fn(&mut UpdaterSection)| {
            let mut section = UpdaterSection { mode: UpdaterMode::On, ..UpdaterSection::default() };
            change(&mut section);
            section.problems(view).into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert!(told(true, &|_| {}).is_empty());
        assert_eq!(told(false, &|_| {}), ["kubernetes.updater.mode"]);
        assert!(told(false, &|section| section.mode = UpdaterMode::Off).is_empty());
        for mode in [UpdaterMode::DryRun, UpdaterMode::On] {
            assert!(told(true, &|section| section.evictions = mode).is_empty());
        }
        for (found, key) in [
            (
                told(true, &|section| {
                    (section.mode, section.evictions) = (UpdaterMode::DryRun, UpdaterMode::On);
                }),
                "kubernetes.updater.evictions",
            ),
            (told(true, &|section| section.interval = Span::from_millis(1)), "kubernetes.updater.interval"),
            (told(true, &|section| section.per_minute = 0), "kubernetes.updater.per_minute"),
            (
                told(true, &|section| section.again_after = Span::from_millis(1)),
                "kubernetes.updater.again_after",
            ),
        ] {
            assert_eq!(found, [key]);
        }
    }
}
