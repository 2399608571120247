//! Owns the ways in which an engine fails, told apart by what is to be done about them.

use std::time::Duration;

use crate::history::exchange::EngineError;

/// Why an engine did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EngineFailure {
    /// Nobody answers, the answer broke off, or it says that the engine itself failed. Tried again.
    #[error("the engine does not answer: {what}")]
    Down {
        /// What was seen.
        what: String,
    },
    /// No answer in time. Tried again; questions are made smaller.
    #[error("the engine is too slow: {what}")]
    Slow {
        /// What was seen.
        what: String,
    },
    /// It takes nothing now (408, 429, 503, 507). Tried again, not before `wait`.
    #[error("the engine takes nothing now: {what}")]
    Busy {
        /// What it said.
        what: String,
        /// How long it wants to be left alone.
        wait: Option<Duration>,
    },
    /// The request is too large (413). Cut in two.
    #[error("the engine finds the request too large: {what}")]
    TooLarge {
        /// What it said.
        what: String,
    },
    /// The answer is longer than allowed. Questions are made smaller.
    #[error("the engine's answer is longer than max_answer")]
    TooLong,
    /// What was sent or asked is refused (400, 409, 422), and would be refused again.
    #[error("the engine refuses: {what}")]
    Refused {
        /// What it said.
        what: String,
    },
    /// Another status: a login that is not accepted, a path that is not there, a redirect. Tried again at the longest
    /// pause, since only a person can mend it.
    #[error("the engine does not let us do this; look at url, headers and login: {what}")]
    Misdirected {
        /// What it said.
        what: String,
    },
    /// The answer is not what the engine's documentation promises. Tried again.
    #[error("the engine's answer makes no sense: {what}")]
    Malformed {
        /// What is wrong with it.
        what: String,
    },
}

impl EngineFailure {
    /// What the seam knows of it.
    pub(crate) fn of(self, engine: &str) -> EngineError {
        let (engine, what) = (engine.to_owned(), self.to_string());
        match self {
            Self::Down { .. }
            | Self::Slow { .. }
            | Self::Busy { .. }
            | Self::Misdirected { .. }
            | Self::Malformed { .. } => EngineError::Unavailable { engine, what },
            Self::TooLarge { .. } | Self::TooLong | Self::Refused { .. } => EngineError::Refused {
                engine,
                what,
                remedy: "look at the engine's limits and at max_answer".into(),
            },
        }
    }

    /// Whether a smaller question may be answered.
    pub(crate) const fn asks_for_less(&self) -> bool {
        matches!(self, Self::Slow { .. } | Self::TooLong | Self::TooLarge { .. } | Self::Refused { .. })
    }
}
