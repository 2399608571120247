//! Random lives of a log with crashes, against a model.
//!
//! After a crash of the machine the disk holds what was synced, any part of what was only written (a segment cut
//! anywhere, or zeros, or a new segment's name missing), and possibly files whose deletion had not reached it.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use crate::{Log, LogError, Options, Overflow, Seq, segment};

#[derive(Clone, Debug)]
enum Op {
    Append(usize),
    Flush,
    Sync,
    /// Per cent of the numbers in use.
    Trim(u64),
    Reopen,
    /// Per cent of the unsynced bytes of each segment that survive, and whether zeros follow.
    Crash {
        survives: [u64; 4],
        zeros: bool,
        undelete: bool,
    },
}

/// A temporary directory in memory where there is one: thousands of openings, each with its syncs, take minutes on a
/// busy disk, and what these tests are about does not depend on it.
fn tempdir() -> std::io::Result<TempDir> {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        12 => (0..120_usize).prop_map(Op::Append),
        2 => Just(Op::Flush),
        2 => Just(Op::Sync),
        2 => (0..110_u64).prop_map(Op::Trim),
        1 => Just(Op::Reopen),
        1 => (prop::array::uniform4(0..=100_u64), any::<bool>(), any::<bool>())
            .prop_map(|(survives, zeros, undelete)| Op::Crash { survives, zeros, undelete }),
    ];
    prop::collection::vec(op, 1..120)
}

/// The log under test and what is known about it.
struct Life {
    options: Options,
    dir: TempDir,
    log: Option<Log>,
    /// Payloads by number, contiguous; the front is the oldest that may still be stored.
    model: VecDeque<(u64, Vec<u8>)>,
    next: u64,
    durable: u64,
    /// The oldest that must still be stored.
    needed: u64,
    /// Files deleted by trims, which a crash may bring back.
    deleted: Vec<(PathBuf, Vec<u8>)>,
    salt: u8,
}

impl Life {
    fn new(overflow: Overflow) -> Self {
        let options = Options {
            segment_bytes: 300,
            max_bytes: 1500,
            max_record_bytes: 120,
            buffer_bytes: 200,
            overflow,
            ..Options::default()
        };
        let dir = tempdir().unwrap();
        let (log, _) = Log::open(dir.path(), options.clone()).unwrap();
        Self {
            options,
            dir,
            log: Some(log),
            model: VecDeque::new(),
            next: 1,
            durable: 0,
            needed: 1,
            deleted: Vec::new(),
            salt: 0,
        }
    }

    fn log(&mut self) -> &mut Log {
        self.log.as_mut().unwrap()
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Append(len) => self.append(*len),
            Op::Flush => drop(self.log().flush().unwrap()),
            Op::Sync => {
                self.log().sync().unwrap();
                self.durable = self.next - 1;
            }
            Op::Trim(percent) => self.trim(*percent),
            Op::Reopen => {
                self.log = None;
                self.reopen(self.next - 1);
            }
            Op::Crash { survives, zeros, undelete } => self.crash(*survives, *zeros, *undelete),
        }
        self.check();
    }

    fn append(&mut self, len: usize) {
        self.salt = self.salt.wrapping_add(1);
        let payload = vec![self.salt; len];
        let before = self.files();
        match self.log().append(&payload) {
            Ok(seq) => {
                assert_eq!(seq.get(), self.next);
                self.model.push_back((self.next, payload));
                self.next += 1;
            }
            Err(LogError::Full { .. }) => assert_eq!(self.options.overflow, Overflow::Reject),
            Err(e) => panic!("{e}"),
        }
        if let Some(dropped) = self.log().take_dropped() {
            assert!(dropped.first.get() <= dropped.last.get());
            self.needed = self.needed.max(dropped.last.get() + 1);
        }
        self.remember_deleted(before);
        assert!(self.log().bytes() <= self.options.max_bytes);
        let durable = self.log().durable().map_or(0, Seq::get);
        self.durable = self.durable.max(durable);
    }

    fn trim(&mut self, percent: u64) {
        let Some(upto) = Seq::new(self.next * percent / 100) else { return };
        let before = self.files();
        self.log().trim_to(upto).unwrap();
        self.remember_deleted(before);
        self.needed = self.needed.max(upto.get().min(self.next - 1) + 1);
    }

    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().path());
        let segments = entries.filter(|p| p.extension().is_some_and(|e| e == "seg"));
        segments.map(|p| (p.clone(), fs::read(p).unwrap())).collect()
    }

    fn remember_deleted(&mut self, before: Vec<(PathBuf, Vec<u8>)>) {
        self.deleted.extend(before.into_iter().filter(|(path, _)| !path.exists()));
    }

    /// Replaces the directory by what a crash may leave of it, and opens that.
    fn crash(&mut self, survives: [u64; 4], zeros: bool, undelete: bool) {
        let old = std::mem::replace(&mut self.dir, tempdir().unwrap());
        let log = self.log.take().unwrap();
        let to = self.dir.path().to_owned();
        fs::copy(old.path().join("head"), to.join("head")).unwrap();
        for (i, s) in log.sync_handle().shared.state().segments.iter().enumerate() {
            let percent = survives[i % survives.len()];
            let path = segment::path(old.path(), s.first);
            let mut bytes = fs::read(&path).unwrap();
            let proven = s.durable_bytes.unwrap_or(0);
            let kept = proven + (s.bytes - proven) * percent / 100;
            if s.durable_bytes.is_none() && kept == 0 && !zeros {
                continue;
            }
            bytes.truncate(kept as usize);
            if zeros {
                bytes.resize(s.bytes as usize, 0);
            }
            fs::write(segment::path(&to, s.first), bytes).unwrap();
        }
        if undelete {
            self.undelete(&to);
        }
        drop(log);
        drop(old);
        let durable = self.durable;
        self.reopen(durable);
        // What came back counts as stored and is durable; what did not is forgotten by the model.
        self.deleted.clear();
    }

    fn undelete(&self, to: &Path) {
        for (path, bytes) in &self.deleted {
            fs::write(to.join(path.file_name().unwrap()), bytes).unwrap();
        }
    }

    /// Opens the log again; at least everything up to `proven` must be there.
    fn reopen(&mut self, proven: u64) {
        let (log, recovery) = Log::open(self.dir.path(), self.options.clone()).unwrap();
        let next = recovery.next.get();
        assert!(next > proven && next <= self.next, "{proven} {} {recovery:?}", self.next);
        assert!(log.first() >= recovery.first);
        self.model.retain(|(seq, _)| *seq < next);
        self.next = next;
        self.needed = self.needed.min(next);
        self.durable = next - 1;
        self.log = Some(log);
    }

    /// What is read is contiguous, reaches back far enough, and is what was appended.
    fn check(&mut self) {
        let log = self.log.as_ref().unwrap();
        let read: Vec<_> = log.iter_from(Seq::FIRST).map(Result::unwrap).collect();
        if let Some(first) = read.first() {
            assert_eq!(log.first(), Some(first.seq));
            assert!(first.seq.get() <= self.needed || self.needed == self.next);
            let model = self.model.iter().skip_while(|(seq, _)| *seq < first.seq.get());
            for (record, (seq, payload)) in read.iter().zip(model) {
                assert_eq!((record.seq.get(), &record.payload), (*seq, payload));
            }
        }
        let read_upto = read.last().map_or(0, |r| r.seq.get());
        assert!(read_upto < self.next);
        assert!(read_upto >= self.durable || self.needed > self.durable);
        assert_eq!(log.last().map_or(0, Seq::get), self.next - 1);
        assert!(log.durable().map_or(0, Seq::get) >= self.durable);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_life_with_crashes_keeps_what_was_durable(ops in ops(), drop_oldest: bool) {
        let overflow = if drop_oldest { Overflow::DropOldest } else { Overflow::Reject };
        let mut life = Life::new(overflow);
        for op in &ops {
            life.step(op);
        }
    }

    #[test]
    fn arbitrary_bytes_in_any_file_never_panic(
        seg in prop::collection::vec(any::<u8>(), 0..200),
        head in prop::collection::vec(any::<u8>(), 0..1100),
        first in any::<u64>(),
    ) {
        let dir = tempdir().unwrap();
        fs::write(dir.path().join(format!("{first:020}.seg")), seg).unwrap();
        fs::write(dir.path().join("head"), head).unwrap();
        let (mut log, _) = Log::open(dir.path(), Options::default()).unwrap();
        log.append(b"goes on").unwrap();
        log.sync().unwrap();
    }
}

/// Power fails when the segment after a trimmed one has not reached the disk but the next one has, in part. What was
/// lost between must not count as durable.
#[test]
fn a_segment_that_outran_its_predecessor_is_not_taken() {
    let mut life = Life::new(Overflow::Reject);
    for op in [
        Op::Append(102),
        Op::Append(0),
        Op::Trim(67),
        Op::Append(20),
        Op::Append(101),
        Op::Append(100),
        Op::Append(100),
        Op::Flush,
        Op::Crash { survives: [0, 100, 0, 0], zeros: false, undelete: false },
    ] {
        life.step(&op);
    }
    assert_eq!(life.next, 3);
}
