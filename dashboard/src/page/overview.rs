//! The cluster at a glance.

mod ranked;

use maud::{Markup, html};

use crate::amount::{self, Resource};
use crate::chart::Bar;
use crate::facts::{Decision, Prices, ResourceTotals, Share, Workload};
use crate::{parts, url};
use ranked::{at_risk, ranked};

/// Rows of each list on this page.
const SHOWN: usize = 8;

/// What the page is made of.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Nodes: all, connected, gone.
    pub nodes: [u64; 3],
    /// Each cluster.
    pub clusters: Vec<Share>,
    /// Each namespace.
    pub namespaces: Vec<Share>,
    /// Containers by class: Guaranteed, Burstable, BestEffort.
    pub classes: [u64; 3],
    /// Workloads' containers.
    pub workloads: u64,
    /// Of them, those whose recommendation rests on less than two days.
    pub young: u64,
    /// Those whose saving is largest, and those at the largest risk.
    pub savers: Vec<Workload>,
    /// At risk.
    pub risky: Vec<Workload>,
    /// Workloads' containers whose risk now is 1 % and more.
    pub at_risk: u64,
    /// OOM kills, and steps against pressure, among the decisions of the last day that are kept.
    pub oom_kills: u64,
    /// Pressure.
    pub pressure: u64,
    /// Newest decisions, newest first.
    pub decisions: Vec<Decision>,
    /// What is wrong with the recommender: its check, and what.
    pub troubles: Vec<(String, String)>,
    /// What resources cost.
    pub prices: Option<Prices>,
}

impl Overview {
    /// All clusters together.
    fn total(&self, resource: Resource) -> ResourceTotals {
        let sums = self.clusters.iter().map(|cluster| cluster.sums[resource as usize]);
        sums.fold(ResourceTotals::default(), |total, sums| ResourceTotals {
            allocatable: match (total.allocatable, sums.allocatable) {
                (None, None) => None,
                (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
            },
            requested: total.requested.saturating_add(sums.requested),
            used: total.used.saturating_add(sums.used),
            recommended: total.recommended.saturating_add(sums.recommended),
            limited: total.limited.saturating_add(sums.limited),
            quota: None,
        })
    }
}

/// The page.
#[must_use]
pub fn body(facts: &Overview, now_ms: u64) -> Markup {
    html! {
        h1 { "Overview" }
        @if facts.nodes[0] == 0 {
            (parts::empty("No node has been heard yet.", "Start evenkeel-agent on a node with [stream] recommender set to this program's address; it appears here within seconds."))
        }
        @if !facts.troubles.is_empty() {
            section.alarm aria-label="Troubles" { ul { @for (name, why) in &facts.troubles { li { b { (name) } ": " (why) } } } }
        }
        div.tiles { (tiles(facts)) }
        div.columns { @for resource in Resource::ALL { (sums(facts, resource)) } }
        div.columns { (ranked("Most to save", &facts.savers, facts.prices.as_ref(), "saving")) (at_risk(facts)) }
        (namespaces(facts))
        section.card #recent data-part="recent" {
            h2 { "Latest decisions" }
            (parts::decisions(&facts.decisions, now_ms, true))
            p.more { a href=(url::to("decisions", &[])) { "All decisions" } }
        }
        p.export { "All this " a href=(url::to("report", &[])) download { "in one file" } ", to keep or to mail: no scripts, nothing is loaded." }
    }
}

/// What changes on the page while it is open: the name of a place, and its text.
#[must_use]
pub fn live(facts: &Overview) -> Vec<(String, String)> {
    let containers: u64 = facts.clusters.iter().map(|cluster| cluster.containers).sum();
    let mut values: Vec<(String, String)> = [
        ("nodes", facts.nodes[0]),
        ("containers", containers),
        ("oom", facts.oom_kills),
        ("pressure", facts.pressure),
        ("risk", facts.at_risk),
    ]
    .map(|(key, number)| (key.to_owned(), amount::count(number)))
    .into();
    for resource in Resource::ALL {
        let (total, name) = (facts.total(resource), resource.name());
        let of = [("requested", total.requested), ("used", total.used), ("recommended", total.recommended)];
        values.extend(of.map(|(key, value)| (format!("{name}-{key}"), resource.text(value))));
    }
    values
}

/// One number and what it means.
fn tile(key: &str, title: &str, number: &str, tone: &str, more: &Markup) -> Markup {
    html! {
        div class=(format!("tile {tone}")) {
            h2 { (title) }
            p.number data-live=(key) { (number) }
            p.faint { (more) }
        }
    }
}

fn tiles(facts: &Overview) -> Markup {
    let [all, connected, gone] = facts.nodes;
    let away = all.saturating_sub(connected);
    let pods: u64 = facts.clusters.iter().map(|cluster| cluster.pods).sum();
    let containers: u64 = facts.clusters.iter().map(|cluster| cluster.containers).sum();
    let saved = Resource::ALL.map(|r| {
        let total = facts.total(r);
        i64::try_from(total.requested)
            .unwrap_or(i64::MAX)
            .saturating_sub(i64::try_from(total.recommended).unwrap_or(i64::MAX))
    });
    html! {
        (tile("nodes", "Nodes", &amount::count(all), if away > 0 { "warn" } else { "" }, &html! {
            a href=(url::to("nodes", &[])) { (connected) " connected" } @if gone > 0 { ", " (gone) " gone" }
        }))
        (tile("containers", "Containers", &amount::count(containers), "", &html! { "in " (amount::count(pods)) " pods, " (amount::count(facts.workloads)) " workloads' containers" }))
        (tile("oom", "OOM kills", &amount::count(facts.oom_kills), if facts.oom_kills > 0 { "bad" } else { "" }, &html! {
            a href=(url::to("decisions", &[("kind", "oom-kill")])) { "in the last day" }
        }))
        (tile("pressure", "Pressure", &amount::count(facts.pressure), if facts.pressure > 0 { "warn" } else { "" }, &html! {
            a href=(url::to("decisions", &[("kind", "pressure")])) { "steps in the last day" }
        }))
        (tile("risk", "At risk", &amount::count(facts.at_risk), if facts.at_risk > 0 { "warn" } else { "" }, &html! {
            a href=(url::to("workloads", &[("only", "risk"), ("sort", "risk")])) { "over their request 1 % of the time or more" }
        }))
        (cost(facts, saved))
    }
}

fn cost(facts: &Overview, [cpu, memory]: [i64; 2]) -> Markup {
    match &facts.prices {
        Some(prices) => {
            let now = Resource::ALL.map(|r| facts.total(r).requested as f64);
            let month = prices.month(now[0], now[1]);
            let less = prices.month(cpu as f64, memory as f64);
            tile(
                "cost",
                "Requests cost a month",
                &amount::money(month, &prices.currency),
                "",
                &html! {
                    a href=(url::to("workloads", &[("sort", "cost")])) { (amount::money(less.abs(), &prices.currency)) @if less < 0.0 { " more" } @else { " less" } " with what is recommended" }
                },
            )
        }
        None => {
            let number = Resource::Cpu.change(cpu.saturating_neg());
            tile(
                "saved",
                "Recommended requests",
                &number,
                "",
                &html! { "cores and " (Resource::Memory.change(memory.saturating_neg())) " of memory" },
            )
        }
    }
}

fn sums(facts: &Overview, resource: Resource) -> Markup {
    let total = facts.total(resource);
    let whole = total.allocatable.unwrap_or(0);
    let row = |key: &str, class: &str, title: &str, value: u64| {
        html! {
            tr {
                th scope="row" { span class=(format!("key {class}")) { (title) } }
                td.num data-live=(format!("{}-{key}", resource.name())) { (resource.text(value)) }
                td.num.faint { @if let Some(part) = amount::part(value, whole) { (amount::percent(part)) } }
            }
        }
    };
    let bar = Bar { whole, used: total.used, requested: total.requested, recommended: total.recommended };
    html! {
        section.card {
            h2 { (resource.title()) }
            (bar.markup())
            table.sums {
                tbody {
                    @if let Some(allocatable) = total.allocatable { (row("allocatable", "ground", "Nodes have", allocatable)) }
                    (row("requested", "requested", "Requested", total.requested))
                    (row("used", "used", "Used now", total.used))
                    (row("recommended", "recommended", "Recommended", total.recommended))
                }
            }
            @if resource == Resource::Cpu { (classes(facts.classes)) } @else { (young(facts)) }
        }
    }
}

fn classes(classes: [u64; 3]) -> Markup {
    html! {
        p.classes {
            @for (name, count) in ["Guaranteed", "Burstable", "BestEffort"].into_iter().zip(classes) {
                span { (parts::class([name, ""], false)) " " (amount::count(count)) } " "
            }
            span.faint { "workloads' containers by class" }
        }
    }
}

fn young(facts: &Overview) -> Markup {
    html! {
        p.faint {
            @if facts.young > 0 { (amount::count(facts.young)) " of " (amount::count(facts.workloads)) " recommendations rest on less than two days, and count as what is requested now." }
            @else { "All recommendations rest on two days of history or more." }
        }
    }
}

/// The way to a workload's page.
pub(crate) fn link(w: &Workload) -> Markup {
    let to = [
        ("cluster", w.cluster.as_str()),
        ("namespace", &w.namespace),
        ("workload", &w.workload),
        ("container", &w.container),
    ];
    html! { a href=(url::to("workload", &to)) { span.faint { (w.namespace) "/" } (w.workload) span.faint { " / " (w.container) } } }
}

fn namespaces(facts: &Overview) -> Markup {
    const MOST: usize = 12;
    html! {
        section.card {
            h2 { "Namespaces" }
            div.scroll tabindex="0" role="region" aria-label="Namespaces" {
                table {
                    thead { tr {
                        th scope="col" { "Namespace" } th.num scope="col" { "Pods" }
                        @for r in Resource::ALL { th scope="col" { (r.title()) " requested, used, recommended" } th.num scope="col" { "Requested" } th.num scope="col" { "Used" } th.num scope="col" { "Recommended" } }
                    } }
                    tbody {
                        @for share in facts.namespaces.iter().take(MOST) {
                            tr {
                                th scope="row" { a href=(url::to("workloads", &[("namespace", &share.name)])) { (share.name) } @if facts.clusters.len() > 1 { span.faint { " " (share.cluster) } } }
                                td.num { (amount::count(share.pods)) }
                                @for r in Resource::ALL {
                                    @let s = share.sums[r as usize];
                                    td.bar { (Bar { whole: s.quota.unwrap_or(0), used: s.used, requested: s.requested, recommended: s.recommended }.markup()) }
                                    td.num { (r.text(s.requested)) } td.num { (r.text(s.used)) } td.num { (r.text(s.recommended)) }
                                }
                            }
                        }
                    }
                }
            }
            @if facts.namespaces.len() > MOST { p.faint { "The " (MOST) " with the largest requests of " (facts.namespaces.len()) " namespaces." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_add_up_and_names_of_others_stay_text() {
        let hostile = "<script>alert(1)</script>\"'&";
        let sums = [ResourceTotals {
            allocatable: Some(4000),
            requested: 3000,
            used: 500,
            recommended: 1000,
            ..ResourceTotals::default()
        }; 2];
        let share =
            |name: &str| Share { cluster: hostile.into(), name: name.into(), pods: 2, containers: 3, sums };
        let facts = Overview {
            nodes: [2, 1, 0],
            clusters: vec![share(""), share("")],
            namespaces: vec![share(hostile)],
            savers: vec![Workload {
                namespace: hostile.into(),
                workload: hostile.into(),
                ..Workload::default()
            }],
            decisions: vec![Decision {
                node: hostile.into(),
                reason: hostile.into(),
                pod: hostile.into(),
                ..Decision::default()
            }],
            troubles: vec![(hostile.into(), hostile.into())],
            prices: Some(Prices { core_hour: 0.03, gib_hour: 0.004, currency: hostile.into() }),
            ..Overview::default()
        };
        let text = body(&facts, 0).into_string();
        assert!(!text.contains("<script>"), "{text}");
        for (key, value) in live(&facts) {
            assert!(text.contains(&format!("data-live=\"{key}\">{value}<")), "{key} {value}: {text}");
        }
        assert!(text.contains("data-live=\"cpu-requested\">6<") && text.contains("75 %"), "{text}");
        assert!(text.contains("class=\"tile warn\"><h2>Nodes"), "one of two is away: {text}");
    }

    #[test]
    fn a_cluster_without_nodes_says_how_to_get_one() {
        assert!(body(&Overview::default(), 0).into_string().contains("Start evenkeel-agent"));
    }
}
