//! The writer on a machine systemd manages: knobs it knows go through it where a cgroup is a unit's own.
//!
//! Owned here: which road a write takes, and that the kernel is asked afterwards what it holds. The refusals stay those
//! of the writer below ([`evenkeel_host::kernel_writer`]): every write is rehearsed there first. Not owned: journalling,
//! which precedes the call.

use evenkeel_host::action::HostActor;
use evenkeel_host::error::{Category, HostError};
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Refusal, Target, Write};
use evenkeel_model::units::Bytes;

use super::names::{UnitMembership, standing};
use super::property::{self, Property};
use super::revert;
use super::set::{NotSet, SetProperties};

/// What values are written for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To hold.
    Keep,
    /// To be as before the agent: a default is set by saying nothing.
    Restore,
}

/// A write in systemd's terms.
struct PropertyWrite {
    unit: String,
    properties: Vec<Property>,
    /// The properties become "not set".
    unset: bool,
}

/// Sets through systemd what it knows, and the rest through `direct`.
pub struct SystemdWriter<D, H, R, B> {
    /// Writes the kernel's files.
    direct: D,
    /// Says what `direct` would do.
    rehearsal: H,
    reader: R,
    bus: B,
    purpose: Purpose,
}

impl<D, H, R, B> SystemdWriter<D, H, R, B>
where
    D: HostWriter,
    H: HostWriter,
    R: HostReader,
    B: SetProperties,
{
    /// A writer that stands in for `direct`; `rehearsal` must answer as it would.
    pub(crate) fn new(direct: D, rehearsal: H, reader: R, bus: B, purpose: Purpose) -> Self {
        Self { direct, rehearsal, reader, bus, purpose }
    }

    /// How systemd would be told a write, if it has a say in it.
    fn route(&mut self, write: &Write) -> Option<PropertyWrite> {
        let Target::Cgroup(at) = &write.target else { return None };
        if at.hierarchy != Hierarchy::V2 {
            return None;
        }
        let UnitMembership::Unit(unit) = standing(&at.path) else { return None };
        // A weight would end idleness, which is another wish; the kernel itself refuses one meanwhile.
        if write.knob() == Knob::CpuWeight && self.is_idle(&write.target) {
            return None;
        }
        if self.purpose == Purpose::Restore
            && let Some(properties) = property::unset(&write.setting)
        {
            return Some(PropertyWrite { unit, properties, unset: true });
        }
        let properties = property::properties(&write.setting, self.version_for(&write.setting))?;
        Some(PropertyWrite { unit, properties, unset: false })
    }

    /// Only idleness depends on it.
    fn version_for(&mut self, setting: &Setting) -> Option<u32> {
        if setting.knob() == Knob::CpuIdle { self.bus.version() } else { None }
    }

    fn is_idle(&self, target: &Target) -> bool {
        matches!(self.reader.setting(target, Knob::CpuIdle), Ok(Setting::CpuIdle(true)))
    }

    fn through_systemd(&mut self, write: &Write, request: &PropertyWrite) -> Outcome {
        let old = match self.rehearsal.apply(write) {
            Outcome::WouldWrite { old } => old,
            ended if self.purpose == Purpose::Restore && is_ended(&ended) => {
                return self.restore_ended(write, request, ended);
            }
            refused_or_right => return refused_or_right,
        };
        let unit = &request.unit;
        match self.bus.set(unit, &request.properties) {
            Ok(()) if request.unset => revert::forget(unit, &request.properties),
            Ok(()) => {}
            Err(error @ NotSet::Refused(_)) => {
                tracing::warn!(unit, knob = %write.knob(), %error, "written directly; a daemon-reload may undo it");
                return self.direct.apply(write);
            }
            // An outage has been told once; a cgroup that looks like a unit's may be anybody's.
            Err(NotSet::Unreachable(_)) => return self.direct.apply(write),
        }
        match self.reader.setting(&write.target, write.knob()) {
            // Taken, but not by the kernel: the unit's cgroup may be another's, or its parents lack something.
            Ok(new) if Some(&new) == old.as_ref() => self.direct.apply(write),
            Ok(new) => Outcome::Written { old, new },
            Err(error) if request.unset && error.category() == Category::Unsupported => {
                // With the last setting of a controller unset, systemd takes the controller away.
                Outcome::Written { old, new: write.setting }
            }
            Err(error) => Outcome::Failed { old, error },
        }
    }
}

impl<D, H, R, B> SystemdWriter<D, H, R, B>
where
    D: HostWriter,
    H: HostWriter,
    R: HostReader,
    B: SetProperties,
{
    /// The cgroup ended, but its unit may have been started again or be started later, with what we set.
    fn restore_ended(&mut self, write: &Write, request: &PropertyWrite, ended: Outcome) -> Outcome {
        match self.bus.set(&request.unit, &request.properties) {
            Ok(()) => {
                if request.unset {
                    revert::forget(&request.unit, &request.properties);
                }
                Outcome::Written { old: None, new: write.setting }
            }
            // A transient unit ends with all that was set.
            Err(_) => ended,
        }
    }
}

/// Whether the target is no more, or another one has its path.
fn is_ended(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Failed { error, .. } => error.is_gone(),
        Outcome::Refused(refusal) => *refusal == Refusal::Replaced,
        _ => false,
    }
}

impl<D, H, R, B> HostWriter for SystemdWriter<D, H, R, B>
where
    D: HostWriter,
    H: HostWriter,
    R: HostReader,
    B: SetProperties,
{
    fn apply(&mut self, write: &Write) -> Outcome {
        let outcome = match self.route(write) {
            Some(request) => self.through_systemd(write, &request),
            None => self.direct.apply(write),
        };
        advised(write, outcome)
    }
}

impl<D: HostActor, H, R, B> HostActor for SystemdWriter<D, H, R, B> {
    fn reclaim(&mut self, cgroup: &CgroupRef, amount: Bytes, file_only: bool) -> Result<Bytes, HostError> {
        self.direct.reclaim(cgroup, amount, file_only)
    }

    fn kill_cgroup(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError> {
        self.direct.kill_cgroup(cgroup)
    }

    fn is_rehearsal(&self) -> bool {
        self.direct.is_rehearsal()
    }
}

/// A knob whose controller a unit lacks: the remedy is in systemd's words.
fn advised(write: &Write, outcome: Outcome) -> Outcome {
    let Target::Cgroup(at) = &write.target else { return outcome };
    match outcome {
        Outcome::Failed { old, error } if error.category() == Category::Unsupported => {
            let remedy = remedy(&standing(&at.path), write.knob().controller());
            let error = match remedy {
                Some(remedy) => error.with_remedy(remedy),
                None => error,
            };
            Outcome::Failed { old, error }
        }
        other => other,
    }
}

/// How a unit gets a controller (systemd.resource-control(5)).
pub const fn remedy(standing: &UnitMembership, controller: Option<Controller>) -> Option<&'static str> {
    match (standing, controller) {
        (UnitMembership::Unit(_), Some(Controller::Cpu)) => Some(
            "set CPUAccounting=yes and CPUWeight=100 in the unit, and take cpu out of DisableControllers= of the slices above it",
        ),
        (UnitMembership::Unit(_), Some(Controller::Memory)) => Some(
            "set MemoryAccounting=yes in the unit, and take memory out of DisableControllers= of the slices above it",
        ),
        (UnitMembership::Unit(_), Some(Controller::Cpuset)) => {
            Some("take cpuset out of DisableControllers= of the slices above the unit")
        }
        (UnitMembership::Below(_), Some(_)) => {
            Some("set Delegate=yes in the unit the cgroup lies in, and let its manager enable the controller")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::CgroupMode;
    use evenkeel_model::units::CpuWeight;

    use super::super::property::PropertyValue;
    use super::*;

    const UNIT: &str = "/system.slice/db.service";

    /// A manager that applies weights to the fake kernel, or fails as told.
    struct FakeBus {
        kernel: FakeKernel,
        fails: VecDeque<NotSet>,
        calls: Vec<(String, &'static str)>,
    }

    impl SetProperties for &mut FakeBus {
        fn version(&mut self) -> Option<u32> {
            Some(252)
        }

        fn set(&mut self, unit: &str, properties: &[Property]) -> Result<(), NotSet> {
            self.calls.push((unit.to_owned(), properties[0].name));
            if let Some(error) = self.fails.pop_front() {
                return Err(error);
            }
            for property in properties {
                let PropertyValue::Number(number) = property.value else { continue };
                let weight = if number == u64::MAX { 100 } else { u32::try_from(number).unwrap() };
                apply(&mut self.kernel, UNIT, weight);
            }
            Ok(())
        }
    }

    /// Answers as the fake kernel would, and writes nothing.
    struct Rehearsal(FakeKernel);

    impl HostWriter for Rehearsal {
        fn apply(&mut self, write: &Write) -> Outcome {
            match self.0.setting(&write.target, write.knob()) {
                Ok(value) if value == write.setting => Outcome::Unchanged { value },
                other => Outcome::WouldWrite { old: other.ok() },
            }
        }
    }

    fn weight(value: u32) -> Setting {
        Setting::CpuWeight(CpuWeight::new(value).unwrap())
    }

    fn write(kernel: &FakeKernel, path: &str, setting: Setting) -> Write {
        let place = kernel.cgroup(path).unwrap().place(Hierarchy::V2).unwrap().clone();
        Write::cgroup(place, setting)
    }

    fn apply(kernel: &mut FakeKernel, path: &str, value: u32) -> Outcome {
        let write = write(kernel, path, weight(value));
        kernel.apply(&write)
    }

    fn machine() -> (FakeKernel, FakeBus) {
        let kernel = FakeKernel::new(CgroupMode::V2);
        for path in ["/system.slice", UNIT, "/system.slice/db.service/inner", "/kubepods"] {
            kernel.with(|state| state.add_cgroup(path));
        }
        let bus = FakeBus { kernel: kernel.clone(), fails: VecDeque::new(), calls: Vec::new() };
        (kernel, bus)
    }

    fn writer<'a>(
        kernel: &FakeKernel,
        bus: &'a mut FakeBus,
        purpose: Purpose,
    ) -> SystemdWriter<FakeKernel, Rehearsal, FakeKernel, &'a mut FakeBus> {
        SystemdWriter::new(kernel.clone(), Rehearsal(kernel.clone()), kernel.clone(), bus, purpose)
    }

    #[test]
    fn a_unit_is_set_through_systemd_and_what_is_below_directly() {
        let (kernel, mut bus) = machine();
        for (path, calls) in [(UNIT, 1), ("/system.slice/db.service/inner", 1), ("/kubepods", 1)] {
            let write = write(&kernel, path, weight(39));
            let outcome = writer(&kernel, &mut bus, Purpose::Keep).apply(&write);
            assert_eq!(outcome, Outcome::Written { old: Some(weight(100)), new: weight(39) }, "{path}");
            assert_eq!(bus.calls.len(), calls, "{path}");
        }
        assert_eq!(bus.calls[0], ("db.service".to_owned(), "CPUWeight"));
        let again = write(&kernel, UNIT, weight(39));
        assert!(matches!(writer(&kernel, &mut bus, Purpose::Keep).apply(&again), Outcome::Unchanged { .. }));
        assert_eq!(bus.calls.len(), 1, "what is right is not set again");
    }

    #[test]
    fn without_an_answer_the_kernel_is_written() {
        let failures = [
            NotSet::Unreachable("no bus".into()),
            NotSet::Unreachable("late".into()),
            NotSet::Unreachable("db.service".into()),
            NotSet::Refused("no".into()),
            NotSet::Refused("CPUWeight".into()),
        ];
        for failure in failures {
            let (kernel, mut bus) = machine();
            bus.fails.push_back(failure.clone());
            let write = write(&kernel, UNIT, weight(39));
            let outcome = writer(&kernel, &mut bus, Purpose::Keep).apply(&write);
            assert_eq!(outcome, Outcome::Written { old: Some(weight(100)), new: weight(39) }, "{failure}");
        }
    }

    #[test]
    fn what_systemd_took_and_the_kernel_does_not_show_is_written() {
        let (kernel, mut bus) = machine();
        // A manager of another tree.
        bus.kernel = machine().0;
        let write = write(&kernel, UNIT, weight(39));
        let outcome = writer(&kernel, &mut bus, Purpose::Keep).apply(&write);
        assert_eq!(outcome, Outcome::Written { old: Some(weight(100)), new: weight(39) });
    }

    #[test]
    fn restoring_a_default_says_nothing_instead_of_the_value() {
        let (mut kernel, mut bus) = machine();
        apply(&mut kernel, UNIT, 39);
        let back = write(&kernel, UNIT, weight(100));
        let request = writer(&kernel, &mut bus, Purpose::Restore).route(&back).unwrap();
        assert_eq!(
            (request.properties[0].value.clone(), request.unset),
            (PropertyValue::Number(u64::MAX), true)
        );
        let request = writer(&kernel, &mut bus, Purpose::Keep).route(&back).unwrap();
        assert_eq!((request.properties[0].value.clone(), request.unset), (PropertyValue::Number(100), false));
        assert!(writer(&kernel, &mut bus, Purpose::Restore).apply(&back).is_done());
    }

    #[test]
    fn a_unit_started_again_is_restored_by_name() {
        let (mut kernel, mut bus) = machine();
        apply(&mut kernel, UNIT, 39);
        let mut back = write(&kernel, UNIT, weight(100));
        if let Target::Cgroup(at) = &mut back.target {
            at.inode += 1000;
        }
        let mut rehearsal = writer(&kernel, &mut bus, Purpose::Restore);
        let ended = Outcome::Refused(Refusal::Replaced);
        let request = rehearsal.route(&back).unwrap();
        assert!(matches!(rehearsal.restore_ended(&back, &request, ended.clone()), Outcome::Written { .. }));
        bus.fails.push_back(NotSet::Unreachable("db.service".into()));
        let outcome =
            writer(&kernel, &mut bus, Purpose::Restore).restore_ended(&back, &request, ended.clone());
        assert_eq!(outcome, ended);
        assert!(is_ended(&ended) && !is_ended(&Outcome::Refused(Refusal::RootCgroup)));
    }

    #[test]
    fn a_missing_controller_has_a_remedy_in_systemds_words() {
        let unit = UnitMembership::Unit("db.service".into());
        assert!(remedy(&unit, Some(Controller::Cpu)).unwrap().contains("CPUAccounting=yes"));
        assert!(remedy(&unit, Some(Controller::Memory)).unwrap().contains("MemoryAccounting=yes"));
        assert!(
            remedy(&UnitMembership::Below("x".into()), Some(Controller::Cpu))
                .unwrap()
                .contains("Delegate=yes")
        );
        assert_eq!(remedy(&UnitMembership::Foreign, Some(Controller::Cpu)), None);
    }
}
