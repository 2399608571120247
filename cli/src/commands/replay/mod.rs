//! `evenkeel replay`: every recorded decision made again from its own inputs.
//!
//! Owned here: the question and the answer. Not owned: the rules (`evenkeel-qos`) and where decisions are read from
//! (`read`).

mod read;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use evenkeel_qos::replay::{Replayed, replay};
use serde::Serialize;

use crate::client::Address;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, Tone};
use read::{Recorded, RecordedDecisions};

/// Make recorded decisions again from their own inputs, and tell which would come out differently.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel replay
  evenkeel events --follow -o json > events.json; evenkeel replay --from events.json
  evenkeel replay --from /var/lib/evenkeel/agent/decisions -o json

Exit status: 0 every decision comes out as recorded, 1 one differs.")]
pub(crate) struct ReplayArgs {
    /// Read decisions from a file as `evenkeel events -o json` prints them, from a directory copied from an agent, or
    /// with - from standard input; without this, from the running agent.
    #[arg(long, value_name = "FILE|DIR|-")]
    from: Option<PathBuf>,
}

/// The answer.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplayReport {
    /// Decisions read.
    decisions: u64,
    /// Those that come out as recorded.
    same: u64,
    /// Those that come out differently.
    differs: u64,
    /// Those with nothing to be made again, by why.
    skipped: BTreeMap<String, u64>,
    /// What could not be read at all, in words.
    unread: Vec<String>,
    /// Every difference.
    differences: Vec<Difference>,
}

/// A decision that comes out differently.
#[derive(Debug, Serialize)]
struct Difference {
    seq: u64,
    time: Option<String>,
    node: Option<String>,
    pod: Option<String>,
    container: Option<String>,
    kind: String,
    knob: Option<String>,
    recorded: String,
    now: String,
    reason: String,
    inputs: BTreeMap<String, String>,
}

pub(crate) async fn run(args: &ReplayArgs, agent: &Address, output: &Output) -> Result<YesOrNo, Failure> {
    let read = match &args.from {
        Some(path) => read::from_path(path)?,
        None => read::from_agent(agent).await?,
    };
    let report = report(read);
    output.answer_text(&report, || text(&report, output))?;
    Ok(if report.differs == 0 { YesOrNo::Yes } else { YesOrNo::No })
}

fn report(read: RecordedDecisions) -> ReplayReport {
    let mut report = ReplayReport { unread: read.unread, ..ReplayReport::default() };
    for recorded in read.decisions {
        report.decisions += 1;
        match replay(&recorded.decision) {
            Replayed::Same => report.same += 1,
            Replayed::NotADecision(why) => *report.skipped.entry(why).or_default() += 1,
            Replayed::Differs { recorded: was, now } => {
                report.differs += 1;
                report.differences.push(difference(recorded, was, now));
            }
        }
    }
    report
}

fn difference(of: Recorded, recorded: String, now: String) -> Difference {
    let Recorded { time, node, kind, decision } = of;
    Difference {
        seq: decision.seq,
        time,
        node,
        pod: decision.pod,
        container: decision.container,
        kind,
        knob: decision.knob,
        recorded,
        now,
        reason: decision.reason,
        inputs: decision.inputs,
    }
}

/// Counts first, then every difference; what was skipped only among all columns.
fn text(report: &ReplayReport, output: &Output) -> String {
    let mut counts = Table::new(&["DECISIONS", "SAME", "DIFFERENT", "NOTHING TO DECIDE"]);
    let tone = if report.differs == 0 { Tone::Good } else { Tone::Bad };
    let skipped: u64 = report.skipped.values().sum();
    counts.row(vec![
        report.decisions.to_string().into(),
        report.same.to_string().into(),
        Cell::toned(report.differs.to_string(), tone),
        skipped.to_string().into(),
    ]);
    let mut parts = vec![counts.render(output.has_colour())];
    if !report.differences.is_empty() {
        parts.push(differences(report, output.is_wide()).render(output.has_colour()));
    }
    if output.is_wide() && !report.skipped.is_empty() {
        let mut table = Table::new(&["COUNT", "NOTHING TO DECIDE BECAUSE IT"]);
        for (why, count) in &report.skipped {
            table.row(vec![count.to_string().into(), why.as_str().into()]);
        }
        parts.push(table.render(output.has_colour()));
    }
    if !report.unread.is_empty() {
        let mut table = Table::new(&["NOT READ"]);
        for what in &report.unread {
            table.row(vec![what.as_str().into()]);
        }
        parts.push(table.render(output.has_colour()));
    }
    parts.join("\n")
}

fn differences(report: &ReplayReport, wide: bool) -> Table {
    let mut titles = vec!["SEQ", "TIME", "POD", "CONTAINER", "KIND", "KNOB", "RECORDED", "NOW", "REASON"];
    if wide {
        titles.push("INPUTS");
    }
    let mut table = Table::new(&titles);
    for d in &report.differences {
        let known = |text: &Option<String>| Cell::from(text.as_deref().unwrap_or("-"));
        let mut row = vec![
            d.seq.to_string().into(),
            known(&d.time),
            known(&d.pod),
            known(&d.container),
            d.kind.as_str().into(),
            known(&d.knob),
            d.recorded.as_str().into(),
            Cell::toned(d.now.as_str(), Tone::Bad),
            d.reason.as_str().into(),
        ];
        if wide {
            let inputs: Vec<_> = d.inputs.iter().map(|(k, v)| format!("{k}={v}")).collect();
            row.push(inputs.join(" ").into());
        }
        table.row(row);
    }
    table
}
