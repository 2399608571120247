//! Offers of agents: pods that should go because they were OOM-killed again and again, or because their node is short of memory or CPU. They are
//! evicted where their policy lets them be, within the same budgets and pace as everything else.

use evenkeel_rightsizing::policy::update::Evict;

use crate::facts::{EvictionOffer, OfferCause, RunningPod, Sizes};
use crate::plan::{Looked, Planner, PodAction, Reason, Told};
use crate::sizes;

impl Planner<'_> {
    /// What the agent says of a pod, while that holds and nothing has answered it: what was OOM-killed and has got more memory since is to have
    /// its chance.
    pub(super) fn offer<'p>(&self, pod: &'p RunningPod) -> Option<&'p EvictionOffer> {
        let offer = pod.offer.as_ref()?;
        let is_over = self.now.seconds >= offer.at.saturating_add(self.rules.offer_seconds);
        let is_answered = pod.note.as_ref().is_some_and(|note| {
            note.at >= offer.at
                && offer.cause == OfferCause::OomKill
                && sizes::has_more_memory(&note.holds(), &note.before)
        });
        (!is_over && !is_answered).then_some(offer)
    }

    /// Evicts a pod because its agent says that it should go.
    pub(super) fn offered(
        &mut self,
        looked: &mut Looked<'_>,
        pod: &RunningPod,
        offer: &EvictionOffer,
    ) -> Result<(), Told> {
        let workload = looked.workload;
        match (workload.updates.evict_offers, offer.cause) {
            (Evict::Always, _) | (Evict::Oom, OfferCause::OomKill) => {}
            (Evict::Oom, _) => {
                let why = "its policy carries out offers of agents after OOM kills alone (evictOffers: oom)";
                return Err((Reason::EvictNever, format!("{why}: {}", offer.why)));
            }
            (Evict::Never, _) => {
                let why = "its policy carries out no offers of agents (evictOffers: never)";
                return Err((Reason::EvictNever, format!("{why}: {}", offer.why)));
            }
        }
        if !pod.is_remade {
            return Err((Reason::NotRemade, "nobody makes it anew when it goes".to_owned()));
        }
        if let Some(left) = self.kept.offer_pause(workload, pod, self.rules, self.now.seconds) {
            let why =
                format!("the pod in whose place it was made was evicted for the same; no other for {left} s");
            return Err((Reason::BackOff, why));
        }
        looked.slots.may(pod, true)?;
        self.asked.anywhere(workload, pod, &pod.sizes).map_err(|why| (Reason::NoRoom, why))?;
        self.paced(workload)?;
        self.act(looked, pod, PodAction::Evict { to: Sizes::new() }, None, (Reason::Offered, message(offer)));
        looked.slots.takes(pod, true);
        Ok(())
    }
}

/// What an Event says, in the kubelet's words where its evictions have them (`nodeLowMessageFmt` of pkg/kubelet/eviction/helpers.go).
fn message(offer: &EvictionOffer) -> String {
    match offer.cause {
        OfferCause::OomKill => offer.why.clone(),
        OfferCause::Pressure => format!("The node was low on resource: memory. {}", offer.why),
        OfferCause::Starvation => format!("The node was low on resource: cpu. {}", offer.why),
    }
}
