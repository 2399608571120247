//! Owns what agents do and see as Kubernetes Events of the followed cluster's pods (`kubernetes.events`): kills, evictions, steps against
//! pressure, resizes, settings that do not hold. Decisions stay where they are (`evenkeel events`); these are for who looks with kubectl.
//!
//! Of several recommenders the leader tells; one that takes over tells again what came while nobody may have led, since a decision told twice is
//! better than one that is not.
//!
//! With `kubernetes.conditions`, the classes of pods' containers are told as a condition of theirs, too (`conditions`).
//!
//! What is to be told is counted in `tally`; here is what follows from an answer. What this process does to objects itself is told by its
//! `EventRecorder`, and `series` counts both. Told is what arrives while this process runs, of pods that the
//! API server places on the node that tells; what is lost while the API server is away for long is counted.

mod backlog;
mod conditions;
mod pause;
mod recorder;
mod series;
mod tally;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ApiServer, ConnectError};
use evenkeel_store::state::NodeDecision;
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::api::Context;
use crate::config::KubernetesSection;
use crate::followed::Followed;
use crate::serve::ended;
use backlog::{Cursor, EventBacklog};
use conditions::Conditions;
pub(crate) use pause::ApiPause;
pub(crate) use recorder::EventRecorder;
use series::A_SECOND;
pub(crate) use series::event_time;
use tally::DecisionTally;

/// How often decisions are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// Decisions that are taken in at once; of more than these the newest count.
const AT_ONCE: u64 = 2_000;
/// How long before it takes over a leader may have been gone: a Lease lasts 15 s, and is looked at every 2 s.
const GONE: Duration = Duration::from_secs(20);
/// Decisions that are remembered as seen.
const SEEN: usize = 4_096;
/// Who writes events, and what came of it.
#[derive(Debug)]
pub(crate) struct Events {
    api: ApiServer,
    /// Whether Events are written, and whether conditions are.
    kinds: (bool, bool),
    trouble: Mutex<Option<String>>,
    written: AtomicU64,
    dropped: AtomicU64,
    waiting: AtomicU64,
    conditions: AtomicU64,
    conditions_waiting: AtomicU64,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventCounts {
    /// Events that are to be made.
    pub(crate) waiting: u64,
    /// Events and series written.
    pub(crate) written: u64,
    /// Not told: too many, or refused.
    pub(crate) dropped: u64,
    /// Conditions written.
    pub(crate) conditions: u64,
    /// Conditions that are to be written.
    pub(crate) conditions_waiting: u64,
}

impl Events {
    /// Nothing where none are to be written.
    ///
    /// # Errors
    /// When it is not told where the API server is, or credentials cannot be used.
    pub(crate) async fn open(section: &KubernetesSection) -> Result<Option<Arc<Self>>, ConnectError> {
        let kinds = (section.events, section.conditions);
        if kinds == (false, false) {
            return Ok(None);
        }
        let api = ApiServer::at(&section.source()).await?;
        let (trouble, written, dropped, waiting) = Default::default();
        let (conditions, conditions_waiting) = Default::default();
        let told = Self { api, kinds, trouble, written, dropped, waiting, conditions, conditions_waiting };
        Ok(Some(Arc::new(told)))
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> EventCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        EventCounts {
            waiting: read(&self.waiting),
            written: read(&self.written),
            dropped: read(&self.dropped),
            conditions: read(&self.conditions),
            conditions_waiting: read(&self.conditions_waiting),
        }
    }

    /// Why none are written.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn told(&self, trouble: Option<String>) {
        let mut known = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = trouble.as_ref().filter(|why| known.as_ref() != Some(why)) {
            warn!(why, "the cluster's pods are not told");
        }
        *known = trouble;
    }
}

/// Writes events until the process ends.
pub(crate) async fn run(context: Context, stopped: watch::Receiver<bool>) {
    let (events, followed) = match (context.readiness.events(), context.readiness.followed()) {
        (Some(events), Some(followed)) => (Arc::clone(events), Arc::clone(followed)),
        _ => return,
    };
    let mut writer = EventWriter::default();
    let (mut cursor, mut held) = (Cursor::default(), EventBacklog::default());
    let mut conditions = Conditions::default();
    let (of_events, of_conditions) = events.kinds;
    let looks = async {
        loop {
            tokio::time::sleep(LOOK).await;
            if !context.readiness.answers() {
                continue;
            }
            let leads = context.readiness.leading().leads();
            let (looking, following) = (context.clone(), Arc::clone(&followed));
            let looked = tokio::task::spawn_blocking(move || {
                let new = if of_events { cursor.look(&looking) } else { Vec::new() };
                if of_conditions && leads {
                    conditions.look(&looking, &following, Instant::now());
                }
                (cursor, conditions, new)
            });
            let Ok((back, of_pods, new)) = looked.await else { return };
            (cursor, conditions) = (back, of_pods);
            writer.take(&followed, &held.pass(new, leads, Instant::now()));
            if leads {
                writer.write(&events).await;
                writer.write_conditions(&events, &mut conditions).await;
            }
            events.conditions_waiting.store(conditions.waiting() as u64, Ordering::Relaxed);
            events.dropped.store(writer.tally.dropped, Ordering::Relaxed);
            events.waiting.store(writer.tally.events.waiting() as u64, Ordering::Relaxed);
        }
    };
    tokio::select! { () = looks => {}, () = ended(stopped) => {} }
}

#[derive(Debug, Default)]
struct EventWriter {
    tally: DecisionTally,
    pause: ApiPause,
}

impl EventWriter {
    fn take(&mut self, followed: &Followed, new: &[NodeDecision]) {
        let now = Instant::now();
        for NodeDecision { node, decision } in
            new.iter().filter(|event| followed.is_meant(&event.node.cluster))
        {
            let uid = |namespace: &str, pod: &str| followed.uid_on(&node.node, namespace, pod);
            self.tally.take(decision, uid, &event_time(decision.time_usec), now);
        }
    }

    async fn write(&mut self, events: &Events) {
        for (key, due) in self.tally.events.due(Instant::now()) {
            if self.pause.is_on() {
                return;
            }
            match due.write(&events.api).await {
                Ok(()) => {
                    self.tally.events.told(&key, &due, Instant::now());
                    events.written.fetch_add(1, Ordering::Relaxed);
                    events.told(None);
                    self.pause.end();
                }
                Err(error) if self.waits(events, "Kubernetes Events", &error) => {}
                Err(error) => {
                    debug!(%error, "ignoring an event that cannot be written");
                    self.tally.drop(&key);
                }
            }
        }
    }

    /// Conditions, at the same pace.
    async fn write_conditions(&mut self, events: &Events, conditions: &mut Conditions) {
        for _ in 0..A_SECOND {
            if self.pause.is_on() {
                return;
            }
            let Some(condition) = conditions.due() else { return };
            match events.api.set_condition(condition).await {
                Ok(()) => {
                    events.conditions.fetch_add(1, Ordering::Relaxed);
                    events.told(None);
                    self.pause.end();
                    conditions.done();
                }
                Err(error) if self.waits(events, "conditions of pods", &error) => {}
                // It is gone or another one, which the next look knows.
                Err(ApiError::Absent(_) | ApiError::Conflict(_)) => conditions.pass(),
                Err(error) => {
                    debug!(%error, "ignoring a condition that cannot be written");
                    conditions.done();
                }
            }
        }
    }

    /// Whether it is to be tried again later, and until then nothing is written.
    fn waits(&mut self, events: &Events, what: &str, refused: &ApiError) -> bool {
        let why = self.pause.begin_after(refused);
        if let Some(why) = why {
            events.told(Some(format!("{what}: {why}")));
        }
        why.is_some()
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1;
    use evenkeel_store::key::NodeKey;

    use super::*;

    #[test]
    fn a_follower_tells_nothing_and_with_the_lead_what_came_shortly_before() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let event = |seq| NodeDecision {
            node: NodeKey { cluster: "c".into(), node: "n".into() },
            decision: v1::Decision { seq, ..v1::Decision::default() },
        };
        let told =
            |events: Vec<NodeDecision>| events.iter().map(|event| event.decision.seq).collect::<Vec<_>>();
        let mut held = EventBacklog::default();
        assert_eq!(told(held.pass(vec![event(1)], false, now)), [0; 0]);
        assert_eq!(told(held.pass(vec![event(2)], false, at(15))), [0; 0]);
        assert_eq!(told(held.pass(Vec::new(), false, at(21))), [0; 0]);
        assert_eq!(told(held.pass(vec![event(3)], true, at(22))), [2, 3]);
        assert_eq!(told(held.pass(vec![event(4)], true, at(23))), [4]);
        let flood = (0..3 * AT_ONCE).map(event).collect();
        held.pass(flood, false, at(24));
        assert_eq!(held.0.len() as u64, AT_ONCE);
    }

    #[test]
    fn a_decision_is_new_once() {
        let mut cursor = Cursor::default();
        let decision = |seq| v1::Decision { seq, node: "a".into(), ..v1::Decision::default() };
        assert!(cursor.is_new(&decision(1)) && cursor.is_new(&decision(2)) && !cursor.is_new(&decision(1)));
        for seq in 0..2 * SEEN as u64 {
            cursor.is_new(&decision(seq));
        }
        assert_eq!(cursor.seen.len(), SEEN);
    }
}
