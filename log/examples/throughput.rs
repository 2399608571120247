//! Measures appending with group sync, and recovery: `cargo run --release -p evenkeel-log --example throughput -- [DIR] [SECONDS]`.
//!
//! One thread appends records of 1,000 bytes and flushes every 64, another syncs every 200 ms. First as fast as it
//! goes, then at the 5,000 records (5 MB) a second the recommender needs, for the CPU time that costs.
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_log::{Log, LogError, Options, Overflow};
use nix::sys::resource::{UsageWho, getrusage};

const RECORD: [u8; 1000] = [0x5a; 1000];
const BATCH: u32 = 64;

fn cpu_seconds() -> f64 {
    getrusage(UsageWho::RUSAGE_SELF).map_or(f64::NAN, |u| {
        let seconds = |t: nix::sys::time::TimeVal| t.tv_sec() as f64 + t.tv_usec() as f64 / 1e6;
        seconds(u.user_time()) + seconds(u.system_time())
    })
}

fn run(dir: &Path, seconds: f64, per_second: Option<f64>) -> Result<(), LogError> {
    let options = Options { overflow: Overflow::DropOldest, ..Options::default() };
    let (mut log, _) = Log::open(dir, options)?;
    let handle = log.sync_handle();
    let stop = AtomicBool::new(false);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let mut records = 0_u32;
    let syncs = std::thread::scope(|scope| {
        let syncer = scope.spawn(|| {
            let mut syncs = 0;
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(200));
                handle.sync()?;
                syncs += 1;
            }
            Ok::<u32, LogError>(syncs)
        });
        while start.elapsed().as_secs_f64() < seconds {
            for _ in 0..BATCH {
                log.append(&RECORD)?;
            }
            log.flush()?;
            records += BATCH;
            if let Some(rate) = per_second {
                let due = Duration::from_secs_f64(f64::from(records) / rate);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
        }
        stop.store(true, Ordering::Relaxed);
        syncer.join().unwrap_or(Ok(0))
    })?;
    log.sync()?;
    let (wall, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let rate = f64::from(records) / wall;
    println!(
        "{rate:.0} records/s, {:.1} MB/s durable, {syncs} syncs in {wall:.1} s, CPU {:.2} % of a core ({:.2} us a record)",
        rate / 1000.0,
        100.0 * cpu / wall,
        1e6 * cpu / f64::from(records),
    );
    Ok(())
}

fn main() -> Result<(), LogError> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("throughput.log"), PathBuf::from);
    let seconds = args.next().and_then(|s| s.parse().ok()).unwrap_or(5.0);
    run(&dir, seconds, None)?;
    let start = Instant::now();
    let (log, recovery) = Log::open(&dir, Options::default())?;
    let wall = start.elapsed().as_secs_f64();
    println!("recovered {} records, {:.0} MB in {wall:.2} s", recovery.records, recovery.bytes as f64 / 1e6);
    drop(log);
    run(&dir, seconds, Some(5000.0))
}
