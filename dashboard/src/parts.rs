//! Pieces that several pages share: heads of columns, pagers, changes, classes, decisions.

use maud::{Markup, html};

use crate::amount::{self, Resource};
use crate::facts::{Decision, ResourceAdvice};
use crate::{time, url};

/// Rows of one page of a list.
pub(crate) const ROWS: usize = 50;

/// Where one is in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageRange {
    /// First row, from 0.
    pub(crate) first: usize,
    /// Rows there are.
    pub(crate) all: usize,
}

impl PageRange {
    /// The page of that number, from 1; the last one where there are fewer.
    pub(crate) fn of(page: usize, all: usize) -> Self {
        let last = all.div_ceil(ROWS).max(1);
        Self { first: (page.clamp(1, last) - 1) * ROWS, all }
    }

    /// The rows to show.
    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.first..self.all.min(self.first + ROWS)
    }

    /// Which rows these are, and the way to the others.
    pub(crate) fn pager(self, what: &str, page: &str, parameters: &[(&str, &str)]) -> Markup {
        let (number, shown) = (self.first / ROWS + 1, self.range());
        let to = |number: usize| {
            let number = number.to_string();
            let mut all = parameters.to_vec();
            all.push(("page", &number));
            url::to(page, &all)
        };
        html! {
            nav.pager aria-label="Pages of the list" {
                @if number > 1 { a rel="prev" href=(to(number - 1)) { "← Previous" } }
                span {
                    @if self.all == 0 { "No " (what) }
                    @else { (amount::count(shown.start as u64 + 1)) "–" (amount::count(shown.end as u64)) " of " (amount::count(self.all as u64)) " " (what) }
                }
                @if shown.end < self.all { a rel="next" href=(to(number + 1)) { "Next →" } }
            }
        }
    }
}

/// The head of a column that sorts by it.
pub(crate) fn sortable(
    title: &str,
    key: &str,
    sort: &str,
    page: &str,
    parameters: &[(&str, &str)],
) -> Markup {
    let is_sorted = sort == key;
    let mut all: Vec<(&str, &str)> =
        parameters.iter().filter(|(name, _)| !matches!(*name, "sort" | "page")).copied().collect();
    all.push(("sort", key));
    html! {
        th scope="col" .num[key != "name"] aria-sort=[is_sorted.then_some(if key == "name" { "ascending" } else { "descending" })] {
            a href=(url::to(page, &all)) { (title) @if is_sorted { span.dir aria-hidden="true" { " ▾" } } }
        }
    }
}

/// A class as it is, and as it would be where that is another one.
pub(crate) fn class(class: [&str; 2], changes: bool) -> Markup {
    let tone = |class: &str| match class {
        "Guaranteed" => "tag guaranteed",
        "Burstable" => "tag burstable",
        "BestEffort" => "tag besteffort",
        _ => "tag",
    };
    html! {
        @if class[0].is_empty() { span.faint { "–" } } @else { span class=(tone(class[0])) { (class[0]) } }
        @if changes && !class[1].is_empty() { " → " span class=(tone(class[1])) { (class[1]) } }
    }
}

/// A request now, and the one that is recommended.
pub(crate) fn request(resource: Resource, advice: &ResourceAdvice) -> Markup {
    let grows = advice.request.zip(advice.current).map(|(request, current)| request.cmp(&current));
    let tone = match grows {
        Some(std::cmp::Ordering::Less) => "less",
        Some(std::cmp::Ordering::Greater) => "more",
        _ => "same",
    };
    html! {
        span.now { (resource.or_dash(advice.current)) }
        @if advice.request.is_some() && advice.request != advice.current {
            span.arrow aria-label="becomes" { " → " } span class=(tone) { (resource.or_dash(advice.request)) }
        }
        @if advice.young { " " span.tag.young title="It rests on less than two days of history" { "young" } }
    }
}

/// A risk now, and the one with what is recommended.
pub(crate) fn risk([now, then]: [f64; 2]) -> Markup {
    let tone = |risk: f64| match risk {
        r if r >= 0.05 => "bad",
        r if r >= 0.01 => "warn",
        _ => "good",
    };
    html! { span class=(tone(now)) { (amount::percent(now)) } span.arrow aria-label="becomes" { " → " } span class=(tone(then)) { (amount::percent(then)) } }
}

/// A moment: how long ago, and exactly for those who point at it.
pub(crate) fn moment(ms: u64, now_ms: u64) -> Markup {
    html! { time datetime=(time::rfc3339(ms)) title=(time::moment(ms)) { (time::ago(ms, now_ms)) } }
}

/// Tone of a decision's kind.
fn tone(kind: &str) -> &'static str {
    match kind {
        "oom-kill" | "kill" | "evict" => "tag bad",
        "relieve" | "thrash" | "starved" | "denied" | "contended" | "ineffective" | "restart" => "tag warn",
        _ => "tag",
    }
}

/// Decisions, newest first.
pub(crate) fn decisions(all: &[Decision], now_ms: u64, with_node: bool) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Decisions" {
            table.decisions {
                thead { tr {
                    th scope="col" { "When" }
                    @if with_node { th scope="col" { "Node" } }
                    th scope="col" { "Kind" } th scope="col" { "About" } th scope="col" { "Change" } th scope="col" { "Why" }
                } }
                tbody {
                    @for d in all {
                        tr {
                            td.when { (moment(d.time_ms, now_ms)) }
                            @if with_node { td { a href=(url::to("node", &[("name", &d.node)])) { (d.node) } } }
                            td { span class=(tone(&d.kind)) { (d.kind) } }
                            td.name { (about(d)) }
                            td { (change(d)) }
                            td.why { (why(d)) }
                        }
                    }
                    @if all.is_empty() { tr { td.nothing colspan=(if with_node { 6 } else { 5 }) { "No decisions are kept of this." } } }
                }
            }
        }
    }
}

fn about(d: &Decision) -> Markup {
    html! {
        @if d.pod.is_empty() { span.faint { "the node" } } @else { (d.pod) }
        @if !d.container.is_empty() { span.faint { " / " (d.container) } }
    }
}

fn change(d: &Decision) -> Markup {
    html! {
        @if !d.knob.is_empty() { code { (d.knob) } br; }
        @if !d.old.is_empty() || !d.new.is_empty() {
            span.value { @if d.old.is_empty() { "–" } @else { (d.old) } " → " @if d.new.is_empty() { "–" } @else { (d.new) } } " "
        }
        span.faint { (d.result) }
    }
}

fn why(d: &Decision) -> Markup {
    html! {
        (d.reason)
        @if !d.inputs.is_empty() {
            details {
                summary { (d.inputs.len()) " inputs" }
                dl.inputs { @for (name, value) in &d.inputs { div { dt { (name) } dd { (value) } } } }
            }
        }
    }
}

/// What is said where a list is empty for a reason that a newcomer may not know.
pub(crate) fn empty(what: &str, remedy: &str) -> Markup {
    html! { div.empty { p { b { (what) } } p { (remedy) } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_within_its_list() {
        for (page, all, want) in
            [(0, 0, 0..0), (1, 120, 0..50), (3, 120, 100..120), (9, 120, 100..120), (usize::MAX, 1, 0..1)]
        {
            assert_eq!(PageRange::of(page, all).range(), want, "{page} {all}");
        }
        let text = PageRange::of(2, 120).pager("workloads", "workloads", &[("q", "a b")]).into_string();
        assert!(text.contains("51–100 of 120 workloads"), "{text}");
        assert!(text.contains("q=a%20b&amp;page=1") && text.contains("page=3"), "{text}");
    }

    #[test]
    fn a_change_says_its_direction() {
        let advice = ResourceAdvice {
            current: Some(500),
            request: Some(250),
            young: true,
            ..ResourceAdvice::default()
        };
        let text = request(Resource::Cpu, &advice).into_string();
        assert!(
            text.contains("500m") && text.contains(r#"class="less">250m"#) && text.contains("young"),
            "{text}"
        );
        let same = ResourceAdvice { current: Some(500), request: Some(500), ..ResourceAdvice::default() };
        assert!(!request(Resource::Cpu, &same).into_string().contains('→'));
    }
}
