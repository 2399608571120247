//! Opening a container's files, and what that finds out.

use evenkeel_model::sample::Field;
use nix::errno::Errno;

use super::reader::{ContainerReader, Handle, OpenSource, SampleContext, bits};
use super::sources::SampledFile;
use crate::cgroup::CgroupDir;
use crate::error::{Category, HostError, HostOperation};
use crate::write::CgroupRef;

/// A reader and what was found on opening it.
#[derive(Debug)]
pub struct Opened {
    /// The reader.
    pub reader: ContainerReader,
    /// Fields this kernel or this cgroup does not give, to be said once.
    pub missing: Vec<Field>,
    /// Why some of them are missing, when it is not simply that there is no such file (`Denied`, `Io`).
    pub errors: Vec<HostError>,
}

impl ContainerReader {
    /// Opens every file of the cgroup at `path` that this machine has.
    ///
    /// # Errors
    /// `Gone` when the path exists in no hierarchy that is sampled.
    pub fn open(context: &SampleContext, path: &str) -> Result<Opened, HostError> {
        let dirs = context.tree.dirs(path)?;
        let places: Vec<CgroupRef> = dirs.iter().map(|d| d.at().clone()).collect();
        let kept = context.descriptors.take(context.sources.len() as u64);
        let reader = Self::empty(places, kept);
        let mut opened = Opened { reader, missing: Vec::new(), errors: Vec::new() };
        for &(source, hierarchy) in &context.sources {
            let place = dirs.iter().position(|d| d.at().hierarchy == hierarchy);
            opened.add(source, place.map(|i| (i, &dirs[i])))?;
        }
        opened.settle();
        Ok(opened)
    }
}

impl Opened {
    fn add(&mut self, source: SampledFile, place: Option<(usize, &CgroupDir)>) -> Result<(), HostError> {
        let Some((place, dir)) = place else {
            return Ok(());
        };
        let fd = match dir.open_file(source.file()) {
            Ok(fd) => fd,
            Err(Errno::EMFILE | Errno::ENFILE) => {
                // Somebody else used up the descriptors. Give all of ours back; `settle` closes them.
                self.reader.kept = None;
                self.reader.slots.push(OpenSource { source, place, handle: Handle::Reopen });
                return Ok(());
            }
            Err(errno) => {
                let error = dir.error(HostOperation::Open, source.file(), errno);
                if error.is_gone() {
                    return Err(error);
                }
                if error.category() != Category::Unsupported {
                    self.errors.push(error);
                }
                return Ok(());
            }
        };
        let handle = if self.reader.kept.is_some() { Handle::Kept(fd) } else { Handle::Reopen };
        self.reader.slots.push(OpenSource { source, place, handle });
        Ok(())
    }

    /// Makes the books agree with what was opened.
    fn settle(&mut self) {
        let reader = &mut self.reader;
        match &mut reader.kept {
            Some(kept) => kept.shrink_to(reader.slots.len() as u64),
            None => reader.slots.iter_mut().for_each(|s| s.handle = Handle::Reopen),
        }
        let given: u16 = reader.slots.iter().fold(0, |all, s| all | bits(s.source.fields()));
        self.missing = Field::ALL.into_iter().filter(|f| given & (1 << f.index()) == 0).collect();
    }
}
