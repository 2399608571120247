//! Single placings for people: where each pod goes, and the scores it goes there by.

use evenkeel_capacity::answer::{CapacityAnswer, StepAnswer};

use super::text::SHOWN;
use crate::output::Output;
use crate::table::{Cell, Table};

/// The placings that were asked for; nothing where none were.
pub(super) fn render(text: &mut String, answer: &CapacityAnswer, output: &Output) {
    if let Some(sequence) = &answer.sequence {
        let mut table = Table::new(&["PLACING", "NODE"]);
        for (at, node) in sequence.iter().enumerate() {
            table.row(vec![(at + 1).to_string().into(), node.as_str().into()]);
        }
        text.push_str("\nPlacings in order:\n");
        text.push_str(&table.render(output.has_colour()));
    }
    for (at, step) in answer.steps.iter().flatten().enumerate() {
        text.push_str(&format!("\nPlacing {}: {}\n", at + 1, outcome(step)));
        if !step.feasible.is_empty() {
            text.push_str(&scores(step, output).render(output.has_colour()));
        }
        let left = step.feasible.len().saturating_sub(shown(output));
        if left > 0 {
            text.push_str(&format!("and {left} more nodes; -o wide shows all\n"));
        }
    }
}

fn outcome(step: &StepAnswer) -> String {
    let (feasible, refused) = (step.feasible.len(), step.infeasible.len());
    match &step.best[..] {
        [] => format!("none of {refused} nodes takes it"),
        [best] => format!("{best}, of {feasible} nodes that take it ({refused} do not)"),
        [best, ties @ ..] => {
            format!("{best}, tied with {}, of {feasible} nodes that take it ({refused} do not)", ties.len())
        }
    }
}

fn shown(output: &Output) -> usize {
    if output.is_wide() { usize::MAX } else { SHOWN }
}

/// Nodes by their total, the highest first, with the weighted score of each plugin.
fn scores(step: &StepAnswer, output: &Output) -> Table {
    let mut nodes: Vec<_> = step.feasible.iter().collect();
    nodes.sort_by_key(|(name, score)| (std::cmp::Reverse(score.total), *name));
    let keys = nodes.first().into_iter().flat_map(|(_, score)| score.weighted.keys());
    let plugins: Vec<&str> = keys.map(AsRef::as_ref).collect();
    let mut table = Table::new(&[&["NODE", "TOTAL"], &plugins[..]].concat());
    for (name, score) in nodes.into_iter().take(shown(output)) {
        let mut row = vec![Cell::from(name.as_str()), score.total.to_string().into()];
        row.extend(
            plugins
                .iter()
                .map(|plugin| Cell::from(score.weighted.get(*plugin).map_or("-".into(), i64::to_string))),
        );
        table.row(row);
    }
    table
}
