//! The configuration in force: that of the start, and what a reload (SIGHUP) changed since.
//!
//! Owned here: which keys change at run time. Not owned: reading files; what uses a value asks for it each time.

use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_model::reload::Reloaded;
use serde_json::Value;

use super::Config;

/// Keys that a reload puts in force; each is taken over in [`taken_over`].
const AT_RUN_TIME: [&str; 17] = [
    "acting.interval",
    "acting.max_age",
    "acting.min_span",
    "capacity.max_snapshot",
    "capacity.points",
    "capacity.timeout",
    "capacity.trend_window",
    "objects",
    "panic",
    "panic_file",
    "policies",
    "recommend.limit_ranges",
    "recommend.max_policies",
    "recommend.watch_interval",
    "serve.drain",
    "serve.metric_rows",
    "serve.request_timeout",
];

/// The configuration in force, shared by everything that looks at it.
#[derive(Debug, Clone)]
pub struct LiveConfig(Arc<RwLock<Arc<Config>>>);

impl LiveConfig {
    /// The configuration of the start.
    pub fn new(config: &Config) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config.clone()))))
    }

    /// What is in force now. Ask again at the next use: it may have changed.
    pub fn now(&self) -> Arc<Config> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts in force what can be, and says what that is. Keys that need a restart are named at each reload for as long
    /// as they differ from what runs.
    pub fn reload(&self, new: &Config) -> Reloaded {
        let written = |config: &Config| serde_json::to_value(config).unwrap_or(Value::Null);
        let mut config = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let reloaded = Reloaded::take(&mut written(&config), &written(new), &AT_RUN_TIME);
        *config = Arc::new(taken_over(&config, new));
        reloaded
    }
}

/// The running configuration with those values of a new one that change at run time.
fn taken_over(running: &Config, new: &Config) -> Config {
    let mut next = running.clone();
    next.acting.interval = new.acting.interval;
    next.acting.max_age = new.acting.max_age;
    next.acting.min_span = new.acting.min_span;
    next.capacity.max_snapshot = new.capacity.max_snapshot;
    next.capacity.points = new.capacity.points;
    next.capacity.timeout = new.capacity.timeout;
    next.capacity.trend_window = new.capacity.trend_window;
    next.objects.clone_from(&new.objects);
    next.files.clone_from(&new.files);
    next.warnings.clone_from(&new.warnings);
    next.panic = new.panic;
    next.panic_file.clone_from(&new.panic_file);
    next.policies.clone_from(&new.policies);
    next.recommend.limit_ranges.clone_from(&new.recommend.limit_ranges);
    next.recommend.max_policies = new.recommend.max_policies;
    next.recommend.watch_interval = new.recommend.watch_interval;
    next.serve.drain = new.serve.drain;
    next.serve.metric_rows = new.serve.metric_rows;
    next.serve.request_timeout = new.serve.request_timeout;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Config {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recommender.toml");
        std::fs::write(&file, text).unwrap();
        let read =
            super::super::load(&super::super::Sources { file: Some(file), flags: Vec::new() }).unwrap();
        Config { files: Vec::new(), ..read }
    }

    #[test]
    fn every_key_said_to_be_applied_is_and_the_others_are_named() {
        let changed = "panic = true\npanic_file = \"/p\"\npolicies = [\"/q\"]\nobjects = [\"/o\"]\n\
            [acting]\ninterval = \"7s\"\nmax_age = \"8s\"\nmin_span = \"9s\"\n\
            [capacity]\nmax_snapshot = \"1MiB\"\npoints = 7\ntimeout = \"7s\"\ntrend_window = \"9d\"\n\
            [recommend]\nmax_policies = 7\nwatch_interval = \"77s\"\n\
            [[recommend.limit_ranges]]\nnamespace = \"n\"\n\
            [serve]\ndrain = \"7s\"\nmetric_rows = 7\nrequest_timeout = \"7s\"\n";
        let live = LiveConfig::new(&Config::default());
        let reloaded = live.reload(&read(changed));
        assert_eq!(
            (reloaded.applied.len(), &reloaded.restart),
            (AT_RUN_TIME.len(), &Vec::new()),
            "{reloaded:?}"
        );
        assert_eq!(*live.now(), read(changed));

        let other = format!("state_dir = \"/elsewhere\"\n{changed}workers = 3\n");
        for _ in 0..2 {
            let reloaded = live.reload(&read(&other));
            assert_eq!(
                (reloaded.applied.len(), reloaded.restart),
                (0, vec!["state_dir".into(), "serve.workers".into()])
            );
            assert_eq!(*live.now(), read(changed));
        }
    }
}
