//! Steps that are under way, brought to their end: noted where they are in force, given up or made by eviction where they are stuck, taken back
//! where a canary became worse.

use evenkeel_model::panic::Panic;

use crate::canary;
use crate::facts::{Resizing, RunningPod, Sizes};
use crate::kept::LastEviction;
use crate::note::{Note, Stage};
use crate::plan::{Looked, Planner, PodAction, Reason, Told};
use crate::pods::PodProgress;
use crate::sizes;

impl Planner<'_> {
    /// Brings what is under way to its end.
    pub(super) fn under_way(&mut self, looked: &mut Looked<'_>) {
        let workload = looked.workload;
        match self.kept.last(workload, self.rules, self.now.seconds) {
            LastEviction::None => {}
            LastEviction::Awaited => {
                looked.is_watching =
                    Some("an evicted pod has not been made anew, or does not serve yet".to_owned());
            }
            LastEviction::Fruitless(until) => looked.fruitless = Some(until),
            LastEviction::Made(pod, before) => self.made(looked, pod, before),
        }
        for (at, pod) in workload.pods.iter().enumerate() {
            match looked.standings[at].clone() {
                PodProgress::Free => self.canary(looked, pod),
                PodProgress::Waits(reason, why) => {
                    if pod.note.as_ref().is_some_and(|note| note.is_canary && note.stage == Stage::Asked) {
                        looked.is_watching = Some(format!("{} is the first replica: {why}", pod.name));
                    }
                    self.refuse(workload, Some(pod), (reason, why));
                }
                PodProgress::Over(note) => {
                    if note.is_canary {
                        looked.is_watching =
                            Some(format!("{} is the first replica, and is watched", pod.name));
                    }
                    self.act(
                        looked,
                        pod,
                        PodAction::Note,
                        Some(note),
                        (Reason::Finished, "what was asked for is in force".into()),
                    );
                }
                PodProgress::Stuck(why) => self.stuck(looked, pod, &why),
                PodProgress::GoesBack => {
                    let note = pod.note.clone();
                    let why = note.as_ref().map(|note| note.why.clone()).unwrap_or_default();
                    self.back(looked, pod, note, (Reason::GaveUp, why));
                }
            }
        }
    }

    /// A pod was made in the place of an evicted one, and has what it is to have: it is watched as one that was resized.
    fn made(&mut self, looked: &mut Looked<'_>, pod: &RunningPod, before: Sizes) {
        let workload = looked.workload;
        if workload.updates.canary_seconds == 0 || pod.note.is_some() || self.now.panic.is_on() {
            return;
        }
        let names: Sizes = pod
            .sizes
            .iter()
            .filter(|(name, _)| workload.targets.contains_key(*name))
            .map(|(n, s)| (n.clone(), *s))
            .collect();
        // One like it was watched already.
        if self.passed(looked, &names) {
            return;
        }
        let original =
            pod.asked.as_ref().map_or_else(|| sizes::of(&before, &names), |asked| sizes::of(asked, &names));
        let note = Note {
            stage: Stage::Done,
            is_canary: true,
            at: self.now.seconds,
            tries: 0,
            original,
            before: sizes::of(&before, &names),
            target: names,
            why: String::new(),
        };
        looked.is_watching = Some(format!("{} is the first replica, and is watched", pod.name));
        self.act(
            looked,
            pod,
            PodAction::Note,
            Some(note),
            (Reason::Finished, "it was made in the place of an evicted one".into()),
        );
    }

    /// Whether a canary with such sizes passed.
    pub(super) fn passed(&self, looked: &Looked<'_>, wished: &Sizes) -> bool {
        let notes = looked.workload.pods.iter().filter_map(|pod| pod.note.as_ref());
        let passed = notes.filter(|note| note.is_canary && note.stage == Stage::Passed);
        passed.into_iter().any(|note| sizes::similar(looked.workload, &note.target, wished))
    }

    /// Looks at a canary whose size is in force.
    fn canary(&mut self, looked: &mut Looked<'_>, pod: &RunningPod) {
        let Some(note) = pod.note.as_ref().filter(|note| note.is_canary && note.stage == Stage::Done) else {
            return;
        };
        if self.now.panic.is_on() {
            return;
        }
        let (now, seconds) = (self.now.seconds, looked.workload.updates.canary_seconds);
        let watched = pod.watched.unwrap_or_default();
        if let Some(why) = canary::worse(note, &watched) {
            looked.is_watching = Some(format!("{} became worse: {why}", pod.name));
            let note = note.at_stage(Stage::Worse, now, &*why);
            self.back(looked, pod, Some(note), (Reason::CanaryWorse, why));
        } else if now < note.at.saturating_add(seconds) {
            looked.is_watching =
                Some(format!("{} is the first replica, and is watched for {seconds} s", pod.name));
        } else if canary::is_measured(&watched.after, seconds) {
            let why = format!(
                "no more OOM kills, throttling and starvation in {} s than before",
                watched.after.seconds
            );
            let note = note.at_stage(Stage::Passed, now, "");
            looked.is_watching = Some(format!("{} is the first replica, and passes now", pod.name));
            self.act(looked, pod, PodAction::Note, Some(note), (Reason::CanaryPassed, why));
        } else {
            let why = format!("only {} of {seconds} s were measured", watched.after.seconds);
            looked.is_watching = Some(format!("{} is the first replica: {why}", pod.name));
        }
    }

    /// Asks again for what a pod had before.
    fn back(&mut self, looked: &mut Looked<'_>, pod: &RunningPod, note: Option<Note>, told: Told) {
        let Some(note) = note else { return };
        let workload = looked.workload;
        let (from, to) = (sizes::of(&pod.sizes, &note.before), note.back());
        let checked = self.allowed_back(looked, pod, &from, &to).and_then(|()| self.paced(workload));
        match checked {
            Ok(()) => self.act(looked, pod, PodAction::Resize { from, to }, Some(note), told),
            Err((reason, why)) => {
                let why = format!("it cannot go back ({}): {why}", told.1);
                self.refuse(workload, Some(pod), (reason, why));
            }
        }
    }

    fn allowed_back(
        &mut self,
        looked: &Looked<'_>,
        pod: &RunningPod,
        from: &Sizes,
        to: &Sizes,
    ) -> Result<(), Told> {
        if sizes::class(&sizes::with(&pod.sizes, to)) != pod.class {
            return Err((Reason::ClassWouldChange, "its class would change".to_owned()));
        }
        // A step that never came into force has restarted nothing, and does not by going back.
        let disturbs = pod.resizing == Resizing::Settled && restarts(pod, from, to);
        if disturbs {
            // It is under way itself.
            let mut slots = looked.slots;
            slots.busy = slots.busy.saturating_sub(u32::from(pod.is_ready && slots.busy > 0));
            slots.may(pod, true)?;
        }
        if pod.resizing != Resizing::Settled {
            // The node holds what it had before.
            return Ok(());
        }
        self.asked.in_place(looked.workload, pod, to).map_err(|why| (Reason::NoRoom, why))
    }

    /// A step goes no further: the pod is evicted, or what it had before is asked for again.
    fn stuck(&mut self, looked: &mut Looked<'_>, pod: &RunningPod, why: &str) {
        let Some(note) = pod.note.clone() else { return };
        let evicts = self.now.panic == Panic::Off && self.evictable(looked, pod, &note.target, true).is_ok();
        if evicts && self.paced(looked.workload).is_ok() {
            let told = (Reason::GaveUp, format!("it cannot be resized in place: {why}"));
            self.evict(looked, pod, note.target, told);
            return;
        }
        let note = note.at_stage(Stage::GivenUp, self.now.seconds, why);
        self.back(looked, pod, Some(note), (Reason::GaveUp, why.to_owned()));
    }

    pub(super) fn evict(&mut self, looked: &mut Looked<'_>, pod: &RunningPod, to: Sizes, told: Told) {
        self.kept.evicts(looked.workload, pod, self.now.seconds);
        self.act(looked, pod, PodAction::Evict { to }, None, told);
        looked.slots.takes(pod, true);
        looked.is_watching = Some(format!("{} is evicted", pod.name));
    }
}

/// Whether a container restarts by this.
fn restarts(pod: &RunningPod, from: &Sizes, to: &Sizes) -> bool {
    to.iter().any(|(name, new)| {
        let (old, container) = (from.get(name), pod.containers.get(name));
        container.is_some_and(|container| {
            (0..2).any(|at| container.restarts[at] && old.map(|old| old[at]) != Some(new[at]))
        })
    })
}
