//! What is chosen of the node as a whole: its daemons, overcommit, the cap of all workloads.

use std::path::PathBuf;

use evenkeel_model::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A program as the configuration names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// By the path of its file.
    Path(PathBuf),
    /// By the name of its file.
    Name(String),
}

/// What the node cannot live without, and how it is found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DaemonRules {
    /// systemd units; nothing is looked for where all three lists are empty.
    pub units: Vec<String>,
    /// Cgroup paths.
    pub cgroups: Vec<String>,
    /// Programs.
    pub programs: Vec<Program>,
    /// Whether anything is protected, the agent itself included.
    pub enabled: bool,
}

/// What is done about `vm.overcommit_memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Overcommit {
    /// Another value than 1 is reported.
    Check,
    /// It is set to 1, and put back by `evenkeel-agent restore`.
    Set,
    /// Nobody looks.
    Off,
}

/// The cap, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapRules {
    /// Path of the cgroup, without a slash at its end.
    pub cgroup: String,
    /// Memory kept until more is known.
    pub reserve: Bytes,
    /// Percent on top of what is measured.
    pub margin_percent: u16,
}

/// What a node's memory is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeMemory {
    /// `vm.overcommit_memory`.
    pub overcommit: Overcommit,
    /// The cap; `None` = off.
    pub cap: Option<CapRules>,
}
