//! `memory.min` and `memory.low` along a path of ancestors.

use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

/// Which protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum ProtectionKnob {
    /// `memory.min`: never reclaimed.
    #[default]
    #[serde(rename = "memory.min")]
    Min,
    /// `memory.low`: reclaimed when nothing unprotected is left.
    #[serde(rename = "memory.low")]
    Low,
}

impl ProtectionKnob {
    /// The kernel's file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Min => "memory.min",
            Self::Low => "memory.low",
        }
    }
}

/// One cgroup on the path, with its values of the knob in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathCgroup {
    /// Path below the hierarchy's root.
    pub path: String,
    /// Value of the knob (`memory.min` or `memory.low`); `max` as the largest number.
    pub setting: Bytes,
    /// `memory.current`.
    pub usage: Bytes,
    /// Sum over the *other* children of the same parent of `min(usage, setting)`: what they claim.
    pub siblings_claim: Bytes,
}

/// From the topmost cgroup below the root (first) to the container (last).
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    /// The cgroups; the root itself is not among them.
    pub nodes: &'a [PathCgroup],
    /// Whether cgroup2 is mounted with `memory_recursiveprot`: what children do not claim of their parent's
    /// protection is spread over them by use.
    pub recursive: bool,
}

/// An ancestor whose own setting is smaller than what its children claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Short {
    /// Its path.
    pub ancestor: String,
    /// Its setting.
    pub has: Bytes,
    /// What its children claim once the container uses all it was promised.
    pub needs: Bytes,
}

/// What comes of a protection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum ProtectionEffect {
    /// All of it holds.
    Granted,
    /// A part holds.
    Partly {
        /// Bytes that hold once the container uses all it was promised.
        granted: Bytes,
        /// The topmost ancestor that is short.
        by: String,
        /// What to do.
        remedy: String,
    },
    /// Nothing holds.
    Ineffective {
        /// The topmost ancestor that is short.
        ancestor: String,
        /// What to do.
        remedy: String,
    },
}

/// The effect of a protection, now and when it is needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Protected {
    /// What the kernel protects at the present use.
    pub now: Bytes,
    /// What it would protect if the container used at least its setting and all else stayed.
    pub at_full_use: Bytes,
    /// Judged at full use: a container that uses little today is told today.
    pub verdict: ProtectionEffect,
    /// Every ancestor that is short, topmost first.
    pub short: Vec<Short>,
}

/// Computes the effect of `knob` of the last node of the path. An empty path or a setting of zero is granted:
/// there is nothing to take away.
pub fn effective(knob: ProtectionKnob, path: Path<'_>) -> Protected {
    let Some(leaf) = path.nodes.last() else {
        return Protected {
            now: Bytes::ZERO,
            at_full_use: Bytes::ZERO,
            verdict: ProtectionEffect::Granted,
            short: Vec::new(),
        };
    };
    let missing = leaf.setting.saturating_sub(leaf.usage);
    let now = walk(path, Bytes::ZERO);
    let at_full_use = walk(path, missing);
    let short = short(path.nodes, missing);
    let verdict = verdict(knob, leaf.setting, at_full_use, &short);
    Protected { now, at_full_use, verdict, short }
}

/// Effective protection of the last node, its use and that of its ancestors being larger by `more`.
fn walk(path: Path<'_>, more: Bytes) -> Bytes {
    let mut parent: Option<(Bytes, Bytes)> = None;
    for node in path.nodes {
        let usage = node.usage.saturating_add(more);
        let effective = match parent {
            // The root has no limit of its own to hand down: its children have what they ask for.
            None => node.setting,
            Some((parent_usage, parent_effective)) => {
                share(node, usage, parent_usage, parent_effective, path.recursive)
            }
        };
        parent = Some((usage, effective));
    }
    parent.map_or(Bytes::ZERO, |(usage, effective)| effective.min(usage))
}

/// `effective_protection()` of mm/page_counter.c (mm/memcontrol.c before 6.11), in wider integers.
fn share(
    node: &PathCgroup,
    usage: Bytes,
    parent_usage: Bytes,
    parent_effective: Bytes,
    recursive: bool,
) -> Bytes {
    let protected = u128::from(usage.min(node.setting).get());
    let claimed = protected + u128::from(node.siblings_claim.get());
    let granted = u128::from(parent_effective.get());
    if claimed > granted {
        return bytes(protected * granted / claimed);
    }
    let (parent_usage, usage) = (u128::from(parent_usage.get()), u128::from(usage.get()));
    let spreads = recursive && granted > claimed && parent_usage > claimed && usage > protected;
    if !spreads {
        return bytes(protected);
    }
    let unclaimed = (granted - claimed) * (usage - protected) / (parent_usage - claimed);
    bytes(protected + unclaimed)
}

fn bytes(value: u128) -> Bytes {
    Bytes::new(u64::try_from(value).unwrap_or(u64::MAX))
}

/// Ancestors whose setting is below what their children claim. When there is none, everything claimed is
/// granted: each level's claims fit its own setting and use, from the top down.
fn short(nodes: &[PathCgroup], more: Bytes) -> Vec<Short> {
    let claim = |n: &PathCgroup| {
        let own = n.setting.min(n.usage.saturating_add(more));
        own.saturating_add(n.siblings_claim)
    };
    // What the path claims of an ancestor is the container's claim, whatever lies between grants of it.
    let Some(leaf) = nodes.last() else { return Vec::new() };
    let leaf_claim = leaf.setting.min(leaf.usage.saturating_add(more));
    nodes
        .windows(2)
        .filter_map(|pair| {
            let [ancestor, child] = pair else { return None };
            let needs = claim(child).max(leaf_claim.saturating_add(child.siblings_claim));
            (ancestor.setting < needs).then(|| Short {
                ancestor: ancestor.path.clone(),
                has: ancestor.setting,
                needs,
            })
        })
        .collect()
}

fn verdict(knob: ProtectionKnob, wanted: Bytes, granted: Bytes, short: &[Short]) -> ProtectionEffect {
    // Pages are counted in batches per CPU, and division truncates: a page is not worth a word.
    const PAGE: u64 = 4096;
    let Some(first) = short.first() else { return ProtectionEffect::Granted };
    if granted.get().saturating_add(PAGE) >= wanted.get() {
        return ProtectionEffect::Granted;
    }
    let remedy = remedy(knob, short);
    if granted.get() < PAGE {
        ProtectionEffect::Ineffective { ancestor: first.ancestor.clone(), remedy }
    } else {
        ProtectionEffect::Partly { granted, by: first.ancestor.clone(), remedy }
    }
}

/// A sentence that names every ancestor to change, and the way to have it done.
fn remedy(knob: ProtectionKnob, short: &[Short]) -> String {
    let knob = knob.name();
    let changes: Vec<_> =
        short.iter().map(|s| format!("{} to at least {} (it is {})", s.ancestor, s.needs, s.has)).collect();
    let top = short.first().map_or("", |s| s.ancestor.as_str());
    format!(
        "set {knob} of {}, or give the subtree to the agent with own = [\"{top}\"]",
        changes.join(" and of ")
    )
}
