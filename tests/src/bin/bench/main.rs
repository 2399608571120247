//! The measurements: what the agent costs, how fast a wrong score is put right, what the recommender takes in.
//!
//! Owns how each figure is come by; the targets are the promises the project makes of itself. Everything runs against
//! this machine's kernel, with the programs built beside this one, in cgroups and a directory of its own, and all of
//! it is taken away again, also when interrupted. It judges nothing but its own figures: where this machine cannot
//! give one, it says why instead.

mod ask;
mod backtest;
mod capacity;
mod catalog;
mod clock;
mod converge;
mod figure;
mod fleet;
mod ingest;
mod nursery;
mod options;
mod pair;
mod people;
mod pressure;
mod recommend;
mod run;
mod sample;
mod usage;
mod webhook;

use std::process::ExitCode;

use anyhow::Result;

use figure::Figure;
use options::{Asked, Options};
use run::Run;

/// Counts this process's allocations by thread, for the sampler's promise of none.
#[global_allocator]
static ALLOCATOR: sample::counting::Counting = sample::counting::Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == nursery::MODE) {
        return nursery::main();
    }
    let options = match options::read(&arguments) {
        Ok(Asked::Run(options)) => options,
        Ok(Asked::Help) => {
            println!("{}", options::USAGE);
            return ExitCode::SUCCESS;
        }
        Ok(Asked::List { json }) => {
            catalog::list(json);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error:#}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    match measure(&options) {
        Ok(figures) if figures.iter().any(|figure| figure.met() == Some(false)) => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs what was chosen, one after the other, and prints what came of it.
fn measure(options: &Options) -> Result<Vec<Figure>> {
    let run = Run::start(options)?;
    let mut figures = Vec::new();
    for bench in catalog::chosen(options) {
        figures.extend(bench.measure(&run));
        if run.interrupted() {
            break;
        }
    }
    figures.retain(|figure| options.wants(&figure.name));
    if options.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        print!("{}", figure::table(&figures));
    }
    if run.interrupted() {
        anyhow::bail!("interrupted; everything was cleaned up");
    }
    Ok(figures)
}
