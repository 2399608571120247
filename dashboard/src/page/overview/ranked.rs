//! Workloads that are worth a look: the greatest savings and risks.

use maud::{Markup, html};

use super::{Overview, SHOWN, link};
use crate::amount::{self, Resource};
use crate::facts::{Prices, Workload};
use crate::{parts, url};

pub(super) fn ranked(title: &str, all: &[Workload], prices: Option<&Prices>, sort: &str) -> Markup {
    html! {
        section.card {
            h2 { (title) }
            @if all.is_empty() { p.faint { "Nothing yet: recommendations need two days of history." } }
            @else {
                table {
                    thead { tr { th scope="col" { "Workload" } @for r in Resource::ALL { th.num scope="col" { (r.title()) } } @if prices.is_some() { th.num scope="col" { "A month" } } } }
                    tbody {
                        @for w in all.iter().take(SHOWN) {
                            tr {
                                td.name { (link(w)) }
                                @for r in Resource::ALL { td.num { (r.change(w.saving(r).saturating_neg())) } }
                                @if let Some(prices) = prices {
                                    td.num { (amount::money(-prices.month(w.saving(Resource::Cpu) as f64, w.saving(Resource::Memory) as f64), &prices.currency)) }
                                }
                            }
                        }
                    }
                }
                p.more { a href=(url::to("workloads", &[("sort", sort)])) { "All workloads" } }
            }
        }
    }
}

pub(super) fn at_risk(facts: &Overview) -> Markup {
    html! {
        section.card {
            h2 { "Most at risk" }
            @if facts.risky.is_empty() { p.faint { "No container is expected above its request for 1 % of the time or more." } }
            @else {
                table {
                    thead { tr { th scope="col" { "Workload" } th.num scope="col" { "Above its request" } } }
                    tbody { @for w in facts.risky.iter().take(SHOWN) { tr { td.name { (link(w)) } td.num { (parts::risk(w.risk())) } } } }
                }
                p.more { a href=(url::to("workloads", &[("only", "risk"), ("sort", "risk")])) { "All at risk" } }
            }
        }
    }
}
