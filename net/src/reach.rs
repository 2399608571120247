//! The one rule for addresses: what other machines can reach is encrypted, or it is said that it need not be.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often what should not stay is said again.
const AGAIN: Duration = Duration::from_secs(3600);

/// Says when something that should not stay is to be said: at once, and each hour.
#[derive(Debug, Default)]
pub struct Reminder(Option<Instant>);

impl Reminder {
    /// Whether it is to be said at a time, which is remembered then.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.0.is_none_or(|said| now.saturating_duration_since(said) >= AGAIN);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Which of the addresses (by key of the configuration) other machines can reach; none is in the clear otherwise. The text
/// is for people and lacks what helps.
#[must_use]
pub fn in_the_clear(addresses: &[(&str, Option<SocketAddr>)]) -> Option<String> {
    let open = addresses.iter().filter_map(|(key, at)| Some((key, (*at)?)));
    let open = open.filter(|(_, at)| !at.ip().is_loopback()).map(|(key, at)| format!("{key} = {at}"));
    let open: Vec<String> = open.collect();
    (!open.is_empty())
        .then(|| format!("{} can be reached from other machines without encryption", open.join(" and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_should_not_stay_is_said_at_once_and_each_hour() {
        let (mut reminder, start) = (Reminder::default(), Instant::now());
        let said = (0..3 * 60 * 60).filter(|at| reminder.is_due(start + Duration::from_secs(*at)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 3600, 7200]);
    }

    #[test]
    fn loopback_alone_is_out_of_reach() {
        for (text, open) in [
            ("127.0.0.1:1", false),
            ("[::1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("10.0.0.1:1", true),
            ("[::ffff:127.0.0.1]:1", true),
        ] {
            let said = in_the_clear(&[("serve.x", text.parse().ok()), ("serve.y", None)]);
            assert_eq!(said.is_some(), open, "{text}: {said:?}");
        }
    }
}
