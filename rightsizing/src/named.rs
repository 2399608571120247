//! Rules by name, with parameters: `goal`, `vpa:percentile=0.99,half-life=72h`, `initial:percentile=0.9`.

use evenkeel_model::narrow::{f64_to_u32, f64_to_u64};
use std::fmt;

use crate::backtest::score::CPU_FILL;
use crate::rule::Rule;
use crate::{goal, initial, vpa, window};

/// A rule that people name.
#[derive(Debug, Clone, PartialEq)]
pub enum NamedRule {
    /// The objectives themselves, the default.
    Goal(goal::GoalParams),
    /// Today's Vertical Pod Autoscaler.
    Vpa(vpa::VpaParams),
    /// Initial Resources.
    Initial(initial::InitialParams),
    /// A percentile or the maximum of a window.
    Window(window::WindowParams),
}

/// Why text names no rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRule(String);

impl fmt::Display for BadRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadRule {}

/// Names of all rules.
pub const NAMES: [&str; 6] = ["goal", "vpa", "vpa-p99", "initial", "krr", "p99-7d"];

impl Default for NamedRule {
    fn default() -> Self {
        Self::Goal(goal::GoalParams::default())
    }
}

impl NamedRule {
    /// The rule as such.
    pub fn rule(&self) -> &dyn Rule {
        match self {
            Self::Goal(params) => params,
            Self::Vpa(params) => params,
            Self::Initial(params) => params,
            Self::Window(params) => params,
        }
    }

    /// CPU use above this part of a request counts as over where the rule's requests are judged.
    pub const fn fill(&self) -> f64 {
        match self {
            Self::Goal(params) => params.cpu_fill,
            _ => CPU_FILL,
        }
    }

    /// Reads `NAME` or `NAME:KEY=VALUE,...`. Times have a unit (`90m`, `72h`, `8d`), memory is in bytes, CPU in cores.
    ///
    /// # Errors
    /// [`BadRule`], when the name, a key or a value is not known; it lists what is.
    pub fn parse(text: &str) -> Result<Self, BadRule> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let mut rule = match name {
            "goal" => Self::default(),
            "vpa" => Self::Vpa(vpa::VpaParams::default()),
            "vpa-p99" => Self::Vpa(vpa::VpaParams { target: 0.99, ..vpa::VpaParams::default() }),
            "initial" => Self::Initial(initial::InitialParams::default()),
            "krr" => Self::Window(window::WindowParams::KRR),
            "p99-7d" => Self::Window(window::WindowParams::P99_7D),
            _ => return Err(BadRule(format!("no rule is named {name:?}; there are {}", NAMES.join(", ")))),
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            let (key, value) =
                option.split_once('=').ok_or_else(|| BadRule(format!("{option:?} has no =")))?;
            rule.set(key.trim(), value.trim())?;
        }
        Ok(rule)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), BadRule> {
        match self {
            Self::Goal(params) => set_goal(params, key, value),
            Self::Vpa(params) => set_vpa(params, key, value),
            Self::Initial(params) => set_initial(params, key, value),
            Self::Window(params) => set_window(params, key, value),
        }
    }
}

fn set_goal(params: &mut goal::GoalParams, key: &str, value: &str) -> Result<(), BadRule> {
    match key {
        "fill" => params.cpu_fill = part(value)?,
        "over" => params.cpu_over = part(value)?,
        "memory-over" => params.memory_over = part(value)?,
        "change" => params.change = change(value)?,
        "price" => params.cpu_price = number(value)?,
        "half-life" => params.cpu_half_life_days = duration_ms(value)? as f64 / 86_400_000.0,
        "memory-margin" => params.memory_margin = number(value)?,
        "days" => params.cpu_days = whole(value)?,
        "memory-days" => params.memory_days = whole(value)?,
        "settle" => params.settle = number(value)?,
        "memory-keep" => params.memory_keep = number(value)?,
        "min-cpu" => params.min_cpu_micro = micros(value)?,
        "min-memory" => params.min_memory_bytes = whole(value)?,
        _ => {
            let keys = "change, fill, over, price, half-life, days, memory-over, memory-margin, memory-days, memory-keep, \
                        settle, min-cpu, min-memory";
            return Err(unknown("goal", key, keys));
        }
    }
    Ok(())
}

fn set_vpa(params: &mut vpa::VpaParams, key: &str, value: &str) -> Result<(), BadRule> {
    match key {
        "percentile" => params.target = part(value)?,
        "lower-percentile" => params.lower = part(value)?,
        "upper-percentile" => params.upper = part(value)?,
        "margin" => params.margin = number(value)?,
        "half-life" => {
            params.cpu_half_life_ms = duration_ms(value)?;
            params.memory_half_life_ms = params.cpu_half_life_ms;
        }
        "min-cpu" => params.min_cpu_micro = micros(value)?,
        "min-memory" => params.min_memory_bytes = whole(value)?,
        _ => {
            let keys =
                "percentile, lower-percentile, upper-percentile, margin, half-life, min-cpu, min-memory";
            return Err(unknown("vpa", key, keys));
        }
    }
    Ok(())
}

fn set_initial(params: &mut initial::InitialParams, key: &str, value: &str) -> Result<(), BadRule> {
    match key {
        "percentile" => params.percentile_per_mille = f64_to_u32((part(value)? * 1_000.0).round()),
        _ => return Err(unknown("initial", key, "percentile")),
    }
    Ok(())
}

fn set_window(params: &mut window::WindowParams, key: &str, value: &str) -> Result<(), BadRule> {
    match key {
        "percentile" => params.cpu_percentile = part(value)?,
        "margin" => params.cpu_margin = number(value)?,
        "memory-margin" => params.memory_margin = number(value)?,
        "days" => params.days = whole(value)?,
        "min-cpu" => params.min_cpu_micro = micros(value)?,
        "min-memory" => params.min_memory_bytes = whole(value)?,
        _ => {
            let keys = "percentile, margin, memory-margin, days, min-cpu, min-memory";
            return Err(unknown("of a window", key, keys));
        }
    }
    Ok(())
}

fn change(text: &str) -> Result<goal::ChangeFrequency, BadRule> {
    match text {
        "day" => Ok(goal::ChangeFrequency::Day),
        "raise" => Ok(goal::ChangeFrequency::Raise),
        "hourly" => Ok(goal::ChangeFrequency::Hourly),
        _ => Err(BadRule(format!("{text:?} is no time to change requests; write day, raise or hourly"))),
    }
}

fn unknown(rule: &str, key: &str, keys: &str) -> BadRule {
    BadRule(format!("rule {rule} has no parameter {key:?}; it has {keys}"))
}

fn number(text: &str) -> Result<f64, BadRule> {
    let number: Option<f64> = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| BadRule(format!("{text:?} is no number of 0 or more")))
}

fn part(text: &str) -> Result<f64, BadRule> {
    let part = number(text)?;
    if part > 0.0 && part <= 1.0 {
        Ok(part)
    } else {
        Err(BadRule(format!("{text} is not above 0 and up to 1")))
    }
}

fn whole(text: &str) -> Result<u64, BadRule> {
    text.parse().map_err(|_| BadRule(format!("{text:?} is no whole number of 0 or more")))
}

fn micros(text: &str) -> Result<u64, BadRule> {
    Ok(f64_to_u64((number(text)? * 1e6).round()))
}

/// A time such as `90s`, `30m`, `72h`, `8d`, above zero, in milliseconds.
///
/// # Errors
/// [`BadRule`] when it is none.
pub fn duration_ms(text: &str) -> Result<u64, BadRule> {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
    let read = units.iter().find_map(|(unit, ms)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*ms).filter(|ms| *ms > 0)
    });
    read.ok_or_else(|| {
        BadRule(format!("{text:?} is no time; write a whole number above 0 with a unit, such as 7d or 24h"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_parameters() {
        assert_eq!(NamedRule::parse("goal"), Ok(NamedRule::default()));
        let half_life = 72 * 3_600_000;
        let vpa = vpa::VpaParams {
            target: 0.99,
            cpu_half_life_ms: half_life,
            memory_half_life_ms: half_life,
            ..vpa::VpaParams::default()
        };
        assert_eq!(NamedRule::parse("vpa:percentile=0.99,half-life=72h"), Ok(NamedRule::Vpa(vpa)));
        assert_eq!(NamedRule::parse("vpa-p99:half-life=72h"), Ok(NamedRule::Vpa(vpa)));
    }

    #[test]
    fn what_is_not_known_is_told_with_what_is() {
        for (text, part) in [
            ("p99", "there are goal, vpa"),
            ("vpa:percentil=0.9", "it has percentile"),
            ("vpa:percentile=99", "99 is not above 0 and up to 1"),
            ("vpa:half-life=72", "such as 7d or 24h"),
            ("vpa:half-life=0h", "above 0"),
            ("goal:price=-1", "0 or more"),
            ("goal:price", "has no ="),
            ("goal:change=weekly", "write day, raise or hourly"),
            ("initial:tiers=1", "it has percentile"),
        ] {
            let error = NamedRule::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
