//! systemd's bus: setting properties of units for the writer, and units for those who list, stop and start them.
//!
//! Owned here: calls with a time limit, and what happens while the bus is away. Not owned: which cgroup is a unit and
//! which knob a property (`evenkeel_enforce::systemd`).

mod blocking;
pub(crate) mod bus;

use evenkeel_enforce::systemd::SetProperties;

/// A way to systemd for one writer.
pub(crate) fn open() -> Box<dyn SetProperties + Send> {
    Box::new(blocking::Bus::default())
}
