//! Kills as the kernel's log tells them, until a counter's kill claims them.
//!
//! Owned here: which container a record belongs to, and how long a record waits. The counters say how many were
//! killed; the log says who. A record that no counter ever claims is of a container whose cgroup went before it
//! was counted, and then it is the only witness. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use evenkeel_host::kernel_log::OomKill;
use evenkeel_host::write::CgroupRef;

/// Records that may wait; the oldest go first, and their kills are told without names.
const WAITING: usize = 1024;
/// A record nobody claimed for so long tells of a kill that no counter shows any more: two ticks of the sampler and
/// the time both need under load.
const UNCLAIMED: Duration = Duration::from_millis(2500);
/// Records about processes killed for the sake of another follow its record within this time of the log's clock.
const TOGETHER_USEC: u64 = 5_000_000;

/// A record and the container it belongs to.
#[derive(Debug, Clone)]
struct UnclaimedKill {
    since: Instant,
    at: CgroupRef,
    kill: OomKill,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Victims {
    waiting: VecDeque<UnclaimedKill>,
    /// Container of the last record that named one, and the time of that record.
    last: Option<(CgroupRef, u64)>,
}

impl Victims {
    /// Takes in a record. `find` tells the container a path of the kernel's belongs to. Returns that container.
    pub(super) fn take(
        &mut self,
        now: Instant,
        kill: OomKill,
        find: impl Fn(&str) -> Option<CgroupRef>,
    ) -> Option<CgroupRef> {
        let at = match &kill.task_memcg {
            Some(path) => {
                let found = find(path);
                self.last = found.clone().map(|at| (at, kill.at_usec));
                found?
            }
            // Killed because another of its cgroup was: the log names no cgroup, but they come together.
            None => {
                let (at, before) = self.last.as_ref()?;
                (kill.at_usec.saturating_sub(*before) <= TOGETHER_USEC).then(|| at.clone())?
            }
        };
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(UnclaimedKill { since: now, at: at.clone(), kill });
        Some(at)
    }

    /// Takes out up to `count` records of a container, oldest first.
    pub(super) fn claim(&mut self, at: &CgroupRef, count: usize) -> Vec<OomKill> {
        let mut claimed = Vec::new();
        self.waiting.retain(|waiting| {
            let is_ours = waiting.at == *at && claimed.len() < count;
            if is_ours {
                claimed.push(waiting.kill.clone());
            }
            !is_ours
        });
        claimed
    }

    /// Containers with a record that has waited too long.
    pub(super) fn unclaimed(&self, now: Instant) -> Vec<CgroupRef> {
        let mut found: Vec<CgroupRef> = Vec::new();
        for waiting in &self.waiting {
            if now.duration_since(waiting.since) >= UNCLAIMED && !found.contains(&waiting.at) {
                found.push(waiting.at.clone());
            }
        }
        found
    }

    /// Records of a container.
    pub(super) fn count(&self, at: &CgroupRef) -> usize {
        self.waiting.iter().filter(|waiting| waiting.at == *at).count()
    }

    /// True while records wait.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}

/// Whether a path of the kernel's log is in a container's cgroup or below it. The log tells paths from the real root;
/// ours may begin at the root of a cgroup namespace, so ours may also be found further down theirs.
pub(super) fn is_within(kernel: &str, ours: &str) -> bool {
    let ours = ours.trim_end_matches('/');
    if ours.is_empty() {
        return false;
    }
    kernel.match_indices(ours).any(|(start, _)| {
        let rest = &kernel[start + ours.len()..];
        rest.is_empty() || rest.starts_with('/')
    })
}

#[cfg(test)]
mod tests {
    use evenkeel_host::hierarchy::Hierarchy;

    use super::*;

    fn at(path: &str) -> CgroupRef {
        CgroupRef { hierarchy: Hierarchy::V2, inode: 1, path: path.into() }
    }

    fn kill(pid: u32, path: Option<&str>, at_usec: u64) -> OomKill {
        OomKill {
            sequence: u64::from(pid),
            at_usec,
            pid,
            comm: "work".into(),
            task_memcg: path.map(str::to_owned),
            oom_memcg: None,
            constraint: None,
            total_vm: None,
            anon_rss: None,
            file_rss: None,
            shmem_rss: None,
            uid: None,
            oom_score_adj: None,
        }
    }

    #[test]
    fn paths_of_the_log_are_found_among_ours() {
        for (kernel, ours, wanted) in [
            ("/pod/web", "/pod/web", true),
            ("/pod/web/inner", "/pod/web", true),
            ("/sandbox/pod/web", "/pod/web", true),
            ("/pod/website", "/pod/web", false),
            ("/pod", "/pod/web", false),
            ("/pod/web", "/", false),
        ] {
            assert_eq!(is_within(kernel, ours), wanted, "{kernel} in {ours}");
        }
    }

    #[test]
    fn records_wait_for_the_counter_that_claims_them() {
        let (start, mut victims) = (Instant::now(), Victims::default());
        let find = |path: &str| is_within(path, "/web").then(|| at("/web"));
        assert_eq!(victims.take(start, kill(1, Some("/other"), 0), find), None);
        // Killed with one of another's cgroup.
        assert_eq!(victims.take(start, kill(2, None, 1), find), None);
        assert_eq!(victims.take(start, kill(3, Some("/web"), 10), find), Some(at("/web")));
        assert_eq!(victims.take(start, kill(4, None, 20), find), Some(at("/web")));
        assert_eq!(victims.take(start, kill(5, None, 60_000_000), find), None, "much later");
        assert!(victims.unclaimed(start).is_empty());
        let pids = |kills: Vec<OomKill>| kills.iter().map(|k| k.pid).collect::<Vec<_>>();
        assert_eq!(pids(victims.claim(&at("/web"), 1)), [3]);
        assert_eq!(victims.unclaimed(start + UNCLAIMED), [at("/web")]);
        assert_eq!((victims.count(&at("/web")), pids(victims.claim(&at("/web"), 9))), (1, vec![4]));
        assert!(!victims.is_waiting());
    }

    #[test]
    fn what_waits_is_bounded() {
        let (start, mut victims) = (Instant::now(), Victims::default());
        for pid in 0..3000 {
            victims.take(start, kill(pid, Some("/web"), 0), |_| Some(at("/web")));
        }
        assert_eq!(victims.claim(&at("/web"), usize::MAX).len(), WAITING);
    }
}
