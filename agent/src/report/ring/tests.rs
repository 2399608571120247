//! The ring over ordinary files, and over a tmpfs that is really full.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_enforce::shared::{TrackChange, Tracked};
use evenkeel_enforce::usage::LatestSamples as _;
use evenkeel_model::sample::Field;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::super::frames::{Framer, announcement};
use super::super::live::Latest;
use super::super::test_support::{first_tick, tick, tracked};
use super::*;
use crate::shared::Tick;

const MIB: u64 = 1 << 20;
const SECOND: u64 = 1_000_000;

/// A ring that is fed as the report thread does.
struct Rig {
    ring: Ring,
    framer: Framer,
    stats: Stats,
    slots: std::ops::Range<u32>,
}

impl Rig {
    fn open(dir: &Path, bytes: u64, slots: std::ops::Range<u32>) -> Self {
        let stats = Stats::default();
        Self { ring: Ring::open(dir, bytes, &stats), framer: Framer::default(), stats, slots }
    }

    fn feed(&mut self, seconds: std::ops::Range<u64>) {
        let first = seconds.start;
        for second in seconds {
            let slots = self.slots.clone();
            let mut tick = if second == first { first_tick(second, slots) } else { tick(second, slots) };
            for (slot, sample) in &mut tick.samples {
                // Two bytes that nothing predicts.
                let noise = (second * 1000 + u64::from(*slot)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
                sample.set(Field::Pids, noise);
            }
            let frame = self.framer.frame(&tick, &[], Vec::new()).unwrap();
            let all = || self.slots.clone().map(|s| announcement(&tracked(s, &format!("pod-{s}")))).collect();
            self.ring.take(&frame, tick.time_usec, all, &self.stats);
        }
    }

    fn at(&self, second: u64) -> Result<PastSecond, String> {
        self.ring.at(second * SECOND, &self.stats).map_err(|error| error.to_string())
    }

    /// Time, pods and their CPU use.
    fn told(&self, second: u64) -> (u64, Vec<(String, Option<u64>)>) {
        let past = self.at(second).unwrap();
        let containers = past.containers.into_iter().map(|of| (of.identity.pod, of.cpu_milli));
        (past.time_usec / SECOND, containers.collect())
    }
}

fn pods(cpu: [Option<u64>; 2]) -> Vec<(String, Option<u64>)> {
    ["pod-1", "pod-2"].map(str::to_owned).into_iter().zip(cpu).collect()
}

#[test]
fn every_second_is_told_again_also_by_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(dir.path(), 4 * MIB, 1..3);
    assert!(rig.at(5).unwrap_err().contains("no second is kept yet"));
    rig.feed(1000..3000);
    // The first has no use yet; each after it has, at whatever distance to a key frame or the last names.
    assert_eq!(rig.told(1000), (1000, pods([None, None])));
    for second in [1001, 1059, 1060, 1061, 1599, 1600, 1601, 2400, 2999] {
        assert_eq!(rig.told(second), (second, pods([Some(1), Some(2)])), "{second}");
    }
    // A little ahead of the last is the last; what is far from it is outside.
    assert_eq!(rig.told(3004).0, 2999);
    for second in [3020, 999] {
        let error = rig.at(second).unwrap_err();
        assert!(error.contains("1970-01-01T00:16:40Z to 1970-01-01T00:49:59Z"), "{second}: {error}");
    }
    rig.ring.end(&rig.stats);
    let mode = std::fs::metadata(dir.path().join("ring")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(rig);
    let mut rig = Rig::open(dir.path(), 4 * MIB, 2..3);
    rig.feed(3600..3700);
    assert_eq!(rig.told(2500), (2500, pods([Some(1), Some(2)])));
    assert_eq!(rig.told(3650), (3650, vec![("pod-2".to_owned(), Some(2))]));
    let error = rig.at(3300).unwrap_err();
    assert!(error.contains("the last one before is of 1970-01-01T00:49:59Z"), "{error}");
}

/// What the seconds before a moment say of a container, as a run of the agent tells it that began at `start`.
fn before(rig: &Rig, start: u64, ticks: &[Tick], of: &Tracked, second: u64) -> Option<String> {
    let mut latest = Latest::default();
    latest.remember(rig.ring.earlier((start - 60) * SECOND, start * SECOND).unwrap());
    ticks.iter().for_each(|tick| latest.take(tick, &mut |_| {}));
    latest.before(of, second * SECOND, Duration::from_secs(60)).map(|before| before.text)
}

#[test]
fn a_kill_in_the_first_minute_of_a_run_has_the_seconds_of_the_run_before() {
    let dir = tempfile::tempdir().unwrap();
    // Two runs: a long one, and one of 20 seconds.
    let mut rig = Rig::open(dir.path(), 4 * MIB, 1..3);
    rig.feed(1000..2800);
    rig.ring.end(&rig.stats);
    drop(rig);
    let mut rig = Rig::open(dir.path(), 4 * MIB, 1..3);
    rig.feed(2802..2822);
    rig.ring.end(&rig.stats);
    drop(rig);
    // The third knows the second container by another number, and is asked five seconds after its start.
    let mut rig = Rig::open(dir.path(), 4 * MIB, 7..8);
    let known = || Tracked { slot: 7, ..tracked(2, "pod-2") };
    let mut ticks: Vec<_> = (2824..2829).map(|second| tick(second, 7..8)).collect();
    ticks[0].changes.push(TrackChange::Added(Arc::new(known())));
    rig.feed(2824..2829);
    let text = before(&rig, 2823, &ticks, &known(), 2829).unwrap();
    let ages: Vec<u64> =
        text.split(", ").map(|second| second[1..].split('s').next().unwrap().parse().unwrap()).collect();
    // Without 2800, 2801, 2822 and 2823, when nobody looked.
    let wanted: Vec<u64> =
        (2769..2829).filter(|s| ![2800, 2801, 2822, 2823].contains(s)).map(|s| 2829 - s).collect();
    assert_eq!(ages, wanted);
    assert!(text.starts_with("-60s 2048Ki 2m, -59s 2048Ki 2m"), "{text}");
    assert!(text.ends_with("-2s 7168Ki 7m, -1s 7168Ki 7m"), "{text}");
    // Before its first sample there is what the run before saw; a minute later there is not.
    assert!(before(&rig, 2823, &[], &known(), 2823).unwrap().ends_with("-3s 2048Ki 2m, -2s 2048Ki 2m"));
    assert_eq!(before(&rig, 2823, &[tick(2890, 7..8)], &known(), 2880), None);
    // One that was made anew, and one nobody knew, begin with themselves.
    for other in [Tracked { inode: 99, ..known() }, tracked(1, "pod-9")] {
        assert_eq!(before(&rig, 2823, &[], &other, 2823), None);
    }
}

#[test]
fn the_bound_holds_and_what_is_left_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(dir.path(), MIB, 1..100);
    rig.feed(1000..6000);
    assert!(rig.stats.ring_bytes.get() <= MIB && rig.stats.ring_bytes.get() > MIB / 2);
    let on_disk = std::fs::read_dir(dir.path().join("ring")).unwrap();
    let on_disk: u64 = on_disk.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(on_disk <= MIB + 4096, "{on_disk}");
    let error = rig.at(1000).unwrap_err();
    assert!(error.contains("outside of what is kept"), "{error}");
    // What it says it has, it has.
    let from = error.split("kept, ").nth(1).unwrap().split(" to ").next().unwrap();
    let first = u64::try_from(from.parse::<jiff::Timestamp>().unwrap().as_second()).unwrap();
    assert!((2000..5400).contains(&first), "{first}");
    for second in [first, first + 1, first + 61, 5999] {
        assert_eq!(rig.at(second).unwrap().containers.len(), 99, "{second}");
    }
}

#[test]
fn damage_is_said_and_what_is_before_it_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut rig = Rig::open(dir.path(), 4 * MIB, 1..3);
    rig.feed(1000..1500);
    rig.ring.end(&rig.stats);
    drop(rig);
    let mut segments: Vec<_> =
        std::fs::read_dir(dir.path().join("ring")).unwrap().map(|file| file.unwrap().path()).collect();
    segments.retain(|path| path.extension().is_some_and(|ending| ending == "seg"));
    let file = OpenOptions::new().read(true).write(true).open(&segments[0]).unwrap();
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let middle = file.metadata().unwrap().len() / 2;
    file.write_at(b"damage", middle).unwrap();
    let mut rig = Rig::open(dir.path(), 4 * MIB, 1..3);
    let rows = rig.stats.enforce.damages.rows();
    assert_eq!((rows.len(), rows[0].name), (1, "ring/*"));
    assert_eq!(rig.told(1100).0, 1100);
    // New seconds are kept behind it.
    rig.feed(1600..1650);
    assert_eq!(rig.told(1640).0, 1640);
    assert!(rig.at(1499).is_err());
}

#[test]
fn a_link_in_its_place_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), dir.path().join("ring")).unwrap();
    let mut rig = Rig::open(dir.path(), 4 * MIB, 1..3);
    rig.feed(1000..1100);
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert!(lock(&rig.stats.ring_failure).as_ref().is_some_and(|why| why.contains("symbolic link")));
}

#[test]
fn a_full_disk_is_said_once_and_seconds_are_kept_again_when_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_owned();
    // A mount namespace belongs to a thread.
    let full = std::thread::spawn(move || {
        let mounted = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| {
                mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
            })
            .and_then(|()| {
                mount(Some("tmpfs"), &at, Some("tmpfs"), MsFlags::empty(), Some("size=1m,mode=700"))
            });
        if let Err(errno) = mounted {
            assert!(std::env::var_os("CI").is_none(), "cannot mount a small tmpfs: {errno}");
            eprintln!("skipped: cannot mount a small tmpfs: {errno}");
            return;
        }
        fill(&at);
    });
    full.join().unwrap();
}

fn fill(dir: &Path) {
    let ballast = dir.join("ballast");
    std::fs::write(&ballast, vec![1; 512 << 10]).unwrap();
    let mut rig = Rig::open(dir, 8 * MIB, 1..200);
    let mut now = 1000;
    while lock(&rig.stats.ring_failure).is_none() {
        rig.feed(now..now + 1);
        now += 1;
        assert!(now < 20_000, "the disk never became full");
    }
    let why = lock(&rig.stats.ring_failure).clone().unwrap();
    assert!(why.contains("no space left") && why.contains("free space"), "{why}");
    // Nothing is tried for a minute; what was kept is told, and that nothing more is.
    let lost = rig.stats.ring_seconds_lost.get();
    rig.feed(now..now + 50);
    assert_eq!(rig.stats.ring_seconds_lost.get() - lost, 50);
    assert_eq!(rig.at(1030).unwrap().containers.len(), 199);
    assert!(rig.at(now + 49).unwrap_err().contains("now none is kept"), "{:?}", rig.at(now + 49));
    std::fs::remove_file(&ballast).unwrap();
    rig.feed(now + 50..now + 200);
    assert_eq!(*lock(&rig.stats.ring_failure), None);
    assert_eq!(rig.at(now + 190).unwrap().containers.len(), 199);
}
