//! A page of metrics in the text form of OpenMetrics 1.0, written by Prometheus' own library.
//!
//! Owned here: how families, labels and numbers of all programs become that text. Not owned: names, meanings and numbers, which
//! are each program's. Programs keep counters of their own, which cost an atomic addition; what a scrape asks for is
//! handed over when it asks.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod histogram;
mod label;
mod number;

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

pub use histogram::Histogram;
pub use label::Labels;
pub use number::Number;

/// Content type of a page.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What the numbers of a family do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// Only grow. The names of samples end in `_total`, which the family's name does not.
    Counter,
    /// Go up and down.
    Gauge,
}

/// Observations in buckets.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Buckets {
    /// Upper bounds with what was seen up to each and above the one before; the last is infinite.
    pub counts: Vec<(f64, u64)>,
    /// Sum of all that was observed.
    pub sum: f64,
}

/// A page that is written family by family.
#[derive(Debug, Default)]
pub struct Page {
    prefix: &'static str,
    text: String,
}

impl Page {
    /// An empty page, whose families' names begin with a program's name, such as `evenkeel_agent`.
    #[must_use]
    pub const fn new(prefix: &'static str) -> Self {
        Self { prefix, text: String::new() }
    }

    /// Writes a number that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Into<Number>) {
        self.one(FamilyKind::Counter, name, help, value);
    }

    /// Writes a number that goes up and down.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<Number>) {
        self.one(FamilyKind::Gauge, name, help, value);
    }

    /// Writes a family of one number.
    pub fn one(&mut self, kind: FamilyKind, name: &str, help: &str, value: impl Into<Number>) {
        self.family(kind, name, help, [(Labels::default(), value)]);
    }

    /// Writes a family with one number for each value of one label.
    pub fn by<L: Into<String>, V: Into<Number>>(
        &mut self,
        kind: FamilyKind,
        name: &str,
        help: &str,
        label: &'static str,
        values: impl IntoIterator<Item = (L, V)>,
    ) {
        let labelled = |(of, value): (L, V)| (Labels::of([(label, of.into())]), value);
        self.family(kind, name, help, values.into_iter().map(labelled));
    }

    /// Writes a family, which may have no samples.
    pub fn family<V: Into<Number>>(
        &mut self,
        kind: FamilyKind,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels, V)>,
    ) {
        let samples = samples.into_iter().map(|(labels, value)| (labels, value.into())).collect();
        self.write(Family {
            name: self.full(name),
            help: help.to_owned(),
            numbers: Numbers::Of(kind, samples),
        });
    }

    /// Writes a histogram.
    pub fn histogram(&mut self, name: &str, help: &str, buckets: Buckets) {
        self.write(Family { name: self.full(name), help: help.to_owned(), numbers: Numbers::In(buckets) });
    }

    /// Adds what another page holds.
    pub fn append(&mut self, other: &Page) {
        self.text.push_str(&other.text);
    }

    /// The whole text, with its end.
    #[must_use]
    pub fn finish(mut self) -> String {
        // Writing to a string does not fail.
        let _written = encode_eof(&mut self.text);
        self.text
    }

    fn full(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}_{name}", self.prefix) }
    }

    fn write(&mut self, family: Family) {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(family));
        // As above.
        let _written = encode_registry(&mut self.text, &registry);
    }
}

/// A family as the library takes it.
#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    numbers: Numbers,
}

#[derive(Debug)]
enum Numbers {
    Of(FamilyKind, Vec<(Labels, Number)>),
    In(Buckets),
}

impl Collector for Family {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kind = match self.numbers {
            Numbers::Of(FamilyKind::Counter, _) => MetricType::Counter,
            Numbers::Of(FamilyKind::Gauge, _) => MetricType::Gauge,
            Numbers::In(_) => MetricType::Histogram,
        };
        let mut of_family = encoder.encode_descriptor(&self.name, &self.help, None, kind)?;
        match &self.numbers {
            Numbers::In(buckets) => {
                let count = buckets.counts.iter().map(|(_, count)| count).sum();
                of_family.encode_histogram::<NoLabelSet>(buckets.sum, count, &buckets.counts, None)
            }
            Numbers::Of(kind, samples) => samples.iter().try_for_each(|(labels, value)| {
                if labels.is_empty() {
                    return value.encode(*kind, &mut of_family);
                }
                value.encode(*kind, &mut of_family.encode_family(labels)?)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_family_is_written_as_openmetrics_has_it() {
        let mut page = Page::new("x");
        page.counter("ticks", "Ticks.", 3_u64);
        page.gauge("share", "Share.", 0.5);
        page.by(FamilyKind::Gauge, "of", "Of each.", "which", [("a", 1_u64), ("b", 2)]);
        page.family(FamilyKind::Counter, "none", "None yet.", Vec::<(Labels, u64)>::new());
        let counts = vec![(0.001, 1), (0.25, 0), (f64::INFINITY, 2)];
        page.histogram("took_seconds", "Time.", Buckets { counts, sum: 7.0015 });
        let expected = "# HELP x_ticks Ticks.\n# TYPE x_ticks counter\nx_ticks_total 3\n\
            # HELP x_share Share.\n# TYPE x_share gauge\nx_share 0.5\n\
            # HELP x_of Of each.\n# TYPE x_of gauge\nx_of{which=\"a\"} 1\nx_of{which=\"b\"} 2\n\
            # HELP x_none None yet.\n# TYPE x_none counter\n\
            # HELP x_took_seconds Time.\n# TYPE x_took_seconds histogram\nx_took_seconds_sum 7.0015\n\
            x_took_seconds_count 3\nx_took_seconds_bucket{le=\"0.001\"} 1\nx_took_seconds_bucket{le=\"0.25\"} 1\n\
            x_took_seconds_bucket{le=\"+Inf\"} 3\n# EOF\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn values_of_labels_do_nothing_but_stand_there() {
        let mut page = Page::default();
        let labels = Labels::of([("pod", "web \"x\"\\\n\u{202e}".to_owned())]);
        page.family(FamilyKind::Gauge, "one", "One.", [(labels.and([("class", "y")]), 1_u64), (labels, 2)]);
        let lines: Vec<_> = page.text.lines().filter(|line| !line.starts_with('#')).collect();
        let pod = "pod=\"web \\\"x\\\"\\\\\\\\u{a}\\\\u{202e}\"";
        assert_eq!(lines, [format!("one{{{pod},class=\"y\"}} 1"), format!("one{{{pod}}} 2")]);
    }
}
