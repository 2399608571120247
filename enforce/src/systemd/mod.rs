//! systemd as the manager of cgroups: its names, and the writer that sets through it the knobs it knows.
//!
//! A value written past systemd into a cgroup it manages is lost at the next `daemon-reload` or change of the unit,
//! so there the knobs it knows are set by `SetUnitProperties` with `runtime = true`: they last until the machine
//! reboots. Owned here: which cgroup is a unit, which knob is which property, the calls for it ([`bus`]), and what
//! happens when systemd cannot be asked. Not owned: what is written ([`crate::converge`]), units as a source of containers.

pub mod bus;
pub mod names;
pub mod property;
mod revert;
mod set;
mod writer;

use std::path::Path;
use std::sync::Arc;

use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::Target;

pub use set::{NotSet, OpenSystemd, SetProperties};
pub use writer::{Purpose, SystemdWriter, remedy};

/// Made by systemd at boot and by nothing else (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// systemd's own cgroup, directly below the root of every tree it manages.
const INIT_SCOPE: &str = "/init.scope";

/// Whether this machine's first process is systemd.
pub fn is_booted() -> bool {
    Path::new(BOOTED).is_dir()
}

/// Whether systemd manages the cgroup v2 tree. On v1 it does not put back what others write, and cgroups there are
/// written directly.
pub(crate) fn manages(tree: &Arc<CgroupTree>) -> bool {
    is_booted() && tree.dir(Hierarchy::V2, INIT_SCOPE).is_ok()
}

/// What a knob that cannot be read held before it is first set: a unit whose cgroup lacks the controller gets it with
/// the property, and it goes when the property is unset.
pub(crate) fn assumed(target: &Target, knob: Knob) -> Option<Setting> {
    let Target::Cgroup(at) = target else { return None };
    let is_unit =
        at.hierarchy == Hierarchy::V2 && matches!(names::standing(&at.path), names::UnitMembership::Unit(_));
    (is_unit && is_booted()).then(|| property::default_of(knob)).flatten()
}

/// Whether what was set of a cgroup outlives it: a service started again has it, a scope never comes back.
pub(crate) fn outlives(target: &Target) -> bool {
    let Target::Cgroup(at) = target else { return false };
    let is_unit =
        matches!(names::standing(&at.path), names::UnitMembership::Unit(unit) if !unit.ends_with(".scope"));
    at.hierarchy == Hierarchy::V2 && is_unit && is_booted()
}
