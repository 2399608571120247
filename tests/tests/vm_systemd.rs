//! Suite `vm`: the agent on a machine whose first process is systemd. The short form leaves out what costs restarts of
//! units and says little more of the agent.

#[path = "cases/systemd.rs"]
mod units;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Vm};
use evenkeel_tests::{machine, places, require};

macro_rules! cases {
    ($($name:ident,)*) => { &[$((stringify!($name), units::$name)),*] };
}

/// In this order: each finds what those before it left.
const SHORT: &[Case] = cases![
    the_hardened_unit_starts_and_protects_itself,
    a_service_gets_what_its_section_says,
    a_changed_drop_in_counts_from_the_reload_on,
    a_reload_of_the_unit_puts_the_configuration_in_force,
    a_wrong_section_is_told_by_file_line_and_key,
    a_manifest_binds_a_unit,
    services_that_were_oom_killed_are_stopped_and_restarted,
    a_killed_agent_comes_back_and_repairs,
    restoring_leaves_units_as_they_were,
];

const LONG: &[Case] = cases![
    the_hardened_unit_starts_and_protects_itself,
    a_service_gets_what_its_section_says,
    a_daemon_reload_keeps_what_was_set,
    a_changed_drop_in_counts_from_the_reload_on,
    a_reload_of_the_unit_puts_the_configuration_in_force,
    a_wrong_section_is_told_by_file_line_and_key,
    a_missing_controller_is_named_with_its_remedy,
    a_slice_counts_as_a_whole_or_gives_way,
    a_delegated_subtree_is_written_directly,
    a_manifest_binds_a_unit,
    services_that_were_oom_killed_are_stopped_and_restarted,
    a_killed_agent_comes_back_and_repairs,
    without_the_bus_knobs_are_written_directly,
    restoring_leaves_units_as_they_were,
];

#[test]
fn units_are_kept_on_a_machine_with_systemd() -> Result<()> {
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    }
    let unit = places::repository().join("systemd/evenkeel-agent.service");
    let guest = Vm::builder()
        .memory_mib(1024)
        .systemd()
        .file(unit, "etc/systemd/system/evenkeel-agent.service")
        .timeout(Duration::from_secs(600));
    vm::in_guest("units_are_kept_on_a_machine_with_systemd", guest, machine::scaled(SHORT, LONG))
}
