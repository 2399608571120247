//! What a container should request: usage in, requests out. Pure: no file, clock, thread or log.
//!
//! Owned here: the rules and their parameters, percentiles, risk. Not owned: where history is kept (the caller
//! answers as a [`history::History`]), files, who applies an answer.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod backtest;
pub mod evidence;
pub mod forecast;
pub mod goal;
pub mod histogram;
pub mod history;
pub mod initial;
pub mod named;
pub mod patch;
pub mod percentile;
pub mod policy;
pub mod rule;
mod units;
pub mod usage;
pub mod vpa;
pub mod window;

/// A resource a rule speaks about; fixes the unit of every plain number beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Millionths of a core in histories, rules and answers; thousandths where a name says so.
    Cpu,
    /// Bytes.
    Memory,
}

impl Resource {
    /// Both, in the order they are shown.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    /// Short resource name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }
}
