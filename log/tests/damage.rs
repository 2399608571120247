//! Torn, flipped, missing and foreign bytes: the longest valid prefix is recovered, the rest is told and kept aside,
//! and the log goes on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_log::{DamageOutcome, DamageReason, Log, LogError, Options, Recovery, Seq};
use tempfile::TempDir;

const RECORDS: u64 = 12;

/// A temporary directory in memory where there is one: thousands of openings, each with its syncs, take minutes on a
/// busy disk, and what these tests are about does not depend on it.
fn tempdir() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

fn options() -> Options {
    Options { segment_bytes: 128, max_bytes: 4096, max_record_bytes: 100, ..Options::default() }
}

fn payload(n: u64) -> Vec<u8> {
    let len = (n * 7 % 23) as usize;
    (0..len).map(|i| (n as u8).wrapping_mul(31).wrapping_add(i as u8)).collect()
}

/// A log of several segments, and its segment files with the numbers of the records in each and where those end.
fn build(dir: &Path) -> Vec<(PathBuf, Vec<(u64, usize)>)> {
    let (mut log, _) = Log::open(dir, options()).unwrap();
    for n in 1..=RECORDS {
        log.append(&payload(n)).unwrap();
    }
    log.sync().unwrap();
    drop(log);
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "seg"));
    paths.sort();
    let mut next = 1;
    let layout: Vec<_> = paths
        .into_iter()
        .map(|path| {
            let (len, mut at, mut records) = (fs::metadata(&path).unwrap().len() as usize, 32, Vec::new());
            while at < len {
                at += 16 + payload(next).len();
                records.push((next, at));
                next += 1;
            }
            (path, records)
        })
        .collect();
    assert_eq!(next, RECORDS + 1);
    assert!(layout.len() >= 3);
    layout
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Opens a damaged copy; checks that exactly the first `expected` records are there, that the log goes on after them,
/// and that it is clean from then on.
fn recovers(dir: &Path, expected: u64, what: &str) -> Recovery {
    let (mut log, recovery) = Log::open(dir, options()).unwrap();
    let check = |log: &Log, upto: u64| {
        let read: Vec<_> = log.iter_from(Seq::FIRST).map(|r| r.expect(what)).collect();
        assert_eq!(read.len() as u64, upto, "{what}: {recovery:?}");
        for (record, n) in read.iter().zip(1..) {
            assert_eq!((record.seq.get(), &record.payload), (n, &payload(n)), "{what}");
        }
    };
    assert_eq!((recovery.records, recovery.next.get()), (expected, expected + 1), "{what}");
    check(&log, expected);
    for n in expected + 1..expected + 9 {
        assert_eq!(log.append(&payload(n)).expect(what).get(), n, "{what}");
    }
    log.sync().unwrap();
    drop(log);
    let (log, again) = Log::open(dir, options()).unwrap();
    assert!(again.is_clean(), "{what}: {again:?}");
    check(&log, expected + 8);
    recovery
}

#[test]
fn cut_at_every_byte() {
    let whole = tempdir().unwrap();
    for (path, records) in build(whole.path()) {
        let len = fs::metadata(&path).unwrap().len() as usize;
        let before = records[0].0 - 1;
        for cut in 0..len {
            let dir = tempdir().unwrap();
            copy(whole.path(), dir.path());
            let target = dir.path().join(path.file_name().unwrap());
            fs::File::options().write(true).open(&target).unwrap().set_len(cut as u64).unwrap();
            let whole_ones = records.iter().filter(|(_, end)| *end <= cut).count() as u64;
            let recovery = recovers(dir.path(), before + whole_ones, &format!("{target:?} cut at {cut}"));
            let clean_cut = cut == 32 || records.iter().any(|(_, end)| *end == cut);
            let is_last = records.last().unwrap().0 == RECORDS;
            assert_eq!(recovery.is_clean(), clean_cut && is_last, "{recovery:?}");
        }
    }
}

#[test]
fn flip_every_byte() {
    let whole = tempdir().unwrap();
    for (path, records) in build(whole.path()) {
        let bytes = fs::read(&path).unwrap();
        let before = records[0].0 - 1;
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80, 0xff] {
                let dir = tempdir().unwrap();
                copy(whole.path(), dir.path());
                let target = dir.path().join(path.file_name().unwrap());
                let mut bad = bytes.clone();
                bad[at] ^= flip;
                fs::write(&target, bad).unwrap();
                let whole_ones =
                    if at < 32 { 0 } else { records.iter().filter(|(_, end)| *end <= at).count() as u64 };
                let what = format!("{target:?} byte {at} ^ {flip:#x}");
                let recovery = recovers(dir.path(), before + whole_ones, &what);
                assert!(!recovery.is_clean());
                assert!(
                    recovery.damage.iter().all(|d| matches!(d.outcome, DamageOutcome::SetAside(_))),
                    "{recovery:?}"
                );
            }
        }
    }
}

/// On a log that was trimmed, where an older value of the pointer would be wrong.
#[test]
fn cut_or_flip_the_trim_pointer_at_every_byte() {
    let whole = tempdir().unwrap();
    let layout = build(whole.path());
    let first = Seq::new(layout[1].1[0].0).unwrap();
    let (mut log, _) = Log::open(whole.path(), options()).unwrap();
    assert_eq!(log.trim_to(first.prev().unwrap()).unwrap().segments, 1);
    drop(log);
    let head = fs::read(whole.path().join("head")).unwrap();
    let check = |bytes: &[u8], what: String| {
        let dir = tempdir().unwrap();
        copy(whole.path(), dir.path());
        fs::write(dir.path().join("head"), bytes).unwrap();
        let (mut log, recovery) = Log::open(dir.path(), options()).unwrap();
        assert_eq!((recovery.first, recovery.next.get()), (Some(first), RECORDS + 1), "{what}: {recovery:?}");
        assert_eq!(log.iter_from(first).filter(Result::is_ok).count() as u64, recovery.records);
        log.append(b"more").unwrap();
        log.sync().unwrap();
        drop(log);
        assert!(Log::open(dir.path(), options()).unwrap().1.is_clean(), "{what}");
        let repaired = fs::read(dir.path().join("head")).unwrap();
        assert_eq!((repaired.len(), &repaired[..512]), (1024, &repaired[512..]), "{what}");
    };
    // A slot uses its first 36 bytes; the padding is not looked at.
    for at in (0..36).chain(512..548) {
        let mut bad = head.clone();
        bad[at] ^= 0x10;
        check(&bad, format!("byte {at}"));
        check(&head[..at], format!("cut at {at}"));
    }
    check(&[0xaa; 1024], "both slots".to_owned());
}

#[test]
fn each_kind_of_damage_is_named() {
    type Harm = fn(&mut Vec<u8>);
    let table: [(Harm, DamageReason, u64); 8] = [
        (|b| b.truncate(5), DamageReason::TornHeader, 0),
        (|b| b[0] ^= 1, DamageReason::Header, 0),
        (|b| b.truncate(b.len() - 1), DamageReason::TornRecord, 0),
        (|b| b.extend([0; 100]), DamageReason::Zeros, 100),
        (|b| b.extend([9; 3]), DamageReason::TornRecord, 3),
        (|b| b[40] ^= 2, DamageReason::Sequence { expected: Seq::FIRST, found: 3 }, 0),
        (|b| b[35] = 0x7f, DamageReason::Length { bytes: 0x7f00_0007 }, 0),
        (|b| b[50] ^= 1, DamageReason::Checksum, 0),
    ];
    for (harm, reason, bytes) in table {
        let dir = tempdir().unwrap();
        let path = build(dir.path())[0].0.clone();
        let mut content = fs::read(&path).unwrap();
        harm(&mut content);
        fs::write(&path, content).unwrap();
        let (_, recovery) = Log::open(dir.path(), options()).unwrap();
        let first = &recovery.damage[0];
        assert_eq!((first.reason, &first.path), (reason, &path));
        assert!(bytes == 0 || first.bytes == bytes);
        let text = first.to_string();
        assert!(text.contains("not recovered") && text.contains(&path.display().to_string()), "{text}");
    }
}

#[test]
fn garbage_after_a_whole_segment_costs_no_record() {
    let dir = tempdir().unwrap();
    let path = build(dir.path())[0].0.clone();
    let mut content = fs::read(&path).unwrap();
    content.extend([1; 40]);
    fs::write(&path, content).unwrap();
    let recovery = recovers(dir.path(), RECORDS, "garbage");
    let DamageOutcome::SetAside(kept) = &recovery.damage[0].outcome else { panic!("{recovery:?}") };
    assert_eq!(fs::read(kept).unwrap(), [1; 40]);
}

#[test]
fn a_missing_segment_ends_the_prefix() {
    let dir = tempdir().unwrap();
    let layout = build(dir.path());
    fs::remove_file(&layout[1].0).unwrap();
    let kept: Vec<_> = layout[2..].iter().map(|(path, _)| fs::read(path).unwrap()).collect();
    let recovery = recovers(dir.path(), layout[1].1[0].0 - 1, "missing");
    assert_eq!(recovery.damage.len(), kept.len());
    for (damage, content) in recovery.damage.iter().zip(kept) {
        assert_eq!(damage.reason, DamageReason::Gap { expected: Seq::new(layout[1].1[0].0).unwrap() });
        let DamageOutcome::SetAside(aside) = &damage.outcome else { panic!("{damage}") };
        assert_eq!(fs::read(aside).unwrap(), content);
    }
}

#[test]
fn a_missing_oldest_segment_leaves_nothing_before_the_gap() {
    let dir = tempdir().unwrap();
    let layout = build(dir.path());
    fs::remove_file(&layout[0].0).unwrap();
    let recovery = recovers(dir.path(), 0, "oldest missing");
    assert_eq!(recovery.damage.len(), layout.len() - 1);
    assert!(recovery.damage.iter().all(|d| d.reason == DamageReason::Gap { expected: Seq::FIRST }));
}

#[test]
fn without_the_trim_pointer_the_oldest_segment_found_is_the_first() {
    let dir = tempdir().unwrap();
    let layout = build(dir.path());
    fs::remove_file(&layout[0].0).unwrap();
    fs::remove_file(dir.path().join("head")).unwrap();
    let (log, recovery) = Log::open(dir.path(), options()).unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    assert_eq!((recovery.first, recovery.next.get()), (Seq::new(layout[1].1[0].0), RECORDS + 1));
    assert_eq!(log.iter_from(Seq::FIRST).filter(Result::is_ok).count() as u64, recovery.records);
}

#[test]
fn all_segments_missing_still_does_not_reuse_what_was_trimmed() {
    let dir = tempdir().unwrap();
    let layout = build(dir.path());
    let (mut log, _) = Log::open(dir.path(), options()).unwrap();
    log.trim_to(Seq::new(layout[1].1[0].0).unwrap().prev().unwrap()).unwrap();
    drop(log);
    layout[1..].iter().for_each(|(path, _)| fs::remove_file(path).unwrap());
    let (log, recovery) = Log::open(dir.path(), options()).unwrap();
    assert_eq!(recovery.next.get(), layout[1].1[0].0);
    assert!(!recovery.is_clean() && log.first().is_none());
}

#[test]
fn a_stray_overlapping_segment_does_not_cost_the_rest() {
    let dir = tempdir().unwrap();
    let layout = build(dir.path());
    let stray = dir.path().join("00000000000000000002.seg");
    fs::copy(&layout[1].0, &stray).unwrap();
    let recovery = recovers(dir.path(), RECORDS, "stray");
    assert!(matches!(recovery.damage[0].reason, DamageReason::Overlap { .. }));
    assert!(!stray.exists());
}

#[test]
fn whole_records_of_another_segment_are_not_accepted() {
    let (one, other) = (tempdir().unwrap(), tempdir().unwrap());
    let (path, _) = build(one.path())[1].clone();
    let theirs = fs::read(&build(other.path())[1].0).unwrap();
    let mut mixed = fs::read(&path).unwrap();
    assert_eq!(mixed.len(), theirs.len());
    // The same numbers and payloads at the same place, but written to another segment.
    mixed[32..].copy_from_slice(&theirs[32..]);
    fs::write(&path, &mixed).unwrap();
    let (_, recovery) = Log::open(one.path(), options()).unwrap();
    assert_eq!(recovery.damage[0].reason, DamageReason::Checksum);
    assert_eq!(recovery.damage[0].offset, 32);
}

#[test]
fn a_record_damaged_while_open_is_reported_by_the_reader() {
    let dir = tempdir().unwrap();
    let layout = build(dir.path());
    let (log, _) = Log::open(dir.path(), options()).unwrap();
    let mut bytes = fs::read(&layout[1].0).unwrap();
    bytes[45] ^= 4;
    fs::write(&layout[1].0, bytes).unwrap();
    let read: Vec<_> = log.iter_from(Seq::FIRST).collect();
    assert_eq!(read.len() as u64, layout[1].1[0].0);
    let error = read.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(error, LogError::Damaged { offset: 32, .. }), "{error}");
}

#[test]
fn what_is_kept_aside_is_bounded() {
    let dir = tempdir().unwrap();
    build(dir.path());
    let bounded = Options { quarantine_files: 2, quarantine_bytes: 60, ..options() };
    let aside = || {
        let mut sizes: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap())
            .filter(|e| e.path().extension().is_some_and(|x| x == "corrupt"))
            .map(|e| e.metadata().unwrap().len())
            .collect();
        sizes.sort_unstable();
        sizes
    };
    for garbage in [10, 20, 30, 40, 61] {
        let mut paths: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
        paths.retain(|p| p.extension().is_some_and(|e| e == "seg"));
        let path = paths.iter().max().unwrap();
        let mut bytes = fs::read(path).unwrap();
        bytes.extend(vec![1; garbage]);
        fs::write(path, bytes).unwrap();
        let (_, recovery) = Log::open(dir.path(), bounded.clone()).unwrap();
        assert_eq!(recovery.damage.len(), 1);
        let discarded = matches!(recovery.damage[0].outcome, DamageOutcome::Discarded(_));
        assert_eq!(discarded, garbage == 61);
        let expected: &[u64] = match garbage {
            10 => &[10],
            20 => &[10, 20],
            30 => &[20, 30],
            _ => &[40],
        };
        assert_eq!(aside(), expected, "after {garbage}");
    }
}
