//! `evenkeel completion`: what a shell needs to complete the command line.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{Answer, print};

/// Print the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel completion bash > /etc/bash_completion.d/evenkeel
  evenkeel completion zsh > \"${fpath[1]}/_evenkeel\"")]
pub(crate) struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionArgs) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "evenkeel", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Answer::Yes)
}
