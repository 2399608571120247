//! The numbers of a verdict as text by name, and the verdict made again from them.

use std::collections::BTreeMap;

use evenkeel_model::units::Bytes;

use super::protection::{Node, Path, ProtectionKnob, Verdict, effective};
use super::weight::{WeightLevel, WeightVerdict, competition};
use crate::formula;
use crate::plan::Inputs;

type Texts = BTreeMap<String, String>;

/// Levels a decision carries; a path that is deeper is left out of it, for a decision is bounded.
const MOST_LEVELS: usize = 32;
/// What a replayed verdict says where nothing takes the effect away.
const NOBODY: &str = "nobody";

/// What a verdict on a protection was made from: one input for each level, `setting usage claims path`.
pub fn protection_inputs(knob: ProtectionKnob, path: Path<'_>) -> Inputs {
    let level =
        |n: &Node| format!("{} {} {} {}", n.setting.get(), n.usage.get(), n.siblings_claim.get(), n.path);
    let of_path = [
        ("protection".to_owned(), knob.name().to_owned()),
        ("recursive".to_owned(), path.recursive.to_string()),
    ];
    levels(formula::EFFECTIVE_PROTECTION, path.nodes.iter().map(level)).chain(of_path).collect()
}

/// What a verdict on a weight was made from: one input for each level, `siblings processes ours path`.
pub fn weight_inputs(path: &[WeightLevel]) -> Inputs {
    let level =
        |l: &WeightLevel| format!("{} {} {} {}", l.populated_siblings, l.processes_beside, l.is_ours, l.path);
    levels(formula::EFFECTIVE_WEIGHT, path.iter().map(level)).collect()
}

fn levels(
    formula: &str,
    of: impl ExactSizeIterator<Item = String>,
) -> impl Iterator<Item = (String, String)> {
    let most = if of.len() <= MOST_LEVELS { MOST_LEVELS } else { 0 };
    // Two digits, so that the order of names is that of levels.
    let levels = of.take(most).enumerate().map(|(depth, text)| (format!("level_{depth:02}"), text));
    std::iter::once(("formula".to_owned(), formula.to_owned())).chain(levels)
}

/// Three words and a path, which may hold spaces, for each level.
fn read_levels<T>(all: &Texts, one: impl Fn([&str; 3], &str) -> Option<T>) -> Option<Vec<T>> {
    let texts = all.iter().filter(|(name, _)| name.starts_with("level_")).map(|(_, text)| text);
    let levels: Option<Vec<T>> = texts
        .map(|text| {
            let mut words = text.splitn(4, ' ');
            one([words.next()?, words.next()?, words.next()?], words.next()?)
        })
        .collect();
    levels.filter(|levels| !levels.is_empty())
}

/// Who takes a protection's effect away, by the present rule: the ancestor's path, or `nobody`; `None` when these are
/// not such inputs.
pub fn replay_protection(all: &Texts) -> Option<String> {
    let knob = [ProtectionKnob::Min, ProtectionKnob::Low];
    let knob = knob.into_iter().find(|k| all.get("protection").is_some_and(|name| name == k.name()))?;
    let nodes = read_levels(all, |words, path| {
        let [setting, usage, claims] = words.map(|w| w.parse().ok().map(Bytes::new));
        Some(Node { path: path.to_owned(), setting: setting?, usage: usage?, siblings_claim: claims? })
    })?;
    let recursive = all.get("recursive")?.parse().ok()?;
    Some(match effective(knob, Path { nodes: &nodes, recursive }).verdict {
        Verdict::Granted => NOBODY.to_owned(),
        Verdict::Partly { by, .. } => by,
        Verdict::Ineffective { ancestor, .. } => ancestor,
    })
}

/// The same for a weight.
pub fn replay_weight(all: &Texts) -> Option<String> {
    let path = read_levels(all, |[siblings, beside, ours], path| {
        Some(WeightLevel {
            path: path.to_owned(),
            populated_siblings: siblings.parse().ok()?,
            processes_beside: beside.parse().ok()?,
            is_ours: ours.parse().ok()?,
        })
    })?;
    Some(match competition(&path)? {
        WeightVerdict::Granted(_) | WeightVerdict::Carried(_) => NOBODY.to_owned(),
        WeightVerdict::Ineffective { ancestor, .. } => ancestor,
    })
}
