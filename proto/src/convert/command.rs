//! The hash that stands for a command: the words themselves never leave the node.

use sha2::{Digest, Sha256};

/// First 8 bytes of the SHA-256 over command and arguments; the words themselves never leave the node. `None`
/// where neither is given.
pub fn command_hash(command: &[String], args: &[String]) -> Option<u64> {
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
