//! Checks of the recommender, and of the nodes it hears from.

use std::collections::BTreeMap;

use evenkeel_proto::v1::{Decision, ListEventsRequest, ListNodesRequest, ListNodesResponse, Node};

use super::neighbours::unreachable;
use super::{CheckStatus, Finding, updater};
use crate::client::{self, Address};
use crate::failure::Failure;

/// A clock that differs by more than this, in microseconds, is worth a look: decisions and minutes of nodes are compared by it.
const CLOCK: u64 = 2_000_000;
/// Checks of the recommender's `/readyz` that are about its store, certificates and tokens: each is told, also when all is well.
const CHECKS: [(&str, &str); 7] = [
    ("log", "its log is written"),
    ("checkpoint", "checkpoints are written"),
    ("room", "the disk has room for the next checkpoint"),
    ("certificate", "no certificate ends soon"),
    ("tokens", "the file of tokens is in force"),
    ("audit", "the audit record is written"),
    ("encryption", "nothing goes over networks in plain text"),
];

/// Everything that the recommender knows of nodes and itself.
pub(super) async fn findings(address: &Address) -> Vec<Finding> {
    let answer = match nodes(address).await {
        Ok(answer) => answer,
        Err(failure) => {
            let failed = Finding { state: CheckStatus::Fail, ..unreachable("recommender", &failure) };
            return vec![failed];
        }
    };
    let mut findings = of_recommender(address, &answer);
    findings.extend(updater::finding(address).await);
    let decisions = decisions(address).await.unwrap_or_default();
    let told = conditions(&decisions);
    for node in &answer.nodes {
        findings.extend(of_node(node).into_iter().map(|finding| finding.of_node(&node.name)));
        let conditions = told.iter().filter(|((of, _), _)| *of == node.name).map(|(_, d)| condition(d));
        findings.extend(conditions.flatten().map(|finding| finding.of_node(&node.name)));
    }
    findings
}

pub(super) async fn nodes(address: &Address) -> Result<ListNodesResponse, Failure> {
    let mut recommender = client::recommender(address).await?;
    let answer = recommender.list_nodes(ListNodesRequest {}).await.map_err(|e| address.failed(&e))?;
    Ok(answer.into_inner())
}

async fn decisions(address: &Address) -> Result<Vec<Decision>, Failure> {
    let mut recommender = client::recommender(address).await?;
    let request = ListEventsRequest::default();
    let answer = recommender.list_events(request).await.map_err(|e| address.failed(&e))?;
    Ok(answer.into_inner().events)
}

/// What is right and wrong with the recommender itself: clock, store, certificates, versions.
pub(super) fn of_recommender(address: &Address, answer: &ListNodesResponse) -> Vec<Finding> {
    let count = answer.nodes.len();
    let mut findings = vec![Finding::ok("recommender", format!("answers at {address}, {count} nodes"))];
    // A Lease that is not had is among the troubles.
    if let Some(leading) = answer.leading.as_ref().filter(|_| !answer.troubles.contains_key("lease")) {
        let found = match leading.leads {
            true => format!("it leads, term {}", leading.term),
            false => format!("it stands by; {} leads", leading.leader),
        };
        findings.push(Finding::ok("recommender's lease", found));
    }
    findings.push(match answer.clock_trouble.as_str() {
        "" => Finding::ok("recommender's clock", "its nodes agree with it"),
        why => of_trouble("clock", why),
    });
    for (check, fine) in CHECKS {
        if !answer.troubles.contains_key(check) {
            findings.push(Finding::ok(format!("recommender's {check}"), fine));
        }
    }
    findings.extend(answer.troubles.iter().map(|(check, why)| of_trouble(check, why)));
    findings.push(versions(&answer.nodes));
    findings
}

/// Each text ends with what helps.
fn of_trouble(check: &str, why: &str) -> Finding {
    let (found, remedy) = why.rsplit_once([';', ':']).unwrap_or((why, "see the recommender's log"));
    Finding::warn(format!("recommender's {check}"), found, remedy.trim())
}

/// Agents of several versions work together; one stays behind when its upgrade was forgotten.
fn versions(nodes: &[Node]) -> Finding {
    let check = "versions";
    let mut by_version: BTreeMap<&str, u32> = BTreeMap::new();
    nodes
        .iter()
        .filter(|node| !node.gone)
        .for_each(|node| *by_version.entry(node.version.as_str()).or_default() += 1);
    let own = env!("CARGO_PKG_VERSION");
    let list: Vec<String> =
        by_version.iter().map(|(version, count)| format!("{version} on {count}")).collect();
    match by_version.len() {
        0 => Finding::ok(check, format!("evenkeel {own}; no node is heard")),
        1 if by_version.contains_key(own) => Finding::ok(check, format!("{own} everywhere")),
        _ => Finding::warn(
            check,
            format!("evenkeel is {own}, agents are {}", list.join(", ")),
            "upgrade what stayed behind: evenkeel nodes shows VERSION",
        ),
    }
}

fn of_node(node: &Node) -> Vec<Finding> {
    let mut findings = vec![match (node.connected, node.gone) {
        (true, _) => Finding::ok("node connection", format!("connected, {} containers", node.containers)),
        (false, true) => Finding::fail(
            "node connection",
            "silent for so long that its containers do not count",
            "start its agent, or ignore a node that was taken away",
        ),
        (false, false) => {
            Finding::warn("node connection", "not connected", "see evenkeel doctor on the node")
        }
    }];
    let apart = node.clock_behind_usec.unsigned_abs();
    if node.connected && apart > CLOCK {
        let word = if node.clock_behind_usec < 0 { "ahead of" } else { "behind" };
        let found = format!("its frames are {} s {word} the recommender's clock", apart / 1_000_000);
        findings.push(Finding::warn(
            "node clock",
            found,
            "synchronise clocks; one that catches up with its spool is behind for a while",
        ));
    }
    if node.refused_containers > 0 {
        let found = format!("{} containers or names were not followed", node.refused_containers);
        findings.push(Finding::warn(
            "node bounds",
            found,
            "raise ingest.max_containers_per_node or max_names_per_minute",
        ));
    }
    for dropped in &node.dropped {
        let found = format!("{} not taken in, {} times", dropped.reason, dropped.count);
        findings.push(Finding::warn("node words", found, dropped.remedy.clone()));
    }
    findings
}

/// The last decision about each condition of each node, as its agent told it.
fn conditions(decisions: &[Decision]) -> BTreeMap<(&str, &str), &Decision> {
    let mut last = BTreeMap::new();
    for decision in decisions.iter().filter(|d| d.kind == "node") {
        let key = (decision.node.as_str(), decision.knob.as_deref().unwrap_or_default());
        let newest = last.entry(key).or_insert(decision);
        if decision.time_usec >= newest.time_usec {
            *newest = decision;
        }
    }
    last
}

/// A condition that is not as it should be; nothing about one that is.
fn condition(decision: &Decision) -> Option<Finding> {
    let is_fine = decision
        .inputs
        .get("state")
        .is_some_and(|state| matches!(state.as_str(), "ok" | "set" | "converged"));
    if is_fine || matches!(decision.result.as_str(), "done" | "unchanged") {
        return None;
    }
    let (found, remedy) =
        decision.reason.rsplit_once("; ").unwrap_or((&decision.reason, "see evenkeel status on the node"));
    Some(Finding::warn(format!("node {}", decision.knob.as_deref().unwrap_or("condition")), found, remedy))
}

#[cfg(test)]
mod tests {
    use evenkeel_proto::v1::{Dropped, Leading};

    use super::*;
    use crate::client::Peer;

    #[test]
    fn troubles_of_the_recommender_are_told_with_what_helps() {
        let why = "the certificate ends in 5 min; put a new one into /x.crt".to_owned();
        let answer = ListNodesResponse {
            troubles: [("certificate".to_owned(), why)].into(),
            clock_trouble: "it is 2 h ahead of 3 nodes; set the clock".into(),
            nodes: vec![Node { version: "0.0.1".into(), ..Node::default() }],
            leading: Some(Leading { leads: false, term: 3, leader: "r-1".into() }),
        };
        let found = of_recommender(&Address::new(Peer::Recommender, "unix:///r"), &answer);
        let of = |check: &str| found.iter().find(|f| f.check == check).unwrap();
        let certificate = of("recommender's certificate");
        assert_eq!(
            (certificate.found.as_str(), certificate.remedy.as_deref()),
            ("the certificate ends in 5 min", Some("put a new one into /x.crt"))
        );
        assert_eq!(certificate.page, "doctor.md#recommenders-certificate");
        assert_eq!(of("recommender's clock").remedy.as_deref(), Some("set the clock"));
        assert_eq!(of("recommender's lease").found, "it stands by; r-1 leads");
        assert_eq!(
            (of("recommender's log").state, of("versions").state),
            (CheckStatus::Ok, CheckStatus::Warn)
        );
    }

    #[test]
    fn a_node_tells_its_connection_clock_words_and_conditions() {
        let node = Node {
            connected: true,
            clock_behind_usec: -5_000_000,
            refused_containers: 2,
            dropped: vec![Dropped { reason: "beyond-node".into(), count: 3, remedy: "look at it".into() }],
            ..Node::default()
        };
        let checks: Vec<String> = of_node(&node).into_iter().map(|f| f.check).collect();
        assert_eq!(checks, ["node connection", "node clock", "node bounds", "node words"]);
        assert_eq!(of_node(&Node { gone: true, ..Node::default() })[0].state, CheckStatus::Fail);
        let told = |time_usec, result: &str, reason: &str| Decision {
            node: "n".into(),
            kind: "node".into(),
            knob: Some("vm.overcommit_memory".into()),
            time_usec,
            result: result.into(),
            reason: reason.into(),
            ..Decision::default()
        };
        let all = [told(2, "rejected", "it is 0; set it"), told(1, "done", "before")];
        let found = condition(conditions(&all)[&("n", "vm.overcommit_memory")]).unwrap();
        assert_eq!(
            (found.check.as_str(), found.remedy.as_deref()),
            ("node vm.overcommit_memory", Some("set it"))
        );
        assert!(condition(&all[1]).is_none());
    }
}
