//! Suite `host`: OOM kills inside containers, on this machine's own kernel and cgroup hierarchies.

#[path = "cases/agent_oom.rs"]
mod oom;

/// Makes tests of cases that are run in a guest too. One that is forgotten here is unused, which is an error.
macro_rules! tests_of {
    ($($case:ident,)*) => { $(#[test] fn $case() -> anyhow::Result<()> { oom::$case() })* };
}

tests_of!(
    a_kill_is_told_once_with_its_victim_its_numbers_and_the_seconds_before,
    the_rest_of_a_container_goes_with_a_process_where_that_is_wished,
    a_best_effort_pod_goes_at_once_and_a_burstable_one_after_three_restarts,
    a_pod_that_no_kubelet_runs_is_stopped_where_that_is_wished,
    kills_are_known_after_a_restart_and_those_in_between_are_told,
    a_kill_right_after_a_restart_has_the_seconds_of_the_run_before,
    no_kill_is_lost_or_told_twice_when_its_cgroup_goes_at_once,
);
