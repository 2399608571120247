//! How good the requests are that recommendations set: a few families by policy.

use std::collections::BTreeMap;

use evenkeel_metrics::{FamilyKind, Number, Page};

use crate::report::quality::RequestQuality;

/// A family: name, meaning, value.
type Row = (&'static str, &'static str, fn(&RequestQuality) -> u64);

const SECONDS: [Row; 4] = [
    ("seconds", "Container time under requests that a recommendation set, by policy.", |sums| sums.usec),
    ("cpu_exceeded_seconds", "Of it, with more CPU used than requested.", |sums| sums.cpu_over_usec),
    ("memory_exceeded_seconds", "Of it, with a working set above the request.", |sums| sums.memory_over_usec),
    ("throttled_seconds", "CPU time that limits held back under such requests.", |sums| sums.throttled_usec),
];

/// The families of all policies; an empty label stands for policies that are not known, or beyond the first hundred.
pub(super) fn render(page: &mut Page, sums: &BTreeMap<String, RequestQuality>) {
    for (name, help, value) in SECONDS {
        let seconds = sums.iter().map(|(policy, sums)| (policy, Number::seconds(value(sums))));
        page.by(FamilyKind::Counter, &format!("recommended_{name}"), help, "policy", seconds);
    }
    let kills = sums.iter().map(|(policy, sums)| (policy, sums.oom_kills));
    let help = "Processes that the OOM killer took under such requests.";
    page.by(FamilyKind::Counter, "recommended_oom_kills", help, "policy", kills);
}
