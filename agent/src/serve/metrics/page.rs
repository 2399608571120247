//! Writing the Prometheus text form.

use std::fmt::{Display, Write};

use evenkeel_enforce::stats::{HISTOGRAM_BOUNDS_USEC, Histogram};
use evenkeel_model::shown;

/// What a family's numbers do.
#[derive(Debug, Clone, Copy)]
pub(super) enum FamilyKind {
    /// Only grow.
    Counter,
    /// Go up and down.
    Gauge,
    /// Buckets, sum and count.
    Histogram,
}

/// A page being written.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) text: String,
}

// Writing to a string cannot fail, which is why results of `write!` are passed over here.
impl Page {
    /// Begins a family.
    pub(super) fn family(&mut self, name: &str, kind: FamilyKind, help: &str) {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes one number.
    pub(super) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.text.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{label}=\"", if i == 0 { '{' } else { ',' });
            for c in shown::spelt(text).chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Writes a histogram in seconds.
    pub(super) fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.family(name, FamilyKind::Histogram, help);
        let bucket = format!("{name}_bucket");
        let mut count = 0;
        for (at, own) in histogram.buckets.iter().enumerate() {
            count += own.get();
            let bound = HISTOGRAM_BOUNDS_USEC.get(at).map_or("+Inf".to_owned(), |usec| seconds(*usec));
            self.sample(&bucket, &[("le", &bound)], count);
        }
        self.sample(&format!("{name}_sum"), &[], seconds(histogram.sum_usec.get()));
        self.sample(&format!("{name}_count"), &[], count);
    }
}

/// Microseconds as seconds, exactly.
pub(super) fn seconds(usec: u64) -> String {
    let (whole, part) = (usec / 1_000_000, usec % 1_000_000);
    let text = format!("{whole}.{part:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
