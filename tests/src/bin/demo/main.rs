//! The demonstration: recommender and agent with a store of their own, three containers of the three classes that
//! really burn CPU and hold memory, and what Evenkeel makes of them, as it happens.
//!
//! Owns the story it tells. Everything it shows is read from the running daemons or from the kernel. It starts
//! everything in a temporary directory and in cgroups of its own, and takes all of it away again, also when
//! interrupted.

mod ask;
mod clock;
mod house;
mod report;
mod show;
mod workloads;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use clock::Clock;
use show::Show;

const USAGE: &str = "usage: scripts/demo [--seconds N] [--keep] [--json]
  --seconds N   watch for N seconds (30)
  --keep        leave everything running and print the addresses; Ctrl-C ends it
  --json        end with one JSON object on standard output; what happens goes to standard error";

/// What was asked for.
#[derive(Debug, Clone, Copy)]
struct Options {
    seconds: u64,
    keep: bool,
    json: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match options(&arguments) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("error: {error}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn options(arguments: &[String]) -> Result<Option<Options>> {
    let mut options = Options { seconds: 30, keep: false, json: false };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--seconds" => {
                let text = rest.next().context("--seconds needs a number")?;
                options.seconds = text.parse().with_context(|| format!("not a number of seconds: {text}"))?;
            }
            "--keep" => options.keep = true,
            "--json" => options.json = true,
            "-h" | "--help" => return Ok(None),
            other => bail!("no option {other}"),
        }
    }
    if !(1..=86_400).contains(&options.seconds) {
        bail!("--seconds takes 1 to 86400, not {}", options.seconds);
    }
    Ok(Some(options))
}

fn run(options: Options) -> Result<()> {
    if !evenkeel_tests::machine::is_root() {
        bail!("the demonstration makes cgroups and containers, which needs root: sudo scripts/demo");
    }
    let clock = Clock::start()?;
    let mut show = Show::new(options.json);
    show.heading("starting recommender and agent, with a store of their own");
    let mut house = house::House::start(&mut show)?;
    let told = tell(options, &clock, &mut show, &mut house);
    show.heading("cleaning up");
    house.stop();
    match told? {
        Some(report) if options.json => println!("{}", serde_json::to_string_pretty(&report)?),
        Some(_) => {}
        None => bail!("interrupted; everything was cleaned up"),
    }
    Ok(())
}

/// The story itself; `None` when it was interrupted before there was anything to report.
fn tell(
    options: Options,
    clock: &Clock,
    show: &mut Show,
    house: &mut house::House,
) -> Result<Option<serde_json::Value>> {
    house.start_workloads(show)?;
    show.heading(&format!("watching for {} s", options.seconds));
    let mut asking = ask::Asking::connect(house)?;
    for second in 1..=options.seconds {
        if !clock.until(second) {
            return Ok(None);
        }
        show.decisions(&asking.new_decisions()?);
        if second == options.seconds || second % 5 == 0 {
            show.usage(&asking.usage()?);
        }
    }
    let report = report::gather(house, &mut asking)?;
    show.summary(&report);
    if options.keep {
        show.addresses(house);
        clock.until_interrupted();
    }
    Ok(Some(report))
}
