//! The program: command line, log, configuration, and the exit status.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use evenkeel_enforce::guardian;
use evenkeel_log::private;
use evenkeel_manual::{ManArgs, Section};
use evenkeel_model::shown::{Lines, LogLineFormat};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{Args, Command, ConfigAction, LogFormat, Output};
use crate::config::{self, ConfigError};

use crate::{machine, once, parts, restore, run};

/// Bad configuration (`EX_CONFIG` of sysexits.h): starting again would not help.
const BAD_CONFIGURATION: u8 = 78;
/// Wrong usage.
const BAD_USAGE: u8 = 2;

/// Runs the program to its end.
pub fn main() -> ExitCode {
    crate::allocator::stay_small();
    confine();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors. Nobody is left to tell when the terminal is closed.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(BAD_USAGE) } else { ExitCode::SUCCESS };
        }
    };
    if let Err(error) = start_log(&args) {
        complain(&format!("--log-level: {error}"));
        return ExitCode::from(BAD_USAGE);
    }
    crate::panics::install();
    match dispatch(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(Failure::Config(errors)) => {
            for error in errors {
                complain(&format!("bad configuration: {error}"));
            }
            ExitCode::from(BAD_CONFIGURATION)
        }
        Err(Failure::Other(error)) => {
            complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    Config(Vec<ConfigError>),
    Other(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl From<Vec<ConfigError>> for Failure {
    fn from(errors: Vec<ConfigError>) -> Self {
        Self::Config(errors)
    }
}

/// True when what was asked for was done.
fn dispatch(args: &Args) -> Result<bool, Failure> {
    let read = || config::read(args.config.as_deref(), &args.flags());
    match args.command.clone() {
        Some(Command::Config { action: ConfigAction::Default }) => {
            let raw = config::Raw::default();
            print(args, &config::toml(&raw), || config::json(&raw))?;
        }
        Some(Command::Config { action: ConfigAction::Schema }) => {
            let schema = config::schema::<config::Raw>();
            print(args, &format!("{schema:#}\n"), || schema.clone())?;
        }
        Some(Command::Config { action: ConfigAction::Show }) => {
            let (_, loaded) = read()?;
            print(args, &config::toml(&loaded.value), || config::json(&loaded.value))?;
        }
        Some(Command::Config { action: ConfigAction::Validate }) => {
            let (_, loaded) = read()?;
            let files: Vec<String> = loaded.files.iter().map(|file| file.display().to_string()).collect();
            let text = match files.as_slice() {
                [] => "valid; no file was read\n".to_owned(),
                files => format!("valid; read {}\n", files.join(", ")),
            };
            print(args, &text, || serde_json::json!({"valid": true, "files": files}))?;
        }
        Some(Command::Restore { purge }) => {
            return Ok(restore::run(&read()?.0.enforcing_unless_told(), args.output, purge)?);
        }
        Some(Command::Man(asked)) => write(&manual(&asked)?)?,
        Some(Command::Completion(asked)) => write(&evenkeel_manual::completion(Args::command(), &asked))?,
        Some(Command::Guardian { ended: true }) => {
            // A configuration that is wrong now is no reason to leave anything frozen.
            let config =
                read().map_or_else(|_| config::from_environment_alone(), |(config, _)| Ok(config))?;
            let _lock = machine::only_agent(&config)?;
            guardian::undo_left(&config.enforce)?;
        }
        Some(Command::Guardian { ended: false }) => {
            let config = config::from_environment_alone()?;
            crate::allocator::forget_code();
            guardian::run(&config.enforce)?;
        }
        Some(Command::Part { part, given, probe, victims }) => {
            parts::run(part, &given, &args.logging(), probe.then_some(&victims))?;
        }
        None if args.once => {
            let (config, loaded) = read()?;
            return Ok(once::run(config, config::json(&loaded.value), args.output)?);
        }
        None => {
            let read = || read().map(|(config, loaded)| (config, config::json(&loaded.value)));
            let (config, written) = read()?;
            run::daemon(config, written, &read, &args.logging())?;
        }
    }
    Ok(true)
}

fn manual(asked: &ManArgs) -> anyhow::Result<String> {
    evenkeel_manual::man(Args::command(), Section::Administrators, asked)
        .map_err(|(path, error)| anyhow::anyhow!("cannot write the manual page {}: {error}", path.display()))
}

/// Prints an answer, as it is.
///
/// # Errors
/// When it cannot be written. Whoever closes a pipe early has read what they wanted.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the answer to standard output"),
    }
}

/// Before anything is opened or started: what this process makes is its user's alone, and neither it nor what it
/// starts gets rights by running a program (PR_SET_NO_NEW_PRIVS).
fn confine() {
    private::files_from_now_on();
    if let Err(errno) = nix::sys::prctl::set_no_new_privs() {
        complain(&format!("cannot set no_new_privs: {errno}; going on without"));
    }
}

fn print(args: &Args, text: &str, json: impl Fn() -> serde_json::Value) -> anyhow::Result<()> {
    match args.output {
        Output::Table => write(text),
        Output::Json => write(&format!("{:#}\n", json())),
    }
}

/// Logs to standard error, where a service manager reads it.
fn start_log(args: &Args) -> Result<(), String> {
    let filter = evenkeel_settings::targets(&args.log_level)?;
    let form = match args.log_format {
        LogFormat::Text => LogLineFormat::Text { coloured: false },
        LogFormat::Json => LogLineFormat::Json,
    };
    let writer = move || Lines::new(std::io::stderr(), form);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match args.log_format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json()).try_init(),
    };
    started.map_err(|error| error.to_string())
}

fn complain(text: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(
        std::io::stderr().lock(),
        "evenkeel-agent: {}",
        text.split('\n').map(evenkeel_model::shown::plain).collect::<Vec<_>>().join("\n")
    );
}
