//! The commands, one file each: options, question, answer.

pub(crate) mod admit;
pub(crate) mod allocated;
pub(crate) mod backtest;
pub(crate) mod capacity;
pub(crate) mod check;
pub(crate) mod compare;
pub(crate) mod completion;
pub(crate) mod config;
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
pub(crate) mod series;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod usage;
pub(crate) mod version;

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
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    if cli.global.output == Format::Patch && !matches!(cli.command, Command::Recommend(_)) {
        let why = "only evenkeel recommend has something to carry out";
        return Err(Failure::usage("cannot print the answer", "-o patch", why, "choose another form"));
    }
    let output = Output::new(cli.global.output);
    let agent = Address::new(Peer::Agent, &cli.global.agent);
    let (token, ca, insecure) = (&cli.global.token_file, &cli.global.ca_file, cli.global.insecure);
    let trust = Trust { token: token.clone(), ca: ca.clone(), insecure, ..Trust::default() };
    let recommender = Address::new(Peer::Recommender, &cli.global.recommender).with_trust(trust);
    let peers = Peers { agent: &agent, recommender: &recommender };
    let answer = match cli.command {
        Command::Status(args) => block_on(status::run(&args, &agent, &output)),
        Command::Top(args) => block_on(top::run(&args, &agent, &output)),
        Command::Events(args) => block_on(events::run(&args, &peers, &output)),
        Command::Describe(args) => block_on(describe::run(&args, &agent, &output)),
        Command::Replay(args) => block_on(replay::run(&args, &agent, &output)),
        Command::Capacity(args) => block_on(capacity::run(&args, &recommender, &output)),
        Command::Snapshot(args) => snapshot::run(&args, &recommender, &output),
        Command::Admit(args) => block_on(admit::run(&args, &agent, &output)),
        Command::Recommend(args) => block_on(recommend::run(&args, &recommender, &output)),
        Command::Compare(args) => block_on(compare::run(&args, &recommender, &output)),
        Command::Policy(command) => block_on(policy::run(&command, &recommender, &output)),
        Command::Usage(args) => block_on(usage::run(&args, &peers, &output)),
        Command::Nodes(args) => block_on(nodes::run(&args, &recommender, &output)),
        Command::Namespaces(args) => block_on(namespaces::run(&args, &recommender, &output)),
        Command::Doctor(args) => block_on(doctor::run(&args, &peers, &output)),
        Command::Backtest(args) => backtest::run(&args, &recommender, &output),
        Command::Quantity(args) => quantity::run(&args, &output),
        Command::Check(args) => check::run(&args, &output),
        Command::Qos(command) => qos::run(&command, &output),
        Command::Config(args) => config::run(&args),
        Command::Completion(args) => completion::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Version(args) => version::run(&args, &output),
    };
    answer.map(ExitCode::from)
}
