//! `[parts]`: the processes that the agent is made of.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::check::Checker;
use crate::parts::starter::UID as STARTER;

/// Users of the machine's own begin above the system's; what is beyond is the starter and nobody.
const UIDS: (u32, u32) = (1, STARTER - 1);

section! {
    /// The processes that the agent is made of.
    Parts {
        /// "one-process": all rights in one. "three-processes": what has the network (addresses, streams to recommenders) and what talks
        /// with container runtimes are processes of their own, and so is what reads manifests and units, each as a user of its own and without a
        /// capability. Needs CAP_SETUID and CAP_SETGID at start.
        mode: PartsMode = PartsMode::OneProcess,
        /// User and group of the process that has the network, by number. Nothing else on the machine should run as it.
        network_uid: u32 = 65_530,
        /// User and group of the process that talks with runtimes.
        runtime_uid: u32 = 65_531,
        /// User and group of the process that reads manifests and units.
        reader_uid: u32 = 65_532,
        /// Whether the processes run where the kernel or a sandbox takes no filters of system calls (seccomp); otherwise the agent ends.
        allow_unconfined: bool = false,
        /// Cgroups, such as "/kata", below which a container of a runtime may have an id of any form and a cgroup that is not named by it.
        /// Elsewhere what the process that talks with runtimes finds is a container only by its id.
        runtime_cgroups: Vec<String> = Vec::new(),
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartsRules {
    /// How many processes.
    pub mode: PartsMode,
    /// User and group of the network's part.
    pub network_uid: u32,
    /// User and group of the runtime's part.
    pub runtime_uid: u32,
    /// User and group of the reader.
    pub reader_uid: u32,
    /// Whether they run without filters where there are none.
    pub allow_unconfined: bool,
    /// Subtrees whose cgroups need not be named by ids.
    pub runtime_cgroups: Vec<String>,
}

/// Everybody's, or users': a container there is told by its id or not at all.
const OTHERS: [&str; 5] = ["", "/system.slice", "/user.slice", "/init.scope", "/machine.slice"];

/// Checks the section.
pub(in super::super) fn check(c: &mut Checker<'_>, raw: &Parts) -> PartsRules {
    let Parts { mode, network_uid, runtime_uid, reader_uid, allow_unconfined, ref runtime_cgroups } = *raw;
    let uids = [
        ("parts.network_uid", network_uid),
        ("parts.runtime_uid", runtime_uid),
        ("parts.reader_uid", reader_uid),
    ];
    for (at, (key, uid)) in uids.into_iter().enumerate() {
        if !(UIDS.0..=UIDS.1).contains(&uid) {
            let reason = format!("{uid} is outside {} to {}", UIDS.0, UIDS.1);
            c.fail(key, reason, "give the number of a user that runs nothing else");
        }
        if let Some((other, _)) = uids.iter().take(at).find(|(_, known)| *known == uid) {
            let reason = format!("{uid} is {other} too, so that each could reach the other");
            c.fail(key, reason, "give the number of another user");
        }
    }
    for path in runtime_cgroups {
        if let Some((why, remedy)) = why_not(path) {
            c.fail("parts.runtime_cgroups", format!("\"{path}\" {why}"), remedy);
        }
    }
    let runtime_cgroups = runtime_cgroups.iter().map(|path| path.trim_end_matches('/').to_owned()).collect();
    PartsRules { mode, network_uid, runtime_uid, reader_uid, allow_unconfined, runtime_cgroups }
}

fn why_not(path: &str) -> Option<(&'static str, &'static str)> {
    let named = path.trim_end_matches('/');
    let is_plain = path.starts_with('/')
        && named.split('/').skip(1).all(|part| !part.is_empty() && part != "." && part != "..");
    if !is_plain {
        return Some(("is not a cgroup path", "give a path below the cgroup root, such as \"/kata\""));
    }
    let is_others = OTHERS.contains(&named)
        || ["/user.slice/", "/init.scope/"].iter().any(|others| named.starts_with(others));
    is_others.then_some((
        "holds what is no container",
        "give the cgroup that the runtime makes for its containers",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cgroups_that_hold_nothing_but_containers_may_be_named() {
        for (path, is_good) in [
            ("/kata", true),
            ("/system.slice/kata.service/", true),
            ("/machine.slice/kata", true),
            ("", false),
            ("/", false),
            ("kata", false),
            ("/a/../b", false),
            ("/a//b", false),
            ("/system.slice", false),
            ("/system.slice/", false),
            ("/user.slice/user-1000.slice", false),
        ] {
            assert_eq!(why_not(path).is_none(), is_good, "{path}");
        }
    }
}
