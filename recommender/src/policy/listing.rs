//! Owns which files are meant where files and directories are named.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tracing::warn;

/// What tells one content of a file from another.
pub(crate) type Print = (Option<SystemTime>, u64, u64);

/// What cannot be looked at, and why: a directory, or a file. What was read of it before stays.
pub(crate) type Unlisted = BTreeMap<PathBuf, String>;

/// The files meant: those named, and the YAML and JSON files of directories named. What is not there is not meant.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) files: BTreeMap<PathBuf, Print>,
    pub(crate) unlisted: Unlisted,
}

impl Listing {
    pub(crate) fn of(places: &[PathBuf]) -> Self {
        let mut listing = Self::default();
        for place in places {
            let entries = match fs::read_dir(place) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotADirectory => {
                    listing.take(place.clone());
                    continue;
                }
                Err(error) => {
                    listing.fail(place.clone(), &error);
                    continue;
                }
            };
            for entry in entries {
                match entry {
                    Ok(entry) if is_meant(&entry.path()) => listing.take(entry.path()),
                    Ok(_) => {}
                    Err(error) => listing.fail(place.clone(), &error),
                }
            }
        }
        listing
    }

    /// Whether a file is there, or may be: nobody knows what is in a directory that cannot be looked at.
    pub(crate) fn may_have(&self, path: &Path) -> bool {
        let is_unlisted = |path: &Path| self.unlisted.contains_key(path);
        self.files.contains_key(path) || is_unlisted(path) || path.parent().is_some_and(is_unlisted)
    }

    /// Puts what cannot be looked at now in the place of what could not be before, and tells the log of what is new.
    pub(crate) fn tell(&self, before: &mut Unlisted) {
        for (path, why) in self.unlisted.iter().filter(|(path, why)| before.get(*path) != Some(*why)) {
            warn!(path = %path.display(), why, "a file or directory cannot be looked at; what was read of it before stays");
        }
        before.clone_from(&self.unlisted);
    }

    fn take(&mut self, path: PathBuf) {
        match fs::metadata(&path) {
            Ok(facts) if facts.is_file() => {
                let print = (facts.modified().ok(), facts.len(), facts.ino());
                self.files.insert(path, print);
            }
            Ok(_) => drop(self.unlisted.insert(path, "it is no regular file; remove it".to_owned())),
            Err(error) => self.fail(path, &error),
        }
    }

    fn fail(&mut self, path: PathBuf, error: &std::io::Error) {
        if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
            self.unlisted.insert(path, error.to_string());
        }
    }
}

fn is_meant(path: &Path) -> bool {
    matches!(path.extension().and_then(|kind| kind.to_str()), Some("yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_cannot_be_looked_at_is_told_and_not_taken_for_gone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("many")).unwrap();
        for name in ["many/a.yaml", "many/notes.txt", "one"] {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir(at("many/dir.json")).unwrap();
        symlink(at("nowhere"), at("many/gone.yaml")).unwrap();
        symlink("loop.yml", at("many/loop.yml")).unwrap();
        let places = [at("many"), at("one"), at("missing")];
        let listing = Listing::of(&places);
        assert_eq!(listing.files.keys().collect::<Vec<_>>(), [&at("many/a.yaml"), &at("one")]);
        assert_eq!(listing.unlisted.keys().collect::<Vec<_>>(), [&at("many/dir.json"), &at("many/loop.yml")]);
        for (name, may) in [("many/a.yaml", true), ("many/loop.yml", true), ("many/b.yaml", false)] {
            assert_eq!(listing.may_have(&at(name)), may, "{name}");
        }
        // The directory itself.
        fs::remove_dir_all(at("many")).unwrap();
        assert!(!Listing::of(&places).may_have(&at("many/a.yaml")));
        symlink("many", at("many")).unwrap();
        assert!(Listing::of(&places).may_have(&at("many/a.yaml")));
    }
}
