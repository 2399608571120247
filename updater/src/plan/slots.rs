//! How many replicas of a workload are away, and may be.

use crate::facts::{RunningPod, Workload};
use crate::plan::{Reason, Told};
use crate::pods::PodProgress;

/// How many replicas of a workload are away, and may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplicaBudget {
    /// Those that do not serve.
    pub(super) away: u32,
    /// Those that serve while a step of them is under way.
    pub(super) busy: u32,
    /// How many may be either.
    pub(super) most: u32,
    /// Disruptions that are left of its budgets.
    pub(super) disruptions: Option<u32>,
    pub(super) replicas: u32,
    pub(super) min_replicas: u32,
}

impl ReplicaBudget {
    pub(super) fn of(workload: &Workload, standings: &[PodProgress]) -> Self {
        let serves = |pod: &RunningPod| pod.is_ready && !pod.is_ending;
        let ready = workload.pods.iter().filter(|pod| serves(pod)).count();
        let busy = workload
            .pods
            .iter()
            .zip(standings)
            .filter(|(pod, standing)| serves(pod) && standing.is_under_way());
        let replicas = workload.replicas;
        Self {
            away: replicas.saturating_sub(u32::try_from(ready).unwrap_or(u32::MAX)),
            busy: u32::try_from(busy.count()).unwrap_or(u32::MAX),
            most: workload.updates.max_unavailable.of(replicas),
            disruptions: workload.allowed_disruptions,
            replicas,
            min_replicas: workload.updates.min_replicas,
        }
    }

    /// Whether one more pod may be changed; one that does not serve is away already.
    pub(super) fn may(&self, pod: &RunningPod, disturbs: bool) -> Result<(), Told> {
        let own = u32::from(!pod.is_ready);
        let others = self.away.saturating_sub(own) + self.busy;
        if others + 1 > self.most {
            let Self { replicas, most, .. } = self;
            let why = format!("{others} of {replicas} replicas are away or being changed, and {most} may be");
            return Err((Reason::Budget, why));
        }
        if !disturbs {
            return Ok(());
        }
        if self.replicas < self.min_replicas {
            let why = format!(
                "it has {} replicas, and is disturbed with {} or more",
                self.replicas, self.min_replicas
            );
            return Err((Reason::MinReplicas, why));
        }
        match self.disruptions {
            Some(0) => {
                Err((Reason::DisruptionBudget, "its PodDisruptionBudget allows no disruption now".to_owned()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn takes(&mut self, pod: &RunningPod, disturbs: bool) {
        self.busy += u32::from(pod.is_ready);
        if disturbs {
            self.disruptions = self.disruptions.map(|left| left.saturating_sub(1));
        }
    }
}
