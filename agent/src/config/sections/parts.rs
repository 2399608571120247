//! `[parts]`: the processes that the agent is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;

/// Users of the machine's own begin above the system's; what is beyond is nobody.
const UIDS: (u32, u32) = (1, 65_533);

section! {
    /// The processes that the agent is made of.
    Parts {
        /// "one-process": all rights in one. "three-processes": what has the network (addresses, streams to recommenders) and what talks
        /// with container runtimes are processes of their own, each as a user of its own and without a capability. Needs CAP_SETUID
        /// and CAP_SETGID at start.
        mode: PartsMode = PartsMode::OneProcess,
        /// User and group of the process that has the network, by number. Nothing else on the machine should run as it.
        network_uid: u32 = 65_530,
        /// User and group of the process that talks with runtimes.
        runtime_uid: u32 = 65_531,
    }
}

/// How many processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PartsMode {
    /// All in one.
    OneProcess,
    /// The network and the runtimes apart.
    ThreeProcesses,
}

impl PartsMode {
    /// As the configuration names it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::OneProcess => "one-process",
            Self::ThreeProcesses => "three-processes",
        }
    }
}

/// The valid section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartsRules {
    /// How many processes.
    pub mode: PartsMode,
    /// User and group of the network's part.
    pub network_uid: u32,
    /// User and group of the runtime's part.
    pub runtime_uid: u32,
}

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Parts, asks_kubelet: bool) -> PartsRules {
    let Parts { mode, network_uid, runtime_uid } = *raw;
    for (key, uid) in [("parts.network_uid", network_uid), ("parts.runtime_uid", runtime_uid)] {
        if !(UIDS.0..=UIDS.1).contains(&uid) {
            let reason = format!("{uid} is outside {} to {}", UIDS.0, UIDS.1);
            c.fail(key, reason, "give the number of a user that runs nothing else");
        }
    }
    if network_uid == runtime_uid {
        let reason = format!("{runtime_uid} is parts.network_uid too, so that each could reach the other");
        c.fail("parts.runtime_uid", reason, "give the number of another user");
    }
    if mode == PartsMode::ThreeProcesses && asks_kubelet {
        let reason = "the kubelet is asked over the network, which only one process has then".to_owned();
        let remedy = "turn sources.kubelet off and have the recommender tell the node's pods, or set parts.mode = \"one-process\"";
        c.fail("sources.kubelet", reason, remedy);
    }
    PartsRules { mode, network_uid, runtime_uid }
}
