//! What an audit's look at a container costs on this machine: CPU time of listing its processes, reading a score,
//! a knob, and of opening the directory alone.
//!
//! `cargo run --release -p evenkeel-host --example audit_cost -- [CONTAINERS] [ROUNDS]`, as root.

#[path = "../tests/common/mod.rs"]
mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use common::RealCgroup;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::knob::Knob;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, Target};
use nix::time::{ClockId, clock_gettime};

fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().expect("a number"));
    let containers = args.next().unwrap_or(100);
    let rounds = usize::try_from(args.next().unwrap_or(200).max(1)).expect("a number of rounds");
    let mut cgroups = Vec::new();
    let mut pids = Vec::new();
    for _ in 0..containers {
        let Some(mut cgroup) = RealCgroup::new("audit_cost") else { return };
        pids.push(cgroup.spawn("sleep", &["100000"]));
        cgroups.push(cgroup);
    }
    let Some(first) = cgroups.first() else { return };
    let tree = Arc::clone(&first.tree);
    let fresh = KernelReader::new(first.roots.clone(), Arc::clone(&tree));
    let reader = fresh.clone().keeping_open(10 * cgroups.len());
    let facts: Vec<_> = cgroups.iter().map(|c| reader.cgroup(&c.path).expect("it is there")).collect();
    let places: Vec<CgroupRef> = facts.iter().filter_map(|f| f.processes_at().cloned()).collect();
    let knobs: Vec<(Target, Knob)> = facts
        .iter()
        .filter_map(|f| f.settings.iter().find(|k| k.value.is_ok()))
        .map(|k| (Target::Cgroup(k.place.clone()), k.knob))
        .collect();
    let all_knobs: Vec<Vec<(Target, Knob)>> = facts
        .iter()
        .map(|f| f.settings.iter().filter(|k| k.value.is_ok()))
        .map(|known| known.map(|k| (Target::Cgroup(k.place.clone()), k.knob)).collect())
        .collect();
    println!(
        "{containers} containers of one process, {} layout, best of {rounds} rounds",
        first.mode().name()
    );
    let each = |name: &str, mut act: Box<dyn FnMut(usize) + '_>| {
        let all = usize::try_from(containers).unwrap_or(0);
        // The quietest round: what else runs here makes rounds longer, never shorter.
        let round = || cpu_time_of(|| (0..all).for_each(&mut act));
        let spent = std::iter::repeat_with(round).take(rounds).min().unwrap_or_default();
        println!("{name:34} {:7.2} us", spent.as_secs_f64() * 1e6 / containers as f64);
    };
    each("open the directory by path", Box::new(|i| drop(black_box(tree.dir_of(&places[i])))));
    each("list its processes", Box::new(|i| drop(black_box(reader.pids(&places[i])))));
    each("read one score", Box::new(|i| drop(black_box(reader.score(pids[i])))));
    each("read one knob", Box::new(|i| drop(black_box(reader.setting(&knobs[i].0, knobs[i].1)))));
    let of_all = format!("processes, score and {} knobs", all_knobs[0].len());
    let audit = |reader: &KernelReader, i: usize| {
        drop(black_box(reader.pids(&places[i])));
        drop(black_box(reader.score(pids[i])));
        all_knobs[i].iter().for_each(|(at, knob)| drop(black_box(reader.setting(at, *knob))));
    };
    each(&of_all, Box::new(|i| audit(&reader, i)));
    each("the same, directories not kept", Box::new(|i| audit(&fresh, i)));
}

fn cpu_time_of(work: impl FnOnce()) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock"));
    let before = now();
    work();
    now() - before
}
