//! What each part may ask of the kernel: a seccomp filter, Landlock as far as the kernel has it, no new rights by programs, no dump.
//!
//! Owned here: the rules of each part, and setting them. They are set before any thread starts, and hold for all that come later. Not
//! owned: capabilities and users, which a part is started with ([`super::starter`]).
//!
//! Owned in [`filters`] and [`calls`]: which calls.

mod calls;
mod filters;

use std::path::PathBuf;

use anyhow::Context as _;
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, LandlockStatus, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope, path_beneath_rules,
};

use super::{Given, Part};

/// What the network's part may read: what names are resolved with, and the libraries that do so.
const NETWORK_READS: [&str; 12] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
];

/// Where units' files are, which the reader reads as its user may.
const UNIT_FILES: [&str; 5] =
    ["/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd"];

/// Confines this process for good; must be called before any thread starts.
///
/// # Errors
/// Where the kernel filters no calls, unless that is allowed. Files are kept from a part by its user too, so that a kernel without Landlock
/// is told of and lived with.
pub(crate) fn confine(part: Part, given: &Given) -> anyhow::Result<()> {
    no_dump();
    let reads = match part {
        Part::Network => Some(NETWORK_READS.iter().map(PathBuf::from).collect()),
        Part::Runtime => Some(given.readable.clone()),
        Part::Reader => {
            Some(UNIT_FILES.iter().map(PathBuf::from).chain(given.readable.iter().cloned()).collect())
        }
        Part::Connector => Some(Vec::new()),
        // Both reach files of others, and Landlock would deny the looks at other processes that the first one needs.
        Part::Enforcing | Part::Starter => None,
    };
    if let Some(Err(error)) = reads.map(landlock) {
        let lack = format!("{error:#}");
        tracing::warn!(part = part.name(), lack, "a confinement is not to be had");
    }
    unless_allowed(part, filters::set(part), given.allow_unconfined)
}

/// What becomes of a part whose filter could not be had.
fn unless_allowed(part: Part, filtered: anyhow::Result<()>, is_allowed: bool) -> anyhow::Result<()> {
    match filtered {
        Err(error) if is_allowed => {
            let lack = format!("{error:#}");
            tracing::warn!(part = part.name(), lack, "the part runs without a filter (parts.allow_unconfined)");
            Ok(())
        }
        filtered => filtered.with_context(|| {
            format!(
                "the {} part cannot be confined: give the agent a kernel and a sandbox that take filters (CONFIG_SECCOMP_FILTER), set \
                 parts.mode = \"one-process\", or parts.allow_unconfined = true to run without",
                part.name()
            )
        }),
    }
}

/// Why files and other processes are not kept from the parts by Landlock; `None` where they are. Tried in a thread, which alone is confined.
pub(crate) fn landlock_lacks() -> Option<String> {
    let tried = std::thread::Builder::new().name("landlock".to_owned()).spawn(|| landlock(Vec::new()));
    let tried = tried
        .map_err(anyhow::Error::from)
        .and_then(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("it was tried in vain"))));
    tried.err().map(|error| format!("{error:#}"))
}

/// No other process of this user may look into this one, and it leaves no memory behind on disk (PR_SET_DUMPABLE).
pub(crate) fn no_dump() {
    if let Err(errno) = nix::sys::prctl::set_dumpable(false) {
        tracing::debug!(%errno, "ignoring: the process stays dumpable");
    }
}

/// Files that are not named cannot be opened, nor other sockets and processes be reached past the network.
fn landlock(reads: Vec<PathBuf>) -> anyhow::Result<()> {
    let all = ABI::V6;
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(all))
        .and_then(|rules| rules.scope(Scope::from_all(all)))
        .and_then(Ruleset::create)
        .and_then(|rules| rules.add_rules(path_beneath_rules(reads, AccessFs::from_read(all))))
        .and_then(landlock::RulesetCreated::restrict_self)
        .context("Landlock")?;
    match status.landlock {
        LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => {
            anyhow::bail!(
                "Landlock: this kernel has none, so that files are kept from the part by its user alone"
            )
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_without_a_filter_does_not_run_unless_that_is_allowed() {
        let none = || Err(anyhow::anyhow!("Invalid argument (os error 22)"));
        let said = format!("{:#}", unless_allowed(Part::Network, none(), false).unwrap_err());
        assert!(said.contains("parts.allow_unconfined") && said.contains("os error 22"), "{said}");
        assert!(unless_allowed(Part::Network, none(), true).is_ok());
        assert!(unless_allowed(Part::Network, Ok(()), false).is_ok());
    }
}
