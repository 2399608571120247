//! Which node a certificate names: by the URI of the trust domain, or by a pattern that the configuration has (`tls.nodes`).

use std::collections::BTreeSet;

use evenkeel_net::tls::Certificate;

use super::Nodes;
use crate::config::{Config, NodeNameSection};

/// The forms of nodes' names.
#[derive(Debug)]
pub(super) struct NodeNames {
    trust_domain: String,
    others: Vec<NodeNameSection>,
}

impl NodeNames {
    /// By the configuration.
    pub(super) fn new(config: &Config) -> Self {
        Self { trust_domain: config.tls.domain().to_owned(), others: config.tls.nodes.clone() }
    }

    /// The name and node of a certificate that names one node. One of two nodes, or of a node and something else of the same
    /// kind by the trust domain, names none.
    pub(super) fn of(&self, certificate: &Certificate) -> Option<(String, Nodes)> {
        let uris = certificate.uris();
        if let [uri] = uris.as_slice()
            && let Some(nodes) = node_of(uri, &self.trust_domain)
        {
            return Some((uri.clone(), nodes));
        }
        if self.others.is_empty() {
            return None;
        }
        let dns: Vec<String> = certificate.dns_names().iter().map(|name| name.to_ascii_lowercase()).collect();
        let mut found = BTreeSet::new();
        for pattern in &self.others {
            let names = if pattern.is_uri() { &uris } else { &dns };
            let named = names.iter().filter_map(|name| Some((pattern.named(name)?, name.clone())));
            found.extend(named);
        }
        let ((cluster, node), name) = found.first().cloned()?;
        let is_one = found.iter().all(|((other, another), _)| (other, another) == (&cluster, &node));
        is_one.then_some((name, Nodes::Of { cluster, node: Some(node) }))
    }
}

/// The node that a URI of a trust domain names.
fn node_of(uri: &str, trust_domain: &str) -> Option<Nodes> {
    let path = uri.strip_prefix("spiffe://")?.strip_prefix(trust_domain)?.strip_prefix("/evenkeel/")?;
    let (cluster, node) = path.split_once('/')?;
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains(['/', '%', '?', '#']);
    (!trust_domain.is_empty() && is_name(cluster) && is_name(node))
        .then(|| Nodes::Of { cluster: cluster.to_owned(), node: Some(node.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_by_one_form_of_uri() {
        for (uri, want) in [
            ("spiffe://td/evenkeel/c/n", Some(("c", "n"))),
            ("spiffe://td/evenkeel/c/n.example", Some(("c", "n.example"))),
            ("spiffe://td/evenkeel/c/*", Some(("c", "*"))),
            ("spiffe://td/evenkeel/c/n/x", None),
            ("spiffe://td/evenkeel/c", None),
            ("spiffe://td/evenkeel//n", None),
            ("spiffe://td/evenkeel/c/..", None),
            ("spiffe://td/evenkeel/c/n%2fx", None),
            ("spiffe://tdx/evenkeel/c/n", None),
            ("spiffe://x/td/evenkeel/c/n", None),
            ("https://td/evenkeel/c/n", None),
        ] {
            let of = |(cluster, node): (&str, &str)| Nodes::Of {
                cluster: cluster.to_owned(),
                node: Some(node.to_owned()),
            };
            assert_eq!(node_of(uri, "td"), want.map(of), "{uri}");
        }
        assert_eq!(node_of("spiffe:///evenkeel/c/n", ""), None, "no domain is nobody's");
    }
}
