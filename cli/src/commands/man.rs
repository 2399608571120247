//! `evenkeel man`: manual pages, made from the same text as the help.

use clap::CommandFactory;
use evenkeel_manual::{ManArgs, Section};

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{YesOrNo, print};

pub(crate) fn run(args: &ManArgs) -> Result<YesOrNo, Failure> {
    let text = evenkeel_manual::man(Cli::command(), Section::Users, args).map_err(|(path, error)| {
        Failure::new(
            "cannot write the manual page",
            path.display().to_string(),
            error.to_string(),
            "give a directory that can be written",
        )
    })?;
    print(&text)?;
    Ok(YesOrNo::Yes)
}
