//! Suite `engines`: the history through real engines, Prometheus, VictoriaMetrics and InfluxDB, and back.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;
mod products;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_model::key::ContainerKey;
use evenkeel_model::rollup::Aggregate;
use evenkeel_recommender::config::{EngineKind, EngineSection, SecretFrom, Span};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::{Cause, Day, Event, Hour};
use evenkeel_store::engines::worker::{self, Queue};
use evenkeel_store::engines::{EngineCounters, open};
use evenkeel_store::history::exchange::{
    Batch, Coverage, DayOf, EngineError, EventOf, HourOf, MinuteOf, PartOf,
};
use evenkeel_store::key::Subject;
use products::program::Program;
use products::{Product, Running, is_here};

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
const DAY: u32 = 24 * 60;

/// Begin of the present day, minutes since 1970.
fn today() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    u32::try_from(now / 86_400).unwrap() * DAY
}

fn own(workload: &str) -> Subject {
    Subject::Own(ContainerKey::new("north", "shop", workload, "main"))
}

/// Numbers that look like chance and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) % below
    }

    fn aggregate(&mut self, below: u64) -> Aggregate {
        (0..60).fold(Aggregate::default(), |mut all, _| {
            all.add(self.next(below));
            all
        })
    }

    fn histogram(&mut self, below: u64) -> Histogram {
        (0..200).fold(Histogram::new(), |mut all, _| {
            all.add(self.next(below), 1 + self.next(60_000));
            all
        })
    }

    fn minute(&mut self, workload: &str, replica: &str, minute: u32) -> MinuteOf {
        MinuteOf {
            subject: own(workload),
            replica: replica.into(),
            image: Some("docker.io/library/web".into()),
            tag: Some("1.27".into()),
            minute,
            weight_ms: 60_000,
            cpu_micro: self.aggregate(8_000_000),
            memory_bytes: self.aggregate(1 << 36),
            starved_ms: self.next(60_000),
            oom_kills: self.next(2),
        }
    }
}

/// Values of every kind and scope over some days before `end`, odd ones among them.
fn history(end: u32, days: u32) -> Batch {
    let mut numbers = Numbers(7);
    let mut batch = Batch::default();
    for (workload, replica) in
        [("deployment/web", "web-1"), ("deployment/web", "web-2"), ("a,b=c d\\\"%é", "x y")]
    {
        for minute in (end - days * DAY..end).step_by(97) {
            batch.minutes.push(numbers.minute(workload, replica, minute));
        }
    }
    // What arrives late for a minute that was told already is a further value.
    let late = numbers.minute("deployment/web", "web-1", end - days * DAY);
    batch.minutes.push(late);
    let bare = MinuteOf {
        image: None,
        tag: None,
        cpu_micro: Aggregate::default(),
        memory_bytes: Aggregate { count: 1, sum: 1 << 53, min: 1 << 53, max: 1 << 53 },
        ..numbers.minute("job/once", "once", end - 1)
    };
    batch.minutes.push(bare);
    for hour in (u64::from(end / 60 - days * 24)..u64::from(end / 60)).step_by(5) {
        for resource in [Resource::Cpu, Resource::Memory] {
            let worst = (hour % 2 == 0).then(|| numbers.histogram(8_000_000));
            let hour =
                Hour { hour, all: numbers.histogram(1 << 36), worst, peak: 1 << 36, starved_ms: hour % 1000 };
            batch.hours.push(HourOf { subject: own("deployment/web"), resource, hour });
        }
    }
    let (image, tag) = ("registry:5000/team/web".to_owned(), "sha256:00ff".to_owned());
    let subjects = [
        own("deployment/web"),
        Subject::Command { container: "main".into(), image: image.clone(), tag: tag.clone(), hash: u64::MAX },
        Subject::NamespaceImageTag {
            cluster: "north".into(),
            namespace: "shop".into(),
            image: image.clone(),
            tag: tag.clone(),
        },
        Subject::ImageTag { image: image.clone(), tag },
        Subject::Image { image },
    ];
    for day in u64::from(end / DAY - days)..u64::from(end / DAY) {
        for subject in &subjects {
            let mut all = numbers.histogram(u64::MAX);
            all.add(5, 3 << 41);
            let day = Day { day, all, minutes: Histogram::new(), peak: 17 };
            batch.days.push(DayOf { subject: subject.clone(), resource: Resource::Memory, day });
        }
    }
    // What is known of the last day while it goes on.
    for (hour, subject) in [(7, &subjects[0]), (8, &subjects[0]), (8, &subjects[1])] {
        let day = u64::from(end / DAY) - 1;
        let of =
            Day { day, all: numbers.histogram(1 << 36), minutes: numbers.histogram(1 << 36), peak: 1 << 36 };
        let of = DayOf { subject: subject.clone(), resource: Resource::Cpu, day: of };
        batch.parts.push(PartOf { of, until: end - DAY + hour * 60 + 17 });
    }
    let event = Event {
        time_ms: u64::from(end - 3) * 60_000 + 123,
        cause: Cause::OomKill,
        usage: Some(1 << 30),
        request: None,
        limit: Some(1 << 30),
        age_ms: Some(0),
    };
    batch.events.push(EventOf { subject: own("deployment/web"), event });
    let evicted = Event { cause: Cause::Eviction, usage: None, limit: None, age_ms: None, ..event };
    batch.events.push(EventOf { subject: own("job/once"), event: evicted });
    batch
}

/// A batch as text that does not depend on the order of its values.
fn sorted(batch: &Batch) -> Vec<String> {
    let mut all: Vec<String> = batch.minutes.iter().map(|v| format!("{v:?}")).collect();
    all.extend(batch.hours.iter().map(|v| format!("{v:?}")));
    all.extend(batch.parts.iter().map(|v| format!("{v:?}")));
    all.extend(batch.days.iter().map(|v| format!("{v:?}")));
    all.extend(batch.events.iter().map(|v| format!("{v:?}")));
    all.sort();
    all
}

fn write(section: &EngineSection, batch: &Batch) -> Result<(), EngineError> {
    open(section, &Arc::default()).unwrap().write(batch)
}

fn read(section: &EngineSection, from: u32, to: u32) -> (Batch, Coverage) {
    let mut all = Batch::default();
    let mut engine = open(section, &Arc::default()).unwrap();
    let coverage = engine.read(from, to, &mut |part| {
        all.minutes.extend(part.minutes);
        all.hours.extend(part.hours);
        all.days.extend(part.days);
        all.parts.extend(part.parts);
        all.events.extend(part.events);
    });
    (all, coverage.unwrap())
}

/// Reads until as much is there as was written: an engine may show a write some seconds after it acknowledged it.
fn read_all(section: &EngineSection, from: u32, to: u32, values: usize) -> (Batch, Coverage) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (batch, coverage) = read(section, from, to);
        if batch.len() >= values || Instant::now() > deadline {
            return (batch, coverage);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

#[track_caller]
fn assert_same(found: &Batch, want: &Batch) {
    let (found, want) = (sorted(found), sorted(want));
    let missing: Vec<_> = want.iter().filter(|v| !found.contains(v)).take(2).collect();
    let foreign: Vec<_> = found.iter().filter(|v| !want.contains(v)).take(2).collect();
    assert_eq!((found.len(), missing, foreign), (want.len(), Vec::new(), Vec::new()));
}

/// Reads what was written, and writes it again where a little of it is not there: Prometheus before March 2025 (2.42 of
/// Debian 12 among them) acknowledges the first sample of a new series and loses it when it cuts its head at that moment
/// (pull request 16333 there). A second write adds nothing to what is there.
fn read_back(
    product: Product,
    section: &EngineSection,
    given: &Batch,
    (from, to): (u32, u32),
) -> (Batch, Coverage) {
    let (back, coverage) = read_all(section, from, to, given.len());
    let lost = given.len().saturating_sub(back.len());
    if product != Product::Prometheus || !(1..=3).contains(&lost) {
        return (back, coverage);
    }
    eprintln!("Prometheus lost {lost} of {} acknowledged values: they are written again", given.len());
    write(section, given).unwrap();
    read_all(section, from, to, given.len())
}

/// What is written comes back equal, also when it is written twice, and after a restart of the engine.
fn round_trip(product: Product) {
    if !is_here(product) {
        return;
    }
    let mut engine = Running::start(product);
    let section = EngineSection { recent: Span::from_days(31), ..engine.section() };
    let (end, days) = (today(), 30);
    let given = history(end, days);
    write(&section, &given).unwrap();
    let (back, coverage) = read_back(product, &section, &given, (end - days * DAY, end));
    assert_same(&back, &given);
    assert_eq!(coverage.span, Some((end - days * DAY, end - 1)));
    assert_eq!((coverage.minutes, coverage.refused), (given.minutes.len() as u64, 0));
    assert_eq!((coverage.days, coverage.events), (given.days.len() as u64, 2));
    write(&section, &given).unwrap();
    engine.restart();
    let section = EngineSection { recent: Span::from_days(31), ..engine.section() };
    let (back, _) = read_all(&section, end - days * DAY, end, given.len());
    assert_same(&back, &given);
    let (part, coverage) = read(&section, end - 2 * DAY, end - DAY);
    let wanted = |minute: &MinuteOf| (end - 2 * DAY..end - DAY).contains(&minute.minute);
    assert_eq!(part.minutes.len(), given.minutes.iter().filter(|m| wanted(m)).count());
    assert!(coverage.span.is_some_and(|(from, to)| from >= end - 2 * DAY && to < end - DAY));
}

#[test]
fn prometheus_gives_back_what_it_took() {
    round_trip(Product::Prometheus);
}

#[test]
fn victoria_metrics_gives_back_what_it_took() {
    round_trip(Product::VictoriaMetrics);
}

#[test]
fn influxdb_gives_back_what_it_took() {
    round_trip(Product::InfluxDb);
}

#[test]
fn prometheus_without_a_window_refuses_what_is_old_and_keeps_the_rest() {
    if !is_here(Product::StrictPrometheus) {
        return;
    }
    let engine = Running::start(Product::StrictPrometheus);
    let section = engine.section();
    let now = today() + 20 * 60;
    let minutes = |from: u32, count: u32| {
        let mut numbers = Numbers(u64::from(from));
        let minutes = (from..from + count).map(|minute| numbers.minute("deployment/web", "web-1", minute));
        Batch { minutes: minutes.collect(), ..Batch::default() }
    };
    let counters = Arc::new(EngineCounters::default());
    let mut writer = open(&section, &counters).unwrap();
    writer.write(&minutes(now, 10)).unwrap();
    // A day late, an hour of them, and some that are in time, in one batch.
    let mut mixed = minutes(now - DAY, 60);
    mixed.minutes.extend(minutes(now + 10, 5).minutes);
    let error = writer.write(&mixed).unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("out_of_order_time_window"), "{error}");
    assert_eq!(counters.refused.load(Ordering::Relaxed), 60, "{error}");
    assert_eq!(counters.written.load(Ordering::Relaxed), 15);
    let asked = counters.refusals.load(Ordering::Relaxed);
    assert!(asked <= 20, "old ones are not asked about one by one: {asked} requests");
    let mut want = minutes(now, 10);
    want.minutes.extend(minutes(now + 10, 5).minutes);
    assert_same(&read_all(&section, now - 2 * DAY, now + DAY, 15).0, &want);
}

#[test]
fn a_closed_engine_is_reached_with_its_authority_and_password_and_not_without() {
    if !is_here(Product::ClosedPrometheus) {
        return;
    }
    let engine = Running::start(Product::ClosedPrometheus);
    let dir = engine.dir();
    std::fs::write(dir.join("password"), "sesame\n").unwrap();
    let section = EngineSection {
        user: Some("keel".into()),
        password: Some(SecretFrom::File(dir.join("password"))),
        ca_file: Some(dir.join("ca.pem")),
        ..engine.section()
    };
    let given = history(today(), 1);
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = write(&section, &given) {
        assert!(error.is_transient() && Instant::now() < deadline, "{error}\n{}", engine.told());
        thread::sleep(Duration::from_millis(100));
    }
    assert_same(&read_all(&section, today() - DAY, today(), given.len()).0, &given);
    std::fs::write(dir.join("wrong"), "wrong").unwrap();
    let wrong = EngineSection { password: Some(SecretFrom::File(dir.join("wrong"))), ..section.clone() };
    let error = write(&wrong, &given).unwrap_err().to_string();
    assert!(error.contains("401") && !error.contains("sesame"), "{error}");
    let unknown = EngineSection { ca_file: None, ..section };
    let error = write(&unknown, &given).unwrap_err().to_string();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
}

/// What is left of minutes that were acknowledged right before SIGKILL: how many of how many; none is ever damaged.
fn after_kill(product: Product) -> Option<(usize, usize)> {
    if !is_here(product) {
        return None;
    }
    let mut engine = Running::start(product);
    let given = history(today(), 3);
    write(&engine.section(), &given).unwrap();
    engine.kill_and_start();
    let (back, coverage) = read(&engine.section(), today() - 3 * DAY, today());
    let want = sorted(&given);
    assert!(sorted(&back).iter().all(|value| want.contains(value)), "what is left is what was written");
    println!("{product:?}: {} of {} values left, {} refused", back.len(), given.len(), coverage.refused);
    Some((back.len(), given.len()))
}

#[test]
fn prometheus_keeps_what_it_acknowledged_before_sigkill() {
    if let Some((left, all)) = after_kill(Product::Prometheus) {
        assert_eq!(left, all);
    }
}

#[test]
fn influxdb_keeps_what_it_acknowledged_before_sigkill() {
    if let Some((left, all)) = after_kill(Product::InfluxDb) {
        assert_eq!(left, all);
    }
}

#[test]
fn victoria_metrics_may_lose_what_it_acknowledged_before_sigkill_and_damages_nothing() {
    // It writes to disk about once a second, so how much is left depends on when the signal comes.
    let _how_much = after_kill(Product::VictoriaMetrics);
}

#[test]
fn what_waits_while_the_engine_is_down_arrives_once_it_is_back() {
    if !is_here(Product::InfluxDb) {
        return;
    }
    let mut engine = Running::start(Product::InfluxDb);
    let section = engine.section();
    let counters = Arc::new(EngineCounters::default());
    let queue = Arc::new(Queue::new(1_000_000, Arc::clone(&counters)));
    engine.end();
    let writer = worker::write(open(&section, &counters).unwrap(), Arc::clone(&queue)).unwrap();
    let given = history(today(), 2);
    queue.push(given.clone());
    let deadline = Instant::now() + PATIENCE;
    while counters.unavailable.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(counters.written.load(Ordering::Relaxed), 0);
    engine.start_again();
    while counters.written.load(Ordering::Relaxed) < given.len() as u64 {
        assert!(Instant::now() < deadline + PATIENCE);
        thread::sleep(Duration::from_millis(10));
    }
    queue.stop();
    writer.join().unwrap();
    assert_eq!(counters.dropped.load(Ordering::Relaxed), 0);
    assert_same(&read(&section, today() - 2 * DAY, today()).0, &given);
}

/// A recommender without any past takes it from one engine at its start, answers from it, tells how much there is, and has
/// it in another engine and in its own files when it ends.
fn taken_over(from: Product, to: Product) {
    if !is_here(from) || !is_here(to) {
        return;
    }
    let (from, to) = (Running::start(from), Running::start(to));
    let (end, days) = (today(), 3);
    let given = history(end, days);
    write(&from.section(), &given).unwrap();
    assert_same(&read_all(&from.section(), end - days * DAY, end, given.len()).0, &given);
    let dir = tempfile::tempdir().unwrap();
    let mut fresh = Program::start(dir.path(), &[from.section()], &[to.section()]);
    fresh.wait("history is read back", |program| {
        program.told("history read back").iter().any(|line| line["engine"].is_string())
    });
    let told = fresh.told("history read back");
    let coverage = told.iter().find(|line| line["engine"].is_string()).unwrap();
    let count = |name: &str| coverage[name].as_u64().unwrap();
    assert_eq!(
        ["minutes", "hours", "days", "parts", "events"].map(|kind| count(kind) as usize),
        [given.minutes.len(), given.hours.len(), given.days.len(), given.parts.len(), given.events.len()],
        "{coverage}"
    );
    assert_eq!(count("refused"), 0);
    assert!(count("missing_hours") > 0, "gaps are shown: {coverage}");
    let metric = format!("evenkeel_recommender_engine_read_values_total {}", given.len());
    fresh.wait("the values to be counted", |program| program.get("/metrics").lines().any(|l| l == metric));
    let usage = fresh.usage();
    let mut want: BTreeMap<String, u64> = BTreeMap::new();
    for minute in &given.minutes {
        let Subject::Own(ContainerKey { workload, .. }) = &minute.subject else { continue };
        *want.entry(workload.clone()).or_default() += minute.memory_bytes.count;
    }
    assert_eq!(usage, want);
    fresh.stop();
    // A day that goes on is told from what is here of it, and nothing is heard of nodes here.
    let whole = Batch { parts: Vec::new(), ..given };
    assert_same(&read_all(&to.section(), end - days * DAY, end, whole.len()).0, &whole);

    // It is the recommender's own now; engines that are not there do not keep it from starting.
    let gone = EngineSection::new(EngineKind::Prometheus, "http://127.0.0.1:1".to_owned());
    let mut again = Program::start(dir.path(), &[gone], &[]);
    again.wait("it is ready", |program| program.get("/readyz") == "ready\n");
    assert_eq!(again.usage(), want);
    again.wait("the engine to be missed", |program| {
        let lines = program.get("/metrics");
        lines.lines().any(|line| {
            let count = line.strip_prefix("evenkeel_recommender_engine_unavailable_total ");
            count.is_some_and(|count| count != "0")
        })
    });
    again.stop();
}

#[test]
fn a_fresh_recommender_takes_history_from_influxdb_to_prometheus() {
    taken_over(Product::InfluxDb, Product::Prometheus);
}

#[test]
fn a_fresh_recommender_takes_history_from_victoria_metrics_to_influxdb() {
    taken_over(Product::VictoriaMetrics, Product::InfluxDb);
}

/// Answers of a recommender: every workload's own, and of new pods of an image known by its tag, and by its name alone.
async fn answers(running: &common::Running) -> Vec<serde_json::Value> {
    let ask = |body: String| async move {
        let (method, path) = if body.is_empty() {
            ("GET", "/api/v1/recommendations")
        } else {
            ("POST", "/recommendedPodResources")
        };
        let (status, text) = common::http(running.http, method, path, &body).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let mut all = ask(String::new()).await.as_array().unwrap().clone();
    for image in ["job:1", "web:9"] {
        let answer = ask(common::pod(image, "")).await;
        let why = &answer["containers"][0]["evenkeel"];
        all.extend([why["cpu"].clone(), why["memory"].clone()]);
    }
    all
}

/// The disk is lost a minute after three hours of use: a recommender that begins with nothing answers from the engine as the
/// one before did. Nothing was sealed in order; hours and the day go on.
fn lost_disk(product: Product) {
    const SECONDS: usize = 3 * 3_600;
    if !is_here(product) {
        return;
    }
    let engine = Running::start(product);
    let section = engine.section();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let begin = |dir: &tempfile::TempDir| {
            let (section, dir) = (section.clone(), dir.path().to_owned());
            async move {
                common::Running::start(&dir, |config| {
                    config.recommend.rule = "goal".into();
                    config.history.engines = vec![section];
                })
                .await
            }
        };
        let first = begin(&dirs[0]).await;
        // A node that is on time: the three hours of the other come late, and an hour is not taken for over by them.
        let mut punctual = common::Agent::on("node-2", 8, &[]);
        punctual.time_usec += 590_000_000;
        let mut other = punctual.connect(first.grpc).await;
        other.send(punctual.measure(5)).await;
        other.acknowledged(5).await;
        let mut agent = common::Agent::new(7, &["web:1", "web:2", "job:1"]);
        agent.time_usec -= (SECONDS as u64 - 600) * 1_000_000;
        let mut link = agent.connect(first.grpc).await;
        // At once: what the day has is told whole the first time, half a minute after the start, and then by and by.
        link.send(vec![agent.measure_folded(SECONDS)]).await;
        link.acknowledged(SECONDS as u64).await;
        // Minutes are there within two, and what the day has.
        let sent = Instant::now();
        let (from, to) = (today() - 2 * DAY, today() + 2 * DAY);
        loop {
            let engine = section.clone();
            let had = tokio::task::spawn_blocking(move || read(&engine, from, to).0).await.unwrap();
            if had.minutes.len() >= 3 * 178 && had.parts.len() >= 2 * 8 {
                break;
            }
            let counts = (had.minutes.len(), had.parts.len());
            assert!(sent.elapsed() < 5 * PATIENCE, "after five minutes: {counts:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let before = answers(&first).await;
        let second = begin(&dirs[1]).await;
        let samples = |all: &[serde_json::Value]| all.iter().map(|r| r["samples"].as_u64().unwrap()).min();
        let begun = Instant::now();
        let after = loop {
            let after = answers(&second).await;
            if after.len() == before.len() && samples(&after) >= Some(SECONDS as u64 / 60 - 3) {
                break after;
            }
            assert!(begun.elapsed() < PATIENCE, "{before:#?} became {after:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        for (was, is) in before.iter().zip(&after) {
            let of = |r: &serde_json::Value, key: &str| r[key].as_u64().unwrap() as f64;
            assert_eq!((&was["tier"], &was["workload"]), (&is["tier"], &is["workload"]));
            for (key, part) in [("request", 0.03), ("samples", 0.03), ("spanSeconds", 0.03)] {
                let (a, b) = (of(was, key), of(is, key));
                assert!((a - b).abs() <= part * a, "{key}: {was} became {is}");
            }
        }
        assert_eq!(after.last().unwrap()["tier"], "image", "{after:?}");
        second.stop().await;
        first.stop().await;
    });
}

#[test]
fn a_lost_disk_is_rebuilt_from_prometheus() {
    lost_disk(Product::Prometheus);
}

#[test]
fn a_lost_disk_is_rebuilt_from_victoria_metrics() {
    lost_disk(Product::VictoriaMetrics);
}

#[test]
fn a_lost_disk_is_rebuilt_from_influxdb() {
    lost_disk(Product::InfluxDb);
}
