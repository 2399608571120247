//! `evenkeel completion`: what a shell needs to complete the command line.

use clap::CommandFactory;
use evenkeel_manual::CompletionArgs;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{YesOrNo, print};

pub(crate) fn run(args: &CompletionArgs) -> Result<YesOrNo, Failure> {
    print(&evenkeel_manual::completion(Cli::command(), args))?;
    Ok(YesOrNo::Yes)
}
