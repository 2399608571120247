//! `evenkeel config`: the configuration of a daemon, as the daemon itself reads it.
//!
//! Each daemon owns its keys and defaults, so the question is handed to the daemon's own program, which lies beside
//! this one or on the path. Nothing is started but that question.

use std::path::PathBuf;
use std::process::Command;

use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::output::YesOrNo;

/// Show, check or explain the configuration of a daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel config default                       every key of the agent with its meaning
  evenkeel config validate --of recommender
  evenkeel config show --file /tmp/agent.toml
  evenkeel config schema > agent.schema.json")]
pub(crate) struct ConfigArgs {
    /// What to do.
    #[arg(value_enum)]
    action: ConfigAction,
    /// Whose configuration.
    #[arg(long, value_enum, value_name = "DAEMON", default_value = "agent")]
    of: Daemon,
    /// The file to read instead of the daemon's own.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ConfigAction {
    /// Every key with its default and meaning.
    Default,
    /// The JSON schema of the file.
    Schema,
    /// Read files and environment and say whether they are valid.
    #[value(alias = "check")]
    Validate,
    /// The values in force.
    Show,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Daemon {
    /// evenkeel-agent.
    Agent,
    /// evenkeel-recommender.
    Recommender,
}

impl Daemon {
    const fn program(self) -> &'static str {
        match self {
            Self::Agent => "evenkeel-agent",
            Self::Recommender => "evenkeel-recommender",
        }
    }
}

pub(crate) fn run(args: &ConfigArgs) -> Result<YesOrNo, Failure> {
    let action = match args.action {
        ConfigAction::Default => "default",
        ConfigAction::Schema => "schema",
        ConfigAction::Validate => "validate",
        ConfigAction::Show => "show",
    };
    let program = program(args.of.program());
    let mut command = Command::new(&program);
    if let Some(file) = &args.file {
        command.arg("--config").arg(file);
    }
    let status = command.args(["config", action]).status().map_err(|error| {
        Failure::new(
            "cannot ask the daemon's program",
            program.display().to_string(),
            error.to_string(),
            "install it beside evenkeel or on the path",
        )
    })?;
    Ok(if status.success() { YesOrNo::Yes } else { YesOrNo::No })
}

/// A program of ours: beside this one where it is installed so, else whatever the path has.
pub(crate) fn program(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(name)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}
