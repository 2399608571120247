//! How it stands with each kind that is followed, for status and metrics.

use std::time::{Duration, Instant};

use crate::kinds::ApiKind;

/// How it stands with a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchState {
    /// It was not listed yet.
    Listing,
    /// What is known is up to date: changes arrive.
    Watching,
    /// The last attempt failed; what is known is of before.
    Failing,
    /// Who asks may not see it.
    Forbidden,
    /// The API server does not have the kind.
    Absent,
}

impl WatchState {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Listing => "listing",
            Self::Watching => "watching",
            Self::Failing => "failing",
            Self::Forbidden => "forbidden",
            Self::Absent => "absent",
        }
    }
}

/// What happened with a kind since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WatchCounts {
    /// Lists that came whole.
    pub lists: u64,
    /// Watches that were begun.
    pub watches: u64,
    /// Objects added, changed or deleted.
    pub changes: u64,
    /// Bookmarks.
    pub bookmarks: u64,
    /// Lists and watches that had to begin anew because their version is gone (410).
    pub expired: u64,
    /// Answers "later" (429).
    pub throttled: u64,
    /// Other attempts that failed.
    pub failures: u64,
    /// Objects that could not be understood.
    pub unreadable: u64,
}

/// How it stands with one kind.
#[derive(Debug, Clone)]
pub struct KindStatus {
    /// Which.
    pub kind: &'static ApiKind,
    /// How.
    pub state: WatchState,
    /// All of its objects are known, at least as of before.
    pub is_known: bool,
    /// Objects known.
    pub objects: usize,
    /// What happened.
    pub counts: WatchCounts,
    /// What went wrong last, in the words of who said it.
    pub trouble: Option<String>,
    heard: Option<Instant>,
}

impl KindStatus {
    pub(crate) fn new(kind: &'static ApiKind) -> Self {
        Self {
            kind,
            state: WatchState::Listing,
            is_known: false,
            objects: 0,
            counts: WatchCounts::default(),
            trouble: None,
            heard: None,
        }
    }

    /// How long ago the API server said something about it; `None` before it did.
    #[must_use]
    pub fn heard_ago(&self) -> Option<Duration> {
        self.heard.map(|at| at.elapsed())
    }

    pub(crate) fn heard(&mut self) {
        self.heard = Some(Instant::now());
    }
}
