//! Suite `guest`: what differs on cgroup v1, with another kernel than the machine's: shares instead of weights, OOM kills
//! without counters, the rest of a container killed by the agent, nobody told apart who waits for memory.

#[path = "cases/enforce_cpu.rs"]
mod cpu;
#[path = "cases/agent_oom_global.rs"]
mod global;
#[path = "cases/innocent.rs"]
mod innocent;
#[path = "cases/innocent_guest.rs"]
mod innocent_guest;
#[path = "cases/agent_oom.rs"]
mod oom;
#[path = "cases/pressure.rs"]
mod pressure;
#[path = "cases/enforce_whole.rs"]
mod whole;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, require};

const WHY_NOT: &str = "the kernel of this Debian release has no cgroup v1 memory controller";

const ENFORCED: &[Case] = &[
    ("whole container", whole::a_container_that_loses_one_process_is_gone_as_a_whole_when_asked),
    ("proportional", cpu::excess_is_shared_in_proportion_to_requests),
    ("fair", cpu::excess_is_shared_equally_in_fair_mode),
    ("no request", cpu::without_a_request_the_whole_cpu_alone_and_little_beside_one_with),
];

#[test]
fn one_cpu_is_divided_and_containers_go_whole_on_v1() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    require!(machine::is_emulated() || Vm::has_cgroup_v1()?, WHY_NOT);
    let guest = Vm::builder().memory_mib(768).processors(1).cgroup_v1().timeout(Duration::from_secs(1800));
    vm::in_guest("one_cpu_is_divided_and_containers_go_whole_on_v1", guest, ENFORCED)
}

const KILLS: &[Case] = &[
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
fn oom_kills_are_told_on_v1() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    require!(machine::is_emulated() || Vm::has_cgroup_v1()?, WHY_NOT);
    let guest = Vm::builder().memory_mib(768).cgroup_v1().timeout(Duration::from_secs(900));
    vm::in_guest("oom_kills_are_told_on_v1", guest, KILLS)
}

const PRESSURE: &[Case] = &[
    ("held back", pressure::a_best_effort_container_is_held_back_under_pressure_and_let_go),
    ("kill -9", pressure::nothing_that_was_set_for_a_while_outlives_the_agent),
    ("thrash", innocent::thrash_at_a_limit_touches_nobody_and_is_named),
    ("swap", innocent_guest::swapping_at_a_limit_touches_nobody_and_is_named),
    ("page cache storm", innocent_guest::a_page_cache_storm_touches_nobody),
    ("real exhaustion", innocent_guest::a_machine_that_runs_out_acts_on_best_effort_alone),
];

#[test]
fn pressure_is_answered_and_undone_on_v1() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    require!(machine::is_emulated() || Vm::has_cgroup_v1()?, WHY_NOT);
    let guest = Vm::builder().memory_mib(1024).disk_mib(2048).disk_rate_mib(innocent_guest::DISK_RATE);
    let guest = guest.cgroup_v1().timeout(Duration::from_secs(1800));
    vm::in_guest("pressure_is_answered_and_undone_on_v1", guest, PRESSURE)
}
