//! A real process, killed while it appends: everything it had declared durable is there afterwards.
//!
//! The test starts its own binary again as the writer, with the directory in the environment.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use evenkeel_log::{Log, LogError, Options, Seq};

const DIR: &str = "EVENKEEL_LOG_TEST_DIR";

fn options() -> Options {
    Options { segment_bytes: 16 << 10, max_bytes: 64 << 20, max_record_bytes: 4096, ..Options::default() }
}

fn payload(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat((seq % 97) as usize)
}

/// The writer: appends for ever and writes each durable sequence number to standard output.
#[test]
fn writer() {
    let Some(dir) = std::env::var_os(DIR) else { return };
    let (mut log, _) = Log::open(dir, options()).unwrap();
    loop {
        for _ in 0..20 {
            let next = log.last().map_or(1, |s| s.get() + 1);
            log.append(&payload(next)).unwrap();
        }
        let durable = log.sync().unwrap().map_or(0, Seq::get);
        writeln!(std::io::stdout(), "\ndurable {durable}").unwrap();
    }
}

/// Lets a writer run until it has declared `rounds` syncs, kills it, and returns the last number it declared.
fn run_and_kill(dir: &Path, rounds: usize) -> u64 {
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::writer", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut declared = lines.filter_map(|l| l.strip_prefix("durable ")?.parse().ok());
    let seen: u64 = declared.nth(rounds).unwrap();
    let error = Log::open(dir, options()).unwrap_err();
    assert!(matches!(error, LogError::Locked { holder: Some(pid), .. } if pid == writer.id()), "{error}");
    writer.kill().unwrap();
    // It may have declared more before the signal arrived.
    let last = declared.last().map_or(seen, |more| more.max(seen));
    writer.wait().unwrap();
    last
}

#[test]
fn what_a_killed_process_declared_durable_is_there() {
    let dir = tempfile::tempdir().unwrap();
    for rounds in [0, 3, 10, 25] {
        let declared = run_and_kill(dir.path(), rounds);
        let (log, recovery) = Log::open(dir.path(), options()).unwrap();
        assert!(recovery.next.get() > declared, "{declared}: {recovery:?}");
        let mut read = 0;
        for record in log.iter_from(Seq::FIRST) {
            let record = record.unwrap();
            read += 1;
            assert_eq!((record.seq.get(), record.payload), (read, payload(read)));
        }
        assert_eq!(read + 1, recovery.next.get());
    }
}
