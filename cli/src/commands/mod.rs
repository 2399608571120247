//! The commands, one file each: options, question, answer.

pub(crate) mod check;
pub(crate) mod completion;
pub(crate) mod man;
pub(crate) mod qos;
pub(crate) mod quantity;
pub(crate) mod version;

use std::process::ExitCode;

use crate::args::{Cli, Command};
use crate::failure::Failure;
use crate::output::Output;

/// Runs the command that was asked for.
///
/// # Errors
/// When it could not do its work.
pub(crate) fn run(cli: Cli) -> Result<ExitCode, Failure> {
    let output = Output::new(cli.global.output);
    let answer = match cli.command {
        Command::Quantity(args) => quantity::run(&args, &output),
        Command::Check(args) => check::run(&args, &output),
        Command::Qos(command) => qos::run(&command, &output),
        Command::Completion(args) => completion::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Version(args) => version::run(&args, &output),
    };
    answer.map(ExitCode::from)
}
