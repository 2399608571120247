//! What a step leaves on its pod before it is taken (the message of the condition `evenkeel.dev/Resize`): what was asked for at first, what it
//! had, what it is to have, and how far that is. Whoever leads next needs nothing else.

use std::collections::BTreeMap;

use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::Resource;
use serde::{Deserialize, Serialize};

use crate::facts::{Size, Sizes, Two, place};

/// Longest text of a note, bytes: a condition's message has 32 KiB.
pub const MOST_BYTES: usize = 16 << 10;

/// How far a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// It was asked for.
    Asked,
    /// It is in force.
    Done,
    /// It is in force, and was watched, and nothing became worse.
    Passed,
    /// It came to nothing, and what was there before is asked for again.
    GivenUp,
    /// It made the pod worse, and what was there before is asked for again.
    Worse,
    /// What was asked for at first is asked for again.
    Reverted,
}

impl Stage {
    /// The word, which is the condition's reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "Asked",
            Self::Done => "Done",
            Self::Passed => "Passed",
            Self::GivenUp => "GivenUp",
            Self::Worse => "Worse",
            Self::Reverted => "Reverted",
        }
    }
}

/// What a step leaves on its pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// How far it is.
    pub stage: Stage,
    /// It is the first replica with this size.
    pub is_canary: bool,
    /// Since when, seconds since 1970.
    pub at: u64,
    /// Steps to this size that came to nothing.
    pub tries: u32,
    /// What the pod had before the first step.
    pub original: Sizes,
    /// What it had before this one.
    pub before: Sizes,
    /// What it is to have.
    pub target: Sizes,
    /// Why it came to nothing.
    pub why: String,
}

/// As it is written. What a later release writes beside it is left aside: what was asked for at first must not be lost.
#[derive(Serialize, Deserialize)]
struct StoredNote {
    stage: Stage,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    canary: bool,
    at: u64,
    #[serde(default, skip_serializing_if = "is_none")]
    tries: u32,
    original: BTreeMap<String, Amounts>,
    before: BTreeMap<String, Amounts>,
    target: BTreeMap<String, Amounts>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    why: String,
}

/// Request and limit of each resource as `100m/200m`; `-` for what is not asked for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Amounts {
    cpu: String,
    memory: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

/// An amount as Kubernetes writes it.
pub fn quantity(resource: Resource, amount: u64) -> String {
    let quantity = match resource {
        Resource::Cpu => Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)),
        Resource::Memory => Quantity::from_bytes(amount),
    };
    quantity.to_string()
}

fn amount(resource: Resource, text: &str) -> Option<u64> {
    let quantity = Quantity::parse(text).ok()?;
    match resource {
        // What is written is a quantity of so many thousandths again.
        Resource::Cpu => quantity.milli_u64().filter(|milli| i64::try_from(*milli).is_ok()),
        Resource::Memory => quantity.to_u64(),
    }
}

/// Request and limit as `100m/200m`.
pub fn size(resource: Resource, size: Size) -> String {
    let of = |amount: Option<u64>| amount.map_or_else(|| "-".to_owned(), |amount| quantity(resource, amount));
    format!("{}/{}", of(size.request), of(size.limit))
}

fn read_size(resource: Resource, text: &str) -> Option<Size> {
    let (request, limit) = text.split_once('/')?;
    let of = |text: &str| match text {
        "-" => Some(None),
        text => amount(resource, text).map(Some),
    };
    Some(Size { request: of(request)?, limit: of(limit)? })
}

fn written(sizes: &Sizes) -> BTreeMap<String, Amounts> {
    let of = |two: &Two<Size>| Amounts {
        cpu: size(Resource::Cpu, two[place(Resource::Cpu)]),
        memory: size(Resource::Memory, two[place(Resource::Memory)]),
    };
    sizes.iter().map(|(name, two)| (name.clone(), of(two))).collect()
}

fn read(sizes: BTreeMap<String, Amounts>) -> Option<Sizes> {
    let of = |(name, amounts): (String, Amounts)| {
        let cpu = read_size(Resource::Cpu, &amounts.cpu)?;
        Some((name, [cpu, read_size(Resource::Memory, &amounts.memory)?]))
    };
    sizes.into_iter().map(of).collect()
}

impl Note {
    /// The text of it.
    pub fn text(&self) -> String {
        let written = StoredNote {
            stage: self.stage,
            canary: self.is_canary,
            at: self.at,
            tries: self.tries,
            original: written(&self.original),
            before: written(&self.before),
            target: written(&self.target),
            why: self.why.clone(),
        };
        // Maps with keys that are text can be written.
        serde_json::to_string(&written).unwrap_or_default()
    }

    /// From its text; nothing where it is none.
    pub fn read(text: &str) -> Option<Self> {
        let written: StoredNote = serde_json::from_str(text).ok()?;
        Some(Self {
            stage: written.stage,
            is_canary: written.canary,
            at: written.at,
            tries: written.tries,
            original: read(written.original)?,
            before: read(written.before)?,
            target: read(written.target)?,
            why: written.why,
        })
    }

    /// What the pod has by the last step that is over.
    pub fn holds(&self) -> Sizes {
        match self.stage {
            Stage::Asked | Stage::Done | Stage::Passed | Stage::Reverted => self.target.clone(),
            Stage::GivenUp | Stage::Worse => self.back(),
        }
    }

    /// What it had before this step, as far as that can be had again: what is asked for is not taken away in place.
    pub fn back(&self) -> Sizes {
        let of = |(name, before): (&String, &Two<Size>)| {
            let target = self.target.get(name).copied().unwrap_or_default();
            let back = [0, 1].map(|at| Size {
                request: before[at].request.or(target[at].request),
                limit: before[at].limit.or(target[at].limit),
            });
            (name.clone(), back)
        };
        self.before.iter().map(of).collect()
    }

    /// Another stage of it.
    #[must_use]
    pub fn at_stage(&self, stage: Stage, at: u64, why: impl Into<String>) -> Self {
        let failed = matches!(stage, Stage::GivenUp | Stage::Worse);
        // Whoever may write to the pod may have written this, too.
        let tries = self.tries.saturating_add(u32::from(failed));
        Self { stage, at, tries, why: why.into(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_others_are_none() {
        let sizes = |cpu: u64, limit: Option<u64>| {
            let cpu = Size { request: Some(cpu), limit };
            Sizes::from([("main".to_owned(), [cpu, Size { request: Some(64 << 20), limit: None }])])
        };
        let note = Note {
            stage: Stage::Asked,
            is_canary: true,
            at: 7,
            tries: 0,
            original: sizes(100, None),
            before: sizes(150, Some(1500)),
            target: sizes(2000, Some(3000)),
            why: String::new(),
        };
        let text = note.text();
        assert!(text.contains(r#""target":{"main":{"cpu":"2/3","memory":"64Mi/-"}}"#), "{text}");
        assert_eq!(Note::read(&text), Some(note.clone()));
        let given_up = note.at_stage(Stage::GivenUp, 9, "no room");
        assert_eq!((given_up.tries, given_up.holds()), (1, note.before));
        // A limit that was added stays.
        let before = sizes(150, None);
        assert_eq!(Note { before, ..given_up.clone() }.holds(), sizes(150, Some(3000)));
        assert_eq!(Note::read(&given_up.text()), Some(given_up));
        for wrong in ["", "{}", "null", &text.replace("64Mi", "much"), &text.replace("Asked", "Wished")] {
            assert_eq!(Note::read(wrong), None, "{wrong}");
        }
    }
}
