//! Owns events that are counted: equal ones are one, of which the API server is told how often it happened, and what is remembered has a bound.
//! Time is an argument.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::ApiServer;
use evenkeel_kubernetes::objects::{ApiError, ObjectEvent};
use jiff::Timestamp;

/// How long an event is counted up after it last happened; later it is another one (`client-go`, `tools/events`: six minutes).
pub(super) const SERIES: Duration = Duration::from_secs(360);
/// How often a series is written.
pub(super) const WRITTEN: Duration = Duration::from_secs(60);
/// Events and series that are remembered.
pub(super) const MOST: usize = 4_096;
/// Events that are written in a second.
pub(super) const A_SECOND: usize = 10;

/// One that is written, or is to be.
#[derive(Debug)]
struct EventSeries {
    event: ObjectEvent,
    count: u64,
    /// What the API server was told; 0 before it was told anything.
    told: u64,
    told_at: Option<Instant>,
    last: Instant,
    last_at: String,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Due {
    /// A new event.
    First(ObjectEvent),
    /// One that happened so often by now, and when last.
    Again(ObjectEvent, u64, String),
}

impl Due {
    /// Writes it.
    pub(super) async fn write(&self, api: &ApiServer) -> Result<(), ApiError> {
        match self {
            Self::First(event) => match api.tell(event).await {
                // No other has its name: the answer to a try before was lost.
                Err(ApiError::Conflict(_)) => Ok(()),
                answer => answer,
            },
            Self::Again(event, count, at) => api.tell_again(event, *count, at).await,
        }
    }
}

/// Events that are counted, by what makes them equal.
#[derive(Debug)]
pub(super) struct EventTally<K> {
    series: HashMap<K, EventSeries>,
    /// Of the last event. It begins anywhere, so that no other tally and no run before has the same ones.
    number: u64,
}

impl<K: Clone + Eq + Hash> Default for EventTally<K> {
    fn default() -> Self {
        Self { series: HashMap::new(), number: RandomState::new().hash_one(0) }
    }
}

impl<K: Clone + Eq + Hash> EventTally<K> {
    /// Counts one up that happened lately, `at` this time (RFC 3339); whether there is such a one.
    pub(super) fn count(&mut self, key: &K, at: &str, now: Instant) -> bool {
        let known = self.series.get_mut(key);
        let Some(series) = known.filter(|series| now.saturating_duration_since(series.last) < SERIES) else {
            return false;
        };
        series.count += 1;
        (series.last, series.last_at) = (now, at.to_owned());
        true
    }

    /// Whether there is room for another one, without those that are over and told.
    pub(super) fn has_room(&mut self, now: Instant) -> bool {
        if self.series.len() >= MOST {
            self.series
                .retain(|_, one| one.told < one.count || now.saturating_duration_since(one.last) < SERIES);
        }
        self.series.len() < MOST
    }

    /// Takes a new one in, and gives it its number.
    pub(super) fn insert(&mut self, key: K, event: ObjectEvent, now: Instant) {
        self.number = self.number.wrapping_add(1);
        let event = ObjectEvent { number: self.number, ..event };
        let last_at = event.at.clone();
        let series = EventSeries { event, count: 1, told: 0, told_at: None, last: now, last_at };
        self.series.insert(key, series);
    }

    /// What is to be written in this second: what is new, then the series that waited longest.
    pub(super) fn due(&self, now: Instant) -> Vec<(K, Due)> {
        let is_due = |one: &EventSeries| {
            let is_long_ago = |at| now.saturating_duration_since(at) >= WRITTEN;
            one.told == 0 || one.told < one.count && one.told_at.is_none_or(is_long_ago)
        };
        let mut due: Vec<(&K, &EventSeries)> = self.series.iter().filter(|(_, one)| is_due(one)).collect();
        due.sort_by_key(|(_, one)| (one.told > 0, one.told_at, one.event.number));
        let written = |(key, one): (&K, &EventSeries)| {
            let event = one.event.clone();
            let due = match one.told {
                0 => Due::First(event),
                _ => Due::Again(event, one.count, one.last_at.clone()),
            };
            (key.clone(), due)
        };
        due.into_iter().take(A_SECOND).map(written).collect()
    }

    /// It was written.
    pub(super) fn told(&mut self, key: &K, due: &Due, now: Instant) {
        if let Some(one) = self.series.get_mut(key) {
            one.told = match due {
                Due::First(_) => 1,
                Due::Again(_, count, _) => *count,
            };
            one.told_at = Some(now);
        }
    }

    /// It cannot be written, ever: what happens next is another one.
    pub(super) fn forget(&mut self, key: &K) {
        self.series.remove(key);
    }

    /// How many the API server was told nothing of yet.
    pub(super) fn waiting(&self) -> usize {
        self.series.values().filter(|one| one.told == 0).count()
    }
}

/// A time as events have it: RFC 3339 with six digits of a second, as the API takes no other.
pub(crate) fn event_time(usec: u64) -> String {
    let at = i64::try_from(usec).ok().and_then(|usec| Timestamp::from_microsecond(usec).ok());
    format!("{:.6}", at.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of the pod `shop/web`.
    fn event(note: &str) -> ObjectEvent {
        ObjectEvent {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
            container: None,
            reason: "RequestsSet",
            action: "Admit",
            is_warning: false,
            controller: "evenkeel.dev/webhook",
            instance: String::new(),
            note: note.into(),
            at: "t0".into(),
            number: 0,
        }
    }

    #[test]
    fn a_time_has_six_digits_of_a_second() {
        assert_eq!(event_time(1_795_225_427_216_099), "2026-11-21T01:43:47.216099Z");
        assert_eq!(event_time(1_795_225_427_000_000), "2026-11-21T01:43:47.000000Z");
    }

    #[test]
    fn equal_events_are_one_that_is_counted_up() {
        let (mut tally, start) = (EventTally::<u32>::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let take = |tally: &mut EventTally<u32>, key: u32, now| {
            let counted = tally.count(&key, "t1", now);
            if !counted && tally.has_room(now) {
                tally.insert(key, event("cpu"), now);
            }
        };
        (0..100).for_each(|_| take(&mut tally, 1, start));
        take(&mut tally, 2, start);
        let due = tally.due(start);
        assert_eq!((due.len(), tally.waiting()), (2, 2));
        let Due::First(first) = &due[0].1 else { panic!("it is new") };
        due.iter().for_each(|(key, due)| tally.told(key, due, start));
        assert!(tally.due(at(1)).is_empty(), "a series is written once a minute");
        let again = tally.due(at(60));
        assert!(matches!(&again[..], [(1, Due::Again(_, 100, last))] if last == "t1"));
        tally.told(&1, &again[0].1, at(60));
        assert!(tally.due(at(200)).is_empty());
        // Long after, it is another one.
        take(&mut tally, 1, at(360));
        let [(1, Due::First(later))] = &tally.due(at(360))[..] else { panic!("it is new") };
        assert_ne!(later.event_name(), first.event_name());
        tally.forget(&1);
        assert_eq!(tally.waiting(), 0);
        // So many that there is no room.
        (0..10_000).for_each(|key| take(&mut tally, key, at(800)));
        assert_eq!((tally.series.len(), tally.due(at(800)).len()), (MOST, A_SECOND));
        assert_ne!(EventTally::<u32>::default().number, EventTally::<u32>::default().number);
    }
}
