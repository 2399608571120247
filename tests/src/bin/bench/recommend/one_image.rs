//! How fast all workloads are answered when their containers have one image and command, as a sidecar in every pod has, and
//! are young, so that what they share answers for each.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::frame::synth::Load;
use evenkeel_proto::tonic::transport::Endpoint;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::{Frame, ListRecommendationsRequest, QueryUsageRequest};

use super::number;
use crate::figure::{Figure, Target};
use crate::ingest::crowd;
use crate::ingest::replay::{CONTAINERS, Recording};
use crate::pair::{Place, Recommender};
use crate::run::Run;

/// Nodes of a thousand containers, each a workload of its own.
const NODES: u32 = 12;
/// Seconds of history: the minute that went on and a little.
const SECONDS: usize = 130;
/// Questions; an answer is given again for a second, and each question comes later than that.
const QUESTIONS: usize = 5;

/// Gives the figure.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let place = Place::new()?;
    let recommender = Recommender::start(&place)?;
    let figure = measure(run, &recommender);
    recommender.stop()?;
    figure.map(|figure| vec![figure])
}

/// The seconds as one node sends them, every container a workload of its own and of the one image.
fn frames(recording: &Recording, node: usize) -> Vec<Frame> {
    let mut frames = recording.of_node(&format!("node-{node}"));
    for announcement in &mut frames[0].announced {
        let Some(identity) = &mut announcement.identity else { continue };
        identity.workload = format!("deployment/app-{node}-{}", announcement.slot);
        identity.container = "sidecar".to_owned();
        identity.image = "registry.test/sidecar:1.2.3".to_owned();
        identity.command_hash = Some(1);
    }
    frames
}

fn measure(run: &Run, recommender: &Recommender) -> Result<Figure> {
    let workloads = NODES * CONTAINERS;
    run.say(&format!("sending {SECONDS} seconds of {workloads} workloads of one image"));
    let recording = Recording::make(7, Load::Busy, SECONDS)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (all, usage) = runtime.block_on(async {
        let names: Vec<String> = (0..NODES).map(|node| format!("node-{node}")).collect();
        let mut links = crowd::open(recommender, &names).await?;
        crowd::begin(&mut links, |node| frames(&recording, node)).await?;
        ask(run, recommender, workloads as usize).await
    })?;
    let pass = number(&recommender.metrics()?, "pass_seconds")?;
    let greatest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    Ok(Figure::new("recommend/one-image", greatest(&all), "s", Target::AtMost(2.0)).spread(&all).what(format!(
        "the longest of {QUESTIONS} answers for every one of {workloads} workloads whose containers have one image and \
         command and are two minutes old, over gRPC; usage of all of them: {:.2} s, the last pass in the background: \
         {pass:.2} s",
        greatest(&usage)
    )))
}

/// Seconds of each answer for all workloads: recommendations, and usage.
async fn ask(run: &Run, recommender: &Recommender, workloads: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let endpoint = Endpoint::from_shared(recommender.address())?;
    let channel = endpoint.connect().await.context("cannot connect")?;
    let mut client = RecommenderServiceClient::new(channel).max_decoding_message_size(64 << 20);
    let (mut all, mut usage) = (Vec::new(), Vec::new());
    for question in 1..=QUESTIONS {
        run.check()?;
        run.say(&format!("asking for all, {question} of {QUESTIONS}"));
        let began = Instant::now();
        let answer = client.list_recommendations(ListRecommendationsRequest::default()).await?.into_inner();
        all.push(began.elapsed().as_secs_f64());
        let known = answer.recommendations.iter().filter(|r| r.request.is_some()).count();
        ensure!(known == 2 * workloads, "{known} of {} are known", 2 * workloads);
        let began = Instant::now();
        let answer = client.query_usage(QueryUsageRequest::default()).await?.into_inner();
        usage.push(began.elapsed().as_secs_f64());
        ensure!(answer.records.len() == workloads, "usage of {} workloads", answer.records.len());
    }
    Ok((all, usage))
}
