//! `evenkeel man`: manual pages, made from the same text as the help.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory};

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::{Answer, print};

/// Print the manual page, or write the pages of all commands to a directory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evenkeel man | man -l -
  evenkeel man --dir /usr/local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write one page for each command into this directory, which is made if need be.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ManArgs) -> Result<Answer, Failure> {
    let mut command = Cli::command();
    command.build();
    match &args.dir {
        None => print(&String::from_utf8_lossy(&page(&command, "evenkeel")?))?,
        Some(dir) => {
            std::fs::create_dir_all(dir).map_err(|e| unwritable(dir, &e))?;
            pages(&command, "evenkeel", dir)?;
        }
    }
    Ok(Answer::Yes)
}

/// Writes the page of a command and those of its subcommands, named like `evenkeel-qos-explain.1`.
fn pages(command: &Command, name: &str, dir: &Path) -> Result<(), Failure> {
    let path = dir.join(format!("{name}.1"));
    std::fs::write(&path, page(command, name)?).map_err(|e| unwritable(&path, &e))?;
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        pages(sub, &format!("{name}-{}", sub.get_name()), dir)?;
    }
    Ok(())
}

fn page(command: &Command, name: &str) -> Result<Vec<u8>, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).render(&mut page)?;
    Ok(page)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(
        "cannot write the manual page",
        path.display().to_string(),
        error.to_string(),
        "give a directory that can be written",
    )
}
