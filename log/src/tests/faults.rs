//! A disk that fails on demand: short writes, full disks, input-output errors, syncs that fail once and then seem fine.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::libc::{EDQUOT, EINTR, EIO, EMFILE, ENOSPC, EROFS};
use tempfile::tempdir;

use crate::disk::{Disk, Kernel};
use crate::{Log, LogError, Options, Seq};

/// The kernel, but for what is to fail. An errno of 0 means no failure.
#[derive(Debug, Default)]
struct Faulty {
    /// Bytes that can still be written before writes fail with `write_errno`.
    room: AtomicU64,
    write_errno: AtomicI32,
    /// The most a single write takes; 0 for no such bound.
    short: AtomicUsize,
    set_len_errno: AtomicI32,
    /// The errnos of the next syncs, last first.
    syncs: Mutex<Vec<i32>>,
    synced: AtomicUsize,
    dir_errno: AtomicI32,
    /// The next count of a file's names says that it has begun and waits until it may go on.
    held: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

fn fails(errno: &AtomicI32) -> io::Result<()> {
    match errno.load(Ordering::Relaxed) {
        0 => Ok(()),
        n => Err(io::Error::from_raw_os_error(n)),
    }
}

impl Disk for Faulty {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let mut bytes = bytes;
        let short = self.short.load(Ordering::Relaxed);
        if short > 0 {
            bytes = &bytes[..bytes.len().min(short)];
        }
        if self.write_errno.load(Ordering::Relaxed) != 0 {
            let room = self.room.load(Ordering::Relaxed) as usize;
            if room == 0 {
                return fails(&self.write_errno).map(|()| 0);
            }
            bytes = &bytes[..bytes.len().min(room)];
        }
        let done = Kernel.write_at(file, bytes, offset)?;
        self.room.store(self.room.load(Ordering::Relaxed).saturating_sub(done as u64), Ordering::Relaxed);
        Ok(done)
    }

    fn set_len(&self, file: &File, len: u64) -> io::Result<()> {
        fails(&self.set_len_errno)?;
        Kernel.set_len(file, len)
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.synced.fetch_add(1, Ordering::Relaxed);
        match self.syncs.lock().unwrap().pop() {
            None | Some(0) => Kernel.sync_data(file),
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn links(&self, file: &File) -> io::Result<u64> {
        let held = self.held.lock().unwrap().take();
        if let Some((begun, go_on)) = held {
            begun.send(()).unwrap();
            go_on.recv().unwrap();
        }
        Kernel.links(file)
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        fails(&self.dir_errno)?;
        Kernel.sync_dir(dir)
    }
}

fn options() -> Options {
    Options { segment_bytes: 256, max_bytes: 4096, max_record_bytes: 100, ..Options::default() }
}

fn open(dir: &Path) -> (Log, Arc<Faulty>) {
    let disk = Arc::new(Faulty::default());
    let (log, _) = Log::open_on(dir, options(), Arc::clone(&disk) as Arc<dyn Disk>).unwrap();
    (log, disk)
}

fn append(log: &mut Log, records: u8) {
    for i in 0..records {
        log.append(&[i; 90]).unwrap();
    }
}

fn stored(dir: &Path) -> Vec<Vec<u8>> {
    let (log, recovery) = Log::open(dir, options()).unwrap();
    assert!(recovery.is_clean(), "{recovery:?}");
    log.iter_from(Seq::FIRST).map(|r| r.unwrap().payload).collect()
}

#[test]
fn short_writes_are_completed() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    disk.short.store(7, Ordering::Relaxed);
    let wanted: Vec<_> = (0..9).map(|i| vec![i; 50]).collect();
    for payload in &wanted {
        log.append(payload).unwrap();
    }
    log.sync().unwrap();
    drop(log);
    assert_eq!(stored(dir.path()), wanted);
}

/// Who tells that a write failed takes it back: nothing of it is ever read, and its number is given again.
#[test]
fn what_was_taken_back_is_never_written() {
    // Of two records nothing, a part, one, and more.
    for room in [0, 1, 60, 100] {
        for cut_fails in [false, true] {
            for goes_on in [false, true] {
                let dir = tempdir().unwrap();
                let (mut log, disk) = open(dir.path());
                log.append(b"before").unwrap();
                log.sync().unwrap();
                disk.room.store(room, Ordering::Relaxed);
                disk.write_errno.store(ENOSPC, Ordering::Relaxed);
                disk.set_len_errno.store(if cut_fails { EIO } else { 0 }, Ordering::Relaxed);
                for payload in [[1; 40], [2; 40]] {
                    log.append(&payload).unwrap();
                }
                log.sync().unwrap_err();
                log.take_back();
                assert_eq!(log.last(), Some(Seq::FIRST));
                disk.write_errno.store(0, Ordering::Relaxed);
                disk.set_len_errno.store(0, Ordering::Relaxed);
                let mut want = vec![b"before".to_vec()];
                if goes_on {
                    assert_eq!(log.append(b"after").unwrap(), Seq::FIRST.next());
                    log.sync().unwrap();
                    want.push(b"after".to_vec());
                }
                drop(log);
                assert_eq!(stored(dir.path()), want, "room {room}, {cut_fails}, {goes_on}");
            }
        }
    }
}

/// Whatever a write fails with and however far it got, the log is as before and goes on when the disk does.
#[test]
fn a_failed_write_is_tried_again_from_the_same_place() {
    type Is = fn(&LogError) -> bool;
    let table: [(i32, Is); 5] = [
        (ENOSPC, |e| matches!(e, LogError::NoSpace { .. })),
        (EDQUOT, |e| matches!(e, LogError::NoSpace { .. })),
        (EROFS, |e| matches!(e, LogError::ReadOnly { .. })),
        (EMFILE, |e| matches!(e, LogError::Descriptors { .. })),
        (EIO, |e| matches!(e, LogError::Io { .. })),
    ];
    for (errno, is) in table {
        for room in [0, 1, 20, 130] {
            for cut_fails in [false, true] {
                let dir = tempdir().unwrap();
                let (mut log, disk) = open(dir.path());
                log.append(b"before").unwrap();
                log.sync().unwrap();
                log.append(&[1; 60]).unwrap();
                log.append(&[2; 60]).unwrap();
                disk.room.store(room, Ordering::Relaxed);
                disk.write_errno.store(errno, Ordering::Relaxed);
                disk.set_len_errno.store(if cut_fails { EIO } else { 0 }, Ordering::Relaxed);
                let error = log.sync().unwrap_err();
                assert!(is(&error) && error.errno() == Some(errno), "{error:?}");
                assert!(error.to_string().contains("00000000000000000001.seg"), "{error}");
                assert_eq!(log.durable(), Some(Seq::FIRST));
                let len = fs::metadata(dir.path().join("00000000000000000001.seg")).unwrap().len();
                assert!(cut_fails || len == 32 + 16 + 6, "the half-written part is cut off at once");
                assert_eq!(log.iter_from(Seq::FIRST).count(), 1);
                // The segment is full, so this has to write first, and is not taken.
                assert!(log.append(&[3; 99]).is_err());
                assert_eq!(log.last(), Seq::new(3));
                disk.write_errno.store(0, Ordering::Relaxed);
                disk.set_len_errno.store(0, Ordering::Relaxed);
                log.append(&[4; 99]).unwrap();
                assert_eq!(log.sync().unwrap(), Seq::new(4));
                drop(log);
                let wanted = [b"before".to_vec(), vec![1; 60], vec![2; 60], vec![4; 99]];
                assert_eq!(stored(dir.path()), wanted, "errno {errno}, room {room}, {cut_fails}");
            }
        }
    }
}

#[test]
fn a_segment_that_cannot_be_created_is_created_later() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    log.append(&[1; 100]).unwrap();
    log.append(&[2; 90]).unwrap();
    log.sync().unwrap();
    for room in [0, 10] {
        disk.room.store(room, Ordering::Relaxed);
        disk.write_errno.store(ENOSPC, Ordering::Relaxed);
        let error = log.append(&[3; 80]).unwrap_err();
        assert!(matches!(error, LogError::NoSpace { .. }), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "segment, head, lock");
    }
    disk.write_errno.store(0, Ordering::Relaxed);
    assert_eq!(log.append(&[3; 80]).unwrap(), Seq::new(3).unwrap());
    drop(log);
    assert_eq!(stored(dir.path()).len(), 3);
}

#[test]
fn an_interrupted_sync_is_repeated() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    log.append(b"x").unwrap();
    *disk.syncs.lock().unwrap() = vec![EINTR, EINTR];
    assert_eq!(log.sync().unwrap(), Some(Seq::FIRST));
}

/// fsync reports a failure once and then succeeds, while the pages may be gone: nothing may be claimed after it.
#[test]
fn after_a_failed_sync_nothing_is_claimed_until_reopened() {
    // Ten records over several segments, two of them durable; the sync fails at the first or the second file.
    for order in [vec![EIO], vec![EIO, 0]] {
        let dir = tempdir().unwrap();
        let (mut log, disk) = open(dir.path());
        log.append(&[1; 50]).unwrap();
        log.append(&[2; 50]).unwrap();
        log.sync().unwrap();
        for i in 3..=10 {
            log.append(&[i; 50]).unwrap();
        }
        log.flush().unwrap();
        *disk.syncs.lock().unwrap() = order;
        let handle = log.sync_handle();
        let error = handle.sync().unwrap_err();
        assert!(matches!(&error, LogError::Poisoned { durable, .. } if *durable == Seq::new(2)), "{error:?}");
        assert_eq!(error.errno(), Some(EIO));
        let before = disk.synced.load(Ordering::Relaxed);
        for error in [
            handle.sync().unwrap_err(),
            log.append(b"more").unwrap_err(),
            log.flush().unwrap_err(),
            log.sync().unwrap_err(),
            log.trim_to(Seq::FIRST).unwrap_err(),
        ] {
            assert!(matches!(error, LogError::Poisoned { .. }) && error.errno() == Some(EIO), "{error:?}");
        }
        assert_eq!(disk.synced.load(Ordering::Relaxed), before, "no second sync is tried");
        assert_eq!((log.durable(), handle.durable()), (Seq::new(2), Seq::new(2)));
        drop(log);
        assert_eq!(stored(dir.path()), [[1; 50], [2; 50]]);
    }
}

#[test]
fn a_failed_sync_of_the_directory_counts_as_one() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    append(&mut log, 6);
    disk.dir_errno.store(EIO, Ordering::Relaxed);
    let error = log.sync().unwrap_err();
    assert!(matches!(error, LogError::Poisoned { durable: None, .. }), "{error:?}");
    drop(log);
    assert_eq!(stored(dir.path()), Vec::<Vec<u8>>::new());
}

#[test]
fn a_trim_whose_pointer_cannot_be_written_deletes_nothing() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    append(&mut log, 6);
    log.sync().unwrap();
    disk.write_errno.store(EIO, Ordering::Relaxed);
    assert!(log.trim_to(Seq::new(2).unwrap()).is_err());
    assert_eq!(log.first(), Some(Seq::FIRST));
    disk.write_errno.store(0, Ordering::Relaxed);
    *disk.syncs.lock().unwrap() = vec![EIO];
    assert!(log.trim_to(Seq::new(2).unwrap()).is_err());
    assert_eq!(log.trim_to(Seq::new(2).unwrap()).unwrap().segments, 1);
    drop(log);
    assert_eq!(stored(dir.path()).len(), 4);
}

/// What the writer trimmed while another thread synced was taken for deleted by somebody else, and the log for lost.
#[test]
fn a_segment_trimmed_during_a_sync_is_not_taken_for_deleted() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    append(&mut log, 1);
    log.flush().unwrap();
    let handle = log.sync_handle();
    let ((begun, has_begun), (go_on, may_go_on)) = (channel(), channel());
    *disk.held.lock().unwrap() = Some((begun, may_go_on));
    let syncing = thread::spawn(move || handle.sync());
    has_begun.recv().unwrap();
    append(&mut log, 6);
    assert!(log.trim_to(Seq::new(2).unwrap()).unwrap().segments > 0);
    go_on.send(()).unwrap();
    assert_eq!(syncing.join().unwrap().unwrap(), Some(Seq::FIRST));
    append(&mut log, 1);
    assert_eq!(log.sync().unwrap(), Seq::new(8));
}

#[test]
fn segments_waiting_for_a_sync_are_bounded() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    let before = disk.synced.load(Ordering::Relaxed);
    append(&mut log, 30);
    assert!(disk.synced.load(Ordering::Relaxed) > before, "the writer synced by itself");
    assert!(log.durable() > Seq::new(10));
}

#[test]
fn an_idle_sync_costs_no_system_call() {
    let dir = tempdir().unwrap();
    let (mut log, disk) = open(dir.path());
    log.append(b"x").unwrap();
    log.sync().unwrap();
    let before = disk.synced.load(Ordering::Relaxed);
    assert_eq!(log.sync().unwrap(), Some(Seq::FIRST));
    assert_eq!(disk.synced.load(Ordering::Relaxed), before);
}
