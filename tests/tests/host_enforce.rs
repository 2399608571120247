//! Suite `host`: the promises of the classes on this machine's own kernel and cgroup hierarchies.

#[path = "cases/enforce_cpu.rs"]
mod cpu;
#[path = "cases/enforce_crash.rs"]
mod crash;
#[path = "cases/enforce_whole.rs"]
mod whole;

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// Measurements of CPU time do not share CPUs with each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone(case: fn() -> Result<()>) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    case()
}

#[test]
fn excess_is_shared_in_proportion_to_requests() -> Result<()> {
    alone(cpu::excess_is_shared_in_proportion_to_requests)
}

#[test]
fn excess_is_shared_equally_in_fair_mode() -> Result<()> {
    alone(cpu::excess_is_shared_equally_in_fair_mode)
}

#[test]
fn without_a_request_the_whole_cpu_alone_and_little_beside_one_with() -> Result<()> {
    alone(cpu::without_a_request_the_whole_cpu_alone_and_little_beside_one_with)
}

#[test]
fn kill_nine_leaves_old_or_new_values_and_the_next_start_repairs() -> Result<()> {
    alone(crash::kill_nine_leaves_old_or_new_values_and_the_next_start_repairs)
}

#[test]
fn a_container_that_loses_one_process_is_gone_as_a_whole_when_asked() -> Result<()> {
    whole::a_container_that_loses_one_process_is_gone_as_a_whole_when_asked()
}
