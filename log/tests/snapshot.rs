//! Reading a log that somebody else has open, or that is a copy with pieces missing.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;

use evenkeel_log::{Log, Options, Snapshot};
use tempfile::tempdir;

fn numbers(snapshot: Snapshot) -> Vec<u64> {
    snapshot.map(|r| r.unwrap().seq.get()).collect()
}

#[test]
fn an_open_log_is_read_without_touching_it() {
    let dir = tempdir().unwrap();
    let options = Options { segment_bytes: 128, max_bytes: 4096, max_record_bytes: 64, ..Options::default() };
    let (mut log, _) = Log::open(dir.path(), options).unwrap();
    for n in 0..20_u8 {
        log.append(&[n; 30]).unwrap();
    }
    log.flush().unwrap();
    let mut before: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let snapshot = Snapshot::open(dir.path()).unwrap();
    assert_eq!(snapshot.torn(), []);
    let records: Vec<_> = snapshot.map(Result::unwrap).collect();
    assert_eq!(records.len(), 20);
    assert!(records.iter().zip(0_u8..).all(|(r, n)| r.payload == [n; 30] && r.seq.get() == u64::from(n) + 1));
    let mut after: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    before.sort();
    after.sort();
    assert_eq!(before, after);
    log.append(b"more").unwrap();
}

#[test]
fn gaps_and_torn_ends_leave_the_rest_readable() {
    let dir = tempdir().unwrap();
    let options = Options { segment_bytes: 128, max_bytes: 4096, max_record_bytes: 64, ..Options::default() };
    let (mut log, _) = Log::open(dir.path(), options).unwrap();
    for n in 0..6_u8 {
        log.append(&[n; 30]).unwrap();
    }
    log.flush().unwrap();
    drop(log);
    let mut segments: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    segments.retain(|p| p.extension().is_some_and(|e| e == "seg"));
    segments.sort();
    assert_eq!(segments.len(), 3);
    fs::remove_file(&segments[1]).unwrap();
    let last = fs::OpenOptions::new().write(true).open(&segments[2]).unwrap();
    last.set_len(last.metadata().unwrap().len() - 1).unwrap();
    let snapshot = Snapshot::open(dir.path()).unwrap();
    assert_eq!(snapshot.torn().len(), 1);
    assert_eq!(snapshot.torn()[0].path, segments[2]);
    assert_eq!(numbers(snapshot), [1, 2, 5]);
}

#[test]
fn no_directory_is_an_error_and_an_empty_one_is_empty() {
    let dir = tempdir().unwrap();
    assert!(Snapshot::open(dir.path().join("none")).is_err());
    assert_eq!(numbers(Snapshot::open(dir.path()).unwrap()), Vec::<u64>::new());
}
