//! How much one caller may ask, and how often it is told in the log that somebody was refused.
//!
//! A caller is whoever its credential names, else its user on this machine, else its address (of IPv6 the first 64 bits,
//! which are one machine's to choose from). Not limited are health, agents' streams, which have bounds of their own
//! (`ingest`), and root and the recommender's own user, who could end the program.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, header};
use evenkeel_net::Peer;

use super::recent::Recent;

/// Callers remembered; the one heard longest ago makes way, and begins anew when it is back.
const CALLERS: usize = 4096;
/// Seconds of requests a caller may make at once.
const BURST_SECONDS: u64 = 10;
/// Bytes of a request that count as one more.
const BYTES_EACH: u64 = 64 << 10;
/// Each caller's refusals are told this often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What a caller is told who has asked too much.
pub(super) const TOO_MANY: &str = "this caller has made more requests than access.requests_per_second allows";

/// Bytes of a request, where its head tells.
pub(super) fn length(headers: &HeaderMap) -> Option<u64> {
    let told = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    told.and_then(|length| length.parse().ok())
}

/// What so many bytes cost, thousandths of a request.
pub(super) const fn cost(bytes: u64) -> u64 {
    bytes.saturating_mul(1000) / BYTES_EACH
}

/// Who calls, where no credential says so.
pub(super) fn caller(peer: Option<&Peer>) -> String {
    match peer {
        Some(Peer::Local { uid, .. }) => format!("user {uid}"),
        Some(Peer::Remote { address, .. }) => match address.ip().to_canonical() {
            IpAddr::V6(ip) => format!("address {:x}::/64", ip.to_bits() >> 64),
            ip @ IpAddr::V4(_) => format!("address {ip}"),
        },
        None => "an unnamed caller".to_owned(),
    }
}

/// What every caller may ask.
#[derive(Debug)]
pub(super) struct Rates {
    per_second: u64,
    callers: Mutex<Recent<String, Bucket>>,
}

/// What a caller has left, thousandths of a request, and when that was.
#[derive(Debug)]
struct Bucket {
    left: u64,
    at: Instant,
}

impl Rates {
    /// So many requests a second.
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second: u64::from(per_second.max(1)), callers: Mutex::new(Recent::new(CALLERS)) }
    }

    /// A request of so many bytes.
    ///
    /// # Errors
    /// After how long it may be made again.
    pub(super) fn take(&self, caller: &str, bytes: u64, now: Instant) -> Result<(), Duration> {
        let most = self.per_second * BURST_SECONDS * 1000;
        let cost = cost(bytes).saturating_add(1000).min(most);
        self.with(caller, now, |left| {
            if *left < cost {
                return Err(Duration::from_millis((cost - *left).div_ceil(self.per_second)));
            }
            *left -= cost;
            Ok(())
        })
    }

    /// Thousandths of a request for what was read already: less is left for the next.
    pub(super) fn pay(&self, caller: &str, cost: u64, now: Instant) {
        self.with(caller, now, |left| *left = left.saturating_sub(cost));
    }

    /// Does something with what a caller has left, thousandths of a request.
    fn with<T>(&self, caller: &str, now: Instant, change: impl FnOnce(&mut u64) -> T) -> T {
        let most = self.per_second * BURST_SECONDS * 1000;
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = callers.touch(&caller.to_owned(), now, || Bucket { left: most, at: now });
        let millis = u64::try_from(now.saturating_duration_since(bucket.at).as_millis()).unwrap_or(u64::MAX);
        // A thousandth of a request for each millisecond and request a second.
        bucket.left = bucket.left.saturating_add(millis.saturating_mul(self.per_second)).min(most);
        bucket.at = now;
        change(&mut bucket.left)
    }
}

/// What was refused of whom since it was last told.
#[derive(Debug)]
pub(super) struct Refusals(Mutex<Recent<String, LoggedRefusal>>);

#[derive(Debug)]
struct LoggedRefusal {
    told: Instant,
    since: u64,
    place: String,
    why: String,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Recent::new(CALLERS)))
    }

    /// One more; how many are to be told with it, where it is time.
    pub(super) fn add(&self, caller: &str, place: &str, why: &str, now: Instant) -> Option<u64> {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = refused.get(&caller.to_owned()).is_none();
        let of = refused.touch(&caller.to_owned(), now, || LoggedRefusal {
            told: now,
            since: 0,
            place: String::new(),
            why: String::new(),
        });
        of.since += 1;
        if !is_new && now.saturating_duration_since(of.told) < TOLD_EVERY {
            (of.place, of.why) = (shortened(place), shortened(why));
            return None;
        }
        of.told = now;
        Some(std::mem::take(&mut of.since))
    }

    /// Callers whose refusals wait to be told, the last of each with their number; those that are quiet are forgotten.
    pub(super) fn due(&self, now: Instant) -> Vec<(String, u64, String, String)> {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = Vec::new();
        refused.retain(|caller, of| {
            let is_due = now.saturating_duration_since(of.told) >= TOLD_EVERY;
            if is_due && of.since > 0 {
                due.push((caller.clone(), of.since, of.place.clone(), of.why.clone()));
                (of.told, of.since) = (now, 0);
                return true;
            }
            !is_due
        });
        due
    }
}

/// Text of a stranger takes no more than this.
fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_ten_seconds_of_requests_and_then_its_rate() {
        let (rates, start) = (Rates::new(5), Instant::now());
        let asked = (0..1000).filter(|_| rates.take("a", 0, start).is_ok()).count();
        assert_eq!(asked, 50);
        assert_eq!(rates.take("a", 0, start), Err(Duration::from_millis(200)));
        assert!(rates.take("b", 0, start).is_ok(), "others are not asked to wait");
        assert!(rates.take("a", 0, start + Duration::from_millis(199)).is_err());
        assert!(rates.take("a", 0, start + Duration::from_millis(400)).is_ok());
        // Two megabytes are as thirty-three requests.
        assert!(rates.take("c", 2 << 20, start).is_ok());
        assert_eq!((0..1000).filter(|_| rates.take("c", 0, start).is_ok()).count(), 17);
        // As many that were read afterwards leave as much.
        assert!(rates.take("e", 0, start).is_ok());
        rates.pay("e", cost(2 << 20), start);
        assert_eq!((0..1000).filter(|_| rates.take("e", 0, start).is_ok()).count(), 17);
        // However much it is: one request of all that a caller may.
        assert!(rates.take("d", u64::MAX, start).is_ok() && rates.take("d", 0, start).is_err());
    }

    #[test]
    fn callers_are_bounded_and_one_machine_is_one_caller() {
        let rates = Rates::new(1);
        for i in 0..3 * CALLERS {
            rates.take(&i.to_string(), 0, Instant::now()).unwrap();
        }
        assert_eq!(rates.callers.lock().unwrap().len(), CALLERS);
        let of = |address: &str| {
            caller(Some(&Peer::Remote { address: address.parse().unwrap(), certificate: None }))
        };
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:2]:2"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
        assert_eq!(of("[::ffff:10.0.0.1]:1"), of("10.0.0.1:7"));
        assert_ne!(of("10.0.0.1:1"), of("10.0.0.2:1"));
    }

    #[test]
    fn refusals_are_told_at_once_and_then_once_a_minute_with_their_number() {
        let (refusals, start) = (Refusals::new(), Instant::now());
        let add =
            |caller: &str, seconds| refusals.add(caller, "/x", "y", start + Duration::from_secs(seconds));
        assert_eq!(add("a", 0), Some(1));
        assert_eq!((0..40).filter_map(|_| add("a", 10)).count(), 0);
        assert_eq!(add("b", 10), Some(1));
        assert_eq!(add("a", 60), Some(41));
        assert_eq!(add("a", 70), None);
        assert!(refusals.due(start + Duration::from_secs(100)).is_empty());
        let due = refusals.due(start + Duration::from_secs(120));
        assert_eq!(due, [("a".to_owned(), 1, "/x".to_owned(), "y".to_owned())]);
        assert!(refusals.due(start + Duration::from_secs(500)).is_empty());
        assert_eq!(add("a", 501), Some(1), "forgotten");
    }
}
