//! Suite `host`: options that are off by default, and starvation, on this machine's own kernel and cgroup hierarchies.

#[path = "cases/agent_options.rs"]
mod options;

use std::sync::{Mutex, PoisonError};

use anyhow::Result;

/// They burn CPUs: one at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone(case: fn() -> Result<()>) -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    case()
}

#[test]
fn a_whole_core_is_its_own() -> Result<()> {
    alone(options::a_whole_core_is_its_own)
}

#[test]
fn an_idle_container_runs_when_nobody_else_wants_to() -> Result<()> {
    alone(options::an_idle_container_runs_when_nobody_else_wants_to)
}

#[test]
fn dynamic_scores_follow_use_over_request() -> Result<()> {
    alone(options::dynamic_scores_follow_use_over_request)
}

#[test]
fn who_starves_is_given_its_cpu_and_who_had_it_is_let_go() -> Result<()> {
    alone(options::who_starves_is_given_its_cpu_and_who_had_it_is_let_go)
}
