//! Where things lie: the repository, cargo's target directory, built programs, the fixtures' cache.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository's root directory, as it was when the tests were compiled.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_path_buf()
}

/// Directory of the programs built beside the running executable, such as `target/debug`.
///
/// # Errors
///
/// Fails when the running executable's path cannot be read.
pub fn programs() -> Result<PathBuf> {
    let executable = std::env::current_exe().context("cannot read the path of the running executable")?;
    let directory = executable.parent().context("the running executable has no directory")?;
    let above = directory.parent().filter(|_| directory.ends_with("deps"));
    Ok(above.unwrap_or(directory).to_path_buf())
}

/// A program of this workspace by its name, such as `evenkeel-agent`.
///
/// # Errors
///
/// Fails when it has not been built.
pub fn program(name: &str) -> Result<PathBuf> {
    let path = programs()?.join(name);
    if !path.is_file() {
        bail!("{} is not there: build it with cargo build --bins, or run scripts/test", path.display());
    }
    Ok(path)
}

/// Where to take the programs for guests from instead of from beside the tests.
const GUEST_PROGRAMS: &str = "EVENKEEL_GUEST_PROGRAMS";

/// A program of this workspace for a guest, optimised where `scripts/test` has built it so: an emulated processor takes
/// many times as long for one that is not.
///
/// # Errors
///
/// Fails when it has not been built.
pub fn program_for_guest(name: &str) -> Result<PathBuf> {
    let Some(directory) = std::env::var_os(GUEST_PROGRAMS) else { return program(name) };
    let path = Path::new(&directory).join(name);
    if !path.is_file() {
        bail!("{GUEST_PROGRAMS} has no {}: build it with cargo build --release --bins", path.display());
    }
    Ok(path)
}

/// A command that runs a program of this workspace without the variables that are meant for the tests: to a daemon each
/// `EVENKEEL_` variable is configuration.
///
/// # Errors
///
/// Fails when it has not been built.
pub fn command(name: &str) -> Result<Command> {
    let mut command = Command::new(program(name)?);
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("EVENKEEL_") {
            command.env_remove(variable);
        }
    }
    Ok(command)
}

/// Cache of the fixtures, kept between runs under cargo's target directory.
///
/// # Errors
///
/// Fails when it cannot be made.
pub fn cache(name: &str) -> Result<PathBuf> {
    let programs = programs()?;
    let target = programs.parent().unwrap_or(&programs);
    let path = target.join("fixtures").join(name);
    std::fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}
