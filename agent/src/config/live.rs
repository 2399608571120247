//! The configuration in force: what the agent was started with, and what a reload (SIGHUP) changed since.
//!
//! Owned here: which keys change at run time, and telling them from those that need a restart. Not owned: reading
//! files, and what a thread does with a value; those of keys listed here ask for it each time they need it.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use evenkeel_model::reload::Reloaded;
use serde_json::Value;

use super::valid::Config;
use crate::shared::lock;

/// Keys and tables that a reload puts in force; each is taken over in [`taken_over`].
const AT_RUN_TIME: [&str; 10] = [
    "admission",
    "converge.freeze",
    "converge.freeze_max",
    "eviction",
    "manage.exclude_namespaces",
    "node.allocatable",
    "node.reserve",
    "oom",
    "pressure.enabled",
    "starvation",
];

/// The configuration in force.
pub(crate) struct InForce {
    config: RwLock<Arc<Config>>,
    /// The values as written, by key.
    written: Mutex<Value>,
}

impl InForce {
    /// The configuration of the start; `written` has its values as JSON.
    pub(crate) fn new(config: Config, written: Value) -> Self {
        Self { config: RwLock::new(Arc::new(config)), written: Mutex::new(written) }
    }

    /// What is in force now. Ask again at the next use: it may have changed.
    pub(crate) fn now(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts in force what can be, and says what that is. Keys that need a restart are named at each reload for as long
    /// as they differ from what runs.
    pub(crate) fn reload(&self, new: Config, written: &Value) -> Reloaded {
        let mut running = lock(&self.written);
        let reloaded = Reloaded::take(&mut running, written, &AT_RUN_TIME);
        let mut config = self.config.write().unwrap_or_else(PoisonError::into_inner);
        let next = taken_over(&config, new);
        if next != **config {
            *config = Arc::new(next);
        }
        reloaded
    }
}

/// The running configuration with those values of a new one that change at run time.
fn taken_over(running: &Config, new: Config) -> Config {
    let mut next = running.clone();
    next.admission = new.admission;
    next.converge.freeze = new.converge.freeze;
    next.converge.freeze_max = new.converge.freeze_max;
    (next.eviction, next.acting) = (new.eviction, new.acting);
    next.manage.exclude_namespaces = new.manage.exclude_namespaces;
    next.allocatable = new.allocatable;
    next.oom = new.oom;
    next.pressure.enabled = new.pressure.enabled;
    next.starvation = new.starvation;
    next
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::super::load::load_files;
    use super::super::render::json;
    use super::*;

    fn read(text: &str) -> (Config, Value) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let loaded = load_files(&[file], [], &[]).unwrap();
        (check(&loaded).unwrap(), json(&loaded.raw))
    }

    fn started(text: &str) -> InForce {
        let (config, written) = read(text);
        InForce::new(config, written)
    }

    #[test]
    fn what_can_change_changes_and_the_rest_is_named_until_a_restart() {
        let live = started("");
        let before = live.now();
        let text = "strict = true\n[pressure]\nenabled = false\nkill_below = \"64Mi\"\n[manage]\n\
                    exclude_namespaces = [\"a\"]\n[node.allocatable]\n\"nvidia.com/gpu\" = 2\n";
        let (config, written) = read(text);
        let reloaded = live.reload(config.clone(), &written);
        assert_eq!(
            reloaded.applied,
            ["node.allocatable.nvidia.com/gpu", "manage.exclude_namespaces", "pressure.enabled"]
        );
        assert_eq!(reloaded.restart, ["strict", "pressure.kill_below"]);
        let now = live.now();
        assert!(!now.pressure.enabled && !now.strict && now.pressure.rules == before.pressure.rules);
        assert_eq!(
            (&now.manage.exclude_namespaces[..], &now.manage.deny),
            (&["a".to_owned()][..], &before.manage.deny)
        );
        assert_eq!(now.allocatable, config.allocatable);
        // Again: nothing new, and the restart is still owed.
        let reloaded = live.reload(config, &written);
        assert_eq!((reloaded.applied.len(), reloaded.restart.len()), (0, 2));
        // Taken back: nothing is owed.
        let (config, written) = read("");
        let reloaded = live.reload(config, &written);
        assert_eq!((reloaded.applied.len(), reloaded.restart), (3, Vec::new()));
        assert_eq!(*live.now(), *before);
    }

    #[test]
    fn every_key_that_changes_at_run_time_is_a_key() {
        let (_, written) = read("");
        for key in AT_RUN_TIME {
            assert!(written.pointer(&format!("/{}", key.replace('.', "/"))).is_some(), "{key}");
        }
    }

    #[test]
    fn every_key_said_to_be_applied_is() {
        let cases = [
            "[admission]\nmode = \"refuse\"\n",
            "[converge]\nfreeze = \"never\"\n",
            "[converge]\nfreeze_max = \"100ms\"\n",
            "[eviction]\ncarry_out = \"dry-run\"\n",
            "[manage]\nexclude_namespaces = []\n",
            "[node.reserve]\ncpu = \"1\"\n",
            "[oom]\nhistory = \"5s\"\n",
            "[pressure]\nenabled = false\n",
            "[starvation]\nenabled = false\n",
        ];
        for text in cases {
            let live = started("");
            let (config, written) = read(text);
            let reloaded = live.reload(config.clone(), &written);
            assert_eq!((reloaded.applied.len(), reloaded.restart.len()), (1, 0), "{text}");
            assert_eq!(*live.now(), config, "{text}");
        }
    }
}
