//! Suite `vm`: the agent on a machine whose first process is systemd. The short form leaves out what costs restarts of
//! units and says little more of the agent.

#[path = "cases/parts_units.rs"]
mod parts;
#[path = "cases/systemd.rs"]
mod units;

use std::time::Duration;

use anyhow::Result;
use evenkeel_tests::vm::{self, Case, Release, Vm, VmBuilder};
use evenkeel_tests::{figures, machine, places, require};

macro_rules! cases {
    ($module:ident: $($name:ident,)*) => { &[$((stringify!($name), $module::$name)),*] };
}

/// In this order: each finds what those before it left.
const SHORT: &[Case] = cases![
    units:
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
    units:
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

const UNITS: [&str; 10] = [
    "evenkeel-agent.service",
    "evenkeel-agent.target",
    "evenkeel-agent-enforcing.service",
    "evenkeel-agent-network.service",
    "evenkeel-agent-runtime.service",
    "evenkeel-agent-reader.service",
    "evenkeel-agent-border-network.socket",
    "evenkeel-agent-border-runtime.socket",
    "evenkeel-agent-border-reader.socket",
    "evenkeel-agent-process-events.socket",
];

/// A unit for each part. What hangs is noticed after twenty seconds.
const PARTS: &[Case] = cases![
    parts:
    each_part_is_a_unit_with_its_own_user_and_rights,
    in_its_unit_each_part_may_what_it_needs_and_nothing_else,
    enforcement_has_no_gap_while_the_network_part_is_killed,
    nothing_that_was_seen_is_lost_while_enforcement_restarts,
    systemd_undoes_what_a_killed_enforcing_part_had_set_for_a_while,
    parts_restart_alone_and_stop_with_the_enforcing_one,
    the_reader_connects_to_the_bus_again,
    one_process_and_units_take_each_others_place,
    a_reader_that_a_starter_started_lists_units,
];

const PARTS_LONG: &[Case] = cases![
    parts:
    each_part_is_a_unit_with_its_own_user_and_rights,
    in_its_unit_each_part_may_what_it_needs_and_nothing_else,
    enforcement_has_no_gap_while_the_network_part_is_killed,
    nothing_that_was_seen_is_lost_while_enforcement_restarts,
    systemd_undoes_what_a_killed_enforcing_part_had_set_for_a_while,
    parts_restart_alone_and_stop_with_the_enforcing_one,
    the_reader_connects_to_the_bus_again,
    a_part_that_hangs_is_ended_by_its_watchdog,
    one_process_and_units_take_each_others_place,
    a_reader_that_a_starter_started_lists_units,
];

/// Where each controller has a hierarchy of its own. The rest is as on v2.
const PARTS_V1: &[Case] = cases![
    parts:
    each_part_is_a_unit_with_its_own_user_and_rights,
    in_its_unit_each_part_may_what_it_needs_and_nothing_else,
    enforcement_has_no_gap_while_the_network_part_is_killed,
    nothing_that_was_seen_is_lost_while_enforcement_restarts,
    parts_restart_alone_and_stop_with_the_enforcing_one,
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

/// A guest with the units of the agent, as they are packaged.
fn guest_with_parts() -> VmBuilder {
    let repository = places::repository();
    let guest = Vm::builder().memory_mib(1024).systemd().timeout(Duration::from_secs(1200));
    let guest = UNITS.into_iter().fold(guest, |guest, unit| {
        guest.file(repository.join("systemd").join(unit), &format!("etc/systemd/system/{unit}"))
    });
    let users = repository.join("packaging/deb/agent/sysusers.conf");
    guest.file(users, "usr/lib/sysusers.d/evenkeel-agent.conf")
}

#[test]
fn each_part_is_a_unit_of_its_own() -> Result<()> {
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
    }
    vm::in_guest("each_part_is_a_unit_of_its_own", guest_with_parts(), machine::scaled(PARTS, PARTS_LONG))
}

/// With the kernel of the next Debian release. Where no mirror has it for apt, that is said and no failure.
#[test]
fn each_part_is_a_unit_of_its_own_on_debian_13s_kernel() -> Result<()> {
    let test = "each_part_is_a_unit_of_its_own_on_debian_13s_kernel";
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
        let kernel = vm::kernel_release(Release::Debian13);
        require!(kernel.is_ok(), format!("Debian 13's kernel cannot be had: {:#}", kernel.unwrap_err()));
        figures::show(&format!("{test}: Linux {}", kernel.unwrap_or_default()));
    }
    let cases = machine::scaled(PARTS, PARTS_LONG);
    vm::in_guest(test, guest_with_parts().kernel(Release::Debian13), cases)
}

#[test]
fn each_part_is_a_unit_of_its_own_on_v1() -> Result<()> {
    if !machine::is_emulated() {
        require!(vm::impossible().is_none(), vm::impossible().unwrap_or_default());
        let why = "the kernel of this Debian release has no cgroup v1 memory controller";
        require!(Vm::has_cgroup_v1()?, why);
    }
    let cases = &PARTS_V1[..machine::scaled(2, PARTS_V1.len())];
    vm::in_guest("each_part_is_a_unit_of_its_own_on_v1", guest_with_parts().cgroup_v1(), cases)
}
