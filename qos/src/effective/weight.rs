//! Where a CPU weight competes.
//!
//! A weight compares a cgroup with its siblings and says nothing else. It competes when another child of the
//! same parent (or a process in the parent itself, on v1) has something to run. Where there is none, the weight
//! of the next ancestor that has such siblings decides, and that one follows the request only if it is ours.

use serde::Serialize;

/// One cgroup on the path to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightLevel {
    /// Path below the hierarchy's root.
    pub path: String,
    /// Children of the same parent, other than this one, that have processes anywhere below them.
    pub populated_siblings: u32,
    /// Processes in the parent itself, which compete each like a cgroup of 1024 shares (v1 only; zero on v2,
    /// where only leaves have processes, and at the root, whose processes compete with its children).
    pub processes_beside: u32,
    /// Whether its weight is set by the agent: the container itself, and cgroups of an owned subtree.
    pub is_ours: bool,
}

/// Where the competition is decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Competition {
    /// The cgroup whose weight counts.
    pub cgroup: String,
    /// The parent whose children it competes with.
    pub under: String,
    /// How many siblings and processes compete with it.
    pub with: u32,
}

/// What comes of the weight of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum WeightVerdict {
    /// It competes with siblings of its own.
    Granted(Competition),
    /// It has no sibling, but the next ancestor that has some is weighted by the agent, by the sum of requests.
    Carried(Competition),
    /// It has no sibling, and the weight that decides is somebody else's.
    Ineffective {
        /// The ancestor whose weight decides; the parent, where nothing competes at any level.
        ancestor: String,
        /// What to do.
        remedy: String,
    },
}

/// Judges the weight of the last level of a path, given from the topmost cgroup below the root (first) to the
/// container (last). An empty path has nothing to judge.
pub fn competition(path: &[WeightLevel]) -> Option<WeightVerdict> {
    let (leaf, above) = path.split_last()?;
    let rivals = |level: &WeightLevel| level.populated_siblings.saturating_add(level.processes_beside);
    let at = |level: &WeightLevel| Competition {
        cgroup: level.path.clone(),
        under: parent_of(&level.path).to_owned(),
        with: rivals(level),
    };
    if rivals(leaf) > 0 {
        return Some(WeightVerdict::Granted(at(leaf)));
    }
    let decides = above.iter().rev().find(|level| rivals(level) > 0);
    Some(match decides {
        Some(level) if level.is_ours => WeightVerdict::Carried(at(level)),
        Some(level) => WeightVerdict::Ineffective {
            ancestor: level.path.clone(),
            remedy: format!(
                "no sibling competes with it: the weight of {} decides; set that by the requests below it, or \
                 give the subtree to the agent with own = [\"{}\"]",
                level.path, level.path
            ),
        },
        None => WeightVerdict::Ineffective {
            ancestor: parent_of(&leaf.path).to_owned(),
            remedy: "nothing competes with it at any level: it may use every CPU until something does".into(),
        },
    })
}

/// The path without its last part; `/` for a topmost cgroup.
fn parent_of(path: &str) -> &str {
    match path.rfind('/') {
        Some(0) | None => "/",
        Some(at) => &path[..at],
    }
}
