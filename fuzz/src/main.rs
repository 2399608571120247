//! Drives one reader, or all of them, through so many rounds of mutated samples: for longer runs than the tests make.

use std::process::ExitCode;

use evenkeel_fuzz::{Mutator, TARGETS};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| match arguments.get(at) {
        Some(text) => text.parse().ok(),
        None => Some(default),
    };
    let name = arguments.first().map_or("all", String::as_str);
    let chosen: Vec<_> = TARGETS.iter().filter(|target| name == "all" || target.name == name).collect();
    let (Some(rounds), Some(seed), false) = (number(1, 100_000), number(2, 0), chosen.is_empty()) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("evenkeel-fuzz all|{} [ROUNDS [SEED]]", names.join("|"));
        return ExitCode::FAILURE;
    };
    for target in chosen {
        let samples = target.samples();
        for round in 0..rounds {
            let text = Mutator::new(&samples, seed, round).text();
            if std::panic::catch_unwind(|| target.run(&text)).is_err() {
                eprintln!("{}: seed {seed}, round {round}: {}", target.name, String::from_utf8_lossy(&text));
                return ExitCode::FAILURE;
            }
        }
        println!("{}: {rounds} rounds", target.name);
    }
    ExitCode::SUCCESS
}
