//! New steps: which pods should have other sizes, whether each may have them now, in place or by eviction, and giving back what was asked for.

use evenkeel_model::panic::Panic;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::update::Evict;

use crate::facts::{OfferCause, Resizing, RunningPod, Sizes, Workload, place};
use crate::note::{self, MOST_BYTES, Note, Stage};
use crate::plan::{Looked, Planner, PodAction, Reason, ResizeCandidate, Told};
use crate::pods::PodProgress;
use crate::sizes::{self, TargetSizes};

impl Planner<'_> {
    /// Whether its policy lets a pod be disturbed.
    fn may_disturb(workload: &Workload, pod: &RunningPod) -> Result<(), Told> {
        match workload.updates.evict {
            Evict::Always => Ok(()),
            Evict::Oom if pod.was_oom_killed => Ok(()),
            Evict::Oom => Err((
                Reason::EvictNever,
                "its policy disturbs only what was OOM-killed (evict: oom)".to_owned(),
            )),
            Evict::Never => {
                Err((Reason::EvictNever, "its policy disturbs nothing (evict: never)".to_owned()))
            }
        }
    }

    /// Whether a pod may be evicted so that it is made anew with these sizes.
    pub(super) fn evictable(
        &mut self,
        looked: &Looked<'_>,
        pod: &RunningPod,
        to: &Sizes,
        is_under_way: bool,
    ) -> Result<(), Told> {
        let workload = looked.workload;
        Self::may_disturb(workload, pod)?;
        if !pod.is_remade {
            return Err((Reason::NotRemade, "nobody makes it anew when it goes".to_owned()));
        }
        let (age, least) = (self.now.seconds.saturating_sub(pod.created), self.rules.evict_age_seconds);
        if age < least && !pod.was_oom_killed {
            return Err((Reason::TooYoung, format!("it is {age} s old, and is evicted after {least} s")));
        }
        if let Err(why) = &self.now.admission {
            let why = format!("it is not proven that it would be made anew with what is recommended: {why}");
            return Err((Reason::AdmissionUnproven, why));
        }
        if let Some(until) = looked.fruitless {
            let left = until.saturating_sub(self.now.seconds);
            return Err((
                Reason::BackOff,
                format!("the last eviction changed nothing; no other for {left} s"),
            ));
        }
        let mut slots = looked.slots;
        slots.busy = slots.busy.saturating_sub(u32::from(is_under_way && pod.is_ready));
        slots.may(pod, true)?;
        self.asked.anywhere(workload, pod, to).map_err(|why| (Reason::NoRoom, why))
    }

    /// What of a workload's pods should have other sizes, or should go.
    pub(super) fn candidates(
        &mut self,
        at: usize,
        looked: &Looked<'_>,
        candidates: &mut Vec<ResizeCandidate>,
    ) {
        let workload = looked.workload;
        let is_revert = self.now.panic == Panic::Revert;
        let mut found = Vec::new();
        for (number, pod) in workload.pods.iter().enumerate() {
            if self.plan.actions.iter().any(|action| action.uid == pod.uid) {
                continue;
            }
            let standing = &looked.standings[number];
            let is_at_rest = !standing.is_under_way() && pod.resizing == Resizing::Settled;
            let is_offered = !is_revert && is_at_rest && self.offer(pod).is_some();
            let wanted = match (is_revert, &pod.note) {
                _ if *standing != PodProgress::Free => TargetSizes::default(),
                (true, Some(note)) => sizes::originals(pod, &note.original),
                (true, None) => TargetSizes::default(),
                (false, _) => sizes::wanted(workload, pod),
            };
            for told in &wanted.left {
                self.refuse(workload, Some(pod), told.clone());
            }
            if wanted.is_change() || is_offered {
                let is_urgent = is_offered || pod.was_oom_killed;
                found.push(ResizeCandidate { at, pod: number, wanted, is_urgent });
            }
        }
        if found.is_empty() {
            return;
        }
        match self.workload_refusal(workload) {
            Some(told) => self.refuse(workload, None, told),
            None => candidates.extend(found),
        }
    }

    /// Why no pod of a workload is changed.
    fn workload_refusal(&self, workload: &Workload) -> Option<Told> {
        if let Some(other) = &workload.updated_by {
            return Some((Reason::OtherUpdater, format!("{other} changes these pods")));
        }
        let owners = || workload.pods.iter().filter(|pod| !pod.is_ending).map(|pod| pod.owner.as_str());
        if owners().any(|owner| Some(owner) != owners().next()) {
            return Some((
                Reason::Rollout,
                "its pods have different owners: a roll-out is under way".to_owned(),
            ));
        }
        if !workload.updates.is_open(self.now.seconds) && self.now.panic == Panic::Off {
            return Some((Reason::WindowClosed, "none of its windows is open".to_owned()));
        }
        None
    }

    /// Takes a new step, or says why it does not.
    pub(super) fn step(&mut self, looked: &mut Looked<'_>, candidate: ResizeCandidate) {
        let (workload, wanted) = (looked.workload, candidate.wanted);
        let Some(pod) = workload.pods.get(candidate.pod) else { return };
        let taken = if self.now.panic == Panic::Revert {
            self.revert(looked, pod, &wanted)
        } else {
            self.forward(looked, pod, &wanted)
        };
        if let Err(told) = taken {
            self.refuse(workload, Some(pod), told);
        }
    }

    /// A pod gets what is recommended, or goes where its agent says so. What is killed for want of memory, and may get more, gets that first.
    fn forward(
        &mut self,
        looked: &mut Looked<'_>,
        pod: &RunningPod,
        wanted: &TargetSizes,
    ) -> Result<(), Told> {
        let Some(offer) = self.offer(pod).cloned() else { return self.change(looked, pod, wanted) };
        if !wanted.is_change() {
            return self.offered(looked, pod, &offer);
        }
        let is_answer =
            offer.cause == OfferCause::OomKill && sizes::has_more_memory(&wanted.sizes, &pod.sizes);
        let first =
            if is_answer { self.change(looked, pod, wanted) } else { self.offered(looked, pod, &offer) };
        let Err(told) = first else { return Ok(()) };
        self.refuse(looked.workload, Some(pod), told);
        if is_answer { self.offered(looked, pod, &offer) } else { self.change(looked, pod, wanted) }
    }

    fn change(
        &mut self,
        looked: &mut Looked<'_>,
        pod: &RunningPod,
        wanted: &TargetSizes,
    ) -> Result<(), Told> {
        let workload = looked.workload;
        let age = self.now.seconds.saturating_sub(pod.created);
        if age < workload.updates.min_age_seconds && !pod.was_oom_killed {
            let least = workload.updates.min_age_seconds;
            return Err((Reason::TooYoung, format!("it is {age} s old, and is changed after {least} s")));
        }
        if !pod.is_ready && !pod.was_oom_killed {
            return Err((Reason::NotReady, "it does not serve".to_owned()));
        }
        let is_canary = self.gate(looked, &wanted.sizes)?;
        let refused = match self.in_place(looked, pod, wanted) {
            Ok(()) => {
                self.paced(workload)?;
                self.resize(looked, pod, wanted, is_canary);
                return Ok(());
            }
            Err(refused) => refused,
        };
        // What cannot be now may be later, and is not evicted for.
        let is_for_good = matches!(
            refused.0,
            Reason::ClassWouldChange
                | Reason::NoRoom
                | Reason::BackOff
                | Reason::EvictNever
                | Reason::Unsupported
        );
        if !is_for_good {
            return Err(refused);
        }
        match self.evictable(looked, pod, &wanted.sizes, false) {
            Ok(()) => {
                self.paced(workload)?;
                let why = format!("{}; in place it cannot be: {}", words(pod, wanted), refused.1);
                self.evict(looked, pod, wanted.sizes.clone(), (reason(pod, wanted), why));
                Ok(())
            }
            Err((reason, why)) => Err((refused.0, format!("{}; {} ({})", refused.1, why, reason.as_str()))),
        }
    }

    /// Whether a pod may have another size now, and whether it is the first.
    fn gate(&self, looked: &Looked<'_>, wished: &Sizes) -> Result<bool, Told> {
        let workload = looked.workload;
        if let Some(why) = &looked.is_watching {
            return Err((Reason::CanaryWatched, why.clone()));
        }
        let (now, most) = (self.now.seconds, self.rules.again_most_seconds);
        let notes = || workload.pods.iter().filter_map(|pod| pod.note.as_ref().map(|note| (pod, note)));
        let worse = notes().find(|(_, note)| {
            note.stage == Stage::Worse
                && now < note.at.saturating_add(most)
                && sizes::similar(workload, &note.target, wished)
        });
        if let Some((canary, note)) = worse {
            return Err((Reason::CanaryWorse, format!("{} became worse with it: {}", canary.name, note.why)));
        }
        Ok(workload.updates.canary_seconds > 0 && !self.passed(looked, wished))
    }

    /// Whether a pod may be resized in place.
    fn in_place(&mut self, looked: &Looked<'_>, pod: &RunningPod, wanted: &TargetSizes) -> Result<(), Told> {
        let workload = looked.workload;
        if wanted.class != Some(pod.class) {
            let (was, new) = (pod.class, wanted.class.map(|class| class.to_string()).unwrap_or_default());
            return Err((Reason::ClassWouldChange, format!("it would be {new}, and is {was}")));
        }
        if let Some(note) = pod.note.as_ref().filter(|note| note.stage == Stage::GivenUp) {
            let until = note.at.saturating_add(self.rules.pause(note.tries));
            if self.now.seconds < until && sizes::similar(workload, &note.target, &wanted.sizes) {
                let left = until - self.now.seconds;
                let why =
                    format!("the last resize to this size was given up ({}); the next in {left} s", note.why);
                return Err((Reason::BackOff, why));
            }
        }
        if wanted.restarts {
            Self::may_disturb(workload, pod).map_err(|(reason, why)| {
                (reason, format!("a container would be restarted (resizePolicy): {why}"))
            })?;
        }
        looked.slots.may(pod, wanted.restarts)?;
        let whole = sizes::with(&pod.sizes, &wanted.sizes);
        if whole.len() > pod.sizes.len() {
            return Err((Reason::Unsupported, "it has no such container".to_owned()));
        }
        self.asked.in_place(workload, pod, &wanted.sizes).map_err(|why| (Reason::NoRoom, why))
    }

    fn resize(&mut self, looked: &mut Looked<'_>, pod: &RunningPod, wanted: &TargetSizes, is_canary: bool) {
        let from = sizes::of(&pod.sizes, &wanted.sizes);
        let before = pod.note.as_ref();
        let is_again =
            before.is_some_and(|note| sizes::similar(looked.workload, &note.target, &wanted.sizes));
        // What a later step changes was not changed by earlier ones.
        let mut original = from.clone();
        original.extend(before.map(|note| note.original.clone()).unwrap_or_default());
        let note = Note {
            stage: Stage::Asked,
            is_canary,
            at: self.now.seconds,
            tries: before.filter(|_| is_again).map_or(0, |note| note.tries),
            original,
            before: from,
            target: wanted.sizes.clone(),
            why: String::new(),
        };
        self.take(looked, pod, wanted, note, (reason(pod, wanted), words(pod, wanted)));
    }

    /// Plans a resize, unless its note is longer than a pod bears.
    fn take(
        &mut self,
        looked: &mut Looked<'_>,
        pod: &RunningPod,
        wanted: &TargetSizes,
        note: Note,
        told: Told,
    ) {
        if note.text().len() > MOST_BYTES {
            let why = format!("what is to be noted on it is longer than {MOST_BYTES} bytes");
            self.refuse(looked.workload, Some(pod), (Reason::Unsupported, why));
            return;
        }
        let from = sizes::of(&pod.sizes, &wanted.sizes);
        if note.is_canary {
            looked.is_watching = Some(format!("{} is the first replica", pod.name));
        }
        self.act(looked, pod, PodAction::Resize { from, to: wanted.sizes.clone() }, Some(note), told);
        looked.slots.takes(pod, wanted.restarts);
    }

    /// Gives back what a pod had at first.
    fn revert(
        &mut self,
        looked: &mut Looked<'_>,
        pod: &RunningPod,
        wanted: &TargetSizes,
    ) -> Result<(), Told> {
        let Some(note) = &pod.note else { return Ok(()) };
        if wanted.class != Some(pod.class) {
            return Err((
                Reason::ClassWouldChange,
                "with what it had at first its class would change".to_owned(),
            ));
        }
        if note.stage == Stage::GivenUp
            && self.now.seconds < note.at.saturating_add(self.rules.pause(note.tries))
        {
            return Err((Reason::BackOff, format!("the last resize was given up: {}", note.why)));
        }
        looked.slots.may(pod, wanted.restarts)?;
        self.asked.in_place(looked.workload, pod, &wanted.sizes).map_err(|why| (Reason::NoRoom, why))?;
        self.paced(looked.workload)?;
        let note = Note {
            stage: Stage::Reverted,
            is_canary: false,
            at: self.now.seconds,
            tries: 0,
            original: note.original.clone(),
            before: sizes::of(&pod.sizes, &wanted.sizes),
            target: wanted.sizes.clone(),
            why: String::new(),
        };
        let told = (Reason::Revert, "the panic switch gives back what was asked for".to_owned());
        self.take(looked, pod, wanted, note, told);
        Ok(())
    }
}

fn reason(pod: &RunningPod, wanted: &TargetSizes) -> Reason {
    match (pod.was_oom_killed, wanted.rises) {
        (true, true) => Reason::OomKilled,
        (false, true) => Reason::Raise,
        (_, false) => Reason::Lower,
    }
}

/// What changes, such as `main: memory 64Mi/- to 128Mi/-`.
fn words(pod: &RunningPod, wanted: &TargetSizes) -> String {
    let mut all = Vec::new();
    for (name, new) in &wanted.sizes {
        let Some(old) = pod.sizes.get(name) else { continue };
        for resource in Resource::ALL {
            let (old, new) = (old[place(resource)], new[place(resource)]);
            if old != new {
                let (old, new) = (note::size(resource, old), note::size(resource, new));
                all.push(format!("{name}: {} {old} to {new}", resource.as_str()));
            }
        }
    }
    all.join(", ")
}
