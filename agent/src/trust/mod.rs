//! Who vouches for this agent, and what of it goes in the clear: the certificate of its own addresses, the node's
//! certificate for the stream (`membership.rs`, `given.rs`), and what the configuration accepts without encryption.
//!
//! Owned here: reading certificates again, and what people are told of them. Not owned: who may ask (`serve::door`).

mod given;
pub(crate) mod membership;

use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use evenkeel_enforce::converge::board::NodeKnob;
use evenkeel_enforce::shared::lock;
use evenkeel_model::node::NodeKey;
use evenkeel_net::Reminder;
use evenkeel_net::tls::Tls;

use crate::config::Config;
use crate::outward::Outward;
use given::ConfiguredCertificate;
use membership::Membership;

/// What vouches for this agent.
#[derive(Debug)]
pub(crate) struct Trusts {
    /// What its addresses are served with.
    tls: Option<Arc<Tls>>,
    /// What goes in the clear.
    insecure: Option<String>,
    /// The node's certificate for the stream, where it joined.
    pub membership: Membership,
    /// The same where the configuration gives one.
    given: Option<ConfiguredCertificate>,
    said: Mutex<Reminder>,
}

impl Trusts {
    /// By the configuration.
    ///
    /// # Errors
    /// When the certificate of the addresses cannot be served.
    pub(crate) fn open(config: &Config, node: &NodeKey, outward: &Outward) -> anyhow::Result<Self> {
        let tls = config.trust.files.clone().map(Tls::open).transpose().context("cannot serve TLS")?;
        let stream = config.stream.in_the_clear.clone();
        let insecure: Vec<String> = config.trust.insecure.clone().into_iter().chain(stream).collect();
        Ok(Self {
            tls: tls.map(Arc::new),
            insecure: (!insecure.is_empty()).then(|| insecure.join("; ")),
            membership: Membership::new(config, node, outward),
            given: config.stream.trust.cert.as_deref().map(ConfiguredCertificate::read),
            said: Mutex::default(),
        })
    }

    /// What the addresses are served with.
    pub(crate) fn tls(&self) -> Option<Arc<Tls>> {
        self.tls.clone()
    }

    /// Whether something goes in the clear.
    pub(crate) const fn is_insecure(&self) -> bool {
        self.insecure.is_some()
    }

    /// Ends of certificates, seconds since 1970, and whether something is wrong with one, by what it is for.
    pub(crate) fn certificates(&self) -> Vec<(&'static str, u64, bool)> {
        let served = self.tls.as_ref().map(|tls| ("serve", tls.expires(), tls.told(now()).is_some()));
        let stream =
            self.membership.expires().map(|ends| ("stream", ends, self.membership.trouble().is_some()));
        let given = self
            .given
            .as_ref()
            .and_then(|given| Some(("stream", given.expires()?, given.told(now()).is_some())));
        served.into_iter().chain(stream).chain(given).collect()
    }

    /// Reads files again where they changed, and says each hour what should not stay. The disk may be slow.
    pub(crate) fn look(&self) {
        if let Some(tls) = &self.tls {
            tls.look();
        }
        if let Some(given) = &self.given {
            given.look();
        }
        let Some(trouble) = &self.insecure else { return };
        if lock(&self.said).is_due(Instant::now()) {
            tracing::warn!(trouble, "insecure = true");
        }
    }

    /// What status shows: a row for each thing that should not stay.
    pub(crate) fn rows(&self) -> Vec<NodeKnob> {
        let knob = |name, state, why, remedy: &str| NodeKnob { name, state, why, remedy: remedy.to_owned() };
        let clear = self.insecure.clone().map(|why| {
            let remedy = "give certificates (tls.cert, https:// in stream.recommender), then take insecure = true back";
            knob("encryption", "off", why, remedy)
        });
        let served = self.tls.as_ref().and_then(|tls| tls.told(now())).map(|why| {
            knob("certificate", "failed", why, "put a new certificate and its key into tls.cert and tls.key")
        });
        let stream = self.membership.trouble().map(|why| {
            let remedy =
                "make a join token (evenkeel ca token NODE) and write it to the file stream.join_token names";
            knob("stream certificate", "failed", why, remedy)
        });
        let given = self.given.as_ref().and_then(|given| given.told(now())).map(|why| {
            let remedy = "put a new certificate and its key into stream.cert and stream.key";
            knob("stream certificate", "failed", why, remedy)
        });
        [clear, served, stream, given].into_iter().flatten().collect()
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_in_the_clear_is_shown_until_it_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let configured = |text: &str| crate::report::test_support::configured(dir.path(), 1, text);
        assert!(configured("").trust.rows().is_empty());
        let context = configured(
            "insecure = true\n[serve]\naddress = \"0.0.0.0:1\"\n[stream]\nrecommender = \"http://10.0.0.1:1\"\ninsecure = true\n",
        );
        let (trusts, rows) = (&context.trust, context.trust.rows());
        assert!(trusts.is_insecure());
        assert_eq!((rows.len(), rows[0].name, rows[0].state), (1, "encryption", "off"));
        for what in ["serve.address = 0.0.0.0:1", "stream.recommender = http://10.0.0.1:1"] {
            assert!(rows[0].why.contains(what), "{rows:?}");
        }
        trusts.look();
        assert!(!lock(&trusts.said).is_due(Instant::now()), "it was said");
    }
}
