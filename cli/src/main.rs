//! `evenkeel`: offline questions, and questions to a running agent or recommender.
//!
//! Owned here: turning an exit status out of an answer. Not owned: the commands (`commands`), their options
//! (`args`), how answers and failures look (`output`, `failure`).

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod args;
mod client;
mod cluster;
mod commands;
mod failure;
mod input;
mod machine;
mod output;
mod table;
mod units;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    match args::parse() {
        Ok(cli) => {
            let format = cli.global.output;
            commands::run(cli).unwrap_or_else(|failure| failure.report(format))
        }
        Err(exit) => exit,
    }
}
