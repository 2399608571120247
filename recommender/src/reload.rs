//! Reading the configuration again at SIGHUP: what can change at run time comes in force, with an entry in the audit record for
//! each file that says something else.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use evenkeel_model::reload::Reloaded;
use sd_notify::NotifyState;
use tokio::signal::unix::Signal;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::audit::{Audit, AuditError, FileDigests};
use crate::config::{Config, LiveConfig, Sources, load, values};
use crate::serve::{tell, tell_warnings};

/// What the files of the configuration said when they were read last, by key.
#[derive(Debug, Clone, Default)]
pub(crate) struct InFiles(BTreeMap<PathBuf, FileDigests>);

impl InFiles {
    /// As they are; one that cannot be read says nothing, and leads to no configuration.
    pub(crate) fn read(sources: &Sources) -> Self {
        Self(values(sources).into_iter().map(|(path, values)| (path, FileDigests::of(values))).collect())
    }

    /// Leaves an entry for each that says something else now.
    fn recorded(&self, now: &Self, audit: &Audit) -> Result<(), AuditError> {
        let nothing = FileDigests::default();
        let gone = self.0.iter().filter(|(path, _)| !now.0.contains_key(*path));
        for (path, before) in gone {
            audit.edited(path, before, &nothing)?;
        }
        for (path, after) in &now.0 {
            audit.edited(path, self.0.get(path).unwrap_or(&nothing), after)?;
        }
        Ok(())
    }
}

/// At each SIGHUP: what can change at run time is put in force, what needs a restart is named, and a configuration that
/// is wrong, or cannot be recorded, changes nothing.
pub(crate) async fn reload_at(
    mut hangup: Signal,
    live: LiveConfig,
    sources: Sources,
    mut in_files: InFiles,
    mut record: watch::Receiver<Option<Arc<Audit>>>,
) {
    while hangup.recv().await.is_some() {
        let Ok(audit) = record.wait_for(Option::is_some).await.map(|audit| audit.clone()) else { return };
        let Some(audit) = audit else { return };
        let began: Vec<_> = NotifyState::monotonic_usec_now().into_iter().collect();
        tell(&[&[NotifyState::Reloading], &*began].concat());
        let (live, sources, mut said) = (live.clone(), sources.clone(), in_files.clone());
        let reloaded = tokio::task::spawn_blocking(move || {
            let told = reload(&live, &sources, &mut said, &audit);
            (told, said)
        });
        let told = match reloaded.await {
            Ok((told, said)) => {
                in_files = said;
                told
            }
            Err(_) => String::new(),
        };
        tell(&[NotifyState::Ready, NotifyState::Status(&told)]);
    }
}

/// Reads the configuration anew; what to tell the service manager about it.
fn reload(live: &LiveConfig, sources: &Sources, in_files: &mut InFiles, audit: &Audit) -> String {
    // Before the configuration: what changes meanwhile has its entry the next time.
    let now = InFiles::read(sources);
    let config = match load(sources) {
        Ok(config) => config,
        Err(error) => {
            error!(%error, "the configuration is wrong; the running one stays in force");
            return "the configuration on disk is wrong; the one before is in force".to_owned();
        }
    };
    tell_warnings(&config);
    if let Err(error) = in_files.recorded(&now, audit) {
        let why = error.told();
        error!(why, "the new configuration is not in force, but for panic = true; send SIGHUP again");
        let running = live.now();
        if config.panic && !running.panic {
            live.reload(&Config { panic: true, ..Config::clone(&running) });
        }
        return "the configuration on disk cannot be recorded, and is not in force".to_owned();
    }
    *in_files = now;
    told(&live.reload(&config))
}

fn told(Reloaded { applied, restart }: &Reloaded) -> String {
    let (applied, restart) = (applied.join(", "), restart.join(", "));
    match (applied.is_empty(), restart.is_empty()) {
        (true, true) => info!("the configuration is unchanged"),
        (false, true) => info!(applied, "the new configuration is in force"),
        (_, false) => warn!(
            applied,
            restart,
            "the new configuration is in force but for the keys under restart: restart the recommender for those"
        ),
    }
    match restart.is_empty() {
        true => "the configuration on disk is in force".to_owned(),
        false => format!("restart needed for {restart}"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use evenkeel_store::clock::WallClock;

    #[test]
    fn a_configuration_comes_in_force_with_an_entry_or_not_at_all_but_for_the_panic_switch() {
        let dir = tempfile::tempdir().unwrap();
        let (file, part) = (dir.path().join("settings.toml"), dir.path().join("recommender.d/more.toml"));
        fs::create_dir(dir.path().join("recommender.d")).unwrap();
        fs::write(&file, "[serve]\ndrain = \"7s\"\n").unwrap();
        let sources = Sources { file: Some(file.clone()), flags: Vec::new() };
        let live = LiveConfig::new(&load(&sources).unwrap());
        let record = dir.path().join("audit");
        let audit = Audit::open(&record, 8 << 20, WallClock::system());
        let mut in_files = InFiles::read(&sources);
        let mut reloaded = || reload(&live, &sources, &mut in_files, &audit);
        let entries = || audit.list(&crate::audit::AuditFilter { limit: 100, ..Default::default() }, || true);
        assert_eq!(reloaded(), "the configuration on disk is in force");
        assert_eq!(entries().unwrap().entries.len(), 0, "nothing changed");

        fs::write(&file, "# A word\n[serve]\ndrain = \"9s\"\nmetric_rows = 7\n").unwrap();
        fs::write(&part, "[acting]\ninterval = \"9s\"\n").unwrap();
        reloaded();
        assert_eq!(live.now().serve.metric_rows, 7);
        let found = entries().unwrap().entries;
        let told: Vec<_> =
            found.iter().map(|e| (&*e.object.name, &*e.after.as_ref().unwrap().text)).collect();
        assert_eq!(told[0].0, file.to_str().unwrap());
        assert!(told[0].1.contains(r#""added":["serve.metric_rows"],"changed":["serve.drain"]"#), "{told:?}");
        assert!(told[1].0.ends_with("more.toml") && told[1].1.contains(r#""added":["acting.interval"]"#));
        assert_eq!(found[0].who, format!("file {}", file.display()));

        // Nothing can be written there.
        fs::remove_dir_all(&record).unwrap();
        fs::write(&record, "").unwrap();
        fs::remove_file(&part).unwrap();
        fs::write(&file, "panic = true\n").unwrap();
        assert!(reloaded().contains("cannot be recorded"));
        assert_eq!((live.now().panic, live.now().serve.metric_rows), (true, 7));
        fs::remove_file(&record).unwrap();
        audit.look();
        assert_eq!(reloaded(), "the configuration on disk is in force");
        assert_ne!(live.now().serve.metric_rows, 7);
        assert_eq!(entries().unwrap().entries.len(), 2);
    }
}
