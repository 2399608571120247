//! One spool, several recommenders: each gets every second once, whatever becomes of the others.

use std::collections::BTreeMap;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use proptest::prelude::*;

use super::tests::names;
use super::*;
use crate::report::frames::Framer;
use crate::report::test_support::{first_tick, tick};

const EPOCH: u64 = 7;
const LIMIT: u64 = 8 << 20;

/// Seconds of one container.
#[derive(Default)]
struct Seconds(u64);

impl Visitor for Seconds {
    fn sample(&mut self, _: u32, _: u64, _: &Sample, _: Option<&Sample>) {
        self.0 += 1;
    }
    fn rollup(&mut self, _: u32, _: u64, rollup: &Rollup) {
        self.0 += rollup.samples;
    }
}

/// What a recommender knows of an epoch.
#[derive(Default)]
struct Known {
    last: u64,
    decoder: Decoder,
    seconds: Seconds,
}

impl Known {
    fn take(&mut self, frame: &v1::Frame) {
        if frame.sequence <= self.last {
            return;
        }
        let first = if frame.replaces_first == 0 { frame.sequence } else { frame.replaces_first };
        assert_eq!(first, self.last + 1, "no gap, and no fold of what was counted");
        self.decoder.decode(&frame.samples, &mut self.seconds).unwrap();
        self.last = frame.sequence;
    }
}

/// A recommender, and its stream.
#[derive(Default)]
struct Reader {
    known: BTreeMap<u64, Known>,
    /// Epoch and last number of what was sent on this connection.
    at: Option<(u64, u64)>,
}

impl Reader {
    fn counted(&self) -> u64 {
        self.known.values().map(|known| known.seconds.0).sum()
    }
}

/// An agent and its recommenders.
struct Pair {
    dir: tempfile::TempDir,
    framer: Framer,
    spool: Spool,
    readers: Vec<Reader>,
    second: u64,
    epochs: u64,
}

impl Pair {
    fn new(readers: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path(), EPOCH, LIMIT, &names(readers)).unwrap();
        let readers = (0..readers).map(|_| Reader::default()).collect();
        Self { dir, framer: Framer::default(), spool, readers, second: 0, epochs: EPOCH }
    }

    fn fill(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second += 1;
            let make = if self.second == 1 { first_tick } else { tick };
            let frame = self.framer.frame(&make(self.second, 1..2), &[], Vec::new()).unwrap();
            self.spool.append(frame).unwrap();
        }
    }

    /// A handshake of the oldest epoch; which one.
    fn greet(&mut self, reader: usize) -> u64 {
        let epoch = self.spool.epochs(reader)[0];
        let last = self.readers[reader].known.entry(epoch).or_default().last;
        self.spool.resume(reader, epoch, last).unwrap();
        self.readers[reader].at = Some((epoch, last));
        epoch
    }

    /// Sends so many frames, of which so many arrive before the connection is cut.
    fn send(&mut self, reader: usize, sent: usize, arrived: usize) {
        let (epoch, at) = match self.readers[reader].at {
            Some(at) => at,
            None => (self.greet(reader), self.readers[reader].at.unwrap().1),
        };
        let frames = self.spool.read(reader, epoch, at, sent, usize::MAX);
        let known = self.readers[reader].known.get_mut(&epoch).unwrap();
        frames.iter().take(arrived).for_each(|frame| known.take(frame));
        let last = frames.last().map_or(at, |frame| frame.sequence);
        self.readers[reader].at = (arrived >= frames.len()).then_some((epoch, last));
    }

    fn acknowledge(&mut self, reader: usize) {
        let epochs = self.spool.epochs(reader);
        if let Some(epoch) = self.readers[reader].at.map(|(epoch, _)| epoch).filter(|at| epochs.contains(at))
        {
            let last = self.readers[reader].known[&epoch].last;
            self.spool.acknowledge(reader, epoch, last).unwrap();
            if !self.spool.epochs(reader).contains(&epoch) {
                self.readers[reader].at = None;
            }
        }
    }

    /// The recommender takes nothing more of the oldest epoch, and has said what it has.
    fn renew(&mut self, reader: usize) {
        let epoch = self.greet(reader);
        if !self.spool.epochs(reader).contains(&epoch) {
            self.readers[reader].at = None;
            return;
        }
        self.epochs += 2;
        self.spool.renew(reader, epoch, self.epochs, self.epochs + 1).unwrap().unwrap();
        self.epochs += 1;
        self.readers[reader].at = None;
    }

    /// The agent's spool is closed and opened again, as by another run.
    fn restart(self) -> Self {
        let Self { dir, spool, mut readers, second, epochs, .. } = self;
        let count = readers.len();
        drop(spool);
        let epochs = epochs + 3;
        let spool = Spool::open(dir.path(), epochs, LIMIT, &names(count)).unwrap();
        readers.iter_mut().for_each(|reader| reader.at = None);
        Self { dir, framer: Framer::default(), spool, readers, second, epochs }
    }

    /// Everything is delivered to all.
    fn settle(&mut self) {
        for reader in 0..self.readers.len() {
            self.readers[reader].at = None;
            while self.spool.epochs(reader).len() > 1 {
                self.send(reader, usize::MAX, usize::MAX);
                self.acknowledge(reader);
                self.readers[reader].at = None;
            }
            self.send(reader, usize::MAX, usize::MAX);
            self.acknowledge(reader);
        }
    }

    fn directories(&self) -> usize {
        fs::read_dir(self.dir.path()).unwrap().count()
    }
}

#[derive(Debug, Clone)]
enum Step {
    Fill(u64),
    Send(usize, usize, usize),
    Greet(usize),
    Acknowledge(usize),
    Fold,
    Renew(usize),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let reader = || 0..2usize;
    prop_oneof![
        3 => (1..150u64).prop_map(Step::Fill),
        5 => (reader(), 1..200usize, 0..250usize).prop_map(|(of, sent, arrived)| Step::Send(of, sent, arrived)),
        2 => reader().prop_map(Step::Greet),
        4 => reader().prop_map(Step::Acknowledge),
        3 => Just(Step::Fold),
        1 => reader().prop_map(Step::Renew),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_second_counts_once_with_each_recommender(steps in prop::collection::vec(step(), 1..30)) {
        let mut pair = Pair::new(2);
        for step in steps {
            match step {
                Step::Fill(seconds) => pair.fill(seconds),
                Step::Send(reader, sent, arrived) => pair.send(reader, sent, arrived),
                Step::Greet(reader) => drop(pair.greet(reader)),
                Step::Acknowledge(reader) => pair.acknowledge(reader),
                Step::Fold => drop(fold::fold_oldest(&mut pair.spool.current).unwrap()),
                Step::Renew(reader) => pair.renew(reader),
                Step::Restart => pair = pair.restart(),
            }
        }
        pair.settle();
        for reader in &pair.readers {
            prop_assert_eq!(reader.counted(), pair.second);
        }
        prop_assert_eq!(pair.spool.take_news().lost, vec![]);
        prop_assert_eq!(pair.directories(), 1, "what is delivered is gone");
    }
}

/// One that is away costs the other nothing: what only it lacks becomes minutes, and then is dropped for it alone.
#[test]
fn frames_for_one_that_is_away_are_folded_and_dropped_within_the_bound() {
    let limit = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut spool = Spool::open(dir.path(), EPOCH, limit, &names(2)).unwrap();
    let (mut framer, mut folded, mut second) = (Framer::default(), 0, 0);
    let mut there = Known::default();
    let lost = loop {
        second += 1;
        let make = if second == 1 { first_tick } else { tick };
        let frame = framer.frame(&make(second, 1..301), &[], Vec::new()).unwrap();
        spool.append(frame).unwrap();
        for frame in spool.read(0, EPOCH, there.last, usize::MAX, usize::MAX) {
            there.take(&frame);
        }
        spool.acknowledge(0, EPOCH, there.last).unwrap();
        assert!(spool.bytes() <= limit, "{} bytes", spool.bytes());
        let news = spool.take_news();
        folded += news.folded;
        if !news.lost.is_empty() {
            break news.lost;
        }
        assert!(second < 100_000, "nothing was dropped");
    };
    assert_eq!((there.last, there.seconds.0), (second, second * 300), "the one that is there has all");
    assert!(folded > 0, "seconds became minutes first");
    assert!(lost.iter().all(|lost| lost.elsewhere && lost.first == 1), "{lost:?}");
    // It comes back, and gets what is left.
    spool.resume(1, EPOCH, 0).unwrap();
    let mut back = Known { last: lost[0].last, ..Known::default() };
    spool.read(1, EPOCH, 0, usize::MAX, usize::MAX).iter().for_each(|frame| back.take(frame));
    assert_eq!(back.last, second);
    assert_eq!(back.seconds.0, (second - lost[0].last) * 300);
}

/// One recommender was set back to what it knew before: what the others did not need any more is a gap for it, and nothing counts twice.
#[test]
fn one_that_forgot_gets_no_minutes_of_which_it_counted_a_part() {
    let mut pair = Pair::new(2);
    pair.fill(305);
    pair.send(0, usize::MAX, usize::MAX);
    pair.acknowledge(0);
    assert!(fold::fold_oldest(&mut pair.spool.current).unwrap().is_some(), "the other one has none of it");
    pair.spool.resume(0, EPOCH, 100).unwrap();
    let frames = pair.spool.read(0, EPOCH, 100, usize::MAX, usize::MAX);
    assert_eq!((frames[0].sequence, frames[0].replaces_first), (301, 0));
    let all = pair.spool.read(1, EPOCH, 0, usize::MAX, usize::MAX);
    assert_eq!((all[0].replaces_first, all[0].sequence), (1, 300));
}

/// A recommender that is no longer configured holds nothing back.
#[test]
fn what_a_recommender_that_left_did_not_get_goes_with_the_next_run() {
    let mut pair = Pair::new(2);
    pair.fill(70);
    pair.send(0, usize::MAX, usize::MAX);
    let Pair { dir, spool, mut readers, .. } = pair;
    drop(spool);
    let mut spool = Spool::open(dir.path(), EPOCH + 1, LIMIT, &names(1)).unwrap();
    assert_eq!(spool.epochs(0), [EPOCH, EPOCH + 1]);
    spool.resume(0, EPOCH, readers.remove(0).known[&EPOCH].last).unwrap();
    assert_eq!(spool.epochs(0), [EPOCH + 1]);
    assert!(!epoch_dir(dir.path(), EPOCH).exists());
}
