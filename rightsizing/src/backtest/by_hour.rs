//! What rules request at each hour of the day, and what one frees beside another: slack given back at night is worth
//! something only where something else runs then.

use super::replay::SeriesResult;
use crate::units::HOUR_MS;

/// Mean requests at each hour of the day (UTC), summed over series, unit of the resource; a request is in force until the
/// next one, the last one for an hour.
pub fn requested(outcomes: &[SeriesResult]) -> [f64; 24] {
    let mut all = [0.0; 24];
    for outcome in outcomes {
        let (mut sums, mut counts) = ([0.0; 24], [0u32; 24]);
        for (at, request) in outcome.requests.iter().enumerate() {
            let first = request.time_ms / HOUR_MS;
            let next = outcome.requests.get(at + 1).map_or(first + 1, |next| next.time_ms / HOUR_MS);
            // A day and more is every hour of the day.
            for hour in first..next.min(first + 24) {
                sums[(hour % 24) as usize] += request.request as f64;
                counts[(hour % 24) as usize] += 1;
            }
        }
        for (all, (sum, count)) in all.iter_mut().zip(sums.into_iter().zip(counts)) {
            *all += sum / f64::from(count.max(1));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::replay::TimedRequest;
    use super::super::score::Score;
    use super::*;

    fn outcome(requests: &[(u64, u64)]) -> SeriesResult {
        let request = |(hour, request): &(u64, u64)| TimedRequest {
            time_ms: hour * HOUR_MS,
            request: *request,
            lower: None,
            upper: None,
            risk: None,
        };
        SeriesResult { requests: requests.iter().map(request).collect(), score: Score::default() }
    }

    #[test]
    fn requests_count_for_the_hours_they_are_in_force() {
        // By the hour: 10 at even hours, 20 at odd ones, for two days. By the day: 100, then 300.
        let hourly: Vec<(u64, u64)> = (0..48).map(|hour| (hour, 10 + 10 * (hour % 2))).collect();
        let both = requested(&[outcome(&hourly), outcome(&[(5, 100), (29, 300), (53, 0)])]);
        assert_eq!((both[0], both[1], both[5]), (210.0, 220.0, 20.0 + 400.0 / 3.0));
        assert_eq!(requested(&[]), [0.0; 24]);
    }
}
