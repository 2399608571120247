//! Damage of state files: what could not be read back, counted by file for log, status and metrics.
//!
//! Owned here: telling it. Not owned: the files and their checksums ([`evenkeel_log::sealed`]).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use crate::converge::board::NodeKnob;
use crate::shared::lock;

/// A kind of state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateFile {
    /// Originals of containers' knobs.
    Journal,
    /// Originals of the node's knobs.
    NodeJournal,
    /// What was set for a while.
    Transients,
    /// Recommended requests in force.
    Overlay,
    /// OOM kills already told.
    OomCounters,
    /// Manifests that were admitted.
    Admitted,
    /// Containers that spooled frames speak of.
    Slots,
    /// Seconds to look back at.
    Ring,
    /// What the API server said of the node's pods.
    Pods,
}

impl StateFile {
    const ALL: [Self; 9] = [
        Self::Journal,
        Self::NodeJournal,
        Self::Transients,
        Self::Overlay,
        Self::OomCounters,
        Self::Admitted,
        Self::Slots,
        Self::Ring,
        Self::Pods,
    ];

    /// Its name below the state directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal.jsonl",
            Self::NodeJournal => "node/journal.jsonl",
            Self::Transients => "transients.jsonl",
            Self::Overlay => "overlay.json",
            Self::OomCounters => "oom-counters",
            Self::Admitted => "admitted",
            Self::Slots => "spool/*/slots",
            Self::Ring => "ring/*",
            Self::Pods => "pods.json",
        }
    }

    /// What its damage means.
    const fn lost(self) -> &'static str {
        match self {
            Self::Journal | Self::NodeJournal => "restore does not know the originals they held",
            Self::Transients => "what they held may still be set",
            Self::Overlay => "requests that were asked for are in force until the recommender tells others",
            Self::OomCounters => "kills while no agent ran are not told",
            Self::Admitted => "manifests are admitted anew, by their names",
            Self::Slots => {
                "a recommender that lost its memory is not told which containers old frames are of"
            }
            Self::Ring => "top --at does not know the seconds behind the damage",
            Self::Pods => {
                "until the recommender or the kubelet tells them anew, requests are inverted from the runtime's record"
            }
        }
    }

    const fn remedy(self) -> &'static str {
        match self {
            Self::Journal | Self::NodeJournal => {
                "check the disk; compare the knobs of running containers by evenkeel describe, or restart them"
            }
            Self::Transients => "check the disk; look for frozen or throttled containers by evenkeel status",
            Self::Overlay => "check the disk; see evenkeel events --kind resize for what was in force",
            Self::OomCounters => "check the disk; the kernel's log has the kills",
            Self::Admitted => {
                "check the disk; compare what evenkeel status says of admission with what you expect"
            }
            Self::Slots => "check the disk; containers that still run are announced again",
            Self::Ring => "check the disk; new seconds are kept",
            Self::Pods => "check the disk; a recommender that can be reached tells them anew",
        }
    }
}

/// Entries that could not be read back, by file.
#[derive(Debug, Default)]
pub struct Damages(Mutex<BTreeMap<StateFile, u64>>);

impl Damages {
    /// Counts entries of a file that could not be read, and logs them. None is nothing to tell.
    pub fn take(&self, file: StateFile, path: &Path, entries: usize) {
        if entries == 0 {
            return;
        }
        *lock(&self.0).entry(file).or_default() += entries as u64;
        let (lost, remedy) = (file.lost(), file.remedy());
        tracing::error!(path = %path.display(), entries, lost, remedy, "a state file is damaged; what can be read is used");
    }

    /// Every file with its count.
    pub fn counts(&self) -> impl Iterator<Item = (StateFile, u64)> {
        let counts = lock(&self.0).clone();
        StateFile::ALL.into_iter().map(move |file| (file, counts.get(&file).copied().unwrap_or(0)))
    }

    /// What status shows: a row for each damaged file.
    pub fn rows(&self) -> Vec<NodeKnob> {
        let damaged = self.counts().filter(|(_, entries)| *entries > 0);
        damaged
            .map(|(file, entries)| NodeKnob {
                name: file.name(),
                state: "damaged",
                why: format!("{entries} entries could not be read at start; {}", file.lost()),
                remedy: file.remedy().to_owned(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_by_file_and_shown() {
        let damages = Damages::default();
        damages.take(StateFile::Journal, Path::new("j"), 0);
        assert!(damages.rows().is_empty());
        damages.take(StateFile::Transients, Path::new("t"), 2);
        damages.take(StateFile::Transients, Path::new("t"), 1);
        let rows = damages.rows();
        assert_eq!((rows.len(), rows[0].name, rows[0].state), (1, "transients.jsonl", "damaged"));
        assert!(rows[0].why.starts_with("3 entries"), "{}", rows[0].why);
    }
}
