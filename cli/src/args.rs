//! The command line: global options, subcommands, and how wrong usage is told.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::Resettable;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::commands;
use crate::failure::Failure;
use crate::input;
use crate::output::Format;

/// Ask Evenkeel: offline questions about pods and quantities, and questions to a running agent or recommender.
#[derive(Debug, Parser)]
#[command(name = "evenkeel", version, propagate_version = false, arg_required_else_help = true)]
#[command(after_help = "Examples:
  evenkeel quantity -- 129M 123Mi 1.5 300m
  evenkeel qos explain -f pod.yaml -o json
  evenkeel check -f manifests/*.yaml
  evenkeel doctor
  evenkeel status

Exit status: 0 done, 1 the answer is no or something failed, 2 wrong usage.")]
pub(crate) struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Global {
    /// How to print the answer.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// Address of the agent: unix:///PATH, https://HOST:PORT or http://HOST:PORT.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_AGENT",
        hide_env_values = true,
        default_value = "unix:///run/evenkeel/agent.sock",
        value_name = "ADDR"
    )]
    pub(crate) agent: String,
    /// Address of the recommender: unix:///PATH, https://HOST:PORT or http://HOST:PORT.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_RECOMMENDER",
        hide_env_values = true,
        default_value = "unix:///run/evenkeel/recommender.sock",
        value_name = "ADDR"
    )]
    pub(crate) recommender: String,
    /// File with your token, for a recommender at an address; its socket needs none.
    #[arg(long, global = true, env = "EVENKEEL_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Ask the recommender as the user of a kubeconfig (KUBECONFIG, ~/.kube/config), in its current context or this one: the user's
    /// token is sent, or without one the certificate shown, and no other. For a recommender with kubernetes.enabled.
    #[arg(
        long,
        global = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        value_name = "CONTEXT"
    )]
    pub(crate) kube_auth: Option<String>,
    /// File with the token of an agent at an address (serve.token); its socket needs none.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_AGENT_TOKEN_FILE",
        hide_env_values = true,
        value_name = "FILE"
    )]
    pub(crate) agent_token_file: Option<PathBuf>,
    /// File with the authorities of the other side's certificate, PEM, for https://.
    #[arg(long, global = true, env = "EVENKEEL_CA_FILE", hide_env_values = true, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// File with your certificate, PEM, where it names you to the other side.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_CERT_FILE",
        hide_env_values = true,
        requires = "key_file",
        value_name = "FILE"
    )]
    pub(crate) cert_file: Option<PathBuf>,
    /// File with its key, PEM.
    #[arg(
        long,
        global = true,
        env = "EVENKEEL_KEY_FILE",
        hide_env_values = true,
        requires = "cert_file",
        value_name = "FILE"
    )]
    pub(crate) key_file: Option<PathBuf>,
    /// Send the token over a network without encryption.
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Status(commands::status::StatusArgs),
    Top(commands::top::TopArgs),
    Events(commands::events::EventsArgs),
    Describe(commands::describe::DescribeArgs),
    Replay(commands::replay::ReplayArgs),
    Admit(commands::admit::AdmitArgs),
    Capacity(Box<commands::capacity::CapacityArgs>),
    Backtest(commands::backtest::BacktestArgs),
    Snapshot(commands::snapshot::SnapshotArgs),
    Recommend(commands::recommend::RecommendArgs),
    Compare(commands::compare::CompareArgs),
    #[command(subcommand)]
    Policy(commands::policy::PolicyCommand),
    Usage(commands::usage::UsageArgs),
    Nodes(commands::nodes::NodesArgs),
    #[command(subcommand)]
    Ca(commands::ca::CaCommand),
    Audit(commands::audit::AuditArgs),
    Namespaces(commands::namespaces::NamespacesArgs),
    Updates(commands::updates::UpdatesArgs),
    Report(commands::report::ReportArgs),
    Dashboard(commands::dashboard::DashboardArgs),
    Doctor(commands::doctor::DoctorArgs),
    SupportBundle(commands::support::SupportArgs),
    Quantity(commands::quantity::QuantityArgs),
    Check(commands::check::CheckArgs),
    #[command(subcommand)]
    Qos(commands::qos::QosCommand),
    Config(commands::config::ConfigArgs),
    Uninstall(commands::uninstall::UninstallArgs),
    /// Print the completion script of a shell.
    #[command(after_help = "Examples:
  evenkeel completion bash > /etc/bash_completion.d/evenkeel
  evenkeel completion zsh > \"${fpath[1]}/_evenkeel\"")]
    Completion(evenkeel_manual::CompletionArgs),
    /// Print the manual page, or write the pages of all commands to a directory.
    #[command(after_help = "Examples:
  evenkeel man | man -l -
  evenkeel man --dir /usr/local/share/man/man1")]
    Man(evenkeel_manual::ManArgs),
    Version(commands::version::VersionArgs),
}

/// Parses the command line.
///
/// # Errors
/// The exit status, when there is nothing left to do: help was printed, or wrong usage was told.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    parsed(std::env::args_os()).map_err(|error| {
        if error.use_stderr() && asks_for_json(std::env::args()) {
            return usage_failure(&error).report(Format::Json);
        }
        // A closed pipe is no reason to fail.
        let _ = error.print();
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// Name under which kubectl finds a plugin that is called as `kubectl evenkeel` (kubernetes.io, "Extend kubectl with
/// plugins").
const PLUGIN: &str = "kubectl-evenkeel";

fn parsed(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let program = arguments.first().and_then(|program| Path::new(program).file_name());
    let mut command = Cli::command();
    let is_plugin = program.is_some_and(|program| program == PLUGIN);
    if is_plugin {
        command = command.bin_name(PLUGIN.replace('-', " "));
    }
    let mut matches = command.clone().try_get_matches_from(&arguments).map_err(|error| {
        // Help is no error.
        let own = error.use_stderr().then(|| without_environment(&command, &arguments)).flatten();
        own.unwrap_or(error)
    })?;
    let mut cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))?;
    if is_plugin {
        cli.global.ask_as_kubectl();
    }
    Ok(cli)
}

/// The error of the arguments alone: the usage in clap's errors shows what a variable of the environment gives as if the command
/// demanded it. None where the environment is what is wrong.
fn without_environment(command: &clap::Command, arguments: &[OsString]) -> Option<clap::Error> {
    let command = command.clone().mut_args(|arg| arg.env(Resettable::Reset));
    command.try_get_matches_from(arguments).err()
}

impl Global {
    /// Keeps what of tokens and certificates can be read once alone.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn keep_files(&mut self) -> Result<(), Failure> {
        let files = [
            &mut self.token_file,
            &mut self.agent_token_file,
            &mut self.ca_file,
            &mut self.cert_file,
            &mut self.key_file,
        ];
        files.into_iter().try_for_each(input::keep)
    }

    /// Whoever calls a plugin of kubectl asks as the user that kubectl would: with the kubeconfig's credential, where nothing else
    /// names the caller and the line is encrypted.
    fn ask_as_kubectl(&mut self) {
        let is_named = self.token_file.is_some() || self.cert_file.is_some() || self.kube_auth.is_some();
        if !is_named && self.recommender.starts_with("https://") {
            self.kube_auth = Some(String::new());
        }
    }
}

/// Whether the arguments, which could not be parsed, ask for JSON.
fn asks_for_json(arguments: impl Iterator<Item = String>) -> bool {
    let arguments: Vec<String> = arguments.take_while(|a| a != "--").collect();
    let apart = arguments.windows(2).any(|w| (w[0] == "-o" || w[0] == "--output") && w[1] == "json");
    apart || arguments.iter().any(|a| a == "-ojson" || a == "-o=json" || a == "--output=json")
}

/// Wrong usage in the form of every other failure.
fn usage_failure(error: &clap::Error) -> Failure {
    let text = error.to_string();
    // Up to the blank line before the usage text, which the remedy stands for.
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|l| !l.is_empty()).collect();
    let message = lines.join(" ");
    let why = message.strip_prefix("error: ").unwrap_or(&message);
    Failure::usage("wrong usage", "command line", why, "see evenkeel --help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wish_for_json_is_seen_before_parsing() {
        let asks = |line: &str| asks_for_json(line.split(' ').map(str::to_owned));
        for line in
            ["evenkeel -o json x", "evenkeel x --output json", "evenkeel -ojson", "evenkeel --output=json"]
        {
            assert!(asks(line), "{line}");
        }
        for line in ["evenkeel", "evenkeel -o yaml", "evenkeel quantity -- -o json"] {
            assert!(!asks(line), "{line}");
        }
    }

    #[test]
    fn a_plugin_of_kubectl_asks_as_its_user() {
        let asks = |line: &str| parsed(line.split(' ').map(OsString::from)).unwrap().global.kube_auth;
        let own = Some(String::new());
        for (line, want) in [
            ("/bin/kubectl-evenkeel nodes --recommender https://r:1", own.clone()),
            ("/bin/kubectl-evenkeel nodes --recommender https://r:1 --kube-auth=two", Some("two".to_owned())),
            ("/bin/kubectl-evenkeel nodes --recommender https://r:1 --token-file t", None),
            ("/bin/kubectl-evenkeel nodes --recommender https://r:1 --cert-file c --key-file k", None),
            // Nothing of it is told to whoever listens there, or reads on the way.
            ("/bin/kubectl-evenkeel nodes --recommender http://127.0.0.1:1", None),
            ("/bin/kubectl-evenkeel nodes --recommender unix:///r.sock", None),
            ("/bin/evenkeel nodes --recommender https://r:1", None),
            ("/bin/evenkeel nodes --recommender https://r:1 --kube-auth", own),
        ] {
            assert_eq!(asks(line), want, "{line}");
        }
    }

    /// Help of every command gives an example.
    #[test]
    fn every_command_has_an_example() {
        fn walk(command: &clap::Command) {
            if command.get_subcommands().next().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("Examples:"), "{} has no example", command.get_name());
            }
            command.get_subcommands().for_each(walk);
        }
        walk(&Cli::command());
    }
}
