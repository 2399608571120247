//! How fast traces are read and replayed: a year of 5-minute samples of 1,000 made-up series, on one core.

use std::fmt::Write;

use anyhow::{Context, Result};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::backtest::Schedule;
use evenkeel_rightsizing::backtest::replay::replay;
use evenkeel_rightsizing::backtest::score::{Score, Summary};
use evenkeel_rightsizing::backtest::trace::{TraceReader, TraceSample, TraceSeries};
use evenkeel_rightsizing::named::NamedRule;
use evenkeel_tests::chance::Chance;

use crate::figure::{Figure, Target};
use crate::run::Run;
use crate::usage::thread_time;

/// Series of the year, made and replayed so many at a time to spare memory.
const SERIES: u64 = 1_000;
const AT_ONCE: u64 = 50;
/// Samples of a year, one each five minutes.
const YEAR: u64 = 365 * 288;
/// Series in the text that is read.
const READ: usize = 50;
/// Bytes handed to the reader at once, as the command does.
const CHUNK: usize = 1 << 20;
/// The promises: seconds for the year, megabytes read in a second.
const YEAR_SECONDS: f64 = 10.0;
const LOAD_MEGABYTES: f64 = 100.0;

/// Both figures. CPU time of this thread is what counts: what else the machine does should not.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    run.say(&format!("{SERIES} series of a year are made up and replayed, {AT_ONCE} at a time"));
    let mut chance = Chance::of("backtest");
    let rule = NamedRule::default();
    let schedule = Schedule::default();
    let mut seconds = 0.0;
    let mut scores: Vec<Score> = Vec::new();
    let mut text = String::new();
    for part in 0..SERIES / AT_ONCE {
        run.check()?;
        let series: Vec<TraceSeries> =
            (0..AT_ONCE).map(|at| year(&mut chance, part * AT_ONCE + at)).collect();
        let begun = thread_time()?;
        scores.extend(series.iter().map(|one| replay(one, Resource::Cpu, &rule, &schedule).score));
        seconds += (thread_time()? - begun).as_secs_f64();
        if part == 0 {
            text = csv(&series[..READ])?;
        }
    }
    let summary = Summary::of(Resource::Cpu, &scores).context("nothing was judged")?;
    let speed = load(&text)?;
    Ok(vec![
        Figure::new("backtest/year-1000", seconds, "s", Target::AtMost(YEAR_SECONDS)).what(format!(
            "CPU time of one thread: {SERIES} series, {} requests set and judged by rule goal",
            summary.steps
        )),
        Figure::new("backtest/load", speed, "MB/s", Target::AtLeast(LOAD_MEGABYTES))
            .what(format!("{} MB of CSV read, checked and kept as series", text.len() / 1_000_000)),
    ])
}

/// A daily wave with noise, and rare bursts.
fn year(chance: &mut Chance, number: u64) -> TraceSeries {
    let base = 100_000 + chance.below(2_000_000);
    let sample = |at: u64| {
        let wave = base / 2 + base * (at / 12 % 24) / 24 + chance.below(base);
        let value = if chance.below(500) == 0 { 4 * wave } else { wave };
        TraceSample { time_ms: 1_600_000_000_000 + at * 300_000, value }
    };
    TraceSeries { name: format!("series-{number}"), samples: (0..YEAR).map(sample).collect() }
}

fn csv(series: &[TraceSeries]) -> Result<String> {
    let mut text = String::from("series,t,value\n");
    for one in series {
        for sample in &one.samples {
            writeln!(text, "{},{},{}", one.name, sample.time_ms / 1_000, sample.value as f64 / 1e6)?;
        }
    }
    Ok(text)
}

/// Megabytes a second.
fn load(text: &str) -> Result<f64> {
    let begun = thread_time()?;
    let mut reader = TraceReader::new(Resource::Cpu);
    for chunk in text.as_bytes().chunks(CHUNK) {
        reader.feed(chunk)?;
    }
    let series = reader.finish()?;
    let took = (thread_time()? - begun).as_secs_f64();
    anyhow::ensure!(series.len() == READ, "{} series were read", series.len());
    Ok(text.len() as f64 / 1e6 / took)
}
