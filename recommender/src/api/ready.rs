//! Owns the answer to "is it ready": whether the state is complete, and whether what arrives can be kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evenkeel_net::tls::{SOON, Tls};

use crate::config::Config;
use crate::identity::Tokens;
use crate::ingest::health::Health;

/// Where the process is in its life, and what of its surroundings should not stay as it is.
#[derive(Debug)]
pub struct Readiness {
    replayed: AtomicBool,
    stopping: AtomicBool,
    insecure: Option<String>,
    tokens: Arc<Tokens>,
    tls: Option<Arc<Tls>>,
}

/// One check of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    /// What is wrong, where something is.
    pub(crate) trouble: Option<String>,
    /// Whether the trouble makes the process unready.
    pub(crate) needed: bool,
}

impl Readiness {
    /// At the start of a process.
    pub(crate) fn new(config: &Config, tokens: Arc<Tokens>, tls: Option<Arc<Tls>>) -> Self {
        let (replayed, stopping) = Default::default();
        Self { replayed, stopping, insecure: config.plaintext(), tokens, tls }
    }

    /// What encrypts the addresses.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_deref()
    }

    /// What is wrong with the certificate that is served, at a time in microseconds since 1970.
    fn certificate_trouble(&self, now_usec: u64) -> Option<String> {
        let tls = self.tls.as_ref()?;
        let left = tls.expires().saturating_sub(now_usec / 1_000_000);
        let ends = match left {
            0 => Some(
                "the certificate has ended: no client accepts it; put a new one into tls.cert".to_owned(),
            ),
            left if left < SOON.as_secs() => {
                Some(format!("the certificate ends in {} min; put a new one into tls.cert", left / 60))
            }
            _ => None,
        };
        tls.trouble().or(ends)
    }

    /// What goes over networks in plain text.
    pub(crate) fn insecure(&self) -> Option<&str> {
        self.insecure.as_deref()
    }

    /// Looks whether files changed.
    pub(crate) fn look(&self) {
        self.tokens.look();
        if let Some(tls) = &self.tls {
            tls.look();
        }
    }

    /// The log has been replayed: questions are answered from everything acknowledged.
    pub fn replayed(&self) {
        self.replayed.store(true, Ordering::SeqCst);
    }

    /// The process is about to end.
    pub fn stopping(&self) {
        self.stopping.store(true, Ordering::SeqCst);
    }

    /// Whether the log has been replayed and the process is not about to end.
    pub fn answers(&self) -> bool {
        self.replayed.load(Ordering::SeqCst) && !self.stopping.load(Ordering::SeqCst)
    }

    /// All checks.
    pub(crate) fn checks(&self, health: &Health, now_usec: u64) -> Vec<Check> {
        let check = |name, trouble: Option<String>, needed| Check { name, trouble, needed };
        let unless = |fine: bool, trouble: &str| (!fine).then(|| trouble.to_owned());
        vec![
            check("replay", unless(self.replayed.load(Ordering::SeqCst), "the log is being replayed"), true),
            check("stopping", unless(!self.stopping.load(Ordering::SeqCst), "the process is stopping"), true),
            check("log", health.log_trouble(), true),
            check("checkpoint", health.checkpoint_trouble(), false),
            check("clock", health.clock_trouble(), false),
            check("room", health.room_trouble(), false),
            check("tokens", self.tokens.trouble(), false),
            check("encryption", self.insecure.clone(), false),
            check("certificate", self.certificate_trouble(now_usec), false),
        ]
    }
}
