//! How long processes waited for a processor: what stands for CPU pressure where the kernel tells none per cgroup.

use crate::parse;
use crate::roots::Roots;

/// Time the threads of these processes have spent on run queues without running, microseconds: the second number of
/// `/proc/PID/task/TID/schedstat` (Documentation/scheduler/sched-stats.rst). At most `threads` are read; those that
/// have ended, and whatever a kernel without CONFIG_SCHED_INFO does not tell, count nothing, so the sum may shrink.
pub fn waited_usec(roots: &Roots, pids: &[u32], threads: usize) -> u64 {
    let mut left = threads;
    let mut sum = 0_u64;
    for pid in pids {
        let tasks = roots.proc().join(pid.to_string()).join("task");
        for task in std::fs::read_dir(tasks).into_iter().flatten().flatten() {
            if left == 0 {
                return sum / 1000;
            }
            left -= 1;
            let text = std::fs::read(task.path().join("schedstat")).unwrap_or_default();
            let waited = parse::words(&text).nth(1).and_then(parse::uint);
            sum = sum.saturating_add(waited.unwrap_or(0));
        }
    }
    sum / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_summed_up_to_a_bound() {
        let tmp = tempfile::tempdir().unwrap();
        for (pid, tid, text) in [(1, 1, "5 2000 1\n"), (1, 2, "5 3000 1\n"), (2, 2, "nonsense")] {
            let dir = tmp.path().join(format!("{pid}/task/{tid}"));
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join("schedstat"), text).unwrap();
        }
        let roots = Roots::new(tmp.path(), tmp.path());
        assert_eq!(waited_usec(&roots, &[1, 2, 3], 10), 5);
        assert_eq!(waited_usec(&roots, &[2, 1], 1), 0);
    }
}
