//! Whether what a knob holds has its effect where it is.

use super::board::Trouble;

/// Why a value that stands has no effect, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ineffective {
    /// The ancestor that takes it away.
    pub(super) by: String,
    /// What takes effect, in words.
    pub(super) what: String,
    /// What a person can do.
    pub(super) remedy: String,
    /// When it was seen first, microseconds since 1970.
    pub(super) since_usec: u64,
    /// Looks that found it so.
    pub(super) count: u32,
}

impl Ineffective {
    /// The sentence status and the decision log show.
    pub(super) fn reason(&self) -> String {
        format!("{} by {}; {}", self.what, self.by, self.remedy)
    }

    /// As status shows it.
    pub(super) fn trouble(&self) -> Trouble {
        Trouble {
            count: self.count,
            since_usec: self.since_usec,
            by: self.by.clone(),
            remedy: self.remedy.clone(),
        }
    }
}
