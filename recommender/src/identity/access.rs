//! From a connection's peer and a token to an identity.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use evenkeel_net::Peer;
use evenkeel_net::tls::Certificate;
use evenkeel_proto::bearer;
use evenkeel_store::clock::WallClock;

use super::groups::Groups;
use super::named::NodeNames;
use super::rate::{self, Rates, Refusals};
use super::tokens::{PREFIX, Tokens};
use super::{AccessRefusal, Grant, Identity, Kubernetes, Proof, RefusalKind, Rights, Who};
use crate::authority::Authority;
use crate::config::{CertificateSection, Config};
use crate::leading::Leading;

/// What decides who asks.
#[derive(Debug)]
pub(crate) struct Access {
    groups: Groups,
    tokens: Arc<Tokens>,
    /// Names that clients may use for this program, beside addresses and `localhost`.
    hosts: Vec<String>,
    nodes: NodeNames,
    people: Vec<CertificateSection>,
    /// Says which nodes are revoked, where it is kept here.
    authority: Option<Arc<Authority>>,
    /// Knows callers that nobody else does.
    kubernetes: Option<Arc<Kubernetes>>,
    /// Whether changes are taken here.
    leading: Arc<Leading>,
    clock: WallClock,
    rates: Rates,
    refusals: Refusals,
    refused: AtomicU64,
    limited: AtomicU64,
}

impl Access {
    /// By the configuration.
    pub(crate) fn new(config: &Config, clock: WallClock, authority: Option<Arc<Authority>>) -> Self {
        let access = &config.access;
        Self {
            groups: Groups::new(&access.read_group, &access.change_group),
            tokens: Arc::new(Tokens::open(&access.tokens)),
            hosts: config.serve.hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            nodes: NodeNames::new(config),
            people: access.certificates.clone(),
            authority,
            kubernetes: None,
            leading: Arc::default(),
            clock,
            rates: Rates::new(access.requests_per_second),
            refusals: Refusals::new(),
            refused: AtomicU64::new(0),
            limited: AtomicU64::new(0),
        }
    }

    /// The same with a cluster whose API server knows callers.
    #[must_use]
    pub(crate) fn with_kubernetes(self, kubernetes: Option<Arc<Kubernetes>>) -> Self {
        Self { kubernetes, ..self }
    }

    /// The same with a Lease that says who leads.
    #[must_use]
    pub(crate) fn with_leading(self, leading: Arc<Leading>) -> Self {
        Self { leading, ..self }
    }

    /// Why a change is not taken here.
    pub(super) fn takes_no_changes(&self) -> Option<String> {
        self.leading.refusal()
    }

    /// The cluster whose API server knows callers.
    pub(crate) fn kubernetes(&self) -> Option<&Arc<Kubernetes>> {
        self.kubernetes.as_ref()
    }

    /// When what lets in a caller ends, seconds since 1970, where that is a token and it does.
    pub(crate) fn ends(&self, identity: &Identity) -> Option<u64> {
        match identity.proof() {
            Proof::Token(hash) => self.tokens.ends(&hash),
            Proof::Reviewed(shown) => shown.expires(),
            Proof::Certificate(_) | Proof::Lasting => None,
        }
    }

    /// Requests and calls refused for who made them, or how.
    pub(crate) fn refusals(&self) -> &AtomicU64 {
        &self.refused
    }

    /// Requests and calls refused because their caller had made too many.
    pub(crate) fn limited(&self) -> &AtomicU64 {
        &self.limited
    }

    /// Somebody was refused: counted, and told once a minute with a number.
    pub(crate) fn refuse(&self, caller: &str, place: &str, why: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        if let Some(refused) = self.refusals.add(caller, place, why, Instant::now()) {
            tracing::info!(caller, place, why, refused, "a caller was refused");
        }
    }

    /// Tells the refusals nobody was told of for a minute.
    pub(crate) fn look(&self) {
        for (caller, refused, place, why) in self.refusals.due(Instant::now()) {
            tracing::info!(caller, place, why, refused, "a caller was refused");
        }
    }

    /// A request of so many bytes, of somebody known or of nobody; how its caller is called. `is_free` is what is not limited.
    ///
    /// # Errors
    /// After how many seconds it may be made again.
    pub(super) fn admit(
        &self,
        identity: Option<&Identity>,
        peer: Option<&Peer>,
        bytes: u64,
        is_free: bool,
    ) -> Result<String, (String, u64)> {
        let caller = identity.and_then(Identity::name).unwrap_or_else(|| rate::caller(peer));
        if is_free || identity.is_some_and(Identity::is_owner) {
            return Ok(caller);
        }
        match self.rates.take(&caller, bytes, Instant::now()) {
            Ok(()) => Ok(caller),
            Err(after) => {
                self.limited.fetch_add(1, Ordering::Relaxed);
                Err((caller, after.as_secs() + 1))
            }
        }
    }

    /// Whether what a caller sends counts.
    pub(super) fn pays(identity: &Identity, is_free: bool) -> bool {
        !is_free && !identity.is_owner()
    }

    /// So much of a request, in thousandths, was read of a caller.
    pub(super) fn pay(&self, caller: &str, cost: u64) {
        if cost > 0 {
            self.rates.pay(caller, cost, Instant::now());
        }
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
    ) -> Result<Identity, AccessRefusal> {
        if let Some(header) = authorization {
            return self.holder(header, peer).await;
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

    /// The node or person that a certificate names.
    fn certified(&self, certificate: &Certificate) -> Result<Identity, AccessRefusal> {
        let refused = |why: String| AccessRefusal {
            kind: RefusalKind::Unnamed,
            why,
            remedy: "use one whose URI is spiffe://TRUST_DOMAIN/evenkeel/CLUSTER/NODE, with tls.trust_domain, one that has the \
                     form of tls.nodes, one that access.certificates gives roles, or that of a user of the cluster, with \
                     kubernetes.client_ca",
        };
        // The connection may outlive it.
        if certificate.expires() <= self.now() {
            let remedy = "use a new one; an agent with a join token renews its own (evenkeel ca token NODE)";
            return Err(AccessRefusal {
                kind: RefusalKind::Unnamed,
                why: "the certificate has ended".to_owned(),
                remedy,
            });
        }
        if let Some((name, grant)) = self.named(certificate) {
            let proof = Proof::Certificate(certificate.clone());
            let identity = Identity::proven(Who::Certified(name), grant, proof);
            self.is_admitted(&identity, Some(certificate.begins()))?;
            return Ok(identity);
        }
        let user = self.kubernetes.as_ref().and_then(|kubernetes| kubernetes.certified(certificate));
        user.ok_or_else(|| {
            let subject = certificate.common_name().into_iter().collect();
            let names = [certificate.uris(), certificate.emails(), certificate.dns_names(), subject].concat();
            refused(format!(
                "the certificate names {names:?}, which is neither one node nor somebody with a role here"
            ))
        })
    }

    /// The node or person that a certificate of the listener's authorities names.
    fn named(&self, certificate: &Certificate) -> Option<(String, Grant)> {
        // Whom the authority of a cluster names is for the cluster to say.
        if !certificate.vouched().by_listener {
            return None;
        }
        let node = self.nodes.of(certificate);
        node.map(|(name, nodes)| (name, Grant { nodes, ..Grant::default() }))
            .or_else(|| self.person(certificate))
    }

    /// Somebody whose name in a certificate has a pattern that was given roles: the roles of every pattern that fits in
    /// the namespaces of the first.
    fn person(&self, certificate: &Certificate) -> Option<(String, Grant)> {
        let names: Vec<String> = [certificate.uris(), certificate.emails()].concat();
        self.people.iter().find_map(|people| {
            let name = names.iter().find(|name| people.fits(name))?;
            Some((name.clone(), people.grant()))
        })
    }

    /// Whether the authority has not revoked the node that an identity is, which rests on a certificate that began then.
    fn is_admitted(&self, identity: &Identity, begins: Option<u64>) -> Result<(), AccessRefusal> {
        let (Some(authority), Some(name)) = (&self.authority, identity.node()) else { return Ok(()) };
        if !authority.register().refuses(&name, begins) {
            return Ok(());
        }
        Err(AccessRefusal {
            kind: RefusalKind::Unnamed,
            why: format!("node {name} was revoked"),
            remedy: "make a join token for it, and give it to its agent (evenkeel ca token NODE)",
        })
    }

    /// Whether what let a caller in still does: it is asked while a call lasts.
    ///
    /// # Errors
    /// Says what was taken back or has ended.
    pub(crate) fn stands(&self, identity: &Identity) -> Result<(), AccessRefusal> {
        match &identity.proof() {
            Proof::Lasting => Ok(()),
            Proof::Token(hash) => {
                let now = self.tokens.find_hash(hash, self.now());
                if now.is_some_and(|now| now.is_as(identity)) {
                    return self.is_admitted(identity, None);
                }
                Err(AccessRefusal {
                    kind: RefusalKind::Unnamed,
                    why: "the token was taken back, or its time is over".to_owned(),
                    remedy: "connect again with one that is in force (evenkeel-recommender token list)",
                })
            }
            Proof::Certificate(certificate) => {
                self.certified(certificate)?;
                identity.rights().map_or(Ok(()), Rights::stand)
            }
            Proof::Reviewed(shown) => {
                if let Some(kubernetes) = &self.kubernetes {
                    kubernetes.stands(shown, identity)?;
                }
                self.is_admitted(identity, None)
            }
        }
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        self.clock.now_usec() / 1_000_000
    }

    async fn holder(&self, header: &[u8], peer: Option<&Peer>) -> Result<Identity, AccessRefusal> {
        let token = bearer::token(header)
            .ok_or_else(|| not_taken("the header authorization holds no bearer token"))?;
        self.bearer(token, peer).await
    }

    /// Who a token names that a peer shows.
    ///
    /// # Errors
    /// When nobody knows it.
    pub(crate) async fn bearer(&self, token: &str, peer: Option<&Peer>) -> Result<Identity, AccessRefusal> {
        self.shown(token, |kubernetes| async move { kubernetes.identify(token, peer).await }).await
    }

    /// Who a token names that a node sends on its stream: strangers' tokens do not hold it up.
    ///
    /// # Errors
    /// As [`bearer`](Self::bearer).
    pub(crate) async fn renewal(&self, token: &str) -> Result<Identity, AccessRefusal> {
        self.shown(token, |kubernetes| async move { kubernetes.renewed(token).await }).await
    }

    async fn shown<A: Future<Output = Result<Identity, AccessRefusal>>>(
        &self,
        token: &str,
        ask: impl FnOnce(Arc<Kubernetes>) -> A,
    ) -> Result<Identity, AccessRefusal> {
        let identity = match (self.tokens.find(token, self.now()), &self.kubernetes) {
            (Some(identity), _) => identity,
            // Tokens of this program's making go nowhere else.
            (None, Some(kubernetes)) if !token.starts_with(PREFIX) => ask(Arc::clone(kubernetes)).await?,
            (None, _) => return Err(not_taken("the token is not known, or its time is over")),
        };
        self.is_admitted(&identity, None)?;
        Ok(identity)
    }

    /// Whether a client may call this program by such a name (the header Host). A page of another site that had its own
    /// name point here would use that name; an address cannot be made to point elsewhere.
    pub(crate) fn is_ours(&self, host: &str) -> bool {
        evenkeel_net::is_own_name(host, &self.hosts)
    }
}

fn not_taken(why: &str) -> AccessRefusal {
    AccessRefusal {
        kind: RefusalKind::Unnamed,
        why: why.to_owned(),
        remedy: "send one that `evenkeel-recommender token add` gave (evenkeel --token-file FILE)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_localhost_or_configured() {
        let mut config = Config::default();
        config.serve.hosts = vec!["Recommender.example".into()];
        let access = Access::new(&config, WallClock::system(), None);
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
