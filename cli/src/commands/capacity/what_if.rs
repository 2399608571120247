//! Answers to what-if options, for people.

use std::fmt::{Result, Write as _};

use evenkeel_capacity::question::ScenarioAnswers;
use evenkeel_capacity::scenario::{
    Addition, Compaction, DaemonAnswer, Defragmentation, Displaced, Mix, Move, Preemption,
};

use super::text::SHOWN;
use crate::output::Output;
use crate::table::{Cell, Table, clean};

/// Every answer that was asked for. `of` names the pod that answers about one pod are about, where there are several.
pub(super) fn render(text: &mut String, what_if: &ScenarioAnswers, of: &str, output: &Output) -> Result {
    if let Some(t) = &what_if.trials {
        let (trials, min, max, median) = (t.trials, t.min, t.max, t.median);
        writeln!(
            text,
            "\nOver {trials} ways in which ties fall: {min} to {max}{of}, in the middle {median}"
        )?;
    }
    if let Some(preemption) = &what_if.preempt {
        preempted(text, preemption, of)?;
    }
    for (what, lists) in [("lost", &what_if.lose), ("drained", &what_if.drain)] {
        displaced(text, what, lists)?;
    }
    if let Some(additions) = &what_if.add {
        added(text, additions, what_if.cheapest.as_ref(), output)?;
    }
    if let Some(daemon) = &what_if.daemonset {
        as_daemon(text, daemon, of)?;
    }
    if let Some(compaction) = &what_if.compact {
        compacted(text, compaction, output)?;
    }
    if let Some(plan) = &what_if.defrag {
        defragmented(text, plan, of, output)?;
    }
    if let Some(recommended) = &what_if.recommended {
        let (count, requests) = (recommended.count, recommended.requests);
        writeln!(text, "\nWith {requests} recommended requests in place of the present ones: {count} fit.")?;
    }
    Ok(())
}

fn preempted(text: &mut String, answer: &Preemption, of: &str) -> Result {
    let (count, without, victims) = (answer.count, answer.without, answer.victims.len());
    let end = if victims == 0 { "." } else { ":" };
    writeln!(
        text,
        "\nWith displacing: {count}{of} fit, {without} of them without; displaced {victims}{end}"
    )?;
    for victim in &answer.victims {
        let breaks = if victim.breaks_budget { ", breaks a disruption budget" } else { "" };
        let (pod, node) = (clean(&victim.pod), clean(&victim.node));
        writeln!(text, "\t{pod} on {node} (priority {}{breaks})", victim.priority)?;
    }
    Ok(())
}

fn added(text: &mut String, additions: &[Addition], mix: Option<&Mix>, output: &Output) -> Result {
    let mut table = Table::new(&["TYPE", "PER-NODE", "NODES", "PRICE"]);
    for addition in additions.iter().take(if output.is_wide() { usize::MAX } else { SHOWN }) {
        let nodes = addition.nodes.map_or("-".to_owned(), |nodes| nodes.to_string());
        let price = addition.price.map_or("-".to_owned(), |price| format!("{price:.4}"));
        let cells = [addition.r#type.clone(), addition.per_node.to_string(), nodes, price];
        table.row(cells.iter().map(|cell| Cell::from(cell.as_str())).collect());
    }
    let more = additions.first().map_or(0, |addition| addition.pods);
    writeln!(text, "\nNodes to add for {more} more:")?;
    text.push_str(&table.render(output.has_colour()));
    let Some(mix) = mix.filter(|mix| !mix.nodes.is_empty()) else { return Ok(()) };
    let nodes: Vec<String> =
        mix.nodes.iter().map(|(name, count)| format!("{count} {}", clean(name))).collect();
    let (nodes, price, bound) = (nodes.join(", "), mix.price, mix.lower_bound);
    writeln!(text, "Cheapest mix: {nodes} for {price:.4}; nothing below {bound:.4} would do")
}

fn as_daemon(text: &mut String, daemon: &DaemonAnswer, of: &str) -> Result {
    let (fits, nodes) = (daemon.fits, daemon.nodes);
    writeln!(text, "\nAs a daemon the pod{of} fits on {fits} of the {nodes} nodes it belongs to.")?;
    for refusal in &daemon.refused {
        writeln!(text, "\t{}: {}", clean(&refusal.node), clean(&refusal.reasons.join(", ")))?;
    }
    Ok(())
}

fn compacted(text: &mut String, plan: &Compaction, output: &Output) -> Result {
    let (nodes, found, bound) = (plan.nodes, plan.found, plan.bound);
    writeln!(text, "\nThe pods of {nodes} nodes would fit on {found}; fewer than {bound} cannot hold them.")?;
    if !plan.emptied.is_empty() {
        let emptied: Vec<&str> = plan.emptied.iter().map(String::as_str).collect();
        writeln!(text, "Emptied: {}", clean(&emptied.join(", ")))?;
    }
    moved(text, &plan.moves, output)
}

fn defragmented(text: &mut String, plan: &Defragmentation, of: &str, output: &Output) -> Result {
    if plan.moves.is_empty() {
        return writeln!(text, "\nNo few moves make room for more than {}{of}.", plan.before);
    }
    let (moves, before, after) = (plan.moves.len(), plan.before, plan.after);
    writeln!(text, "\nAfter {moves} moves {after}{of} fit, not {before}:")?;
    moved(text, &plan.moves, output)
}

/// Moves in their order.
fn moved(text: &mut String, moves: &[Move], output: &Output) -> Result {
    let shown = if output.is_wide() { moves.len() } else { SHOWN.min(moves.len()) };
    for one in &moves[..shown] {
        let bare = if one.bare { " (nobody makes it anew)" } else { "" };
        writeln!(text, "\t{} from {} to {}{bare}", clean(&one.pod), clean(&one.from), clean(&one.to))?;
    }
    if shown < moves.len() {
        writeln!(text, "\tand {} more moves; -o wide shows all", moves.len() - shown)?;
    }
    Ok(())
}

fn displaced(text: &mut String, what: &str, lists: &[Displaced]) -> Result {
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
