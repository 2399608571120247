//! Owns the answer to "is it ready": whether the state is complete, and whether what arrives can be kept.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::ingest::health::Health;

/// Where the process is in its life.
#[derive(Debug, Default)]
pub struct Readiness {
    replayed: AtomicBool,
    stopping: AtomicBool,
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
    pub(crate) fn checks(&self, health: &Health) -> Vec<Check> {
        let check = |name, trouble: Option<String>, needed| Check { name, trouble, needed };
        let unless = |fine: bool, trouble: &str| (!fine).then(|| trouble.to_owned());
        vec![
            check("replay", unless(self.replayed.load(Ordering::SeqCst), "the log is being replayed"), true),
            check("stopping", unless(!self.stopping.load(Ordering::SeqCst), "the process is stopping"), true),
            check("log", health.log_trouble(), true),
            check("checkpoint", health.checkpoint_trouble(), false),
            check("clock", health.clock_trouble(), false),
            check("room", health.room_trouble(), false),
        ]
    }
}
