//! What the spool keeps, folds, drops and gives back, with the samples in it counted one by one.

use std::collections::BTreeMap;

use evenkeel_log::LogError;
use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use proptest::prelude::*;

use super::*;
use crate::report::frames::Framer;
use crate::report::test_support::{first_tick, tick};

const EPOCH: u64 = 7;

/// Samples by slot, wherever they are: one per second or many in a minute; and the CPU use they sum to, millionths of a core a second.
#[derive(Default, Debug, PartialEq)]
struct Tally(BTreeMap<u32, (u64, u64)>);

impl Visitor for Tally {
    fn sample(&mut self, slot: u32, _: u64, sample: &Sample, previous: Option<&Sample>) {
        let tally = self.0.entry(slot).or_default();
        tally.0 += 1;
        tally.1 += previous.and_then(|p| sample.cpu_micro(p)).unwrap_or(0);
    }
    fn rollup(&mut self, slot: u32, _: u64, rollup: &Rollup) {
        let tally = self.0.entry(slot).or_default();
        tally.0 += rollup.samples;
        tally.1 += rollup.cpu_micro.sum;
    }
}

/// Addresses of so many recommenders.
pub(super) fn names(readers: usize) -> Vec<String> {
    (0..readers).map(|reader| format!("http://r-{reader}:1")).collect()
}

/// Fills a spool with seconds `1..=seconds` of `slots` containers.
struct Filler {
    framer: Framer,
    spool: Spool,
    slots: u32,
    second: u64,
}

impl Filler {
    fn new(dir: &Path, epoch: u64, limit: u64, slots: u32) -> Self {
        let spool = Spool::open(dir, epoch, limit, &names(1)).unwrap();
        Self { framer: Framer::default(), spool, slots, second: 0 }
    }

    fn fill(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            let make = if self.second == 1 { first_tick } else { tick };
            let frame = self.framer.frame(&make(self.second, 1..self.slots + 1), &[], Vec::new()).unwrap();
            assert_eq!(self.spool.append(frame).unwrap(), self.second);
        }
        self
    }

    /// Everything still there, decoded.
    fn tally(&mut self) -> (Tally, Vec<(u64, u64)>) {
        tally(&mut self.spool, EPOCH, 0)
    }
}

fn tally(spool: &mut Spool, epoch: u64, after: u64) -> (Tally, Vec<(u64, u64)>) {
    let epoch = spool.epoch(epoch).unwrap();
    let (mut tally, mut ranges, mut decoder) = (Tally::default(), Vec::new(), Decoder::new());
    let mut lost = Vec::new();
    for frame in epoch.read(after, usize::MAX, usize::MAX, &mut lost) {
        decoder.decode(&frame.samples, &mut tally).unwrap();
        assert_eq!(frame.samples_crc32c, crc32c::crc32c(&frame.samples));
        let first = if frame.replaces_first == 0 { frame.sequence } else { frame.replaces_first };
        ranges.push((first, frame.sequence));
    }
    assert_eq!(lost, []);
    (tally, ranges)
}

/// Seconds 1..=n of each of `slots` containers, each using its slot number of milli-CPU but for the first second.
fn whole(slots: u32, n: u64) -> Tally {
    Tally((1..=slots).map(|slot| (slot, (n, (n - 1) * u64::from(slot) * 1000))).collect())
}

#[test]
fn acknowledged_runs_are_deleted_and_the_one_in_progress_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut filler = Filler::new(dir.path(), EPOCH, 8 << 20, 3);
    filler.fill(130);
    filler.spool.read(0, EPOCH, 0, usize::MAX, usize::MAX);
    for (acknowledged, first_kept) in [(0, 1), (59, 1), (60, 61), (119, 61), (120, 121), (130, 121)] {
        filler.spool.acknowledge(0, EPOCH, acknowledged).unwrap();
        assert_eq!(filler.tally().1[0].0, first_kept, "after {acknowledged}");
    }
    // Slots are known although the frame that announced them is gone.
    assert_eq!(filler.spool.announcements(EPOCH).len(), 3);
}

#[test]
fn seconds_never_sent_are_folded_exactly_and_others_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut filler = Filler::new(dir.path(), EPOCH, 8 << 20, 5);
    filler.fill(305);
    assert_eq!(filler.spool.read(0, EPOCH, 0, 70, usize::MAX).len(), 70);
    let folded = fold::fold_oldest(&mut filler.spool.current).unwrap();
    // 121..=300: what was sent ends inside the second run, the last run may still grow.
    assert_eq!(folded, Some(fold::Folded { frames: 180, left_out: vec![] }));
    assert_eq!(fold::fold_oldest(&mut filler.spool.current).unwrap(), None);
    let (all, ranges) = filler.tally();
    assert_eq!(all, whole(5, 305));
    let mut want: Vec<(u64, u64)> = (1..=120).map(|s| (s, s)).collect();
    want.push((121, 300));
    want.extend((301..=305).map(|s| (s, s)));
    assert_eq!(ranges, want);
    // An earlier run's frames are as they were.
    drop(filler);
    let mut spool = Spool::open(dir.path(), EPOCH + 1, 8 << 20, &names(1)).unwrap();
    assert_eq!(spool.epochs(0), [EPOCH, EPOCH + 1]);
    assert_eq!(spool.announcements(EPOCH).len(), 5);
    assert_eq!(tally(&mut spool, EPOCH, 0), (whole(5, 305), want));
    // Delivered, it goes.
    spool.resume(0, EPOCH, 300).unwrap();
    assert_eq!(spool.epochs(0).len(), 2);
    spool.acknowledge(0, EPOCH, 305).unwrap();
    assert_eq!(spool.epochs(0), [EPOCH + 1]);
    assert!(!dir.path().join(format!("{EPOCH:016x}")).exists());
}

#[test]
fn after_a_handshake_what_did_not_arrive_may_be_folded() {
    let dir = tempfile::tempdir().unwrap();
    let mut filler = Filler::new(dir.path(), EPOCH, 8 << 20, 2);
    filler.fill(185);
    assert_eq!(filler.spool.read(0, EPOCH, 0, 185, usize::MAX).len(), 185);
    assert_eq!(fold::fold_oldest(&mut filler.spool.current).unwrap(), None);
    filler.spool.resume(0, EPOCH, 60).unwrap();
    assert_eq!(
        fold::fold_oldest(&mut filler.spool.current).unwrap(),
        Some(fold::Folded { frames: 120, left_out: vec![] })
    );
    assert_eq!(filler.tally().1[0], (61, 180));
}

#[test]
fn a_full_spool_folds_what_was_not_sent_and_drops_the_oldest_of_what_was() {
    let dir = tempfile::tempdir().unwrap();
    let limit = 1 << 20;
    let mut filler = Filler::new(dir.path(), EPOCH, limit, 300);
    let (mut folded, mut lost) = (0, Vec::new());
    while lost.is_empty() {
        filler.fill(60);
        assert!(filler.spool.bytes() <= limit, "{} bytes", filler.spool.bytes());
        let news = filler.spool.take_news();
        folded += news.folded;
        lost = news.lost;
        if folded > 0 {
            // From the first fold on everything is sent at once, and may no longer be folded.
            assert!(news.folded == folded || news.folded == 0);
            filler.spool.read(0, EPOCH, 0, usize::MAX, usize::MAX);
        }
        assert!(filler.second < 100_000, "nothing is ever dropped");
    }
    let last_lost = lost.last().unwrap().last;
    let (_, ranges) = filler.tally();
    assert_eq!((lost[0].first, ranges[0].0), (1, last_lost + 1));
    for pair in ranges.windows(2) {
        assert_eq!(pair[1].0, pair[0].1 + 1, "no other gap");
    }
    assert_eq!(filler.spool.announcements(EPOCH).len(), 300);
}

#[test]
fn an_ended_slot_is_forgotten_with_the_last_frame_that_may_speak_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut filler = Filler::new(dir.path(), EPOCH, 8 << 20, 2);
    filler.fill(10);
    let frame = v1::Frame { gone: vec![2], ..filler.framer.frame(&tick(11, 1..2), &[], Vec::new()).unwrap() };
    filler.spool.append(frame).unwrap();
    filler.second = 11;
    filler.slots = 1;
    filler.fill(60);
    assert_eq!(filler.spool.announcements(EPOCH).len(), 2);
    filler.spool.read(0, EPOCH, 0, usize::MAX, usize::MAX);
    filler.spool.acknowledge(0, EPOCH, 70).unwrap();
    assert_eq!(filler.spool.announcements(EPOCH).len(), 1);
}

#[test]
fn only_so_many_earlier_runs_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    for epoch in 1..=MAX_EPOCHS as u64 + 2 {
        let mut filler = Filler::new(dir.path(), epoch, 8 << 20, 1);
        filler.second = epoch * 100;
        let frame = filler.framer.frame(&first_tick(epoch * 100, 1..2), &[], Vec::new()).unwrap();
        filler.spool.append(frame).unwrap();
    }
    let mut spool = Spool::open(dir.path(), 1000, 8 << 20, &names(1)).unwrap();
    assert_eq!(spool.take_news().lost.len(), 1);
    assert_eq!((spool.epochs(0).len(), spool.epochs(0)[0]), (MAX_EPOCHS + 1, 3));
}

/// A recommender that counts whatever comes next in the sequence, once.
#[derive(Default)]
struct Counter {
    last: u64,
    decoder: Decoder,
    tally: Tally,
}

impl Counter {
    fn take(&mut self, frame: &v1::Frame) {
        if frame.sequence <= self.last {
            return;
        }
        let first = if frame.replaces_first == 0 { frame.sequence } else { frame.replaces_first };
        assert_eq!(first, self.last + 1, "no gap, and no fold of what was counted");
        self.decoder.decode(&frame.samples, &mut self.tally).unwrap();
        self.last = frame.sequence;
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// So many more seconds.
    Fill(u64),
    /// So many frames are sent, of which so many arrive before the connection is cut.
    Send(usize, usize),
    /// A handshake.
    Greet,
    /// What was counted is acknowledged.
    Acknowledge,
    Fold,
    /// The agent's spool is closed and opened again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..150u64).prop_map(Step::Fill),
        3 => (1..200usize, 0..200usize).prop_map(|(sent, arrived)| Step::Send(sent, arrived)),
        2 => Just(Step::Greet),
        2 => Just(Step::Acknowledge),
        3 => Just(Step::Fold),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_second_counts_once_whatever_is_cut_folded_and_restarted(
        steps in prop::collection::vec(step(), 1..25)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut filler = Filler::new(dir.path(), EPOCH, 8 << 20, 2);
        let mut counter = Counter::default();
        let mut at = 0;
        for step in steps.into_iter().chain([Step::Greet, Step::Send(usize::MAX, usize::MAX)]) {
            match step {
                Step::Fill(seconds) => drop(filler.fill(seconds)),
                Step::Send(sent, arrived) => {
                    let frames = filler.spool.read(0, EPOCH, at, sent, usize::MAX);
                    at = frames.last().map_or(at, |f| f.sequence);
                    frames.iter().take(arrived).for_each(|f| counter.take(f));
                    if arrived < frames.len() {
                        filler.spool.resume(0, EPOCH, counter.last).unwrap();
                        at = counter.last;
                    }
                }
                Step::Greet => {
                    filler.spool.resume(0, EPOCH, counter.last).unwrap();
                    at = counter.last;
                }
                Step::Acknowledge => filler.spool.acknowledge(0, EPOCH, counter.last).unwrap(),
                Step::Fold => drop(fold::fold_oldest(&mut filler.spool.current).unwrap()),
                Step::Restart => {
                    let Filler { framer, spool, slots, second } = filler;
                    drop(spool);
                    let spool = Spool::open(dir.path(), EPOCH, 8 << 20, &names(1)).unwrap();
                    filler = Filler { framer, spool, slots, second };
                }
            }
        }
        let seconds = filler.second;
        prop_assert_eq!(counter.last, seconds);
        if seconds > 0 {
            prop_assert_eq!(counter.tally, whole(2, seconds));
        }
    }
}

/// A renewed epoch: what was acknowledged is gone, every second behind it is there once, and frames to come go on.
#[test]
fn a_renewed_epoch_has_every_second_that_was_not_acknowledged_and_no_other() {
    const NEW: u64 = 11;
    for acknowledged in [0, 1, 59, 60, 61, 100, 129, 130] {
        let dir = tempfile::tempdir().unwrap();
        let mut filler = Filler::new(dir.path(), EPOCH, 8 << 20, 3);
        filler.fill(130);
        filler.spool.read(0, EPOCH, 0, usize::MAX, usize::MAX);
        filler.spool.acknowledge(0, EPOCH, acknowledged).unwrap();
        let renewed = filler.spool.renew(0, EPOCH, NEW, NEW + 1).unwrap().unwrap();
        assert_eq!((renewed.shift, renewed.frames), (acknowledged, 130 - acknowledged));
        assert_eq!(filler.spool.epochs(0), [NEW], "it is this run's epoch now");
        // Coded against frames before the renewal, in no key frame.
        for _ in 0..5 {
            filler.second += 1;
            let frame = filler.framer.frame(&tick(filler.second, 1..4), &[], Vec::new()).unwrap();
            assert_eq!(filler.spool.append(frame).unwrap(), filler.second - acknowledged);
        }
        let (counted, ranges) = tally(&mut filler.spool, NEW, 0);
        let left = 135 - acknowledged;
        assert_eq!(ranges, (1..=left).map(|s| (s, s)).collect::<Vec<_>>(), "after {acknowledged}");
        assert!(counted.0.values().all(|(samples, _)| *samples == left), "after {acknowledged}: {counted:?}");
        assert_eq!(filler.spool.announcements(NEW).len(), 3);
        assert_eq!(filler.spool.take_news().lost, []);
        // The next run finds the same.
        drop(filler);
        let mut spool = Spool::open(dir.path(), NEW + 1, 8 << 20, &names(1)).unwrap();
        assert_eq!(spool.epochs(0), [NEW, NEW + 1]);
        assert_eq!(tally(&mut spool, NEW, 0).1.len() as u64, left);
        assert_eq!(spool.announcements(NEW).len(), 3);
    }
}

#[test]
fn an_earlier_runs_epoch_is_renewed_too_and_a_kill_in_between_leaves_one_of_both() {
    let dir = tempfile::tempdir().unwrap();
    Filler::new(dir.path(), EPOCH, 8 << 20, 3).fill(100);
    let mut spool = Spool::open(dir.path(), 8, 8 << 20, &names(1)).unwrap();
    spool.resume(0, EPOCH, 40).unwrap();
    let ahead = spool.resume(0, EPOCH, 101);
    assert!(matches!(ahead, Err(SpoolError::Ahead { epoch: EPOCH, claimed: 101, sent: 100 })), "{ahead:?}");
    assert_eq!(spool.renew(0, EPOCH, 9, 90).unwrap().map(|renewed| renewed.frames), Some(60));
    assert_eq!(spool.renew(0, EPOCH, 10, 100).unwrap(), None, "it is no more");
    assert_eq!(spool.epochs(0), [9, 8]);
    drop(spool);
    // As if it had been killed before the old one was deleted, and while a third was made.
    fs::create_dir(epoch_dir(dir.path(), EPOCH)).unwrap();
    fs::create_dir(epoch_dir(dir.path(), 12).with_extension(renew::PART)).unwrap();
    let mut spool = Spool::open(dir.path(), 13, 8 << 20, &names(1)).unwrap();
    assert_eq!(spool.epochs(0), [9, 13]);
    assert_eq!(tally(&mut spool, 9, 0).1.len(), 60);
    assert!(!epoch_dir(dir.path(), EPOCH).exists());
    assert!(!epoch_dir(dir.path(), 12).with_extension(renew::PART).exists());
}

#[test]
fn a_deleted_spool_is_noticed_and_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("state/spool");
    let mut filler = Filler::new(&at, EPOCH, 8 << 20, 3);
    filler.fill(10);
    filler.spool.read(0, EPOCH, 0, usize::MAX, usize::MAX);
    filler.spool.acknowledge(0, EPOCH, 4).unwrap();
    fs::remove_dir_all(dir.path().join("state")).unwrap();
    let frame = filler.framer.frame(&tick(11, 1..4), &[], Vec::new()).unwrap();
    let refused = filler.spool.append(frame);
    assert!(matches!(refused, Err(SpoolError::Log(LogError::Deleted { .. }))), "{refused:?}");
    filler.spool.start_over(12).unwrap();
    let lost: Vec<(u64, u64)> = filler.spool.take_news().lost.iter().map(|l| (l.first, l.last)).collect();
    assert_eq!(lost, [(5, 11)], "what waited is told");
    filler.framer.start_anew();
    let frame = filler.framer.frame(&tick(12, 1..4), &[], Vec::new()).unwrap();
    assert_eq!(filler.spool.append(frame).unwrap(), 1);
    assert_eq!(filler.spool.announcements(12).len(), 3, "containers are known in the new epoch");
    assert!(epoch_dir(&at, 12).join("seconds").exists());
}
