//! The recommender's program: reads flags and configuration, then runs the library.

use std::process::ExitCode;

use clap::Parser;
use evenkeel_recommender::cli::{Cli, Command, config};
use evenkeel_recommender::{config::load, serve};

/// Exit status for a configuration that cannot be used (`EX_CONFIG` of sysexits(3)).
const BAD_CONFIGURATION: u8 = 78;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let sources = cli.flags.sources();
    if let Some(Command::Config { action }) = cli.command {
        return match config(action, &sources) {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error, BAD_CONFIGURATION),
        };
    }
    let config = match load(&sources) {
        Ok(config) => config,
        Err(error) => return failed(&error.into(), BAD_CONFIGURATION),
    };
    if let Err(error) = serve::logging(&cli.flags.log_level) {
        return failed(&error, BAD_CONFIGURATION);
    }
    match serve::run(&config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "the recommender ends");
            ExitCode::FAILURE
        }
    }
}

fn failed(error: &anyhow::Error, status: u8) -> ExitCode {
    eprintln!("evenkeel-recommender: {error:#}");
    ExitCode::from(status)
}
