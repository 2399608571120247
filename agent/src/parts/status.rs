//! What status says of the agent's own processes: what the kernel says of each, not what they say.

use evenkeel_enforce::shared::lock;
use evenkeel_host::caps::Held;
use evenkeel_proto::v1::PartStatus;
use procfs::process::Process;

use super::Part;
use super::keeper::NetworkView;
use crate::config::sections::parts::PartsMode;

/// Every process.
pub(crate) fn all(mode: PartsMode, network: &NetworkView) -> Vec<PartStatus> {
    let own = part(Part::Enforcing, std::process::id());
    if mode == PartsMode::OneProcess {
        return vec![own];
    }
    let state = lock(network).clone();
    let there = state.pid.map(|pid| part(Part::Network, pid));
    let away = PartStatus { name: Part::Network.name().to_owned(), ..PartStatus::default() };
    let (restarts, ended) = (state.restarts, state.ended.unwrap_or_default());
    vec![own, PartStatus { restarts, ended, ..there.unwrap_or(away) }]
}

/// Processes beside this one.
pub(crate) fn others(network: &NetworkView) -> Vec<(Part, u32)> {
    lock(network).pid.map(|pid| (Part::Network, pid)).into_iter().collect()
}

fn part(part: Part, pid: u32) -> PartStatus {
    let mut told = PartStatus { name: part.name().to_owned(), pid, ..PartStatus::default() };
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    // One that has just ended is nobody's any more.
    if let Some(status) = process.and_then(|process| process.status().ok()) {
        told.uid = status.euid;
        told.capabilities = Held::of_mask(status.capeff);
        told.no_new_privs = status.nonewprivs == Some(1);
        told.seccomp = status.seccomp == Some(2);
    }
    told
}
