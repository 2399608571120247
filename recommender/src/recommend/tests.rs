//! What answers rest on, of containers with and without a command, young and old, alone and many of one image.

use std::time::Duration;

use evenkeel_model::name::ResourceName;
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::usage::{Percentile, Stats};
use evenkeel_proto::frame::Encoder;
use evenkeel_rightsizing::histogram::Scheme;
use evenkeel_rightsizing::policy::Goals;
use evenkeel_rightsizing::usage::{UsageSecond, of_seconds};
use evenkeel_store::checkpoint;
use evenkeel_store::ingest::record::{IngestEntry as LogEntry, Taken};
use evenkeel_store::key::StreamKey;
use evenkeel_store::state::history::HistoryBounds;
use evenkeel_store::state::{Limits, StoreState};

use super::usage::UsageScope;
use super::*;
use crate::config::Config;

pub(super) const SECOND: u64 = 1_000_000;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;
pub(super) const DAY: u64 = 24 * HOUR;
/// Two in the morning of a day.
pub(super) const START: u64 = 19_675 * DAY + 2 * HOUR;
pub(super) const MIB: u64 = 1 << 20;

/// A node whose containers use what they are told to.
pub(super) struct Feed {
    pub(super) state: StoreState,
    encoder: Encoder,
    sequence: u64,
    pub(super) now: u64,
    used_usec: Vec<u64>,
    /// Limit of the containers that are started, and for how much of each second they wait for memory from then on.
    limit_mib: Option<u64>,
    waits_usec: u64,
    waited_usec: u64,
    /// CPU time that limits hold every container back, microseconds a second, and so far.
    pub(super) held_usec: u64,
    held_so_far_usec: u64,
}

pub(super) fn empty() -> StoreState {
    StoreState::new(Limits {
        history: HistoryBounds { retention_minutes: 35 * 24 * 60, series: 1_000, of_node: 1_000 },
        epochs: 10,
        containers: 1_000,
        per_node: 1_000,
        names_per_minute: 1_000,
        kills_per_hour: 500,
        gone_minutes: 5,
        events: 10,
        subjects: 5_000,
        start_usec: 0,
    })
}

/// Name of the workload, image and hash of the command.
type Who<'a> = (&'a str, &'a str, Option<u64>);

impl Feed {
    pub(super) fn new() -> Self {
        let (state, encoder) = (empty(), Encoder::new());
        let (limit_mib, waits_usec, waited_usec) = (None, 0, 0);
        Self {
            state,
            encoder,
            sequence: 0,
            now: START,
            used_usec: Vec::new(),
            limit_mib,
            waits_usec,
            waited_usec,
            held_usec: 0,
            held_so_far_usec: 0,
        }
    }

    /// The recommender ends, and goes on from its checkpoint.
    pub(super) fn restart(&mut self) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        checkpoint::write(&path, &checkpoint::encode(&self.state).finish(&[])).unwrap();
        self.state = empty();
        checkpoint::read(&path, &mut self.state).unwrap().unwrap();
    }

    fn take(&mut self, samples: Vec<u8>, announced: Vec<v1::Announcement>) {
        self.sequence += 1;
        let frame =
            v1::Frame { sequence: self.sequence, samples: samples.into(), announced, ..v1::Frame::default() };
        let key = StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 };
        self.state.apply(self.now, LogEntry::Taken(Taken::new(key, frame)));
    }

    /// One more container; it begins with a sample that stands for a moment.
    pub(super) fn start(&mut self, (workload, image, command_hash): Who<'_>) {
        self.used_usec.push(0);
        let requested = v1::ResourceValues {
            cpu_request_milli: Some(2_000),
            memory_request_bytes: Some(4_096 * MIB),
            memory_limit_bytes: self.limit_mib.map(|mib| mib * MIB),
            ..Default::default()
        };
        // Runtimes tell no image of a sandbox.
        let is_sandbox = image.is_empty();
        let identity = v1::ContainerIdentity {
            namespace: "shop".into(),
            pod: format!("{workload}-1"),
            container: if is_sandbox { "pause" } else { "main" }.into(),
            kind: if is_sandbox { v1::ContainerKind::Infrastructure } else { v1::ContainerKind::Unspecified }
                .into(),
            workload: format!("deployment/{workload}"),
            image: image.into(),
            command_hash,
            requested: Some(requested),
            ..Default::default()
        };
        let announced =
            vec![v1::Announcement { slot: self.used_usec.len() as u32, identity: Some(identity) }];
        self.take(Vec::new(), announced);
    }

    /// Samples of all containers, `interval` after those before: CPU in thousandths of a core and MiB of each.
    pub(super) fn sample(&mut self, interval: u64, use_of: impl Fn(usize) -> (u64, u64)) {
        self.now += interval;
        self.waited_usec += self.waits_usec * interval / SECOND;
        self.held_so_far_usec += self.held_usec * interval / SECOND;
        let mut samples = Vec::new();
        for (i, used) in self.used_usec.iter_mut().enumerate() {
            let (milli, mib) = use_of(i);
            *used += milli * interval / 1_000;
            let mut sample = Sample::new(Duration::from_micros(interval));
            sample.set(Field::CpuUsageUsec, *used);
            sample.set(Field::MemoryWorkingSetBytes, mib * MIB);
            sample.set(Field::MemoryPressureUsec, self.waited_usec);
            sample.set(Field::CpuThrottledUsec, self.held_so_far_usec);
            samples.push((i as u32 + 1, sample));
        }
        let mut bytes = Vec::new();
        let key = self.used_usec.len() as u64 * 2 > self.sequence || self.sequence.is_multiple_of(100);
        self.encoder.encode_seconds(key, self.now, SECOND as u32, &samples, &mut bytes).unwrap();
        self.take(bytes, Vec::new());
    }

    /// A sample a minute for so long.
    pub(super) fn run(&mut self, length: u64, use_of: impl Fn(usize) -> (u64, u64)) {
        (0..length / MINUTE).for_each(|_| self.sample(MINUTE, &use_of));
    }

    pub(super) fn desk<'a>(&'a self, site: &'a Site) -> Desk<'a> {
        Desk {
            advisor: &site.advisor,
            policies: &site.policies,
            state: &self.state,
            now_usec: self.now,
            largest: [None; 2],
            frozen: false,
            before: &site.before,
            wanted: &site.wanted,
        }
    }

    /// CPU and memory of a workload's container under a rule.
    pub(super) fn live(&self, site: &Site, workload: &str, rule: &str) -> [v1::Recommendation; 2] {
        let all = list::all(&self.desk(site), "", &[chosen(rule)]);
        let workload = format!("deployment/{workload}");
        let mut found = all.into_iter().filter(|r| r.workload == workload);
        [found.next().unwrap(), found.next().unwrap()]
    }

    /// The same of a pod that is yet to be made.
    pub(super) fn new_pod(
        &self,
        site: &Site,
        container: &str,
        image: &str,
        rule: &str,
    ) -> [v1::Recommendation; 2] {
        let text = format!(
            "kind: Pod\nmetadata: {{name: new-1, namespace: other}}\n\
             spec: {{containers: [{{name: {container}, image: '{image}'}}]}}\n"
        );
        let advice = pod::advise_pod(&self.desk(site), &pod::read(&text).unwrap(), &[chosen(rule)]);
        advice.containers[0].recommendations.clone().try_into().unwrap()
    }
}

pub(super) struct Site {
    pub(super) advisor: Advisor,
    policies: Set,
    before: StoredRecommendations,
    wanted: StillWanted,
}

impl Site {
    pub(super) fn new() -> Self {
        let advisor = Advisor::new(&Config::default().recommend).unwrap();
        Self {
            advisor,
            policies: Set::default(),
            before: StoredRecommendations::default(),
            wanted: StillWanted::default(),
        }
    }
}

pub(super) fn chosen(rule: &str) -> Chosen {
    rules::choose(rule, &Default::default(), &Goals::default(), &Default::default()).unwrap()
}

/// Twenty hours at one core and one GiB, then three idle minutes, of a container without a command and of one with.
#[test]
fn no_command_is_no_command_in_common() {
    let mut feed = Feed::new();
    feed.start(("bare", "redis:7", None));
    feed.start(("with", "nginx:1", Some(9)));
    feed.run(20 * HOUR, |_| (1_000, 1_024));
    feed.run(3 * MINUTE, |_| (10, 10));
    let site = Site::new();
    for rule in rules::NAMES {
        let bare = feed.live(&site, "bare", rule);
        let with = feed.live(&site, "with", rule);
        for (bare, with) in bare.iter().zip(&with) {
            assert_eq!(bare.request, with.request, "{rule}: {bare:?}");
            assert!(bare.span_seconds >= 20 * 3_600, "{rule}: {bare:?}");
        }
        let [cpu, memory] = bare;
        assert!(
            cpu.request >= Some(1_000) && memory.request >= Some(1_024 * MIB),
            "{rule}: {cpu:?} {memory:?}"
        );
        let tier = if rule == "initial" { "image:tag 7d" } else { "own" };
        assert_eq!((cpu.tier.as_str(), cpu.young, memory.young), (tier, true, true), "{rule}");
        // A pod with the same container and image knows no more of a command, and one with another name no less.
        for container in ["main", "other"] {
            let [cpu, memory] = feed.new_pod(&site, container, "redis:7", rule);
            let want = match rule {
                "goal" => ("image:tag", Some(1_000), Some(1_024 * MIB)),
                "initial" => ("image:tag 7d", Some(1_000), Some(1_024 * MIB)),
                // It knows of no containers but its own; these values are predefined.
                _ => ("predefined", None, None),
            };
            assert_eq!(cpu.tier, want.0, "{rule} {container}");
            assert!(cpu.request >= want.1 && memory.request >= want.2, "{rule}: {cpu:?} {memory:?}");
            assert!(cpu.young && memory.young);
        }
    }
}

/// Five days of one container, minutes of another of the same image: the second one's own minutes, its command's and its
/// tag's are not what it is answered from.
#[test]
fn what_runs_for_minutes_is_answered_from_those_who_know_days() {
    let mut feed = Feed::new();
    feed.start(("old", "web:1", Some(1)));
    feed.run(5 * DAY, |_| (800, 700));
    feed.start(("new", "web:2", Some(2)));
    feed.run(10 * MINUTE, |i| if i == 0 { (800, 700) } else { (10, 10) });
    let site = Site::new();
    let [cpu, memory] = feed.live(&site, "new", "goal");
    assert_eq!((cpu.tier.as_str(), memory.tier.as_str()), ("image", "image"));
    assert!(cpu.request > Some(700) && memory.request > Some(600 * MIB), "{cpu:?} {memory:?}");
    assert!(!cpu.young && cpu.span_seconds >= 5 * 86_400, "{cpu:?}");
    let [cpu, _] = feed.live(&site, "new", "initial");
    assert_eq!((cpu.tier.as_str(), cpu.request >= Some(800)), ("image 30d", true), "{cpu:?}");
    let [cpu, _] = feed.new_pod(&site, "main", "web:2", "goal");
    assert_eq!((cpu.tier.as_str(), cpu.young), ("image", false));
    // There the rule knows nothing wider, and says how little it is.
    let [cpu, _] = feed.live(&site, "new", "vpa");
    assert_eq!((cpu.tier.as_str(), cpu.young), ("own", true));
    let [cpu, _] = feed.live(&site, "old", "vpa");
    assert_eq!((cpu.tier.as_str(), cpu.young), ("own", false));
}

/// The time of many containers together is not the time that was seen, also after a restart.
#[test]
fn a_hundred_containers_of_a_quarter_of_an_hour_are_young() {
    let mut feed = Feed::new();
    feed.now += 12 * HOUR;
    for number in 0..100 {
        feed.start((&format!("w{number}"), "web:1", Some(1)));
    }
    for minutes in [2, 13] {
        feed.run(minutes * MINUTE, |_| (100, 50));
        feed.restart();
        // Nothing is kept from before.
        let site = Site::new();
        let [cpu, _] = feed.new_pod(&site, "main", "web:1", "goal");
        assert!(cpu.young && cpu.span_seconds <= 15 * 60, "{cpu:?}");
    }
}

#[test]
fn nothing_is_recommended_to_the_sandbox_of_a_pod() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.start(("web", "", None));
    for _run in 0..2 {
        feed.run(15 * MINUTE, |_| (100, 50));
        let lines = list::lines(&feed.state, "");
        assert_eq!(lines.iter().map(|line| line.asked.container.as_str()).collect::<Vec<_>>(), ["main"]);
        // Of containers that have gone their series are left.
        feed.restart();
    }
}

/// Whatever was asked for, the risk of a young container used to be the goal.
#[test]
fn the_risk_of_a_young_container_depends_on_what_it_requests() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.run(15 * MINUTE, |_| (500, 500));
    let site = Site::new();
    let line = &list::lines(&feed.state, "")[0];
    for rule in rules::NAMES {
        let risk = |cpu, mib: u64| {
            let now = Now { requests: [Some(cpu), Some(mib * MIB)], ..Now::default() };
            let both = feed.desk(&site).recommend(&line.asked, &now, None, Some(&chosen(rule)));
            both.map(|r| r.risk_now.unwrap())
        };
        assert!(risk(50, 50).iter().all(|risk| *risk > 0.9), "{rule} {:?}", risk(50, 50));
        assert!(risk(5_000, 5_000).iter().all(|risk| *risk < 0.005), "{rule} {:?}", risk(5_000, 5_000));
    }
}

/// Who defines a granularity of CPU and memory is recommended multiples of it, never less than without.
#[test]
fn recommended_requests_are_multiples_of_the_granularity() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.run(3 * HOUR, |_| (430, 333));
    let definitions = r#"{"cpu": {"quantization": "250m"}, "memory": {"quantization": "100Mi"}}"#;
    let types = ResourceTypes::with(&serde_json::from_str(definitions).unwrap()).unwrap();
    let (plain, mut site) = (Site::new(), Site::new());
    site.advisor = site.advisor.in_steps(&types);
    for rule in rules::NAMES {
        let requests = |site: &Site| feed.live(site, "web", rule).map(|r| r.request.unwrap());
        let ([cpu, memory], [exact_cpu, exact_memory]) = (requests(&site), requests(&plain));
        assert_eq!((cpu % 250, memory % (100 * MIB)), (0, 0), "{rule}: {cpu} {memory}");
        assert!(cpu >= exact_cpu && cpu < exact_cpu + 250, "{rule}: {cpu} of {exact_cpu}");
        assert!(
            memory >= exact_memory && memory < exact_memory + 100 * MIB,
            "{rule}: {memory} of {exact_memory}"
        );
    }
}

/// What all share is read once, however many ask; it was read for each, which took the square of their number.
#[test]
fn the_past_of_an_image_is_read_once_for_all_its_workloads() {
    let reads = |workloads: usize| {
        let mut feed = Feed::new();
        for number in 0..workloads {
            feed.start((&format!("w{number}"), "web:1", Some(1)));
        }
        feed.run(10 * MINUTE, |_| (100, 50));
        let site = Site::new();
        let all = list::all(&feed.desk(&site), "", &[chosen("goal"), chosen("initial")]);
        assert_eq!(all.len(), workloads * 4);
        assert!(all.iter().all(|r| r.request.is_some()));
        site.advisor.shared.read()
    };
    let few = reads(20);
    // Command, tag and image of the one rule; minutes, days of two tiers and then a third of the other; both resources.
    assert!((1..=16).contains(&few), "{few}");
    assert_eq!(reads(200), few);
}

fn changing(change: &str) -> Chosen {
    let parameters = serde_json::json!({ "change": change });
    let parameters = parameters.as_object().unwrap();
    rules::choose("goal", parameters, &Goals::default(), &Default::default()).unwrap()
}

/// Busy from eight to twenty: requests by the hour follow, those by the day do not; and what is raised comes within the
/// hour of a level nobody knew.
#[test]
fn requests_change_within_the_day_where_a_policy_says_so() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    let hour = |feed: &Feed| feed.now / HOUR % 24;
    let cpu = |feed: &Feed, change: &str| {
        let line = &list::lines(&feed.state, "")[0];
        let site = Site::new();
        let [cpu, _] =
            feed.desk(&site).recommend(&line.asked, &Now::default(), None, Some(&changing(change)));
        (cpu.request.unwrap(), cpu.notes.join("; "))
    };
    for _ in 0..10 * 24 {
        let busy = (8..20).contains(&hour(&feed));
        feed.run(HOUR, |_| (if busy { 1_000 } else { 100 }, 500));
    }
    // Two in the morning.
    let (day, hourly) = (cpu(&feed, "day").0, cpu(&feed, "hourly").0);
    assert!(day > 1_000 && hourly < 200, "{day} {hourly}");
    assert_eq!(cpu(&feed, "raise").0, day);
    for _ in 0..8 {
        let busy = (8..20).contains(&hour(&feed));
        feed.run(HOUR, |_| (if busy { 1_000 } else { 100 }, 500));
    }
    assert!(cpu(&feed, "hourly").0 > 1_000, "{}", cpu(&feed, "hourly").0);
    // A level that nobody knew.
    feed.run(45 * MINUTE, |_| (4_000, 500));
    let (raised, why) = cpu(&feed, "raise");
    assert!(raised > 4_000 && why.contains("raised: use was above"), "{raised} {why}");
    assert!(cpu(&feed, "day").0 < 2_000);
    feed.run(4 * HOUR, |_| (1_000, 500));
    assert!(cpu(&feed, "raise").0 < 2_000, "{:?}", cpu(&feed, "raise"));
}

/// The seconds of a container that runs tell where its memory is going.
#[test]
fn memory_is_raised_on_its_way_to_the_request() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.run(3 * DAY, |_| (100, 500));
    let memory = |feed: &Feed, change: &str| {
        let line = &list::lines(&feed.state, "")[0];
        let site = Site::new();
        let [_, memory] =
            feed.desk(&site).recommend(&line.asked, &Now::default(), None, Some(&changing(change)));
        (memory.request.unwrap() / MIB, memory.notes.join("; "))
    };
    let before = memory(&feed, "raise").0;
    assert!((500..2_000).contains(&before), "{before}");
    (0..60).for_each(|second| feed.sample(SECOND, |_| (100, 500 + 10 * second)));
    let (raised, why) = memory(&feed, "raise");
    assert!(raised >= 2_000 && why.contains("raised: at its pace"), "{raised} {why}");
    assert!(memory(&feed, "day").0 < raised);
    // It stopped: what was used counts, and no pace.
    (0..60).for_each(|_| feed.sample(SECOND, |_| (100, 1_090)));
    assert_eq!(memory(&feed, "raise"), memory(&feed, "day"));
}

/// The kernel's own word (PSI) that a container waits for memory counts near its limit; elsewhere it is the node that is short.
#[test]
fn memory_that_is_waited_for_near_a_limit_is_raised() {
    for (limit_mib, is_near) in [(Some(550), true), (Some(800), false), (None, false)] {
        let mut feed = Feed { limit_mib, ..Feed::new() };
        feed.start(("web", "web:1", None));
        // So long at so much less that the answer is the greatest use and no more.
        feed.run(14 * DAY, |_| (100, 200));
        feed.waits_usec = SECOND / 5;
        (0..10).for_each(|_| feed.sample(SECOND, |_| (100, 530)));
        let line = &list::lines(&feed.state, "")[0];
        let site = Site::new();
        let [_, memory] =
            feed.desk(&site).recommend(&line.asked, &Now::default(), None, Some(&changing("raise")));
        let is_raised = memory.notes.iter().any(|note| note.contains("waits for memory at 530 MiB"));
        assert_eq!(is_raised, is_near, "{limit_mib:?} {memory:?}");
        assert!(memory.request >= Some(530 * MIB * 6 / 5) || !is_near, "{memory:?}");
    }
}

/// An answer that looks at the last seconds was kept for a minute like any other: what grew was killed meanwhile.
#[test]
fn an_answer_of_a_first_sample_is_not_kept_for_what_came_after() {
    let (mut feed, site) = (Feed::new(), Site::new());
    feed.now += 50 * MINUTE + 50 * SECOND;
    feed.start(("web", "web:1", None));
    feed.sample(SECOND, |_| (250, 64));
    let [cpu, memory] = feed.live(&site, "web", "goal");
    assert_eq!((cpu.request, memory.request.is_some()), (None, true));
    (0..20).for_each(|_| feed.sample(SECOND, |_| (250, 64)));
    let [cpu, _] = feed.live(&site, "web", "goal");
    assert!(cpu.request.is_some(), "{cpu:?}");
}

#[test]
fn answers_that_look_at_the_last_seconds_are_made_anew() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    feed.run(3 * DAY, |_| (100, 500));
    let site = Site::new();
    let request = |feed: &Feed, change: &str| {
        let line = &list::lines(&feed.state, "")[0];
        let [_, memory] =
            feed.desk(&site).recommend(&line.asked, &Now::default(), None, Some(&changing(change)));
        memory.request
    };
    let before = ["raise", "day"].map(|change| request(&feed, change));
    (0..50).for_each(|second| feed.sample(SECOND, |_| (100, 500 + 20 * second)));
    assert!(request(&feed, "raise") > before[0]);
    assert_eq!(request(&feed, "day"), before[1], "kept for a minute");
}

fn asked(window_seconds: u64) -> UsageScope {
    UsageScope { window_seconds, ..UsageScope::default() }
}

fn at(stats: &Stats, tenths: u16) -> u64 {
    stats.percentiles[&Percentile::from_tenths(tenths).unwrap()]
}

/// Four seconds of work in each minute, as an agent's own statistics of the same seconds have them.
#[test]
fn percentiles_of_usage_are_those_of_seconds() {
    let mut feed = Feed::new();
    feed.start(("batch", "batch:1", None));
    let milli = |second: u64| if second % 60 < 4 { 900 } else { 2 };
    let mut seconds = Vec::new();
    for second in 0..20 * 60 {
        let mib = 64 + second / 60;
        feed.sample(SECOND, |_| (milli(second), mib));
        // A first sample has no use of CPU.
        seconds.push((second, (second > 0).then_some(milli(second) * 1_000), mib * MIB));
    }
    let site = Site::new();
    let of = |resource, last: usize| {
        let all = seconds.iter().rev().take(last).filter_map(|(second, micro, bytes)| {
            let value = if resource == Resource::Cpu { (*micro)? } else { *bytes };
            Some(UsageSecond { time_ms: second * 1_000, weight_ms: 1_000, value, stalled_ms: 0 })
        });
        of_seconds(&all.collect::<Vec<_>>(), resource).0
    };
    for (window, last) in [(0, seconds.len()), (3_600, seconds.len()), (60, 60), (30, 30)] {
        let found = usage::query(&feed.desk(&site), &asked(window));
        let record = &found[0].record;
        let (cpu, memory) = (&record.usage[&ResourceName::CPU], &record.usage[&ResourceName::MEMORY]);
        let same = [(cpu, of(Resource::Cpu, last), 1_000), (memory, of(Resource::Memory, last), 1)];
        for (got, want, unit) in same {
            for p in Percentile::STANDARD {
                let bucket = |stats: &Stats| Scheme::Octaves32.bucket(stats.percentiles[&p] * unit);
                assert_eq!(bucket(got), bucket(&want), "{window} s, {p} %: {got:?} {want:?}");
            }
            assert_eq!((got.max, got.min), (want.max, want.min), "{window} s");
        }
        // The last half of a minute is idle.
        assert_eq!(at(cpu, 990), if last < 60 { 2 } else { 900 }, "{window} s");
        assert_eq!((record.confidence.unwrap().get(), record.dropped), (1.0, 0), "{window} s");
    }
}

#[test]
fn confidence_is_the_share_of_seconds_that_were_seen() {
    let mut feed = Feed::new();
    feed.start(("web", "web:1", None));
    for second in 0..10 * 60 {
        // Forty seconds are lost on the way, twenty more within another minute.
        if (150..190).contains(&second) || (300..320).contains(&second) {
            feed.now += SECOND;
        } else {
            feed.sample(SECOND, |_| (100, 64));
        }
    }
    let site = Site::new();
    let found = usage::query(&feed.desk(&site), &asked(0));
    let record = &found[0].record;
    let window = record.window.unwrap().seconds();
    assert_eq!(record.dropped, 60);
    let seen = record.usage[&ResourceName::MEMORY].count.unwrap();
    assert_eq!((seen, window), (540, 600));
    assert!((record.confidence.unwrap().get() - 0.9).abs() < 1e-9, "{record:?}");
}
