//! How numbers moved lately: part of a window that was stalled, and the rate at which memory goes.

use std::collections::VecDeque;

/// What is looked back at, microseconds: long enough to be no blip, short enough to see a hog.
const WINDOW_USEC: u64 = 1_000_000;
/// Below this a rate means nothing.
const LEAST_SPAN_USEC: u64 = 150_000;
/// Points kept; more frequent ones replace the newest.
const POINTS: usize = 32;

/// One look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) time_usec: u64,
    pub(super) some_usec: Option<u64>,
    pub(super) full_usec: Option<u64>,
    /// Stalled time of cgroups at limits of their own, since it is told apart.
    pub(super) own_limit_usec: Option<u64>,
    /// Available memory and what capped containers hold of their cap: what others can still take.
    pub(super) free: u64,
}

/// Parts of the window, hundredths of a percent; `None` where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stalled {
    /// Some waited.
    pub(super) some: Option<u32>,
    /// All waited.
    pub(super) full: Option<u32>,
    /// Some waited at limits of their own, where that is told apart.
    pub(super) own_limit: Option<u32>,
}

/// The last second.
#[derive(Debug, Clone, Default)]
pub(super) struct Trend {
    points: VecDeque<Point>,
}

impl Trend {
    /// Takes in one look.
    pub(super) fn push(&mut self, point: Point) {
        // A clock that goes back begins anew.
        if self.points.back().is_some_and(|last| last.time_usec > point.time_usec) {
            self.points.clear();
        }
        if self.points.len() >= POINTS {
            self.points.pop_back();
        }
        self.points.push_back(point);
        // The oldest one kept is the newest that is a whole window old.
        while self.points.get(1).is_some_and(|p| point.time_usec.saturating_sub(p.time_usec) >= WINDOW_USEC) {
            self.points.pop_front();
        }
    }

    /// Forgets the past: what is counted as free means something else from now on.
    pub(super) fn restart(&mut self) {
        let last = self.points.back().copied();
        self.points.clear();
        self.points.extend(last);
    }

    /// Oldest and newest look of a kind, when they are far enough apart.
    fn span(&self, is: impl Fn(&Point) -> bool) -> Option<(Point, Point, u64)> {
        let first = self.points.iter().find(|point| is(point))?;
        let last = self.points.iter().rev().find(|point| is(point))?;
        let span = last.time_usec - first.time_usec;
        (span >= LEAST_SPAN_USEC).then_some((*first, *last, span))
    }

    /// What was stalled in the window. With `apart` time at limits of their own is left out, and only looks at which
    /// it was known count.
    pub(super) fn stalled(&self, apart: bool) -> Stalled {
        let known = |point: &Point| !apart || point.own_limit_usec.is_some();
        let Some((first, last, span)) = self.span(known) else { return Stalled::default() };
        let grown = |from: Option<u64>, to: Option<u64>| Some(to?.saturating_sub(from?));
        let own = grown(first.own_limit_usec, last.own_limit_usec).filter(|_| apart);
        // Some wait whenever one does: what is left when those at their own limits are taken away is the least that
        // the others waited. All wait only while no other runs, so that the same holds of that.
        let part = |from, to| share(grown(from, to)?.saturating_sub(own.unwrap_or(0)), span);
        Stalled {
            some: part(first.some_usec, last.some_usec),
            full: part(first.full_usec, last.full_usec),
            own_limit: own.and_then(|own| share(own, span)),
        }
    }

    /// Time until nothing is free at the present rate, microseconds; `None` when it does not shrink.
    pub(super) fn exhaustion_usec(&self, available: u64) -> Option<u64> {
        let (first, last, span) = self.span(|_| true)?;
        let lost = first.free.checked_sub(last.free).filter(|lost| *lost > 0)?;
        let left = u128::from(available) * u128::from(span) / u128::from(lost);
        Some(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// `stalled` of `span` in hundredths of a percent, at most the whole.
pub(super) fn share(stalled: u64, span: u64) -> Option<u32> {
    (span > 0).then(|| {
        let part = u128::from(stalled) * 10_000 / u128::from(span);
        u32::try_from(part.min(10_000)).unwrap_or(10_000)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(ms: u64, some: u64, free: u64) -> Point {
        Point {
            time_usec: ms * 1000,
            some_usec: Some(some * 1000),
            full_usec: None,
            own_limit_usec: None,
            free,
        }
    }

    #[test]
    fn a_rate_needs_some_time_and_forgets_what_is_old() {
        let mut trend = Trend::default();
        trend.push(point(0, 0, 1000));
        trend.push(point(100, 50, 900));
        assert_eq!((trend.stalled(false), trend.exhaustion_usec(900)), (Stalled::default(), None));
        trend.push(point(500, 50, 500));
        assert_eq!(trend.stalled(false), Stalled { some: Some(1000), ..Stalled::default() });
        assert_eq!(trend.exhaustion_usec(500), Some(500_000));
        for ms in 1..40 {
            trend.push(point(1000 + ms * 100, 50, 500));
        }
        assert_eq!((trend.stalled(false).some, trend.exhaustion_usec(500)), (Some(0), None));
        assert!(trend.points.len() <= POINTS);
        trend.push(point(1, 0, 0));
        assert_eq!(trend.points.len(), 1);
    }

    #[test]
    fn stalls_at_limits_of_their_own_are_left_out() {
        let mut trend = Trend::default();
        for ms in (0..=1000).step_by(250) {
            let own = (ms >= 250).then_some(ms * 700);
            trend.push(Point { full_usec: Some(ms * 100), own_limit_usec: own, ..point(ms, ms * 9 / 10, 0) });
        }
        let all = Stalled { some: Some(9000), full: Some(1000), own_limit: None };
        assert_eq!(trend.stalled(false), all);
        let others = Stalled { some: Some(2000), full: Some(0), own_limit: Some(7000) };
        assert_eq!(trend.stalled(true), others, "from the second look on, when it was first known");
    }
}
