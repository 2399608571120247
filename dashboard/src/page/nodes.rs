//! All nodes, and one.

mod node;

use maud::{Markup, html};

use crate::amount::{self, Resource};
use crate::chart::Bar;
use crate::facts::Node;
use crate::parts::{self, PageRange, sortable};
use crate::url;
pub use node::{NodePage, one};

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct NodeFilter {
    /// In names.
    pub text: String,
    /// `name`, `cpu`, `memory`, `containers`, `seen` or `trouble`.
    pub sort: String,
    /// Page, from 1.
    pub page: usize,
}

/// A node's share in use of what it has.
fn load(node: &Node, r: Resource) -> f64 {
    let sums = node.share.sums[r as usize];
    amount::part(sums.used, sums.allocatable.unwrap_or(node.size[r as usize])).unwrap_or(0.0)
}

fn order(found: &mut [&Node], sort: &str) {
    match sort {
        "cpu" => found.sort_by(|a, b| load(b, Resource::Cpu).total_cmp(&load(a, Resource::Cpu))),
        "memory" => found.sort_by(|a, b| load(b, Resource::Memory).total_cmp(&load(a, Resource::Memory))),
        "containers" => found.sort_by_key(|n| std::cmp::Reverse(n.share.containers)),
        "seen" => found.sort_by_key(|n| n.seen_ms),
        "trouble" => found.sort_by_key(|n| std::cmp::Reverse(n.oom_kills + n.pressure)),
        _ => {}
    }
}

/// The page of all nodes.
#[must_use]
pub fn body(all: &[Node], filter: &NodeFilter, now_ms: u64) -> Markup {
    let text = filter.text.to_lowercase();
    let mut found: Vec<&Node> = all.iter().filter(|n| n.share.name.to_lowercase().contains(&text)).collect();
    order(&mut found, &filter.sort);
    let window = PageRange::of(filter.page, found.len());
    let parameters = [("q", filter.text.as_str()), ("sort", &filter.sort)];
    let head = |title, key| sortable(title, key, &filter.sort, "nodes", &parameters);
    html! {
        h1 { "Nodes" }
        form.filters method="get" action=(url::to("nodes", &[])) role="search" {
            label { "Search " input #search type="search" name="q" value=(filter.text) placeholder="name"; }
            input type="hidden" name="sort" value=(filter.sort);
            button.primary { "Show" }
        }
        section.card data-part="nodes" #nodes {
            div.scroll tabindex="0" role="region" aria-label="Nodes" {
                table.nodes {
                    thead { tr {
                        (head("Node", "name")) th scope="col" { "State" } (head("Containers", "containers"))
                        th scope="col" { span.hidden { "CPU as a bar" } } (head("CPU used / requested / has", "cpu"))
                        th scope="col" { span.hidden { "Memory as a bar" } } (head("Memory used / requested / has", "memory"))
                        (head("OOM kills, pressure", "trouble")) (head("Heard", "seen"))
                    } }
                    tbody {
                        @for node in &found[window.range()] { (row(node, now_ms)) }
                        @if found.is_empty() { tr { td.nothing colspan="9" { "No node fits this search." } } }
                    }
                }
            }
            (window.pager("nodes", "nodes", &parameters))
        }
    }
}

fn state(node: &Node) -> Markup {
    html! {
        @if node.gone { span.tag.bad { "gone" } } @else if node.connected { span.tag.good { "connected" } } @else { span.tag.warn { "away" } }
        @if !node.dropped.is_empty() { " " span.tag.warn title="Some of what it said was not taken in" { "dropped" } }
    }
}

fn bar(node: &Node, r: Resource) -> Markup {
    let s = node.share.sums[r as usize];
    let whole = s.allocatable.unwrap_or(node.size[r as usize]);
    Bar { whole, used: s.used, requested: s.requested, recommended: s.recommended }.markup()
}

fn row(node: &Node, now_ms: u64) -> Markup {
    html! {
        tr {
            th.name scope="row" { a href=(url::to("node", &[("cluster", &node.share.cluster), ("name", &node.share.name)])) { (node.share.name) } " " span.faint { (node.share.cluster) } }
            td { (state(node)) }
            td.num { (amount::count(node.share.containers)) }
            @for r in Resource::ALL {
                @let s = node.share.sums[r as usize];
                td.bar { (bar(node, r)) }
                td.num { (r.text(s.used)) span.faint { " / " (r.text(s.requested)) " / " (r.or_dash(s.allocatable)) } }
            }
            td.num { @if node.oom_kills > 0 { b.bad { (node.oom_kills) } } @else { "0" } ", " @if node.pressure > 0 { b.warn { (node.pressure) } } @else { "0" } }
            td.num { (parts::moment(node.seen_ms, now_ms)) }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::facts::Share;

    pub(super) fn node(name: &str) -> Node {
        Node {
            share: Share { name: name.into(), cluster: "c".into(), ..Share::default() },
            ..Node::default()
        }
    }

    #[test]
    fn a_thousand_nodes_are_paged_and_small() {
        let all: Vec<Node> = (0..1000).map(|n| node(&format!("node-{n:04}"))).collect();
        let text = body(&all, &NodeFilter { page: 20, ..NodeFilter::default() }, 0).into_string();
        assert!(
            text.contains("951–1\u{202f}000 of 1\u{202f}000 nodes") && text.contains("node-0999"),
            "{text}"
        );
        assert!(text.len() < 100_000, "{}", text.len());
    }
}
