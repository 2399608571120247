//! What the panic switch does, in the words that status, command line, log and events share.
//!
//! Owned here: the words and the choice between the two. Not owned: who sets the switch (the recommender) and who carries
//! it out (the agent).

use serde::{Deserialize, Serialize};

/// Bytes of the reason of a switch, as far as it is kept and told.
pub const MAX_REASON: usize = 1024;

/// A reason as it is kept: cut at [`MAX_REASON`] bytes. The switch holds whatever its reason is.
#[must_use]
pub fn reason(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_REASON));
    text
}

/// How the panic switch is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Panic {
    /// Policies are carried out.
    Off,
    /// Nothing is changed: running containers keep the requests in force.
    Freeze,
    /// Running containers get back the requests that were asked for.
    Revert,
}

impl Panic {
    /// From the two fields of the wire; `revert` alone says nothing.
    pub const fn of(on: bool, revert: bool) -> Self {
        match (on, revert) {
            (false, _) => Self::Off,
            (true, false) => Self::Freeze,
            (true, true) => Self::Revert,
        }
    }

    /// Whether the switch is on.
    pub const fn is_on(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// What that means for whoever reads it.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Off => "policies are carried out",
            Self::Freeze => {
                "recommendations change nothing, running containers keep the requests in force, classes are enforced"
            }
            Self::Revert => {
                "recommendations change nothing, running containers get back the requests that were asked for, step by \
                 step, classes are enforced"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        for (given, kept) in
            [("ü".repeat(600_000), MAX_REASON), (format!("a{}", "ü".repeat(600)), MAX_REASON - 1)]
        {
            assert_eq!(reason(given.clone()), given[..kept]);
        }
        assert_eq!(reason("drill".to_owned()), "drill");
    }

    #[test]
    fn revert_means_something_only_while_the_switch_is_on() {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let got = all.map(|(on, revert)| Panic::of(on, revert));
        assert_eq!(got, [Panic::Off, Panic::Off, Panic::Freeze, Panic::Revert]);
        assert_eq!(got.map(Panic::is_on), [false, false, true, true]);
        assert!(Panic::Freeze.meaning().contains("keep the requests in force"));
    }
}
