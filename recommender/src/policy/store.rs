//! Owns what was applied over the interfaces: a log of changes in a directory of its own.
//!
//! A record is a line of JSON with a version. A change is synced before it is told. When the log holds many more changes
//! than policies, all policies are written again between `begin` and `end`, and what was before is trimmed: a process
//! killed in between finds a `begin` without its `end`, and goes on with what was before it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_log::{Log, LogError, Options, Seq};
use evenkeel_rightsizing::policy::rank::Dated;
use evenkeel_rightsizing::policy::{Policy, read};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tracing::warn;

use super::bounds::{self, BoundKey, BoundObject};

/// Version of the records.
const VERSION: u32 = 1;
/// Changes in the log, beyond twice the number of policies, before it is written anew.
const SLACK: usize = 1000;
/// Dates of policies in files that are remembered; the oldest of them are forgotten beyond it.
const MAX_SEEN: usize = 50_000;

type Key = (String, String);

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum PolicyChange {
    Set {
        created_ms: u64,
        object: Value,
    },
    Delete {
        namespace: String,
        name: String,
    },
    /// A policy was first seen in a file.
    Seen {
        namespace: String,
        name: String,
        created_ms: u64,
    },
    /// A limit range or quota was applied.
    Bound {
        object: Value,
    },
    /// And taken back.
    Unbound {
        kind: String,
        namespace: String,
        name: String,
    },
    Begin {},
    End {},
}

#[derive(Debug, Serialize, Deserialize)]
struct PolicyRecord {
    version: u32,
    #[serde(flatten)]
    change: PolicyChange,
}

/// The content of the log.
#[derive(Debug, Default)]
struct Content {
    applied: BTreeMap<Key, Dated>,
    bounds: BTreeMap<BoundKey, Arc<BoundObject>>,
    seen: BTreeMap<Key, u64>,
}

impl Content {
    fn take(&mut self, change: PolicyChange) {
        match change {
            PolicyChange::Set { created_ms, object } => match read(&object.to_string()) {
                Ok(policy) => {
                    let key = (policy.namespace.clone(), policy.name.clone());
                    self.applied.insert(key, Dated { policy: Arc::new(policy), created_ms });
                }
                Err(error) => warn!(%error, "a stored policy cannot be read any more and is left out"),
            },
            PolicyChange::Delete { namespace, name } => {
                self.applied.remove(&(namespace, name));
            }
            PolicyChange::Seen { namespace, name, created_ms } => {
                self.seen.insert((namespace, name), created_ms);
                while self.seen.len() > MAX_SEEN {
                    let Some(oldest) = self.seen.iter().min_by_key(|(_, at)| **at).map(|(k, _)| k.clone())
                    else {
                        break;
                    };
                    self.seen.remove(&oldest);
                }
            }
            PolicyChange::Bound { object } => match bounds::read(&object.to_string()) {
                Ok(bound) => drop(self.bounds.insert(bound.key.clone(), Arc::new(bound))),
                Err(error) => warn!(%error, "a stored object cannot be read any more and is left out"),
            },
            PolicyChange::Unbound { kind, namespace, name } => {
                self.bounds.remove(&BoundKey { kind, namespace, name });
            }
            PolicyChange::Begin {} | PolicyChange::End {} => {}
        }
    }

    fn changes(&self) -> impl Iterator<Item = PolicyChange> {
        let set = |d: &Dated| PolicyChange::Set {
            created_ms: d.created_ms,
            object: d.policy.object(None, Value::Null),
        };
        let seen = |((namespace, name), at): (&Key, &u64)| PolicyChange::Seen {
            namespace: namespace.clone(),
            name: name.clone(),
            created_ms: *at,
        };
        let bounds = self.bounds.values().map(|bound| PolicyChange::Bound { object: bound.object.clone() });
        self.applied.values().map(set).chain(bounds).chain(self.seen.iter().map(seen))
    }
}

/// What was applied.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    /// `None` once it is not to be trusted any more, until the next change opens it again.
    log: Option<Log>,
    content: Content,
    /// Changes in the log since it was last written anew.
    changes: usize,
}

impl Store {
    /// Reads the log in a directory, which is made where there is none.
    pub(super) fn open(dir: &Path) -> Result<Self, LogError> {
        let log = opened(dir)?;
        let (mut content, mut anew, mut changes) = (Content::default(), None::<Content>, 0);
        if let Some(first) = log.first() {
            for record in log.iter_from(first) {
                let record: PolicyRecord = match serde_json::from_slice::<PolicyRecord>(&record?.payload) {
                    Ok(record) if record.version <= VERSION => record,
                    Ok(PolicyRecord { version, .. }) => {
                        warn!(version, "a change of a policy was written by a newer release and is left out");
                        continue;
                    }
                    Err(error) => {
                        warn!(%error, "a stored change of a policy cannot be read and is left out");
                        continue;
                    }
                };
                changes += 1;
                match (record.change, &mut anew) {
                    (PolicyChange::Begin {}, _) => anew = Some(Content::default()),
                    (PolicyChange::End {}, _) => content = anew.take().unwrap_or(content),
                    (change, Some(anew)) => anew.take(change),
                    (change, None) => content.take(change),
                }
            }
        }
        let mut store = Self { dir: dir.to_owned(), log: Some(log), content, changes };
        if anew.is_some() {
            // Otherwise what comes next would be read as a part of what was never finished.
            store.write_anew()?;
        }
        Ok(store)
    }

    pub(super) fn len(&self) -> usize {
        self.content.applied.len()
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Dated> {
        self.content.applied.get(&(namespace.to_owned(), name.to_owned()))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Dated> {
        self.content.applied.values()
    }

    /// Keeps a policy. One that takes the place of another keeps its age.
    pub(super) fn apply(&mut self, policy: Policy, now_ms: u64) -> Result<(), LogError> {
        let before = self.get(&policy.namespace, &policy.name).map(|d| d.created_ms);
        let created_ms = before.or_else(|| created(&policy)).unwrap_or(now_ms);
        self.change([PolicyChange::Set { created_ms, object: policy.object(None, Value::Null) }])
    }

    pub(super) fn delete(&mut self, namespace: &str, name: &str) -> Result<bool, LogError> {
        let was = self.get(namespace, name).is_some();
        if was {
            self.change([PolicyChange::Delete { namespace: namespace.to_owned(), name: name.to_owned() }])?;
        }
        Ok(was)
    }

    /// Limit ranges and quotas.
    pub(super) fn bounds(&self) -> &BTreeMap<BoundKey, Arc<BoundObject>> {
        &self.content.bounds
    }

    pub(super) fn bind(&mut self, bound: &BoundObject) -> Result<(), LogError> {
        self.change([PolicyChange::Bound { object: bound.object.clone() }])
    }

    pub(super) fn unbind(&mut self, key: &BoundKey) -> Result<bool, LogError> {
        let was = self.content.bounds.contains_key(key);
        if was {
            let BoundKey { kind, namespace, name } = key.clone();
            self.change([PolicyChange::Unbound { kind, namespace, name }])?;
        }
        Ok(was)
    }

    /// Dates policies of files by when they were first seen, all with one sync. Not being able to remember it is no reason
    /// to leave any out.
    pub(super) fn date<'a>(&mut self, undated: impl Iterator<Item = (&'a Policy, &'a mut u64)>, now_ms: u64) {
        let mut news = Vec::new();
        for (policy, at) in undated {
            let key = (policy.namespace.clone(), policy.name.clone());
            *at = self.content.seen.get(&key).copied().unwrap_or(now_ms);
            if !self.content.seen.contains_key(&key) {
                news.push(PolicyChange::Seen { namespace: key.0, name: key.1, created_ms: now_ms });
            }
        }
        if let Err(error) = self.change(news) {
            warn!(%error, "the age of policies in files is not remembered");
        }
    }

    /// Makes changes, all with one sync; when it fails none of them counts, after a restart neither.
    fn change(&mut self, changes: impl Into<Vec<PolicyChange>>) -> Result<(), LogError> {
        let changes = changes.into();
        if changes.is_empty() {
            return Ok(());
        }
        let was_open = self.log.is_some();
        let done = self.keep(changes);
        if let (Err(error), Some(log)) = (&done, &mut self.log) {
            log.take_back();
            if !was_open || matches!(error, LogError::Poisoned { .. } | LogError::Deleted { .. }) {
                self.log = None;
            }
        }
        done
    }

    fn log(&mut self) -> Result<&mut Log, LogError> {
        Ok(match &mut self.log {
            Some(log) => log,
            none => none.insert(opened(&self.dir)?),
        })
    }

    fn keep(&mut self, changes: Vec<PolicyChange>) -> Result<(), LogError> {
        let Content { applied, bounds, seen } = &self.content;
        let is_long = self.changes > 2 * (applied.len() + bounds.len() + seen.len()) + SLACK;
        // What is opened again may lack what is in force.
        if is_long || self.log.is_none() {
            self.write_anew()?;
        }
        for change in &changes {
            self.append(change)?;
        }
        self.log()?.sync()?;
        self.changes += changes.len();
        changes.into_iter().for_each(|change| self.content.take(change));
        Ok(())
    }

    fn write_anew(&mut self) -> Result<(), LogError> {
        let begin = self.append(&PolicyChange::Begin {})?;
        let all: Vec<PolicyChange> = self.content.changes().collect();
        for change in &all {
            self.append(change)?;
        }
        self.append(&PolicyChange::End {})?;
        self.log()?.sync()?;
        self.changes = all.len();
        match begin.prev() {
            Some(before) => self.log()?.trim_to(before).map(|_| ()),
            None => Ok(()),
        }
    }

    fn append(&mut self, change: &PolicyChange) -> Result<Seq, LogError> {
        #[derive(Serialize)]
        struct StoredPolicyRecord<'a> {
            version: u32,
            #[serde(flatten)]
            change: &'a PolicyChange,
        }
        let written = serde_json::to_vec(&StoredPolicyRecord { version: VERSION, change });
        self.log()?.append(&written.expect("plain values with string keys are JSON"))
    }
}

fn opened(dir: &Path) -> Result<Log, LogError> {
    let options = Options { segment_bytes: 1 << 20, max_record_bytes: 1 << 20, ..Options::default() };
    let (log, recovery) = Log::open(dir, options)?;
    for damage in &recovery.damage {
        warn!(%damage, "a part of the stored policies was not recovered");
    }
    Ok(log)
}

/// When a policy says that it was made, milliseconds since 1970.
pub(crate) fn created(policy: &Policy) -> Option<u64> {
    let at: jiff::Timestamp = policy.created.as_deref()?.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, mode: &str) -> Policy {
        read(
            &format!(
                "{{apiVersion: evenkeel.dev/v1, kind: Policy, metadata: {{name: {name}}}, \
             spec: {{target: {{}}, updatePolicy: {{mode: {mode}}}}}}}"
            )
            .replacen("{apiVersion", "\n{apiVersion", 1),
        )
        .unwrap()
    }

    fn names(store: &Store) -> Vec<(String, u64)> {
        store.all().map(|d| (d.policy.name.clone(), d.created_ms)).collect()
    }

    #[test]
    fn what_was_applied_is_there_again_and_keeps_its_age() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.apply(policy("a", "auto"), 1).unwrap();
        store.apply(policy("b", "auto"), 2).unwrap();
        store.apply(policy("a", "initial"), 3).unwrap();
        assert!(store.delete("default", "b").unwrap());
        assert!(!store.delete("default", "b").unwrap());
        let seen = |store: &mut Store, names: &[&str], now_ms| -> Vec<u64> {
            let mut dated: Vec<_> = names.iter().map(|name| (policy(name, "auto"), 0)).collect();
            store.date(dated.iter_mut().map(|(policy, at)| (&*policy, at)), now_ms);
            dated.into_iter().map(|(_, at)| at).collect()
        };
        assert_eq!(seen(&mut store, &["f", "g"], 7), [7, 7]);
        drop(store);
        let mut store = Store::open(dir.path()).unwrap();
        assert_eq!(names(&store), [("a".to_owned(), 1)]);
        assert_eq!(
            store.get("default", "a").unwrap().policy.mode,
            evenkeel_rightsizing::policy::UpdateMode::Initial
        );
        assert_eq!(seen(&mut store, &["f", "new", "g"], 9), [7, 9, 7]);
    }

    #[test]
    fn a_change_that_was_told_as_failed_is_none_after_a_restart_either() {
        let dir = tempfile::tempdir().unwrap();
        let Some(_disk) = evenkeel_tests::disk::SmallDisk::mount(dir.path(), 256 << 10) else { return };
        let (policies, ballast) = (dir.path().join("policies"), dir.path().join("ballast"));
        let mut store = Store::open(&policies).unwrap();
        store.apply(policy("a", "auto"), 1).unwrap();
        let _until_full = std::fs::write(&ballast, vec![0; 1 << 20]);
        for at in 0.. {
            // The segment's last page has room still.
            match store.apply(policy("filler", "auto"), at) {
                Ok(()) => drop(store.delete("default", "filler")),
                Err(error) => {
                    assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
                    break;
                }
            }
        }
        let before = names(&store);
        assert!(store.apply(policy("b", "auto"), 2).is_err() && store.delete("default", "a").is_err());
        std::fs::remove_file(&ballast).unwrap();
        drop(store);
        let mut store = Store::open(&policies).unwrap();
        assert_eq!(names(&store), before);
        store.apply(policy("c", "auto"), 3).unwrap();
        assert!(names(&store).contains(&("c".to_owned(), 3)));
    }

    #[test]
    fn a_log_that_somebody_deleted_is_written_again_from_what_is_in_force() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        store.apply(policy("a", "auto"), 1).unwrap();
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "seg") {
                std::fs::remove_file(path).unwrap();
            }
        }
        let failed = store.apply(policy("b", "auto"), 2).unwrap_err();
        assert!(matches!(failed, LogError::Deleted { .. }), "{failed}");
        store.apply(policy("c", "auto"), 3).unwrap();
        let both = [("a".to_owned(), 1), ("c".to_owned(), 3)];
        assert_eq!(names(&store), both);
        drop(store);
        assert_eq!(names(&Store::open(dir.path()).unwrap()), both);
    }

    #[test]
    fn writing_anew_changes_nothing_and_an_unfinished_one_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        for round in 0..3 * SLACK as u64 {
            store.content.take(PolicyChange::Delete { namespace: "x".into(), name: round.to_string() });
            store.changes += 1;
        }
        store.apply(policy("a", "auto"), 1).unwrap();
        assert!(store.changes < 10, "it was written anew");
        store.apply(policy("b", "auto"), 2).unwrap();
        // As a process killed while writing anew leaves it.
        store.append(&PolicyChange::Begin {}).unwrap();
        store
            .append(&PolicyChange::Set {
                created_ms: 9,
                object: policy("c", "auto").object(None, Value::Null),
            })
            .unwrap();
        store.log().unwrap().sync().unwrap();
        drop(store);
        let mut store = Store::open(dir.path()).unwrap();
        assert_eq!(names(&store), [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        store.apply(policy("d", "auto"), 4).unwrap();
        drop(store);
        assert_eq!(names(&Store::open(dir.path()).unwrap()).len(), 3);
    }

    #[test]
    fn a_process_killed_at_any_byte_of_a_change_or_of_writing_anew_loses_nothing_confirmed() {
        let dir = tempfile::tempdir().unwrap();
        let kept = dir.path().join("kept");
        let files = |dir: &Path| -> BTreeMap<std::ffi::OsString, Vec<u8>> {
            let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap());
            entries.map(|e| (e.file_name(), std::fs::read(e.path()).unwrap())).collect()
        };
        let mut store = Store::open(&kept).unwrap();
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            store.apply(policy(name, "auto"), at as u64 + 1).unwrap();
        }
        let (confirmed, before) = (names(&store), files(&kept));
        type Act = fn(&mut Store);
        let acts: [(Act, bool); 3] = [
            (|store| store.write_anew().unwrap(), false),
            (|store| store.apply(policy("d", "auto"), 9).unwrap(), true),
            (|store| assert!(store.delete("default", "a").unwrap()), true),
        ];
        for (number, (act, changes)) in acts.into_iter().enumerate() {
            drop(store);
            let _same = std::fs::remove_dir_all(&kept);
            std::fs::create_dir(&kept).unwrap();
            before.iter().for_each(|(name, bytes)| std::fs::write(kept.join(name), bytes).unwrap());
            store = Store::open(&kept).unwrap();
            act(&mut store);
            let (after, done) = (files(&kept), names(&store));
            assert_eq!(done != confirmed, changes);
            let length = |all: &BTreeMap<_, Vec<u8>>, name| all.get(name).map_or(0, Vec::len);
            for (name, bytes) in &after {
                for cut in (length(&before, name)..=bytes.len()).step_by(3) {
                    let cut_off = dir.path().join(format!("cut-{number}-{cut}"));
                    std::fs::create_dir_all(&cut_off).unwrap();
                    after.iter().for_each(|(name, bytes)| std::fs::write(cut_off.join(name), bytes).unwrap());
                    std::fs::write(cut_off.join(name), &bytes[..cut]).unwrap();
                    let mut cut_store = Store::open(&cut_off).unwrap();
                    let found = names(&cut_store);
                    assert!(found == confirmed || found == done, "act {number} cut at {cut}: {found:?}");
                    cut_store.apply(policy("e", "auto"), 10).unwrap();
                    drop(cut_store);
                    let mut want: Vec<_> = found.into_iter().chain([("e".to_owned(), 10)]).collect();
                    want.sort();
                    assert_eq!(names(&Store::open(&cut_off).unwrap()), want, "act {number} cut at {cut}");
                }
            }
        }
    }
}
