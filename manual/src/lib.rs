//! Manual pages and completions of the three programs, made of the text of their help.
//!
//! Owned here: the arguments of `man` and `completion`, a page for each command with sections as man-pages(7) has them, and
//! the completion scripts. Not owned: what the help says.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod page;

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, Command};
use clap_complete::Shell;

/// Arguments of `man`.
#[derive(Debug, Clone, Args)]
pub struct ManArgs {
    /// Write one page for each command into this directory, which is made if need be.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Arguments of `completion`.
#[derive(Debug, Clone, Args)]
pub struct CompletionArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Section of the manual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// Commands of users, 1.
    Users,
    /// Commands of administrators, and daemons, 8.
    Administrators,
}

impl Section {
    fn number(self) -> &'static str {
        match self {
            Section::Users => "1",
            Section::Administrators => "8",
        }
    }
}

/// The page of `command`, to be printed; none where the pages of all its commands were written to a directory.
///
/// # Errors
///
/// A file that cannot be written, with the error.
pub fn man(command: Command, section: Section, args: &ManArgs) -> Result<String, (PathBuf, io::Error)> {
    let command = built(command);
    let Some(dir) = &args.dir else {
        return page::render(&command, section, None).map_err(|error| (PathBuf::from("-"), error));
    };
    if !dir.exists() {
        std::fs::create_dir_all(dir)
            .and_then(|()| readable(dir, 0o755))
            .map_err(|error| (dir.clone(), error))?;
    }
    write(&command, section, None, dir)?;
    Ok(String::new())
}

/// The script with which a shell completes the words of `command`.
#[must_use]
pub fn completion(mut command: Command, args: &CompletionArgs) -> String {
    let (name, mut script) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// With names and global options in every command; `help` of commands has no page.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

/// Lets everybody read it: the daemons' own files are private.
fn readable(path: &Path, mode: u32) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// Writes the page of a command and those of its commands, named like `evenkeel-qos-explain.1`.
fn write(
    command: &Command,
    section: Section,
    parent: Option<&str>,
    dir: &Path,
) -> Result<(), (PathBuf, io::Error)> {
    let name = page::name(command);
    let path = dir.join(format!("{name}.{}", section.number()));
    let written = page::render(command, section, parent)
        .and_then(|text| std::fs::write(&path, text))
        .and_then(|()| readable(&path, 0o644));
    written.map_err(|error| (path, error))?;
    page::shown(command).try_for_each(|sub| write(sub, section, Some(name), dir))
}

#[cfg(test)]
mod tests;
