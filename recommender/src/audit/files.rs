//! Files that people edit while the recommender runs: each change of what one says has an entry, and comes in force with it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::entry::{AuditEntry, AuditOutcome, Object, cut};
use super::record::{Audit, AuditError, AuditLogKind};
use super::ticket::user;

/// Names of a change that an entry has at most, of each kind.
const MAX_NAMES: usize = 30;
/// Longest of them, bytes: all have room in an entry.
const MAX_NAME: usize = 160;

/// What a file says, as digests by name: enough to tell what changed, and nothing that is secret. One that is not there says
/// nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileDigests(BTreeMap<String, [u8; 32]>);

impl FileDigests {
    /// Of what a file holds: names, and the text of each. What has one name counts together.
    pub(crate) fn of(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut said = BTreeMap::<String, Sha256>::new();
        for (name, text) in all {
            said.entry(name).or_default().update(text.as_bytes());
        }
        Self(said.into_iter().map(|(name, hash)| (name, hash.finalize().into())).collect())
    }

    /// Goes over to what the file says now, once that has its entry; without a record, at once.
    ///
    /// # Errors
    /// Why there can be no entry. What the file said before stays in force then.
    pub(crate) fn follow(&mut self, path: &Path, now: &Self, record: Option<&Audit>) -> Result<(), String> {
        if let Some(record) = record {
            record.edited(path, self, now).map_err(|error| error.told())?;
        }
        self.clone_from(now);
        Ok(())
    }

    /// A digest of the whole.
    fn sha256(&self) -> Option<String> {
        let mut whole = Sha256::new();
        for (name, hash) in &self.0 {
            whole.update((name.len() as u64).to_le_bytes());
            whole.update(name.as_bytes());
            whole.update(hash);
        }
        let hexadecimal = |hash: &[u8]| hash.iter().map(|byte| format!("{byte:02x}")).collect();
        (!self.0.is_empty()).then(|| hexadecimal(&whole.finalize()))
    }

    /// What it says after another, as the audit record has it.
    fn after(&self, before: &Self) -> Value {
        let not_in = |one: &Self, other: &Self| -> Vec<String> {
            one.0.keys().filter(|name| !other.0.contains_key(*name)).cloned().collect()
        };
        let changed = self.0.iter().filter(|(name, hash)| before.0.get(*name).is_some_and(|b| b != *hash));
        let changed: Vec<String> = changed.map(|(name, _)| name.clone()).collect();
        let mut told = json!({ "sha256": self.sha256() });
        for (key, names) in
            [("added", not_in(self, before)), ("changed", changed), ("removed", not_in(before, self))]
        {
            if !names.is_empty() {
                told[key] = bounded(&names);
            }
        }
        told
    }
}

/// The first names, and how many more there are.
fn bounded(names: &[String]) -> Value {
    let mut told: Vec<String> = names.iter().take(MAX_NAMES).map(|name| cut(name, MAX_NAME)).collect();
    if let more @ 1.. = names.len().saturating_sub(MAX_NAMES) {
        told.push(format!("and {more} more"));
    }
    json!(told)
}

impl Audit {
    /// A file says something else than before: an entry of it is durable when this returns. Nothing where it says the same.
    /// Waits for the disk.
    ///
    /// # Errors
    /// When there can be no entry. What the file said before stays in force then.
    pub(crate) fn edited(
        &self,
        path: &Path,
        before: &FileDigests,
        after: &FileDigests,
    ) -> Result<(), AuditError> {
        if before == after {
            return Ok(());
        }
        let (who, object) = (format!("file {}", path.display()), path.display().to_string());
        let from = match fs::metadata(path) {
            Ok(facts) => format!("a file of {}", user(facts.uid())),
            Err(_) => "a file that is gone".to_owned(),
        };
        let told = before.sha256().map(|sha256| json!({ "sha256": sha256 }));
        let after = after.after(before);
        tracing::info!(who, from, method = "edit", kind = "File", name = object, %after, "a change");
        let entry = AuditEntry::new(&who, &from, "edit", Object::of_all("File", &object));
        self.whole(
            AuditLogKind::Changes,
            entry.with(told.as_ref(), Some(&after)).ended(AuditOutcome::Done, ""),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(all: &[(&str, &str)]) -> FileDigests {
        FileDigests::of(all.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    #[test]
    fn what_changed_is_told_by_name_and_within_bounds() {
        let before = said(&[("a", "1"), ("b", "1"), ("c", "1")]);
        let after = said(&[("b", "2"), ("c", "1"), ("d", "1")]);
        let mut told = after.after(&before);
        assert_eq!(told["sha256"].take().as_str().map(str::len), Some(64));
        assert_eq!(told, json!({ "sha256": null, "added": ["d"], "changed": ["b"], "removed": ["a"] }));
        assert_eq!(
            FileDigests::default().after(&said(&[("a", "1")])),
            json!({ "sha256": null, "removed": ["a"] })
        );
        assert_ne!(said(&[("a", "1")]).sha256(), said(&[("a", "2")]).sha256());
        let many = FileDigests::of((0..10_000).map(|n| (format!("{n:0200}"), String::new())));
        let told = many.after(&FileDigests::default());
        assert_eq!(told["added"].as_array().map(Vec::len), Some(31));
        assert!(told.to_string().len() < super::super::entry::MAX_TEXT, "{}", told.to_string().len());
    }
}
