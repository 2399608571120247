//! Where a snapshot is written: a file beside the destination that takes its place when all is there, or a nameless one
//! that is copied to standard output then. So nobody ever sees half of a cluster.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use evenkeel_model::shown;
use serde::Serialize;

use crate::failure::Failure;

/// How a snapshot begins and ends.
const HEAD: &str = "{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n";
/// The kinds that were listed stand at the end: of those that are not there the cluster has none.
const TAIL: &str = "\n],\"listed\":";

/// A snapshot under construction.
pub(crate) struct Sink {
    file: BufWriter<File>,
    /// Destination, and the file that takes its place; nothing for a nameless one.
    paths: Option<(PathBuf, PathBuf)>,
    empty: bool,
    /// Kinds all of whose objects are there.
    listed: Vec<&'static str>,
}

/// A place in a snapshot that can be returned to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    position: u64,
    empty: bool,
}

impl Sink {
    /// Beside a destination.
    ///
    /// # Errors
    /// When no file can be made there.
    pub(crate) fn beside(destination: &Path) -> Result<Self, Failure> {
        let name = destination.file_name().and_then(|name| name.to_str()).unwrap_or("snapshot");
        let partial = destination.with_file_name(format!(".{name}.{}.partial", std::process::id()));
        let file = create(&partial).map_err(|error| unwritable(destination, &error))?;
        Self::new(file, Some((destination.to_owned(), partial)))
    }

    /// Without a name.
    ///
    /// # Errors
    /// When no file can be made among the temporary ones.
    pub(crate) fn nameless() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("evenkeel-snapshot-{}", std::process::id()));
        let file = create(&path).and_then(|file| fs::remove_file(&path).map(|()| file));
        Self::new(file.map_err(|error| unwritable(&path, &error))?, None)
    }

    fn new(file: File, paths: Option<(PathBuf, PathBuf)>) -> Result<Self, Failure> {
        let mut sink =
            Self { file: BufWriter::with_capacity(1 << 16, file), paths, empty: true, listed: Vec::new() };
        sink.file.write_all(HEAD.as_bytes()).map_err(|error| sink.failed(&error))?;
        Ok(sink)
    }

    /// Adds an object.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn add<T: Serialize>(&mut self, object: &T) -> Result<(), Failure> {
        let text = serde_json::to_string(object).map_err(|error| self.failed(&error.into()))?;
        self.add_text(text)
    }

    /// Adds an object that is JSON already, without blanks but spaces. A snapshot goes to terminals, too: names of others are
    /// escaped.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn add_text(&mut self, object: String) -> Result<(), Failure> {
        let object = shown::json(object);
        let between = if self.empty { "" } else { ",\n" };
        self.empty = false;
        let written =
            self.file.write_all(between.as_bytes()).and_then(|()| self.file.write_all(object.as_bytes()));
        written.map_err(|error| self.failed(&error))
    }

    /// All objects of a kind were added, even where there are none.
    pub(crate) fn listed(&mut self, kind: &'static str) {
        self.listed.push(kind);
    }

    /// The present place.
    ///
    /// # Errors
    /// When what was written before cannot be.
    pub(crate) fn mark(&mut self) -> Result<Mark, Failure> {
        let position = self.file.stream_position().map_err(|error| self.failed(&error))?;
        Ok(Mark { position, empty: self.empty })
    }

    /// Forgets what was written since.
    ///
    /// # Errors
    /// When the file cannot be cut.
    pub(crate) fn back(&mut self, mark: Mark) -> Result<(), Failure> {
        self.empty = mark.empty;
        let cut = self.file.seek(SeekFrom::Start(mark.position));
        cut.and_then(|_| self.file.get_ref().set_len(mark.position)).map_err(|error| self.failed(&error))
    }

    /// Ends it: the file takes its place. A nameless one is returned, to be read from its begin.
    ///
    /// # Errors
    /// When it cannot be written or take its place.
    pub(crate) fn finish(mut self) -> Result<File, Failure> {
        let tail = format!("{TAIL}{}}}\n", serde_json::json!(self.listed));
        let ended = self.file.write_all(tail.as_bytes()).and_then(|()| self.file.flush());
        let synced = match &self.paths {
            None => ended.and_then(|()| self.file.rewind()),
            Some((destination, partial)) => ended
                .and_then(|()| self.file.get_ref().sync_all())
                .and_then(|()| fs::rename(partial, destination))
                .and_then(|()| {
                    let folder = destination.parent().filter(|folder| !folder.as_os_str().is_empty());
                    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
                }),
        };
        synced.map_err(|error| self.failed(&error))?;
        self.paths = None;
        self.file.get_ref().try_clone().map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> Failure {
        let place = self.paths.as_ref().map_or(Path::new("a temporary file"), |(to, _)| to);
        unwritable(place, error)
    }
}

/// What was not finished is not left behind.
impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((_, partial)) = &self.paths {
            // Nothing more can be done about a file that cannot be removed.
            let _ = fs::remove_file(partial);
        }
    }
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).open(path)
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    let remedy = "name a file in a folder with room that you may write to";
    Failure::new("cannot write the snapshot", path.display().to_string(), error.to_string(), remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_destination_holds_the_old_or_the_new_and_never_half() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.json");
        fs::write(&path, "old").unwrap();
        let names = || fs::read_dir(dir.path()).unwrap().count();
        let mut sink = Sink::beside(&path).unwrap();
        sink.add(&json!({ "a": 1 })).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("old", 2));
        drop(sink);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names()), ("old", 1));
        let mut sink = Sink::beside(&path).unwrap();
        let begin = sink.mark().unwrap();
        sink.add(&json!({ "forgotten": 1 })).unwrap();
        sink.back(begin).unwrap();
        sink.add(&json!({ "a": 1 })).unwrap();
        let mark = sink.mark().unwrap();
        sink.add_text("{\"forgotten\": 2}".to_owned()).unwrap();
        sink.back(mark).unwrap();
        sink.add_text("{\"b\": \"\u{9b}31m\u{202e}\"}".to_owned()).unwrap();
        sink.listed("Node");
        sink.finish().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(|c| c != '\n' && shown::is_hostile(c)), "{text:?}");
        let list: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&list["items"], names()), (&json!([{ "a": 1 }, { "b": "\u{9b}31m\u{202e}" }]), 1));
        assert_eq!(list["listed"], json!(["Node"]));
        assert!(Sink::beside(&dir.path().join("no/where")).is_err());
    }
}
