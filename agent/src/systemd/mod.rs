//! systemd's bus for who lists units and hears of changes.
//!
//! Owned here: these calls with a time limit, over a general reader of the bus. Not owned: setting, stopping and starting
//! (`evenkeel_enforce::systemd::bus`), which cgroup is a unit and which knob a property (`evenkeel_enforce::systemd`).

pub(crate) mod bus;
