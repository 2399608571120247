//! What systemd tells: units that change, and that it reloads.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_enforce::shared::lock;
use tokio::sync::Notify;

use super::{MAX_UNITS, is_looked_at};
use crate::systemd::bus::UnitSignal;

/// What signals told since the last listing.
#[derive(Default)]
pub(super) struct Signals {
    pub(super) bell: Notify,
    pub(super) changed: Mutex<UnitChanges>,
    pub(super) ended: AtomicBool,
}

#[derive(Default)]
pub(super) struct UnitChanges {
    pub(super) reloaded: bool,
    pub(super) units: BTreeSet<String>,
}

impl Signals {
    pub(super) fn take_in(&self, change: UnitSignal) {
        let mut changed = lock(&self.changed);
        match change {
            UnitSignal::Reloaded => changed.reloaded = true,
            UnitSignal::Unit(name) if !is_looked_at(&name) => return,
            UnitSignal::Unit(_) if changed.units.len() >= MAX_UNITS => changed.reloaded = true,
            UnitSignal::Unit(name) => {
                changed.units.insert(name);
            }
        }
        drop(changed);
        self.bell.notify_one();
    }

    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.bell.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_of_a_service_or_slice_wakes_and_one_of_a_scope_does_not() {
        let signals = Signals::default();
        signals.take_in(UnitSignal::Unit("cri-containerd-1.scope".into()));
        assert!(lock(&signals.changed).units.is_empty());
        signals.take_in(UnitSignal::Unit("db.service".into()));
        signals.take_in(UnitSignal::Reloaded);
        let changed = std::mem::take(&mut *lock(&signals.changed));
        assert!(changed.reloaded && changed.units.contains("db.service"));
    }
}
