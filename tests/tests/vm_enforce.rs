//! Suite `vm`: the promises of the classes under real memory and CPU pressure, on cgroup v2.

#[path = "cases/enforce_bomb.rs"]
mod bomb;
#[path = "cases/enforce_cpu.rs"]
mod cpu;
#[path = "cases/enforce_crash.rs"]
mod crash;
#[path = "cases/enforce_memory.rs"]
mod memory;
#[path = "cases/enforce_pressure.rs"]
mod pressure;
#[path = "cases/enforce_whole.rs"]
mod whole;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, require};

const MEMORY: &[Case] = &[
    ("a barrage", memory::guaranteed_containers_survive_a_barrage_of_best_effort_ones),
    ("newcomers", memory::a_node_full_of_best_effort_gives_way_to_guaranteed_newcomers),
    ("burstable order", memory::a_burstable_container_over_its_request_dies_before_one_within),
    ("whole container", whole::a_container_that_loses_one_process_is_gone_as_a_whole_when_asked),
    ("protection", memory::memory_protection_holds_below_a_granting_ancestor_and_is_told_where_it_is_not),
];

#[test]
fn memory_is_kept_and_taken_by_class() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(768).disk_mib(2048).timeout(Duration::from_secs(3600));
    vm::in_guest("memory_is_kept_and_taken_by_class", guest, MEMORY)
}

const CPU: &[Case] = &[
    ("proportional", cpu::excess_is_shared_in_proportion_to_requests),
    ("fair", cpu::excess_is_shared_equally_in_fair_mode),
    ("no request", cpu::without_a_request_the_whole_cpu_alone_and_little_beside_one_with),
];

/// One processor, so that its time is what is divided.
#[test]
fn one_cpu_is_divided_by_requests_and_fairly() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(768).processors(1).timeout(Duration::from_secs(7200));
    vm::in_guest("one_cpu_is_divided_by_requests_and_fairly", guest, CPU)
}

const STORMS: &[Case] = &[
    ("kill -9", crash::kill_nine_leaves_old_or_new_values_and_the_next_start_repairs),
    ("fork bomb", bomb::a_fork_bomb_never_stops_the_tick),
];

#[test]
fn the_agent_is_killed_and_bombed() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(2048).timeout(Duration::from_secs(7200));
    vm::in_guest("the_agent_is_killed_and_bombed", guest, STORMS)
}

const PRESSURE: &[Case] = &[
    ("a growing hog", pressure::a_growing_hog_is_contained_and_the_probe_beside_it_stays_prompt),
    ("an instantaneous hog", pressure::an_instantaneous_hog_is_its_own_victim),
];

#[test]
fn a_hog_is_contained_beside_a_prompt_probe() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(1024).disk_mib(256).disk_rate_mib(pressure::DISK_RATE);
    let guest = guest.timeout(Duration::from_secs(7200));
    vm::in_guest("a_hog_is_contained_beside_a_prompt_probe", guest, PRESSURE)
}
