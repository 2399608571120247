//! `evenkeel completion`: what a shell needs to complete the command line.

use clap::CommandFactory;
use evenkeel_manual::CompletionArgs;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{Answer, print};

pub(crate) fn run(args: &CompletionArgs) -> Result<Answer, Failure> {
    print(&evenkeel_manual::completion(Cli::command(), args))?;
    Ok(Answer::Yes)
}
