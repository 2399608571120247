//! `[sources.systemd]`: units as containers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;

section! {
    /// systemd's services and slices with an `[X-Evenkeel]` section, over the system bus.
    Systemd {
        /// "auto": where the first process is systemd, silently without a bus. true: a bus that is missing is reported.
        /// false: units are not asked for; those that manifests name are still found by their cgroups.
        enabled: Enabled = Enabled::Auto,
        /// Slices such as "system.slice" whose services are sampled also when they say nothing about themselves.
        slices: Vec<String> = Vec::new(),
    }
}

/// Whether units are asked for: a boolean, or the word "auto".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub(crate) enum Enabled {
    /// Where systemd is.
    Auto,
    /// Everywhere; missing is a problem.
    Yes,
    /// Nowhere.
    No,
}

/// [`Enabled`] as written.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false or \"auto\"")]
enum Written {
    /// True or false.
    Switch(bool),
    /// A word.
    Word(Word),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Word {
    /// Where systemd is.
    Auto,
    /// As `true`, by people who put all three in quotes.
    True,
    /// As `false`.
    False,
}

impl From<Written> for Enabled {
    fn from(written: Written) -> Self {
        match written {
            Written::Switch(true) | Written::Word(Word::True) => Self::Yes,
            Written::Switch(false) | Written::Word(Word::False) => Self::No,
            Written::Word(Word::Auto) => Self::Auto,
        }
    }
}

impl From<Enabled> for Written {
    fn from(enabled: Enabled) -> Self {
        match enabled {
            Enabled::Auto => Self::Word(Word::Auto),
            Enabled::Yes => Self::Switch(true),
            Enabled::No => Self::Switch(false),
        }
    }
}

/// The valid section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Units {
    /// Whether units are asked for.
    pub enabled: Enabled,
    /// Slices whose services are all sampled.
    pub slices: Vec<String>,
}

/// Checks the names of slices.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Systemd) -> Units {
    for slice in &raw.slices {
        let stem = slice.strip_suffix(".slice").unwrap_or_default();
        let fits = !stem.is_empty() && stem.split('-').all(|part| !part.is_empty() && !part.contains('/'));
        if !fits {
            let reason = format!("\"{slice}\" is not the name of a slice");
            c.fail("sources.systemd.slices", reason, "give one such as \"system.slice\"");
        }
    }
    Units { enabled: raw.enabled, slices: raw.slices.clone() }
}
