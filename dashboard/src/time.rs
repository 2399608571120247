//! Moments and spans as people read them: UTC, without a clock of its own.

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Year, month (1 to 12) and day of days since 1970, in the Gregorian calendar.
///
/// Counted in eras of 400 years that begin with March, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

fn clock(ms: u64) -> (u64, u64, u64) {
    let seconds = ms % DAY_MS / 1000;
    (seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// `2026-11-24 09:05:07`.
#[must_use]
pub fn moment(ms: u64) -> String {
    let ((year, month, day), (hour, minute, second)) = (date(ms / DAY_MS), clock(ms));
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The machine-readable form, `2026-11-24T09:05:07Z`.
#[must_use]
pub fn rfc3339(ms: u64) -> String {
    let text = moment(ms);
    format!("{}Z", text.replace(' ', "T"))
}

/// The label of a moment on an axis that covers so many milliseconds.
#[must_use]
pub fn tick(ms: u64, span_ms: u64) -> String {
    let ((_, month, day), (hour, minute, second)) = (date(ms / DAY_MS), clock(ms));
    let month = usize::try_from(month).ok().and_then(|month| MONTHS.get(month - 1)).unwrap_or(&"");
    match span_ms {
        0..=600_000 => format!("{hour:02}:{minute:02}:{second:02}"),
        600_001..=129_600_000 => format!("{hour:02}:{minute:02}"),
        129_600_001..=864_000_000 => format!("{day} {month} {hour:02}h"),
        _ => format!("{day} {month}"),
    }
}

/// How long ago a moment is: `12 s ago`, `3 min ago`.
#[must_use]
pub fn ago(ms: u64, now_ms: u64) -> String {
    match now_ms.saturating_sub(ms) / 1000 {
        0..=1 => "now".to_owned(),
        seconds => format!("{} ago", span(seconds)),
    }
}

/// A length of time in its largest unit, rounded down.
#[must_use]
pub fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_399, "2000-02-28 23:59:59"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_709_164_800, "2024-02-29 00:00:00"),
            (1_795_564_800, "2026-11-25 00:00:00"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(moment(seconds * 1000), want);
        }
        assert_eq!(rfc3339(1_795_564_800_000), "2026-11-25T00:00:00Z");
    }

    #[test]
    fn spans_are_told_in_one_unit() {
        for (seconds, want) in
            [(5, "5 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 d"), (700_000, "8 d")]
        {
            assert_eq!(span(seconds), want);
        }
        assert_eq!(ago(10_000, 9_000), "now", "a clock behind is no age");
        assert_eq!(ago(10_000, 310_000), "5 min ago");
    }

    #[test]
    fn an_axis_is_labelled_as_finely_as_it_is_long() {
        let at = 1_795_564_800_000;
        let all = [60_000, 3_600_000, 604_800_000, 2_592_000_000].map(|span| tick(at, span));
        assert_eq!(all, ["00:00:00", "00:00", "25 Nov 00h", "25 Nov"]);
    }
}
