//! Encryption of addresses.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_net::tls::{Tls, TlsFiles, certificates};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, NodeNameSection, Span};
use crate::authority::NODE_LIFE;

/// Trust domain of the names that the own authority gives where no other is configured.
const OWN_DOMAIN: &str = "evenkeel";
/// Certificates of nodes hold at least so long: a renewal that failed is tried again after a minute.
const LEAST_NODE_LIFE: Duration = Duration::from_secs(60);
/// Other patterns of nodes' names at most.
const MAX_PATTERNS: usize = 16;

/// TLS 1.3 of `serve.grpc` and `serve.http`. The files are read again when they change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    /// The certificate and those between it and an authority, PEM; empty = no TLS, or the own authority's.
    pub cert: PathBuf,
    /// Its key, PEM, which others may not read.
    pub key: PathBuf,
    /// Authorities whose certificates name agents and people, PEM; empty = tokens alone, and the own authority where there is
    /// one.
    pub client_ca: PathBuf,
    /// Trust domain of these names: an agent's certificate has the URI `spiffe://TRUST_DOMAIN/evenkeel/CLUSTER/NODE`. Empty =
    /// evenkeel, with the own authority.
    pub trust_domain: String,
    /// Other patterns by which authorities of `client_ca` name agents, beside that of the trust domain.
    pub nodes: Vec<NodeNameSection>,
    /// Keep a certificate authority in the state directory: it gives certificates to agents that come with a join token (`evenkeel
    /// ca token NODE`), and to this program where there is no `cert`.
    pub authority: bool,
    /// How long a certificate holds that the own authority gives to a node, 1m to 24h: the agent renews it at two thirds, so that a third
    /// is left to mend what hinders that. Revocation is in force at once, whatever it is.
    pub node_life: Span,
}

impl Default for TlsSection {
    fn default() -> Self {
        let (cert, key, client_ca, trust_domain, nodes, authority) = Default::default();
        let node_life = Span::from_secs(NODE_LIFE.as_secs());
        Self { cert, key, client_ca, trust_domain, nodes, authority, node_life }
    }
}

impl TlsSection {
    /// The files that are configured, where there are any.
    fn named(&self) -> Result<Option<TlsFiles>, &'static str> {
        // The own authority's certificate stands beside other authorities for clients.
        let own = self.authority && self.cert.as_os_str().is_empty();
        let client_ca = if own { Path::new("") } else { &self.client_ca };
        TlsFiles::named(&self.cert, &self.key, client_ca)
    }

    /// The trust domain of agents' names; empty where no certificate names any.
    pub(crate) fn domain(&self) -> &str {
        match self.trust_domain.as_str() {
            "" if self.authority => OWN_DOMAIN,
            domain => domain,
        }
    }

    /// What is wrong: a key of the section, and what.
    pub(super) fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        match self.named() {
            Err(what) => found.push(("tls", what.to_owned())),
            Ok(None) => {}
            Ok(Some(files)) => {
                found.extend(
                    Tls::open(files).err().map(|error| ("tls", format!("cannot be served: {error}"))),
                );
            }
        }
        let has_others = !self.client_ca.as_os_str().is_empty();
        let is_unnamed = self.domain().is_empty() && self.nodes.is_empty();
        if (self.authority || has_others) == is_unnamed || (!has_others && !self.nodes.is_empty()) {
            let what = "is given together with tls.client_ca, or tls.nodes in its place";
            found.push(("tls.trust_domain", what.to_owned()));
        }
        if self.nodes.len() > MAX_PATTERNS {
            found.push(("tls.nodes", format!("must be at most {MAX_PATTERNS} patterns")));
        }
        let wrong = self.nodes.iter().filter_map(NodeNameSection::problem);
        found.extend(wrong.map(|what| ("tls.nodes", what)));
        if !(LEAST_NODE_LIFE..=NODE_LIFE).contains(&self.node_life.get()) {
            found.push(("tls.node_life", "must be 1m to 24h".to_owned()));
        }
        let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.');
        if !self.trust_domain.chars().all(of_name) {
            let what = "must be lower-case letters, digits and -._ (SPIFFE-ID, section 2.1)";
            found.push(("tls.trust_domain", what.to_owned()));
        }
        found
    }
}

impl Config {
    /// What the addresses are served with, where that is TLS.
    pub(crate) fn tls_files(&self) -> Option<TlsFiles> {
        let mut files = self.tls.named().ok().flatten();
        if self.tls.authority {
            files = Some(self.own_files(files));
        }
        let cluster_ca = self.kubernetes.client_ca().map(Path::to_owned);
        files.map(|files| TlsFiles { cluster_ca, ..files })
    }

    /// The same with the own authority.
    fn own_files(&self, named: Option<TlsFiles>) -> TlsFiles {
        let own = self.authority_dir();
        let mut files = named.unwrap_or_else(|| {
            let pair = own.join(crate::authority::SERVER_FILE);
            let client_ca = Some(self.tls.client_ca.clone()).filter(|path| !path.as_os_str().is_empty());
            TlsFiles {
                cert: pair.clone(),
                key: pair,
                client_ca: client_ca.into_iter().collect(),
                cluster_ca: None,
            }
        });
        files.client_ca.push(own.join(crate::authority::CERTIFICATE_FILE));
        files
    }

    /// What is wrong with the authority of a cluster: a key, and what.
    pub(super) fn cluster_authority_problem(&self) -> Option<(&'static str, String)> {
        let path = self.kubernetes.client_ca()?;
        let what = match self.tls_files() {
            None => {
                "needs tls.cert and tls.key, or tls.authority = true: certificates are shown over TLS alone"
                    .to_owned()
            }
            Some(_) => format!("cannot be used: {}", certificates(path).err()?),
        };
        Some(("kubernetes.client_ca", what))
    }

    /// Whether the own authority gives the certificate that is served.
    pub(crate) fn serves_own_certificate(&self) -> bool {
        self.tls.authority && self.tls.cert.as_os_str().is_empty()
    }

    /// Directory of the own authority.
    pub fn authority_dir(&self) -> PathBuf {
        self.state_dir.join("authority")
    }

    /// Which addresses other machines can reach, and that what they carry is not encrypted; `None` where there are none.
    pub fn plaintext(&self) -> Option<String> {
        if self.tls_files().is_some() {
            return None;
        }
        let open =
            evenkeel_net::in_the_clear(&[("serve.grpc", self.serve.grpc), ("serve.http", self.serve.http)])?;
        Some(format!(
            "{open}: give tls.cert and tls.key, or tls.authority = true, use serve.socket or a loopback address, or accept it \
             with insecure = true"
        ))
    }
}
