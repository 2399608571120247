//! Suite `vm`: the pressure loop in a guest with cgroup v2 and every capability.

#[path = "cases/pressure.rs"]
mod pressure;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, require};

const CASES: &[Case] = &[
    ("held back", pressure::a_best_effort_container_is_held_back_under_pressure_and_let_go),
    ("kill -9", pressure::nothing_that_was_set_for_a_while_outlives_the_agent),
];

#[test]
fn pressure_is_answered_and_undone_on_v2() -> Result<()> {
    require!(machine::is_emulated() || vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    let guest = Vm::builder().memory_mib(1024).timeout(Duration::from_secs(7200));
    vm::in_guest("pressure_is_answered_and_undone_on_v2", guest, CASES)
}
