//! What only cgroup v2 can tell: whose stalled time it is.

use anyhow::Result;
use evenkeel_tests::product::Site;

use super::innocent::thrash;

/// On v2 the same holds while memory counts as short, and a few percent of stalled time that is anybody's would be enough
/// to hold the neighbour back: what is stalled at limits of their own is told apart.
pub(crate) fn stalls_at_a_limit_are_told_apart_from_those_of_the_node() -> Result<()> {
    let keys = [
        ("pressure.stall_below_percent", "100"),
        ("pressure.warning.some_percent", "5"),
        ("pressure.warning.some_leave_percent", "3"),
        ("pressure.high.some_percent", "7"),
        ("pressure.high.some_leave_percent", "4"),
        ("pressure.critical.some_percent", "9"),
        ("pressure.critical.some_leave_percent", "5"),
    ];
    thrash(Site::new()?.with(|agent| keys.iter().fold(agent, |agent, (key, value)| agent.set(key, value))))
}
