//! The slots of one epoch that still matter, kept beside its frames: a recommender that lost its memory is told of
//! them again, long after the frames that announced them were acknowledged and deleted.
//!
//! In memory it is always right. The file is rewritten before frames are deleted, so that file and remaining
//! frames together always tell of every slot.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use evenkeel_proto::v1;
use prost::Message;

/// File name within the epoch's directory.
const FILE: &str = "slots";

/// One slot.
#[derive(Debug, Clone, PartialEq)]
struct Slot {
    /// Its announcement, encoded: a third of the memory of the message.
    announcement: Box<[u8]>,
    /// Sequence number of the frame it ended with.
    gone: Option<u64>,
}

/// All slots of an epoch that a frame still to be sent may speak of.
#[derive(Debug)]
pub(super) struct Slots {
    path: PathBuf,
    slots: BTreeMap<u32, Slot>,
    /// The file does not tell of all of them.
    dirty: bool,
}

impl Slots {
    /// The slots as the file has them; none without a file. What does not read is left out.
    pub(super) fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let mut slots = BTreeMap::new();
        match fs::read(&path) {
            Ok(bytes) => {
                let mut rest = bytes.as_slice();
                while let Ok(frame) = v1::Frame::decode_length_delimited(&mut rest) {
                    insert(&mut slots, &frame);
                    if rest.is_empty() {
                        break;
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "known slots cannot be read"),
        }
        Self { path, slots, dirty: false }
    }

    /// Takes in what a frame announces and ends.
    pub(super) fn learn(&mut self, frame: &v1::Frame) {
        if !frame.announced.is_empty() || !frame.gone.is_empty() {
            self.dirty = true;
            insert(&mut self.slots, frame);
        }
    }

    /// Forgets slots that ended with frames now deleted, those up to `sequence`, and writes the file if what it
    /// tells is not enough without these frames.
    pub(super) fn save_before_trim(&mut self, sequence: u64) -> io::Result<()> {
        let before = self.slots.len();
        self.slots.retain(|_, slot| slot.gone.is_none_or(|gone| gone > sequence));
        if !self.dirty && before == self.slots.len() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for (number, slot) in &self.slots {
            // A slot's end is kept as the sequence number of a frame that ends it.
            let frame = v1::Frame {
                sequence: slot.gone.unwrap_or(0),
                announced: v1::Announcement::decode(&*slot.announcement).into_iter().collect(),
                gone: slot.gone.map(|_| *number).into_iter().collect(),
                ..v1::Frame::default()
            };
            bytes.extend(frame.encode_length_delimited_to_vec());
        }
        let aside = self.path.with_extension("new");
        File::create(&aside)?.write_all(&bytes)?;
        fs::rename(&aside, &self.path)?;
        self.dirty = false;
        Ok(())
    }

    /// Announcements of every slot.
    pub(super) fn all(&self) -> Vec<v1::Announcement> {
        self.slots.values().filter_map(|slot| v1::Announcement::decode(&*slot.announcement).ok()).collect()
    }
}

fn insert(slots: &mut BTreeMap<u32, Slot>, frame: &v1::Frame) {
    for announcement in &frame.announced {
        let bytes = announcement.encode_to_vec().into_boxed_slice();
        // Announced again, it asks for something else.
        let gone = slots.get(&announcement.slot).and_then(|slot| slot.gone);
        slots.insert(announcement.slot, Slot { announcement: bytes, gone });
    }
    for slot in &frame.gone {
        if let Some(slot) = slots.get_mut(slot) {
            slot.gone = Some(frame.sequence);
        }
    }
}
