//! The cluster in one file that can be mailed: nothing is loaded, nothing leads elsewhere, and there is no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::overview::Overview;
use crate::amount::{self, Resource};
use crate::assets::STYLE;
use crate::chart::Bar;
use crate::facts::{Decision, Node, Share, Workload};
use crate::{frame, parts, time};

/// Rows of each table; what is beyond is said.
const NAMESPACES: usize = 50;
const NODES: usize = 200;
const WORKLOADS: usize = 100;

/// Hash of the style sheet, as the page's policy names it: no other style counts, whatever got into the file.
const STYLE_HASH: &str = "sha256-Q0JUmPeKl4E/qgwySuGJAl7/E7oSNxrTHBO9rvXXw3Q=";

/// What the report is made of.
#[derive(Debug, Clone, Default)]
pub struct ReportPage {
    /// The cluster at a glance.
    pub overview: Overview,
    /// All nodes.
    pub nodes: Vec<Node>,
    /// Workloads whose requests would become less, those that save most first.
    pub savers: Vec<Workload>,
    /// Workloads at risk, the largest first.
    pub risky: Vec<Workload>,
    /// OOM kills that are known, newest first.
    pub kills: Vec<Decision>,
}

/// The whole file.
#[must_use]
pub fn document(report: &ReportPage, now_ms: u64) -> String {
    let o = &report.overview;
    let policy = format!("default-src 'none'; style-src '{STYLE_HASH}'; base-uri 'none'; form-action 'none'");
    let markup = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Evenkeel report" }
                style { (PreEscaped(STYLE.content)) }
            }
            body {
                main #main {
                    h1 { "Evenkeel report" }
                    p.summary {
                        "Made at " time datetime=(time::rfc3339(now_ms)) { (time::moment(now_ms)) } " UTC by Evenkeel " (env!("CARGO_PKG_VERSION")) ". "
                        (amount::count(o.nodes[0])) " nodes, " (amount::count(o.nodes[1])) " connected; " (amount::count(o.workloads)) " workloads' containers, "
                        (amount::count(o.young)) " of them known for less than two days; " (amount::count(o.at_risk)) " at risk; "
                        (amount::count(o.oom_kills)) " OOM kills in the last day."
                    }
                    @for cluster in &o.clusters { (sums(cluster, o)) }
                    (workloads("What could be requested less", "saving", &report.savers, o))
                    (workloads("At risk with what is requested now", "risk", &report.risky, o))
                    (shares("Namespaces", &o.namespaces, NAMESPACES))
                    (nodes(&report.nodes, now_ms))
                    (kills(&report.kills))
                    p.faint {
                        "Risk is the expected part of time (CPU) or of days (memory) above the request, now and with what is recommended. Requests are "
                        "recommended from what was used; a recommendation on less than two days of history is in no sum."
                    }
                }
            }
        }
    };
    frame::cleaned(&markup.into_string())
}

/// That rows were left out.
fn left_out(shown: usize, all: usize, what: &str) -> Markup {
    html! { @if all > shown { p.faint { "The first " (shown) " of " (amount::count(all as u64)) " " (what) "." } } }
}

fn sums(cluster: &Share, overview: &Overview) -> Markup {
    let saving: Option<f64> = overview.prices.as_ref().map(|prices| {
        let less = |r: usize| cluster.sums[r].requested as f64 - cluster.sums[r].recommended as f64;
        prices.month(less(0), less(1))
    });
    html! {
        section.card {
            h2 { "Cluster " (cluster.name) @if cluster.name.is_empty() { (cluster.cluster) } }
            div.scroll {
                table {
                    thead { tr { th scope="col" { "Resource" } th scope="col" { span.hidden { "As a bar" } } th.num scope="col" { "Nodes have" } th.num scope="col" { "Requested" } th.num scope="col" { "Used" } th.num scope="col" { "Recommended" } } }
                    tbody { @for r in Resource::ALL {
                        @let s = cluster.sums[r as usize];
                        tr {
                            th scope="row" { (r.title()) }
                            td.bar { (Bar { whole: s.allocatable.unwrap_or(s.requested), used: s.used, requested: s.requested, recommended: s.recommended }.markup()) }
                            td.num { (r.or_dash(s.allocatable)) } td.num { (r.text(s.requested)) } td.num { (r.text(s.used)) } td.num { (r.text(s.recommended)) }
                        }
                    } }
                }
            }
            @if let Some((saving, prices)) = saving.zip(overview.prices.as_ref()) { p { "Less a month with what is recommended: " b { (amount::money(saving, &prices.currency)) } } }
        }
    }
}

fn workloads(title: &str, what: &str, all: &[Workload], overview: &Overview) -> Markup {
    let shown = &all[..all.len().min(WORKLOADS)];
    html! {
        section.card {
            h2 { (title) }
            div.scroll {
                table {
                    thead { tr {
                        th scope="col" { "Workload" } th scope="col" { "Class" } th.num scope="col" { "Replicas" } th.num scope="col" { "CPU request" }
                        th.num scope="col" { "Memory request" } th.num scope="col" { "Risk" } th.num scope="col" { "CPU less" } th.num scope="col" { "Memory less" }
                        @if overview.prices.is_some() { th.num scope="col" { "A month" } }
                        th scope="col" { "Policy" }
                    } }
                    tbody {
                        @for w in shown {
                            tr {
                                th.name scope="row" { span.faint { (w.namespace) "/" } (w.workload) span.faint { " / " (w.container) } }
                                td { (parts::class(w.class, w.changes_class)) } td.num { (w.replicas) }
                                @for r in Resource::ALL { td.num { (parts::request(r, &w.advice[r as usize])) } }
                                td.num { (parts::risk(w.risk())) }
                                @for r in Resource::ALL { td.num { (r.change(-w.saving(r))) } }
                                @if let Some(prices) = &overview.prices {
                                    td.num { (amount::money(prices.month(w.saving(Resource::Cpu) as f64, w.saving(Resource::Memory) as f64), &prices.currency)) }
                                }
                                td { @if w.policy.is_empty() { "–" } @else { (w.policy) " " span.faint { (w.mode) } } }
                            }
                        }
                        @if shown.is_empty() { tr { td.nothing colspan="10" { "None." } } }
                    }
                }
            }
            (left_out(shown.len(), all.len(), &format!("by {what}")))
        }
    }
}

fn shares(title: &str, all: &[Share], most: usize) -> Markup {
    let shown = &all[..all.len().min(most)];
    html! {
        section.card {
            h2 { (title) }
            div.scroll {
                table {
                    thead { tr { th scope="col" { "Name" } th.num scope="col" { "Containers" } @for r in Resource::ALL { th.num scope="col" { (r.title()) " requested" } th.num scope="col" { "used" } th.num scope="col" { "recommended" } } } }
                    tbody { @for share in shown {
                        tr {
                            th.name scope="row" { (share.name) " " span.faint { (share.cluster) } } td.num { (amount::count(share.containers)) }
                            @for r in Resource::ALL { @let s = share.sums[r as usize]; td.num { (r.text(s.requested)) } td.num { (r.text(s.used)) } td.num { (r.text(s.recommended)) } }
                        }
                    } }
                }
            }
            (left_out(shown.len(), all.len(), "namespaces"))
        }
    }
}

fn nodes(all: &[Node], now_ms: u64) -> Markup {
    let shown = &all[..all.len().min(NODES)];
    html! {
        section.card {
            h2 { "Nodes" }
            div.scroll {
                table {
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Agent" } th.num scope="col" { "Containers" } @for r in Resource::ALL { th.num scope="col" { (r.title()) " has" } th.num scope="col" { "requested" } th.num scope="col" { "used" } } th.num scope="col" { "OOM kills" } th.num scope="col" { "Heard" } } }
                    tbody { @for node in shown {
                        tr {
                            th.name scope="row" { (node.share.name) " " span.faint { (node.share.cluster) } } td { (node.version) } td.num { (amount::count(node.share.containers)) }
                            @for r in Resource::ALL { @let s = node.share.sums[r as usize]; td.num { (r.or_dash(s.allocatable)) } td.num { (r.text(s.requested)) } td.num { (r.text(s.used)) } }
                            td.num { (node.oom_kills) } td.num { (parts::moment(node.seen_ms, now_ms)) }
                        }
                    } }
                }
            }
            (left_out(shown.len(), all.len(), "nodes"))
        }
    }
}

fn kills(all: &[Decision]) -> Markup {
    let shown = &all[..all.len().min(WORKLOADS)];
    html! {
        section.card {
            h2 { "OOM kills that are known" }
            div.scroll {
                table {
                    thead { tr { th scope="col" { "When" } th scope="col" { "Node" } th scope="col" { "Container" } th scope="col" { "Why" } } }
                    tbody {
                        @for d in shown { tr { td { (time::moment(d.time_ms)) } td { (d.node) } td.name { (d.pod) span.faint { " / " (d.container) } } td.why { (d.reason) } } }
                        @if shown.is_empty() { tr { td.nothing colspan="4" { "None." } } }
                    }
                }
            }
            (left_out(shown.len(), all.len(), "kills"))
        }
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn the_policy_names_the_style_sheet_and_nothing_else() {
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(STYLE.content));
        assert_eq!(STYLE_HASH, format!("sha256-{hash}"));
        assert!(!STYLE.content.contains("</"), "it would end there");
    }

    #[test]
    fn one_file_has_everything_bounded_and_loads_nothing() {
        let hostile = "\"><script>alert(1)</script>\u{202e}";
        let workload =
            Workload { workload: hostile.into(), namespace: hostile.into(), ..Workload::default() };
        let node = Node { share: Share { name: hostile.into(), ..Share::default() }, ..Node::default() };
        let report = ReportPage {
            overview: Overview {
                clusters: vec![Share { cluster: "c".into(), ..Share::default() }],
                namespaces: vec![Share { name: hostile.into(), ..Share::default() }; 500],
                prices: Some(crate::facts::Prices {
                    core_hour: 0.03,
                    gib_hour: 0.004,
                    currency: hostile.into(),
                }),
                ..Overview::default()
            },
            nodes: vec![node; 5000],
            savers: vec![workload.clone(); 20_000],
            risky: vec![workload],
            kills: vec![Decision { pod: hostile.into(), reason: hostile.into(), ..Decision::default() }; 300],
        };
        let text = document(&report, 1_795_564_800_000);
        for wrong in ["<script", "href=", "src=", "http:", "https:", " style=", "url(", "@import", "\u{202e}"]
        {
            assert!(!text.contains(wrong), "{wrong}");
        }
        for part in [
            "The first 100 of 20\u{202f}000 by saving",
            "The first 200 of 5\u{202f}000 nodes",
            "The first 50 of 500",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.len() < 600_000, "{}", text.len());
    }
}
