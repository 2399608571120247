//! The way back to what was asked for, step by step: `evenkeel policy panic on --revert`.
//!
//! The same steps as towards a recommendation (one container at a time, factor, pause, proof), except that neither band nor
//! room holds them: what was asked for is a container's right. A step that cannot be proven is told and not undone.

use std::time::Instant;

use evenkeel_model::decision::DecisionKind;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::ContainerResources;
use evenkeel_qos::overlay::{Clamp, OverlayCase, OverlayStep, step};

use super::{Flight, Overlay, OverlayNode, RequestInForce, Turn, resources, text};
use crate::decisions::Draft;
use crate::overlay::Switch;

impl Overlay {
    /// Proves the step under way, and takes the next one when it is time: containers that get more come first, then by id.
    pub(super) fn give_back(
        &mut self,
        switch: &Switch,
        node: &OverlayNode<'_>,
        now: Instant,
        turn: &mut Turn,
    ) {
        // A step towards a recommendation is no step back: it is not undone, its container goes back from where it is.
        self.flight.take_if(|flight| !flight.back);
        self.prove(node, now, turn);
        if self.flight.is_some() || now < self.next {
            return;
        }
        let moving = self.standing.iter().filter(|(_, standing)| !self.is_frozen(&standing.workload));
        let steps = moving.map(|(id, standing)| {
            let next = self.nearer(standing, node);
            let more = |r: &ContainerResources| (r.cpu_request, r.memory_request);
            let (before, after) = (more(&standing.resources), more(&next));
            (after.0 > before.0 || after.1 > before.1, id.clone(), next)
        });
        let Some((_, id, next)) = steps.min_by(|a, b| (!a.0, &a.1).cmp(&(!b.0, &b.1))) else {
            self.next = now + self.rules.pause;
            return;
        };
        let Some(before) = self.standing.remove(&id) else { return };
        let asked = resources(&before.workload).unwrap_or_default();
        let done = if next == asked { "it has back" } else { "a step back towards" };
        let draft = Draft::of(
            &before.workload,
            DecisionKind::Resize,
            format!("{done} the requests that were asked for: the panic switch is on: {}", switch.why()),
        );
        turn.drafts.push(draft.values(Some(text(&before.resources)), Some(text(&next))));
        turn.changed = true;
        if next != asked {
            let standing = RequestInForce { workload: before.workload.clone(), resources: next };
            self.standing.insert(id.clone(), standing);
        }
        match (node.seen)(&id) {
            Some(seen) => {
                let (generation, state) = (seen.generation, seen.state);
                self.flight =
                    Some(Flight { id, before: Some(before), generation, state, since: now, back: true });
            }
            None => self.next = now + self.rules.pause,
        }
    }

    /// What a container requests after its next step back.
    fn nearer(&self, standing: &RequestInForce, node: &OverlayNode<'_>) -> ContainerResources {
        let asked = resources(&standing.workload).unwrap_or_default();
        let now = standing.resources;
        let cpu = nearer(
            now.cpu_request.map(MilliCpu::get),
            asked.cpu_request.map(MilliCpu::get),
            self.rules.cpu(node.cpu_milli),
        );
        let memory = nearer(
            now.memory_request.map(Bytes::get),
            asked.memory_request.map(Bytes::get),
            self.rules.memory(node.memory_bytes),
        );
        ContainerResources {
            cpu_request: cpu.map(MilliCpu::new),
            memory_request: memory.map(Bytes::new),
            ..asked
        }
    }
}

/// One resource after its next step back: a request that was never asked for ends once it has come down to the least.
fn nearer(now: Option<u64>, asked: Option<u64>, clamp: Clamp) -> Option<u64> {
    let (at, target) = match (now, asked) {
        (None, asked) => return asked,
        (Some(at), None) if at <= clamp.least => return None,
        (Some(at), None) => (at, clamp.least),
        (Some(at), Some(target)) => (at, target),
    };
    let free = Clamp { least: 0, most: u64::MAX, ..clamp };
    let case = OverlayCase { now: Some(at), target, limit: None, free: u64::MAX, clamp: free };
    // What is left is not worth a step of its own.
    Some(step(&case).map_or(target, |OverlayStep { value, .. }| value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAMP: Clamp = Clamp { up_percent: 150, down_percent: 80, least: 10, most: 100 };

    #[test]
    fn each_step_is_bounded_and_the_last_is_what_was_asked_for() {
        /// What is in force, what was asked for, and the steps.
        type Row<'a> = (&'a str, Option<u64>, Option<u64>, &'a [Option<u64>]);
        let table: [Row<'_>; 6] = [
            ("up, past the band", Some(80), Some(300), &[Some(120), Some(180), Some(270), Some(300)]),
            ("down", Some(500), Some(350), &[Some(400), Some(350)]),
            ("too little for a step", Some(995), Some(1000), &[Some(1000)]),
            ("below the least", Some(10), Some(8), &[Some(8)]),
            ("never asked for", Some(14), None, &[Some(11), Some(10), None]),
            ("down to nothing", Some(2), Some(0), &[Some(1), Some(0)]),
        ];
        for (name, from, asked, want) in table {
            let mut now = from;
            let mut steps = Vec::new();
            while now != asked && steps.len() < 10 {
                now = nearer(now, asked, CLAMP);
                steps.push(now);
            }
            assert_eq!(steps, want, "{name}");
        }
    }
}
