//! What the recommender says the containers of this node should request: the last word that arrived.
//!
//! Owned here: keeping it, its age, who is woken by it. Not owned: reading it from the wire and its bounds, which whoever
//! streams owns; what is made of it ([`crate::converge`]); the rule of a step (`evenkeel_qos::overlay`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use evenkeel_model::panic::Panic;
use serde::{Deserialize, Serialize};

use crate::shared::{Waker, lock};

/// Whose requests are meant: namespace, workload, container.
pub(crate) type Place = (String, String, String);

/// Containers whose requests are not those that were asked for, by id, and the policy that asked for others, `namespace/name`; empty
/// where it is not known any more.
pub type InForce = BTreeMap<String, String>;

/// What one container should request; absent is as asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advice {
    /// Thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// Bytes.
    pub memory_bytes: Option<u64>,
    /// Policy, `namespace/name`.
    pub policy: String,
    /// Rule that made it.
    pub rule: String,
}

/// The panic switch, while it is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Switch {
    /// Why it was set.
    pub reason: String,
    /// Requests in force go back to what was asked for, step by step; otherwise they stay in force.
    pub revert: bool,
}

impl Switch {
    /// What it does.
    pub(crate) const fn panic(&self) -> Panic {
        Panic::of(true, self.revert)
    }

    /// The reason, for whoever reads it.
    pub fn why(&self) -> &str {
        if self.reason.is_empty() { "no reason given" } else { &self.reason }
    }
}

/// One word of the recommender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayOffer {
    /// Grows with every word.
    pub number: u64,
    /// The panic switch, where it is on: it holds until another word says otherwise, however long that takes.
    pub panic: Option<Switch>,
    /// When it was made, microseconds since 1970.
    pub made_usec: u64,
    /// When it arrived.
    pub arrived: Instant,
    /// From when on its entries hold no more.
    pub until: Instant,
    /// By container.
    pub entries: Arc<BTreeMap<Place, Advice>>,
    /// Namespaces in which nothing is changed, whatever its entries say: what is in force there stays until another word says otherwise.
    pub frozen: Arc<BTreeSet<String>>,
}

/// A container that is not given what was said of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OverlayRefusal {
    /// Pod, `namespace/name`.
    pub pod: String,
    /// Container.
    pub container: String,
    /// Why.
    pub why: String,
}

/// The last word, shared by the stream and the converger.
#[derive(Default)]
pub struct Overlays {
    inner: Mutex<OverlayState>,
}

#[derive(Default)]
struct OverlayState {
    last: Option<OverlayOffer>,
    bell: Option<Waker>,
    /// Words that were refused.
    refused: u64,
    /// Of the last word. At most one a container of the node.
    refusals: Arc<[OverlayRefusal]>,
    /// At most one a container of the node.
    in_force: Arc<InForce>,
}

impl Overlays {
    /// Who is woken when a word arrives.
    pub(crate) fn set_bell(&self, bell: Waker) {
        lock(&self.inner).bell = Some(bell);
    }

    /// The last word.
    pub fn last(&self) -> Option<OverlayOffer> {
        lock(&self.inner).last.clone()
    }

    /// Words refused so far.
    pub fn refused(&self) -> u64 {
        lock(&self.inner).refused
    }

    /// Containers that are not given what the last word said of them, by name.
    pub fn refusals(&self) -> Arc<[OverlayRefusal]> {
        Arc::clone(&lock(&self.inner).refusals)
    }

    /// Says which these are now.
    pub(crate) fn set_refusals(&self, mut refusals: Vec<OverlayRefusal>) {
        refusals.sort_unstable();
        lock(&self.inner).refusals = refusals.into();
    }

    /// Containers whose requests are not those that were asked for.
    pub fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&lock(&self.inner).in_force)
    }

    /// Says which these are now, where they are others than before.
    pub(crate) fn set_in_force(&self, in_force: InForce) {
        let mut inner = lock(&self.inner);
        if *inner.in_force != in_force {
            inner.in_force = Arc::new(in_force);
        }
    }

    /// The panic switch was on when the agent last ran: it is on until the recommender says otherwise.
    pub fn resume(&self, switch: Switch, made_usec: u64, now: Instant) {
        say_switch(None, Some(&switch));
        let offer = OverlayOffer {
            number: 0,
            panic: Some(switch),
            made_usec,
            arrived: now,
            until: now,
            entries: Arc::default(),
            frozen: Arc::default(),
        };
        lock(&self.inner).last.get_or_insert(offer);
    }

    /// Takes a word in, or why one that cannot be meant is refused: then the one before holds until it is too old.
    pub fn take(&self, read: Result<OverlayOffer, String>) {
        let mut inner = lock(&self.inner);
        match read {
            Ok(mut offer) => {
                offer.number = inner.last.as_ref().map_or(1, |last| last.number + 1);
                say_switch(inner.last.as_ref().and_then(|last| last.panic.as_ref()), offer.panic.as_ref());
                inner.last = Some(offer);
                inner.bell.iter().for_each(Waker::wake);
            }
            Err(why) => {
                inner.refused += 1;
                tracing::warn!(
                    why,
                    "recommended requests are refused; those before hold until they are too old"
                );
            }
        }
    }
}

/// Logs that the switch was set, taken back or set otherwise.
fn say_switch(before: Option<&Switch>, after: Option<&Switch>) {
    let state = after.map_or(Panic::Off, Switch::panic);
    if before.map_or(Panic::Off, Switch::panic) != state {
        let reason = after.map_or("", Switch::why);
        tracing::warn!(on = state.is_on(), reason, "the panic switch was set: {}", state.meaning());
    }
}
