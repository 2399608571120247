//! An agent and a recommender on one machine, with one container to report.

use anyhow::{Context, Result};
use evenkeel_proto::v1::{GetStatusResponse, Node};

use super::{Agent, Cli, Manifest, Recommender, RecommenderSetup, Site};
use crate::wait;

/// A site whose agent streams to a recommender, and the pod `web` on it.
#[derive(Debug)]
pub struct Pair {
    /// The agent's side.
    pub site: Site,
    /// The recommender to be started.
    pub recommender: RecommenderSetup,
}

/// What the recommender has of one node at one moment.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The node.
    pub node: Node,
    /// Samples of the pod `web`, one for each tick.
    pub samples: u64,
}

impl Pair {
    /// Both set up, none started; the pod runs.
    ///
    /// # Errors
    ///
    /// Fails when the pod cannot be started.
    pub fn new() -> Result<Pair> {
        let site = Site::new()?;
        let recommender = RecommenderSetup::new(site.directory())?;
        let address = recommender.address();
        let mut site = site.with(|agent| agent.recommender(&address));
        let (cgroup, _) = site.sleeper("web")?;
        site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
        Ok(Pair { site, recommender })
    }

    /// The same with ten ticks a second, so that what takes many frames takes little time.
    ///
    /// # Errors
    ///
    /// As [`Pair::new`].
    pub fn hurried() -> Result<Pair> {
        let Pair { site, recommender } = Pair::new()?;
        let site = site.with(|agent| agent.set("sample.interval", "\"100ms\""));
        Ok(Pair { site, recommender })
    }

    /// The command line, asking both.
    pub fn cli(&self) -> Cli {
        let agent = format!("unix://{}", self.site.agent.socket().display());
        Cli::default().agent(&agent).recommender(&self.recommender.address())
    }
}

/// Waits until an agent has so many frames more acknowledged than it had, and returns its status.
///
/// # Errors
///
/// Fails when it has not in time.
pub fn await_acknowledged(agent: &Agent, at_least: u64) -> Result<GetStatusResponse> {
    agent.await_status(&format!("{at_least} frames to be acknowledged"), |status| {
        status.stream.as_ref().is_some_and(|stream| stream.last_acknowledged >= at_least)
    })
}

/// Waits until an agent has written so many frames, and returns how many it has.
///
/// # Errors
///
/// Fails when it has not in time.
pub fn await_written(agent: &Agent, at_least: u64) -> Result<u64> {
    let status = agent.await_status(&format!("{at_least} frames to be written"), |status| {
        status.stream.as_ref().is_some_and(|stream| stream.frames_written >= at_least)
    })?;
    Ok(status.stream.context("it was there")?.frames_written)
}

/// What the recommender has, once it has the node `node-a` and the pod, with nothing arriving in between the questions.
///
/// # Errors
///
/// Fails when it does not come to that in time.
pub fn kept(recommender: &Recommender) -> Result<Kept> {
    let node = || -> Result<Option<Node>> {
        Ok(recommender.ask().nodes()?.into_iter().find(|node| node.name == "node-a"))
    };
    wait::until("the recommender to have samples of the pod", wait::PATIENCE, || {
        let Some(before) = node()? else { return Ok(None) };
        let records = recommender.ask().usage("default")?;
        let after = node()?;
        let of_pod = records.iter().find(|record| record.workload == "web");
        let samples = of_pod.and_then(|record| record.usage.get("memory")).map_or(0, |stats| stats.count);
        let still = after.is_some_and(|after| after.frames == before.frames);
        Ok((still && samples > 0).then_some(Kept { node: before, samples }))
    })
}
