//! One workload's container: use over time, what is recommended, and why.

mod chart;

use maud::{Markup, html};

use crate::amount::{self, Resource};
use crate::facts::{Decision, Replica, ResourceAdvice, Rival, Spread, UsageSeries, Workload};
use crate::{parts, url};
use chart::{chart, ranges};

/// The lengths of time that can be shown: name, title, seconds, seconds from one value to the next.
pub const RANGES: [(&str, &str, u64, u64); 6] = [
    ("1m", "minute", 60, 1),
    ("1h", "hour", 3_600, 60),
    ("6h", "6 hours", 21_600, 60),
    ("1d", "day", 86_400, 60),
    ("7d", "7 days", 604_800, 3_600),
    ("30d", "30 days", 2_592_000, 3_600),
];
/// Replicas and decisions listed.
const SHOWN: usize = 20;

/// What the page is made of.
#[derive(Debug, Clone, Default)]
pub struct WorkloadPage {
    /// The workload.
    pub workload: Workload,
    /// Name of the range that is shown.
    pub range: String,
    /// From when to when, milliseconds since 1970.
    pub times: (u64, u64),
    /// CPU, then memory.
    pub series: [UsageSeries; 2],
    /// The distributions of what is kept.
    pub spread: [Spread; 2],
    /// Other rules' answers.
    pub rivals: Vec<Rival>,
    /// What runs now; the first of how many.
    pub replicas: Vec<Replica>,
    /// Moments of OOM kills, milliseconds since 1970.
    pub kills: Vec<u64>,
    /// Minutes in which a CPU limit held a replica back for a tenth of the time and more, milliseconds since 1970; where minutes are
    /// shown.
    pub throttled: Vec<u64>,
    /// Hours are shown where minutes were asked for: there are too many replicas to read them.
    pub is_coarse: bool,
    /// Decisions about its pods, newest first.
    pub decisions: Vec<Decision>,
}

/// The page.
#[must_use]
pub fn body(facts: &WorkloadPage, now_ms: u64) -> Markup {
    let w = &facts.workload;
    html! {
        p.crumbs { a href=(url::to("workloads", &[])) { "Workloads" } " / " a href=(url::to("workloads", &[("namespace", &w.namespace)])) { (w.namespace) } }
        h1.object { (w.workload) span.faint { " / " (w.container) } }
        p.summary {
            (parts::class(w.class, w.changes_class)) " · " (amount::count(w.replicas)) " running"
            @if !w.image.is_empty() { " · " code { (w.image) } }
            @if !w.policy.is_empty() { " · policy " b { (w.policy) } " " span.tag { (w.mode) } } @else { " · no policy" }
        }
        @if w.changes_class {
            p.notice { "What is recommended would change the container's QoS class from " (w.class[0]) " to " (w.class[1]) ". It is never set in place." }
        }
        (ranges(facts))
        div.columns data-part="charts" #charts { @for r in Resource::ALL { (chart(facts, r)) } }
        div.columns { @for r in Resource::ALL { (explained(facts, r)) } }
        (rivals(facts))
        div.columns { (replicas(facts)) (spread(facts)) }
        section.card { h2 { "Decisions about its pods" } (parts::decisions(&facts.decisions[..facts.decisions.len().min(SHOWN)], now_ms, true)) }
    }
}

fn address(w: &Workload, range: &str) -> String {
    let to = [
        ("cluster", w.cluster.as_str()),
        ("namespace", &w.namespace),
        ("workload", &w.workload),
        ("container", &w.container),
        ("range", range),
    ];
    url::to("workload", &to)
}

/// Why this number: in a sentence, and as a calculation that can be followed.
fn explained(facts: &WorkloadPage, r: Resource) -> Markup {
    let advice = &facts.workload.advice[r as usize];
    html! {
        section.card.why {
            h2 { "Why this " (r.title()) " request" }
            p.sentence { (sentence(facts, r)) }
            @if advice.request.is_some() {
                table.steps {
                    tbody {
                        (steps(facts, r))
                    }
                }
            }
            @if !advice.notes.is_empty() { ul.notes { @for note in &advice.notes { li { (note) } } } }
        }
    }
}

fn sentence(facts: &WorkloadPage, r: Resource) -> String {
    let (w, a) = (&facts.workload, &facts.workload.advice[r as usize]);
    let Some(request) = a.request else {
        return format!(
            "Nothing is recommended: no use of {}/{} is known yet, and no predefined value stands in for it.",
            w.workload, w.container
        );
    };
    let from = match a.current {
        Some(current) if current == request => format!("It stays at {}", r.text(request)),
        Some(current) if current > request => {
            format!("{} less than the {} requested now", r.text(current - request), r.text(current))
        }
        Some(current) => {
            format!("{} more than the {} requested now", r.text(request - current), r.text(current))
        }
        None => "Nothing is requested now".to_owned(),
    };
    let rests = format!(
        "{} of history ({} minutes, tier {})",
        crate::time::span(a.span_seconds),
        amount::count(a.samples),
        a.tier
    );
    let risk = match (a.risk_now, a.risk_then) {
        (Some(now), Some(then)) => format!(
            " Use is expected above it {} of the time; above the present request {}.",
            amount::percent(then),
            amount::percent(now)
        ),
        (None, Some(then)) => format!(" Use is expected above it {} of the time.", amount::percent(then)),
        _ => String::new(),
    };
    format!("{}: {from}. Rule {} answers from {rests}.{risk}", r.text(request), a.rule)
}

fn steps(facts: &WorkloadPage, r: Resource) -> Markup {
    let (a, spread) = (&facts.workload.advice[r as usize], &facts.spread[r as usize]);
    let row = |what: &str, how: &str, value: String| html! { tr { th scope="row" { (what) } td { (how) } td.num { (value) } } };
    let measured = spread.percentiles.iter().filter(|(p, _)| matches!(p.as_str(), "50" | "95" | "99"));
    html! {
        @for (percentile, value) in measured { (row(&format!("Percentile {percentile}"), "of the seconds measured", r.text(*value))) }
        @if let Some(max) = spread.max { (row("Most", &format!("of {} seconds", amount::count(spread.count)), r.text(max))) }
        (row("Rule", &format!("{} says, over {}", a.rule, crate::time::span(a.span_seconds)), r.or_dash(a.raw)))
        @for cap in &a.capped_by { (row("Capped by", cap, String::new())) }
        @if a.capped_by.is_empty() { (row("Caps", "policy, LimitRange, quota, largest node and limit leave it", "–".into())) }
        (row("Request", "rounded to the resource's steps", r.or_dash(a.request)))
        @if a.limit.is_some() || a.current_limit.is_some() { (row("Limit", "beside it; now, and then", format!("{} → {}", r.or_dash(a.current_limit), r.or_dash(a.limit)))) }
        (row("Bounds", "below and above which a change is worth it", format!("{} to {}", r.or_dash(a.lower), r.or_dash(a.upper))))
        @if let Some(confidence) = a.confidence { (row("Confidence", "by how much history there is", amount::percent(confidence))) }
    }
}

fn rivals(facts: &WorkloadPage) -> Markup {
    html! {
        section.card {
            h2 { "Rules side by side" }
            div.scroll tabindex="0" role="region" aria-label="Rules" {
                table {
                    thead { tr {
                        th scope="col" { "Rule" }
                        @for r in Resource::ALL { th.num scope="col" { (r.title()) } th.num scope="col" { "Bounds" } th.num scope="col" { "Above it" } }
                    } }
                    tbody {
                        @for rival in &facts.rivals {
                            @let is_own = facts.workload.advice.iter().any(|a| a.rule == rival.rule);
                            tr .own[is_own] {
                                th scope="row" { (rival.rule) @if is_own { " " span.tag { "in force" } } }
                                @for r in Resource::ALL { (rival_cells(r, &rival.advice[r as usize])) }
                            }
                        }
                        @if facts.rivals.is_empty() { tr { td.nothing colspan="7" { "Nothing is known of it yet." } } }
                    }
                }
            }
        }
    }
}

fn rival_cells(r: Resource, a: &ResourceAdvice) -> Markup {
    html! {
        td.num { b { (r.or_dash(a.request)) } }
        td.num.faint { (r.or_dash(a.lower)) " – " (r.or_dash(a.upper)) }
        td.num { @if let Some(risk) = a.risk_then { (amount::percent(risk)) } @else { "–" } }
    }
}

fn replicas(facts: &WorkloadPage) -> Markup {
    html! {
        section.card data-part="replicas" #replicas {
            h2 { "Replicas" }
            table {
                thead { tr { th scope="col" { "Pod" } th scope="col" { "Node" } @for r in Resource::ALL { th.num scope="col" { (r.title()) } } } }
                tbody {
                    @for replica in facts.replicas.iter().take(SHOWN) {
                        tr {
                            td.name { (replica.pod) }
                            td { @if facts.workload.cluster.is_empty() { (replica.node) } @else { a href=(url::to("node", &[("cluster", &facts.workload.cluster), ("name", &replica.node)])) { (replica.node) } } }
                            @for r in Resource::ALL { td.num { (r.or_dash(replica.used[r as usize])) } }
                        }
                    }
                    @if facts.replicas.is_empty() { tr { td.nothing colspan="4" { "None runs now." } } }
                }
            }
            @if facts.replicas.len() > SHOWN { p.faint { "The first " (SHOWN) " of " (amount::count(facts.replicas.len() as u64)) "." } }
        }
    }
}

fn spread(facts: &WorkloadPage) -> Markup {
    html! {
        section.card {
            h2 { "How use is spread" }
            table {
                thead { tr { th scope="col" { "Percentile of the seconds" } @for r in Resource::ALL { th.num scope="col" { (r.title()) } th scope="col" { span.hidden { (r.title()) " as a bar" } } } } }
                tbody {
                    @for (at, (percentile, _)) in facts.spread[0].percentiles.iter().enumerate() {
                        tr {
                            th scope="row" { "p" (percentile) }
                            @for r in Resource::ALL {
                                @let s = &facts.spread[r as usize];
                                @let value = s.percentiles.get(at).map(|(_, value)| *value);
                                td.num { (r.or_dash(value)) }
                                td.bar { (percentile_bar(value, s.max)) }
                            }
                        }
                    }
                    tr { th scope="row" { "most" } @for r in Resource::ALL { @let s = &facts.spread[r as usize]; td.num { (r.or_dash(s.max)) } td.bar { (percentile_bar(s.max, s.max)) } } }
                    tr { th scope="row" { "mean" } @for r in Resource::ALL { @let s = &facts.spread[r as usize]; td.num { (r.or_dash(s.mean)) } td.bar { (percentile_bar(s.mean, s.max)) } } }
                }
            }
            p.faint { "Of " (amount::count(facts.spread[0].count)) " seconds that are kept, of all replicas together." }
        }
    }
}

fn percentile_bar(value: Option<u64>, most: Option<u64>) -> Markup {
    let part = value.zip(most).and_then(|(value, most)| amount::part(value, most)).unwrap_or(0.0);
    html! { svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" { rect.ground width="100" height="10" {} rect.used width=(format!("{:.1}", (part * 100.0).min(100.0))) height="10" {} } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(current: Option<u64>, request: Option<u64>) -> ResourceAdvice {
        ResourceAdvice {
            current,
            request,
            raw: request,
            rule: "goal".into(),
            tier: "workload".into(),
            span_seconds: 691_200,
            samples: 11_520,
            risk_now: Some(0.0),
            risk_then: Some(0.004),
            capped_by: vec!["policy shop/web maxAllowed <b>".into()],
            ..ResourceAdvice::default()
        }
    }

    fn facts(advice: ResourceAdvice) -> WorkloadPage {
        let workload = Workload {
            workload: "deployment/web".into(),
            container: "app".into(),
            advice: [advice, ResourceAdvice::default()],
            ..Workload::default()
        };
        WorkloadPage { workload, range: "1d".into(), times: (0, 86_400_000), ..WorkloadPage::default() }
    }

    #[test]
    fn the_sentence_says_from_what_to_what_and_on_what_it_rests() {
        for (advice, want) in [
            (
                advice(Some(500), Some(250)),
                "250m: 250m less than the 500m requested now. Rule goal answers from 8 d of history",
            ),
            (advice(Some(100), Some(250)), "250m: 150m more than the 100m requested now."),
            (advice(Some(250), Some(250)), "It stays at 250m."),
            (advice(None, Some(250)), "Nothing is requested now."),
            (advice(Some(1), None), "Nothing is recommended"),
        ] {
            let text = sentence(&facts(advice), Resource::Cpu);
            assert!(text.contains(want), "{text}");
        }
    }

    #[test]
    fn the_calculation_can_be_followed_and_is_text() {
        let mut facts = facts(advice(Some(500), Some(250)));
        facts.spread[0] = Spread {
            percentiles: vec![("50".into(), 100), ("95".into(), 200)],
            max: Some(400),
            mean: Some(120),
            count: 86_400,
        };
        let points: Vec<(u64, u64)> = (0..1440).map(|m| (m * 60_000, m)).collect();
        facts.series[0] =
            UsageSeries { points: crate::chart::thinned(&points), step_ms: 60_000, of: points.len() };
        let text = body(&facts, 0).into_string();
        for want in [
            "Percentile 95",
            "Capped by",
            "maxAllowed &lt;b&gt;",
            "goal says, over 8 d",
            "The greatest of each group of 4 values",
        ] {
            assert!(text.contains(want), "{want}: {text}");
        }
        assert!(text.len() < 60_000, "{}", text.len());
    }

    #[test]
    fn hostile_names_stay_text() {
        let hostile = "'\"><svg onload=alert(1)>";
        let workload = Workload {
            cluster: hostile.into(),
            namespace: hostile.into(),
            workload: hostile.into(),
            container: hostile.into(),
            image: hostile.into(),
            policy: hostile.into(),
            changes_class: true,
            ..Workload::default()
        };
        let rivals = vec![Rival { rule: hostile.into(), ..Rival::default() }];
        let replicas = vec![Replica { node: hostile.into(), pod: hostile.into(), used: [None; 2] }];
        let text = body(
            &WorkloadPage { workload, rivals, replicas, range: hostile.into(), ..WorkloadPage::default() },
            0,
        )
        .into_string();
        assert!(!text.contains("<svg onload"), "{text}");
    }
}
