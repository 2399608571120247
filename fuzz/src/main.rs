//! Drives one reader, or all of them, through so many rounds of mutated samples: for longer runs than the tests make. It
//! also writes the samples, for libFuzzer to begin from.

use std::path::Path;
use std::process::ExitCode;

use evenkeel_fuzz::{Mutator, TARGETS, Target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments.as_slice() {
        ["samples", name, dir] => write_samples(name, Path::new(dir)),
        _ => rounds(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn chosen(name: &str) -> Result<Vec<Target>, String> {
    let chosen: Vec<_> = TARGETS.into_iter().filter(|target| name == "all" || target.name == name).collect();
    if chosen.is_empty() { Err(usage()) } else { Ok(chosen) }
}

fn usage() -> String {
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    format!("evenkeel-fuzz all|{} [ROUNDS [SEED]] | samples TARGET DIRECTORY", names.join("|"))
}

fn rounds(arguments: &[&str]) -> Result<(), String> {
    let number = |at: usize, default: u64| match arguments.get(at) {
        Some(text) => text.parse().map_err(|_| usage()),
        None => Ok(default),
    };
    let (rounds, seed) = (number(1, 100_000)?, number(2, 0)?);
    for target in chosen(arguments.first().copied().unwrap_or("all"))? {
        let samples = target.samples();
        for round in 0..rounds {
            let text = Mutator::new(&samples, seed, round).text();
            if std::panic::catch_unwind(|| target.run(&text)).is_err() {
                let shown = String::from_utf8_lossy(&text);
                return Err(format!("{}: seed {seed}, round {round}: {shown}", target.name));
            }
        }
        println!("{}: {rounds} rounds", target.name);
    }
    Ok(())
}

/// Writes each sample of a reader to a file of its own.
fn write_samples(name: &str, dir: &Path) -> Result<(), String> {
    for target in chosen(name)? {
        for (number, sample) in target.samples().into_iter().enumerate() {
            let path = dir.join(format!("{}-{number}", target.name));
            std::fs::write(&path, sample).map_err(|error| format!("write {}: {error}", path.display()))?;
        }
    }
    Ok(())
}
