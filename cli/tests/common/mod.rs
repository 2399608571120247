//! Running the built program.

use std::io::Write;
use std::process::{Command, Stdio};

/// What a run came to.
#[derive(Debug)]
pub struct Run {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Run {
    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }
}

/// A run of `evenkeel` with these arguments, in an environment of its own.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.args(arguments).env_clear();
    command
}

/// Runs it to its end.
pub fn run(arguments: &[&str]) -> Run {
    finish(command(arguments).stdin(Stdio::null()))
}

/// Runs it with text on standard input.
pub fn run_with(arguments: &[&str], text: &str) -> Run {
    let mut command = command(arguments);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    match child.stdin.take().unwrap().write_all(text.as_bytes()) {
        // It may end without reading, where something else is wrong.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    into_run(child.wait_with_output().unwrap())
}

/// Runs a prepared command to its end.
pub fn finish(command: &mut Command) -> Run {
    into_run(command.output().unwrap())
}

fn into_run(output: std::process::Output) -> Run {
    Run {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}
