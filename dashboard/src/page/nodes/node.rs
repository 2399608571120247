//! The page of one node: sums, containers, knobs and what was decided about them.

use maud::{Markup, html};

use super::{bar, state};
use crate::amount::{self, Resource};
use crate::facts::{Decision, Extent, Knob, Node, NodeContainer};
use crate::parts::{self, PageRange};
use crate::url;

/// Results of writes after which a knob holds what was wanted.
const HOLDS: [&str; 2] = ["done", "unchanged"];

/// Knobs of a page at most.
const KNOBS: usize = 40;

/// What the page of one node is made of.
#[derive(Debug, Clone, Default)]
pub struct NodePage {
    /// Whose page it is: the recommender's, or the node's own.
    pub extent: Extent,
    /// The node.
    pub node: Node,
    /// Its containers.
    pub containers: Vec<NodeContainer>,
    /// Decisions about it, newest first.
    pub decisions: Vec<Decision>,
    /// Its knobs as they are this second, where that is known: the newest decision about each tells of them elsewhere.
    pub knobs: Vec<Knob>,
    /// Whether its agent writes, `enforce` or `dry-run`; told of a node by itself alone.
    pub mode: &'static str,
    /// Page of the containers, from 1.
    pub page: usize,
}

/// The page of one node.
#[must_use]
pub fn one(facts: &NodePage, now_ms: u64) -> Markup {
    let node = &facts.node;
    html! {
        p.crumbs {
            @if facts.extent == Extent::Cluster { a href=(url::to("nodes", &[])) { "Nodes" } " / " }
            (node.share.cluster)
        }
        h1.object { (node.share.name) }
        p.summary {
            @match facts.extent {
                Extent::Cluster => {
                    (state(node)) " · agent " (node.version) " · heard " (parts::moment(node.seen_ms, now_ms)) " · "
                    (amount::count(node.gaps)) " seconds missing · "
                }
                Extent::Node => {
                    span.tag .good[facts.mode == "enforce"] .warn[facts.mode != "enforce"] { (facts.mode) }
                    " · agent " (node.version) " · sampled " (parts::moment(node.seen_ms, now_ms)) " · "
                }
            }
            (Resource::Cpu.text(node.size[0])) " cores, " (Resource::Memory.text(node.size[1]))
        }
        @if !node.dropped.is_empty() {
            section.alarm { h2 { "Not taken in" } ul { @for (reason, count, remedy) in &node.dropped { li { b { (reason) } ", " (amount::count(*count)) " times. " (remedy) } } } }
        }
        div.columns { @for r in Resource::ALL { (sums(node, r, facts.extent)) } }
        (containers(facts))
        (knobs(facts, now_ms))
        section.card data-part="decisions" #decisions {
            h2 { "Latest decisions" }
            (parts::decisions(&facts.decisions[..facts.decisions.len().min(30)], now_ms, false))
            @let of = if facts.extent == Extent::Cluster { node.share.name.as_str() } else { "" };
            p.more { a href=(url::to("decisions", &[("node", of)])) { "All of this node" } }
        }
    }
}

pub(super) fn sums(node: &Node, r: Resource, extent: Extent) -> Markup {
    let s = node.share.sums[r as usize];
    let row = |class: &str, title: &str, value: Option<u64>| html! { tr { th scope="row" { span class=(format!("key {class}")) { (title) } } td.num { (r.or_dash(value)) } } };
    html! {
        section.card data-part=(format!("{}-sums", r.name())) id=(format!("{}-sums", r.name())) {
            h2 { (r.title()) }
            (bar(node, r))
            table.sums { tbody {
                (row("ground", "Pods may request", s.allocatable)) (row("requested", "Requested", Some(s.requested)))
                (row("used", "Used now", Some(s.used)))
                @if extent == Extent::Cluster { (row("recommended", "Recommended", Some(s.recommended))) }
                (row("", "Limits together", Some(s.limited)))
            } }
        }
    }
}

pub(super) fn containers(facts: &NodePage) -> Markup {
    let window = PageRange::of(facts.page, facts.containers.len());
    let node = &facts.node.share;
    html! {
        section.card data-part="containers" #containers {
            h2 { "Containers" }
            div.scroll tabindex="0" role="region" aria-label="Containers" {
                table {
                    thead { tr {
                        th scope="col" { "Container" } th scope="col" { "Class" }
                        @for r in Resource::ALL { th.num scope="col" { (r.title()) " used" } th.num scope="col" { "of request" } th.num scope="col" { "Limit" } }
                        th.num scope="col" { "Throttled" } th.num scope="col" { "OOM kills" } th.num scope="col" { "Processes" }
                    } }
                    tbody {
                        @for c in &facts.containers[window.range()] { (container(facts, c)) }
                        @if facts.containers.is_empty() { tr { td.nothing colspan="11" { "None runs, as far as its agent tells." } } }
                    }
                }
            }
            @match facts.extent {
                Extent::Cluster => (window.pager("containers", "node", &[("cluster", &node.cluster), ("name", &node.name)])),
                Extent::Node => (window.pager("containers", "", &[])),
            }
        }
    }
}

/// Where more is told of a container: history of its workload, or, where there is none, decisions about its pod.
pub(super) fn more_of(facts: &NodePage, c: &NodeContainer) -> String {
    match facts.extent {
        Extent::Cluster => url::to(
            "workload",
            &[
                ("cluster", facts.node.share.cluster.as_str()),
                ("namespace", &c.namespace),
                ("workload", &c.workload),
                ("container", &c.container),
            ],
        ),
        Extent::Node => url::to("decisions", &[("q", format!("{}/{}", c.namespace, c.pod).as_str())]),
    }
}

pub(super) fn container(facts: &NodePage, c: &NodeContainer) -> Markup {
    html! {
        tr {
            th.name scope="row" { a href=(more_of(facts, c)) { span.faint { (c.namespace) "/" } (c.pod) span.faint { " / " (c.container) } } }
            td { (parts::class([c.class, ""], false)) }
            @for r in Resource::ALL {
                @let (used, request) = (c.used[r as usize], c.requests[r as usize]);
                td.num { (r.or_dash(used)) }
                td.num { @match used.zip(request).and_then(|(used, request)| amount::part(used, request)) { Some(part) => span .warn[part > 1.0] { (amount::percent(part)) }, None => "–" } }
                td.num.faint { (r.or_dash(c.limits[r as usize])) }
            }
            td.num { @if let Some(part) = c.throttled { (amount::percent(part)) } @else { "–" } }
            td.num { @if c.oom_kills > 0 { b.bad { (c.oom_kills) } } @else { "0" } }
            td.num { @if let Some(pids) = c.pids { (amount::count(pids)) } @else { "–" } }
        }
    }
}

/// What a knob should hold, and what it held after the decision.
pub(super) fn values(d: &Decision) -> [&str; 2] {
    let actual = if HOLDS.contains(&d.result.as_str()) { &d.new } else { &d.old };
    [&d.new, actual]
}

pub(super) fn or_dash(text: &str) -> &str {
    if text.is_empty() { "–" } else { text }
}

/// Who else writes a knob, or what is wrong with it, by the last decision about it.
pub(super) fn trouble(d: &Decision) -> &str {
    let by = d.inputs.iter().find(|(name, _)| name == "by").map(|(_, by)| by.as_str());
    match d.kind.as_str() {
        "contended" => by.unwrap_or("another program"),
        "denied" => "the kernel refuses it",
        "ineffective" => "without effect",
        _ => "",
    }
}

/// Knobs by the newest decision about each.
pub(super) fn of_decisions(decisions: &[Decision]) -> Vec<Knob> {
    let mut seen = std::collections::BTreeSet::new();
    let of_knobs = decisions.iter().filter(|d| !d.knob.is_empty());
    let newest = of_knobs.filter(|d| seen.insert((&d.pod, &d.container, &d.knob))).take(KNOBS);
    let knob = |d: &Decision| {
        let [wanted, actual] = values(d).map(str::to_owned);
        Knob {
            pod: d.pod.clone(),
            container: d.container.clone(),
            name: d.knob.clone(),
            wanted,
            actual,
            trouble: trouble(d).to_owned(),
            why: d.reason.clone(),
            state: format!("{} {}", d.kind, d.result),
            time_ms: d.time_ms,
        }
    };
    newest.map(knob).collect()
}

/// Knobs as they are, those with trouble first; else by the newest decision about each.
pub(super) fn knobs(facts: &NodePage, now_ms: u64) -> Markup {
    let is_now = facts.extent == Extent::Node;
    let (shown, all) = if is_now {
        let mut now: Vec<&Knob> = facts.knobs.iter().collect();
        now.sort_by_key(|knob| knob.trouble.is_empty());
        (now.into_iter().take(KNOBS).cloned().collect(), facts.knobs.len())
    } else {
        let newest = of_decisions(&facts.decisions);
        let count = newest.len();
        (newest, count)
    };
    html! {
        section.card data-part="knobs" #knobs {
            h2 { "Scores and knobs, wanted and actual" }
            div.scroll tabindex="0" role="region" aria-label="Knobs" {
                table {
                    thead { tr { th scope="col" { "About" } th scope="col" { "Knob" } th scope="col" { "Wanted" } th scope="col" { "Actual" } th scope="col" { "Owner" } th scope="col" { "Why" } th scope="col" { "When" } } }
                    tbody {
                        @for knob in &shown { (knob_row(knob, now_ms)) }
                        @if shown.is_empty() { tr { td.nothing colspan="7" { @if is_now { "None is wanted." } @else { "None was set in what the recommender keeps." } } } }
                    }
                }
            }
            p.faint {
                @if is_now { (amount::count(shown.len() as u64)) " of " (amount::count(all as u64)) ", those with trouble first. All: " code { "evenkeel status -o wide" } "." }
                @else { "As of the last decision about each that the recommender keeps, at most " (KNOBS) ". As they are this second: " code { "evenkeel status -o wide" } " on the node." }
            }
        }
    }
}

pub(super) fn knob_row(knob: &Knob, now_ms: u64) -> Markup {
    html! {
        tr {
            td.name { @if knob.pod.is_empty() { span.faint { "the node" } } @else { (knob.pod) span.faint { " / " (knob.container) } } }
            td { code { (knob.name) } } td.value { (or_dash(&knob.wanted)) }
            td.value { span .warn[knob.wanted != knob.actual] { (or_dash(&knob.actual)) } }
            td { @if knob.trouble.is_empty() { "Evenkeel" } @else { span.warn { (knob.trouble) } } }
            td.why { (knob.why) span.faint { " (" (knob.state) ")" } } td.num { (parts::moment(knob.time_ms, now_ms)) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::node;
    use super::super::{NodeFilter, body};
    use super::*;

    #[test]
    fn each_knob_is_shown_as_it_was_last() {
        let of = |knob: &str, new: &str| Decision {
            knob: knob.into(),
            new: new.into(),
            pod: "a/b".into(),
            ..Decision::default()
        };
        let shown = |decisions: &[Decision]| {
            knobs(&NodePage { decisions: decisions.to_vec(), ..NodePage::default() }, 0).into_string()
        };
        let text = shown(&[of("cpu.weight", "20"), of("cpu.weight", "10"), of("", "99")]);
        assert!(text.contains("20") && !text.contains(">10<") && !text.contains("99"), "{text}");
        let fought = Decision {
            kind: "contended".into(),
            old: "100000".into(),
            result: "failed".into(),
            ..of("cpu.max", "50000")
        };
        let text = shown(&[fought]);
        assert!(
            text.contains("50000") && text.contains("100000") && text.contains("another program"),
            "{text}"
        );
    }

    /// The page of an agent is about its node alone: no link leads to what only a recommender has.
    #[test]
    fn the_page_of_a_node_by_itself_leads_to_what_is_there() {
        let c = NodeContainer { namespace: "shop".into(), pod: "web".into(), ..NodeContainer::default() };
        let knob = |name: &str, trouble: &str| Knob {
            name: name.into(),
            trouble: trouble.into(),
            ..Knob::default()
        };
        let knobs: Vec<Knob> =
            (0..100).map(|_| knob("cpu.weight", "")).chain([knob("memory.min", "somebody")]).collect();
        let facts = NodePage {
            extent: Extent::Node,
            node: node("n"),
            containers: vec![c; 1_000],
            knobs,
            ..NodePage::default()
        };
        let text = one(&facts, 0).into_string();
        assert!(
            text.contains("memory.min") && text.contains("40 of 101, those with trouble first"),
            "{text}"
        );
        assert!(text.contains("/ui/decisions?q=shop%2Fweb") && !text.contains("Recommended"), "{text}");
        for wrong in ["/ui/workload", "/ui/nodes", "/ui/node?"] {
            assert!(!text.contains(wrong), "{wrong}: {text}");
        }
        assert!(text.len() < 100_000, "{}", text.len());
    }

    #[test]
    fn hostile_names_stay_text() {
        let hostile = "\"><script>alert(1)</script>";
        let mut n = node(hostile);
        n.version = hostile.into();
        n.dropped = vec![(hostile.into(), 1, hostile.into())];
        let c = NodeContainer {
            namespace: hostile.into(),
            pod: hostile.into(),
            container: hostile.into(),
            workload: hostile.into(),
            ..NodeContainer::default()
        };
        let d = Decision {
            knob: hostile.into(),
            reason: hostile.into(),
            kind: hostile.into(),
            result: hostile.into(),
            new: hostile.into(),
            ..Decision::default()
        };
        let all = body(&[n.clone()], &NodeFilter { text: "script".into(), ..NodeFilter::default() }, 0)
            .into_string();
        let k = Knob { pod: hostile.into(), name: hostile.into(), why: hostile.into(), ..Knob::default() };
        let one = [Extent::Cluster, Extent::Node]
            .map(|extent| {
                let (node, containers, decisions) = (n.clone(), vec![c.clone()], vec![d.clone()]);
                one(
                    &NodePage {
                        extent,
                        node,
                        containers,
                        decisions,
                        knobs: vec![k.clone()],
                        mode: "",
                        page: 1,
                    },
                    0,
                )
                .into_string()
            })
            .concat();
        assert!(
            !all.contains("<script") && !one.contains("<script") && all.contains("&lt;script"),
            "{all} {one}"
        );
    }
}
