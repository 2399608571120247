//! File descriptors kept back for a program's own files.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::gate::Limits;

/// Raises the limit of descriptors as far as it may be raised, and lowers the limits of listeners, all in the same
/// proportion, until `kept` descriptors are left when they are full. Says what it lowered.
pub fn keep_back<const N: usize>(kept: usize, wanted: [Limits; N]) -> [Limits; N] {
    let limit = raised();
    let fitting = fitting(limit, kept, wanted);
    if fitting != wanted {
        let shown = |limits: [Limits; N]| limits.map(|l| l.connections);
        tracing::warn!(
            descriptors = limit, kept, wanted = ?shown(wanted), allowed = ?shown(fitting),
            "fewer connections than configured are let in; raise LimitNOFILE (ulimit -n)"
        );
    }
    fitting
}

fn raised() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return usize::MAX };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::debug!(%error, "ignoring: the limit of descriptors stays as it is");
            soft
        }
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

fn fitting<const N: usize>(limit: usize, kept: usize, wanted: [Limits; N]) -> [Limits; N] {
    let room = limit.saturating_sub(kept);
    let all: usize = wanted.iter().map(|l| l.connections).sum();
    if all <= room {
        return wanted;
    }
    wanted.map(|limits| {
        let part = |count: usize| {
            let part = count as u128 * room as u128 / all.max(1) as u128;
            usize::try_from(part).unwrap_or(usize::MAX).max(1)
        };
        let connections = part(limits.connections);
        Limits { connections, per_peer: limits.per_peer.min(connections) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_share_what_is_left_in_proportion() {
        let limits = |connections, per_peer| Limits { connections, per_peer };
        for (limit, kept, want) in [
            (20_000, 1000, [limits(9000, 9000), limits(1000, 100)]),
            (6000, 1000, [limits(4500, 4500), limits(500, 100)]),
            (1100, 1000, [limits(90, 90), limits(10, 10)]),
            (10, 1000, [limits(1, 1), limits(1, 1)]),
        ] {
            assert_eq!(fitting(limit, kept, [limits(9000, 9000), limits(1000, 100)]), want, "{limit}");
        }
    }
}
