//! Owns what the webhook tells of what it set, as Events of the controllers whose pods these are: equal ones are counted up as one, and everything
//! that waits has a bound. A pod waits for none of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::ApiServer;
use evenkeel_kubernetes::objects::{ApiError, ObjectEvent};
use evenkeel_store::clock::WallClock;
use evenkeel_webhook::pod::Controller;
use evenkeel_webhook::serve::{Done, Tells};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// What waits to be counted; more is dropped.
const WAITING: usize = 1_024;
/// Events that are remembered.
const MOST: usize = 4_096;
/// How long an event is counted up after it last happened; later it is another one (`client-go`, `tools/events`: six minutes).
const SERIES: Duration = Duration::from_secs(360);
/// How often a series is written.
const WRITTEN: Duration = Duration::from_secs(60);
/// Events that are written in a second.
const A_SECOND: usize = 10;
const SECOND: Duration = Duration::from_secs(1);
/// How long nothing is written after the API server gave no answer, and where who writes may not.
const PAUSE: Duration = Duration::from_secs(10);
const FORBIDDEN: Duration = Duration::from_secs(300);

/// What takes things in.
#[derive(Debug)]
pub(super) struct Events {
    waiting: mpsc::Sender<Done>,
    counts: Arc<EventCounts>,
}

#[derive(Debug, Default)]
struct EventCounts {
    written: AtomicU64,
    dropped: AtomicU64,
}

impl Events {
    /// What takes them in, and what writes them.
    pub(super) fn new(api: ApiServer) -> (Self, EventWriter) {
        let (waiting, done) = mpsc::channel(WAITING);
        let counts = Arc::<EventCounts>::default();
        let number = WallClock::system().now_usec();
        let tally = EventTally { series: HashMap::new(), number };
        (Self { waiting, counts: Arc::clone(&counts) }, EventWriter { api, done, tally, counts })
    }
}

impl Tells for Events {
    fn tell(&self, done: Done) {
        if self.waiting.try_send(done).is_err() {
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counted(&self) -> (u64, u64) {
        (self.counts.written.load(Ordering::Relaxed), self.counts.dropped.load(Ordering::Relaxed))
    }
}

/// By controller and words.
type Key = (String, String);

/// One that is written, or is to be.
#[derive(Debug)]
struct EventSeries {
    event: ObjectEvent,
    count: u64,
    /// What the API server was told; 0 before it was told anything.
    told: u64,
    told_at: Instant,
    last: Instant,
    last_at: String,
}

/// Events that are counted. Time is an argument.
#[derive(Debug)]
struct EventTally {
    series: HashMap<Key, EventSeries>,
    number: u64,
}

impl EventTally {
    /// Takes one in; whether there was room.
    fn take(&mut self, done: Done, at: &str, now: Instant) -> bool {
        let Done { controller, text, is_applied } = done;
        let key = (controller.uid.clone(), text.clone());
        if let Some(series) =
            self.series.get_mut(&key).filter(|series| now.saturating_duration_since(series.last) < SERIES)
        {
            series.count += 1;
            (series.last, series.last_at) = (now, at.to_owned());
            return true;
        }
        if self.series.len() >= MOST {
            self.series.retain(|_, series| now.saturating_duration_since(series.last) < SERIES);
        }
        if self.series.len() >= MOST {
            return false;
        }
        self.number = self.number.wrapping_add(1);
        let event = event(controller, &text, is_applied, at, self.number);
        let at = at.to_owned();
        let series = EventSeries { event, count: 1, told: 0, told_at: now, last: now, last_at: at };
        self.series.insert(key, series);
        true
    }

    /// What is to be written now, new ones first.
    fn due(&self, now: Instant) -> Vec<Key> {
        let is_due = |series: &&EventSeries| {
            series.told == 0
                || series.told < series.count && now.saturating_duration_since(series.told_at) >= WRITTEN
        };
        let mut due: Vec<(&Key, &EventSeries)> =
            self.series.iter().filter(|(_, series)| is_due(series)).collect();
        due.sort_by_key(|(_, series)| (series.told, series.event.number));
        due.into_iter().take(A_SECOND).map(|(key, _)| key.clone()).collect()
    }
}

fn event(of: Controller, text: &str, is_applied: bool, at: &str, number: u64) -> ObjectEvent {
    let note = match is_applied {
        true => format!("set for its pods: {text}"),
        false => format!("dry run, not set for its pods: {text}"),
    };
    ObjectEvent {
        api_version: of.api_version,
        kind: of.kind,
        namespace: of.namespace,
        name: of.name,
        uid: of.uid,
        reason: if is_applied { "RequestsSet" } else { "RequestsEstimated" },
        action: "Admit",
        is_warning: false,
        controller: "evenkeel.dev/webhook",
        instance: "evenkeel-webhook".to_owned(),
        note,
        at: at.to_owned(),
        number,
    }
}

/// What writes them.
#[derive(Debug)]
pub(super) struct EventWriter {
    api: ApiServer,
    done: mpsc::Receiver<Done>,
    tally: EventTally,
    counts: Arc<EventCounts>,
}

impl EventWriter {
    /// Writes until nobody tells anything any more.
    pub(super) async fn run(mut self) {
        loop {
            while let Ok(done) = self.done.try_recv() {
                let taken = self.tally.take(done, &now(), Instant::now());
                self.counts.dropped.fetch_add(u64::from(!taken), Ordering::Relaxed);
            }
            let mut pause = SECOND;
            for key in self.tally.due(Instant::now()) {
                if let Some(longer) = self.write(&key).await {
                    pause = longer;
                    break;
                }
            }
            tokio::time::sleep(pause).await;
            if self.done.is_closed() {
                return;
            }
        }
    }

    /// Writes one; how long nothing is to be written after it.
    async fn write(&mut self, key: &Key) -> Option<Duration> {
        let series = self.tally.series.get_mut(key)?;
        let answer = match series.told {
            0 => self.api.tell_object(&series.event).await,
            _ => self.api.tell_object_again(&series.event, series.count, &series.last_at).await,
        };
        match answer {
            Ok(()) => {
                (series.told, series.told_at) = (series.count, Instant::now());
                self.counts.written.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(ApiError::Forbidden(why)) => {
                warn!(why, "controllers of pods are not told what was set of these");
                Some(FORBIDDEN)
            }
            Err(ApiError::Later(why, after)) => {
                debug!(why, "ignoring that an event was not written: it is tried again");
                Some(after.unwrap_or(PAUSE).clamp(SECOND, FORBIDDEN))
            }
            Err(ApiError::Silent(why)) => {
                debug!(why, "ignoring that an event was not written: it is tried again");
                Some(PAUSE)
            }
            // The namespace is gone, or the API server forgot the event: what happens next is another one.
            Err(ApiError::Absent(why) | ApiError::Conflict(why) | ApiError::Wrong(why)) => {
                debug!(why, "ignoring that an event was refused");
                self.tally.series.remove(key);
                self.counts.dropped.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

/// RFC 3339 with six digits of a second, as the API takes no other.
fn now() -> String {
    let usec = i64::try_from(WallClock::system().now_usec()).unwrap_or_default();
    let at = Timestamp::from_microsecond(usec).unwrap_or_default();
    format!("{at:.6}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(uid: &str, text: &str) -> Done {
        let controller = Controller {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            namespace: "shop".into(),
            name: "web-5d9c".into(),
            uid: uid.into(),
        };
        Done { controller, text: text.into(), is_applied: true }
    }

    #[test]
    fn a_rollout_is_one_event_that_is_counted_up() {
        let (mut tally, start) = (EventTally { series: HashMap::new(), number: 7 }, Instant::now());
        for _ in 0..100 {
            assert!(tally.take(done("u", "cpu"), "t0", start));
        }
        assert!(tally.take(done("u", "memory"), "t0", start) && tally.take(done("v", "cpu"), "t0", start));
        assert_eq!(tally.due(start).len(), 3);
        for series in tally.series.values_mut() {
            series.told = 1;
        }
        assert!(tally.due(start + SECOND).is_empty());
        assert_eq!(tally.due(start + WRITTEN), [("u".to_owned(), "cpu".to_owned())]);
        // Long after, it is another one.
        assert!(tally.take(done("u", "cpu"), "t1", start + SERIES));
        let of = &tally.series[&("u".to_owned(), "cpu".to_owned())];
        assert_eq!((of.count, of.told, of.event.number), (1, 0, 11));
        assert!(of.event.note.starts_with("set for its pods: cpu"));
        for at in 0..MOST {
            tally.take(done(&at.to_string(), "cpu"), "t1", start + SERIES);
        }
        assert!(tally.series.len() <= MOST && !tally.take(done("last", "cpu"), "t1", start + SERIES));
        assert_eq!(tally.due(start + SERIES).len(), A_SECOND);
    }
}
