//! The reader of cgroup files by itself, against a loop that reads the same bytes and makes nothing of them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::roots::Roots;
use evenkeel_host::sampler::{ContainerReader, Descriptors, Keeping, Plan, SampleContext, raise_nofile};
use nix::sys::uio::pread;

use super::counting::allocations;
use crate::figure::{Figure, Target};
use crate::fleet::{CONTAINERS, Fleet};
use crate::nursery::Habit;
use crate::pair::Place;
use crate::run::Run;
use crate::usage::{monotonic, thread_time};

/// Pause between rounds: the kernel gathers memory statistics lazily, and something should have changed.
const PAUSE: Duration = Duration::from_millis(200);

/// Readers of all containers.
struct Readers {
    context: SampleContext,
    readers: Vec<ContainerReader>,
    tick: u64,
}

impl Readers {
    fn open(fleet: &Fleet, plan: Plan, limit: u64) -> Result<Readers> {
        let tree = CgroupTree::open(&Roots::default()).context("cannot open the cgroup hierarchies")?;
        let context = SampleContext::new(Arc::new(tree), Descriptors::within(limit), plan);
        let mut readers = Vec::new();
        for berth in &fleet.berths {
            let path = berth.cgroup.path();
            let opened =
                ContainerReader::open(&context, &path).with_context(|| format!("cannot open {path}"))?;
            if opened.reader.keeping() != Keeping::Kept {
                bail!("{limit} descriptors (RLIMIT_NOFILE) are too few for {CONTAINERS} containers");
            }
            readers.push(opened.reader);
        }
        Ok(Readers { context, readers, tick: 0 })
    }

    /// One tick over all containers.
    fn tick(&mut self) -> Result<()> {
        let now = monotonic()?;
        for reader in &mut self.readers {
            let (sample, flaws) =
                reader.sample(&mut self.context, now, self.tick).context("cannot sample")?;
            if !flaws.is_empty() {
                bail!("a file could not be read or understood: {flaws:?}");
            }
            std::hint::black_box(sample);
        }
        self.tick += 1;
        Ok(())
    }
}

/// Gives both figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let nofile = raise_nofile(20_000).context("cannot raise RLIMIT_NOFILE")?;
    let place = Place::new()?;
    let fleet = Fleet::launch(run, &place.manifests(), CONTAINERS, 1, Habit::Active)?;
    let figures = measure(run, &fleet, nofile.limit);
    fleet.remove()?;
    figures
}

fn measure(run: &Run, fleet: &Fleet, limit: u64) -> Result<Vec<Figure>> {
    let mut every = Readers::open(fleet, Plan::refresh_every(1), limit)?;
    let files = same_files(&cgroups_of(fleet))?;
    run.say(&format!("reading {} files of {CONTAINERS} containers, every process active", files.len()));
    let mut buffer = vec![0_u8; 16 * 1024];
    bare(&files, &mut buffer)?;
    every.tick()?;
    let (mut ours, mut bares, mut ratios, mut allocated) = (0.0, 0.0, Vec::new(), Vec::new());
    let rounds = (run.length.as_secs() / 2).clamp(5, 100);
    for round in 0..rounds {
        run.sleep(PAUSE)?;
        let (mut sampler, mut loop_) = (0.0, 0.0);
        // Whoever comes first pays for what the kernel sums up on the first read, so they take turns.
        for first in [true, false] {
            if (round % 2 == 0) == first {
                let before = allocations();
                sampler = timed(|| every.tick())?;
                allocated.push((allocations() - before) as f64);
            } else {
                loop_ = timed(|| bare(&files, &mut buffer))?;
            }
        }
        ours += sampler;
        bares += loop_;
        ratios.push(sampler / loop_);
    }
    let planned = planned(run, fleet, limit, files, rounds)?;
    let per_tick = 1000.0 / rounds as f64;
    let ratio = Figure::new("sample/sampler-vs-pread", ours / bares, "times", Target::AtMost(2.0))
        .spread(&ratios)
        .ratio_to(bares * per_tick)
        .what(format!(
            "CPU time of the sampler's thread against (baseline, ms a tick) a bare pread loop over the same files kept open, every file \
             read on every tick by both: {:.2} against {:.2} ms a tick; with the sampler's own plan, which leaves \
             out what cannot have changed, {planned:.2} ms",
            ours * per_tick,
            bares * per_tick,
        ));
    let most = allocated.iter().copied().fold(0.0, f64::max);
    let none = Figure::new("sample/allocations-per-tick", most, "allocations", Target::AtMost(0.0))
        .spread(&allocated)
        .what("the most in any tick of the sampler over 1,000 containers after its first, counted by the allocator");
    Ok(vec![ratio, none])
}

/// CPU time of a tick with the default plan, milliseconds. Takes the bare loop's descriptors back first.
fn planned(run: &Run, fleet: &Fleet, limit: u64, files: Vec<File>, rounds: u64) -> Result<f64> {
    drop(files);
    let mut readers = Readers::open(fleet, Plan::default(), limit)?;
    readers.tick()?;
    let mut all = 0.0;
    for _ in 0..rounds {
        run.sleep(PAUSE)?;
        all += timed(|| readers.tick())?;
    }
    Ok(all * 1000.0 / rounds as f64)
}

/// CPU time of this thread, seconds.
fn timed(mut what: impl FnMut() -> Result<()>) -> Result<f64> {
    let before = thread_time()?;
    what()?;
    Ok(thread_time()?.saturating_sub(before).as_secs_f64())
}

/// Reads everything and makes nothing of it.
fn bare(files: &[File], buffer: &mut [u8]) -> Result<()> {
    for file in files {
        let read = pread(file, buffer, 0).context("cannot read a cgroup file")?;
        std::hint::black_box(read);
    }
    Ok(())
}

fn cgroups_of(fleet: &Fleet) -> Vec<String> {
    fleet.berths.iter().map(|berth| berth.cgroup.path()).collect()
}

/// The very files the sampler keeps open, opened once more: found among this process's descriptors.
fn same_files(cgroups: &[String]) -> Result<Vec<File>> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd").context("cannot list descriptors")? {
        // The listing's own descriptor is gone when it is looked at.
        let Ok(path) = std::fs::read_link(entry?.path()) else { continue };
        let directory = path.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        if path.is_file() && cgroups.iter().any(|cgroup| directory.ends_with(cgroup)) {
            paths.push(path);
        }
    }
    anyhow::ensure!(!paths.is_empty(), "the sampler keeps no file open");
    let open = |path: &PathBuf| File::open(path).with_context(|| format!("cannot open {}", path.display()));
    paths.iter().map(open).collect()
}
