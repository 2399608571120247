//! An agent with two recommenders that share a Lease: both get every second, the leader says what the node's pods require, and when it is
//! killed the other one does.

use std::fs;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::GetStatusResponse;
use evenkeel_tests::product::{Recommender, RecommenderSetup};
use evenkeel_tests::{machine, require, wait};
use serde_json::json;

use super::node_pods::{Cluster, await_wanted, memory, pod, score_of};

/// One of the two, with a directory of its own.
fn setup(cluster: &Cluster, name: &str) -> Result<RecommenderSetup> {
    let directory = cluster.site.directory().join(name);
    fs::create_dir_all(&directory)?;
    let kubeconfig = cluster.api.kubeconfig(&directory);
    Ok(RecommenderSetup::new(&directory)?
        .set("kubernetes.view", "true")
        .set("kubernetes.cluster", "\"test\"")
        .set("kubernetes.kubeconfig", &format!("{:?}", kubeconfig.display().to_string()))
        .set("kubernetes.lease", "\"evenkeel/evenkeel-recommender\""))
}

fn metric(recommender: &Recommender, name: &str) -> Result<Option<u64>> {
    let (_, page) = recommender.get("/metrics")?;
    let name = format!("evenkeel_recommender_{name} ");
    Ok(page.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()))
}

fn await_metric(recommender: &Recommender, name: &str, value: u64) -> Result<()> {
    let what = format!("{name} to be {value}");
    wait::until(&what, wait::PATIENCE, || Ok((metric(recommender, name)? == Some(value)).then_some(())))
}

/// Which streams stand, and which of them is followed.
fn streams(status: &GetStatusResponse) -> Vec<(bool, bool)> {
    status.streams.iter().map(|stream| (stream.connected, stream.leads)).collect()
}

#[test]
fn a_node_hears_the_leader_and_when_that_is_killed_the_other() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut cluster = Cluster::new()?;
    cluster.runs("web")?;
    cluster.api.put(pod("web", "node-a", memory(250)?));
    let (first, second) = (setup(&cluster, "first")?, setup(&cluster, "second")?);
    let leader = first.start()?;
    await_metric(&leader, "leads", 1)?;
    let standby = second.start()?;
    await_metric(&standby, "lease_term", 1)?;
    let addresses = json!([first.address(), second.address()]).to_string();
    cluster.site = cluster.site.with(|agent| agent.set("stream.recommender", &addresses));
    let agent = cluster.site.start()?;
    await_wanted(&agent, "web", score_of(250), "api")?;
    agent.await_status("both streams", |status| streams(status) == [(true, true), (true, false)])?;
    let shown = agent.cli().run(&["status"])?.success()?;
    ensure!(shown.contains("connected, leads,"), "{shown}");

    leader.kill()?;
    cluster.api.put(pod("web", "node-a", memory(400)?));
    await_metric(&standby, "leads", 1)?;
    await_wanted(&agent, "web", score_of(400), "api")?;
    agent.await_status("the other one to be followed", |status| {
        streams(status) == [(false, false), (true, true)]
    })?;

    // The old leader comes back as a follower, and gets what it missed.
    let follower = first.start()?;
    await_metric(&follower, "lease_term", 2)?;
    agent.await_status("both streams again", |status| streams(status) == [(true, false), (true, true)])?;
    cluster.api.put(pod("web", "node-a", memory(300)?));
    await_wanted(&agent, "web", score_of(300), "api")?;
    let frames = metric(&standby, "frames_total")?.context("no frames")?;
    wait::until("what it missed", wait::PATIENCE, || {
        Ok((metric(&follower, "frames_total")? >= Some(frames)).then_some(()))
    })?;
    for recommender in [&follower, &standby] {
        assert_eq!(metric(recommender, "lost_frames_total")?, Some(0));
    }
    agent.stop()?;
    follower.stop()?;
    standby.stop()
}
