//! A reload (SIGHUP): what it changes of the configuration in force.
//!
//! Owned here: which keys change at run time, and telling them from those that need a restart. Not owned: reading
//! files, and what a thread does with a value; those of keys listed here ask for it each time they need it.

use std::sync::{Arc, Mutex};

use evenkeel_enforce::config::InForce;
use evenkeel_enforce::shared::lock;
use evenkeel_model::reload::Reloaded;
use serde_json::Value;

use super::valid::Config;

/// Keys and tables that a reload puts in force; [`InForce::take_over`] takes over each.
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

/// Puts a configuration that was read anew in force.
pub(crate) struct Reload {
    /// The values as written, by key.
    written: Mutex<Value>,
}

impl Reload {
    /// `written` has the values of the start as JSON.
    pub(crate) fn new(written: Value) -> Self {
        Self { written: Mutex::new(written) }
    }

    /// Puts in force what can be, and says what that is. Keys that need a restart are named at each reload for as long
    /// as they differ from what runs.
    pub(crate) fn take(&self, live: &InForce, new: Config, written: &Value) -> Reloaded {
        let mut running = lock(&self.written);
        let reloaded = Reloaded::take(&mut running, written, &AT_RUN_TIME);
        live.take_over(Arc::unwrap_or_clone(new.enforce));
        reloaded
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::check;
    use super::super::{json, load};
    use super::*;

    fn read(text: &str) -> (Config, Value) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent.toml");
        std::fs::write(&file, text).unwrap();
        let loaded = load(Some(&file), [], &[]).unwrap();
        (check(&loaded).unwrap(), json(&loaded.value))
    }

    fn started(text: &str) -> (InForce, Reload) {
        let (config, written) = read(text);
        (InForce::new(config.enforce), Reload::new(written))
    }

    #[test]
    fn what_can_change_changes_and_the_rest_is_named_until_a_restart() {
        let (live, reload) = started("");
        let before = live.now();
        let text = "strict = true\n[pressure]\nenabled = false\nkill_below = \"64Mi\"\n[manage]\n\
                    exclude_namespaces = [\"a\"]\n[node.allocatable]\n\"nvidia.com/gpu\" = 2\n";
        let (config, written) = read(text);
        let reloaded = reload.take(&live, config.clone(), &written);
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
        assert_eq!(now.allocatable, config.enforce.allocatable);
        // Again: nothing new, and the restart is still owed.
        let reloaded = reload.take(&live, config, &written);
        assert_eq!((reloaded.applied.len(), reloaded.restart.len()), (0, 2));
        // Taken back: nothing is owed.
        let (config, written) = read("");
        let reloaded = reload.take(&live, config, &written);
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
            let (live, reload) = started("");
            let (config, written) = read(text);
            let reloaded = reload.take(&live, config.clone(), &written);
            assert_eq!((reloaded.applied.len(), reloaded.restart.len()), (1, 0), "{text}");
            assert_eq!(live.now(), config.enforce, "{text}");
        }
    }
}
