//! Owns how pods that run are changed where a policy's mode is `auto` and somebody changes them: what of them may be disturbed, when, and by
//! how much a request has to differ.
//!
//! Not owned: who changes them (`evenkeel-updater`).

use serde::{Deserialize, Serialize};

use super::PolicyError;
use super::fields::At;

/// Whether a pod may be evicted, or a container of it restarted, where it cannot be resized in place without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evict {
    /// Whenever it cannot be resized in place.
    Always,
    /// Only where it was OOM-killed, and cannot be resized in place.
    Oom,
    /// Never.
    #[default]
    Never,
}

impl Evict {
    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Oom => "oom",
            Self::Never => "never",
        }
    }
}

/// How many replicas of a workload may be away at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MaxUnavailable {
    /// So many.
    Count(u32),
    /// This part of them, percent; rounded down, one at least.
    Percent(u32),
}

impl MaxUnavailable {
    /// How many of so many replicas.
    pub fn of(self, replicas: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let part = u64::from(replicas) * u64::from(percent) / 100;
                u32::try_from(part).unwrap_or(u32::MAX).max(1)
            }
        }
    }
}

/// Days of the week, Monday first.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAY_SECONDS: u64 = 86_400;
const MINUTES_A_DAY: u32 = 24 * 60;
/// Most windows of a policy: one an hour of a week.
const MAX_WINDOWS: usize = 168;
/// Longest time that may be given, seconds: a year.
const MAX_SECONDS: u64 = 365 * DAY_SECONDS;

/// A time of the week in which pods may be changed, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpdateWindow {
    /// On which days it begins, Monday first.
    pub days: [bool; 7],
    /// Minute of the day at which it begins.
    pub from: u32,
    /// Minute of the day at which it ends; where that is not after `from`, of the next day.
    pub to: u32,
}

impl UpdateWindow {
    /// Whether it is open, seconds since 1970.
    pub fn is_open(&self, now_seconds: u64) -> bool {
        let minute = u32::try_from(now_seconds % DAY_SECONDS / 60).unwrap_or_default();
        // 1970-01-01 was a Thursday.
        let today = usize::try_from((now_seconds / DAY_SECONDS + 3) % 7).unwrap_or_default();
        let begins = |day: usize| self.days.get(day % 7).copied().unwrap_or(false);
        if self.from < self.to {
            return begins(today) && (self.from..self.to).contains(&minute);
        }
        begins(today) && minute >= self.from || begins(today + 6) && minute < self.to
    }
}

/// How pods that run are changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Updates {
    /// What may be evicted.
    pub evict: Evict,
    /// Which offers of agents are carried out: rulings that a pod should go. Those after OOM kills, or those for want of memory or CPU on its
    /// node, too.
    pub evict_offers: Evict,
    /// A workload with fewer replicas is not disturbed: its pods are resized in place without a restart, or not at all.
    pub min_replicas: u32,
    /// How many replicas may be away at once, those included that are away for other reasons.
    pub max_unavailable: MaxUnavailable,
    /// A request is raised where the recommended one is above it by more than this part of it.
    pub tolerance_up: f64,
    /// A request is lowered where the recommended one is below it by more than this part of it.
    pub tolerance_down: f64,
    /// A pod younger than that is left alone unless it was OOM-killed, seconds.
    pub min_age_seconds: u64,
    /// Pods are changed only in these; without any, at all times.
    pub windows: Vec<UpdateWindow>,
    /// How long the first replica with another size is watched before others get it, seconds; 0 = not at all.
    pub canary_seconds: u64,
}

impl Default for Updates {
    fn default() -> Self {
        Self {
            evict: Evict::default(),
            evict_offers: Evict::default(),
            // As the Vertical Pod Autoscaler's updater has it (`--min-replicas`).
            min_replicas: 2,
            // Half of what that one allows (`--eviction-tolerance` 0.5): a quarter, as a Deployment's roll-out does.
            max_unavailable: MaxUnavailable::Percent(25),
            // What that one takes for a change worth it.
            tolerance_up: 0.1,
            // To lower saves, and to raise again disturbs.
            tolerance_down: 0.2,
            min_age_seconds: 600,
            windows: Vec::new(),
            canary_seconds: 600,
        }
    }
}

impl Updates {
    /// Whether pods may be changed now, seconds since 1970.
    pub fn is_open(&self, now_seconds: u64) -> bool {
        self.windows.is_empty() || self.windows.iter().any(|window| window.is_open(now_seconds))
    }
}

/// Fields of `updatePolicy` that are read here.
pub(super) const FIELDS: [&str; 8] = [
    "evict",
    "evictOffers",
    "minReplicas",
    "maxUnavailable",
    "tolerance",
    "minAgeSeconds",
    "windows",
    "canarySeconds",
];

/// Reads them from `updatePolicy`.
pub(super) fn read(at: &At<'_>) -> Result<Updates, PolicyError> {
    let usual = Updates::default();
    let seconds = |name, usual| at.get(name)?.map_or(Ok(usual), |at| whole(&at, 0, MAX_SECONDS));
    let tolerance = at.get("tolerance")?;
    tolerance.as_ref().map_or(Ok(()), |at| at.only(&["up", "down"]))?;
    let of = |name, usual| match &tolerance {
        Some(at) => at.get(name)?.map_or(Ok(usual), |at| at.part()),
        None => Ok(usual),
    };
    let min_replicas = at.get("minReplicas")?.map(|at| whole(&at, 1, u64::from(u32::MAX))).transpose()?;
    let evict = |name| {
        at.get(name)?.map(|at| at.word("always, oom or never")).transpose().map(Option::unwrap_or_default)
    };
    Ok(Updates {
        evict: evict("evict")?,
        evict_offers: evict("evictOffers")?,
        min_replicas: min_replicas.and_then(|n| u32::try_from(n).ok()).unwrap_or(usual.min_replicas),
        max_unavailable: at
            .get("maxUnavailable")?
            .map_or(Ok(usual.max_unavailable), |at| unavailable(&at))?,
        tolerance_up: of("up", usual.tolerance_up)?,
        tolerance_down: of("down", usual.tolerance_down)?,
        min_age_seconds: seconds("minAgeSeconds", usual.min_age_seconds)?,
        windows: at.get("windows")?.map(|at| windows(&at)).transpose()?.unwrap_or_default(),
        canary_seconds: seconds("canarySeconds", usual.canary_seconds)?,
    })
}

fn whole(at: &At<'_>, least: u64, most: u64) -> Result<u64, PolicyError> {
    at.value.as_u64().filter(|value| (least..=most).contains(value)).ok_or_else(|| {
        at.error(
            format!("{} is out of bounds", at.value),
            format!("write a whole number of {least} to {most}"),
        )
    })
}

fn unavailable(at: &At<'_>) -> Result<MaxUnavailable, PolicyError> {
    let wrong = || {
        at.error(
            format!("{} is neither a number nor a part", at.value),
            "write a whole number of 1 or more, or a part such as \"25%\"",
        )
    };
    match at.value.as_str() {
        Some(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse().ok());
            percent
                .filter(|percent| (1..=100).contains(percent))
                .map(MaxUnavailable::Percent)
                .ok_or_else(wrong)
        }
        None => {
            let count = at.value.as_u64().and_then(|count| u32::try_from(count).ok());
            count.filter(|count| *count >= 1).map(MaxUnavailable::Count).ok_or_else(wrong)
        }
    }
}

fn windows(at: &At<'_>) -> Result<Vec<UpdateWindow>, PolicyError> {
    let items = at.items()?;
    if items.len() > MAX_WINDOWS {
        return Err(at.error(format!("there are over {MAX_WINDOWS} windows"), "give fewer"));
    }
    items.iter().map(window).collect()
}

fn window(at: &At<'_>) -> Result<UpdateWindow, PolicyError> {
    at.only(&["days", "from", "to"])?;
    let mut days = [false; 7];
    match at.get("days")? {
        None => days = [true; 7],
        Some(list) => {
            for item in list.items()? {
                let place = DAYS.iter().position(|day| item.value == day);
                let wrong = || {
                    item.error(
                        format!("{} is no day", item.value),
                        format!("write one of {}", DAYS.join(", ")),
                    )
                };
                if let Some(day) = days.get_mut(place.ok_or_else(wrong)?) {
                    *day = true;
                }
            }
        }
    }
    let of = |name| minute(&at.required(name, "write a time of the day such as \"22:00\", UTC")?);
    Ok(UpdateWindow { days, from: of("from")?, to: of("to")? })
}

fn minute(at: &At<'_>) -> Result<u32, PolicyError> {
    let parsed = || {
        let (hours, minutes) = at.value.as_str()?.split_once(':')?;
        let digits = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        let (hours, minutes) = (digits(hours).then_some(hours)?, digits(minutes).then_some(minutes)?);
        let (hours, minutes): (u32, u32) = (hours.parse().ok()?, minutes.parse().ok()?);
        Some(hours * 60 + minutes).filter(|all| minutes < 60 && *all <= MINUTES_A_DAY)
    };
    parsed().ok_or_else(|| {
        at.error(
            format!("{} is no time of the day", at.value),
            "write hours and minutes such as \"22:00\", UTC",
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(value: &Value) -> Result<Updates, String> {
        read(&At::root(value)).map_err(|error| error.to_string())
    }

    #[test]
    fn fields_are_read_and_wrong_ones_named() {
        assert_eq!(of(&json!({})).unwrap(), Updates::default());
        let whole = of(&json!({
            "evict": "oom", "evictOffers": "always", "minReplicas": 3, "maxUnavailable": 2, "tolerance": { "up": 0.05, "down": 0.5 },
            "minAgeSeconds": 60, "windows": [{ "days": ["Sat", "Sun"], "from": "22:00", "to": "06:00" }], "canarySeconds": 0,
        }));
        let days = [false, false, false, false, false, true, true];
        let want = Updates {
            evict: Evict::Oom,
            evict_offers: Evict::Always,
            min_replicas: 3,
            max_unavailable: MaxUnavailable::Count(2),
            tolerance_up: 0.05,
            tolerance_down: 0.5,
            min_age_seconds: 60,
            windows: vec![UpdateWindow { days, from: 1320, to: 360 }],
            canary_seconds: 0,
        };
        assert_eq!(whole.unwrap(), want);
        for (wrong, place) in [
            (json!({ "evict": "sometimes" }), "evict"),
            (json!({ "evictOffers": true }), "evictOffers: on (or true) is none of its words"),
            (json!({ "minReplicas": 0 }), "minReplicas"),
            (json!({ "maxUnavailable": 0 }), "maxUnavailable"),
            (json!({ "maxUnavailable": "0%" }), "maxUnavailable"),
            (json!({ "maxUnavailable": "some" }), "maxUnavailable"),
            (json!({ "tolerance": { "up": 0 } }), "tolerance.up"),
            (json!({ "tolerance": { "side": 1 } }), "tolerance.side"),
            (json!({ "minAgeSeconds": -1 }), "minAgeSeconds"),
            (json!({ "windows": [{ "from": "22:00" }] }), "windows[0].to"),
            (json!({ "windows": [{ "from": "24:01", "to": "06:00" }] }), "windows[0].from"),
            (
                json!({ "windows": [{ "days": ["Caturday"], "from": "22:00", "to": "06:00" }] }),
                "windows[0].days[0]",
            ),
            (json!({ "canarySeconds": "10m" }), "canarySeconds"),
        ] {
            assert!(of(&wrong).unwrap_err().starts_with(place), "{wrong}");
        }
    }

    #[test]
    fn a_window_is_open_on_its_days_and_over_midnight() {
        // 2026-11-21 was a Saturday.
        let saturday = 20_778 * DAY_SECONDS;
        let hour = |day: u64, hour: u64| saturday + day * DAY_SECONDS + hour * 3600;
        let night = UpdateWindow {
            days: [false, false, false, false, false, true, false],
            from: 22 * 60,
            to: 6 * 60,
        };
        for (at, want) in [
            (hour(0, 21), false),
            (hour(0, 22), true),
            (hour(1, 5), true),
            (hour(1, 6), false),
            (hour(1, 23), false),
            (hour(0, 5), false),
        ] {
            assert_eq!(night.is_open(at), want, "{at}");
        }
        let noon = UpdateWindow { days: [true; 7], from: 12 * 60, to: 13 * 60 };
        assert!(noon.is_open(hour(3, 12)) && !noon.is_open(hour(3, 13)));
        let whole = UpdateWindow { days: [true; 7], from: 0, to: 0 };
        assert!((0..24).all(|at| whole.is_open(hour(2, at))));
        let updates = Updates { windows: vec![noon], ..Updates::default() };
        assert!(
            Updates::default().is_open(0) && !updates.is_open(hour(0, 1)) && updates.is_open(hour(0, 12))
        );
    }

    #[test]
    fn a_part_of_replicas_is_one_at_least() {
        for (max, replicas, want) in [
            (MaxUnavailable::Percent(25), 1, 1),
            (MaxUnavailable::Percent(25), 7, 1),
            (MaxUnavailable::Percent(25), 8, 2),
            (MaxUnavailable::Count(3), 2, 3),
        ] {
            assert_eq!(max.of(replicas), want, "{max:?} of {replicas}");
        }
    }
}
