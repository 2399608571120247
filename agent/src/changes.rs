//! What one look at the node found, changed or would change: as a table for people and as JSON.
//!
//! Owned here: the two forms. Not owned: what is in them; everything comes from the board and the node's view.

use evenkeel_enforce::config::Mode;
use evenkeel_enforce::converge::State;
use evenkeel_enforce::converge::board::{Board, ContainerView, KnobView, NodeKnob};
use evenkeel_enforce::node::View;
use evenkeel_enforce::node::cap::CapView;
use evenkeel_enforce::node::daemons::{Daemon, DaemonState};
use evenkeel_model::shown;
use serde_json::{Value, json};

/// Titles of the table.
const TITLES: [&str; 6] = ["WHAT", "KNOB", "NOW", "WANTED", "STATE", "WHY"];

/// Everything, a line for each knob, with a sum at its end.
pub(crate) fn table(mode: Mode, board: &Board, node: &View) -> String {
    let mut rows: Vec<[String; 6]> = board.knobs().iter().map(node_row).collect();
    rows.extend(node.daemons().iter().map(daemon_row));
    let containers = board.containers();
    rows.extend(containers.iter().flat_map(|view| container_rows(view)));
    rows.extend(
        board
            .waiting()
            .into_iter()
            .map(|name| [name, dash(), dash(), dash(), "waiting".into(), "its cgroup does not exist".into()]),
    );
    let mut text = render(&rows);
    let wished = containers.iter().flat_map(|view| &view.knobs).filter(|knob| knob.state != State::Converged);
    let wished = wished.count() + node.daemons().iter().filter(|d| d.state != DaemonState::Protected).count();
    let managed = containers.iter().filter(|view| view.unmanaged.is_none()).count();
    text.push_str(&match mode {
        Mode::DryRun => format!(
            "\ndry run, nothing was written: {wished} values differ from what is wished for {managed} managed of {} containers and the node\n",
            containers.len()
        ),
        Mode::Enforce => format!("\n{managed} managed of {} containers; {wished} values are not as wished\n", containers.len()),
    });
    text
}

/// The node's part, in JSON.
pub(crate) fn node_json(board: &Board, node: &View) -> Value {
    let knobs: Vec<Value> = board
        .knobs()
        .iter()
        .map(|knob| json!({"name": knob.name, "state": knob.state, "why": knob.why, "remedy": knob.remedy}))
        .collect();
    let daemons: Vec<Value> = node.daemons().iter().map(daemon_json).collect();
    json!({"knobs": knobs, "daemons": daemons, "workloadsCap": node.cap().as_ref().map(cap_json)})
}

fn daemon_json(daemon: &Daemon) -> Value {
    json!({
        "name": daemon.name, "pid": daemon.pid, "foundBy": daemon.by, "cgroup": daemon.cgroup,
        "oomScoreAdj": {"wanted": daemon.wanted.get(), "actual": daemon.actual.map(|score| score.get())},
        "state": daemon.state.as_str(),
    })
}

fn cap_json(cap: &CapView) -> Value {
    json!({
        "cgroup": cap.cgroup, "state": cap.state, "why": cap.why, "capBytes": cap.cap.map(|cap| cap.get()),
        "reserveBytes": cap.reserve.get(), "insideBytes": cap.inside.get(), "outsideBytes": cap.outside.get(),
    })
}

fn dash() -> String {
    "-".to_owned()
}

fn node_row(knob: &NodeKnob) -> [String; 6] {
    let why =
        if knob.remedy.is_empty() { knob.why.clone() } else { format!("{}; {}", knob.why, knob.remedy) };
    ["node".into(), knob.name.into(), dash(), dash(), knob.state.into(), why]
}

fn daemon_row(daemon: &Daemon) -> [String; 6] {
    let why = match &daemon.state {
        DaemonState::Denied(why) => why.clone(),
        DaemonState::Managed(name) => format!("it is in the container {name}"),
        _ => format!("found by {}", daemon.by),
    };
    [
        format!("daemon {} (pid {})", daemon.name, daemon.pid),
        "oom_score_adj".into(),
        daemon.actual.map_or_else(dash, |score| score.to_string()),
        daemon.wanted.to_string(),
        daemon.state.as_str().into(),
        why,
    ]
}

fn container_rows(view: &ContainerView) -> Vec<[String; 6]> {
    let workload = &view.tracked.workload;
    let class = view.tracked.classes.memory.map_or("no class", |class| class.as_str());
    let name = format!("{}/{}/{} ({class})", workload.pod.namespace, workload.pod.name, workload.container);
    if let Some(why) = &view.unmanaged {
        return vec![[name, dash(), dash(), dash(), view.state.as_str().into(), why.clone()]];
    }
    view.knobs.iter().map(|knob| knob_row(&name, knob)).collect()
}

fn knob_row(name: &str, knob: &KnobView) -> [String; 6] {
    [
        name.to_owned(),
        knob.name().to_owned(),
        knob.actual.map_or_else(dash, |actual| actual.to_string()),
        knob.wanted.to_string(),
        knob.state.as_str().to_owned(),
        knob.reason.to_string(),
    ]
}

/// Columns as wide as their widest cell; characters that could steer a terminal are replaced.
fn render(rows: &[[String; 6]]) -> String {
    let rows: Vec<[String; 6]> = std::iter::once(TITLES.map(str::to_owned))
        .chain(rows.iter().cloned())
        .map(|row| row.each_ref().map(|cell| shown::plain(cell)))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_for_each_knob_and_a_sum() {
        let board = Board::default();
        board.show_knob(NodeKnob {
            name: "swap",
            state: "fail",
            why: "swap is on\u{1b}[2J".into(),
            remedy: "swapoff -a".into(),
        });
        let text = table(Mode::DryRun, &board, &View::default());
        assert_eq!(
            text,
            "WHAT  KNOB  NOW  WANTED  STATE  WHY\nnode  swap  -    -       fail   swap is on\u{fffd}[2J; swapoff -a\n\n\
             dry run, nothing was written: 0 values differ from what is wished for 0 managed of 0 containers and the node\n"
        );
        assert_eq!(node_json(&board, &View::default())["knobs"][0]["name"], "swap");
    }
}
