//! How many connections a listener has, in all and of each peer.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use futures::task::AtomicWaker;

use crate::peer::{Host, Peer};

/// How many connections there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In all.
    pub connections: usize,
    /// Of one address (of one /64 for IPv6, which is what one host has), or of one user on a Unix socket.
    pub per_peer: usize,
}

/// What became of connections.
#[derive(Debug, Default)]
pub struct ConnectionCounters {
    /// Open now.
    pub open: AtomicU64,
    /// Turned away because the listener, or its peer, has as many as it may, and all of them are in use.
    pub refused: AtomicU64,
    /// Closed to make room for a newer one, while they waited for a request.
    pub displaced: AtomicU64,
    /// Closed because the client took too long to say what it wants.
    pub slow: AtomicU64,
    /// Closed because client and listener found no TLS, or no certificate, that both accept.
    pub handshakes: AtomicU64,
    /// accept(2) failed.
    pub failed: AtomicU64,
}

/// The gate of one listener. Clones share it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<GateState>);

#[derive(Debug)]
struct GateState {
    name: &'static str,
    limits: Limits,
    counters: ConnectionCounters,
    present: Mutex<Present>,
    /// Something was said of a full gate since it was last below its bound.
    said: AtomicBool,
}

#[derive(Debug, Default)]
struct Present {
    next: u64,
    /// In the order of their coming.
    all: BTreeMap<u64, (Host, Arc<Signal>)>,
    by_peer: HashMap<Host, usize>,
}

/// What a connection and its gate tell each other.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    /// It waits for a request and may be closed.
    pub(crate) is_idle: AtomicBool,
    pub(crate) is_closing: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    gate: Gate,
    number: u64,
    pub(crate) signal: Arc<Signal>,
}

impl Gate {
    /// A gate for the listener of this name.
    #[must_use]
    pub fn new(name: &'static str, limits: Limits) -> Self {
        Self(Arc::new(GateState {
            name,
            limits,
            counters: ConnectionCounters::default(),
            present: Mutex::default(),
            said: AtomicBool::new(false),
        }))
    }

    /// What became of its connections.
    #[must_use]
    pub fn counters(&self) -> &ConnectionCounters {
        &self.0.counters
    }

    /// How many it lets in.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.0.limits
    }

    /// A place for a connection; nothing where there is none, and none can be made.
    pub(crate) fn enter(&self, peer: &Peer) -> Option<ConnectionSlot> {
        let Limits { connections, per_peer } = self.0.limits;
        let peer = peer.host();
        let mut present = self.present();
        let of_peer = present.by_peer.get(&peer).copied().unwrap_or(0);
        let crowded = of_peer >= per_peer;
        if (crowded || present.all.len() >= connections)
            && !self.displace(&mut present, crowded.then_some(peer))
        {
            drop(present);
            self.0.counters.refused.fetch_add(1, Ordering::Relaxed);
            self.say(peer, if crowded { per_peer } else { connections }, crowded);
            return None;
        }
        let number = present.next;
        present.next += 1;
        let signal = Arc::new(Signal { is_idle: AtomicBool::new(true), ..Signal::default() });
        present.all.insert(number, (peer, Arc::clone(&signal)));
        *present.by_peer.entry(peer).or_default() += 1;
        self.0.counters.open.store(present.all.len() as u64, Ordering::Relaxed);
        Some(ConnectionSlot { gate: self.clone(), number, signal })
    }

    /// Closes the oldest connection (of a peer) that waits for a request.
    fn displace(&self, present: &mut Present, of: Option<Host>) -> bool {
        let idle = present.all.iter().find(|(_, (peer, signal))| {
            of.is_none_or(|of| of == *peer) && signal.is_idle.load(Ordering::SeqCst)
        });
        let Some((number, signal)) = idle.map(|(number, (_, signal))| (*number, Arc::clone(signal))) else {
            return false;
        };
        signal.is_closing.store(true, Ordering::SeqCst);
        signal.waker.wake();
        present.remove(number);
        self.0.counters.displaced.fetch_add(1, Ordering::Relaxed);
        true
    }

    pub(crate) fn slow(&self) {
        self.0.counters.slow.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, error: &io::Error) {
        if self.0.counters.failed.fetch_add(1, Ordering::Relaxed).is_power_of_two() {
            tracing::warn!(listener = self.0.name, %error, "a connection could not be accepted; trying again");
        }
    }

    /// Says once that the gate is full, until it is half empty again.
    fn say(&self, peer: Host, bound: usize, of_peer: bool) {
        if self.0.said.swap(true, Ordering::Relaxed) {
            return;
        }
        let whose = if of_peer { "one peer" } else { "this listener" };
        tracing::warn!(
            listener = self.0.name, %peer, bound,
            "connections are refused: {whose} has as many as it may have, and all of them are in use"
        );
    }

    fn leave(&self, number: u64) {
        let mut present = self.present();
        present.remove(number);
        let open = present.all.len();
        drop(present);
        self.0.counters.open.store(open as u64, Ordering::Relaxed);
        if open <= self.0.limits.connections / 2 {
            self.0.said.store(false, Ordering::Relaxed);
        }
    }

    /// A thread that panicked while it held the lock cannot have left it half changed.
    fn present(&self) -> MutexGuard<'_, Present> {
        self.0.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn remove(&mut self, number: u64) {
        let Some((peer, _)) = self.all.remove(&number) else { return };
        if let Some(count) = self.by_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&peer);
            }
        }
    }
}

impl ConnectionSlot {
    pub(crate) fn gate(&self) -> Gate {
        self.gate.clone()
    }

    /// The client took too long.
    pub(crate) fn slow(&self) {
        self.gate.slow();
    }

    /// Client and listener found nothing that both accept.
    pub(crate) fn failed_handshake(&self) {
        self.gate.0.counters.handshakes.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends when the connection is to make room for another.
    pub(crate) async fn closing(&self) {
        poll_fn(|context| {
            self.signal.waker.register(context.waker());
            match self.signal.is_closing.load(Ordering::SeqCst) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.gate.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Peer {
        Peer::Local { uid, gid: 0, pid: None }
    }

    fn busy(place: &ConnectionSlot) {
        place.signal.is_idle.store(false, Ordering::SeqCst);
    }

    #[test]
    fn who_is_idle_longest_makes_room_and_who_is_busy_stays() {
        let gate = Gate::new("test", Limits { connections: 4, per_peer: 2 });
        let (a, b, c) = (&user(1), &user(2), &user(3));
        let first = gate.enter(a).expect("room");
        let second = gate.enter(a).expect("room");
        busy(&first);
        // The third of a peer displaces its idle one, whoever is older.
        let third = gate.enter(a).expect("room is made");
        assert!(second.signal.is_closing.load(Ordering::SeqCst));
        busy(&third);
        assert!(gate.enter(a).is_none(), "both are busy");
        let others = [gate.enter(b).expect("room"), gate.enter(b).expect("room")];
        // Full: the oldest idle one goes, of whichever peer.
        let last = gate.enter(c).expect("room is made");
        assert!(others[0].signal.is_closing.load(Ordering::SeqCst));
        busy(&others[1]);
        busy(&last);
        assert!(gate.enter(c).is_none(), "all are busy");
        let counters = gate.counters();
        assert_eq!(counters.refused.load(Ordering::Relaxed), 2);
        assert_eq!(counters.displaced.load(Ordering::Relaxed), 2);
        drop((first, second, third, others, last));
        assert_eq!(counters.open.load(Ordering::Relaxed), 0);
        assert!(gate.present().by_peer.is_empty());
    }
}
