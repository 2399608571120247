//! What status says of the agent's own processes: what the kernel says of each, not what they say.

use evenkeel_enforce::shared::lock;
use evenkeel_host::caps::UsableCapability;
use evenkeel_proto::v1::PartStatus;
use procfs::process::Process;

use super::Part;
use super::keeper::PartsView;
use crate::config::sections::parts::PartsMode;

/// Every process.
pub(crate) fn all(mode: PartsMode, view: &PartsView) -> Vec<PartStatus> {
    let own = part(Part::Enforcing, std::process::id());
    if mode == PartsMode::OneProcess {
        return vec![PartStatus { name: "agent".to_owned(), ..own }];
    }
    let of = |which: Part| {
        let state = lock(view).get(&which).cloned().unwrap_or_default();
        let away = PartStatus { name: which.name().to_owned(), ..PartStatus::default() };
        let (restarts, ended) = (state.restarts, state.ended.unwrap_or_default());
        PartStatus { restarts, ended, ..state.pid.map_or(away, |pid| part(which, pid)) }
    };
    let mut parts = vec![own, of(Part::Network), of(Part::Runtime)];
    // There is none where there is nothing for it to read.
    if lock(view).contains_key(&Part::Reader) {
        parts.push(of(Part::Reader));
    }
    parts
}

fn part(part: Part, pid: u32) -> PartStatus {
    let mut told = PartStatus { name: part.name().to_owned(), pid, ..PartStatus::default() };
    let process = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok());
    // One that has just ended is nobody's any more.
    if let Some(status) = process.and_then(|process| process.status().ok()) {
        told.uid = status.euid;
        told.capabilities = UsableCapability::of_mask(status.capeff);
        told.no_new_privs = status.nonewprivs == Some(1);
        told.seccomp = status.seccomp == Some(2);
    }
    told
}
