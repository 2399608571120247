//! The commands, one file each: options, question, answer.

pub(crate) mod admit;
pub(crate) mod allocated;
pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod ca;
pub(crate) mod capacity;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod dashboard;
pub(crate) mod describe;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod man;
pub(crate) mod namespaces;
pub(crate) mod nodes;
pub(crate) mod policy;
pub(crate) mod qos;
pub(crate) mod quantity;
pub(crate) mod recommend;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod series;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod support;
pub(crate) mod top;
pub(crate) mod uninstall;
pub(crate) mod updates;
pub(crate) mod usage;
pub(crate) mod version;

use std::path::PathBuf;
use std::process::ExitCode;

use evenkeel_proto::line::Trust;

use crate::args::{Cli, Command};
use crate::client::{Address, Peer, Peers, block_on};
use crate::failure::Failure;
use crate::output::{Format, Output};

/// Runs the command that was asked for.
///
/// # Errors
/// When it could not do its work.
pub(crate) fn run(mut cli: Cli) -> Result<ExitCode, Failure> {
    if let Some((form, why)) = impossible(cli.global.output, &cli.command) {
        return Err(Failure::usage("cannot print the answer", form, why, "choose another form"));
    }
    cli.global.keep_files()?;
    let output = Output::new(cli.global.output);
    let global = &cli.global;
    let trust = |token: &Option<PathBuf>| Trust {
        token: token.clone(),
        ca: global.ca_file.clone(),
        cert: global.cert_file.clone(),
        key: global.key_file.clone(),
        pair: None,
        name: None,
        insecure: global.insecure,
    };
    // What names a caller to one is not told to the other.
    let agent = Address::new(Peer::Agent, &global.agent).with_trust(trust(&global.agent_token_file));
    let recommender = Address::new(Peer::Recommender, &global.recommender)
        .with_trust(trust(&global.token_file))
        .with_kube_auth(global.kube_auth.clone());
    let peers = Peers { agent: &agent, recommender: &recommender };
    let answer = match cli.command {
        Command::Status(args) => block_on(status::run(&args, &peers, &output)),
        Command::Top(args) => block_on(top::run(&args, &peers, &output)),
        Command::Events(args) => block_on(events::run(&args, &peers, &output)),
        Command::Describe(args) => block_on(describe::run(&args, &peers, &output)),
        Command::Replay(args) => block_on(replay::run(&args, &agent, &output)),
        Command::Capacity(args) => capacity::run(&args, &recommender, &output),
        Command::Snapshot(args) => snapshot::run(&args, &recommender, &output),
        Command::Admit(args) => block_on(admit::run(&args, &agent, &output)),
        Command::Recommend(args) => block_on(recommend::run(&args, &recommender, &output)),
        Command::Compare(args) => block_on(compare::run(&args, &recommender, &output)),
        Command::Policy(command) => block_on(policy::run(&command, &recommender, &output)),
        Command::Usage(args) => block_on(usage::run(&args, &peers, &output)),
        Command::Audit(args) => block_on(audit::run(&args, &recommender, &output)),
        Command::Ca(command) => block_on(ca::run(&command, &recommender, &output)),
        Command::Nodes(args) => block_on(nodes::run(&args, &recommender, &output)),
        Command::Namespaces(args) => block_on(namespaces::run(&args, &recommender, &output)),
        Command::Updates(args) => block_on(updates::run(&args, &recommender, &output)),
        Command::Report(args) => block_on(report::run(&args, &peers, &output)),
        Command::Doctor(args) => block_on(doctor::run(&args, &peers, &output)),
        Command::Dashboard(args) => dashboard::run(&args, &recommender),
        Command::SupportBundle(args) => support::run(&args, global, &recommender, &output),
        Command::Backtest(args) => backtest::run(&args, &recommender, &output),
        Command::Quantity(args) => quantity::run(&args, &output),
        Command::Check(args) => check::run(&args, &output),
        Command::Qos(command) => qos::run(&command, &output),
        Command::Config(args) => config::run(&args),
        Command::Completion(args) => completion::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Uninstall(args) => uninstall::run(&args, &output),
        Command::Version(args) => version::run(&args, &output),
    };
    answer.map(ExitCode::from)
}

/// The form in which a command has no answer, and why.
fn impossible(format: Format, command: &Command) -> Option<(&'static str, &'static str)> {
    let is_series = matches!(command, Command::Usage(args) if args.is_series());
    let is_text = matches!(
        command,
        Command::Status(_)
            | Command::Describe(_)
            | Command::Replay(_)
            | Command::Qos(_)
            | Command::Backtest(_)
    );
    match format {
        Format::Patch if !matches!(command, Command::Recommend(_)) => {
            Some(("-o patch", "only evenkeel recommend has something to carry out"))
        }
        Format::Csv if is_text => Some(("-o csv", "it is not one table")),
        Format::Json if is_series => Some(("-o json", "a series is printed as CSV")),
        Format::Yaml if is_series => Some(("-o yaml", "a series is printed as CSV")),
        _ => None,
    }
}
