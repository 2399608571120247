//! A chart of one series: use against the request in force, over time.

use evenkeel_model::narrow::{f64_to_u64, f64_to_usize};
use std::fmt::Write;

use super::replay::TimedRequest;
use super::trace::TraceSeries;
use crate::Resource;
use crate::units::{DAY_MS, HOUR_MS};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 420.0;
/// Room for title and legend, time, values, and the right edge.
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
/// Columns into which use is gathered: two a point drawn, so that peaks never disappear and the file stays small.
const COLUMNS: usize = 1_200;
/// Steps of an axis that people read easily.
const NICE: [f64; 4] = [1.0, 2.0, 2.5, 5.0];

/// Draws use and request of one series under a rule.
pub fn chart(series: &TraceSeries, requests: &[TimedRequest], resource: Resource, rule: &str) -> String {
    let chart = Chart::new(series, requests, resource);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}: {} used and requested</text>\n",
        escaped(&series.name),
        resource.as_str(),
    );
    svg.push_str(&chart.axes());
    svg.push_str(&chart.usage(series));
    svg.push_str(&chart.request(requests));
    let legend =
        [("#4c8bb8", "used (least to greatest)".to_owned()), ("#c0392b", format!("request, rule {rule}"))];
    for (at, (colour, text)) in legend.iter().enumerate() {
        let x = LEFT + 220.0 * at as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"33\" width=\"14\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"42\">{}</text>",
            x + 20.0,
            escaped(text)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

struct Chart {
    resource: Resource,
    from_ms: u64,
    to_ms: u64,
    most: f64,
}

impl Chart {
    fn new(series: &TraceSeries, requests: &[TimedRequest], resource: Resource) -> Self {
        let from_ms = series.samples.first().map_or(0, |sample| sample.time_ms);
        let to_ms = series.samples.last().map_or(0, |sample| sample.time_ms).max(from_ms + 1);
        let used = series.samples.iter().map(|sample| sample.value);
        let most = used.chain(requests.iter().map(|request| request.request)).max().unwrap_or(0).max(1);
        Self { resource, from_ms, to_ms, most: most as f64 * 1.05 }
    }

    fn x(&self, time_ms: u64) -> f64 {
        let part = (time_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms) as f64;
        LEFT + part.min(1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - value / self.most * (HEIGHT - TOP - BOTTOM)
    }

    fn axes(&self) -> String {
        let mut svg = String::new();
        let (unit, name) = match self.resource {
            Resource::Cpu => (1e6, "cores"),
            Resource::Memory => byte_unit(self.most),
        };
        let step = nice_step(self.most / unit / 5.0);
        let count = f64_to_usize(self.most / unit / step);
        for at in 0..=count {
            let value = at as f64 * step;
            let y = self.y(value * unit);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                y + 4.0,
                short(value, step)
            );
        }
        let middle = f64::midpoint(TOP, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">{name}</text>"
        );
        let hours = (self.to_ms - self.from_ms) as f64 / HOUR_MS as f64;
        let (unit_ms, name) = if hours > 72.0 {
            (DAY_MS, "days since the first sample")
        } else {
            (HOUR_MS, "hours since the first sample")
        };
        let span = (self.to_ms - self.from_ms) as f64 / unit_ms as f64;
        let step = nice_step(span / 10.0);
        for at in 0..=f64_to_usize(span / step) {
            let value = at as f64 * step;
            let x = self.x(self.from_ms + f64_to_u64(value * unit_ms as f64));
            let base = HEIGHT - BOTTOM;
            let _ = writeln!(
                svg,
                "<line x1=\"{x:.1}\" y1=\"{base}\" x2=\"{x:.1}\" y2=\"{}\" stroke=\"#999\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                base + 5.0,
                base + 18.0,
                short(value, step)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{name}</text>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            HEIGHT - 10.0
        );
        svg
    }

    /// An area from the least to the greatest use of each column.
    fn usage(&self, series: &TraceSeries) -> String {
        let mut columns: Vec<(f64, f64, f64)> = Vec::new();
        let width = (WIDTH - LEFT - RIGHT) / COLUMNS as f64;
        for sample in &series.samples {
            let (x, value) = (self.x(sample.time_ms), sample.value as f64);
            match columns.last_mut().filter(|column| x < column.0 + width) {
                Some(column) => *column = (column.0, column.1.min(value), column.2.max(value)),
                None => columns.push((x, value, value)),
            }
        }
        let upper = columns.iter().map(|(x, _, most)| format!("{x:.1},{:.1}", self.y(*most)));
        let lower = columns.iter().rev().map(|(x, least, _)| format!("{x:.1},{:.1}", self.y(*least)));
        let points: Vec<String> = upper.chain(lower).collect();
        let points = points.join(" ");
        format!("<polygon points=\"{points}\" fill=\"#4c8bb8\" stroke=\"#4c8bb8\" stroke-width=\"0.8\"/>\n")
    }

    fn request(&self, requests: &[TimedRequest]) -> String {
        let mut points = String::new();
        for (at, request) in requests.iter().enumerate() {
            let until = requests.get(at + 1).map_or(self.to_ms, |next| next.time_ms);
            let y = self.y(request.request as f64);
            let _ = write!(points, "{:.1},{y:.1} {:.1},{y:.1} ", self.x(request.time_ms), self.x(until));
        }
        format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"#c0392b\" stroke-width=\"2\"/>\n",
            points.trim_end()
        )
    }
}

/// Unit in which memory up to this much is shown.
fn byte_unit(most: f64) -> (f64, &'static str) {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.iter().find(|(size, _)| most >= *size as f64);
    unit.map_or((1.0, "bytes"), |(size, name)| (*size as f64, name))
}

/// The least nice step of at least this size.
fn nice_step(least: f64) -> f64 {
    let least = least.max(f64::MIN_POSITIVE);
    let ten = 10f64.powf(least.log10().floor());
    NICE.iter().map(|nice| nice * ten).find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * ten)
}

/// A number with as many decimals as its step needs.
fn short(value: f64, step: f64) -> String {
    let decimals = (0..9).find(|d| {
        let scaled = step * 10f64.powi(*d);
        (scaled - scaled.round()).abs() < 1e-6 * scaled
    });
    format!("{value:.*}", decimals.and_then(|d| usize::try_from(d).ok()).unwrap_or(9))
}

/// Text with what HTML and SVG give a meaning replaced.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
