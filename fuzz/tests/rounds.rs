//! Every reader is driven through a bounded number of mutated samples, the same in every run.

use std::panic::catch_unwind;

use evenkeel_fuzz::{Mutator, TARGETS};

/// Rounds of each reader; the program of this crate makes more.
const ROUNDS: u64 = 400;

#[test]
fn mutated_samples_break_no_reader() {
    for target in TARGETS {
        let samples = target.samples();
        assert!(!samples.is_empty(), "{}", target.name);
        samples.iter().for_each(|sample| target.run(sample));
        for round in 0..ROUNDS {
            let text = Mutator::new(&samples, 1, round).text();
            let held = catch_unwind(|| target.run(&text)).is_ok();
            assert!(held, "{}: seed 1, round {round}: {}", target.name, String::from_utf8_lossy(&text));
        }
    }
}

#[test]
fn a_round_gives_the_same_bytes_again_and_rounds_differ() {
    let samples = vec![b"series,t,value\na,1,2\n".to_vec()];
    let text = |round| Mutator::new(&samples, 1, round).text();
    assert_eq!(text(3), text(3));
    assert!((0..8).map(text).collect::<std::collections::HashSet<_>>().len() > 4);
}

#[test]
fn the_readers_of_libfuzzer_are_these() {
    let manifest = include_str!("../Cargo.toml");
    for target in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{}.rs\"", target.name)), "{}", target.name);
    }
    assert_eq!(manifest.matches("path = \"fuzz_targets/").count(), TARGETS.len());
}
