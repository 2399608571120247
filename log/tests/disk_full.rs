//! A disk that is really full or read-only: a small tmpfs, mounted in a namespace of this thread alone.
//!
//! Needs the right to mount. Without it the tests say so on stderr and pass, except where `CI=true`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::Path;

use evenkeel_log::{Log, LogError, Options, Seq};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

const NONE: Option<&str> = None;

/// Mounts a tmpfs of `bytes` on `at`, seen by this thread only and gone when it ends.
fn mount_small(at: &Path, bytes: usize) -> nix::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(format!("size={bytes},mode=700").as_str()))
}

fn options() -> Options {
    Options { segment_bytes: 64 << 10, max_bytes: 16 << 20, max_record_bytes: 4096, ..Options::default() }
}

fn fill(dir: &Path) {
    let (mut log, _) = Log::open(dir, options()).unwrap();
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![0; 200 << 10]).unwrap();
    let payload = |n: u64| vec![n as u8; 1000];
    let mut synced = 0;
    let error = loop {
        match log.append(&payload(log.last().map_or(1, |s| s.get() + 1))).and_then(|_| log.sync()) {
            Ok(seq) => synced = seq.map_or(0, Seq::get),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, LogError::NoSpace { .. }), "{error:?}");
    assert_eq!(error.errno(), Some(nix::libc::ENOSPC));
    assert!(error.to_string().contains("free space"), "{error}");
    assert!(synced > 100);
    assert_eq!(log.durable(), Seq::new(synced));
    assert!(log.sync().is_err() || log.last() == Seq::new(synced), "it stays full");
    assert_eq!(log.iter_from(Seq::FIRST).filter(Result::is_ok).count() as u64, synced);

    // Trimming works on the full disk, and then appending does.
    log.trim_to(Seq::new(synced / 2).unwrap()).unwrap();
    let upto = log.last().unwrap().get() + 50;
    while log.last() < Seq::new(upto) {
        let next = log.last().unwrap().get() + 1;
        log.append(&payload(next)).unwrap();
    }
    assert_eq!(log.sync().unwrap(), Seq::new(upto));

    // So does freeing space elsewhere.
    while log.append(&payload(log.last().unwrap().get() + 1)).and_then(|_| log.sync()).is_ok() {}
    std::fs::remove_file(&ballast).unwrap();
    let last = log.sync().unwrap();
    drop(log);

    let (log, recovery) = Log::open(dir, options()).unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    assert_eq!(log.last(), last);
    for record in log.iter_from(Seq::FIRST) {
        let record = record.unwrap();
        assert_eq!(record.payload, payload(record.seq.get()));
    }
}

/// Runs `test` in a directory on a small tmpfs of its own, or says why it cannot.
fn on_small_disk(test: fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    match mount_small(dir.path(), 1 << 20) {
        Ok(()) => test(dir.path()),
        Err(e) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "cannot mount a tmpfs here: {e}");
            eprintln!("SKIPPED: cannot mount a tmpfs here ({e}); run as root to test a full disk");
        }
    }
}

#[test]
fn a_full_disk_is_told_survived_and_left_again() {
    on_small_disk(fill);
}

#[test]
fn a_read_only_disk_is_told() {
    on_small_disk(|dir| {
        let log = dir.join("log");
        drop(Log::open(&log, options()).unwrap());
        mount(NONE, dir, NONE, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, NONE).unwrap();
        for (path, named) in [(log, "lock"), (dir.join("new"), "new")] {
            let error = Log::open(path, options()).unwrap_err();
            assert!(matches!(&error, LogError::ReadOnly { path, .. } if path.ends_with(named)), "{error:?}");
        }
    });
}
