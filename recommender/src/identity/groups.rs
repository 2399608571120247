//! Users of this machine: what the kernel's word for a peer entitles it to.
//!
//! The user database says who is in a group, not the process: membership holds from the moment it is given, and whoever
//! is taken out of a group loses it within [`FRESH`]. A service that is in a group by its unit alone (`Group=`) has it as
//! its own group, which counts, too.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Group, Uid, User, geteuid};

use super::recent::Recent;
use super::{Grant, Role};

/// How long an answer of the user database is kept.
const FRESH: Duration = Duration::from_secs(10);
/// Users remembered; the one asked about longest ago makes way.
const MAX_USERS: usize = 1024;
/// Users and groups that the kernel cannot name here, such as those outside of a user namespace (user_namespaces(7)):
/// whoever they are, they are nobody.
const OVERFLOW: u32 = 65_534;

/// The groups that may ask over the Unix socket.
#[derive(Debug)]
pub(super) struct Groups {
    own: u32,
    read: String,
    change: String,
    known: Mutex<Recent<(u32, u32), (Instant, Grant)>>,
}

impl Groups {
    /// By the names of the configuration; empty for no such group.
    pub(super) fn new(read: &str, change: &str) -> Self {
        let (read, change) = (read.to_owned(), change.to_owned());
        Self { own: geteuid().as_raw(), read, change, known: Mutex::new(Recent::new(MAX_USERS)) }
    }

    /// What a user may.
    pub(super) async fn grant(&self, uid: u32, gid: u32) -> Grant {
        if uid == OVERFLOW {
            return Grant::default();
        }
        if uid == 0 || uid == self.own {
            return Grant::all();
        }
        if let Some(grant) = self.known(uid, gid) {
            return grant;
        }
        let (read, change) = (self.read.clone(), self.change.clone());
        // The database may be elsewhere (nsswitch.conf(5)).
        let looked = tokio::task::spawn_blocking(move || looked_up(uid, gid, &read, &change)).await;
        let grant = looked.unwrap_or_default();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        *known.touch(&(uid, gid), now, || (now, Grant::default())) = (now, grant.clone());
        grant
    }

    fn known(&self, uid: u32, gid: u32) -> Option<Grant> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(uid, gid)).filter(|(at, _)| at.elapsed() < FRESH).map(|(_, grant)| grant.clone())
    }
}

fn looked_up(uid: u32, gid: u32, read: &str, change: &str) -> Grant {
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    let is_in = |group: &str| {
        let found = Some(group).filter(|g| !g.is_empty()).and_then(|g| Group::from_name(g).ok().flatten());
        found.is_some_and(|found| {
            (gid != OVERFLOW && found.gid == Gid::from_raw(gid))
                || name.as_ref().is_some_and(|name| found.mem.contains(name))
        })
    };
    if is_in(change) {
        return Grant::roles(&Role::ALL);
    }
    if is_in(read) { Grant::roles(&[Role::View, Role::Simulate]) } else { Grant::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn root_and_ourselves_may_all_and_nobody_nothing() {
        // Every machine has the groups root and, as the last, nobody's.
        let groups = Groups::new("root", "");
        let own = geteuid().as_raw();
        assert_eq!(groups.grant(0, 0).await, Grant::all());
        assert_eq!(groups.grant(own, 12_345).await, Grant::all());
        assert_eq!(
            groups.grant(OVERFLOW, 0).await,
            Grant::default(),
            "whoever it is, not by its group either"
        );
        assert_eq!(groups.grant(54_321, 54_321).await, Grant::default());
        let read = Grant::roles(&[Role::View, Role::Simulate]);
        assert_eq!(groups.grant(54_321, 0).await, read, "by its own group");
        assert_eq!(Groups::new("", "root").grant(54_321, 0).await, Grant::roles(&Role::ALL));
        assert_eq!(Groups::new("no-such-group", "").grant(54_321, 0).await, Grant::default());
    }
}
