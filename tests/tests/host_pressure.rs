//! Suite `host`: the pressure loop on this machine's own kernel and cgroup hierarchies.

#[path = "cases/innocent.rs"]
mod innocent;
#[path = "cases/pressure.rs"]
mod pressure;

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// Pressure is the machine's: two tests would see each other's.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone(case: fn() -> Result<()>) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    case()
}

#[test]
fn a_best_effort_container_is_held_back_under_pressure_and_let_go() -> Result<()> {
    alone(pressure::a_best_effort_container_is_held_back_under_pressure_and_let_go)
}

#[test]
fn nothing_that_was_set_for_a_while_outlives_the_agent() -> Result<()> {
    alone(pressure::nothing_that_was_set_for_a_while_outlives_the_agent)
}

#[test]
fn thrash_at_a_limit_touches_nobody_and_is_named() -> Result<()> {
    alone(innocent::thrash_at_a_limit_touches_nobody_and_is_named)
}
