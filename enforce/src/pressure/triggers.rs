//! Being woken by the kernel: pressure triggers of the node and of owned subtrees, v1 pressure events, and the bell.
//!
//! Where none can be had the loop polls; it polls slowly in any case, because memory can end without anybody having
//! waited for it.

use std::os::fd::AsFd;
use std::time::Duration;

use evenkeel_host::cgroup::{CgroupDir, CgroupTree};
use evenkeel_host::events::{PressureLevel, V1Pressure};
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::psi::{PsiScope, Resource, Stall, Trigger};
use evenkeel_host::roots::Roots;
use evenkeel_host::write::CgroupRef;
use evenkeel_qos::pressure::{Bands, Grade};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::shared::Waker;

/// What one descriptor tells.
enum TriggerSource {
    Psi(Trigger),
    V1(V1Pressure),
}

struct Armed {
    domain: usize,
    grade: Grade,
    window_usec: u64,
    source: TriggerSource,
}

/// Everything that wakes the loop.
#[derive(Default)]
pub(super) struct Triggers {
    armed: Vec<Armed>,
    /// Why there are fewer than wished, said once.
    pub(super) missing: Vec<String>,
}

/// What fired: of which domain, the grade it stands for, the window it watched.
pub(super) type Fired = (usize, Grade, u64);

impl Triggers {
    /// Arms the triggers of one domain: the node's, or those of an owned subtree.
    pub(super) fn arm(
        &mut self,
        domain: usize,
        tier: Option<&CgroupRef>,
        roots: &Roots,
        tree: &CgroupTree,
        bands: &Bands,
        window_usec: u64,
    ) {
        let dir = tier.and_then(|at| tree.dir_of(at).ok());
        if let Some(dir) = dir.as_ref().filter(|dir| dir.at().hierarchy != Hierarchy::V2) {
            self.arm_v1(domain, dir);
            return;
        }
        let place = dir.as_ref().map_or(PsiScope::Node(roots), PsiScope::Cgroup);
        let wished = [
            (Grade::Warning, Stall::Some, bands.warning.some.enter),
            (Grade::High, Stall::Some, bands.high.some.enter),
            (Grade::High, Stall::Full, bands.high.full.enter),
            (Grade::Critical, Stall::Full, bands.critical.full.enter),
        ];
        for (grade, stall, part) in wished {
            let stalled = (window_usec.saturating_mul(u64::from(part)) / 10_000).clamp(1, window_usec);
            match Trigger::open(place, Resource::Memory, stall, stalled, window_usec) {
                Ok(trigger) => {
                    let window_usec = trigger.threshold().window_usec;
                    self.armed.push(Armed {
                        domain,
                        grade,
                        window_usec,
                        source: TriggerSource::Psi(trigger),
                    });
                }
                Err(error) => {
                    let remedy = error.remedy().map(|remedy| format!("; {remedy}")).unwrap_or_default();
                    self.missing.push(format!("{error}{remedy}"));
                    break;
                }
            }
        }
        // A kernel without PSI: the root of the v1 memory hierarchy stands for the node.
        if tier.is_none()
            && self.how(domain) == "poll"
            && let Ok(root) = tree.dir(Hierarchy::V1(Controller::Memory), "/")
        {
            self.arm_v1(domain, &root);
        }
    }

    /// Events of the v1 memory controller.
    fn arm_v1(&mut self, domain: usize, dir: &CgroupDir) {
        for (level, grade) in
            [(PressureLevel::Medium, Grade::Warning), (PressureLevel::Critical, Grade::High)]
        {
            match V1Pressure::open_dir(dir, level) {
                Ok(source) => {
                    self.armed.push(Armed {
                        domain,
                        grade,
                        window_usec: 0,
                        source: TriggerSource::V1(source),
                    });
                }
                Err(error) => self.missing.push(error.to_string()),
            }
        }
    }

    /// How a domain is woken.
    pub(super) fn how(&self, domain: usize) -> &'static str {
        match self.armed.iter().find(|armed| armed.domain == domain).map(|armed| &armed.source) {
            Some(TriggerSource::Psi(_)) => "trigger",
            Some(TriggerSource::V1(_)) => "v1-event",
            None => "poll",
        }
    }

    /// Waits for a trigger, the bell or the end of `patience`, and tells what fired.
    pub(super) fn wait(&mut self, bell: &Waker, patience: Duration) -> Vec<Fired> {
        let millis = u16::try_from(patience.as_millis()).unwrap_or(u16::MAX);
        let mut fds = vec![PollFd::new(bell.fd(), PollFlags::POLLIN)];
        fds.extend(self.armed.iter().map(|armed| match &armed.source {
            TriggerSource::Psi(trigger) => PollFd::new(trigger.as_fd(), PollFlags::POLLPRI),
            TriggerSource::V1(event) => PollFd::new(event.as_fd(), PollFlags::POLLIN),
        }));
        // Interrupted or timed out: then nothing fired.
        let _ = poll(&mut fds, PollTimeout::from(millis));
        let seen: Vec<PollFlags> = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty())).collect();
        drop(fds);
        bell.drain();
        let mut fired = Vec::new();
        let mut broken = Vec::new();
        for (index, flags) in seen.iter().skip(1).enumerate() {
            let armed = &self.armed[index];
            match &armed.source {
                // The cgroup is gone, and its trigger would wake us for ever.
                TriggerSource::Psi(_) if flags.contains(PollFlags::POLLERR) => broken.push(index),
                TriggerSource::Psi(_) if flags.contains(PollFlags::POLLPRI) => {
                    fired.push((armed.domain, armed.grade, armed.window_usec));
                }
                TriggerSource::V1(event) if flags.contains(PollFlags::POLLIN) && event.take() > 0 => {
                    fired.push((armed.domain, armed.grade, armed.window_usec));
                }
                TriggerSource::Psi(_) | TriggerSource::V1(_) => {}
            }
        }
        for index in broken.into_iter().rev() {
            self.armed.remove(index);
        }
        fired
    }
}
