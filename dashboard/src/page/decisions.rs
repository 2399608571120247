//! What agents decided.

use maud::{Markup, html};

use crate::amount;
use crate::facts::{Decision, Extent};
use crate::parts::{self, PageRange};
use crate::url;

/// Kinds that are steps against pressure.
pub const PRESSURE: [&str; 5] = ["relieve", "release", "starved", "thrash", "kill"];
const KINDS: [&str; 20] = [
    "oom-kill",
    "kill",
    "evict",
    "restart",
    "resize",
    "relieve",
    "release",
    "starved",
    "thrash",
    "set",
    "classified",
    "converged",
    "denied",
    "contended",
    "ineffective",
    "found",
    "gone",
    "node",
    "source",
    "agent",
];

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct DecisionFilter {
    /// Whose page it is.
    pub extent: Extent,
    /// Kind; `pressure` for all of [`PRESSURE`], empty for every one.
    pub kind: String,
    /// Node.
    pub node: String,
    /// In names, knobs and reasons.
    pub text: String,
    /// Page, from 1.
    pub page: usize,
}

impl DecisionFilter {
    /// Whether a decision is looked for.
    #[must_use]
    pub fn takes(&self, d: &Decision) -> bool {
        let of_kind = match self.kind.as_str() {
            "" => true,
            "pressure" => PRESSURE.contains(&d.kind.as_str()),
            kind => kind == d.kind,
        };
        let text = self.text.to_lowercase();
        let has = |field: &String| field.to_lowercase().contains(&text);
        of_kind
            && (self.node.is_empty() || self.node == d.node)
            && (text.is_empty() || [&d.pod, &d.container, &d.knob, &d.reason, &d.node].into_iter().any(has))
    }
}

/// The page: `kept` decisions, newest first, of which the filter takes some.
#[must_use]
pub fn body(kept: &[Decision], filter: &DecisionFilter, now_ms: u64) -> Markup {
    let found: Vec<&Decision> = kept.iter().filter(|d| filter.takes(d)).collect();
    let window = PageRange::of(filter.page, found.len());
    let shown: Vec<Decision> = found[window.range()].iter().map(|d| (*d).clone()).collect();
    let parameters = [("kind", filter.kind.as_str()), ("node", &filter.node), ("q", &filter.text)];
    html! {
        h1 { "Decisions" }
        form.filters method="get" action=(url::to("decisions", &[])) role="search" {
            label { "Search " input #search type="search" name="q" value=(filter.text) placeholder="pod, knob, reason"; }
            label { "Kind " select name="kind" {
                option value="" { "all" }
                option value="pressure" selected[filter.kind == "pressure"] { "pressure" }
                @for kind in KINDS { option value=(kind) selected[filter.kind == kind] { (kind) } }
            } }
            @if filter.extent == Extent::Cluster { label { "Node " input name="node" value=(filter.node) autocomplete="off"; } }
            button.primary { "Show" }
        }
        p.faint {
            @let count = amount::count(kept.len() as u64);
            @match filter.extent {
                Extent::Cluster => { "The recommender keeps the last " (count) " decisions; each agent keeps more of its own (evenkeel events)." }
                Extent::Node => { "The newest " (count) " decisions of this node; all that are kept: " code { "evenkeel events" } "." }
            }
        }
        section.card data-part="decisions" #decisions {
            (parts::decisions(&shown, now_ms, true))
            (window.pager("decisions", "decisions", &parameters))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_by_kind_node_and_text() {
        let d = Decision {
            kind: "relieve".into(),
            node: "n1".into(),
            pod: "shop/Web".into(),
            ..Decision::default()
        };
        let of = |kind: &str, node: &str, text: &str| DecisionFilter {
            kind: kind.into(),
            node: node.into(),
            text: text.into(),
            page: 1,
            ..DecisionFilter::default()
        };
        for (filter, want) in [
            (of("", "", ""), true),
            (of("pressure", "n1", "web"), true),
            (of("set", "", ""), false),
            (of("", "n2", ""), false),
            (of("", "", "db"), false),
        ] {
            assert_eq!(filter.takes(&d), want, "{filter:?}");
        }
    }

    #[test]
    fn a_long_list_is_paged_small_and_its_texts_stay_text() {
        let hostile = "\"><img src=x onerror=alert(1)>".repeat(8);
        let one = Decision {
            node: hostile.clone(),
            pod: hostile.clone(),
            container: hostile.clone(),
            knob: hostile.clone(),
            reason: hostile.clone(),
            inputs: vec![(hostile.clone(), hostile)],
            ..Decision::default()
        };
        let text = body(&vec![one; 10_000], &DecisionFilter::default(), 0).into_string();
        assert!(
            !text.contains("<img src=x") && text.contains("1–50 of 10\u{202f}000 decisions"),
            "{}",
            text.len()
        );
        assert!(text.len() < 400_000, "{} bytes with names of 240 characters", text.len());
    }
}
