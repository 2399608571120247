//! The answer for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use evenkeel_capacity::answer::{Ask, CapacityAnswer, NodeAnswer, StopReason};
use evenkeel_capacity::question::Whole;

use super::{steps, what_if};
use crate::output::{Format, Output};
use crate::table::{Cell, Table, clean};

/// Longest bar of the chart, in cells.
const BAR: u64 = 40;
/// Nodes shown in a chart or list unless all are asked for.
pub(super) const SHOWN: usize = 20;

/// Everything.
pub(super) fn render(whole: &Whole, ask: &Ask, output: &Output) -> String {
    let answer = &whole.answer;
    if output.format() == Format::Csv {
        return by_node(answer).csv();
    }
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut text, whole, ask);
    let _ = bounds(&mut text, answer);
    chart(&mut text, &answer.per_node, output);
    steps::render(&mut text, answer, output);
    if output.is_wide() {
        why(&mut text, &answer.nodes, output);
    }
    let _ = tail(&mut text, whole, ask, output);
    text
}

/// Every node with how many it takes and why not one more.
fn by_node(answer: &CapacityAnswer) -> Table {
    let mut rows: BTreeMap<&str, [String; 3]> = BTreeMap::new();
    for (node, count) in &answer.per_node {
        rows.insert(node, [count.to_string(), String::new(), String::new()]);
    }
    for node in &answer.nodes {
        let row = rows.entry(&node.node).or_insert_with(|| ["0".to_owned(), String::new(), String::new()]);
        [row[1], row[2]] = [node.reasons.join(", "), short(node)];
    }
    let mut table = Table::new(&["NODE", "PODS", "WHY-NOT-ONE-MORE", "SHORT-BY"]);
    for (node, row) in rows {
        let cells = [node].into_iter().chain(row.iter().map(String::as_str));
        table.row(cells.map(Cell::from).collect());
    }
    table
}

/// How much of each resource is missing.
fn short(node: &NodeAnswer) -> String {
    let short: Vec<String> = node.short.iter().map(|(name, by)| format!("{name} {by}")).collect();
    short.join(", ")
}

/// What was asked and how many fit, as in the design document.
fn head(text: &mut String, whole: &Whole, ask: &Ask) -> std::fmt::Result {
    let single = ask.shapes.len() == 1;
    for required in &whole.requirements {
        if single {
            writeln!(text, "PodRequirements:")?;
        } else {
            writeln!(text, "PodRequirements of {}:", clean(&required.pod))?;
        }
        for (resource, amount) in &required.requests {
            let of_type = required.types.get(resource).map(|told| format!(" ({told})")).unwrap_or_default();
            writeln!(text, "- {}: {amount}{}", clean(resource), clean(&of_type))?;
        }
        if let Some(claims) = &required.claims {
            writeln!(
                text,
                "- PVClaim:\n  - count: {}\n  - total_storage: {}",
                claims.count, claims.total_storage
            )?;
        }
        if !required.labels.is_empty() {
            writeln!(text, "- labels:")?;
        }
        for (name, value) in &required.labels {
            writeln!(text, "  - name: {}\n    value: {}", clean(name), clean(value))?;
        }
    }
    let answer = &whole.answer;
    let what = match &ask.shapes[..] {
        [one] if one.wanted == 1 => "instance(s) of the pod".to_owned(),
        [one] => format!("complete set(s) of {} instances of the pod", one.wanted),
        _ => "complete set(s) of the pods".to_owned(),
    };
    writeln!(text, "\nThe cluster can schedule {} {what}.\n", answer.count)?;
    let reason = match answer.stop {
        StopReason::LimitReached => {
            format!("LimitReached: Maximum number of pods simulated: {}", answer.count)
        }
        stop => format!("{stop:?}: {}", clean(&answer.message)),
    };
    writeln!(text, "Termination reason: {reason}")
}

fn bounds(text: &mut String, answer: &CapacityAnswer) -> std::fmt::Result {
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
        let cells = [node.node.clone(), node.reasons.join(", "), short(node)];
        table.row(cells.iter().map(|cell| Cell::from(cell.as_str())).collect());
    }
    text.push('\n');
    text.push_str(&table.render(output.has_colour()));
}

fn tail(text: &mut String, whole: &Whole, ask: &Ask, output: &Output) -> std::fmt::Result {
    for note in &whole.answer.notes {
        writeln!(text, "\nNote: {}", clean(note))?;
    }
    for help in &whole.answer.help {
        writeln!(text, "\n{}: {} more would fit", clean(&help.change), help.admits)?;
    }
    for change in &whole.answer.changes {
        writeln!(text, "\nfilled in: {}", clean(change))?;
    }
    for shape in whole.answer.shapes.iter().flatten() {
        write!(text, "\n{}: {} placed, {} in a set", clean(&shape.name), shape.placed, shape.wanted)?;
        if shape.message.is_empty() {
            writeln!(text)?;
        } else {
            writeln!(text, "; {}", clean(&shape.message))?;
        }
    }
    let of = match &ask.shapes[..] {
        [one] if one.wanted == 1 => String::new(),
        [first, ..] => format!(" of {}", clean(&first.pod.metadata.name)),
        [] => String::new(),
    };
    what_if::render(text, &whole.what_if, &of, output)?;
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
