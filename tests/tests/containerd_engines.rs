//! Suite `containerd`: the agent beside the real Docker and the real Podman, asked over their API sockets.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, QosClass};
use evenkeel_tests::processes::{memory_total, score};
use evenkeel_tests::product::{Agent, AgentSetup, Manifest, await_score, directory};
use evenkeel_tests::runtime::BUSYBOX;
use evenkeel_tests::runtime::engine::{Engine, Kind};
use evenkeel_tests::{figures, require};
use serde_json::json;

/// Well below the period at which engines are listed without a reason: a container's directory is the reason. How long it
/// took is shown; the promise is one second, on a machine that has time for it.
const KNOWN_WITHIN: Duration = Duration::from_secs(10);
const MIB: u64 = 1 << 20;

/// The container of a pod, when it is as wanted.
fn container(
    agent: &Agent,
    pod: &str,
    what: &str,
    is: impl Fn(&ContainerStatus) -> bool,
) -> Result<ContainerStatus> {
    let of_pod = |c: &&ContainerStatus| c.identity.as_ref().is_some_and(|i| i.pod == pod);
    let status = agent.await_status(&format!("{pod} to be {what}"), |status| {
        status.containers.iter().find(of_pod).is_some_and(&is)
    })?;
    status.containers.iter().find(of_pod).cloned().context("it was there")
}

/// Names, image, requests and limits come from the engine; bindings by name survive re-creation.
fn follows(kind: Kind) -> Result<()> {
    let (engine, directory) = (Engine::start(kind)?, directory()?);
    let other = directory.path().join("none");
    let setup = AgentSetup::new(directory.path())?;
    let setup = match kind {
        Kind::Docker => setup.engines(&engine.socket(), &other),
        Kind::Podman => setup.engines(&other, &engine.socket()),
    };
    let agent = setup.start()?;

    let told = ["--memory", "128m", "--memory-reservation", "64m", "--cpu-shares", "256"];
    let labelled = ["--label", "evenkeel.dev/oom-kill=container", "--label", "team=shop"];
    let pid = engine.run("web", &[&told[..], &labelled].concat())?;
    let started = Instant::now();
    container(&agent, "web", "known by its name", |_| true)?;
    let known = started.elapsed();
    let web = container(&agent, "web", "right", |c| c.state() == ConvergeState::Converged)?;
    let right = started.elapsed();
    figures::show(&format!(
        "{}: known {known:.1?} and converged {right:.1?} after the client returned",
        kind.name()
    ));
    ensure!(known < KNOWN_WITHIN, "known after {known:?}\n{}", agent.log_end());
    let identity = web.identity.clone().context("an identity")?;
    let asked = identity.requested.context("no request")?;
    ensure!((identity.namespace.as_str(), identity.image.as_str()) == (kind.name(), BUSYBOX), "{web:#?}");
    ensure!(identity.memory_class() == QosClass::Burstable, "{web:#?}");
    let numbers = (asked.cpu_request_milli, asked.memory_request_bytes, asked.memory_limit_bytes);
    ensure!(numbers == (Some(250), Some(64 * MIB), Some(128 * MIB)), "{asked:?}");
    ensure!(web.cgroup.contains(&identity.id), "{web:#?}");
    await_score(pid, 1000 - i32::try_from(1000 * 64 * MIB / memory_total()?)?)?;

    // Of whom nothing was said nothing is known.
    let quiet = engine.run("quiet", &[])?;
    container(&agent, "quiet", "left alone", |c| c.state() == ConvergeState::Unclassified)?;
    ensure!(score(quiet)? == 0, "nothing was said of it");

    // A manifest binds the name, whoever has it.
    let resources = json!({"requests": {"cpu": "100m"}});
    setup.bind(&Manifest::new("shop", &format!("{}://db", kind.name()), &resources))?;
    for _ in 0..2 {
        let db = engine.run("db", &["--cpu-shares", "512"])?;
        await_score(db, 1000)?;
        let shop = agent.await_state("shop", ConvergeState::Converged)?;
        let identity = shop.identity.context("an identity")?;
        let request = identity.requested.and_then(|asked| asked.cpu_request_milli);
        ensure!(
            (identity.namespace.as_str(), request) == ("default", Some(100)),
            "the manifest's: {identity:#?}"
        );
        engine.remove("db")?;
    }

    if kind == Kind::Docker {
        engine.ask(&["update", "--cpu-shares", "512", "web"])?;
        let requests = |c: &ContainerStatus| c.identity.as_ref()?.requested?.cpu_request_milli;
        container(&agent, "web", "as it was updated", |c| requests(c) == Some(500))?;
    }
    agent.stop()
}

#[test]
fn containers_of_docker_are_named_classified_and_bound_by_name() -> Result<()> {
    let why = Kind::Docker.impossible();
    require!(why.is_none(), why.unwrap_or_default());
    follows(Kind::Docker)
}

#[test]
fn containers_of_podman_are_named_classified_and_bound_by_name() -> Result<()> {
    let why = Kind::Podman.impossible();
    require!(why.is_none(), why.unwrap_or_default());
    follows(Kind::Podman)
}
