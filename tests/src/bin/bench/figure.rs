//! One measured number with everything needed to judge it.

use std::fmt;

use serde::Serialize;

use crate::run::Meanwhile;

/// What is promised of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// Not more than this.
    AtMost(f64),
    /// Not less than this.
    AtLeast(f64),
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Figure {
    /// Its name, which people and scripts rely on.
    pub(crate) name: String,
    value: Option<f64>,
    unit: &'static str,
    target: Option<f64>,
    met: Option<bool>,
    baseline: Option<f64>,
    ratio: Option<f64>,
    what: String,
    runs: usize,
    spread: Option<[f64; 2]>,
    load_average: [f64; 3],
    steal_percent: f64,
}

impl Figure {
    /// A figure measured once.
    pub(crate) fn new(name: &str, value: f64, unit: &'static str, target: Target) -> Figure {
        let (target, met) = match target {
            Target::AtMost(most) => (most, value <= most),
            Target::AtLeast(least) => (least, value >= least),
        };
        Figure {
            name: name.to_string(),
            value: Some(value),
            unit,
            target: Some(target),
            met: Some(met),
            baseline: None,
            ratio: None,
            what: String::new(),
            runs: 1,
            spread: None,
            load_average: [0.0; 3],
            steal_percent: 0.0,
        }
    }

    /// A figure this machine did not give, and why.
    pub(crate) fn absent(name: &str, why: &str) -> Figure {
        let none = Figure::new(name, 0.0, "", Target::AtMost(0.0));
        Figure { value: None, target: None, met: None, runs: 0, what: why.to_string(), ..none }
    }

    /// Says what was measured and how.
    #[must_use]
    pub(crate) fn what(mut self, what: impl Into<String>) -> Figure {
        self.what = what.into();
        self
    }

    /// Sets beside it what the same costs without us.
    #[must_use]
    pub(crate) fn baseline(mut self, baseline: f64) -> Figure {
        self.baseline = Some(baseline);
        self.ratio = self.value.filter(|_| baseline > 0.0).map(|value| value / baseline);
        self
    }

    /// Sets beside a figure that is a ratio already what it is the ratio to.
    #[must_use]
    pub(crate) fn ratio_to(mut self, baseline: f64) -> Figure {
        self.baseline = Some(baseline);
        self.ratio = self.value;
        self
    }

    /// Says how many times it was measured, and the least and the greatest of these.
    #[must_use]
    pub(crate) fn spread(mut self, all: &[f64]) -> Figure {
        self.runs = all.len();
        let least = all.iter().copied().reduce(f64::min);
        self.spread = least.zip(all.iter().copied().reduce(f64::max)).map(|(least, most)| [least, most]);
        self
    }

    /// Whether the promise was kept; none where there is no figure.
    pub(crate) fn met(&self) -> Option<bool> {
        self.met
    }

    /// Adds what else the machine did.
    pub(crate) fn machine(&mut self, meanwhile: &Meanwhile) {
        self.load_average = meanwhile.load_average;
        self.steal_percent = rounded(meanwhile.steal_percent);
        for value in [&mut self.value, &mut self.baseline, &mut self.ratio].into_iter().flatten() {
            *value = rounded(*value);
        }
        if let Some([least, most]) = &mut self.spread {
            (*least, *most) = (rounded(*least), rounded(*most));
        }
    }

    fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "-",
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} (target {}, met {})",
            self.name,
            plain(self.value),
            self.unit,
            plain(self.target),
            self.verdict()
        )
    }
}

/// A table for people, with what each figure means below it.
pub(crate) fn table(figures: &[Figure]) -> String {
    let mut text = format!(
        "{:<34} {:>12} {:<15} {:>10} {:>4} {:>10} {:>7} {:>5}  {}\n",
        "NAME", "VALUE", "UNIT", "TARGET", "MET", "BASELINE", "RATIO", "RUNS", "SPREAD"
    );
    for figure in figures {
        let spread = figure.spread.map_or_else(
            || "-".to_string(),
            |[least, most]| format!("{} .. {}", plain(Some(least)), plain(Some(most))),
        );
        text += &format!(
            "{:<34} {:>12} {:<15} {:>10} {:>4} {:>10} {:>7} {:>5}  {spread}\n",
            figure.name,
            plain(figure.value),
            figure.unit,
            plain(figure.target),
            figure.verdict(),
            plain(figure.baseline),
            plain(figure.ratio),
            figure.runs,
        );
    }
    text.push('\n');
    for figure in figures {
        let [one, ..] = figure.load_average;
        text += &format!(
            "{}: {} (load average {one:.1}, steal {:.1} %)\n",
            figure.name, figure.what, figure.steal_percent
        );
    }
    text
}

/// Four significant digits are more than any of these measurements is worth.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 3.0 - value.abs().log10().floor();
    let scale = 10_f64.powf(digits.max(0.0));
    (value * scale).round() / scale
}

fn plain(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_string(), |value| rounded(value).to_string())
}
