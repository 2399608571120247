//! The slots of one epoch that still matter, kept beside its frames: a recommender that lost its memory is told of
//! them again, long after the frames that announced them were acknowledged and deleted.
//!
//! In memory it is always right. The file is rewritten before frames are deleted, so that file and remaining
//! frames together always tell of every slot. It is sealed with a checksum; that of a release before is not.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use evenkeel_log::{private, sealed};
use evenkeel_proto::v1;
use prost::Message;

/// File name within the epoch's directory.
const FILE: &str = "slots";

/// One slot.
#[derive(Debug, Clone, PartialEq)]
struct AnnouncedSlot {
    /// Its announcement, encoded: a third of the memory of the message.
    announcement: Box<[u8]>,
    /// Sequence number of the frame it ended with.
    gone: Option<u64>,
}

/// All slots of an epoch that a frame still to be sent may speak of.
#[derive(Debug)]
pub(super) struct AnnouncedSlots {
    path: PathBuf,
    slots: BTreeMap<u32, AnnouncedSlot>,
    /// The file does not tell of all of them.
    dirty: bool,
    /// The file was not as it was written.
    damaged: bool,
}

impl AnnouncedSlots {
    /// The slots as the file has them; none without a file, or where it is damaged.
    pub(super) fn open(dir: &Path) -> Self {
        let path = dir.join(FILE);
        let (mut slots, mut damaged) = (BTreeMap::new(), false);
        match private::read(&path) {
            Ok(bytes) => match sealed::body(&bytes) {
                sealed::Body::Whole(mut rest) | sealed::Body::Unsealed(mut rest) => {
                    while !rest.is_empty() && !damaged {
                        match v1::Frame::decode_length_delimited(&mut rest) {
                            Ok(frame) => insert(&mut slots, &frame),
                            Err(_) => damaged = true,
                        }
                    }
                }
                sealed::Body::Damaged => damaged = true,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %path.display(), %error, "known slots cannot be read"),
        }
        Self { path, slots, dirty: false, damaged }
    }

    /// Whether the file was there and not as it was written.
    pub(super) const fn damaged(&self) -> bool {
        self.damaged
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
        self.save()
    }

    /// Takes over the slots of an epoch whose frames are numbered lower by `shift` here.
    pub(super) fn adopt(&mut self, other: &Self, shift: u64) {
        let living = other.slots.iter().filter(|(_, slot)| slot.gone.is_none_or(|gone| gone > shift));
        self.slots = living
            .map(|(number, slot)| {
                (*number, AnnouncedSlot { gone: slot.gone.map(|gone| gone - shift), ..slot.clone() })
            })
            .collect();
        self.dirty = true;
    }

    /// Writes the file.
    pub(super) fn save(&mut self) -> io::Result<()> {
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
        private::replace(&self.path, &sealed::file(&bytes), false)?;
        self.dirty = false;
        Ok(())
    }

    /// Announcements of every slot.
    pub(super) fn all(&self) -> Vec<v1::Announcement> {
        self.slots.values().filter_map(|slot| v1::Announcement::decode(&*slot.announcement).ok()).collect()
    }
}

fn insert(slots: &mut BTreeMap<u32, AnnouncedSlot>, frame: &v1::Frame) {
    for announcement in &frame.announced {
        let bytes = announcement.encode_to_vec().into_boxed_slice();
        // Announced again, it asks for something else.
        let gone = slots.get(&announcement.slot).and_then(|slot| slot.gone);
        slots.insert(announcement.slot, AnnouncedSlot { announcement: bytes, gone });
    }
    for slot in &frame.gone {
        if let Some(slot) = slots.get_mut(slot) {
            slot.gone = Some(frame.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(sequence: u64, slot: u32) -> v1::Frame {
        let announced = vec![v1::Announcement { slot, ..v1::Announcement::default() }];
        v1::Frame { sequence, announced, ..v1::Frame::default() }
    }

    #[test]
    fn damage_is_noticed_and_a_file_without_checksum_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        let mut slots = AnnouncedSlots::open(dir.path());
        slots.learn(&frame(1, 7));
        slots.learn(&frame(2, 8));
        slots.save_before_trim(2).unwrap();
        let whole = std::fs::read(&file).unwrap();
        assert_eq!(
            (AnnouncedSlots::open(dir.path()).all().len(), AnnouncedSlots::open(dir.path()).damaged()),
            (2, false)
        );
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << (at % 8);
            for bytes in [&flipped[..], &whole[..at]] {
                std::fs::write(&file, bytes).unwrap();
                assert!(AnnouncedSlots::open(dir.path()).damaged(), "at {at}");
            }
        }
        let old: Vec<u8> = [frame(1, 7), frame(2, 8)]
            .iter()
            .flat_map(|frame| frame.encode_length_delimited_to_vec())
            .collect();
        std::fs::write(&file, old).unwrap();
        let old = AnnouncedSlots::open(dir.path());
        assert_eq!((old.all().len(), old.damaged()), (2, false));
    }
}
