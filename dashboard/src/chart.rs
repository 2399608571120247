//! Charts as SVG that stretches to its place, with labels in HTML around it, so that they stay readable on any width. Without
//! scripts a chart is whole; the script adds a reading at the pointer.

use maud::{Markup, html};

use crate::amount::Resource;
use crate::facts::UsageSeries;
use crate::time;

/// Width and height of a plot in its own units; the page stretches it.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 160.0;
/// Points drawn at most: more than one for each pixel of a phone says nothing more.
pub const POINTS: usize = 360;

/// A level that is drawn across the plot.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// What it is, for the legend.
    pub name: &'static str,
    /// Class of its line.
    pub class: &'static str,
    /// Where.
    pub value: Option<u64>,
}

/// A chart of use over time.
#[derive(Debug, Clone)]
pub struct Chart<'a> {
    /// Of what.
    pub resource: Resource,
    /// Its values.
    pub series: &'a UsageSeries,
    /// From when to when, milliseconds since 1970.
    pub range: (u64, u64),
    /// Lines across.
    pub levels: &'a [Level],
    /// The bounds of the recommendation.
    pub band: Option<(u64, u64)>,
    /// Moments to mark.
    pub marks: Marks<'a>,
}

/// Moments to mark, such as OOM kills.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a> {
    /// What they are, for the legend.
    pub name: &'static str,
    /// Class in the style sheet.
    pub class: &'static str,
    /// When, milliseconds since 1970, in order.
    pub at: &'a [u64],
}

/// Keeps the greatest of each group of neighbours, so that no peak is lost and at most [`POINTS`] are left.
#[must_use]
pub fn thinned(points: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let group = points.len().div_ceil(POINTS).max(1);
    points.chunks(group).filter_map(|chunk| chunk.iter().max_by_key(|(_, value)| *value).copied()).collect()
}

impl Chart<'_> {
    /// The highest value of the axis: a round number above everything drawn. A limit far above the rest is left out, since it would
    /// press everything else to the ground; the legend says it.
    fn top(&self) -> u64 {
        let used = self.series.points.iter().map(|(_, value)| *value).max().unwrap_or(0);
        let near =
            self.levels.iter().filter_map(|level| level.value).chain(self.band.map(|(_, upper)| upper));
        let most = used.max(self.levels.iter().take(2).filter_map(|level| level.value).max().unwrap_or(0));
        let top = near.filter(|value| *value <= most.saturating_mul(3)).fold(most, u64::max);
        round_up(top.max(1), self.resource)
    }

    fn x(&self, at: u64) -> f64 {
        let (from, to) = self.range;
        let span = to.saturating_sub(from).max(1) as f64;
        (at.saturating_sub(from) as f64 / span * WIDTH).clamp(0.0, WIDTH)
    }

    fn y(value: u64, top: u64) -> f64 {
        (HEIGHT - value as f64 / top as f64 * HEIGHT).clamp(0.0, HEIGHT)
    }

    /// The line and, below it, the area; both break where values are missing.
    fn paths(&self, top: u64) -> (String, String) {
        let (mut line, mut area, mut last) = (String::new(), String::new(), None::<(u64, f64)>);
        let points = &self.series.points;
        let usual = points.len().div_ceil(POINTS).max(1) as u64 * self.series.step_ms.max(1);
        for (at, value) in points {
            let (x, y) = (self.x(*at), Self::y(*value, top));
            match last.filter(|(before, _)| at.saturating_sub(*before) <= usual * 5 / 2) {
                Some(_) => {
                    line.push_str(&format!("L{x:.1} {y:.1}"));
                    area.push_str(&format!("L{x:.1} {y:.1}"));
                }
                None => {
                    close(&mut area, last);
                    // One value alone is a dot.
                    line.push_str(&format!("M{x:.1} {y:.1}h0"));
                    area.push_str(&format!("M{x:.1} {HEIGHT}L{x:.1} {y:.1}"));
                }
            }
            last = Some((*at, x));
        }
        close(&mut area, last);
        (line, area)
    }

    /// Values for the script: milliseconds since the beginning, and the amount.
    fn data(&self) -> String {
        let from = self.range.0;
        let point = |(at, value): &(u64, u64)| format!("{} {value}", at.saturating_sub(from));
        self.series.points.iter().map(point).collect::<Vec<_>>().join(",")
    }

    /// The chart with its axes and legend.
    #[must_use]
    pub fn markup(&self) -> Markup {
        let top = self.top();
        let (line, area) = self.paths(top);
        let (from, to) = self.range;
        let span = to.saturating_sub(from);
        let text = |value| self.resource.text(value);
        html! {
            figure.chart {
                div.plot {
                    div.y aria-hidden="true" { @for part in [4, 3, 2, 1, 0] { span { (text(top / 4 * part)) } } }
                    svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) preserveAspectRatio="none" role="img"
                        aria-label=(self.described()) data-chart=(self.resource.name()) data-from=(from) data-span=(span)
                        data-points=(self.data()) {
                        @for part in 1..4 {
                            line.grid x1="0" x2=(WIDTH) y1=(HEIGHT / 4.0 * f64::from(part)) y2=(HEIGHT / 4.0 * f64::from(part)) {}
                        }
                        @if let Some((lower, upper)) = self.band {
                            @let y = Self::y(upper, top);
                            rect.band x="0" width=(WIDTH) y=(format!("{y:.1}"))
                                height=(format!("{:.1}", (Self::y(lower, top) - y).max(0.0))) {}
                        }
                        path.area d=(area) {}
                        path.line d=(line) {}
                        @for level in self.levels {
                            @if let Some(value) = level.value.filter(|value| *value <= top) {
                                @let y = format!("{:.1}", Self::y(value, top));
                                line class=(format!("level {}", level.class)) x1="0" x2=(WIDTH) y1=(y) y2=(y) {}
                            }
                        }
                        @for x in self.mark_places() {
                            line class=(format!("mark {}", self.marks.class)) x1=(x) x2=(x) y1="0" y2=(HEIGHT) {}
                        }
                        line.cursor x1="-9" x2="-9" y1="0" y2=(HEIGHT) {}
                    }
                    @if self.series.points.is_empty() { p.nothing { "Nothing was measured in this time." } }
                    div.x aria-hidden="true" {
                        @for part in 0..5 { span { (time::tick(from + span / 4 * part, span)) } }
                    }
                }
                (self.legend())
            }
        }
    }

    /// Where marks are drawn: one for those that fall together, so that a day of them is no large page.
    fn mark_places(&self) -> Vec<String> {
        let (from, to) = self.range;
        let within = self.marks.at.iter().filter(|at| (from..=to).contains(at));
        let mut places: Vec<String> = within.map(|at| format!("{:.0}", self.x(*at))).collect();
        places.dedup();
        places
    }

    fn legend(&self) -> Markup {
        let text = |value| self.resource.text(value);
        html! {
            figcaption.legend {
                span.key.used { "used " output.reading { @if let Some((_, v)) = self.series.points.last() { (text(*v)) } } }
                @for level in self.levels {
                    @if let Some(value) = level.value { span class=(format!("key {}", level.class)) { (level.name) " " b { (text(value)) } } }
                }
                @if let Some((lower, upper)) = self.band { span.key.bounds { "bounds " b { (text(lower)) " to " (text(upper)) } } }
                @if !self.marks.at.is_empty() { span class=(format!("key {}", self.marks.class)) { (self.marks.name) " " b { (self.marks.at.len()) } } }
            }
        }
    }

    /// What the chart shows, for those who do not see it.
    fn described(&self) -> String {
        let values = self.series.points.iter().map(|(_, value)| *value);
        let Some((least, most)) = values.clone().min().zip(values.max()) else {
            return format!("{} use: nothing was measured", self.resource.title());
        };
        let text = |value| self.resource.text(value);
        let (from, to) = self.range;
        let mut said = format!(
            "{} use from {} to {} UTC: {} to {}",
            self.resource.title(),
            time::moment(from),
            time::moment(to),
            text(least),
            text(most)
        );
        for level in self.levels {
            said.extend(level.value.map(|value| format!("; {} {}", level.name, text(value))));
        }
        said
    }
}

/// Leads the area back to the ground.
fn close(area: &mut String, last: Option<(u64, f64)>) {
    if let Some((_, x)) = last {
        area.push_str(&format!("L{x:.1} {HEIGHT}Z"));
    }
}

/// The next number that quarters well: 1, 2, 3, 4, 6, 8 times four and a power of ten; of two for bytes.
fn round_up(value: u64, resource: Resource) -> u64 {
    let base: u64 = match resource {
        Resource::Cpu => 10,
        Resource::Memory => 2,
    };
    let mut power: u64 = match resource {
        Resource::Cpu => 4,
        Resource::Memory => 4096,
    };
    loop {
        let steps: &[u64] = if base == 10 { &[1, 2, 3, 4, 6, 8] } else { &[4, 5, 6, 7] };
        let unit = if base == 10 { power } else { power / 4 };
        if let Some(step) = steps.iter().find(|step| unit.saturating_mul(**step) >= value) {
            return unit.saturating_mul(*step);
        }
        match power.checked_mul(base) {
            Some(next) => power = next,
            None => return u64::MAX / 4 * 4,
        }
    }
}

/// A bar of parts of a whole: what is used, requested and recommended against what there is.
#[derive(Debug, Clone, Copy)]
pub struct Bar {
    /// The whole; the largest part where there is none.
    pub whole: u64,
    /// Used.
    pub used: u64,
    /// Requested.
    pub requested: u64,
    /// Recommended.
    pub recommended: u64,
}

impl Bar {
    /// The bar. What it shows is written beside it.
    #[must_use]
    pub fn markup(&self) -> Markup {
        let whole = self.whole.max(self.requested).max(self.used).max(1) as f64;
        let part = |value: u64| format!("{:.1}", (value as f64 / whole * 100.0).clamp(0.0, 100.0));
        html! {
            svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
                rect.ground width="100" height="10" {}
                rect.requested width=(part(self.requested)) height="10" {}
                rect.used width=(part(self.used)) y="2.5" height="5" {}
                @if self.recommended > 0 { line.recommended x1=(part(self.recommended)) x2=(part(self.recommended)) y1="0" y2="10" {} }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart<'a>(series: &'a UsageSeries, levels: &'a [Level]) -> Chart<'a> {
        Chart {
            resource: Resource::Cpu,
            series,
            range: (0, 60_000),
            levels,
            band: Some((100, 300)),
            marks: Marks { name: "OOM kills", class: "kills", at: &[30_000, 30_001, 99_000_000] },
        }
    }

    #[test]
    fn a_gap_breaks_the_line_and_peaks_survive_thinning() {
        let points = vec![(0, 100), (1_000, 200), (2_000, 100), (30_000, 400), (31_000, 100)];
        let series = UsageSeries { points, step_ms: 1_000, of: 5 };
        let (line, area) = chart(&series, &[]).paths(400);
        assert_eq!((line.matches('M').count(), area.matches('Z').count()), (2, 2), "{line}");
        let many: Vec<(u64, u64)> = (0..10_000).map(|t| (t, u64::from(t == 7_777) * 9)).collect();
        let few = thinned(&many);
        assert!(few.len() <= POINTS && few.contains(&(7_777, 9)), "{}", few.len());
    }

    #[test]
    fn marks_are_drawn_once_where_they_fall_together_and_counted_all() {
        let series = UsageSeries { points: vec![(0, 230)], step_ms: 1_000, of: 1 };
        let text = chart(&series, &[]).markup().into_string();
        assert_eq!(text.matches("mark kills").count(), 1, "{text}");
        assert!(text.contains("OOM kills <b>3</b>"), "{text}");
    }

    #[test]
    fn the_axis_ends_above_what_is_near_and_leaves_out_what_is_far() {
        let series = UsageSeries { points: vec![(0, 230)], step_ms: 1_000, of: 1 };
        let level = |name, value| Level { name, class: "request", value: Some(value) };
        let near = [level("request", 500), level("recommended", 250), level("limit", 1_000)];
        assert_eq!(chart(&series, &near).top(), 1_200);
        let far = [level("request", 500), level("recommended", 250), level("limit", 64_000)];
        assert_eq!(chart(&series, &far).top(), 800);
        assert_eq!(round_up(300 << 20, Resource::Memory), 320 << 20);
        assert_eq!(round_up(u64::MAX, Resource::Memory) % 4, 0);
    }

    #[test]
    fn a_chart_says_in_words_what_it_shows() {
        let series = UsageSeries { points: vec![(0, 230), (1_000, 1_500)], step_ms: 1_000, of: 2 };
        let levels = [Level { name: "request", class: "request", value: Some(500) }];
        let text = chart(&series, &levels).markup().into_string();
        assert!(text.contains("230m to 1.5; request 500m"), "{text}");
        let empty = UsageSeries::default();
        assert!(chart(&empty, &levels).markup().into_string().contains("Nothing was measured"));
    }
}
