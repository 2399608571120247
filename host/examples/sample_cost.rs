//! What sampling costs on this machine: CPU time per tick over real cgroups with one sleeping process each, beside
//! a bare pread loop over the same files.
//!
//! `cargo run --release -p evenkeel-host --example sample_cost -- [CONTAINERS] [TICKS]`, as root. Also shows the
//! cost of an audit's look at each process.

#[path = "../tests/common/mod.rs"]
mod common;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::RealCgroup;
use evenkeel_host::process::{ProcessHandle, score_of};
use evenkeel_host::sampler::{
    ContainerReader, Descriptors, Keeping, Plan, SampleContext, descriptors_needed, raise_nofile,
};
use nix::sys::uio::pread;
use nix::time::{ClockId, clock_gettime};

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let containers = args.next().unwrap_or(1000);
    let ticks = args.next().unwrap_or(30).max(1);
    let begun = Instant::now();
    let mut pids = Vec::new();
    let mut cgroups = Vec::new();
    for _ in 0..containers {
        let Some(mut cgroup) = RealCgroup::new("sample_cost") else { return };
        pids.push(cgroup.spawn("sleep", &["100000"]));
        cgroups.push(cgroup);
    }
    let Some(first) = cgroups.first() else { return };
    println!("{containers} containers, {} layout, made in {:.1?}", first.mode().name(), begun.elapsed());

    // Ours and the bare loop's.
    let wanted = 2 * descriptors_needed(first.tree.layout(), containers);
    let limit = raise_nofile(wanted).expect("the limit can be read");
    println!("descriptors: {} of {} wanted", limit.limit, limit.wanted);
    let half = Descriptors::within(limit.limit / 2);
    compare("every file, every tick", &cgroups, &half, Plan::refresh_every(1), ticks);
    compare("default plan, all idle", &cgroups, &half, Plan::default(), ticks);
    compare("reopening every file", &cgroups, &Descriptors::within(0), Plan::refresh_every(1), ticks.min(5));
    audit(first, &pids);
}

/// One plan beside the bare loop over the same files; interleaved, so that what else runs here disturbs both alike.
fn compare(name: &str, cgroups: &[RealCgroup], descriptors: &Descriptors, plan: Plan, ticks: u64) {
    let mut ours = Sampled::open(cgroups, descriptors, plan);
    let files: Vec<OwnedFd> = ours.files().collect();
    let mut buffer = vec![0u8; 16 * 1024];
    let (mut bare, mut sampler, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    ours.tick(0);
    for tick in 1..=ticks {
        bare += cpu_time_of(|| files.iter().for_each(|fd| bytes += pread(fd, &mut buffer, 0).unwrap_or(0)));
        sampler += cpu_time_of(|| ours.tick(tick));
    }
    let ms = |d: Duration| d.as_secs_f64() * 1000.0 / ticks as f64;
    println!(
        "{name:24} sampler {:6.2} ms a tick, bare pread of {} files {:6.2} ms ({} KiB): {:.2}x; {} readers keep descriptors",
        ms(sampler),
        files.len(),
        ms(bare),
        bytes as u64 / ticks / 1024,
        sampler.as_secs_f64() / bare.as_secs_f64(),
        ours.kept(),
    );
}

fn audit(cgroup: &RealCgroup, pids: &[u32]) {
    let score = cpu_time_of(|| assert!(pids.iter().all(|p| score_of(&cgroup.roots, *p).is_ok())));
    let facts = cpu_time_of(|| {
        for pid in pids {
            ProcessHandle::open(&cgroup.roots, *pid).and_then(|h| h.facts()).expect("it lives");
        }
    });
    let each = |d: Duration| d.as_secs_f64() * 1e6 / pids.len() as f64;
    println!("audit: {:.1} us per process for its score, {:.1} us for all facts", each(score), each(facts));
}

struct Sampled {
    context: SampleContext,
    readers: Vec<ContainerReader>,
    roots: std::path::PathBuf,
}

impl Sampled {
    fn open(cgroups: &[RealCgroup], descriptors: &Descriptors, plan: Plan) -> Self {
        let context = SampleContext::new(Arc::clone(&cgroups[0].tree), descriptors.clone(), plan);
        let open = |c: &RealCgroup| ContainerReader::open(&context, &c.path).expect("it stands").reader;
        let readers = cgroups.iter().map(open).collect();
        Self { context, readers, roots: cgroups[0].roots.cgroup().to_owned() }
    }

    fn tick(&mut self, tick: u64) {
        for reader in &mut self.readers {
            reader.sample(&mut self.context, Duration::from_secs(tick), tick).expect("it stands");
        }
    }

    fn kept(&self) -> usize {
        self.readers.iter().filter(|r| r.keeping() == Keeping::Kept).count()
    }

    fn files(&self) -> impl Iterator<Item = OwnedFd> {
        self.readers.iter().flat_map(|r| r.files()).map(|(place, file)| {
            let mount = match self.roots.join("cgroup.procs").exists() {
                true => self.roots.clone(),
                false => self.roots.join(place.hierarchy.to_string()),
            };
            let path = mount.join(place.path.trim_start_matches('/')).join(file);
            OwnedFd::from(File::open(path).expect("the sampler has it open too"))
        })
    }
}

fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let now = || {
        Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every kernel has this clock"))
    };
    let before = now();
    work();
    now() - before
}
