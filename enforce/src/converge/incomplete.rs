//! Containers found before the runtime had made their cgroup in every hierarchy of cgroup v1, and those of which a part
//! is removed: what was read of them is not the whole.
//!
//! Owned here: who is looked at again, and when. Not owned: taking up what is there then ([`super::table`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::snapshot::{CgroupFacts, HostReader};
use evenkeel_host::write::CgroupRef;

/// When an incomplete container is looked at again, after it was found. Runtimes need milliseconds; systemd makes a
/// unit's cgroup for good only where an option of it needs one.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
];

#[derive(Debug)]
struct Partial {
    found: Instant,
    looks: usize,
    places: Vec<CgroupRef>,
}

impl Partial {
    fn due(&self) -> Option<Instant> {
        LOOKS.get(self.looks).map(|after| self.found + *after)
    }
}

/// Incomplete containers by the key of the table.
#[derive(Debug, Default)]
pub(super) struct Incomplete {
    containers: BTreeMap<u64, Partial>,
    /// How many hierarchies this machine has, once one had to be asked for.
    hierarchies: Option<usize>,
}

impl Incomplete {
    /// A container was found; it is remembered if its cgroup is missing in some hierarchy.
    pub(super) fn found(&mut self, reader: &dyn HostReader, key: u64, facts: &CgroupFacts, now: Instant) {
        if facts.places.iter().any(|place| place.hierarchy == Hierarchy::V2) && facts.places.len() == 1 {
            return;
        }
        let root = || reader.cgroup("/").map_or(0, |root| root.places.len());
        if facts.places.len() < *self.hierarchies.get_or_insert_with(root) {
            let container = Partial { found: now, looks: 0, places: facts.places.clone() };
            self.containers.insert(key, container);
        }
    }

    /// A container is gone.
    pub(super) fn forget(&mut self, key: u64) {
        self.containers.remove(&key);
    }

    /// When somebody is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.containers.values().filter_map(Partial::due).min()
    }

    /// Takes out those whose cgroup is elsewhere than it was, of those that are due.
    pub(super) fn changed(&mut self, reader: &dyn HostReader, now: Instant) -> Vec<u64> {
        let mut changed = Vec::new();
        self.containers.retain(|key, container| {
            if container.due().is_none_or(|due| due > now) {
                return true;
            }
            // Counted first: what cannot be read is looked at no sooner for that.
            while container.due().is_some_and(|due| due <= now) {
                container.looks += 1;
            }
            let Some(first) = container.places.first() else { return false };
            let facts = match reader.cgroup(&first.path) {
                Ok(facts) => facts,
                Err(error) if error.is_gone() => return container.due().is_some(),
                Err(_) => {
                    // The last look was none: there is another.
                    if container.due().is_none() {
                        (container.found, container.looks) = (now, LOOKS.len() - 1);
                    }
                    return true;
                }
            };
            if facts.places != container.places {
                changed.push(*key);
                return false;
            }
            container.due().is_some()
        });
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::{CgroupMode, Controller};

    /// A container whose cgroup the runtime has not made in one hierarchy, found now.
    fn without_cpu() -> (FakeKernel, Incomplete, Instant) {
        let kernel = FakeKernel::new(CgroupMode::V1);
        kernel.with(|state| {
            state.add_cgroup("/c");
            state.set_missing("/c", &[Controller::Cpu]);
        });
        let (mut incomplete, now) = (Incomplete::default(), Instant::now());
        incomplete.found(&kernel, 1, &kernel.cgroup("/c").unwrap(), now);
        (kernel, incomplete, now)
    }

    #[test]
    fn one_that_cannot_be_read_is_looked_at_until_it_can() {
        let (kernel, mut incomplete, _) = without_cpu();
        kernel.with(|state| state.lacks_descriptors = true);
        for _ in 0..2 * LOOKS.len() {
            let due = incomplete.due().unwrap();
            assert!(incomplete.changed(&kernel, due).is_empty());
        }
        kernel.with(|state| {
            state.lacks_descriptors = false;
            state.set_missing("/c", &[]);
        });
        let due = incomplete.due().unwrap();
        assert_eq!(incomplete.changed(&kernel, due), [1]);
    }

    #[test]
    fn one_that_vanished_is_looked_at_no_sooner_and_in_the_end_no_more() {
        let (kernel, mut incomplete, now) = without_cpu();
        kernel.with(|state| state.remove_cgroup("/c"));
        for after in LOOKS {
            assert_eq!(incomplete.due(), Some(now + after));
            assert!(incomplete.changed(&kernel, now + after).is_empty());
        }
        assert_eq!(incomplete.due(), None);
    }
}
