//! Owns the files of sealed history: append-only, one set a day, cut back at start to what the checkpoint knows of.
//!
//! | file | content | read |
//! | --- | --- | --- |
//! | `DAY.minutes` | minutes of containers, an hour each: length (4 bytes), bytes | where an extent of `DAY.hours` points |
//! | `DAY.hours` | names, extents of minutes, hours of workloads | whole, at start |
//! | `DAY.days` | names, days of subjects, events | whole, at start |
//!
//! `DAY` is the day since 1970 the values are of. Values are appended and synced before the checkpoint that no longer
//! has them open is written, and that checkpoint says how long each file is: what lies behind is of a checkpoint that
//! never came to be, and its values will be sealed again. So a value is in the files once, whatever was killed when.
//!
//! Every file begins with 16 bytes: magic `EVKEELHI`, format version, kind. `hours` and `days` go on with batches: length
//! (4 bytes), CRC32C of what follows (4), number of the ingest log's record they were written at (8), items. An item is a
//! byte of kind, varints and bytes; see `item.rs`. All integers are little-endian.

use evenkeel_model::narrow::usize_to_u32;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{BatchesRead, Names, batches};
use super::failure::HistoryError;
use super::item::{Item, put_item};
use super::minute_files::{Extent, MAX_EXTENT, MinuteFiles};
use super::past::SubjectId;
use super::sealed::{Sealed, SealedKind};
use crate::key::{SeriesId, SeriesKey, Subject};
use crate::state::buffer::Block;
use evenkeel_log::private;

const MAGIC: [u8; 8] = *b"EVKEELHI";
/// Format version of all three kinds.
pub(crate) const VERSION: u32 = 1;
pub(super) const HEADER: u64 = HEADER_BYTES as u64;
/// The same as a length in memory.
pub(super) const HEADER_BYTES: usize = 16;
pub(super) const BATCH_HEADER: usize = 16;

/// What a file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileKind {
    Minutes = 1,
    Hours = 2,
    Days = 3,
}

impl FileKind {
    const ALL: [Self; 3] = [Self::Minutes, Self::Hours, Self::Days];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Minutes => "minutes",
            Self::Hours => "hours",
            Self::Days => "days",
        }
    }

    fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }

    /// The kind that a checkpoint means by a number.
    pub(crate) fn of_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }

    /// The day and kind in a file's name.
    pub(crate) fn of_name(name: &str) -> Option<FileId> {
        let (day, kind) = name.split_once('.')?;
        Some((day.parse().ok()?, Self::of(kind)?))
    }
}

/// The format version in a file's header; `None` where it has none.
///
/// # Errors
/// When the header cannot be read, which is no word on what is there.
pub(super) fn version(file: &File) -> io::Result<Option<u32>> {
    let mut header = [0; HEADER_BYTES];
    match file.read_exact_at(&mut header, 0) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let [.., a, b, c, d, _, _, _, _] = header;
    Ok((header[..8] == MAGIC).then_some(u32::from_le_bytes([a, b, c, d])))
}

/// A day and what of it.
pub(crate) type FileId = (u32, FileKind);

/// One file.
#[derive(Debug)]
struct OpenFile {
    file: Arc<File>,
    /// Bytes that count.
    length: u64,
    /// Numbers of subjects and series within the file.
    subjects: HashMap<SubjectId, u32>,
    series: HashMap<SeriesId, u32>,
    /// How many numbers of each the file has given: more than are known here when a name came twice or was refused.
    numbered: [u32; 2],
    /// Something was written since the last sync.
    dirty: bool,
}

/// A file that is no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) day: u32,
    pub(crate) kind: FileKind,
    pub(crate) bytes: u64,
}

/// What is to be written together.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Number of the log's last record in the state it comes from.
    pub applied: u64,
    /// Blocks of minutes, by series.
    pub minutes: Vec<(SeriesId, SeriesKey, Vec<Block>)>,
    /// Hours, days and events, each with its subject.
    pub sealed: Vec<(Sealed, Arc<Subject>)>,
}

/// Where minutes were written: series, number of blocks, places.
pub(crate) type Written = Vec<(SeriesId, usize, Vec<Extent>)>;

/// All files of a directory.
#[derive(Debug)]
pub(crate) struct HistoryFiles {
    dir: PathBuf,
    open: BTreeMap<FileId, OpenFile>,
    minutes: MinuteFiles,
    /// Names of files that no checkpoint lists any more.
    leaving: Vec<FileId>,
}

fn failed(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HistoryError {
    let path = path.to_owned();
    move |source| HistoryError::Io { op, path, source }
}

impl HistoryFiles {
    /// Opens a directory. With a list, files are cut back to the lengths in it and those not listed are deleted; without
    /// one (no checkpoint could be read) everything whole is kept. Items are shown with a name for the file they are of.
    pub(crate) fn open(
        dir: &Path,
        listed: Option<&[(u32, u32, u64)]>,
        mut show: impl FnMut(u32, &mut Names, Item<'_>),
    ) -> Result<(Self, BatchesRead), HistoryError> {
        let made = private::subdirectory(dir).map_err(io::Error::other);
        made.map_err(failed("create the directory of", dir))?;
        let mut files = Self {
            dir: dir.to_owned(),
            open: BTreeMap::new(),
            minutes: MinuteFiles::default(),
            leaving: Vec::new(),
        };
        let mut found = BatchesRead::default();
        for id in files.present()? {
            let path = files.path(id);
            let length = match listed {
                None => None,
                Some(listed) => match listed.iter().find(|l| (l.0, l.1) == (id.0, id.1 as u32)) {
                    Some(entry) => Some(entry.2),
                    None => {
                        fs::remove_file(&path).map_err(failed("delete", &path))?;
                        continue;
                    }
                },
            };
            files.read(id, length, &mut found, &mut show)?;
        }
        for (day, kind, length) in listed.unwrap_or_default() {
            let known = files.open.keys().any(|id| (id.0, id.1 as u32) == (*day, *kind));
            if !known && *length > 0 {
                found.damage.push(format!("a history file of day {day} with {length} bytes is missing"));
            }
        }
        found.bytes = files.bytes();
        Ok((files, found))
    }

    fn present(&self) -> Result<Vec<FileId>, HistoryError> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(failed("list", &self.dir))? {
            let name = entry.map_err(failed("list", &self.dir))?.file_name();
            ids.extend(name.to_str().and_then(FileKind::of_name));
        }
        ids.sort_unstable();
        Ok(ids)
    }

    fn path(&self, (day, kind): FileId) -> PathBuf {
        self.dir.join(format!("{day}.{}", kind.as_str()))
    }

    /// Reads one file back.
    fn read(
        &mut self,
        id: FileId,
        length: Option<u64>,
        found: &mut BatchesRead,
        show: &mut impl FnMut(u32, &mut Names, Item<'_>),
    ) -> Result<(), HistoryError> {
        let path = self.path(id);
        let file = private::options().read(true).write(true).open(&path).map_err(failed("open", &path))?;
        let real = file.metadata().map_err(failed("read", &path))?.len();
        let mut whole = length.unwrap_or(real).min(real);
        if length.is_some_and(|length| length > real) {
            found.damage.push(format!("{} ends early", path.display()));
        }
        let Some(version) = version(&file).map_err(failed("read", &path))? else {
            if whole > 0 {
                // What is measured of that day later is written to a file of this name.
                let aside = self.dir.join(format!("{}.{}.damaged", id.0, id.1.as_str()));
                fs::rename(&path, &aside).map_err(failed("set aside", &path))?;
                found.damage.push(format!("{} has no header; kept as {}", path.display(), aside.display()));
            }
            return Ok(());
        };
        if version > VERSION {
            return Err(HistoryError::Version { path, found: version });
        }
        let mut names = Names::default();
        if id.1 != FileKind::Minutes {
            let mut bytes = vec![0; usize::try_from(whole).unwrap_or(0)];
            file.read_exact_at(&mut bytes, 0).map_err(failed("read", &path))?;
            let end = batches(&bytes, found, |item| show(id.0, &mut names, item));
            if end < whole {
                found.damage.push(format!("{} is damaged at byte {end} and cut there", path.display()));
                whole = end;
            }
        }
        if whole < real {
            file.set_len(whole).map_err(failed("cut", &path))?;
        }
        let file = Arc::new(file);
        if id.1 == FileKind::Minutes {
            self.minutes.insert(id.0, &file);
        }
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let numbered = |len: usize| 0..count(len);
        let counts = [count(names.subjects.len()), count(names.series.len())];
        let (subjects, series) = (
            names.subjects.iter().copied().zip(numbered(names.subjects.len())),
            names.series.iter().copied().zip(numbered(names.series.len())),
        );
        let open = OpenFile {
            file,
            length: whole,
            subjects: subjects.filter_map(|(id, n)| Some((id?, n))).collect(),
            series: series.filter_map(|(id, n)| Some((id?, n))).collect(),
            numbered: counts,
            dirty: false,
        };
        self.open.insert(id, open);
        Ok(())
    }

    /// What minutes are read from.
    pub(crate) fn minutes(&self) -> MinuteFiles {
        self.minutes.clone()
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.open.values().map(|open| open.length).sum()
    }

    /// Day, kind and length of every file, as the checkpoint lists them.
    pub(crate) fn list(&self) -> Vec<(u32, u32, u64)> {
        self.open.iter().map(|((day, kind), open)| (*day, *kind as u32, open.length)).collect()
    }

    /// Writes and syncs.
    ///
    /// # Errors
    /// When a system call fails: what was written does not count, and the same call may be repeated.
    pub(crate) fn append(&mut self, outgoing: &Outgoing) -> Result<Written, HistoryError> {
        let before: Vec<(FileId, u64)> = self.open.iter().map(|(id, open)| (*id, open.length)).collect();
        let result = self.append_all(outgoing);
        if result.is_err() {
            for (id, open) in &mut self.open {
                open.length = before.iter().find(|b| b.0 == *id).map_or(0, |b| b.1);
                // Names that were new in what does not count have to be written again.
                open.subjects.clear();
                open.series.clear();
                open.numbered = [0; 2];
            }
            self.open.retain(|_, open| open.length > 0);
        }
        result
    }

    fn append_all(&mut self, outgoing: &Outgoing) -> Result<Written, HistoryError> {
        let mut batches: BTreeMap<FileId, Vec<u8>> = BTreeMap::new();
        let mut written = Vec::with_capacity(outgoing.minutes.len());
        let mut raw: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
        for (series, key, blocks) in &outgoing.minutes {
            let mut extents: Vec<Extent> = Vec::new();
            for block in blocks {
                let (day, hour) = (block.hour / 24, block.hour);
                let base = self.opened((day, FileKind::Minutes))?.length;
                let bytes = raw.entry(day).or_default();
                let offset = base + bytes.len() as u64;
                let length = u32::try_from(block.bytes.len()).unwrap_or(u32::MAX);
                bytes.extend_from_slice(&length.to_le_bytes());
                bytes.extend_from_slice(&block.bytes);
                let length = length.saturating_add(4);
                match extents.last_mut() {
                    // Replicas of one hour lie behind one another and are found by one extent.
                    Some(last)
                        if (last.hour, last.offset + u64::from(last.length)) == (hour, offset)
                            && last.length + length <= MAX_EXTENT =>
                    {
                        last.length += length;
                    }
                    _ => extents.push(Extent { day, hour, offset, length }),
                }
            }
            for extent in &extents {
                let id = (extent.day, FileKind::Hours);
                let batch = batches.entry(id).or_default();
                let number = self.series_number(id, *series, key, batch)?;
                let (hour, offset, length) = ((extent.hour % 24) as u8, extent.offset, extent.length);
                put_item(batch, &Item::Minutes { series: number, hour, offset, length });
            }
            written.push((*series, blocks.len(), extents));
        }
        for (sealed, key) in &outgoing.sealed {
            let id = match sealed.kind {
                SealedKind::Hour(_) => (sealed.time / 24, FileKind::Hours),
                // A kill is remembered as long as a day is.
                SealedKind::Day(_) | SealedKind::Event => (sealed.time, FileKind::Days),
            };
            let batch = batches.entry(id).or_default();
            let subject = self.subject_number(id, sealed.subject, key, batch)?;
            let bytes = &sealed.bytes[..];
            put_item(
                batch,
                &match sealed.kind {
                    SealedKind::Hour(resource) => {
                        Item::Hour { subject, resource, hour: (sealed.time % 24) as u8, bytes }
                    }
                    SealedKind::Day(resource) => Item::Day { subject, resource, bytes },
                    SealedKind::Event => Item::Event { subject, bytes },
                },
            );
        }
        for (day, bytes) in raw {
            self.write((day, FileKind::Minutes), &bytes)?;
        }
        for (id, items) in batches {
            let mut batch = vec![0; BATCH_HEADER];
            batch[8..16].copy_from_slice(&outgoing.applied.to_le_bytes());
            batch.extend_from_slice(&items);
            let crc = crc32c::crc32c(&batch[8..]);
            batch[..4].copy_from_slice(&usize_to_u32(items.len()).to_le_bytes());
            batch[4..8].copy_from_slice(&crc.to_le_bytes());
            self.write(id, &batch)?;
        }
        self.sync()?;
        Ok(written)
    }

    fn opened(&mut self, id: FileId) -> Result<&mut OpenFile, HistoryError> {
        if !self.open.contains_key(&id) {
            let path = self.path(id);
            let file = private::options().read(true).write(true).create(true).truncate(true).open(&path);
            let file = Arc::new(file.map_err(failed("create", &path))?);
            let mut header = [0; HEADER_BYTES];
            header[..8].copy_from_slice(&MAGIC);
            header[8..12].copy_from_slice(&VERSION.to_le_bytes());
            header[12..].copy_from_slice(&(id.1 as u32).to_le_bytes());
            file.write_all_at(&header, 0).map_err(failed("write", &path))?;
            File::open(&self.dir)
                .and_then(|dir| dir.sync_all())
                .map_err(failed("sync the directory of", &path))?;
            if id.1 == FileKind::Minutes {
                self.minutes.insert(id.0, &file);
            }
            // Expired and now needed again, for a late value.
            self.leaving.retain(|leaving| *leaving != id);
            let (subjects, series) = (HashMap::new(), HashMap::new());
            let open = OpenFile { file, length: HEADER, subjects, series, numbered: [0; 2], dirty: true };
            self.open.insert(id, open);
        }
        Ok(self.open.get_mut(&id).expect("the file was put there above"))
    }

    fn subject_number(
        &mut self,
        id: FileId,
        subject: SubjectId,
        key: &Subject,
        batch: &mut Vec<u8>,
    ) -> Result<u32, HistoryError> {
        let open = self.opened(id)?;
        let next = &mut open.numbered[0];
        Ok(*open.subjects.entry(subject).or_insert_with(|| {
            let number = *next;
            *next = next.saturating_add(1);
            put_item(batch, &Item::Subject { number, key: key.clone() });
            number
        }))
    }

    fn series_number(
        &mut self,
        id: FileId,
        series: SeriesId,
        key: &SeriesKey,
        batch: &mut Vec<u8>,
    ) -> Result<u32, HistoryError> {
        let open = self.opened(id)?;
        let next = &mut open.numbered[1];
        Ok(*open.series.entry(series).or_insert_with(|| {
            let number = *next;
            *next = next.saturating_add(1);
            put_item(batch, &Item::Series { number, key: key.clone() });
            number
        }))
    }

    fn write(&mut self, id: FileId, bytes: &[u8]) -> Result<(), HistoryError> {
        let path = self.path(id);
        let open = self.opened(id)?;
        open.file.write_all_at(bytes, open.length).map_err(failed("write", &path))?;
        open.length += bytes.len() as u64;
        open.dirty = true;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), HistoryError> {
        let dirty: Vec<FileId> = self.open.iter().filter(|(_, open)| open.dirty).map(|(id, _)| *id).collect();
        for id in dirty {
            let path = self.path(id);
            let open = self.opened(id)?;
            open.file.sync_data().map_err(failed("sync", &path))?;
            open.dirty = false;
        }
        Ok(())
    }

    /// Takes files out of the list: those too old, then the oldest while there are more bytes than allowed, but never of
    /// the newest day. They are deleted once a checkpoint without them is written.
    pub(crate) fn expire(&mut self, first_recent: u32, first_day: u32, most_bytes: u64) -> Vec<Expired> {
        let newest = self.open.keys().map(|id| id.0).max().unwrap_or(0);
        let mut bytes = self.bytes();
        let mut expired = Vec::new();
        for (id, open) in &self.open {
            let first = if id.1 == FileKind::Days { first_day } else { first_recent };
            if id.0 < first || (bytes > most_bytes && id.0 < newest) {
                bytes -= open.length;
                expired.push(Expired { day: id.0, kind: id.1, bytes: open.length });
            }
        }
        for gone in &expired {
            self.open.remove(&(gone.day, gone.kind));
            self.leaving.push((gone.day, gone.kind));
            if gone.kind == FileKind::Minutes {
                self.minutes.remove(gone.day);
            }
        }
        expired
    }

    /// Deletes what the checkpoint that was just written does not list. What cannot be deleted is tried again.
    pub(crate) fn delete_expired(&mut self) {
        let dir = self.dir.clone();
        self.leaving.retain(|(day, kind)| {
            let path = dir.join(format!("{day}.{}", kind.as_str()));
            match fs::remove_file(path) {
                Ok(()) => false,
                Err(error) => error.kind() != io::ErrorKind::NotFound,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_rightsizing::Resource;

    use super::*;
    use crate::history::past::{Past, PastBounds};

    #[test]
    fn a_name_that_was_refused_keeps_its_number_in_the_file() {
        const DAY: u32 = 19_700;
        let dir = tempfile::tempdir().unwrap();
        let mut past = Past::new(PastBounds { subjects: 9, name_bytes: 900, name_bytes_of_node: 900 });
        let mut image = |name: &str| {
            let key = Subject::Image { image: name.to_owned() };
            (past.subject(key.clone(), None, 0).unwrap(), Arc::new(key))
        };
        let subjects = [image("a"), image("b"), image("c")];
        let append = |files: &mut HistoryFiles, of: &[usize]| {
            let sealed = of.iter().map(|at| {
                let (subject, key) = subjects[*at].clone();
                let bytes = format!("{key:?}").into_bytes().into();
                (Sealed { subject, kind: SealedKind::Day(Resource::Cpu), time: DAY, bytes }, key)
            });
            let outgoing = Outgoing { applied: 1, minutes: Vec::new(), sealed: sealed.collect() };
            files.append(&outgoing).unwrap();
        };
        // Values are their subject's name.
        let open = |refused: Option<usize>| {
            let mut read = Vec::new();
            let files = HistoryFiles::open(dir.path(), None, |_, names, item| match item {
                Item::Subject { key, .. } => {
                    let at = subjects.iter().position(|(_, known)| **known == key).unwrap();
                    names.subjects.push((Some(at) != refused).then_some(subjects[at].0));
                }
                Item::Day { subject, bytes, .. } => {
                    let id = names.subjects[subject as usize];
                    let of = subjects.iter().find(|(known, _)| Some(*known) == id);
                    read.push((
                        of.map(|(_, key)| format!("{key:?}")),
                        String::from_utf8(bytes.to_vec()).unwrap(),
                    ));
                }
                other => panic!("{other:?} was not written"),
            });
            (files.unwrap().0, read)
        };
        append(&mut open(None).0, &[0, 1]);
        let (mut files, _) = open(Some(0));
        append(&mut files, &[2, 1]);
        let (_, read) = open(None);
        assert_eq!(read.len(), 4);
        assert!(read.iter().all(|(of, value)| of.as_ref() == Some(value)), "{read:?}");
    }

    #[test]
    fn a_file_without_a_header_is_kept_and_another_takes_its_place() {
        const DAY: u32 = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20000.days");
        let mut past = Past::new(PastBounds { subjects: 9, name_bytes: 900, name_bytes_of_node: 900 });
        let key = Subject::Image { image: "a".to_owned() };
        let subject = past.subject(key.clone(), None, 0).unwrap();
        let open = || HistoryFiles::open(dir.path(), None, |_, _, _| {}).unwrap();
        let append = || {
            let bytes = [7][..].into();
            let day = Sealed { subject, kind: SealedKind::Day(Resource::Cpu), time: DAY, bytes };
            let outgoing =
                Outgoing { applied: 1, minutes: Vec::new(), sealed: vec![(day, Arc::new(key.clone()))] };
            open().0.append(&outgoing).unwrap();
        };
        append();
        let mut bytes = fs::read(&path).unwrap();
        bytes[0] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let damage = open().1.damage;
        assert!(damage[0].contains("no header") && damage[0].contains("20000.days.damaged"), "{damage:?}");
        append();
        let (files, found) = open();
        assert_eq!((found.damage, files.list().len()), (Vec::new(), 1));
        assert_eq!(fs::read(dir.path().join("20000.days.damaged")).unwrap(), bytes);
    }
}
