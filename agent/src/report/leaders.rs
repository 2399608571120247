//! Which of several recommenders this node follows in what changes it: the one that leads, by the term of the Lease that they share.
//!
//! Each stream says whether its recommender leads, and of which term. A term below the highest that was heard is an old leader's, which has
//! not noticed yet that another one took its place. The highest is forgotten when nobody has spoken of it for longer than a broken stream
//! goes unnoticed, so that a Lease that was deleted, and begins again at 1, does not leave the node without a leader for ever.
//!
//! Recommenders that share no Lease say nothing of it; of these the first that is configured is followed, also before its Resume where it is the
//! only one.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use evenkeel_enforce::shared::lock;
use evenkeel_proto::v1;

/// Twice as long as a connection that broke may look as if it stood.
const REMEMBERED: Duration = Duration::from_secs(60);

/// What a recommender said last on its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LeaderReport {
    /// There is no stream.
    #[default]
    None,
    /// It shares no Lease.
    Alone,
    /// Another one leads.
    Follows,
    /// It leads, of this term.
    Leads(u64),
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Leaders(Mutex<LeaderState>);

#[derive(Debug, Default)]
struct LeaderState {
    /// There is only one recommender.
    is_only: bool,
    /// In the order of the configuration.
    words: Vec<LeaderReport>,
    /// The highest term of a leader, and when it was heard of last.
    highest: Option<(u64, Instant)>,
    /// Who was followed last.
    followed: Option<usize>,
}

impl Leaders {
    /// Of so many recommenders.
    pub(super) fn of(recommenders: usize) -> Self {
        Self(Mutex::new(LeaderState { is_only: recommenders == 1, ..LeaderState::default() }))
    }

    /// What the recommender at this place of the configuration says at the beginning of its stream, or when that changes; whether this
    /// node followed another one before.
    pub(super) fn says(&self, at: usize, said: Option<&v1::Leading>, now: Instant) -> bool {
        let word = match said {
            None => LeaderReport::Alone,
            Some(v1::Leading { leads: false, .. }) => LeaderReport::Follows,
            Some(v1::Leading { term, .. }) => LeaderReport::Leads(*term),
        };
        let mut state = lock(&self.0);
        state.set(at, word);
        state.follows(at, now) && state.followed.replace(at).is_some_and(|before| before != at)
    }

    /// Its stream ended.
    pub(super) fn cut(&self, at: usize) {
        lock(&self.0).set(at, LeaderReport::None);
    }

    /// Whether what the recommender at this place says changes this node.
    pub(super) fn follows(&self, at: usize, now: Instant) -> bool {
        lock(&self.0).follows(at, now)
    }
}

impl LeaderState {
    fn set(&mut self, at: usize, word: LeaderReport) {
        if self.words.len() <= at {
            self.words.resize(at + 1, LeaderReport::None);
        }
        self.words[at] = word;
    }

    fn follows(&mut self, at: usize, now: Instant) -> bool {
        match self.words.get(at).copied().unwrap_or_default() {
            LeaderReport::Follows => false,
            LeaderReport::None => self.is_only,
            LeaderReport::Alone => at == 0,
            LeaderReport::Leads(term) => {
                let is_newer =
                    |word: &LeaderReport| matches!(word, LeaderReport::Leads(other) if *other > term);
                let is_fresh = |heard: Instant| now.saturating_duration_since(heard) < REMEMBERED;
                if self.words.iter().any(is_newer)
                    || self.highest.is_some_and(|(highest, heard)| term < highest && is_fresh(heard))
                {
                    return false;
                }
                self.highest = Some((term, now));
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_leader_of_the_newest_term_is_followed() {
        let now = Instant::now();
        let later = |seconds: u64| now + Duration::from_secs(seconds);
        let leads = |term| v1::Leading { leads: true, term, leader: String::new() };
        let stands_by = v1::Leading { leads: false, term: 3, leader: "a".into() };
        let leaders = Leaders::of(2);
        assert!(!leaders.follows(0, now), "nobody has spoken");
        assert!(!leaders.says(0, Some(&leads(3)), now), "no other one was followed");
        assert!(!leaders.says(1, Some(&stands_by), now));
        assert_eq!((leaders.follows(0, now), leaders.follows(1, now)), (true, false));
        // The other one takes over; the first has not noticed.
        assert!(leaders.says(1, Some(&leads(4)), later(20)));
        assert_eq!((leaders.follows(0, later(21)), leaders.follows(1, later(21))), (false, true));
        // It comes back with what it knew, and again; the new one goes on to be heard.
        leaders.cut(0);
        assert!(!leaders.says(0, Some(&leads(3)), later(70)));
        assert!(leaders.follows(1, later(71)) && !leaders.follows(0, later(130)));
        // Nobody has spoken of term 4 for long: the Lease was made anew.
        leaders.cut(1);
        assert!(!leaders.says(0, Some(&leads(1)), later(130)));
        assert!(leaders.follows(0, later(192)));
    }

    #[test]
    fn of_those_without_a_lease_the_first_is_followed() {
        let (leaders, now) = (Leaders::of(2), Instant::now());
        assert!(!leaders.says(0, None, now) && !leaders.says(1, None, now));
        assert!(leaders.follows(0, now) && !leaders.follows(1, now));
        leaders.cut(0);
        assert!(!leaders.follows(0, now) && !leaders.follows(1, now));
        // An only one may speak before its Resume.
        let only = Leaders::of(1);
        assert!(only.follows(0, now));
        only.says(0, Some(&v1::Leading { leads: false, term: 1, leader: String::new() }), now);
        assert!(!only.follows(0, now));
    }
}
