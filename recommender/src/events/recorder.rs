//! Owns Events of objects to which this process did something: a pod whose gate was lifted, that was resized or evicted, a controller whose pods
//! were given requests. Equal ones are counted up as one, what cannot be written is tried again, and everything that waits has a bound. Who records
//! one waits for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::ApiServer;
use evenkeel_kubernetes::objects::{ApiError, ObjectEvent};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::pause::ApiPause;
use super::series::EventTally;

/// What waits to be counted; more is dropped.
const WAITING: usize = 1_024;
const SECOND: Duration = Duration::from_secs(1);

/// Records events.
#[derive(Debug, Clone)]
pub(crate) struct EventRecorder {
    waiting: mpsc::Sender<ObjectEvent>,
    counts: Arc<RecordedCounts>,
}

#[derive(Debug, Default)]
struct RecordedCounts {
    written: AtomicU64,
    dropped: AtomicU64,
}

/// Object by uid, and what happened to it.
type Key = (String, &'static str, String);

impl EventRecorder {
    /// One whose events are written until nobody records any more.
    pub(crate) fn start(api: ApiServer) -> Self {
        let (waiting, recorded) = mpsc::channel(WAITING);
        let counts = Arc::<RecordedCounts>::default();
        let (tally, pause) = Default::default();
        tokio::spawn(EventWriter { api, recorded, tally, pause, counts: Arc::clone(&counts) }.run());
        Self { waiting, counts }
    }

    /// Records one; its number is given to it.
    pub(crate) fn record(&self, event: ObjectEvent) {
        if self.waiting.try_send(event).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Events and series that were written, and events that were dropped.
    pub(crate) fn counted(&self) -> (u64, u64) {
        (self.counts.written.load(Ordering::Relaxed), self.counts.dropped.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
struct EventWriter {
    api: ApiServer,
    recorded: mpsc::Receiver<ObjectEvent>,
    tally: EventTally<Key>,
    pause: ApiPause,
    counts: Arc<RecordedCounts>,
}

impl EventWriter {
    async fn run(mut self) {
        loop {
            match timeout(SECOND, self.recorded.recv()).await {
                Ok(Some(event)) => self.take(event),
                Ok(None) => return,
                Err(_) => {}
            }
            while let Ok(event) = self.recorded.try_recv() {
                self.take(event);
            }
            if self.write().await {
                sleep(SECOND).await;
            }
        }
    }

    fn take(&mut self, event: ObjectEvent) {
        let (key, now) = ((event.uid.clone(), event.reason, event.note.clone()), Instant::now());
        if self.tally.count(&key, &event.at, now) {
            return;
        }
        if self.tally.has_room(now) {
            self.tally.insert(key, event, now);
        } else {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Writes what may be written in a second; whether anything was.
    async fn write(&mut self) -> bool {
        if self.pause.is_on() {
            return false;
        }
        let due = self.tally.due(Instant::now());
        for (key, due) in &due {
            if self.pause.is_on() {
                return false;
            }
            match due.write(&self.api).await {
                Ok(()) => {
                    self.tally.told(key, due, Instant::now());
                    self.counts.written.fetch_add(1, Ordering::Relaxed);
                    self.pause.end();
                }
                Err(refused) => match self.pause.begin_after(&refused) {
                    Some(why) if matches!(refused, ApiError::Forbidden(_)) => {
                        warn!(why, "Kubernetes Events are not written");
                    }
                    Some(why) => debug!(why, "ignoring that an event was not written: it is tried again"),
                    // The namespace is gone, or the API server forgot the event.
                    None => {
                        debug!(%refused, "ignoring that an event was refused");
                        self.tally.forget(key);
                        self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                },
            }
        }
        !due.is_empty()
    }
}
