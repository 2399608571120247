//! How the certificates of an authority of one's own name nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stand for the cluster and the node in a pattern.
const CLUSTER: &str = "CLUSTER";
const NODE: &str = "NODE";
/// Longest pattern.
const MAX_PATTERN: usize = 512;
/// Longest cluster: a DNS subdomain (RFC 1123).
const MAX_NAME: usize = 253;

/// A pattern of the names that an authority gives nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeNameSection {
    /// A URI such as `spiffe://example/hosts/CLUSTER/NODE`, or a DNS name such as `NODE.nodes.example`, which counts in small
    /// letters. CLUSTER and NODE stand for letters, digits and -_. (in a DNS name, dots for NODE alone).
    pub name: String,
    /// The cluster of these nodes, where the pattern has no CLUSTER.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
}

impl NodeNameSection {
    /// Whether it is for URIs; else for DNS names.
    pub(crate) fn is_uri(&self) -> bool {
        self.name.contains("://")
    }

    /// The cluster and the node that a name of the pattern's kind has.
    pub(crate) fn named(&self, name: &str) -> Option<(String, String)> {
        let PatternParts { before, between, after, node_first } = self.parts()?;
        let middle = name.strip_prefix(before)?.strip_suffix(after)?;
        let owned = |(cluster, node): (&str, &str)| {
            self.fits(cluster, node).then(|| (cluster.to_owned(), node.to_owned()))
        };
        let Some(between) = between else { return owned((&self.cluster, middle)) };
        // One place fits at most: what stands between has the one letter that one side cannot have.
        middle.match_indices(between).find_map(|(at, _)| {
            let (left, right) = (&middle[..at], &middle[at + between.len()..]);
            owned(if node_first { (right, left) } else { (left, right) })
        })
    }

    fn fits(&self, cluster: &str, node: &str) -> bool {
        let of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = |name: &str| {
            !name.is_empty() && !name.starts_with('.') && !name.ends_with('.') && name.chars().all(of_name)
        };
        let is_cluster = || is_name(cluster) && (self.is_uri() || !cluster.contains('.'));
        is_name(node) && (!self.cluster.is_empty() || is_cluster())
    }

    /// What stands around and between cluster and node; `None` where the pattern is none.
    fn parts(&self) -> Option<PatternParts<'_>> {
        let of = |word: &str| {
            let mut found = self.name.match_indices(word);
            let first = found.next().map(|(at, _)| at);
            // Twice is not one.
            (found.next().is_none()).then_some(first)
        };
        let (node, cluster) = (of(NODE)??, of(CLUSTER)?);
        let text = self.name.as_str();
        let Some(cluster) = cluster else {
            let (before, after) = (&text[..node], &text[node + NODE.len()..]);
            return Some(PatternParts { before, between: None, after, node_first: true });
        };
        let node_first = node < cluster;
        let (first, first_end, second, second_end) = match node_first {
            true => (node, node + NODE.len(), cluster, cluster + CLUSTER.len()),
            false => (cluster, cluster + CLUSTER.len(), node, node + NODE.len()),
        };
        let between = &text[first_end..second];
        let parting = if self.is_uri() { '/' } else { '.' };
        between.contains(parting).then_some(PatternParts {
            before: &text[..first],
            between: Some(between),
            after: &text[second_end..],
            node_first,
        })
    }

    /// What is wrong with it.
    pub(super) fn problem(&self) -> Option<String> {
        let what = match self.parts() {
            _ if self.name.len() > MAX_PATTERN => "must have at most 512 characters",
            None => {
                "must have NODE once, and CLUSTER at most once, with / or, in a DNS name, a dot between them"
            }
            Some(parts) if parts.between.is_some() != self.cluster.is_empty() => {
                "must either have CLUSTER in its name, or cluster beside it"
            }
            Some(_) if !self.is_uri() && self.name.contains(['/', ':', '@', '*']) => {
                "must be a URI, or a DNS name"
            }
            Some(_) if self.cluster.len() > MAX_NAME || self.cluster.contains('/') => {
                "must have a cluster of at most 253 characters without /"
            }
            Some(_) => return None,
        };
        Some(format!("{:?}: {what}", self.name))
    }
}

/// A pattern, taken apart.
struct PatternParts<'a> {
    before: &'a str,
    between: Option<&'a str>,
    after: &'a str,
    node_first: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(name: &str, cluster: &str) -> NodeNameSection {
        NodeNameSection { name: name.to_owned(), cluster: cluster.to_owned() }
    }

    #[test]
    fn a_pattern_names_one_cluster_and_one_node() {
        for (name, cluster, shown, want) in [
            ("spiffe://td/node/CLUSTER/NODE", "", "spiffe://td/node/c/n.example", Some(("c", "n.example"))),
            ("spiffe://td/node/CLUSTER/NODE", "", "spiffe://td/node/c/n/x", None),
            ("spiffe://td/node/CLUSTER/NODE", "", "spiffe://td/node/c/..", None),
            ("spiffe://td/node/CLUSTER/NODE", "", "spiffe://td/node/c/n%2fx", None),
            ("spiffe://td/node/CLUSTER/NODE", "", "spiffe://td/node//n", None),
            ("spiffe://td/node/CLUSTER/NODE", "", "spiffe://other/node/c/n", None),
            ("spiffe://CLUSTER/host/NODE", "", "spiffe://c.example/host/n", Some(("c.example", "n"))),
            ("spiffe://td/host/NODE/agent", "c", "spiffe://td/host/n/agent", Some(("c", "n"))),
            ("spiffe://td/host/NODE/agent", "c", "spiffe://td/host/n/agent/agent", None),
            ("NODE.nodes.CLUSTER", "", "n1.dc.nodes.c", Some(("c", "n1.dc"))),
            ("NODE.nodes.CLUSTER", "", "n1.nodes.x.nodes.c", Some(("c", "n1.nodes.x"))),
            ("NODE.nodes.CLUSTER", "", "n1.nodes.c.d", None),
            ("NODE", "c", "n1.example", Some(("c", "n1.example"))),
            ("NODE.example", "c", "*.example", None),
            ("NODE.example", "c", "n1.example.evil", None),
            ("NODE.example", "c", ".example", None),
            ("CLUSTER.NODE", "", "c.n1.example", Some(("c", "n1.example"))),
        ] {
            let pattern = pattern(name, cluster);
            assert_eq!(pattern.problem(), None, "{name}");
            let want = want.map(|(cluster, node)| (cluster.to_owned(), node.to_owned()));
            assert_eq!(pattern.named(shown), want, "{name}: {shown}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_told() {
        for (name, cluster, want) in [
            ("spiffe://td/CLUSTER", "", "must have NODE once"),
            ("spiffe://td/NODE/NODE", "c", "must have NODE once"),
            ("CLUSTER-NODE.example", "", "a dot between them"),
            ("spiffe://td/CLUSTER.NODE", "", "/ or, in a DNS name"),
            ("spiffe://td/NODE", "", "or cluster beside it"),
            ("spiffe://td/CLUSTER/NODE", "c", "or cluster beside it"),
            ("td/NODE", "c", "must be a URI"),
            ("*.NODE", "c", "must be a URI"),
            ("NODE", "a/b", "without /"),
            (&"x".repeat(600), "c", "at most 512"),
        ] {
            let told = pattern(name, cluster).problem().unwrap_or_default();
            assert!(told.contains(want), "{name}: {told}");
        }
    }
}
