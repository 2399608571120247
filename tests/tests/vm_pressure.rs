//! Suite `vm`: the pressure loop in a guest with cgroup v2 and every capability.

#[path = "cases/agent_swap.rs"]
mod agent_swap;
#[path = "cases/innocent.rs"]
mod innocent;
#[path = "cases/innocent_apart.rs"]
mod innocent_apart;
#[path = "cases/innocent_guest.rs"]
mod innocent_guest;
#[path = "cases/pressure.rs"]
mod pressure;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, require};

const CASES: &[Case] = &[
    ("held back", pressure::a_best_effort_container_is_held_back_under_pressure_and_let_go),
    ("kill -9", pressure::nothing_that_was_set_for_a_while_outlives_the_agent),
    ("thrash", innocent::thrash_at_a_limit_touches_nobody_and_is_named),
    ("told apart", innocent_apart::stalls_at_a_limit_are_told_apart_from_those_of_the_node),
    ("swap limits", agent_swap::swap_is_limited_by_class),
    ("memory.high", agent_swap::memory_high_holds_back_before_the_limit),
    ("swap", innocent_guest::swapping_at_a_limit_touches_nobody_and_is_named),
    ("page cache storm", innocent_guest::a_page_cache_storm_touches_nobody),
    ("real exhaustion", innocent_guest::a_machine_that_runs_out_acts_on_best_effort_alone),
];

#[test]
fn pressure_is_answered_and_undone_on_v2() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(1024).disk_mib(2048).disk_rate_mib(innocent_guest::DISK_RATE);
    let guest = guest.timeout(Duration::from_secs(7200));
    vm::in_guest("pressure_is_answered_and_undone_on_v2", guest, CASES)
}
