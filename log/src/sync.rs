//! Group sync: one `fdatasync` for everything flushed so far, on any thread, while appending goes on.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use crate::disk::uninterrupted;
use crate::shared::SharedLog;
use crate::{LogError, Seq, segment};

/// Makes what the log has flushed durable. Cheap to clone, may be used from any thread, outlives the log harmlessly.
///
/// How often to call [`sync`](Self::sync) is the caller's choice: it costs about the same for one record as for a
/// thousand.
#[derive(Clone, Debug)]
pub struct SyncHandle {
    pub(crate) shared: Arc<SharedLog>,
}

impl SyncHandle {
    /// Syncs everything flushed before the call and returns the last durable record: everything up to it may be
    /// acknowledged. Records still in the writer's buffer are not included; see [`Log::flush`](crate::Log::flush).
    /// Costs nothing when there is nothing new.
    ///
    /// # Errors
    /// [`LogError::Poisoned`] when the sync fails or one has failed before. Nothing more becomes durable then.
    pub fn sync(&self) -> Result<Option<Seq>, LogError> {
        let shared = &*self.shared;
        let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
        shared.trusted()?;
        let (behind, created, names_behind, upto) = {
            let state = shared.state();
            let behind: Vec<_> = state
                .segments
                .iter()
                .filter(|s| s.is_behind())
                .filter_map(|s| s.file.clone().map(|file| (s.first, s.next, s.bytes, file)))
                .collect();
            let upto = state.segments.back().and_then(|s| s.next.prev());
            (behind, state.created, state.created > state.created_durable, upto)
        };
        for (first, _, _, file) in &behind {
            shared.still_in_place(file, *first)?;
            uninterrupted(|| shared.disk.sync_data(file))
                .map_err(|e| shared.poison(segment::path(&shared.dir, *first), e))?;
        }
        if names_behind {
            self.sync_names(created)?;
        }
        let mut state = shared.state();
        let active = state.segments.back().map(|s| s.first);
        for (first, next, bytes, _) in behind {
            // A segment trimmed meanwhile is no longer in the table.
            if let Ok(at) = state.segments.binary_search_by_key(&first, |s| s.first) {
                let s = &mut state.segments[at];
                (s.durable_next, s.durable_bytes) = (next, Some(bytes));
                if Some(first) != active && !s.is_behind() {
                    s.file = None;
                }
            }
        }
        shared.set_durable(upto);
        drop(state);
        Ok(shared.durable())
    }

    /// Makes the names of the first `created` new segments durable.
    pub(crate) fn sync_names(&self, created: u64) -> Result<(), LogError> {
        let shared = &*self.shared;
        let dir: PathBuf = shared.dir.clone();
        uninterrupted(|| shared.disk.sync_dir(&shared.dir_file)).map_err(|e| shared.poison(dir, e))?;
        let mut state = shared.state();
        state.created_durable = state.created_durable.max(created);
        Ok(())
    }

    /// The last record a sync would make durable now; more than [`durable`](Self::durable) when there is work to do.
    #[must_use]
    pub fn flushed(&self) -> Option<Seq> {
        self.shared.state().segments.back().and_then(|s| s.next.prev())
    }

    /// The last record known to be on the disk.
    #[must_use]
    pub fn durable(&self) -> Option<Seq> {
        self.shared.durable()
    }
}
