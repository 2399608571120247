//! How fast the recommender answers about pods while it takes samples in, and makes everything it keeps anew.
//!
//! A real recommender is pinned to one processor, with 10,000 policies in a file and as many workloads, each with nine days
//! of hours and a month of days behind it, and asked from another one while nodes send a third of the promised load. An echo (the health service) is called in turn with each
//! question over the same connection, so that what the network and the busy processor cost is seen beside.

pub(crate) mod one_image;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::frame::synth::Load;
use evenkeel_proto::tonic::transport::{Channel, Endpoint};
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::{Frame, RecommendPodRequest};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::figure::{Figure, Target};
use crate::ingest::link::Link;
use crate::ingest::replay::Recording;
use crate::ingest::{cost, crowd, pin};
use crate::pair::{Place, Recommender};
use crate::run::Run;
use crate::usage::{memory_mib, percentile};

/// Nodes, and containers of each: a third of 300,000 samples a second.
const NODES: usize = 2000;
const CONTAINERS: u32 = 50;
/// Nodes whose containers are workloads of their own, each with a history and a policy.
const GOVERNED: usize = 200;
const POLICIES: usize = GOVERNED * CONTAINERS as usize;
/// Seconds of history before anything is asked.
const BEFORE: usize = 70;
/// Questions asked, one after the other.
const QUESTIONS: usize = 3_000;
/// Passes over all containers that are measured: an answer is kept for a minute, so that within these each is made anew.
const PASSES: u64 = 6;

/// Gives all three figures.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    run.say(&format!("making the history of {POLICIES} workloads"));
    let past = cost::fill(&place.path("recommender"), POLICIES)?;
    let policies = place.path("policies.yaml");
    std::fs::write(&policies, all_policies()).context("cannot write the policies")?;
    let all = sched_getaffinity(Pid::from_raw(0)).context("cannot read the own processors")?;
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| all.is_set(*cpu).unwrap_or(false)).collect();
    let (first, last) = cpus.first().copied().zip(cpus.last().copied()).context("no processor")?;
    // A child inherits its parent thread's processors (sched_setaffinity(2)).
    pin(last)?;
    let recommender = Recommender::start_with(&place, &format!("policies = [{policies:?}]\n"));
    pin(first)?;
    let figures = recommender.and_then(|recommender| {
        let figures = measure(run, &recommender, &past);
        recommender.stop()?;
        figures
    });
    sched_setaffinity(Pid::from_raw(0), &all).context("cannot go back to all processors")?;
    figures
}

/// Number of a governed container.
fn governed(node: usize, slot: u32) -> Option<u32> {
    (node < GOVERNED).then(|| node as u32 * CONTAINERS + slot)
}

/// One policy for each governed workload.
fn all_policies() -> String {
    let mut text = String::new();
    for number in 1..=POLICIES as u32 {
        let cost::Names { namespace, app, .. } = cost::names(number);
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "---\napiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {{name: p-{number}, namespace: {namespace}}}\nspec:\n  \
             target: {{matchLabels: {{app: {app}}}}}\n  resourcesPolicy: {{containers: [{{name: main, requests: {{cpu: {{min: \
             10m, max: '8'}}}}}}]}}\n"
        );
    }
    text
}

/// The recording's first seconds as one node sends them; on a governed node each container is a workload of its own.
fn first(recording: &Recording, node: usize) -> Vec<Frame> {
    let announcing = recording.first_of_node(&format!("node-{node}"));
    let mut frames = vec![announcing];
    frames.extend_from_slice(recording.frames(1..BEFORE));
    for announcement in &mut frames[0].announced {
        let (Some(identity), Some(number)) = (&mut announcement.identity, governed(node, announcement.slot))
        else {
            continue;
        };
        let cost::Names { namespace, app, image } = cost::names(number);
        identity.namespace = namespace;
        identity.workload = format!("deployment/{app}");
        identity.image = image;
        identity.command_hash = Some(u64::from(number));
        identity.labels = [("app".to_owned(), app)].into();
    }
    frames
}

fn measure(run: &Run, recommender: &Recommender, past: &str) -> Result<Vec<Figure>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seconds = BEFORE + run.length.as_secs().max(60) as usize;
    run.say(&format!("making {seconds} frames of {CONTAINERS} containers for {NODES} nodes"));
    let recording = Recording::make_until_now(7, CONTAINERS, Load::Busy, seconds)?;
    let names: Vec<String> = (0..NODES).map(|node| format!("node-{node}")).collect();
    let mut links = runtime.block_on(async {
        let mut links = crowd::open(recommender, &names).await?;
        crowd::begin(&mut links, |node| first(&recording, node)).await?;
        Ok::<_, anyhow::Error>(links)
    })?;
    run.say(&format!("waiting for {PASSES} passes over {POLICIES} policies"));
    let passes = runtime.block_on(passes(run, recommender))?;
    run.check()?;
    run.say(&format!("asking {QUESTIONS} times"));
    let before = Answers::read(recommender)?;
    runtime.block_on(ask(recommender, 0))?;
    let alone = Answers::read(recommender)?;
    run.say(&format!("asking {QUESTIONS} times under load"));
    let (asked, echoed) = runtime.block_on(under_load(run, recommender, &mut links, &recording, seconds))?;
    let metrics = recommender.metrics()?;
    let loaded = Answers::of(&metrics)?;
    let (inside, under_load) = (alone.since(&before).p99()?, loaded.since(&alone).p99()?);
    let resident = memory_mib(recommender.daemon().pid()?)?.0;
    let (containers, subjects) = (number(&metrics, "containers")?, number(&metrics, "history_subjects")?);
    let state = format!(
        "{resident:.0} MiB resident with {containers} containers and {:.2} KiB of sealed hours and days for each of \
         {subjects} workloads, commands and images",
        number(&metrics, "history_memory_bytes")? / 1024.0 / subjects.max(1.0)
    );
    let p99 = percentile(&asked, 990).context("nothing was asked")?;
    let echo = percentile(&echoed, 990).context("nothing was echoed")?;
    let most = (echo + 5.0).max(10.0);
    Ok(vec![
        Figure::new("recommend/in-process-p99", inside, "ms", Target::AtMost(1.0)).what(format!(
            "upper bound of the bucket of the recommender's own histogram in which the 99th percentile of {QUESTIONS} \
             answers lies, the wait for the state included, {NODES} nodes of {CONTAINERS} containers being followed and passes \
             over all workloads going on; {under_load} ms while the nodes send each second on the same processor, what \
             takes it away meanwhile included; {past}; {state}"
        )),
        Figure::new("recommend/grpc-p99", p99, "ms", Target::AtMost(most)).baseline(echo).what(format!(
            "RecommendPod for pods of {POLICIES} workloads in turn, half of them not yet existing, at the same time and \
             over the same connection as the echo in BASELINE; recommender pinned to one processor, client on another; \
             median {:.2}",
            percentile(&asked, 500).unwrap_or_default()
        )),
        Figure::new("recommend/policies-10k", passes.iter().copied().fold(0.0, f64::max), "s", Target::AtMost(5.0))
            .spread(&passes)
            .what(format!(
                "the longest of the last passes over {POLICIES} policies and the {} workloads there are; within them every \
                 answer was made anew",
                POLICIES + 500
            )),
    ])
}

/// Time of the next passes, seconds. Awaited, so that the connections go on answering that they are there.
async fn passes(run: &Run, recommender: &Recommender) -> Result<Vec<f64>> {
    let read = || -> Result<(f64, f64)> {
        let text = recommender.metrics()?;
        ensure!(number(&text, "policies")? as usize == POLICIES, "the policies were not read");
        Ok((number(&text, "passes_total")?, number(&text, "pass_seconds")?))
    };
    // The pass that runs now began before everything was there.
    let mut seen = read()?.0 + 1.0;
    let mut took = Vec::new();
    let began = Instant::now();
    while took.len() < PASSES as usize {
        run.check()?;
        ensure!(began.elapsed() < Duration::from_secs(300), "no {PASSES} passes within five minutes");
        let (number, seconds) = read()?;
        if number > seen {
            seen = number;
            took.push(seconds);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(took)
}

/// Milliseconds of each question and of each echo, while all nodes send a frame a second.
async fn under_load(
    run: &Run,
    recommender: &Recommender,
    links: &mut [Link],
    recording: &Recording,
    seconds: usize,
) -> Result<(Vec<f64>, Vec<f64>)> {
    let done = AtomicBool::new(false);
    let asking = async {
        let times = ask(recommender, QUESTIONS).await;
        done.store(true, Ordering::Relaxed);
        times
    };
    let frame = |_: usize, second: usize| recording.frames(second..second + 1);
    let feeding = crowd::feed(run, links, BEFORE..seconds, frame, || done.load(Ordering::Relaxed));
    let (times, fed) = futures::future::join(asking, feeding).await;
    fed?;
    times
}

/// Milliseconds of each question and of each echo. Answers are kept for a minute: no question is asked twice.
async fn ask(recommender: &Recommender, first: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let endpoint = Endpoint::from_shared(recommender.address())?;
    let channel: Channel = endpoint.connect().await.context("cannot connect")?;
    let mut asking = RecommenderServiceClient::new(channel.clone());
    let mut echoing = HealthClient::new(channel);
    let (mut asked, mut echoed) = (Vec::new(), Vec::new());
    for question in first..first + QUESTIONS {
        let number = 1 + (question * 7) as u32 % POLICIES as u32;
        let cost::Names { namespace, app, image } = cost::names(number);
        // Every other pod is of a workload nobody has seen, with an image that is known.
        let owner = if question % 2 == 0 { app.clone() } else { format!("new-{question}") };
        let pod = format!(
            r#"{{"metadata": {{"name": "{owner}", "namespace": "{namespace}", "labels": {{"app": "{app}"}},
                "ownerReferences": [{{"kind": "Deployment", "name": "{owner}", "controller": true}}]}},
                "spec": {{"containers": [{{"name": "main", "image": "{image}"}}]}}}}"#
        );
        let began = Instant::now();
        let answer = asking.recommend_pod(RecommendPodRequest { pod, rules: Vec::new() }).await?.into_inner();
        asked.push(began.elapsed().as_secs_f64() * 1e3);
        ensure!(answer.policy == format!("{namespace}/p-{number}"), "governed by {:?}", answer.policy);
        let began = Instant::now();
        echoing.check(HealthCheckRequest::default()).await.context("no echo")?;
        echoed.push(began.elapsed().as_secs_f64() * 1e3);
        // A hundred a second is what a large cluster's roll-outs ask.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok((asked, echoed))
}

/// The recommender's own histogram of its answers: bounds of the buckets in seconds, and answers up to each.
struct Answers(Vec<(f64, f64)>);

impl Answers {
    fn read(recommender: &Recommender) -> Result<Answers> {
        Answers::of(&recommender.metrics()?)
    }

    fn of(metrics: &str) -> Result<Answers> {
        let buckets = metrics.lines().filter_map(|line| {
            let rest = line.strip_prefix("evenkeel_recommender_answer_seconds_bucket{le=\"")?;
            let (bound, count) = rest.split_once("\"} ")?;
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().ok()? };
            Some((bound, count.parse().ok()?))
        });
        let buckets: Vec<_> = buckets.collect();
        ensure!(!buckets.is_empty(), "the metrics have no answer_seconds");
        Ok(Answers(buckets))
    }

    /// Those after an earlier look.
    fn since(&self, before: &Answers) -> Answers {
        Answers(self.0.iter().zip(&before.0).map(|(now, then)| (now.0, now.1 - then.1)).collect())
    }

    /// Upper bound of the bucket in which the 99th percentile lies, milliseconds.
    fn p99(&self) -> Result<f64> {
        let total = self.0.last().map_or(0.0, |(_, count)| *count);
        ensure!(total > 0.0, "nothing was answered");
        let enough = self.0.iter().find(|(_, count)| *count >= total * 0.99);
        Ok(enough.map_or(f64::INFINITY, |(bound, _)| bound * 1e3))
    }
}

fn number(metrics: &str, name: &str) -> Result<f64> {
    let line = metrics.lines().find_map(|l| l.strip_prefix("evenkeel_recommender_")?.strip_prefix(name));
    let value = line.and_then(|rest| rest.trim().parse().ok());
    value.with_context(|| format!("the metrics have no {name}"))
}
