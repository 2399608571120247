//! `evenkeel uninstall`: gives back what knobs held before the agents, then removes what is ours, or says who does.

mod admission;
mod host;
mod kubernetes;
mod nodes;
mod objects;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::snapshot::ServerArgs;
use crate::failure::Failure;
use crate::output::{Output, YesOrNo};
use crate::table::{Cell, Table, Tone};

/// Take Evenkeel away: give back what knobs held before it, then remove what is left of it.
///
/// On a host, the services are stopped, `evenkeel-agent restore` puts the originals back, and what remains for the package manager is
/// named. With --kubernetes, what the API server calls or applies for new pods goes first, and pods that wait for a gate are freed; agents end, a pod on each node restores it and removes the agent's state there, and every object of Evenkeel
/// is deleted: by its label app.kubernetes.io/part-of=evenkeel. Without --yes nothing is done, and what would be is shown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel uninstall
  sudo evenkeel uninstall --yes
  evenkeel uninstall --kubernetes
  evenkeel uninstall --kubernetes --context production --yes --crds")]
pub(crate) struct UninstallArgs {
    /// Do it.
    #[arg(long)]
    yes: bool,
    /// From a Kubernetes cluster instead of this host.
    #[arg(long)]
    kubernetes: bool,
    /// Namespace of its objects.
    #[arg(long, requires = "kubernetes", value_name = "NS", default_value = "evenkeel")]
    namespace: String,
    /// Restore the nodes, after what is called for new pods, and delete no other object: what runs before "helm uninstall" deletes them.
    #[arg(long, requires = "kubernetes", conflicts_with = "crds")]
    nodes_only: bool,
    /// Delete the definitions of evenkeel.dev, too, and with them every object of these kinds in all namespaces.
    #[arg(long, requires = "kubernetes")]
    crds: bool,
    /// Go on where nodes are not ready: what was set there stays.
    #[arg(long, requires = "kubernetes")]
    skip_unready: bool,
    /// How long all nodes together may take to be restored: 90s, 10m, 1h.
    #[arg(long, requires = "kubernetes", value_name = "TIME", default_value = "10m", value_parser = span)]
    timeout: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

fn span(text: &str) -> Result<Duration, String> {
    let seconds = |unit: char| match unit {
        's' => Some(1),
        'm' => Some(60),
        'h' => Some(3600),
        _ => None,
    };
    let parsed = text.char_indices().last().and_then(|(at, unit)| {
        let number: u64 = text[..at].parse().ok()?;
        number.checked_mul(seconds(unit)?)
    });
    parsed
        .map(Duration::from_secs)
        .ok_or_else(|| "write a whole number with s, m or h, such as 10m".to_owned())
}

pub(crate) fn run(args: &UninstallArgs, output: &Output) -> Result<YesOrNo, Failure> {
    let steps = if args.kubernetes { kubernetes::run(args)? } else { host::run(args.yes)? };
    output.answer_text(&steps, || text(&steps, args.yes, output))?;
    let failed = steps.iter().any(|step| step.result == StepResult::Failed);
    Ok(if failed { YesOrNo::No } else { YesOrNo::Yes })
}

/// Something that was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct UninstallStep {
    /// restore, stop, delete, keep.
    action: &'static str,
    /// A node, service, object or directory.
    what: String,
    result: StepResult,
    /// Why it failed or is left, and what to do.
    why: Option<String>,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StepResult {
    Done,
    WouldDo,
    Failed,
    /// For somebody else to do.
    Left,
}

impl UninstallStep {
    fn new(action: &'static str, what: impl Into<String>, result: StepResult) -> Self {
        Self { action, what: what.into(), result, why: None }
    }

    fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }
}

fn text(steps: &[UninstallStep], done: bool, output: &Output) -> String {
    let mut table = Table::new(&["ACTION", "WHAT", "RESULT", "WHY"]);
    for step in steps {
        let (word, tone) = match step.result {
            StepResult::Done => ("done", Tone::Good),
            StepResult::WouldDo => ("would-do", Tone::Warn),
            StepResult::Failed => ("failed", Tone::Bad),
            StepResult::Left => ("left", Tone::Faint),
        };
        let why = step.why.as_deref().unwrap_or("");
        table.row(vec![step.action.into(), step.what.as_str().into(), Cell::toned(word, tone), why.into()]);
    }
    let mut text = output.rendered(&table);
    if !done && !matches!(output.format(), crate::output::Format::Csv) {
        text.push_str("\nnothing was done: --yes does it\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(span("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(span("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "10", "m", "1.5m", "-1s", "10d", "18446744073709551615h", "1ä"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
