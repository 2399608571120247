//! The recommender's program: reads flags and configuration, then runs the library.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use evenkeel_log::private;
use evenkeel_recommender::cli::{Cli, Command, ca, completion, config, man, store, token};
use evenkeel_recommender::{config::load, serve, webhook};

/// Exit status for a configuration that cannot be used (`EX_CONFIG` of sysexits(3)).
const BAD_CONFIGURATION: u8 = 78;

/// Something failed.
const FAILED: u8 = 1;

/// Wrong usage.
const BAD_USAGE: u8 = 2;

fn main() -> ExitCode {
    confine();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors. Nobody is left to tell when the terminal is closed.
            let _ignored = error.print();
            return if error.use_stderr() { ExitCode::from(BAD_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let sources = cli.flags.sources();
    match cli.command {
        Some(Command::Config { action }) => return told(config(action, &sources), BAD_CONFIGURATION),
        Some(Command::Token { action }) => return told_once(token(&action, &sources), FAILED, action.lost()),
        Some(Command::Ca { action }) => return told_once(ca(&action, &sources), FAILED, action.lost()),
        Some(Command::Store { action }) => return told_or_no(store(&action, &sources)),
        Some(Command::Man(asked)) => return told(man(&asked), FAILED),
        Some(Command::Completion(asked)) => return told(Ok(completion(&asked)), FAILED),
        Some(Command::Webhook) | None => {}
    }
    let config = match load(&sources) {
        Ok(config) => config,
        Err(error) => return failed(&error.into(), BAD_CONFIGURATION),
    };
    if let Err(error) = serve::logging(&cli.flags.log_level) {
        return failed(&error, BAD_CONFIGURATION);
    }
    let (ended, who) = match cli.command {
        Some(Command::Webhook) => (webhook::run(&config), "the webhook"),
        _ => (serve::run(&config, &sources), "the recommender"),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "{who} ends");
            ExitCode::FAILURE
        }
    }
}

/// Prints the answer of a command.
fn told(answer: anyhow::Result<String>, status: u8) -> ExitCode {
    told_once(answer, status, None)
}

/// The same; `lost` says what to do where the answer is told once and nobody read it.
fn told_once(answer: anyhow::Result<String>, status: u8, lost: Option<String>) -> ExitCode {
    let text = match answer {
        Ok(text) => text,
        Err(error) => return failed(&error, status),
    };
    let mut out = std::io::stdout().lock();
    match (writeln!(out, "{text}").and_then(|()| out.flush()), lost) {
        (Ok(()), _) => ExitCode::SUCCESS,
        // A pipe that closes early has read what it wanted.
        (Err(error), None) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        (Err(error), lost) => {
            let lost = lost.map_or_else(String::new, |lost| format!("; {lost}"));
            complain(&format!("cannot write the answer to standard output: {error}{lost}"));
            ExitCode::from(FAILED)
        }
    }
}

/// Prints an answer that may be no.
fn told_or_no(answer: anyhow::Result<(String, bool)>) -> ExitCode {
    let is_no = answer.as_ref().is_ok_and(|(_, is_yes)| !is_yes);
    let told = told(answer.map(|(text, _)| text), FAILED);
    if is_no { ExitCode::from(FAILED) } else { told }
}

fn failed(error: &anyhow::Error, status: u8) -> ExitCode {
    complain(&format!("{error:#}"));
    ExitCode::from(status)
}

/// Before anything is opened: what this process makes is its user's alone, and it gets no rights by running a program
/// (PR_SET_NO_NEW_PRIVS).
fn confine() {
    private::files_from_now_on();
    if let Err(errno) = nix::sys::prctl::set_no_new_privs() {
        complain(&format!("cannot set no_new_privs: {errno}; going on without"));
    }
}

fn complain(text: &str) {
    let text = text.split('\n').map(evenkeel_model::shown::plain).collect::<Vec<_>>().join("\n");
    // Nobody is left to tell when standard error is closed.
    let _ignored = writeln!(std::io::stderr().lock(), "evenkeel-recommender: {text}");
}
