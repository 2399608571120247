//! Owns policies in files: read at start and when a file changes.
//!
//! A file that cannot be read, or holds a wrong policy, keeps what it last gave, and says so until it is put right.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_rightsizing::policy::rank::Dated;
use evenkeel_rightsizing::policy::{Policy, PolicyError, read_all};
use serde_json::Value;
use tracing::{info, warn};

use super::listing::{Listing, Print, Unlisted};
use super::set::PolicySource;
use super::store::created;
use crate::audit::{Audit, FileDigests};

/// Largest file read, bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why a file was not read.
#[derive(Debug)]
struct NotRead {
    why: String,
    /// When it is tried again.
    again: Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// When it says something else.
    Changed,
    /// When there is room for another number of policies, too.
    Room,
    /// At the next look: the system did not give it.
    Always,
}

#[derive(Debug, Default)]
struct PolicyFile {
    /// What was read or refused, and the room that there was if it was refused for want of it.
    tried: Option<(Print, Option<usize>)>,
    policies: Vec<(Arc<Policy>, u64)>,
    /// What is in force of it, for the audit record.
    said: FileDigests,
    trouble: Option<String>,
}

impl PolicyFile {
    /// Leaves an entry that it says something else from now on.
    fn recorded(&mut self, path: &Path, said: &FileDigests, record: Option<&Audit>) -> Result<(), ()> {
        self.said.follow(path, said, record).map_err(|why| {
            if self.trouble.as_ref() != Some(&why) {
                warn!(file = %path.display(), why, "a file of policies changed, which is not in force");
            }
            self.trouble = Some(why);
        })
    }
}

fn said(policies: &[Policy]) -> FileDigests {
    let text = |policy: &Policy| policy.object(None, Value::Null).to_string();
    FileDigests::of(policies.iter().map(|policy| (format!("policy {}", policy.key()), text(policy))))
}

/// All files.
#[derive(Debug, Default)]
pub(super) struct PolicyFiles {
    by_path: BTreeMap<PathBuf, PolicyFile>,
    unlisted: Unlisted,
}

impl PolicyFiles {
    /// Reads what has changed; whether anything has. `max` bounds the policies of all files together. With a `record`, what has
    /// no entry there does not come in force, and is tried again at the next look.
    pub(super) fn look(
        &mut self,
        places: &[PathBuf],
        max: usize,
        check: impl Fn(&Policy) -> Result<(), PolicyError>,
        record: Option<&Audit>,
    ) -> bool {
        let found = Listing::of(places);
        found.tell(&mut self.unlisted);
        let before = self.by_path.len();
        self.by_path.retain(|path, file| {
            found.may_have(path) || file.recorded(path, &FileDigests::default(), record).is_err()
        });
        let mut changed = self.by_path.len() != before;
        for (path, print) in found.files {
            let tried = self.by_path.get(&path).and_then(|file| file.tried).filter(|(of, _)| *of == print);
            if matches!(tried, Some((_, None))) {
                continue;
            }
            let elsewhere: usize =
                self.by_path.iter().filter(|(p, _)| **p != path).map(|(_, f)| f.policies.len()).sum();
            let room = max.saturating_sub(elsewhere);
            if tried == Some((print, Some(room))) {
                continue;
            }
            let read = load(&path, print.1, room, &check);
            let file = self.by_path.entry(path.clone()).or_default();
            match read {
                Ok(policies) if file.recorded(&path, &said(&policies), record).is_ok() => {
                    info!(file = %path.display(), policies = policies.len(), "policies were read");
                    (file.tried, changed) = (Some((print, None)), true);
                    file.policies = policies.into_iter().map(|p| (Arc::new(p), 0)).collect();
                    file.trouble = None;
                }
                Ok(_) => {}
                Err(NotRead { why, again }) => {
                    let room = (again == Retry::Room).then_some(room);
                    file.tried = (again != Retry::Always).then_some((print, room));
                    if file.trouble.as_ref() != Some(&why) {
                        warn!(file = %path.display(), why, "policies were not read; those read before stay");
                        (file.trouble, changed) = (Some(why), true);
                    }
                }
            }
        }
        changed
    }

    /// Policies that say nothing of their age, to be given one.
    pub(super) fn undated(&mut self) -> impl Iterator<Item = (&Policy, &mut u64)> {
        let all = self.by_path.values_mut().flat_map(|file| &mut file.policies);
        all.filter(|(policy, at)| *at == 0 && created(policy).is_none()).map(|(policy, at)| (&**policy, at))
    }

    /// All, in the order of the files' names; of two of one name the first counts.
    pub(super) fn all(&self) -> impl Iterator<Item = (Dated, PolicySource)> {
        let of = |(path, file): (&PathBuf, &PolicyFile)| {
            let dated = |(policy, at): &(Arc<Policy>, u64)| {
                let created_ms = created(policy).unwrap_or(*at);
                (Dated { policy: Arc::clone(policy), created_ms }, PolicySource::File(path.clone()))
            };
            file.policies.iter().map(dated).collect::<Vec<_>>()
        };
        self.by_path.iter().rev().flat_map(of)
    }

    /// The file a policy is kept in.
    pub(super) fn owner(&self, namespace: &str, name: &str) -> Option<&Path> {
        let holds =
            |file: &PolicyFile| file.policies.iter().any(|(p, _)| p.namespace == namespace && p.name == name);
        self.by_path.iter().find(|(_, file)| holds(file)).map(|(path, _)| path.as_path())
    }

    pub(super) fn troubles(&self) -> Vec<(PathBuf, String)> {
        let of_files = self.by_path.iter().filter_map(|(path, file)| Some((path, file.trouble.as_ref()?)));
        self.unlisted.iter().chain(of_files).map(|(path, why)| (path.clone(), why.clone())).collect()
    }
}

fn load(
    path: &Path,
    bytes: u64,
    max: usize,
    check: impl Fn(&Policy) -> Result<(), PolicyError>,
) -> Result<Vec<Policy>, NotRead> {
    let wrong = |why: String| NotRead { why, again: Retry::Changed };
    if bytes > MAX_FILE_BYTES {
        return Err(wrong(format!("it has {bytes} bytes, over {MAX_FILE_BYTES}; split it")));
    }
    let text = fs::read_to_string(path).map_err(|error| NotRead {
        why: error.to_string(),
        again: if error.raw_os_error().is_some() { Retry::Always } else { Retry::Changed },
    })?;
    let policies = read_all(&text).map_err(|e| wrong(e.to_string()))?;
    if policies.len() > max {
        let count = policies.len();
        let why = format!("it holds {count} policies where {max} have room; raise recommend.max_policies");
        return Err(NotRead { why, again: Retry::Room });
    }
    for policy in &policies {
        check(policy).map_err(|e| wrong(format!("{}: {e}", policy.key())))?;
    }
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> String {
        format!(
            "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {{name: {name}}}\nspec: {{target: {{}}}}\n"
        )
    }

    fn names(files: &PolicyFiles) -> Vec<String> {
        let mut names: Vec<_> = files.all().map(|(d, _)| d.policy.name.clone()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_read_again_when_they_change_and_a_wrong_one_keeps_what_it_gave() {
        let dir = tempfile::tempdir().unwrap();
        let places = [dir.path().to_owned(), PathBuf::from("/nonexistent/policies")];
        let look = |files: &mut PolicyFiles, max| files.look(&places, max, |_| Ok(()), None);
        let mut files = PolicyFiles::default();
        assert!(!look(&mut files, 10));
        fs::write(dir.path().join("a.yaml"), text("a")).unwrap();
        fs::write(dir.path().join("notes.txt"), "no policy").unwrap();
        assert!(look(&mut files, 10));
        assert!(!look(&mut files, 10));
        assert_eq!(names(&files), ["a"]);
        fs::write(dir.path().join("a.yaml"), text("a").replace("target", "targets") + "# longer\n").unwrap();
        assert!(look(&mut files, 10));
        assert_eq!(names(&files), ["a"]);
        assert!(files.troubles()[0].1.contains("spec.targets"), "{:?}", files.troubles());
        fs::write(dir.path().join("a.yaml"), format!("{}---\n{}", text("b"), text("c"))).unwrap();
        assert!(look(&mut files, 10));
        assert_eq!((names(&files), files.troubles().len()), (vec!["b".to_owned(), "c".to_owned()], 0));
        fs::write(dir.path().join("d.yaml"), text("d")).unwrap();
        assert!(look(&mut files, 2));
        assert!(files.troubles()[0].1.contains("max_policies") && !look(&mut files, 2));
        assert!(files.owner("default", "b").is_some_and(|p| p.ends_with("a.yaml")));
        // A directory that cannot be looked at takes nothing away.
        let aside = dir.path().with_extension("aside");
        fs::rename(dir.path(), &aside).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path()).unwrap();
        let before = names(&files);
        look(&mut files, 10);
        assert!(names(&files) == before && files.troubles()[0].0 == dir.path(), "{:?}", files.troubles());
        fs::remove_file(dir.path()).unwrap();
        fs::rename(&aside, dir.path()).unwrap();
        look(&mut files, 2);
        assert!(files.troubles().iter().all(|(path, _)| path != dir.path()));
        // Where there is room later, it is read though it did not change.
        assert!(look(&mut files, 3));
        assert_eq!((names(&files).len(), files.troubles().len()), (3, 0));
        // Nor does one that the system does not give, whose first page is not mapped; it is tried at each look, and told once.
        fs::remove_file(dir.path().join("d.yaml")).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", dir.path().join("d.yaml")).unwrap();
        assert!(look(&mut files, 3) && !look(&mut files, 3));
        assert!(files.troubles()[0].1.contains("os error 5") && names(&files).contains(&"d".to_owned()));
        assert_eq!(files.by_path.values().filter(|file| file.tried.is_none()).count(), 1);
        for name in ["a.yaml", "d.yaml"] {
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        assert!(look(&mut files, 10));
        assert!(names(&files).is_empty());
    }
}
