//! From a connection's peer and a token to an identity.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_net::Peer;
use evenkeel_net::tls::Certificate;
use evenkeel_proto::bearer;

use super::groups::Groups;
use super::tokens::Tokens;
use super::{Grant, Identity, Nodes, Refusal, Who};
use crate::clock::WallClock;
use crate::config::Config;

/// What decides who asks.
#[derive(Debug)]
pub(crate) struct Access {
    groups: Groups,
    tokens: Arc<Tokens>,
    /// Names that clients may use for this program, beside addresses and `localhost`.
    hosts: Vec<String>,
    trust_domain: String,
    clock: WallClock,
    refused: AtomicU64,
}

impl Access {
    /// By the configuration.
    pub(crate) fn new(config: &Config, clock: WallClock) -> Self {
        let access = &config.access;
        Self {
            groups: Groups::new(&access.read_group, &access.change_group),
            tokens: Arc::new(Tokens::open(&access.tokens)),
            hosts: config.serve.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            trust_domain: config.tls.trust_domain.clone(),
            clock,
            refused: AtomicU64::new(0),
        }
    }

    /// Requests and calls refused for who made them, or how.
    pub(crate) fn refusals(&self) -> &AtomicU64 {
        &self.refused
    }

    pub(super) fn count_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// The tokens there are.
    pub(crate) fn tokens(&self) -> &Arc<Tokens> {
        &self.tokens
    }

    /// Who asks: whoever the token names, else whoever the kernel says is at the other end of a Unix socket.
    ///
    /// # Errors
    /// When a token is sent that is none.
    pub(crate) async fn identify(
        &self,
        peer: Option<&Peer>,
        authorization: Option<&[u8]>,
    ) -> Result<Identity, Refusal> {
        if let Some(header) = authorization {
            return self.holder(header);
        }
        match peer {
            Some(Peer::Local { uid, gid, .. }) => {
                let grant = self.groups.grant(*uid, *gid).await;
                Ok(Identity::new(Who::User(*uid), grant))
            }
            Some(Peer::Remote { certificate: Some(certificate), .. }) => self.certified(certificate),
            Some(Peer::Remote { .. }) | None => Ok(Identity::anonymous()),
        }
    }

    /// The node that a certificate names.
    fn certified(&self, certificate: &Certificate) -> Result<Identity, Refusal> {
        let refused = |why: String| Refusal {
            unnamed: true,
            why,
            remedy: "use one whose URI is spiffe://TRUST_DOMAIN/evenkeel/CLUSTER/NODE, with tls.trust_domain",
        };
        // The connection may outlive it.
        if certificate.expires() <= self.clock.now_usec() / 1_000_000 {
            return Err(refused("the certificate has ended".to_owned()));
        }
        let uris = certificate.uris();
        let [uri] = uris.as_slice() else {
            return Err(refused(format!("the certificate has {} URIs, one is expected", uris.len())));
        };
        let nodes = node_of(uri, &self.trust_domain)
            .ok_or_else(|| refused(format!("the certificate names {uri:?}, which is no node here")))?;
        Ok(Identity::new(Who::Certified(uri.clone()), Grant { nodes, ..Grant::default() }))
    }

    fn holder(&self, header: &[u8]) -> Result<Identity, Refusal> {
        let refused = |why: &str| Refusal {
            unnamed: true,
            why: why.to_owned(),
            remedy: "send one that `evenkeel-recommender token add` gave (evenkeel --token-file FILE)",
        };
        let token =
            bearer::token(header).ok_or_else(|| refused("the header authorization holds no bearer token"))?;
        let now = self.clock.now_usec() / 1_000_000;
        self.tokens.find(token, now).ok_or_else(|| refused("the token is not known, or its time is over"))
    }

    /// Whether a client may call this program by such a name (the header Host). A page of another site that had its own
    /// name point here would use that name; an address cannot be made to point elsewhere.
    pub(crate) fn is_ours(&self, host: &str) -> bool {
        let name = without_port(host).to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let literal = name.strip_prefix('[').and_then(|n| n.strip_suffix(']')).unwrap_or(name);
        name == "localhost"
            || literal.parse::<std::net::IpAddr>().is_ok()
            || self.hosts.iter().any(|host| host == name)
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

/// A host without its port.
fn without_port(host: &str) -> &str {
    if host.parse::<SocketAddr>().is_err() && host.ends_with(']') {
        return host;
    }
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
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

    #[test]
    fn a_host_is_an_address_localhost_or_configured() {
        let mut config = Config::default();
        config.serve.hosts = vec!["Recommender.example".into()];
        let access = Access::new(&config, WallClock::system());
        for (host, want) in [
            ("localhost", true),
            ("localhost:9521", true),
            ("LOCALHOST.:9521", true),
            ("127.0.0.1:9521", true),
            ("10.0.0.1", true),
            ("[::1]:9521", true),
            ("[::1]", true),
            ("recommender.example:443", true),
            ("evil.example", false),
            ("evil.example:9521", false),
            ("127.0.0.1.evil.example", false),
            ("localhost.evil.example:80", false),
            ("localhost:80@evil.example", false),
            ("", false),
        ] {
            assert_eq!(access.is_ours(host), want, "{host}");
        }
    }
}
