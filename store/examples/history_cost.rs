//! What history costs: bytes on disk for a container and day, and the time until a month of it is read back.
//!
//! `history_cost disk busy|idle CONTAINERS DAYS` feeds the store one-second samples of made-up containers, each a
//! workload of its own, and prints the bytes of the history's files for one container and day.
//! `history_cost ready WORKLOADS` makes 9 days of hours and 30 days of days, and prints the seconds until a store that
//! has them is open again, the slowest hundredth of what an answer reads, and its memory.
//! `history_cost fill DIR WORKLOADS DAY` makes the same in a directory, the last day being DAY (days since 1970), for a
//! recommender to be started on.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people who measure")]

use std::time::{Duration, Instant};

use evenkeel_model::key::ContainerKey;
use evenkeel_proto::frame::synth::{Load, Synth};
use evenkeel_proto::frame::{Encoder, KEY_EVERY};
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::{Day, History, Hour, Scope};
use evenkeel_store::config::{Settings, Size};
use evenkeel_store::history::exchange::{Batch, DayOf, HourOf};
use evenkeel_store::history::{HistoryView, ViewTarget};
use evenkeel_store::ingest::store::{FrameOutcome, Store};
use evenkeel_store::key::{StreamKey, Subject};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let dir = tempfile::tempdir().unwrap();
    let config = Settings::at(dir.path());
    match arguments[..] {
        ["disk", load, containers, days] => {
            let load = if load == "idle" { Load::Idle } else { Load::Busy };
            disk(&config, load, containers.parse().unwrap(), days.parse().unwrap());
        }
        ["ready", workloads] => ready(&config, workloads.parse().unwrap()),
        ["fill", dir, workloads, day] => {
            let config = Settings { state_dir: dir.into(), ..config };
            fill(&config, workloads.parse().unwrap(), day.parse().unwrap());
            let files = std::fs::read_dir(config.history_dir()).unwrap();
            let bytes: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
            println!("history_mib={:.1}", bytes as f64 / f64::from(1 << 20));
        }
        _ => {
            eprintln!(
                "usage: history_cost disk busy|idle CONTAINERS DAYS | ready WORKLOADS | fill DIR WORKLOADS DAY"
            );
            std::process::exit(2);
        }
    }
}

fn identity(slot: u32) -> v1::ContainerIdentity {
    v1::ContainerIdentity {
        namespace: format!("team-{}", slot % 20),
        pod: format!("app-{slot}-7d9f8b6c5d-x2x4z"),
        container: "main".into(),
        workload: format!("deployment/app-{slot}"),
        image: format!("registry.test/team-{}/app-{slot}:1.2.3", slot % 20),
        command_hash: Some(u64::from(slot)),
        ..v1::ContainerIdentity::default()
    }
}

fn disk(config: &Settings, load: Load, containers: u32, days: u64) {
    let mut config = config.clone();
    config.log.max_bytes = Size::from_mib(64 << 10);
    config.ingest.max_containers_per_node = containers as usize + 1;
    let (mut store, _) = Store::open(&config).unwrap();
    let key = StreamKey { cluster: "bench".into(), node: "node".into(), epoch: 1 };
    let hello = v1::Hello { cluster: "bench".into(), node: "node".into(), epoch: 1, ..v1::Hello::default() };
    let mut synth = Synth::new(7, containers, load);
    let mut encoder = Encoder::new();
    // The first second of a day.
    let mut now = 1_699_920_000_000_000;
    store.hello(now, &hello).unwrap();
    let began = Instant::now();
    for sequence in 1..=days * 86_400 {
        let (_, interval, samples) = synth.tick();
        now += u64::from(interval);
        let mut bytes = Vec::new();
        let is_key = (sequence - 1).is_multiple_of(u64::from(KEY_EVERY));
        encoder.encode_seconds(is_key, now, interval, samples, &mut bytes).unwrap();
        let announce = |slot| v1::Announcement { slot, identity: Some(identity(slot)) };
        let frame = v1::Frame {
            sequence,
            samples_crc32c: crc32c::crc32c(&bytes),
            samples: bytes.into(),
            announced: if sequence == 1 { (1..=containers).map(announce).collect() } else { Vec::new() },
            ..v1::Frame::default()
        };
        let outcome = store.take(now, &key, &frame, sequence == 1).unwrap();
        assert!(matches!(outcome, FrameOutcome::Acknowledge { .. }), "{outcome:?}");
        if sequence.is_multiple_of(1800) {
            store.checkpoint().unwrap();
        }
    }
    let took = began.elapsed().as_secs_f64();
    // Whatever is still open is sealed a while after the last sample.
    store.retire_idle(now, Duration::from_secs(4 * 86_400)).unwrap();
    for minute in 0..u64::from(containers) / 4 + 60 {
        let (off, wish) =
            (evenkeel_model::panic::Panic::Off, evenkeel_store::ingest::store::PanicWish::default());
        store.set_panic(now + minute * 60_000_000, off, String::new(), wish).unwrap();
    }
    store.checkpoint().unwrap();
    let files = std::fs::read_dir(config.history_dir()).unwrap().map(|e| e.unwrap());
    let mut kinds = [("minutes", 0), ("hours", 0), ("days", 0)];
    for file in files {
        let kind = file.path().extension().unwrap().to_string_lossy().into_owned();
        let place = kinds.iter_mut().find(|k| k.0 == kind).unwrap();
        place.1 += file.metadata().unwrap().len();
    }
    let container_days = f64::from(containers) * days as f64;
    let each = |bytes: u64| bytes as f64 / 1024.0 / container_days;
    println!("kib_per_container_day={:.3}", each(kinds.iter().map(|k| k.1).sum()));
    for (kind, bytes) in kinds {
        println!("{kind}_kib={:.3}", each(bytes));
    }
    println!("samples_per_second={:.0}", container_days * 86_400.0 / took);
}

/// A made-up histogram of an hour or a day of one workload: a hump of some buckets, at a height of its own.
fn heights(seed: u64, buckets: u64, weight_ms: u64) -> Histogram {
    let mut histogram = Histogram::new();
    let base = 50_000 + seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 900_000;
    for i in 0..buckets {
        let weight = weight_ms / buckets + seed.wrapping_mul(i + 3) % 997;
        histogram.add(base + base * i / 20, weight);
    }
    histogram
}

/// Makes a store with hours and days up to a day.
fn fill(config: &Settings, workloads: u32, last_day: u64) {
    const HOURS: u64 = 9 * 24;
    const DAYS: u64 = 30;
    let (mut store, _) = Store::open(config).unwrap();
    for slot in 1..=workloads {
        let mut batch = Batch::default();
        for subject in subjects(slot) {
            for resource in Resource::ALL {
                for back in 0..DAYS {
                    let (all, minutes) = (
                        heights(u64::from(slot) + back, 24, 86_400_000),
                        heights(u64::from(slot) + back, 16, 1440),
                    );
                    let day = Day { day: last_day - back, peak: 1 << 20, all, minutes };
                    batch.days.push(DayOf { subject: subject.clone(), resource, day });
                }
                if subject.scope() == Scope::Own {
                    for back in 0..HOURS {
                        let all = heights(u64::from(slot) * 31 + back, 16, 3_600_000);
                        let worst = Some(heights(u64::from(slot) * 37 + back, 12, 3_600_000));
                        let hour = last_day * 24 + 23 - back;
                        let hour = Hour { hour, all, worst, peak: 1 << 20, starved_ms: back };
                        batch.hours.push(HourOf { subject: subject.clone(), resource, hour });
                    }
                }
            }
        }
        store.fill(&batch);
        if slot.is_multiple_of(500) {
            store.checkpoint().unwrap();
        }
    }
    store.checkpoint().unwrap();
}

fn ready(config: &Settings, workloads: u32) {
    fill(config, workloads, 19_675);
    let began = Instant::now();
    let (store, report) = Store::open(config).unwrap();
    println!("ready_seconds={:.3}", began.elapsed().as_secs_f64());
    println!("history_mib={:.1}", report.history_bytes as f64 / f64::from(1 << 20));
    println!("subjects={}", report.coverage.subjects);
    let state = store.state();
    let mut times: Vec<f64> = (1..=workloads.min(2000)).map(|slot| read(&state.read(), slot)).collect();
    times.sort_by(f64::total_cmp);
    println!("read_p99_ms={:.3}", times[times.len() * 99 / 100] * 1000.0);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    println!("resident_mib={:.1}", kib.unwrap_or(0.0) / 1024.0);
}

fn subjects(slot: u32) -> Vec<Subject> {
    let identity = identity(slot);
    let s = |text: &str| text.to_owned();
    let (image, tag) = identity.image.rsplit_once(':').unwrap();
    let (container, namespace) = (s("main"), identity.namespace.clone());
    let own = Subject::Own(ContainerKey::new("bench", &*namespace, &*identity.workload, &*container));
    let command = Subject::Command { container, image: s(image), tag: s(tag), hash: u64::from(slot) };
    let spaced = Subject::NamespaceImageTag { cluster: s("bench"), namespace, image: s(image), tag: s(tag) };
    let tagged = Subject::ImageTag { image: s(image), tag: s(tag) };
    vec![own, command, spaced, tagged, Subject::Image { image: s(image) }]
}

/// Seconds to read what an answer for both resources of one container needs.
fn read(state: &evenkeel_store::state::StoreState, slot: u32) -> f64 {
    let identity = identity(slot);
    let began = Instant::now();
    let mut seen = 0;
    for resource in Resource::ALL {
        let of = ViewTarget {
            cluster: Some("bench"),
            namespace: &identity.namespace,
            workload: &identity.workload,
            container: "main",
            image: None,
            command: None,
        };
        let view = HistoryView::new(state, of, resource);
        seen += view.hours(Scope::Own, 0).len() + view.days(Scope::Own, 0).len() + view.events(0).len();
    }
    assert!(seen > 0, "there is history of slot {slot}");
    began.elapsed().as_secs_f64()
}
