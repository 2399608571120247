//! The ordinary life of a log, through its public surface only.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fs;
use std::path::Path;

use evenkeel_log::{Log, LogError, LogRecord, MAX_RECORD_BYTES, Options, Overflow, Seq, Trimmed};
use tempfile::tempdir;

fn small() -> Options {
    Options { segment_bytes: 256, max_bytes: 1024, max_record_bytes: 100, ..Options::default() }
}

fn open(dir: &Path, options: Options) -> Log {
    let (log, recovery) = Log::open(dir, options).unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    log
}

fn seq(n: u64) -> Seq {
    Seq::new(n).unwrap()
}

fn read(log: &Log, from: u64) -> Vec<LogRecord> {
    log.iter_from(seq(from)).map(Result::unwrap).collect()
}

fn payloads(log: &Log) -> Vec<Vec<u8>> {
    read(log, 1).into_iter().map(|r| r.payload).collect()
}

fn segments(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".seg"))
        .collect();
    names.sort();
    names
}

#[test]
fn a_new_log_is_empty_and_counts_from_one() {
    let dir = tempdir().unwrap();
    let mut log = open(&dir.path().join("a/b"), Options::default());
    assert_eq!((log.first(), log.last(), log.durable()), (None, None, None));
    assert_eq!(log.append(b"").unwrap(), Seq::FIRST);
    assert_eq!(log.append_vectored(&[b"x", b"", b"yz"]).unwrap(), seq(2));
    assert_eq!(read(&log, 1), [], "nothing is flushed yet");
    assert_eq!(log.flush().unwrap(), Some(seq(2)));
    assert_eq!(log.durable(), None, "flushed is not durable");
    assert_eq!(payloads(&log), [b"".to_vec(), b"xyz".to_vec()]);
    assert_eq!(log.sync().unwrap(), Some(seq(2)));
    assert_eq!((log.first(), log.last(), log.durable()), (Some(seq(1)), Some(seq(2)), Some(seq(2))));
}

#[test]
fn what_was_appended_is_there_after_reopening() {
    let dir = tempdir().unwrap();
    for round in 0..5_u8 {
        let (mut log, recovery) = Log::open(dir.path(), small()).unwrap();
        assert_eq!(recovery.records, u64::from(round) * 3);
        assert_eq!(log.durable(), log.last(), "everything recovered is durable");
        for i in 0..3 {
            log.append(&[round, i]).unwrap();
        }
        assert_eq!(recovery.next.get() + 3, log.last().unwrap().get() + 1);
    }
    let log = open(dir.path(), small());
    let expected: Vec<_> = (0..5).flat_map(|r| (0..3).map(move |i| vec![r, i])).collect();
    assert_eq!(payloads(&log), expected);
    assert_eq!(read(&log, 15), [LogRecord { seq: seq(15), payload: vec![4, 2] }]);
    assert_eq!(read(&log, 16), []);
    assert!(segments(dir.path()).len() > 1);
}

#[test]
fn a_reader_follows_the_writer_over_segments() {
    let dir = tempdir().unwrap();
    let mut log = open(dir.path(), small());
    let mut reader = log.iter_from(Seq::FIRST);
    assert!(reader.next().is_none());
    for i in 0..12_u8 {
        log.append(&[i; 40]).unwrap();
        if i % 4 > 0 {
            // The first record of a segment makes room by writing those before it.
            assert!(reader.next().is_none(), "buffered records are not seen");
        }
        log.flush().unwrap();
        assert_eq!(
            reader.next().unwrap().unwrap(),
            LogRecord { seq: seq(u64::from(i) + 1), payload: vec![i; 40] }
        );
    }
    assert!(reader.next().is_none());
}

#[test]
fn a_reader_overtaken_by_a_trim_goes_on_at_the_oldest_record() {
    let dir = tempdir().unwrap();
    let mut log = open(dir.path(), small());
    for i in 0..12 {
        log.append(&[i; 40]).unwrap();
    }
    log.sync().unwrap();
    let mut reader = log.iter_from(Seq::FIRST);
    assert_eq!(reader.next().unwrap().unwrap().seq, seq(1));
    log.trim_to(seq(9)).unwrap();
    let first = log.first().unwrap();
    let rest: Vec<_> = reader.collect();
    // The open segment may still be read to its end; then the jump is told once.
    let told = rest.iter().filter(|r| matches!(r, Err(LogError::Trimmed { first: f, .. }) if *f == first));
    assert_eq!(told.count(), 1);
    assert_eq!(rest.last().unwrap().as_ref().unwrap().seq, seq(12));
    let ok: Vec<_> = rest.iter().flatten().map(|r| r.seq).collect();
    assert!(ok.is_sorted());
}

#[test]
fn trim_deletes_whole_segments_and_never_reuses_numbers() {
    let dir = tempdir().unwrap();
    let mut log = open(dir.path(), small());
    for i in 0..12 {
        log.append(&[i; 40]).unwrap(); // 4 records of 56 bytes in a segment
    }
    log.sync().unwrap();
    assert_eq!(segments(dir.path()).len(), 3);
    assert_eq!(log.trim_to(seq(3)).unwrap(), Trimmed::default());
    assert_eq!(log.trim_to(seq(4)).unwrap(), Trimmed { segments: 1, bytes: 256 });
    assert_eq!(log.first(), Some(seq(5)));
    assert_eq!(
        log.trim_to(seq(1000)).unwrap().segments,
        2,
        "the full active segment is closed and deleted too"
    );
    assert_eq!((log.first(), log.last()), (None, Some(seq(12))));
    assert_eq!(log.bytes(), 32);
    drop(log);
    let mut log = open(dir.path(), small());
    assert_eq!((log.first(), log.last(), log.durable()), (None, Some(seq(12)), Some(seq(12))));
    assert_eq!(log.append(b"x").unwrap(), seq(13));
}

#[test]
fn trimmed_segments_that_come_back_or_vanish_do_no_harm() {
    let dir = tempdir().unwrap();
    let mut log = open(dir.path(), small());
    for i in 0..12 {
        log.append(&[i; 40]).unwrap();
    }
    log.sync().unwrap();
    let names = segments(dir.path());
    let old = fs::read(dir.path().join(&names[0])).unwrap();
    // A file somebody else deleted before the trim does.
    fs::remove_file(dir.path().join(&names[1])).unwrap();
    assert_eq!(log.trim_to(seq(8)).unwrap().segments, 2);
    drop(log);
    // A deletion that did not reach the disk.
    fs::write(dir.path().join(&names[0]), old).unwrap();
    let (log, recovery) = Log::open(dir.path(), small()).unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    assert_eq!((recovery.finished_trims, log.first(), log.last()), (1, Some(seq(9)), Some(seq(12))));
    assert_eq!(segments(dir.path()).len(), 1);
}

#[test]
fn a_full_log_rejects_until_trimmed() {
    let dir = tempdir().unwrap();
    let mut log = open(dir.path(), small());
    let mut appended = 0;
    let error = loop {
        match log.append(&[1; 50]) {
            Ok(_) => appended += 1,
            Err(e) => break e,
        }
    };
    let LogError::Full { bytes, max_bytes, needed, .. } = error else { panic!("{error}") };
    assert!(bytes <= max_bytes && bytes + needed > max_bytes);
    assert_eq!(log.last(), Seq::new(appended));
    log.trim_to(log.last().unwrap()).unwrap();
    assert_eq!(log.append(&[1; 50]).unwrap(), seq(appended + 1));
    log.sync().unwrap();
    assert!(log.take_dropped().is_none());
}

#[test]
fn a_full_log_drops_the_oldest_and_says_which() {
    let dir = tempdir().unwrap();
    let mut log = open(dir.path(), Options { overflow: Overflow::DropOldest, ..small() });
    let mut lost = 0;
    for i in 1..=500_u64 {
        log.append(&i.to_le_bytes()).unwrap();
        assert!(log.bytes() <= 1024);
        if let Some(dropped) = log.take_dropped() {
            assert_eq!(dropped.first, seq(lost + 1));
            assert!(dropped.bytes > 0);
            lost = dropped.last.get();
        }
    }
    log.flush().unwrap();
    assert_eq!(log.first(), Some(seq(lost + 1)));
    for record in read(&log, 1) {
        assert_eq!(record.payload, record.seq.get().to_le_bytes());
    }
    let on_disk: u64 =
        segments(dir.path()).iter().map(|n| fs::metadata(dir.path().join(n)).unwrap().len()).sum();
    assert_eq!(on_disk, log.bytes());
}

#[test]
fn a_smaller_bound_after_reopening_is_reached_again() {
    let dir = tempdir().unwrap();
    let big = Options { segment_bytes: 4096, max_bytes: 65536, max_record_bytes: 4000, ..Options::default() };
    let mut log = open(dir.path(), big);
    for _ in 0..10 {
        log.append(&[3; 4000]).unwrap();
    }
    drop(log);
    let mut log = open(dir.path(), Options { overflow: Overflow::DropOldest, ..small() });
    log.append(&[4; 50]).unwrap();
    assert!(log.bytes() <= 1024, "{}", log.bytes());
    assert_eq!(log.take_dropped().unwrap().last, seq(10));
}

#[test]
fn records_up_to_the_bound_are_taken_whatever_the_segment_size() {
    let dir = tempdir().unwrap();
    let options =
        Options { segment_bytes: 64, max_bytes: 1 << 20, max_record_bytes: 200_000, ..Options::default() };
    let mut log = open(dir.path(), options);
    let large: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    log.append(b"a").unwrap();
    log.append(&large).unwrap();
    log.append(b"b").unwrap();
    let error = log.append(&[0; 200_001]).unwrap_err();
    assert!(matches!(error, LogError::TooLarge { bytes: 200_001, max: 200_000, .. }), "{error}");
    log.sync().unwrap();
    assert_eq!(payloads(&log), [b"a".to_vec(), large, b"b".to_vec()]);
    assert_eq!(read(&log, 3).len(), 1);
}

#[test]
fn two_openings_exclude_each_other() {
    let dir = tempdir().unwrap();
    let log = open(dir.path(), small());
    let error = Log::open(dir.path(), small()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(&dir.path().display().to_string()), "{text}");
    assert!(text.contains(&format!("by process {}", std::process::id())), "{text}");
    drop(log);
    open(dir.path(), small());
}

#[test]
fn contradicting_options_are_refused() {
    let dir = tempdir().unwrap();
    let table = [
        (Options { segment_bytes: 47, ..small() }, "segment_bytes is 47"),
        (Options { max_bytes: 511, ..small() }, "less than twice segment_bytes"),
        (Options { max_record_bytes: 600, ..small() }, "twice the largest record"),
        (Options { max_record_bytes: MAX_RECORD_BYTES + 1, ..small() }, "the most is 67108864"),
    ];
    for (options, expected) in table {
        let text = Log::open(dir.path(), options).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let dir = tempdir().unwrap();
    open(dir.path(), small()).append(b"x").unwrap();
    let path = dir.path().join(&segments(dir.path())[0]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    let error = Log::open(dir.path(), small()).unwrap_err();
    assert!(matches!(error, LogError::Version { found: 2, supported: 1, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn another_thread_syncs_while_this_one_appends() {
    let dir = tempdir().unwrap();
    let options =
        Options { segment_bytes: 4096, max_bytes: 16 << 20, max_record_bytes: 100, ..Options::default() };
    let mut log = open(dir.path(), options.clone());
    let handle = log.sync_handle();
    let last = seq(20_000);
    let syncer = std::thread::spawn(move || {
        let mut acknowledged = None;
        while acknowledged < Some(last) {
            let durable = handle.sync().unwrap();
            assert!(durable >= acknowledged && durable <= handle.flushed());
            acknowledged = durable;
            std::thread::yield_now();
        }
    });
    for i in 0..last.get() {
        log.append(&i.to_le_bytes()).unwrap();
        if i % 64 == 0 {
            log.flush().unwrap();
        }
    }
    log.flush().unwrap();
    syncer.join().unwrap();
    assert_eq!(log.durable(), Some(last));
    drop(log);
    assert_eq!(open(dir.path(), options).iter_from(Seq::FIRST).flatten().count() as u64, last.get());
}

#[test]
fn a_log_that_was_deleted_is_noticed_at_the_next_write() {
    let dir = tempdir().unwrap();
    let at = dir.path().join("log");
    let (mut log, _) = Log::open(&at, Options::default()).unwrap();
    log.append(b"kept").unwrap();
    assert_eq!(log.sync().unwrap(), Seq::new(1));
    fs::remove_dir_all(&at).unwrap();
    let refused = log.append(b"lost").and_then(|_| log.sync());
    assert!(matches!(refused, Err(LogError::Deleted { .. })), "{refused:?}");
    assert_eq!(log.durable(), Seq::new(1), "nothing more is durable");
    assert!(matches!(log.append(b"again"), Err(LogError::Deleted { .. })), "and it stays so");
    drop(log);
    // Deleted between a flush and the sync of another thread.
    let (mut log, _) = Log::open(&at, Options::default()).unwrap();
    let handle = log.sync_handle();
    log.append(b"flushed").unwrap();
    log.flush().unwrap();
    fs::remove_dir_all(&at).unwrap();
    assert!(matches!(handle.sync(), Err(LogError::Deleted { .. })));
    assert_eq!(log.durable(), None);
}
