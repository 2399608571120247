//! Suite `guest`: the agent beside a real runtime in a guest with cgroup v2, where scores below 0 are allowed.

#[path = "cases/containerd_agent.rs"]
mod agent;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, require, runtime};

/// Those that differ most from the host first: classes by what a runtime was told, -999 among them, and a pod's place.
/// An emulated runtime takes 15 seconds to start, so the others, which the host has as well, are for a full run.
const CASES: &[Case] = &[
    ("estimated classes", agent::without_a_statement_the_runtimes_record_is_turned_around),
    ("an agent in a pod", agent::an_agent_inside_a_pod_manages_another_pod),
    ("its parts in a pod", agent::an_agent_inside_a_pod_has_its_parts_started_by_one_parent),
    ("stated classes", agent::what_a_pod_states_goes_over_what_its_runtime_was_told),
    ("update in place", agent::an_update_in_place_is_seen),
    ("runtime away", agent::containers_are_kept_while_their_runtime_is_away),
];

#[test]
fn the_agents_cases_beside_containerd_hold_on_v2_with_every_capability() -> Result<()> {
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
        require!(runtime::impossible().is_none(), runtime::impossible().unwrap_or_default());
    }
    let guest = Vm::builder().memory_mib(2048).containers()?.timeout(Duration::from_secs(600));
    let test = "the_agents_cases_beside_containerd_hold_on_v2_with_every_capability";
    vm::in_guest(test, guest, &CASES[..machine::scaled(2, CASES.len())])
}
