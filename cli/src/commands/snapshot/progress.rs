//! What is told of a snapshot while it is taken.

use std::io::{Write, stderr};

use super::{Saved, warn};

/// What is missing, beside an answer that goes to standard output.
pub(super) fn tell_missing(saved: &Saved) {
    for kind in &saved.kinds {
        if let (Some(why), Some(cost)) = (&kind.missing, kind.cost) {
            warn(&format!("without {} ({why}): {cost}", kind.kind));
        }
    }
}

/// Says on a terminal how far a long list is.
pub(super) struct Progress {
    pub(super) on: bool,
}

impl Progress {
    pub(super) fn tell(&self, kind: &str, objects: u64) {
        if self.on {
            // Nobody needs a word about progress that cannot be shown.
            let _ = write!(stderr(), "\r{kind}: {objects}\u{1b}[K");
        }
    }

    pub(super) fn end(&self) {
        if self.on {
            let _ = write!(stderr(), "\r\u{1b}[K");
        }
    }
}
