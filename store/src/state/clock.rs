//! Owns what time it is for everything that is sealed, dropped or refused by its age.
//!
//! The recommender's own clock may be wrong, most of all after a start: ahead of the truth it would delete history and
//! refuse every sample as too old. So the clock of each record is compared with the times nodes measured at. The seven
//! nodes heard last are asked (a clock that is wrong on one of them does not matter where there are more):
//!
//! | own clock | nodes heard last | time here | history expires |
//! | --- | --- | --- | --- |
//! | within an hour | most agree with it | follows the own clock, back as well | yes |
//! | any | none within five minutes | follows steps of up to an hour, no others | no |
//! | ahead or behind | most contradict it | follows their median where the own clock is not before it; three of one mind go over it | no |
//!
//! Expiry goes by a time of its own, `Clock::horizon`, because what is deleted does not come back. It follows steps of
//! up to an hour. A longer step is what a machine shows that was off for a while, and what a wrong clock shows: it is
//! believed at once when three nodes agree with it, and otherwise after it has stood for a day of records. That holds for a
//! single node, too, which may well share the machine and the clock of the recommender.
//!
//! Nodes that deliver what they kept while nobody listened are dated behind the clock until they have caught up: nothing
//! expires meanwhile, and that is all.

use super::minute::MINUTE_USEC;
use super::minute_of;

/// A node's time may differ so much from the own clock: more than clocks drift, less than what expires at once (a day).
const TOLERANCE_USEC: u64 = 60 * MINUTE_USEC;
/// The same in minutes.
const STEP: u32 = 60;
/// A node that was not heard for so long has no say.
const FRESH_USEC: u64 = 5 * MINUTE_USEC;
/// Nodes asked: an odd number, so that most is never half.
const PANEL: usize = 7;
/// So many of one mind are believed against the own clock, and about a step of more than an hour.
const SEVERAL: usize = 3;
/// For so long a long step has to stand where fewer agree.
const LASTING_USEC: u64 = 24 * 60 * MINUTE_USEC;

/// When a node was heard and what time it measured at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Witness {
    /// Stands for its name.
    pub(crate) node: u32,
    /// Own clock at reception.
    pub(crate) received_usec: u64,
    /// Its newest sample.
    pub(crate) sample_usec: u64,
    /// Its samples come faster than time passes: it delivers what it kept.
    pub(crate) is_catching_up: bool,
    /// Its clock differs from the own one as much as at its frame before: a single odd frame proves nothing.
    pub(crate) is_steady: bool,
}

/// How the own clock differs from those of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// By how much the own clock is ahead of the median of the nodes, microseconds; negative: behind.
    pub ahead_usec: i64,
    /// Nodes that contradict it.
    pub against: usize,
    /// Nodes asked.
    pub of: usize,
}

/// Time as records and nodes tell it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Clock {
    /// Minutes since 1970; 0 = nothing known yet.
    pub(crate) now: u32,
    /// The part of it that has stood long enough for what cannot be undone.
    pub(crate) settled: u32,
    /// For how long `now` has been more than a step ahead of `settled`.
    pub(crate) lasted_usec: u64,
    /// Own clock at the record before.
    pub(crate) received_usec: u64,
    pub(crate) panel: Vec<Witness>,
    /// Minutes in which records came, by which it is told for how long somebody was silent: not while nobody listened.
    pub(crate) listened: u32,
}

impl Clock {
    /// As an earlier release wrote it, which believed every clock.
    pub(crate) fn of_minute(minute: u32) -> Self {
        Self { now: minute, settled: minute, ..Self::default() }
    }

    /// Minutes since 1970, as far as it is known.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// A node's frame: the newest time in it, and the own clock at its reception.
    pub(crate) fn hear(&mut self, node: u32, received_usec: u64, sample_usec: u64) {
        let mut heard = Witness { node, received_usec, sample_usec, ..Witness::default() };
        if let Some(before) = self.panel.iter_mut().find(|w| w.node == node) {
            let passed = received_usec.saturating_sub(before.received_usec);
            let measured = sample_usec.saturating_sub(before.sample_usec);
            // Twice as fast, and by more than a connection holds back.
            heard.is_catching_up = measured > passed.saturating_mul(2).saturating_add(MINUTE_USEC / 6)
                || (before.is_catching_up && measured > passed.saturating_mul(2));
            heard.is_steady = heard.ahead_usec().abs_diff(before.ahead_usec()) <= TOLERANCE_USEC;
            *before = heard;
            return;
        }
        if self.panel.len() >= PANEL
            && let Some(oldest) = (0..self.panel.len()).min_by_key(|at| self.panel[*at].received_usec)
        {
            self.panel.swap_remove(oldest);
        }
        self.panel.push(heard);
    }

    /// A record was received at this time of the own clock; true when time went back.
    pub(crate) fn advance(&mut self, received_usec: u64) -> bool {
        let passed = received_usec.saturating_sub(self.received_usec);
        self.received_usec = received_usec;
        self.panel.retain(|w| w.received_usec.abs_diff(received_usec) <= FRESH_USEC);
        let (before, own) = (self.now, minute_of(received_usec));
        match self.verdict() {
            ClockVerdict::Agreed(_) if own.saturating_add(STEP) < self.now => self.now = own,
            ClockVerdict::Agreed(_) => self.now = self.now.max(own),
            ClockVerdict::Nobody if own <= self.now.saturating_add(STEP) => self.now = self.now.max(own),
            ClockVerdict::Nobody => {}
            ClockVerdict::Contradicted { median, several } => {
                let common = if several { median } else { median.min(received_usec) };
                self.now = self.now.max(minute_of(common));
            }
        }
        self.listened = self.listened.saturating_add(self.now.saturating_sub(before).min(1));
        self.settle(passed);
        self.now < before
    }

    fn settle(&mut self, passed_usec: u64) {
        let agreed = match self.verdict() {
            ClockVerdict::Agreed(nodes) => nodes,
            ClockVerdict::Nobody | ClockVerdict::Contradicted { .. } => 0,
        };
        let is_first = self.settled == 0;
        let is_step = self.now <= self.settled.saturating_add(STEP);
        if agreed > 0 && !is_first && !is_step && passed_usec <= TOLERANCE_USEC {
            self.lasted_usec = self.lasted_usec.saturating_add(passed_usec);
        }
        if is_first || is_step || agreed >= SEVERAL || self.lasted_usec >= LASTING_USEC {
            (self.settled, self.lasted_usec) = (self.now, 0);
        }
    }

    /// Minute by whose age samples are too old to be counted: never after what the own clock says, or most nodes frame after
    /// frame.
    pub(crate) fn horizon(&self) -> u32 {
        let horizon = self.settled.min(minute_of(self.received_usec));
        let steady = self.panel.iter().filter(|w| w.is_steady && !w.agrees()).count();
        match self.verdict() {
            ClockVerdict::Contradicted { median, .. } if steady * 2 > self.panel.len() => {
                horizon.min(minute_of(median))
            }
            _ => horizon,
        }
    }

    /// Minute by whose age history is deleted; nothing while nodes contradict the clock or none is heard.
    pub(crate) fn expiry(&self) -> Option<u32> {
        matches!(self.verdict(), ClockVerdict::Agreed(_)).then(|| self.horizon())
    }

    /// Whether deleting waits, because a long step forward is not confirmed yet.
    pub fn is_waiting(&self) -> bool {
        self.now > self.settled.saturating_add(STEP)
    }

    /// How the own clock differs from that of most nodes that do not deliver old samples.
    pub fn doubt(&self) -> Option<Doubt> {
        let steady = || self.panel.iter().filter(|w| !w.is_catching_up);
        let against = steady().filter(|w| w.is_steady && !w.agrees()).count();
        let of = steady().count();
        if against * 2 <= of {
            return None;
        }
        let mut ahead: Vec<i64> = steady().map(Witness::ahead_usec).collect();
        ahead.sort_unstable();
        Some(Doubt { ahead_usec: ahead[ahead.len() / 2], against, of })
    }

    /// What to add to the own clock for what time it is: what several nodes of one mind say against it.
    pub(crate) fn correction_usec(&self) -> i64 {
        match self.doubt() {
            Some(doubt) if doubt.against >= SEVERAL => doubt.ahead_usec.saturating_neg(),
            _ => 0,
        }
    }

    fn verdict(&self) -> ClockVerdict {
        let of = self.panel.len();
        if of == 0 {
            return ClockVerdict::Nobody;
        }
        let agree = self.panel.iter().filter(|w| w.agrees()).count();
        if agree * 2 > of {
            return ClockVerdict::Agreed(agree);
        }
        let mut times: Vec<u64> = self.panel.iter().map(|w| w.sample_usec).collect();
        times.sort_unstable();
        let median = times[of / 2];
        let near = times.iter().filter(|time| time.abs_diff(median) <= TOLERANCE_USEC).count();
        ClockVerdict::Contradicted { median, several: near >= SEVERAL && near * 2 > of }
    }
}

impl Witness {
    fn agrees(&self) -> bool {
        self.sample_usec.abs_diff(self.received_usec) <= TOLERANCE_USEC
    }

    fn ahead_usec(&self) -> i64 {
        let signed = |usec: u64| i64::try_from(usec).unwrap_or(i64::MAX);
        signed(self.received_usec).saturating_sub(signed(self.sample_usec))
    }
}

/// What the nodes heard last say about the own clock.
enum ClockVerdict {
    /// None was heard.
    Nobody,
    /// Most agree; how many.
    Agreed(usize),
    /// Most do not: the median of what they say, and whether several of them say the same.
    Contradicted { median: u64, several: bool },
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const MINUTE: u64 = 60 * SECOND;
    const DAY: u64 = 1440 * MINUTE;
    const TRUE: u64 = 19_700 * DAY;

    /// Nodes of these numbers report every minute for a while; the own clock is off by so much.
    fn report(clock: &mut Clock, nodes: &[u32], from: u64, minutes: u64, off: i64) {
        for minute in 0..minutes {
            for (i, node) in nodes.iter().enumerate() {
                let at = from + minute * MINUTE + i as u64 * SECOND;
                let own = at.checked_add_signed(off).unwrap();
                clock.hear(*node, own, at);
                clock.advance(own);
            }
        }
    }

    fn day(minute: u32) -> u32 {
        minute / 1440 - 19_700
    }

    #[test]
    fn a_clock_that_was_ahead_deletes_nothing_and_is_right_again_at_once() {
        for nodes in [&[1][..], &[1, 2], &[1, 2, 3, 4]] {
            let mut clock = Clock::default();
            report(&mut clock, nodes, TRUE, 60, 0);
            assert!(clock.expiry().is_some());
            // A greeting, then frames.
            clock.advance(TRUE + 61 * MINUTE + 60 * DAY);
            assert_eq!((day(clock.now), clock.expiry()), (0, None), "{nodes:?}");
            report(&mut clock, nodes, TRUE + 61 * MINUTE, 3, 60 * DAY as i64);
            assert_eq!((day(clock.now), day(clock.horizon()), clock.expiry()), (0, 0, None), "{nodes:?}");
            let doubt = clock.doubt().unwrap();
            assert_eq!(
                (doubt.ahead_usec, doubt.against, doubt.of),
                (60 * DAY as i64, nodes.len(), nodes.len())
            );
            assert_eq!(clock.correction_usec() != 0, nodes.len() >= SEVERAL);
            report(&mut clock, nodes, TRUE + 65 * MINUTE, 1, 0);
            assert_eq!((clock.now, clock.doubt()), (minute_of(TRUE) + 65, None), "{nodes:?}");
            assert!(clock.expiry().is_some());
        }
    }

    #[test]
    fn what_an_earlier_release_believed_is_corrected_by_the_first_frame() {
        let mut clock = Clock::of_minute(minute_of(TRUE + 60 * DAY));
        assert_eq!(clock.horizon(), 0, "nothing is too old before anything was received");
        report(&mut clock, &[1], TRUE, 1, 0);
        assert_eq!((day(clock.now), day(clock.horizon())), (0, 0));
    }

    #[test]
    fn a_machine_that_was_off_is_told_from_a_wrong_clock_by_several_nodes_or_by_a_day() {
        for (nodes, at_once) in [(&[1][..], false), (&[1, 2], false), (&[1, 2, 3], true)] {
            let mut clock = Clock::default();
            report(&mut clock, nodes, TRUE, 10, 0);
            // Own clock and nodes agree on sixty days later, as they do where they share a machine.
            report(&mut clock, nodes, TRUE + 60 * DAY, 1, 0);
            assert_eq!((day(clock.now), day(clock.settled)), (60, if at_once { 60 } else { 0 }), "{nodes:?}");
            assert_eq!(clock.is_waiting(), !at_once);
            report(&mut clock, nodes, TRUE + 60 * DAY + MINUTE, 1441, 0);
            assert_eq!(day(clock.settled), 61, "{nodes:?}");
        }
        // Both were wrong, and both are right again.
        let mut clock = Clock::default();
        report(&mut clock, &[1], TRUE, 10, 0);
        report(&mut clock, &[1], TRUE + 60 * DAY, 30, 0);
        report(&mut clock, &[1], TRUE + 10 * MINUTE, 1, 0);
        assert_eq!((clock.now, clock.settled), (minute_of(TRUE) + 10, minute_of(TRUE) + 10));
    }

    #[test]
    fn one_node_with_a_wrong_clock_changes_nothing() {
        let mut clock = Clock::default();
        for minute in 0..100 {
            let now = TRUE + minute * MINUTE;
            clock.hear(9, now, now + 300 * DAY);
            clock.advance(now);
            report(&mut clock, &[1, 2, 3], now, 1, 0);
        }
        assert_eq!((clock.now, clock.settled), (minute_of(TRUE) + 99, minute_of(TRUE) + 99));
        assert_eq!(clock.doubt(), None);
    }

    #[test]
    fn nodes_that_catch_up_hold_expiry_and_are_no_doubt() {
        let mut clock = Clock::default();
        report(&mut clock, &[1], TRUE, 10, 0);
        // Two days nobody listened; an hour a second.
        let back = TRUE + 2 * DAY;
        for hour in 0..48 {
            let own = back + hour * SECOND;
            clock.hear(1, own, TRUE + 10 * MINUTE + hour * 60 * MINUTE);
            clock.advance(own);
            assert!(
                hour == 0 || hour > 45 || (clock.expiry().is_none() && clock.doubt().is_none()),
                "{hour}"
            );
        }
        report(&mut clock, &[1], back + MINUTE, 2, 0);
        assert_eq!(day(clock.now), 2);
    }

    #[test]
    fn an_own_clock_at_1970_is_set_right_by_several_nodes() {
        let mut clock = Clock::default();
        report(&mut clock, &[1, 2, 3], TRUE, 2, -(TRUE as i64 - MINUTE as i64));
        assert_eq!(day(clock.now), 0);
        assert_eq!(clock.expiry(), None);
        assert!(clock.correction_usec() > 0);
    }
}
