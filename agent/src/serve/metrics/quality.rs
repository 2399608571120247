//! How good the requests are that recommendations set: a few families by policy.

use std::collections::BTreeMap;

use super::page::{FamilyKind, Page, seconds};
use crate::report::quality::RequestQuality;

/// A family: name, meaning, value.
type Row = (&'static str, &'static str, fn(&RequestQuality) -> u64);

const SECONDS: [Row; 4] = [
    ("seconds_total", "Container time under requests that a recommendation set, by policy.", |sums| {
        sums.usec
    }),
    ("cpu_exceeded_seconds_total", "Of it, with more CPU used than requested.", |sums| sums.cpu_over_usec),
    ("memory_exceeded_seconds_total", "Of it, with a working set above the request.", |sums| {
        sums.memory_over_usec
    }),
    ("throttled_seconds_total", "CPU time that limits held back under such requests.", |sums| {
        sums.throttled_usec
    }),
];

/// The families of all policies; an empty label stands for policies that are not known, or beyond the first hundred.
pub(super) fn render(sums: &BTreeMap<String, RequestQuality>) -> String {
    let mut page = Page::default();
    for (name, help, value) in SECONDS {
        let name = format!("evenkeel_agent_recommended_{name}");
        page.family(&name, FamilyKind::Counter, help);
        sums.iter()
            .for_each(|(policy, sums)| page.sample(&name, &[("policy", policy)], seconds(value(sums))));
    }
    let name = "evenkeel_agent_recommended_oom_kills_total";
    page.family(name, FamilyKind::Counter, "Processes that the OOM killer took under such requests.");
    sums.iter().for_each(|(policy, sums)| page.sample(name, &[("policy", policy)], sums.oom_kills));
    page.text
}
