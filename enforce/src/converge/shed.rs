//! How much of the stream of process events is read: all of it, in gulps, or for a while none.
//!
//! Every fork on the machine wakes us, also those that are none of our business. Up to [`GULP_ABOVE`] a second each
//! is taken at once. Above, the stream is left alone for [`GULP`] after each reading, so that many are taken for one
//! waking. Above [`MOST`] it is not worth reading: it is shut for [`PAUSE`], then opened again, and every container
//! is looked at once. After a pause the stream stays open only below half of [`MOST`], so that a storm at the bound
//! does not open and shut it every second.
//!
//! Pure: the time is an argument. Containers that come and processes put into them are told by another source and
//! are noticed at once all the while.

use std::time::{Duration, Instant};

/// Events a second that are taken one by one.
const GULP_ABOVE: u32 = 400;
/// How long the stream is left alone then: a hundredth of what a new process's score may take is no loss.
const GULP: Duration = Duration::from_millis(5);
/// Events a second that are read at most: some 2 us each, so at most a fiftieth of a core.
const MOST: u32 = 10_000;
/// How long the stream is shut: what may be missed meanwhile is found at its end.
pub(super) const PAUSE: Duration = Duration::from_secs(5);
/// Rates are of this long.
const WINDOW: Duration = Duration::from_secs(1);

/// What to do with the stream now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Read it.
    Read,
    /// Leave it alone.
    Wait,
    /// Open it, look at everything, read it.
    Resume,
}

/// The state of the stream.
#[derive(Debug)]
pub(super) struct Shed {
    /// When counting of the present window began, and what was counted.
    since: Instant,
    counted: u32,
    /// Not to be read before.
    until: Option<Instant>,
    shut: bool,
    /// The present window is the first after a pause.
    wary: bool,
}

impl Shed {
    /// Open, nothing counted.
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, counted: 0, until: None, shut: false, wary: false }
    }

    /// Whether the stream is shut.
    pub(super) const fn is_shut(&self) -> bool {
        self.shut
    }

    /// Whether to be woken by the stream.
    pub(super) const fn is_listening(&self) -> bool {
        self.until.is_none()
    }

    /// When to look again, where the stream does not wake us.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.until
    }

    /// What to do now.
    pub(super) fn step(&mut self, now: Instant) -> Step {
        if self.until.is_some_and(|until| now < until) {
            return Step::Wait;
        }
        self.until = None;
        if now.duration_since(self.since) >= WINDOW {
            (self.since, self.counted) = (now, 0);
            self.wary &= self.shut;
        }
        if std::mem::take(&mut self.shut) { Step::Resume } else { Step::Read }
    }

    /// Takes in how many events were read; true when the stream is to be shut.
    pub(super) fn took(&mut self, events: usize, now: Instant) -> bool {
        self.counted = self.counted.saturating_add(u32::try_from(events).unwrap_or(u32::MAX));
        let most = if self.wary { MOST / 2 } else { MOST };
        if self.counted > most {
            (self.shut, self.wary, self.until) = (true, true, Some(now + PAUSE));
        } else if self.counted > GULP_ABOVE && events > 0 {
            self.until = Some(now + GULP);
        }
        self.shut
    }

    /// What is promised instead while the stream is shut.
    pub(super) fn promise() -> String {
        format!(
            "process events: more than {MOST} a second on this machine; new processes of known containers are \
             found within {} s and by the audit (find who forks, or set features.proc_connector = false)",
            PAUSE.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a steady rate in steps of a millisecond; counts readings, pauses and resumptions.
    fn run(shed: &mut Shed, start: Instant, seconds: u32, rate: u32) -> (u32, u32, u32) {
        let (mut reads, mut pauses, mut resumes, mut waiting) = (0, 0, 0, 0);
        for milli in 0..seconds * 1000 {
            let now = start + Duration::from_millis(u64::from(milli));
            waiting += rate / 1000 + u32::from(milli % 1000 < rate % 1000);
            let step = shed.step(now);
            if step == Step::Wait {
                continue;
            }
            resumes += u32::from(step == Step::Resume);
            // While it was shut nothing was kept.
            let taken = if step == Step::Resume { 0 } else { waiting };
            waiting = 0;
            reads += u32::from(taken > 0);
            pauses += u32::from(shed.took(taken as usize, now));
        }
        (reads, pauses, resumes)
    }

    #[test]
    fn a_quiet_machine_is_read_at_once() {
        let start = Instant::now();
        let mut shed = Shed::new(start);
        assert_eq!(run(&mut shed, start, 10, 300), (3000, 0, 0));
        assert!(shed.is_listening() && shed.due().is_none());
    }

    #[test]
    fn a_busy_machine_is_read_in_gulps() {
        let start = Instant::now();
        let mut shed = Shed::new(start);
        let (reads, pauses, _) = run(&mut shed, start, 10, 6000);
        assert!((2000..2700).contains(&reads), "{reads}");
        assert_eq!(pauses, 0);
    }

    #[test]
    fn a_storm_shuts_the_stream_and_its_end_opens_it() {
        let start = Instant::now();
        let mut shed = Shed::new(start);
        let (_, pauses, resumes) = run(&mut shed, start, 60, 50_000);
        assert!((9..=12).contains(&pauses) && resumes + 1 >= pauses, "{pauses} {resumes}");
        let later = start + Duration::from_secs(60);
        let (reads, pauses, resumes) = run(&mut shed, later, 60, 300);
        assert!(reads > 16_000 && pauses == 0 && resumes <= 1, "{reads} {pauses} {resumes}");
        assert!(!shed.is_shut());
    }

    #[test]
    fn after_a_pause_half_is_enough() {
        let start = Instant::now();
        let mut shed = Shed::new(start);
        run(&mut shed, start, 3, 50_000);
        assert!(shed.is_shut());
        // Would not have shut it, but does not leave it open either.
        let (_, pauses, _) = run(&mut shed, start + Duration::from_secs(3), 60, 8000);
        assert!(pauses > 5, "{pauses}");
        let (_, pauses, _) = run(&mut shed, start + Duration::from_secs(63), 60, 4000);
        assert_eq!(pauses, 0);
        let (_, pauses, _) = run(&mut shed, start + Duration::from_secs(123), 60, 8000);
        assert_eq!(pauses, 0, "a second below the lower bound forgets the storm");
    }
}
