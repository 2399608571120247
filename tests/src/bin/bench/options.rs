//! The command line.

use anyhow::{Context, Result, bail};

use crate::catalog;

/// What is shown to who asks wrongly.
pub(crate) const USAGE: &str = "usage: scripts/bench [NAME...] [--list] [--json] [--seconds N] [--full]
  NAME          run what begins with it, such as converge or sample/agent-rss; everything without
  --list        show all figures and leave
  --json        print a list of objects on standard output; progress goes to standard error in any case
  --seconds N   length of each long measurement (60; short ones have their own)
  --full        as many trials as the promises name (1,000 for each kind of fork churn)";

/// What to do.
pub(crate) enum Asked {
    /// Measure.
    Run(Options),
    /// Show all figures.
    List {
        /// As JSON.
        json: bool,
    },
    /// Show the usage.
    Help,
}

/// What to measure and how long.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Beginnings of names; none means all.
    names: Vec<String>,
    /// Whether the result is for a program.
    pub(crate) json: bool,
    /// Length of a long measurement, seconds.
    pub(crate) seconds: u64,
    /// Long forms.
    pub(crate) full: bool,
}

impl Options {
    /// Whether a figure was asked for.
    pub(crate) fn wants(&self, figure: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|name| figure.starts_with(name.as_str()))
    }
}

/// Reads the arguments.
pub(crate) fn read(arguments: &[String]) -> Result<Asked> {
    let mut options = Options { names: Vec::new(), json: false, seconds: 60, full: false };
    let mut list = false;
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--json" => options.json = true,
            "--list" => list = true,
            "--full" => options.full = true,
            "--seconds" => {
                let text = rest.next().context("--seconds needs a number")?;
                options.seconds = text.parse().with_context(|| format!("not a number of seconds: {text}"))?;
            }
            "-h" | "--help" => return Ok(Asked::Help),
            option if option.starts_with('-') => bail!("no option {option}"),
            name if catalog::figures().any(|(figure, _)| figure.starts_with(name)) => {
                options.names.push(name.to_string());
            }
            name => bail!("no figure begins with {name}; --list shows them"),
        }
    }
    if !(1..=86_400).contains(&options.seconds) {
        bail!("--seconds takes 1 to 86400, not {}", options.seconds);
    }
    Ok(if list { Asked::List { json: options.json } } else { Asked::Run(options) })
}
