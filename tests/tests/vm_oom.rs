//! Suite `vm`: OOM kills inside containers, on cgroup v2 with whole-container kills by the kernel.

#[path = "cases/agent_oom_global.rs"]
mod global;
#[path = "cases/agent_oom.rs"]
mod oom;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, require};

const CASES: &[Case] = &[
    ("told once", oom::a_kill_is_told_once_with_its_victim_its_numbers_and_the_seconds_before),
    ("the rest", oom::the_rest_of_a_container_goes_with_a_process_where_that_is_wished),
    ("rulings", oom::a_best_effort_pod_goes_at_once_and_a_burstable_one_after_three_restarts),
    ("restart", oom::kills_are_known_after_a_restart_and_those_in_between_are_told),
    ("looked back", oom::a_kill_right_after_a_restart_has_the_seconds_of_the_run_before),
    ("stopped", oom::a_pod_that_no_kubelet_runs_is_stopped_where_that_is_wished),
    ("brief", oom::no_kill_is_lost_or_told_twice_when_its_cgroup_goes_at_once),
    ("the machine's", global::a_kill_for_want_of_the_machines_memory_is_told_as_such),
];

#[test]
fn oom_kills_are_told_on_v2() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(768).timeout(Duration::from_secs(3600));
    vm::in_guest("oom_kills_are_told_on_v2", guest, CASES)
}
