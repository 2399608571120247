//! The answer for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_capacity::answer::{Answer, Ask, NodeAnswer, Stop};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::question::Whole;
use evenkeel_capacity::scenario::Displaced;

use crate::output::Output;
use crate::table::{Cell, Table, clean};

/// Longest bar of the chart, in cells.
const BAR: u64 = 40;
/// Nodes shown in a chart or list unless all are asked for.
const SHOWN: usize = 20;

/// Everything.
pub(super) fn render(whole: &Whole, ask: &Ask, output: &Output) -> String {
    let answer = &whole.answer;
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut text, answer, ask);
    let _ = bounds(&mut text, answer);
    chart(&mut text, &answer.per_node, output);
    if output.is_wide() {
        why(&mut text, &answer.nodes, output);
    }
    let _ = tail(&mut text, whole, output);
    text
}

fn head(text: &mut String, answer: &Answer, ask: &Ask) -> std::fmt::Result {
    for shape in &ask.shapes {
        writeln!(text, "{} pod requirements:", clean(&shape.pod.metadata.name))?;
        for (resource, amount) in requests(&shape.pod) {
            writeln!(text, "\t- {}: {}", clean(&resource), amount)?;
        }
        for (key, value) in &shape.pod.spec.node_selector {
            writeln!(text, "\t- NodeSelector: {}={}", clean(key), clean(value))?;
        }
    }
    let what = if ask.shapes.len() == 1 {
        format!("instance(s) of the pod {}", clean(&ask.shapes[0].pod.metadata.name))
    } else {
        "complete set(s) of the pods".to_owned()
    };
    writeln!(text, "\nThe cluster can schedule {} {what}.\n", answer.count)?;
    let reason = match answer.stop {
        Stop::LimitReached => format!("LimitReached: Maximum number of pods simulated: {}", answer.count),
        stop => format!("{stop:?}: {}", clean(&answer.message)),
    };
    writeln!(text, "Termination reason: {reason}")
}

/// Requests of all containers together, as written.
fn requests(pod: &Pod) -> BTreeMap<String, String> {
    let mut sums: BTreeMap<String, evenkeel_model::quantity::Quantity> = BTreeMap::new();
    for container in &pod.spec.containers {
        let limits = container
            .resources
            .limits
            .iter()
            .filter(|(name, _)| !container.resources.requests.contains_key(*name));
        for (name, amount) in container.resources.requests.iter().chain(limits) {
            let sum = sums.entry(name.clone()).or_insert(evenkeel_model::quantity::Quantity::from_units(0));
            *sum = sum.saturating_add(*amount);
        }
    }
    sums.into_iter().map(|(name, amount)| (name, amount.canonical())).collect()
}

fn bounds(text: &mut String, answer: &Answer) -> std::fmt::Result {
    if !answer.bounds.is_empty() {
        writeln!(text, "\nBounds:")?;
    }
    for (name, count) in &answer.bounds {
        let binds = if *name == answer.binding { "  <- binds" } else { "" };
        writeln!(text, "\t{}: {count}{binds}", clean(name))?;
    }
    if let Some(lost) = answer.fragmentation.as_ref().filter(|f| f.lost > 0) {
        writeln!(
            text,
            "\nThe sum of all nodes would hold {}, the nodes hold {}: {} are lost to borders between nodes ({}).",
            lost.aggregate, lost.nodes, lost.lost, lost.resource
        )?;
    }
    Ok(())
}

/// One bar for each node, the fullest first.
fn chart(text: &mut String, per_node: &BTreeMap<String, u64>, output: &Output) {
    if per_node.is_empty() {
        return;
    }
    let mut nodes: Vec<(&String, u64)> = per_node.iter().map(|(name, count)| (name, *count)).collect();
    nodes.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    let most = nodes[0].1.max(1);
    let shown = if output.is_wide() { nodes.len() } else { SHOWN.min(nodes.len()) };
    let mut table = Table::new(&["NODE", "PODS", ""]);
    for (name, count) in &nodes[..shown] {
        let bar = "#".repeat(usize::try_from((count * BAR).div_ceil(most)).unwrap_or(0));
        table.row(vec![
            Cell::from(name.as_str()),
            Cell::from(count.to_string().as_str()),
            Cell::from(bar.as_str()),
        ]);
    }
    text.push_str("\nPod distribution among nodes:\n");
    text.push_str(&table.render(output.has_colour()));
    if shown < nodes.len() {
        let _ = writeln!(text, "and {} more nodes; -o wide shows all", nodes.len() - shown);
    }
}

fn why(text: &mut String, nodes: &[NodeAnswer], output: &Output) {
    if nodes.is_empty() {
        return;
    }
    let mut table = Table::new(&["NODE", "WHY-NOT-ONE-MORE", "SHORT-BY"]);
    for node in nodes {
        let short: Vec<String> = node.short.iter().map(|(name, by)| format!("{name} {by}")).collect();
        let cells = [node.node.clone(), node.reasons.join(", "), short.join(", ")];
        table.row(cells.iter().map(|cell| Cell::from(cell.as_str())).collect());
    }
    text.push('\n');
    text.push_str(&table.render(output.has_colour()));
}

fn tail(text: &mut String, whole: &Whole, output: &Output) -> std::fmt::Result {
    for help in &whole.answer.help {
        writeln!(text, "\n{}: {} more would fit", clean(&help.change), help.admits)?;
    }
    for change in &whole.answer.changes {
        writeln!(text, "\nfilled in: {}", clean(change))?;
    }
    for shape in whole.answer.shapes.iter().flatten() {
        writeln!(
            text,
            "\n{}: {} placed, {} in a set {}",
            clean(&shape.name),
            shape.placed,
            shape.wanted,
            clean(&shape.message)
        )?;
    }
    let what_if = &whole.what_if;
    if let Some(t) = &what_if.trials {
        writeln!(
            text,
            "\nOver {} ways in which ties fall: {} to {}, in the middle {}",
            t.trials, t.min, t.max, t.median
        )?;
    }
    if let Some(p) = &what_if.preempt {
        writeln!(
            text,
            "\nWith displacing: {} fit, {} of them without; displaced {}:",
            p.count,
            p.without,
            p.victims.len()
        )?;
        for victim in &p.victims {
            writeln!(
                text,
                "\t{} on {} (priority {})",
                clean(&victim.pod),
                clean(&victim.node),
                victim.priority
            )?;
        }
    }
    for (what, lists) in [("lost", &what_if.lose), ("drained", &what_if.drain)] {
        displaced(text, what, lists)?;
    }
    if let Some(additions) = &what_if.add {
        let mut table = Table::new(&["TYPE", "PER-NODE", "NODES", "PRICE"]);
        for addition in additions.iter().take(if output.is_wide() { usize::MAX } else { SHOWN }) {
            let nodes = addition.nodes.map_or("-".to_owned(), |nodes| nodes.to_string());
            let price = addition.price.map_or("-".to_owned(), |price| format!("{price:.4}"));
            let cells = [addition.r#type.clone(), addition.per_node.to_string(), nodes, price];
            table.row(cells.iter().map(|cell| Cell::from(cell.as_str())).collect());
        }
        text.push_str("\nNodes to add:\n");
        text.push_str(&table.render(output.has_colour()));
    }
    if let Some(daemon) = &what_if.daemonset {
        writeln!(
            text,
            "\nAs a daemon it fits on {} of the {} nodes it belongs to.",
            daemon.fits, daemon.nodes
        )?;
        for refusal in &daemon.refused {
            writeln!(text, "\t{}: {}", clean(&refusal.node), clean(&refusal.reasons.join(", ")))?;
        }
    }
    if let Some(recommended) = &what_if.recommended {
        let (count, requests) = (recommended.count, recommended.requests);
        writeln!(text, "\nWith {requests} recommended requests in place of the present ones: {count} fit.")?;
    }
    let read = &whole.snapshot;
    let skipped: usize = read.skipped.values().sum();
    writeln!(
        text,
        "\nSnapshot: {} nodes, {} pods on them, {} pending, {} ended, {skipped} other objects",
        read.nodes, read.pods, read.pending, read.ended
    )?;
    for odd in &read.contradictions {
        writeln!(text, "\t{}", clean(odd))?;
    }
    Ok(())
}

fn displaced(text: &mut String, what: &str, lists: &[Displaced]) -> std::fmt::Result {
    let harmless = lists.iter().filter(|lost| lost.failed.is_empty()).count();
    for lost in lists.iter().filter(|lost| !lost.failed.is_empty() || lists.len() == 1) {
        let nodes = clean(&lost.nodes.join(", "));
        writeln!(
            text,
            "\n{nodes} {what}: {} of {} pods find another place, {} go with it",
            lost.placed, lost.pods, lost.daemons
        )?;
        for failed in &lost.failed {
            writeln!(text, "\t{} does not: {}", clean(&failed.pod), clean(&failed.message))?;
        }
        for budget in &lost.budgets {
            writeln!(text, "\tbudget {}", clean(budget))?;
        }
    }
    if lists.len() > 1 {
        writeln!(text, "\n{harmless} of {} nodes can be {what} without a pod failing", lists.len())?;
    }
    Ok(())
}
