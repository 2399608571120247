//! The command line of `evenkeel-agent`.
//!
//! Owned here: flags and subcommands, and which configuration key a flag stands for. Not owned: what they do.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::Flag;
use crate::parts::{Given, Part, probe::Victims};

/// Keeps the containers of this node on an even keel: scores, CPU and memory by their requests, pressure relieved before
/// the OOM killer has to, samples every second, streamed to a recommender.
///
/// Without a configuration it is a dry run: it finds containers, samples them and shows what it would set, and writes
/// nothing. To enforce, set mode = "enforce" in /etc/evenkeel/agent.toml, or EVENKEEL_AGENT_MODE=enforce.
#[derive(Debug, Parser)]
#[command(name = "evenkeel-agent", version, args_conflicts_with_subcommands = false)]
#[command(after_help = "Examples:
  evenkeel-agent --dry-run --once
  evenkeel-agent --dry-run --once -o json --manifests /etc/evenkeel/manifests
  evenkeel-agent --config /etc/evenkeel/agent.toml --default-mode enforce

Exit status: 0 done, 1 something failed, 2 wrong usage, 78 the configuration is wrong.")]
pub(crate) struct Args {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Configuration file [default: /etc/evenkeel/agent.toml, if it is there].
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Take the whole road and write nothing; with --once, show what would change.
    #[arg(long, global = true)]
    pub dry_run: bool,
    /// Mode where no file, variable or flag names one: enforce or dry-run. For service units and images.
    #[arg(long, value_name = "MODE", global = true)]
    pub default_mode: Option<String>,
    /// Find containers, bring them to their wish once, print what was done and end. A dry run needs no state directory and
    /// may run beside the service.
    #[arg(long)]
    pub once: bool,
    /// Output of --once, config and restore.
    #[arg(long, short, value_enum, default_value_t = Output::Table, global = true)]
    pub output: Output,
    /// Log lines as text or JSON.
    #[arg(long, value_enum, default_value_t = LogFormat::Text, global = true)]
    pub log_format: LogFormat,
    /// Least level that is logged: error, warn, info, debug, trace, or levels by target such as "info,evenkeel_enforce=debug".
    #[arg(long, default_value = "info", global = true)]
    pub log_level: String,
    /// Cluster name (node.cluster).
    #[arg(long, value_name = "NAME", global = true)]
    pub cluster: Option<String>,
    /// Node name (node.name).
    #[arg(long, value_name = "NAME", global = true)]
    pub node_name: Option<String>,
    /// Rule set (rules): proposal or kubelet.
    #[arg(long, value_name = "RULES", global = true)]
    pub rules: Option<String>,
    /// A missing permission is fatal at start (strict).
    #[arg(long, global = true)]
    pub strict: bool,
    /// Directory of journal, decisions and spool (state_dir).
    #[arg(long, value_name = "DIR", global = true)]
    pub state_dir: Option<PathBuf>,
    /// Unix socket of the service (serve.socket).
    #[arg(long, value_name = "PATH", global = true)]
    pub socket: Option<PathBuf>,
    /// Directory of Pod manifests (sources.manifests.dir).
    #[arg(long, value_name = "DIR", global = true)]
    pub manifests: Option<PathBuf>,
    /// Recommender's address; empty = no stream (stream.recommender).
    #[arg(long, value_name = "URL", global = true)]
    pub recommender: Option<String>,
    /// Address of /metrics; empty = off (serve.metrics).
    #[arg(long, value_name = "ADDR", global = true)]
    pub metrics: Option<String>,
}

/// What the agent does instead of running.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Command {
    /// Show, check or explain the configuration.
    #[command(after_help = "Examples:
  evenkeel-agent config validate
  EVENKEEL_MODE=enforce evenkeel-agent config show")]
    Config {
        /// What to do with it.
        #[command(subcommand)]
        action: ConfigAction,
    },
    /// Put back what knobs held before the agent first wrote them. Stop the agent first.
    #[command(after_help = "Examples:
  systemctl stop evenkeel-agent && evenkeel-agent restore
  evenkeel-agent restore -o json
  evenkeel-agent restore --purge")]
    Restore {
        /// Then remove everything the agent keeps: its state directory, its socket and its lock. Where something could not be put back, or
        /// the directory holds what the agent does not make, all of it stays.
        #[arg(long)]
        purge: bool,
    },
    /// Print the manual page, or write the pages of all commands to a directory.
    #[command(after_help = "Examples:
  evenkeel-agent man | man -l -
  evenkeel-agent man --dir /usr/local/share/man/man8")]
    Man(evenkeel_manual::ManArgs),
    /// Print the completion script of a shell.
    #[command(after_help = "Examples:
  evenkeel-agent completion bash > /etc/bash_completion.d/evenkeel-agent")]
    Completion(evenkeel_manual::CompletionArgs),
    /// Undo what the parent process leaves behind; started by the agent itself.
    #[command(hide = true)]
    Guardian {
        /// The agent has ended: undo what its ledgers have, and end. For service managers.
        #[arg(long)]
        ended: bool,
    },
    /// Be a part of the agent; started by the agent itself.
    #[command(hide = true)]
    Part {
        /// Which.
        part: Part,
        /// What it is told.
        #[command(flatten)]
        given: Given,
        /// Only try what it may do, and print what the kernel answers.
        #[arg(long)]
        probe: bool,
        /// On whom that is tried.
        #[command(flatten)]
        victims: Victims,
    },
}

/// What to do with the configuration.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum ConfigAction {
    /// The values in force, from files, environment and flags.
    #[command(after_help = "Examples:
  evenkeel-agent config show -o json")]
    Show,
    /// Check and say which files were read.
    #[command(
        alias = "check",
        after_help = "Examples:
  evenkeel-agent config validate --config agent.toml"
    )]
    Validate,
    /// Every key with its default and meaning.
    #[command(after_help = "Examples:
  evenkeel-agent config default > agent.toml")]
    Default,
    /// JSON schema of the file.
    #[command(after_help = "Examples:
  evenkeel-agent config schema > agent.schema.json")]
    Schema,
}

/// Form of what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Args {
    /// The flags of the log, for other processes of the agent.
    pub(crate) fn logging(&self) -> Vec<String> {
        let format = match self.log_format {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        };
        vec![format!("--log-level={}", self.log_level), format!("--log-format={format}")]
    }

    /// The configuration keys that flags set.
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let text = |name, key, value: &Option<String>| value.as_ref().map(|value| flag(name, key, value));
        let path = |name, key, value: &Option<PathBuf>| {
            value.as_ref().map(|value| flag(name, key, &value.to_string_lossy()))
        };
        let switch = |name, key, on: bool, value| on.then(|| flag(name, key, value));
        let default_mode = text("--default-mode", "mode", &self.default_mode);
        [
            default_mode.map(|mode| Flag { is_default: true, ..mode }),
            switch("--dry-run", "mode", self.dry_run, "dry-run"),
            switch("--strict", "strict", self.strict, "true"),
            text("--cluster", "node.cluster", &self.cluster),
            text("--node-name", "node.name", &self.node_name),
            text("--rules", "rules", &self.rules),
            path("--state-dir", "state_dir", &self.state_dir),
            path("--socket", "serve.socket", &self.socket),
            path("--manifests", "sources.manifests.dir", &self.manifests),
            text("--recommender", "stream.recommender", &self.recommender),
            text("--metrics", "serve.metrics", &self.metrics),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn flag(name: &str, key: &str, value: &str) -> Flag {
    Flag { name: name.to_owned(), key: key.to_owned(), value: value.to_owned(), is_default: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
        let args = Args::parse_from(["evenkeel-agent", "config", "show", "--dry-run", "--cluster", "a"]);
        let keys: Vec<String> = args.flags().into_iter().map(|flag| flag.key).collect();
        assert_eq!(keys, ["mode", "node.cluster"]);
    }

    /// They are what the manual pages show.
    #[test]
    fn every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(command.is_hide_set() || help.contains("Examples:"), "{}", command.get_name());
            command.get_subcommands().for_each(walk);
        }
        walk(&Args::command());
    }
}
