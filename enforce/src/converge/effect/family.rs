//! A cgroup's parent with all its children, as the kernel shares between them.

use evenkeel_host::snapshot::Child;
use evenkeel_model::units::Bytes;
use evenkeel_qos::effective::ProtectionKnob;

/// One family, digested.
#[derive(Debug, Default)]
pub(super) struct CgroupFamily {
    pub(super) processes: usize,
    /// By name.
    pub(super) children: Vec<Child>,
    pub(super) populated: usize,
    pub(super) min_claims: Bytes,
    pub(super) low_claims: Bytes,
    /// Asked for since it was read.
    pub(super) is_used: bool,
}

impl CgroupFamily {
    pub(super) fn child(&self, name: &str) -> Option<&Child> {
        let at = self.children.binary_search_by(|child| child.name.as_str().cmp(name)).ok()?;
        self.children.get(at)
    }
}

/// What a child is promised and claims of it.
pub(super) trait Promised {
    fn setting(&self, knob: ProtectionKnob) -> Bytes;
    fn claim(&self, knob: ProtectionKnob) -> Bytes;
}

impl Promised for Child {
    fn setting(&self, knob: ProtectionKnob) -> Bytes {
        let held = match knob {
            ProtectionKnob::Min => self.memory_min,
            ProtectionKnob::Low => self.memory_low,
        };
        held.unwrap_or(Bytes::ZERO)
    }

    fn claim(&self, knob: ProtectionKnob) -> Bytes {
        self.setting(knob).min(self.memory_current.unwrap_or(Bytes::ZERO))
    }
}

/// Parent, path and name of each cgroup on the way from the root to `path`, topmost first.
pub(super) fn levels_of(path: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    ends.filter_map(|end| {
        let path = path.get(..end)?;
        let (parent, name) = path.rsplit_once('/')?;
        Some((if parent.is_empty() { "/" } else { parent }, path, name))
    })
}
