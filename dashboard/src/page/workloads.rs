//! All workloads: sorted, searched, filtered, a page at a time.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::overview::link;
use crate::amount::{self, Resource};
use crate::facts::{Prices, Workload};
use crate::parts::{self, PageRange, sortable};
use crate::url;

/// What is looked for, and in which order.
#[derive(Debug, Clone, Default)]
pub struct WorkloadFilter {
    /// Namespace; empty for all.
    pub namespace: String,
    /// In namespace, workload, container or policy.
    pub text: String,
    /// `saving`, `risk`, `class` or `young`; empty for all.
    pub only: String,
    /// `name`, `cpu`, `memory`, `saving`, `cost`, `risk` or `replicas`.
    pub sort: String,
    /// Page, from 1.
    pub page: usize,
}

/// The kinds of `only`, with their meaning.
const ONLY: [(&str, &str); 5] = [
    ("", "all"),
    ("saving", "with a saving"),
    ("risk", "at risk (1 % and more)"),
    ("class", "whose class would change"),
    ("young", "with under two days of history"),
];

impl WorkloadFilter {
    /// Whether a workload is looked for.
    #[must_use]
    pub fn takes(&self, w: &Workload) -> bool {
        let text = self.text.to_lowercase();
        let has = |field: &String| field.to_lowercase().contains(&text);
        let is_one = match self.only.as_str() {
            "saving" => Resource::ALL.iter().any(|r| w.saving(*r) > 0),
            "risk" => w.risk()[0] >= 0.01,
            "class" => w.changes_class,
            "young" => w.advice.iter().any(|advice| advice.young),
            _ => true,
        };
        is_one
            && (self.namespace.is_empty() || self.namespace == w.namespace)
            && (text.is_empty()
                || [&w.namespace, &w.workload, &w.container, &w.policy, &w.image].into_iter().any(has))
    }

    /// Puts workloads into the order that is asked for; equal ones stay in that of their names.
    pub fn order(&self, all: &mut [&Workload], prices: Option<&Prices>) {
        let money = |w: &Workload| worth(w, prices);
        match self.sort.as_str() {
            "cpu" => all.sort_by_key(|w| Reverse(w.saving(Resource::Cpu))),
            "memory" => all.sort_by_key(|w| Reverse(w.saving(Resource::Memory))),
            "saving" | "cost" => all.sort_by(|a, b| money(b).total_cmp(&money(a))),
            "risk" => all.sort_by(|a, b| b.risk()[0].total_cmp(&a.risk()[0])),
            "replicas" => all.sort_by_key(|w| Reverse(w.replicas)),
            _ => {}
        }
    }

    /// The parameters of its address, without the page.
    #[must_use]
    pub fn parameters(&self) -> [(&str, &str); 4] {
        [("namespace", &self.namespace), ("q", &self.text), ("only", &self.only), ("sort", &self.sort)]
    }
}

/// What a saving is worth: a month's money, or without prices a core as much as 8 GiB, as clouds sell them.
#[must_use]
pub fn worth(w: &Workload, prices: Option<&Prices>) -> f64 {
    let [cpu, memory] = Resource::ALL.map(|r| w.saving(r) as f64);
    match prices {
        Some(prices) => prices.month(cpu, memory),
        None => cpu / 1e3 + memory / f64::from(1 << 30) / 8.0,
    }
}

/// The page.
#[must_use]
pub fn body(
    all: &[Workload],
    namespaces: &[String],
    filter: &WorkloadFilter,
    prices: Option<&Prices>,
) -> Markup {
    let mut found: Vec<&Workload> = all.iter().filter(|w| filter.takes(w)).collect();
    filter.order(&mut found, prices);
    let window = PageRange::of(filter.page, found.len());
    let parameters = filter.parameters();
    let saved = Resource::ALL.map(|r| found.iter().map(|w| w.saving(r)).sum::<i64>());
    html! {
        h1 { "Workloads" }
        (filters(filter, namespaces))
        @if all.is_empty() {
            (parts::empty("No workload is known yet.", "Recommendations appear within a minute of the first samples, and rest on enough history after two days."))
        } @else {
            p.summary {
                (amount::count(found.len() as u64)) " of " (amount::count(all.len() as u64)) " workloads' containers. Carried out, requests change by "
                b { (Resource::Cpu.change(saved[0].saturating_neg())) } " cores and " b { (Resource::Memory.change(saved[1].saturating_neg())) }
                @if let Some(prices) = prices { ", " b { (amount::money(-prices.month(saved[0] as f64, saved[1] as f64), &prices.currency)) } " a month" }
                "." span.faint { " Those on less than two days of history are not in these sums." }
            }
            section.card data-part="workloads" #workloads {
                (table(&found[window.range()], filter, prices))
                (window.pager("workloads' containers", "workloads", &parameters))
            }
            (export(&parameters))
        }
    }
}

fn filters(filter: &WorkloadFilter, namespaces: &[String]) -> Markup {
    html! {
        form.filters method="get" action=(url::to("workloads", &[])) role="search" {
            label { "Search " input #search type="search" name="q" value=(filter.text) placeholder="name, image, policy"; }
            label { "Namespace " select name="namespace" {
                option value="" { "all" }
                @for name in namespaces { option value=(name) selected[*name == filter.namespace] { (name) } }
            } }
            label { "Show " select name="only" { @for (only, what) in ONLY { option value=(only) selected[only == filter.only] { (what) } } } }
            input type="hidden" name="sort" value=(filter.sort);
            button.primary { "Show" }
        }
    }
}

fn table(rows: &[&Workload], filter: &WorkloadFilter, prices: Option<&Prices>) -> Markup {
    let parameters = filter.parameters();
    let head = |title, key| sortable(title, key, &filter.sort, "workloads", &parameters);
    html! {
        div.scroll tabindex="0" role="region" aria-label="Workloads" {
            table.workloads {
                thead { tr {
                    (head("Workload", "name")) (head("Replicas", "replicas")) th scope="col" { "Class" }
                    (head("CPU request", "cpu")) (head("Memory request", "memory")) (head("Above request", "risk"))
                    @if prices.is_some() { (head("A month", "cost")) }
                    th scope="col" { "Policy" }
                } }
                tbody {
                    @for w in rows {
                        tr {
                            th.name scope="row" { (link(w)) }
                            td.num { (amount::count(w.replicas)) }
                            td { (parts::class(w.class, w.changes_class)) }
                            @for r in Resource::ALL { td.num { (parts::request(r, &w.advice[r as usize])) } }
                            td.num { (parts::risk(w.risk())) }
                            @if let Some(prices) = prices { td.num { (amount::money(-worth(w, Some(prices)), &prices.currency)) } }
                            td { @if w.policy.is_empty() { span.faint { "–" } } @else { (w.policy) " " span.tag { (w.mode) } } }
                        }
                    }
                    @if rows.is_empty() { tr { td.nothing colspan="8" { "Nothing fits this search." } } }
                }
            }
        }
    }
}

fn export(parameters: &[(&str, &str)]) -> Markup {
    let to = |form: &str| {
        let mut all = parameters.to_vec();
        all.push(("form", form));
        url::to("workloads/export", &all)
    };
    html! {
        p.export { "All that were found as "
            a href=(to("csv")) download { "CSV" } ", " a href=(to("json")) download { "JSON" }
            " or " a href=(to("patch")) download { "patches for kubectl" } ". Read a patch before you run it."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::ResourceAdvice;

    fn workload(name: &str, current: u64, request: u64, risk: f64) -> Workload {
        let advice = ResourceAdvice {
            current: Some(current),
            request: Some(request),
            risk_now: Some(risk),
            ..ResourceAdvice::default()
        };
        Workload {
            namespace: "shop".into(),
            workload: name.into(),
            replicas: 2,
            advice: [advice, ResourceAdvice::default()],
            ..Workload::default()
        }
    }

    #[test]
    fn workloads_are_sorted_and_filtered() {
        let all = [workload("a", 500, 400, 0.0), workload("b", 900, 100, 0.2), workload("c", 100, 200, 0.02)];
        let names = |only: &str, sort: &str, text: &str| -> Vec<String> {
            let filter = WorkloadFilter {
                only: only.into(),
                sort: sort.into(),
                text: text.into(),
                ..WorkloadFilter::default()
            };
            let mut found: Vec<&Workload> = all.iter().filter(|w| filter.takes(w)).collect();
            filter.order(&mut found, None);
            found.iter().map(|w| w.workload.clone()).collect()
        };
        assert_eq!(names("", "", ""), ["a", "b", "c"]);
        assert_eq!(names("", "cpu", ""), ["b", "a", "c"]);
        assert_eq!(names("saving", "saving", ""), ["b", "a"]);
        assert_eq!(names("risk", "risk", ""), ["b", "c"]);
        assert_eq!(names("", "", "SHOP"), ["a", "b", "c"]);
        assert_eq!(names("", "", "B"), ["b"]);
    }

    #[test]
    fn fifty_thousand_are_one_small_page() {
        let all = vec![workload("deployment/with-quite-a-long-name-0123456789", 500, 400, 0.01); 50_000];
        let filter = WorkloadFilter { page: 2, ..WorkloadFilter::default() };
        let prices = Prices { core_hour: 0.03, gib_hour: 0.004, currency: "EUR".into() };
        let text = body(&all, &["shop".into()], &filter, Some(&prices)).into_string();
        assert!(text.len() < 100_000, "{}", text.len());
        assert!(text.contains("51–100 of 50\u{202f}000"), "{text}");
    }

    #[test]
    fn names_of_others_stay_text() {
        let hostile = "x\"><script>alert(1)</script>";
        let mut w = workload(hostile, 1, 2, 0.0);
        (w.namespace, w.container, w.policy, w.mode) =
            (hostile.into(), hostile.into(), hostile.into(), hostile.into());
        let filter = WorkloadFilter {
            text: String::new(),
            namespace: hostile.into(),
            sort: hostile.into(),
            only: hostile.into(),
            page: 1,
        };
        let text = body(&[w], &[hostile.into()], &filter, None).into_string();
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"), "{text}");
    }
}
