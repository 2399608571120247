//! Use over time: drawn, and as a table.

use maud::{Markup, html};

use super::{RANGES, WorkloadPage, address};
use crate::amount::Resource;
use crate::chart::{Chart, Level, Marks};
use crate::facts::UsageSeries;

pub(super) fn ranges(facts: &WorkloadPage) -> Markup {
    html! {
        nav.ranges aria-label="Time shown" {
            "Last " @for (name, title, ..) in RANGES {
                a href=(address(&facts.workload, name)) aria-current=[(name == facts.range).then_some("true")] { (title) }
            }
        }
    }
}

pub(super) fn chart(facts: &WorkloadPage, r: Resource) -> Markup {
    let (advice, series) = (&facts.workload.advice[r as usize], &facts.series[r as usize]);
    let levels = [
        Level { name: "request", class: "request", value: advice.current },
        Level { name: "recommended", class: "recommended", value: advice.request },
        Level { name: "limit", class: "limit", value: advice.current_limit },
    ];
    let marks = match r {
        Resource::Cpu => Marks { name: "throttled minutes", class: "throttled", at: &facts.throttled },
        Resource::Memory => Marks { name: "OOM kills", class: "kills", at: &facts.kills },
    };
    let chart = Chart {
        resource: r,
        series,
        range: facts.times,
        levels: &levels,
        band: advice.lower.zip(advice.upper),
        marks,
    };
    html! {
        section.card {
            h2 { (r.title()) }
            (chart.markup())
            p.faint {
                @match facts.range.as_str() {
                    "1m" => "Seconds of the replica that uses most.",
                    _ => @if r == Resource::Cpu { "The mean of each interval, of the replica at rank 95 %." } @else { "The peak of each interval, of the replica at rank 95 %." }
                }
                @if facts.is_coarse { " Its replicas have too many minutes to read for a page: hours are shown, and no throttling. " code { "evenkeel usage --series" } " tells minutes." }
                @if series.of > series.points.len() { " The greatest of each group of " (series.of.div_ceil(series.points.len().max(1))) " values is drawn." }
            }
            (values(series, r))
        }
    }
}

/// The chart as a table, for those who do not see it and without scripts.
pub(super) fn values(series: &UsageSeries, r: Resource) -> Markup {
    const ROWS: usize = 24;
    let step = series.points.len().div_ceil(ROWS).max(1);
    html! {
        @if !series.points.is_empty() {
            details {
                summary { "As a table" }
                table {
                    thead { tr { th scope="col" { "UTC" } th.num scope="col" { "Most used" } } }
                    tbody {
                        @for group in series.points.chunks(step) {
                            @if let Some(((from, _), most)) = group.first().zip(group.iter().map(|(_, v)| *v).max()) {
                                tr { td { (crate::time::moment(*from)) } td.num { (r.text(most)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
