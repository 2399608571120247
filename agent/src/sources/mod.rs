//! Where containers come from. Each source is a task that sends complete snapshots of what it sees.
//!
//! Owned here: reading manifests, the CRI and cgroup names into [`Workload`](evenkeel_model::workload::Workload)s.
//! Not owned: merging sources, exclusion by configuration, anything about cgroup files. A source never writes.

mod annotations;
pub(crate) mod cri;
pub(crate) mod manifests;
pub(crate) mod names;
mod slices;
pub(crate) mod systemd;

use std::time::Duration;

use sha2::{Digest, Sha256};

/// Waits until the cgroup tree changed or the period is over, and then a little longer, so that a burst of
/// changes costs one listing.
async fn wait(notified: impl Future<Output = ()>, period: Duration) {
    if tokio::time::timeout(period, notified).await.is_ok() {
        tokio::time::sleep(SETTLE).await;
    }
}

/// A runtime makes a container's cgroup shortly before it reports it as running: 25 to 115 ms on containerd 1.6.
/// A tenth of that is enough to gather the directories of one container.
const SETTLE: Duration = Duration::from_millis(10);

/// First 8 bytes of the SHA-256 over command and arguments; the words themselves never leave the node. `None`
/// where neither is given.
fn command_hash(command: &[String], args: &[String]) -> Option<u64> {
    if command.is_empty() && args.is_empty() {
        return None;
    }
    let mut hash = Sha256::new();
    for (kind, words) in [(b"c", command), (b"a", args)] {
        for word in words {
            hash.update(kind);
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        }
    }
    let digest = hash.finalize();
    let first: [u8; 8] = digest.get(..8)?.try_into().ok()?;
    Some(u64::from_be_bytes(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_command_from_arguments_and_word_from_word() {
        let words = |w: &[&str]| w.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let hashes = [
            command_hash(&words(&["ab"]), &[]),
            command_hash(&words(&["a", "b"]), &[]),
            command_hash(&[], &words(&["ab"])),
            command_hash(&words(&["a"]), &words(&["b"])),
        ];
        for (i, a) in hashes.iter().enumerate() {
            assert!(a.is_some());
            assert!(hashes.iter().skip(i + 1).all(|b| a != b));
        }
        assert_eq!(command_hash(&[], &[]), None);
    }
}
