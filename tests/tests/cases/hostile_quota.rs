//! A node that announces more containers than there can be is refused the rest, and costs its neighbours nothing.

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1;
use evenkeel_tests::product::{Agent, Pair, await_acknowledged, parse_metrics};
use evenkeel_tests::{figures, machine, processes, require};

use super::forged::{Forged, hello};

const ANNOUNCED: u32 = 100_000;
const EACH_FRAME: u32 = 2_000;
/// Frames sent before the neighbour is looked at.
const FRAMES: u32 = 5;
/// What a node may have at once (`ingest.max_containers_per_node`).
const TAKEN: u32 = 4_000;
/// A quarter of what the unit allows (`MemoryMax` of systemd/evenkeel-recommender.service).
const MOST_MEMORY: u64 = 1 << 30;

fn acknowledged(agent: &Agent) -> Result<u64> {
    Ok(agent.ask().status()?.stream.context("no stream in the status")?.last_acknowledged)
}

fn announcement(slot: u32) -> v1::Announcement {
    let identity = v1::ContainerIdentity {
        id: format!("c{slot}"),
        namespace: "evil".into(),
        pod: format!("p{slot}"),
        container: "main".into(),
        workload: format!("deployment/w{slot}"),
        image: "img:1".into(),
        ..v1::ContainerIdentity::default()
    };
    v1::Announcement { slot, identity: Some(identity) }
}

#[test]
fn a_node_of_100_000_containers_is_refused_most_and_its_neighbour_is_served() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::hurried()?;
    let (recommender, agent) = (pair.recommender.start()?, pair.site.start()?);
    await_acknowledged(&agent, 5)?;
    let before = acknowledged(&agent)?;
    let mut evil = Forged::greet(&pair.recommender.address(), hello("evil", 7))?;
    for round in 0..ANNOUNCED / (EACH_FRAME * FRAMES) {
        let so_far = acknowledged(&agent)?;
        for number in round * FRAMES..(round + 1) * FRAMES {
            let first = number * EACH_FRAME;
            let announced = (first..first + EACH_FRAME).map(announcement).collect();
            let frame = v1::Frame { announced, ..evil.second(0..0)? };
            evil.send(vec![frame])?;
        }
        // While these are on their way.
        await_acknowledged(&agent, so_far + 2)?;
        evil.acknowledged()?;
    }
    let during = acknowledged(&agent)? - before;
    let peak = processes::memory_of(recommender.daemon().pid()?, "VmHWM")?;
    figures::show(&format!(
        "frames of the neighbour acknowledged: {before} before, {during} beside {ANNOUNCED} containers announced; the \
         recommender's peak memory {} MiB",
        peak >> 20
    ));
    ensure!(peak < MOST_MEMORY, "{peak} bytes");

    let refused = f64::from(ANNOUNCED - TAKEN);
    let metrics = parse_metrics(&recommender.get("/metrics")?.1)?;
    let counted = metrics.sum("evenkeel_recommender_refused_containers_total");
    ensure!(counted == Some(refused), "{counted:?}");
    let nodes = recommender.ask().nodes()?;
    let node = |name: &str| nodes.iter().find(|node| node.name == name).with_context(|| format!("{nodes:?}"));
    let (evil_node, good) = (node("evil")?, node("node-a")?);
    ensure!(evil_node.refused_containers == u64::from(ANNOUNCED - TAKEN), "{evil_node:?}");
    ensure!(evil_node.containers == TAKEN, "{evil_node:?}");
    ensure!((good.refused_containers, good.gaps, good.containers) == (0, 0, 1), "{good:?}");
    ensure!(recommender.get("/readyz")?.0 == 200, "not ready");
    let metrics = parse_metrics(&agent.metrics()?)?;
    ensure!(metrics.sum("evenkeel_agent_frames_dropped_total") == Some(0.0), "frames were dropped");

    // The one that was not refused stays served, and both end in order.
    await_acknowledged(&agent, before + during + 2)?;
    drop(evil);
    agent.stop()?;
    recommender.stop()
}
