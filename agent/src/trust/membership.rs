//! The node's certificate from the recommender's own authority: got with a join token, kept with its key in the state
//! directory (one file, mode 0600), renewed at two thirds of its life or up to a twentieth of it earlier.
//!
//! The recommender is believed by the configured authorities, or by the fingerprint of its authority, which is looked for
//! once and kept. A token is tried again only when its file is newer than the certificate: it holds for one use.

#[cfg(test)]
mod tests;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use evenkeel_enforce::shared::lock;
use evenkeel_log::private;
use evenkeel_model::node::NodeKey;
use evenkeel_net::tls::{Certificate, certificates};
use evenkeel_proto::bearer;
use evenkeel_proto::line::Trust;
use evenkeel_proto::v1;
use rcgen::{CertificateParams, KeyPair};

use super::now;
use crate::config::Config;
use crate::outward::Outward;

/// Certificate and key, PEM.
const PAIR: &str = "node.pem";
/// The authority that was found by its fingerprint, PEM.
const AUTHORITY: &str = "ca.crt";
/// A renewal that failed is tried again after this.
const AGAIN: Duration = Duration::from_secs(60);
/// An answer takes at most this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a node joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Joining {
    /// File with the join token.
    pub token: PathBuf,
    /// SHA-256 of the recommender's authority, hexadecimal, where no file of it is configured.
    pub ca_sha256: Option<String>,
}

/// Ends a session: there is a new certificate to connect with.
#[derive(Debug, thiserror::Error)]
#[error("the node's certificate was renewed; connecting anew")]
pub(crate) struct NewCertificate;

/// The certificate of this node, where it joins.
#[derive(Debug)]
pub(crate) struct Membership {
    joining: Option<Joining>,
    dir: PathBuf,
    node: NodeKey,
    outward: Outward,
    state: Mutex<MembershipState>,
    /// The recommender refused the certificate.
    refused: AtomicBool,
}

#[derive(Debug, Default)]
struct MembershipState {
    /// From when and until when the certificate holds, seconds since 1970.
    holds: Option<(u64, u64)>,
    trouble: Option<String>,
    /// When a renewal failed.
    failed: Option<Instant>,
}

impl Membership {
    /// By the configuration.
    pub(crate) fn new(config: &Config, node: &NodeKey, outward: &Outward) -> Self {
        let membership = Self {
            joining: config.stream.joining.clone(),
            dir: config.enforce.state_dir.join("identity"),
            node: node.clone(),
            outward: outward.clone(),
            state: Mutex::default(),
            refused: AtomicBool::new(false),
        };
        if membership.joining.is_some() {
            lock(&membership.state).holds = membership.kept();
        }
        membership
    }

    /// End of the certificate, seconds since 1970.
    pub(crate) fn expires(&self) -> Option<u64> {
        lock(&self.state).holds.map(|(_, ends)| ends)
    }

    /// What is wrong with it.
    pub(crate) fn trouble(&self) -> Option<String> {
        lock(&self.state).trouble.clone()
    }

    /// What to connect with: the configured, or a certificate that is in force, got by the join token where there is none.
    ///
    /// # Errors
    /// When there is none and none is to be had.
    pub(crate) async fn trust(&self, address: &str, configured: &Trust) -> anyhow::Result<Trust> {
        let Some(joining) = &self.joining else { return Ok(configured.clone()) };
        let trust = self.with_authority(joining, address, configured).await?;
        let holds = self.kept();
        lock(&self.state).holds = holds;
        let in_force = holds.is_some_and(|(_, ends)| ends > now());
        if !in_force || (self.refused.load(Ordering::Relaxed) && self.has_newer_token(joining)) {
            let joined = self.join(joining, address, &trust).await;
            self.note(&joined);
            joined?;
        }
        let pair = Some(self.dir.join(PAIR));
        Ok(Trust { cert: pair.clone(), key: pair, ..trust })
    }

    /// The recommender refused this node.
    pub(crate) fn refuse(&self, why: &str) {
        if self.joining.is_some() {
            self.refused.store(true, Ordering::Relaxed);
            lock(&self.state).trouble = Some(format!("the recommender refuses this node: {why}"));
        }
    }

    /// The recommender took this node.
    pub(crate) fn accept(&self) {
        if self.refused.swap(false, Ordering::Relaxed) {
            lock(&self.state).trouble = None;
        }
    }

    /// Time until the certificate is to be renewed; as good as for ever without one.
    pub(crate) fn due(&self) -> Duration {
        let state = lock(&self.state);
        let Some((begins, ends)) = state.holds.filter(|_| self.joining.is_some()) else {
            return Duration::MAX;
        };
        let life = ends.saturating_sub(begins);
        let at = begins + life / 3 * 2 - life / 20 * self.spread() / 1_000;
        let wait = Duration::from_secs(at.saturating_sub(now()));
        wait.max(state.failed.map_or(Duration::ZERO, |failed| AGAIN.saturating_sub(failed.elapsed())))
    }

    /// Thousandths by which this node renews earlier, by its name: nodes that joined together do not all renew at once.
    fn spread(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.node.hash(&mut hasher);
        hasher.finish() % 1_000
    }

    /// Gets a new certificate for the present one. What fails is told and tried again.
    ///
    /// # Errors
    /// [`NewCertificate`], when there is one.
    pub(crate) async fn renew(&self, address: &str, trust: &Trust) -> anyhow::Result<()> {
        let renewed = self.renewed(address, trust).await;
        self.note(&renewed);
        match renewed {
            Ok(()) => bail!(NewCertificate),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    error,
                    "the node's certificate was not renewed; it is tried again in a minute"
                );
                Ok(())
            }
        }
    }

    async fn renewed(&self, address: &str, trust: &Trust) -> anyhow::Result<()> {
        let (key, csr) = request()?;
        let answer = tokio::time::timeout(PATIENCE * 2, self.outward.renew(address, trust, csr)).await;
        self.keep(answer.context("no answer to Renew")??, &key)
    }

    async fn join(&self, joining: &Joining, address: &str, trust: &Trust) -> anyhow::Result<()> {
        let file = &joining.token;
        let token = bearer::read(file).with_context(|| {
            format!(
                "this node has no certificate in force, and no join token in {} (stream.join_token): make one with evenkeel ca \
                 token {}",
                file.display(),
                self.node.node
            )
        })?;
        let (key, csr) = request()?;
        let NodeKey { cluster, node } = self.node.clone();
        let asked = v1::SignRequest { csr, token, cluster, node };
        let signed = self.outward.sign(address, trust, asked);
        let answer = tokio::time::timeout(PATIENCE * 2, signed).await.context("no answer to Sign")??;
        self.keep(answer, &key)?;
        tracing::info!(node = self.node.node, "the node has joined");
        Ok(())
    }

    /// Keeps a certificate that names this node.
    fn keep(&self, issued: Option<v1::Issued>, key: &KeyPair) -> anyhow::Result<()> {
        let issued = issued.context("the recommender answered without a certificate")?;
        private::subdirectory(&self.dir).context("the node's certificate cannot be kept")?;
        let path = self.dir.join(PAIR);
        let beside = self.dir.join("node.tried");
        let text = format!("{}{}", issued.certificate, key.serialize_pem());
        private::replace(&beside, text.as_bytes(), true)
            .with_context(|| format!("cannot write {}", beside.display()))?;
        let leaf = leaf(&beside)?;
        let ending = format!("/evenkeel/{}/{}", self.node.cluster, self.node.node);
        let uris = leaf.uris();
        ensure!(
            matches!(uris.as_slice(), [uri] if uri.ends_with(&ending)),
            "the recommender gave a certificate for {uris:?}, this node is {ending}"
        );
        fs::rename(&beside, &path).with_context(|| format!("cannot write {}", path.display()))?;
        lock(&self.state).holds = Some((leaf.begins(), leaf.expires()));
        Ok(())
    }

    /// What the kept certificate holds from and until.
    fn kept(&self) -> Option<(u64, u64)> {
        let leaf = leaf(&self.dir.join(PAIR)).ok()?;
        Some((leaf.begins(), leaf.expires()))
    }

    fn has_newer_token(&self, joining: &Joining) -> bool {
        let changed = |path: &Path| fs::metadata(path).and_then(|facts| facts.modified()).ok();
        changed(&joining.token) > changed(&self.dir.join(PAIR))
    }

    /// The configured authorities, or the one with the fingerprint.
    async fn with_authority(
        &self,
        joining: &Joining,
        address: &str,
        configured: &Trust,
    ) -> anyhow::Result<Trust> {
        let Some(sha256) = joining.ca_sha256.as_deref().filter(|_| configured.ca.is_none()) else {
            return Ok(configured.clone());
        };
        let path = self.dir.join(AUTHORITY);
        let is_it = |der: &[u8]| evenkeel_net::fingerprint(der).eq_ignore_ascii_case(sha256);
        if !certificates(&path).is_ok_and(|kept| kept.iter().any(|der| is_it(der))) {
            let uri: tonic::codegen::http::Uri = address.parse().context("stream.recommender")?;
            let host = uri.host().context("stream.recommender has no host")?;
            let found = self.outward.authority(host, uri.port_u16().unwrap_or(443), sha256).await;
            let der = found.context("the recommender's authority was not found (stream.ca_sha256)")?;
            private::subdirectory(&self.dir).context("the authority cannot be kept")?;
            private::replace(&path, evenkeel_net::pem(&der).as_bytes(), true)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(Trust { ca: Some(path), ..configured.clone() })
    }

    fn note(&self, done: &anyhow::Result<()>) {
        let mut state = lock(&self.state);
        match done {
            Ok(()) => {
                (state.trouble, state.failed) = (None, None);
                self.refused.store(false, Ordering::Relaxed);
            }
            Err(error) => {
                (state.trouble, state.failed) = (Some(format!("{error:#}")), Some(Instant::now()));
            }
        }
    }
}

/// A new key, and a request signed by it. Of what a request says the recommender reads the key alone.
fn request() -> anyhow::Result<(KeyPair, Vec<u8>)> {
    let key = KeyPair::generate().context("no key can be made")?;
    let request = CertificateParams::default().serialize_request(&key).context("no request can be made")?;
    Ok((key, request.der().to_vec()))
}

fn leaf(path: &Path) -> anyhow::Result<Certificate> {
    let read = certificates(path)?;
    Ok(Certificate::of(read.first().context("it holds no certificate")?))
}
